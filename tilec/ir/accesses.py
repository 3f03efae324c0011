"""Accesses of arrays by register tiles: whether place, axes and width make sense together.

What reading and writing have in common is said here once, for the ops of level ``cta`` to yield.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.core import Value
from tilec.ir.types import S32, Array, Register, Scalar, Shared

PUTS = ("stmatrix", "store")
GETS = ("ldmatrix", "load")
"""Instructions of ``cta.put`` and ``cta.get``."""
ACCESS_BYTES = 16
"""The widest access of one thread (PTX ISA, ld and st: .v4 of 32 bits)."""


def origin_faults(array: Array, origin: Sequence[Value[Any]]) -> Iterator[str]:
    """A place has an s32 for each axis of the array."""
    if len(origin) != len(array.shape):
        yield f"the array has {len(array.shape)} axes, the origin gives {len(origin)}"
    if any(v.type != Scalar(S32) for v in origin):
        yield "places in an array are s32"


def access_faults(op: Any, tile: Register) -> Iterator[str]:
    """What ``cta.read`` and ``cta.write`` of a register tile ask of their fields."""
    array: Array = op.array.type
    yield from origin_faults(array, op.origin[: len(op.origin) - len(getattr(op, "limited", ()))])
    if tile.dtype != array.dtype.held:
        yield f"the tile holds {tile.dtype}, the array {array.dtype}"
    if len(op.axes) != len(tile.shape) or not _distinct(op.axes, len(array.shape)):
        yield f"axes {op.axes} do not name one axis of {array} for each of the tile's"
    if not _distinct(op.bounded, len(tile.shape)):
        yield f"bounded {op.bounded} are not axes of the tile"
    if not set(getattr(op, "limited", ())) <= set(op.bounded):
        yield f"limited {op.limited} are not bounded axes"
    widest = ACCESS_BYTES // array.dtype.bytes
    if op.vector < 1 or op.vector & (op.vector - 1) or op.vector > widest:
        yield f"vector = {op.vector}: a power of 2 up to {widest} elements is one access"


def tile_faults(tile: Shared, value: Register) -> Iterator[str]:
    """A shared tile and the registers that it is copied to or from hold the same elements."""
    if (tile.dtype, tile.shape) != (value.dtype, value.shape):
        yield f"the value has type {value}, the tile {tile}"


def _distinct(axes: Sequence[int], rank: int) -> bool:
    return len(set(axes)) == len(axes) and all(0 <= axis < rank for axis in axes)
