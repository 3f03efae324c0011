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
from tilec.ir.levels.mma import COPIED_BYTES
from tilec.ir.types import DType
from tilec.passes.base import Context
from tilec.passes.mapping import aligned_elements, contiguous_axis, map_refusal, tile_axes
from tilec.passes.range_starts import start_refusal

Uses = dict[Value[Any], list[Op]]


def either_axis(dtype: DType) -> bool:
    """Whether a product reads elements of a type with any axis contiguous.

    Those of 64 bits are read by the warps themselves, an element or two at a time.
    """
    return dtype.bits in (16, 64)


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
    """Why no ring can bring an operand as a product reads it; None if TMA or threads can."""
    reason = tma_refusal(ctx, load, uses)
    if reason is None or isinstance(copied_vector(ctx, load, uses), int):
        return None
    return f"{reason}; {copied_vector(ctx, load, uses)}"


def tma_refusal(ctx: Context, load: tile.Load, uses: Uses) -> str | None:
    """Why TMA cannot bring an operand as a product reads it; None if it can."""
    axes = tile_axes(load.subscripts)
    reason = map_refusal(ctx, load.array, axes) or start_refusal(ctx, load)
    return reason or _majorness_refusal(ctx, load, uses)


def _majorness_refusal(ctx: Context, load: tile.Load, uses: Uses) -> str | None:
    dtype, axes = load.array.type.dtype, tile_axes(load.subscripts)
    along = contiguous_axis(ctx, load.array, axes)
    if either_axis(dtype) or summed_axes(load.out, uses) == {along}:
        return None
    return (
        f"wgmma reads {dtype} only with K contiguous, which {load.array.name} has not, and TMA "
        "exchanges no axes"
    )


def copied_vector(ctx: Context, load: tile.Load, uses: Uses) -> int | str:
    """Elements that one cp.async brings of an operand; why there is none, in words."""
    array, axes = load.array, tile_axes(load.subscripts)
    if not ctx.target.has_cp_async:
        return f"{ctx.target.name} has no cp.async"
    if array.type.dtype.is_nibble:
        return "cp.async takes no bytes apart"
    if len(axes) != 2 or contiguous_axis(ctx, array, axes) is None:
        return "cp.async needs a tile of two axes, one of them known to have stride 1"
    reason = start_refusal(ctx, load) or _majorness_refusal(ctx, load, uses)
    if reason is not None:
        return reason
    each = array.type.dtype.bytes
    vector = min(aligned_elements(ctx, array, axes), COPIED_BYTES[-1] // each)
    if vector * each not in COPIED_BYTES:
        return f"cp.async takes at least {COPIED_BYTES[0]} bytes, aligned to as many"
    return vector
