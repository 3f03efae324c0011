"""Stores: by TMA through a staging buffer where the edges are exact, else straight from registers.

A TMA store clips at the array's end. That clipping is relied on only where a row of the array is
a whole number of 16-byte chunks, or no edge can occur along the contiguous axis; otherwise the
registers are written with each element's own predicate.

A tile leaves in pieces as wide as one swizzle stripe, each through this group's block of one
staging buffer: stmatrix, a proxy fence, the group's barrier, the store, and a wait until the
buffer may be written again. ``overlap-stores`` turns the waits into a pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.ir.copies import TMA_ADDS
from tilec.ir.core import Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import cta, flow, math, memory, tile
from tilec.ir.types import DType, Index, Register, Shared, Tile
from tilec.layout.linear import Digit, Layout, LayoutError, LayoutRefusal
from tilec.layout.matrices import matrix_plan
from tilec.layout.shared import swizzled
from tilec.passes.forming import Forming, aligned_vector, outliving
from tilec.passes.frames import PRODUCT_ROWS
from tilec.passes.mapping import (
    STRIPES_BYTES,
    Mapped,
    contiguous_axis,
    divides,
    map_refusal,
    tile_axes,
)
from tilec.passes.packed import half_a_byte, paired
from tilec.passes.range_starts import start_refusal
from tilec.passes.raster import constant

CLIP_BYTES = 16
"""A TMA store clips at an inner extent that is a multiple of this."""


PIECE_COLUMNS = 64
"""Columns of a product's result that leave registers together."""


@dataclass(frozen=True)
class Staging:
    """How a tile leaves through shared memory: piece by piece of ``width`` columns."""

    width: int
    layout: Layout
    swizzle: int
    instruction: str


def form_store(f: Forming, op: tile.Store) -> None:
    """Write a tile, or a single element, to global memory."""
    f.body.loc = op.loc
    if op.update:
        f.ctx.remark(
            op, f"{op.array.name} is updated by `{op.update}` in memory: atomic, in any order"
        )
    if not isinstance(op.value.type, Tile):
        _scalar_store(f, op)
        return
    if isinstance(op.value.owner, tile.Transpose) and op.value not in f.values:
        # Rows of the array are columns of the tile: the write exchanges them.
        _write(f, op, f.get(op.value.owner.x), turned=True)
        return
    value = f.get(op.value)
    if op.update and (reason := _sum_refusal(f, op)) is not None:
        f.ctx.remark(op, f"{op.array.name} is updated from registers: {reason}")
        _write(f, op, value)
        return
    try:
        staging = _staging(f, op, value.type)
    except Refused as refusal:
        does = "updated" if op.update else "written"
        f.ctx.remark(op, f"{op.array.name} is {does} from registers: {refusal}")
        _write(f, op, value)
        return
    limited = f.limited(op.subscripts)
    if not limited:
        _staged_store(f, op, value, staging)
        return
    # TMA clips at the array's end only: a tile that its range cuts leaves from registers.
    f.ctx.remark(op, f"{op.array.name} leaves by TMA where its tile is full, else from registers")
    full = _inside_range(f, op, limited)
    regions = []
    for whole in (True, False):
        body = Region()
        memo, f.memo = f.memo, dict(f.memo)
        with f.body.inside(body):
            if whole:
                _staged_store(f, op, value, staging)
            else:
                _write(f, op, value)
            f.body.add(flow.Yield(()))
        f.memo = outliving(memo, f.memo)
        regions.append(body)
    f.body.add(flow.If(full, types=(), then=regions[0], otherwise=regions[1]))


def _sum_refusal(f: Forming, op: tile.Store) -> str | None:
    """Why TMA cannot update an array so; None if it can, where it could store.

    Its sums happen some time before the kernel ends: nobody may look at the array before.
    """
    dtype = op.array.type.dtype
    if op.update != "add" or dtype.name not in TMA_ADDS:
        return f"TMA makes no `{op.update}` of {dtype}"
    if op.array in f.crossed:
        return f"{op.array.name} is read or written in the same iteration"
    if f.team.groups > 1 and f.team.split not in f.axes.all_of(op.value):
        return "several groups have the same tile, and one of them updates"
    return None


def _inside_range(f: Forming, op: tile.Store, limited: tuple[int, ...]) -> Value[Any]:
    """Whether the part of this group ends before the ranges do that it may be cut by."""
    indices = [s for s in op.subscripts if isinstance(s.type, Index)]
    total: Value[Any] | None = None
    for axis in limited:
        index = indices[axis]
        size = f.get(op.value).type.shape[axis]
        end = f.body.add(math.Add(f.start(index), constant(f.body, int(size)))).out
        inside = f.body.add(math.Compare(end, f.limit(index), relation="le"), "full").out
        total = inside if total is None else f.body.add(math.And(total, inside), "full").out
    assert total is not None
    return total


def _write(
    f: Forming, op: tile.Store, value: Value[Register], *, turned: bool = False, begin: int = 0
) -> None:
    """Straight from registers; a wide tile in pieces, so that few of its inputs live at once.

    The first column of ``value`` is that of the stored tile at ``begin``.
    """
    axes = tile_axes(op.subscripts)
    bounded = f.bounded(op.subscripts)
    limited = f.limited(op.subscripts)
    indices = [s for s in op.subscripts if isinstance(s.type, Index)]
    ends = [f.limit(indices[axis]) for axis in limited]
    vector = 1 if len(axes) - 1 in limited else aligned_vector(f.ctx, op, f.schedule)
    if op.array.type.dtype.is_nibble:
        value = paired(f, op, value, turned)
    if turned:
        axes, bounded, vector = axes[::-1], tuple(sorted(1 - a for a in bounded)), 1
        limited = tuple(1 - a for a in limited)
    origin = f.place(op.subscripts, whole=False)
    type = value.type
    width = int(type.shape[-1])
    pieces = 1
    if len(type.shape) == 2 and f.team.multiplies:
        while width // pieces > PIECE_COLUMNS and width % (2 * pieces) == 0:
            pieces *= 2
    try:
        layout = sliced(type.layout, width // pieces) if pieces > 1 else type.layout
    except (LayoutError, Refused):
        pieces, layout = 1, type.layout
    first = origin[axes[-1]]
    for number in range(pieces):
        piece = value
        start = number * (width // pieces)
        if pieces > 1:
            kind = Register(type.dtype, layout.shape, layout)
            piece = f.body.add(cta.Slice(value, axis=1, start=start, type=kind), value.name).out
        if begin + start:
            ahead = constant(f.body, begin + start)
            origin[axes[-1]] = f.body.add(math.Add(first, ahead)).out
        if op.update:
            made = memory.Update(
                op.array,
                piece,
                (*origin, *ends),
                update=op.update,
                axes=axes,
                bounded=bounded,
                vector=vector,
                limited=limited,
            )
            f.once(op.value, made)
            continue
        f.body.add(
            cta.Write(
                op.array,
                piece,
                (*origin, *ends),
                axes=axes,
                bounded=bounded,
                vector=vector,
                limited=limited,
            )
        )


def _staging(f: Forming, op: tile.Store, type: Register) -> Staging:
    """The plan of a TMA store; ``Refused`` with the reason if there is none."""
    axes = tile_axes(op.subscripts)
    reason = map_refusal(f.ctx, op.array, axes) or start_refusal(f.ctx, op)
    if reason is not None:
        raise Refused(reason)
    if contiguous_axis(f.ctx, op.array, axes) != 1:
        raise Refused("the rows of the tile do not run along memory")
    if not f.team.multiplies or type.shape[0] != PRODUCT_ROWS:
        raise Refused("the tile is no result of a product")
    edge = 1 in f.bounded(op.subscripts)
    chunk = CLIP_BYTES // type.dtype.bytes
    extent = op.array.type.shape[axes[1]]
    if edge and not divides(f.ctx, extent, chunk):
        raise Refused(
            f"{extent} is not known to be a multiple of {chunk}, where a TMA store clips exactly"
        )
    if type.dtype.bits != 16:
        raise Refused(f"elements of {type.dtype} are stored as wide from registers")
    return _piece(type, f.team.groups, dict(f.schedule.swizzles).get(op.array.name))


def _piece(type: Register, groups: int, swizzle: int | None) -> Staging:
    columns, each = int(type.shape[1]), type.dtype.bytes
    widths = STRIPES_BYTES if swizzle is None else (swizzle,)
    stripe = next((w for w in widths if w and columns * each % w == 0), 0)
    if not stripe and swizzle is None and columns * each > widths[0]:
        stripe = widths[0]  # what is left over leaves from registers
    if not stripe:
        raise Refused(f"rows of {columns} columns have no stripes of {widths} bytes")
    width = stripe // each
    try:
        whole = swizzled(groups * PRODUCT_ROWS, width, type.dtype.bits, stripe)
        block = swizzled(PRODUCT_ROWS, width, type.dtype.bits, stripe)
        matrix_plan(sliced(type.layout, width), block, type.dtype.bits)
    except (LayoutError, LayoutRefusal) as error:
        raise Refused(str(error)) from None
    return Staging(width, whole, stripe, "stmatrix")


def sliced(layout: Layout, width: int) -> Layout:
    """The layout of the first ``width`` columns: the digits that move less far."""
    if layout.shape[1] == width:
        return layout
    spaces: dict[str, list[Digit]] = {}
    for name, digits in layout.digits:
        for digit in digits:
            step = max((s for axis, s in digit.steps if axis == 1), default=0)
            if step < width:
                kept = min(digit.extent, max(1, width // step)) if step else digit.extent
                if not digit.is_bit:
                    digit = Digit(digit.steps, kept)
                spaces.setdefault(name, []).append(digit)
    made = Layout.make(spaces, layout.rank)
    if made.shape != (layout.shape[0], width):
        raise Refused(f"no thread holds whole pieces of {width} columns")
    return made


def _staged_store(f: Forming, op: tile.Store, value: Value[Register], staging: Staging) -> None:
    axes = tile_axes(op.subscripts)
    type = value.type
    shared = Shared(type.dtype, staging.layout.shape, staging.layout)
    buffer = f.buffer("staging", shared, "staging")
    others = [a for a in reversed(range(len(op.array.type.shape))) if a not in axes]
    plan = Mapped(
        staging.layout,
        (axes[1], axes[0], *others),
        (staging.width, PRODUCT_ROWS, *(1 for _ in others)),
        staging.swizzle,
    )
    target = f.tensor_map(op.array, plan)
    block: Value[Any] = buffer
    if f.team.groups > 1:
        block = f.body.add(cta.Window(buffer, f.group, rows=PRODUCT_ROWS)).out
    origin = f.place(op.subscripts, whole=False)
    first = origin[axes[1]]
    layout = sliced(type.layout, staging.width)
    rest = int(type.shape[1]) % staging.width
    for start in range(0, int(type.shape[1]) - rest, staging.width):
        piece = value
        if staging.width != type.shape[1]:
            kind = Register(type.dtype, layout.shape, layout)
            piece = f.body.add(cta.Slice(value, axis=1, start=start, type=kind), value.name).out
        if start:
            ahead = constant(f.body, start)
            origin[axes[1]] = f.body.add(math.Add(first, ahead)).out
        f.body.add(cta.Put(block, piece, instruction=staging.instruction))
        # What an array held is read by threads before TMA writes there: another proxy.
        f.body.add(cta.Publish(wide=op.array.type.mode != "out"))
        f.sync()
        f.body.add(cta.StoreTile(target, block, tuple(origin), axes=axes, update=op.update))
        f.body.add(cta.DrainStores(pending=0))
        f.sync()
    if rest:
        last = sliced(type.layout, rest)
        kind = Register(type.dtype, last.shape, last)
        begin = int(type.shape[1]) - rest
        piece = f.body.add(cta.Slice(value, axis=1, start=begin, type=kind), value.name).out
        _write(f, op, piece, begin=begin)
    f.ctx.remark(
        op,
        f"{op.array.name} {'is added to' if op.update else 'leaves'} by TMA in pieces of "
        f"{staging.width} columns, "
        f"swizzle {staging.swizzle} bytes"
        + (f"; {rest} columns are left over, and written from registers" if rest else ""),
        swizzle_bytes=staging.swizzle,
    )


def single(f: Forming, dtype: DType) -> Register:
    """A tile of one element that all threads of a group hold."""
    copies = {"lane": [Digit()] * 5}
    warps = f.team.warps.bit_length() - 1
    if warps:
        copies["warp"] = [Digit()] * warps
    return Register(dtype, (1,), Layout.make(copies, rank=1))


def _scalar_store(f: Forming, op: tile.Store) -> None:
    """One element: a tile of extent one along the array's last axis, written once."""
    if op.array.type.dtype.is_nibble:
        raise half_a_byte(op)
    type = single(f, op.array.type.dtype)
    one = f.body.add(math.Fill(f.get(op.value), type=type)).out
    last = len(op.array.type.shape) - 1
    origin = tuple(f.get(s) for s in op.subscripts)
    if op.update:
        f.once(op.value, memory.Update(op.array, one, origin, update=op.update, axes=(last,)))
    else:
        f.body.add(cta.Write(op.array, one, origin, axes=(last,)))
