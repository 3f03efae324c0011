"""Places computed while running that are neighbours in memory all the same.

A tile of places is read or written in vectors where, along one of its axes, the coordinate of the
array's axis of stride one is a loop's own index (or 0, 1, 2, ...) and all others stay what they
are. A vector starts at a multiple of its length, so where the extents are such multiples too it
lies inside the array or outside as a whole. What is not plain is taken element by element.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Value
from tilec.ir.levels import math, tile
from tilec.ir.types import Tile
from tilec.passes.base import Context
from tilec.passes.mapping import aligned_elements, divides

PLACE_OPS = (tile.Gather, tile.Scatter, tile.Atomic, tile.CompareExchange)
"""Ops that name places by a tile of coordinates."""


def repeats_along(value: Value[Any], axis: int) -> bool:
    """Whether a tile's elements are seen to be equal along an axis."""
    made = value.owner
    if isinstance(made, math.Fill) or not isinstance(value.type, Tile):
        return True
    if isinstance(made, math.Broadcast):
        if made.x.type.shape[axis] != value.type.shape[axis]:
            return True
        return repeats_along(made.x, axis)
    if isinstance(made, math.Expand):
        return axis == made.axis or repeats_along(made.x, axis - (axis > made.axis))
    if isinstance(made, math.Elementwise | math.Cast):
        return all(repeats_along(v, axis) for v in made.operands)
    if isinstance(made, tile.Pad):
        return made.axis != axis and repeats_along(made.x, axis)
    return False


def _length(ctx: Context, value: Value[Any], axis: int, most: int) -> int:
    """Elements of a run along an axis that start at a multiple of their number; 1 if none do."""
    made = value.owner
    if isinstance(made, math.Broadcast) and made.x.type.shape[axis] == value.type.shape[axis]:
        return _length(ctx, made.x, axis, most)
    if isinstance(made, math.Expand) and axis != made.axis:
        return _length(ctx, made.x, axis - (axis > made.axis), most)
    if isinstance(made, tile.Pad):
        if made.axis == axis:
            most = _dividing(ctx, made.index.type.extent, most)
        return _length(ctx, made.x, axis, most)
    if isinstance(made, tile.Positions):
        return _dividing(ctx, made.out.type.shape[0], most)
    if isinstance(made, tile.IndexValues) and not isinstance(made.index.owner, tile.Within):
        size = made.index.type.size
        return _dividing(ctx, size, most) if isinstance(size, int) else 1
    if isinstance(made, math.Add | math.Sub):
        own, moved = made.operands
        if repeats_along(own, axis) and isinstance(made, math.Add):
            own, moved = moved, own
        return _length(ctx, own, axis, min(most, _multiple(ctx, moved, most)))
    return 1


def _multiple(ctx: Context, value: Value[Any], most: int) -> int:
    """A power of two, at most ``most``, that divides a number (the same all along a tile)."""
    made = value.owner
    if isinstance(made, math.Constant):
        return _dividing(ctx, int(made.value), most)
    if isinstance(made, tile.ExtentOf):
        return _dividing(ctx, made.array.type.shape[made.axis], most)
    if isinstance(made, math.Fill | math.Expand | math.Broadcast):
        return _multiple(ctx, made.x, most)
    if isinstance(made, math.Add | math.Sub):
        return min(_multiple(ctx, v, most) for v in made.operands)
    if isinstance(made, math.Mul):
        return max(_multiple(ctx, v, most) for v in made.operands)
    return 1


def _dividing(ctx: Context, extent: int | str, most: int) -> int:
    while most > 1 and not divides(ctx, extent, most):
        most //= 2
    return most


def run_of(ctx: Context, op: Any) -> tuple[int, int]:
    """The tile axis along which places are neighbours, and the elements of a vector; (-1, 1)."""
    array = op.array
    facts = ctx.facts.array(array.name)
    unit = facts.unit_axis if facts is not None else -1
    first = op.coordinates[0]
    if unit < 0 or not isinstance(first.type, Tile):
        return -1, 1
    most = min(16 // array.type.dtype.bytes, aligned_elements(ctx, array, (unit,)))
    most = _dividing(ctx, array.type.shape[unit], 1 << (max(1, most).bit_length() - 1))
    for axis in range(len(first.type.shape)):
        others = [v for n, v in enumerate(op.coordinates) if n != unit]
        length = _length(ctx, op.coordinates[unit], axis, most)
        if length > 1 and all(_stays(ctx, v, axis, length) for v in others):
            return axis, length
    return -1, 1


def _stays(ctx: Context, value: Value[Any], axis: int, length: int) -> bool:
    """Whether a coordinate is one number along each vector."""
    made = value.owner
    if isinstance(made, tile.Pad) and made.axis == axis:
        whole = divides(ctx, made.index.type.extent, length)
        return (
            whole
            and not isinstance(made.index.owner, tile.Within)
            and (_stays(ctx, made.x, axis, length))
        )
    if isinstance(made, tile.Pad):
        return _stays(ctx, made.x, axis, length)
    if isinstance(made, math.Broadcast) and made.x.type.shape[axis] == value.type.shape[axis]:
        return _stays(ctx, made.x, axis, length)
    if isinstance(made, math.Expand) and axis != made.axis:
        return _stays(ctx, made.x, axis - (axis > made.axis), length)
    return repeats_along(value, axis)
