"""Columns of products in steps of eight: where wgmma takes them, and who else would have a say.

wgmma's N goes in eights for floats (PTX ISA 9.7.15.2). An axis may follow it where it runs along
the columns of products alone, nothing is combined along it, and each right operand comes by TMA
with its K contiguous: rows of such a tile lie in swizzle atoms of eight, while columns that are
contiguous come in stripes of 16 at least.

Nothing here chooses a size.
"""

from __future__ import annotations

from tilec.ir.core import Kernel
from tilec.ir.levels import tile
from tilec.passes.axes import Axes, AxisClass, combined
from tilec.passes.base import Context
from tilec.passes.mapping import contiguous_axis, tile_axes

EIGHT = 8


def in_eights(ctx: Context, axes: Axes, kernel: Kernel, axis: AxisClass | None) -> tuple[int, ...]:
    """The sizes in eights that an axis may have; none where it may not."""
    dots = [op for op in kernel.body.walk() if isinstance(op, tile.Dot)]
    along = [op for op in dots if axis is not None and axes.of(op.out, 1) is axis]
    if not along or not ctx.target.has_wgmma or combined(axes, kernel.body, axis):
        return ()
    if any(axes.of(op.out, 0) is axis for op in dots):
        return ()
    if not all(_rows_of_k(ctx, axes, op, axis) for op in along):
        return ()
    floats = all(op.out.type.dtype.is_float for op in along)
    return ctx.target.wgmma_n if floats else ctx.target.wgmma_n_integer


def _rows_of_k(ctx: Context, axes: Axes, op: tile.Dot, columns: AxisClass | None) -> bool:
    """Whether the right operand is loaded with K contiguous."""
    value = op.b
    while isinstance(value.owner, tile.Transpose):
        value = value.owner.x
    load = value.owner
    if not isinstance(load, tile.Load):
        return False
    contiguous = contiguous_axis(ctx, load.array, tile_axes(load.subscripts))
    return contiguous is not None and axes.of(load.out, contiguous) is not columns
