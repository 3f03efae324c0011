"""Arrays of four-bit elements: which copies cannot bring them, and tiles that can be written.

Two elements share a byte, so a byte is written by the one thread that holds both: the tile's
layout has them in neighbouring registers, or is changed to one that has. Reads ask for nothing,
though they are in vectors only where a thread holds neighbours.
"""

from __future__ import annotations

from tilec.ir.core import Value
from tilec.ir.declare import Refused
from tilec.ir.levels import tile
from tilec.ir.types import Array, Index, Register
from tilec.layout.fragments import blocked
from tilec.layout.linear import Layout, LayoutError, LayoutRefusal
from tilec.layout.vectors import global_plan
from tilec.passes.form_tiles import in_layout
from tilec.passes.forming import Forming
from tilec.passes.mapping import tile_axes
from tilec.passes.range_starts import aligned_start
from tilec.passes.refusal import refused

PAIR = 2
"""Elements in a byte."""


def packed_axis(array: Array, axes: tuple[int, ...]) -> int | None:
    """The tile axis along which elements share bytes; None where a tile has one place of it."""
    last = len(array.shape) - 1
    return axes.index(last) if last in axes else None


def in_pairs(layout: Layout, axis: int) -> bool:
    """Whether each thread has both elements of a byte, one register behind the other."""
    try:
        return global_plan(layout, 8, axis=axis, max_bytes=PAIR).elements == PAIR
    except LayoutRefusal:
        return False


def half_a_byte(op: tile.Store) -> Refused:
    """Why single elements are not written."""
    return refused(
        op,
        f"one element of {op.array.type.dtype} along the last axis of {op.array.name} is half a "
        "byte, and the other half may be written at the same time",
        "store a tile along the last axis",
    )


def paired(f: Forming, op: tile.Store, value: Value[Register], turned: bool) -> Value[Register]:
    """The value to write, moved between threads where they do not hold whole bytes."""
    axes = tile_axes(op.subscripts)
    axis = packed_axis(op.array.type, axes[::-1] if turned else axes)
    name, dtype = op.array.name, op.array.type.dtype
    if axis is None:
        raise half_a_byte(op)
    subscript = op.subscripts[-1]
    if not isinstance(subscript.type, Index) or isinstance(subscript.owner, tile.Within):
        raise refused(
            op,
            f"a range from memory may begin or end inside a byte of {name}",
            f"store to an array of {dtype.held}",
        )
    extent = value.type.shape[axis]
    if aligned_start(f.ctx, subscript, PAIR) != PAIR or not _is_even(extent):
        raise refused(
            op,
            f"a tile of {extent} elements of {dtype} begins or ends inside a byte of {name}",
            "store parts that begin and end at even places, and pin odd tiles to 16 or more",
        )
    if in_pairs(value.type.layout, axis):
        return value
    shape = tuple(int(n) for n in value.type.shape)
    order = [a for a in range(len(shape)) if a != axis] + [axis]
    try:
        layout = blocked(tuple(shape[a] for a in order), f.team.threads, PAIR, 8)
        layout = layout.permute(*(order.index(a) for a in range(len(shape))))
    except (LayoutError, LayoutRefusal) as error:
        raise Refused(f"{name} holds two elements a byte: {error}") from None
    f.ctx.remark(op, f"{name} holds two elements a byte: they are brought to one thread")
    made: Value[Register] = in_layout(f, value, layout)
    return made


def _is_even(extent: int | str) -> bool:
    return isinstance(extent, int) and extent % PAIR == 0
