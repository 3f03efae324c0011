"""What the operands of a product ask of the tiles in shared memory that they are read from.

wgmma reads 16-bit elements with either axis contiguous, all others only with K contiguous (PTX ISA,
wgmma: transposition bits exist for .f16 and .bf16 alone). TMA exchanges no axes, so an array of
such elements that is contiguous along M or N is read by the warps, each thread 16 bytes along K,
and put into a tile that has K contiguous: lanes stand along memory, so their reads are neighbours,
and their 16-byte chunks lie in different banks.

Functions only; nothing is decided here about when a copy happens.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.levels import tile
from tilec.ir.types import DType
from tilec.passes.base import Context
from tilec.passes.mapping import contiguous_axis, map_refusal, tile_axes
from tilec.passes.range_starts import start_refusal

Uses = dict[Value[Any], list[Op]]


def either_axis(dtype: DType) -> bool:
    """Whether wgmma reads elements of a type with any axis contiguous."""
    return dtype.bits == 16


def summed_axes(value: Value[Any], uses: Uses) -> set[int]:
    """The axes of a tile along which products that take it, through transposes, sum."""
    found: set[int] = set()
    for op in uses.get(value, []):
        if isinstance(op, tile.Transpose):
            found |= {1 - axis for axis in summed_axes(op.out, uses)}
        elif isinstance(op, tile.Dot):
            found |= {1} if value is op.a else set()
            found |= {0} if value is op.b else set()
    return found


def ring_refusal(ctx: Context, load: tile.Load, uses: Uses) -> str | None:
    """Why TMA cannot bring an operand as a product reads it; None if it can."""
    dtype = load.array.type.dtype
    axes = tile_axes(load.subscripts)
    reason = map_refusal(ctx, load.array, axes) or start_refusal(ctx, load)
    if reason is not None or either_axis(dtype):
        return reason
    if summed_axes(load.out, uses) == {contiguous_axis(ctx, load.array, axes)}:
        return None
    return (
        f"wgmma reads {dtype} only with K contiguous, which {load.array.name} has not, and TMA "
        "exchanges no axes"
    )
