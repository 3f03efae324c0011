"""How a tile of a global array may be copied: by TMA, and if so in which shared layout and boxes.

A tensor map needs an axis of stride one, and 16-byte alignment of the address and of all other
strides (PTX ISA 5.5.8; cuTensorMapEncodeTiled). Whether that holds is a promise of the launch
(``Facts``); without one the answer is no. The unit axis decides the majorness of the shared tile:
its layout has that axis contiguous, so nothing is transposed on the way in.

Functions only; nothing is decided here about when a copy happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilec.ir.core import Value
from tilec.ir.declare import Refused
from tilec.ir.types import Array, DType, Index
from tilec.layout.linear import Layout, LayoutError, LayoutRefusal
from tilec.layout.shared import swizzled
from tilec.layout.tma import boxes
from tilec.passes.base import Context

MAP_ALIGNMENT_BYTES = 16
MAX_MAP_RANK = 5
STRIPES_BYTES = (128, 64, 32)


@dataclass(frozen=True)
class Mapped:
    """A tile that TMA can copy: the layout of the whole shared tile, and one box of the map.

    Where threads copy it there is no box, and ``vector`` elements go with one instruction.
    """

    layout: Layout
    axes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    vector: int = 0


def tile_axes(subscripts: Sequence[Value[Any]]) -> tuple[int, ...]:
    """The array axes that the axes of a load's or store's tile run along."""
    return tuple(axis for axis, s in enumerate(subscripts) if isinstance(s.type, Index))


def contiguous_axis(ctx: Context, array: Value[Array], axes: Sequence[int]) -> int | None:
    """The tile axis along which elements are neighbours in memory, if one is promised."""
    facts = ctx.facts.array(array.name)
    if facts is None or facts.unit_axis not in axes:
        return None
    return list(axes).index(facts.unit_axis)


def aligned_elements(ctx: Context, array: Value[Array], axes: Sequence[int]) -> int:
    """How many neighbouring elements one access may take, by the alignment that is promised."""
    facts = ctx.facts.array(array.name)
    if facts is None or facts.unit_axis not in axes:
        return 1
    return max(1, array.type.dtype.elements_in(facts.alignment))


def divides(ctx: Context, extent: int | str, size: int) -> bool:
    """Whether an extent is a multiple of ``size`` in every launch."""
    known = extent if isinstance(extent, int) else ctx.facts.multiple(extent)
    return known % size == 0


def shared_layout(
    shape: tuple[int, int], dtype: DType, contiguous: int, swizzle: int | None = None
) -> Layout:
    """A shared tile with one axis contiguous, in the widest stripes that divide its rows.

    The widest swizzle spreads a column of 16-byte chunks over the most banks.
    """
    span = shape[contiguous] * dtype.bytes
    if swizzle and span % swizzle:
        raise Refused(f"rows of {span} bytes are no multiple of the {swizzle} bytes of a stripe")
    widths = STRIPES_BYTES if swizzle is None else (swizzle,)
    width = next((w for w in widths if w and span % w == 0), 0)
    major = "row" if contiguous == 1 else "column"
    try:
        return swizzled(*shape, dtype.bits, width, major)
    except (LayoutError, LayoutRefusal) as error:
        raise Refused(str(error)) from None


def map_refusal(ctx: Context, array: Value[Array], axes: tuple[int, ...]) -> str | None:
    """Why no tensor map can copy tiles along these axes of an array; None if one can."""
    facts = ctx.facts.array(array.name)
    if not ctx.target.has_tma:
        return f"{ctx.target.name} has no TMA"
    if array.type.dtype.is_nibble:
        return f"elements of {array.type.dtype} are taken out of their bytes in registers"
    if facts is None or facts.unit_axis < 0:
        return f"no axis of {array.name} is known to have stride 1"
    if facts.unit_axis not in axes:
        return f"axis {facts.unit_axis} of {array.name}, of stride 1, is no axis of the tile"
    if facts.alignment < MAP_ALIGNMENT_BYTES:
        return (
            f"{array.name} is aligned to {facts.alignment} bytes, a tensor map needs "
            f"{MAP_ALIGNMENT_BYTES}"
        )
    if {*facts.repeats} & {*axes}:
        return f"{array.name} has stride 0 along the tile"
    if len(axes) != 2 or len(array.type.shape) - len(facts.repeats) > MAX_MAP_RANK:
        return f"the tile has {len(axes)} axes, the array {len(array.type.shape)}"
    return None


def mapped(
    ctx: Context,
    array: Value[Array],
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    *,
    rows: int | None = None,
    swizzle: int | None = None,
) -> Mapped:
    """Plan the TMA copy of a tile; raises ``Refused`` saying which condition fails.

    ``rows`` is the number of rows that one copy moves, where it is not the whole tile.
    """
    reason = map_refusal(ctx, array, axes)
    if reason is not None:
        raise Refused(reason)
    type = array.type
    contiguous = contiguous_axis(ctx, array, axes) or 0
    layout = shared_layout((shape[0], shape[1]), type.dtype, contiguous, swizzle)
    try:
        box = boxes(layout, type.dtype.bits)[0]
    except (LayoutError, LayoutRefusal) as error:
        raise Refused(str(error)) from None
    extents = tuple(
        min(extent, rows) if rows is not None and axis == 0 else extent
        for extent, axis in zip(box.extents, box.axes, strict=True)
    )
    facts = ctx.facts.array(array.name)
    left_out = (*axes, *(facts.repeats if facts is not None else ()))
    others = [a for a in reversed(range(len(type.shape))) if a not in left_out]
    return Mapped(
        layout,
        (*(axes[a] for a in box.axes), *others),
        (*extents, *(1 for _ in others)),
        box.swizzle_bytes,
    )
