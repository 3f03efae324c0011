"""Which clusters of CTAs a product may run in, without being asked to.

CTAs of a cluster go the same rounds, and where tiles do not fill the last cluster some CTAs repeat
a tile that nobody stores. So clusters are considered where every loop runs over a whole dimension,
no index decides about rounds, and a launch does nothing but load, compute and store. They pay
where L2 sets the pace, which happens where rows of operands lie across lines of memory; elsewhere
they were measured to lose a little.

Nothing here changes a kernel or ranks anything: ``product_tiles`` does.
"""

from __future__ import annotations

from tilec.ir.clusters import ALONE, Shape
from tilec.ir.core import Kernel, Op
from tilec.ir.declare import Effects
from tilec.ir.levels import math, tile
from tilec.ir.types import Index
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.base import Context

PAIRS: tuple[Shape, ...] = ((2, 1), (1, 2))
"""Clusters that are tried; larger ones wait longer for one another."""


def possible_clusters(
    kernel: Kernel, ctx: Context, axes: Axes, rows: AxisClass, columns: AxisClass
) -> tuple[Shape, ...]:
    """The clusters that a launch may have, the one of single CTAs first."""
    pinned = ctx.schedule.cluster
    if pinned:
        return ((pinned[0], pinned[1]),)
    launches = [op for op in kernel.body.ops if isinstance(op, tile.Parallel)]
    if not ctx.target.has_clusters or len(launches) != 1:
        return (ALONE,)
    (launch,) = launches
    last = [axes.of(arg, 0) for arg in launch.body.args[-2:] if isinstance(arg.type, Index)]
    tiled = {rows, columns}
    if last != [rows, columns] or not all(_same_for_all(op) for op in launch.body.walk()):
        return (ALONE,)
    if not all(
        tiled <= _stored(axes, op) for op in launch.body.walk() if isinstance(op, tile.Store)
    ):
        return (ALONE,)
    return (ALONE, *PAIRS)


def _same_for_all(op: Op) -> bool:
    """Whether an op does the same rounds in each CTA, and no harm where a tile is repeated."""
    if isinstance(op, tile.ForTiles):
        return isinstance(op.extent.owner, tile.ExtentOf | math.Constant)
    if op.regions or isinstance(op, math.Compare):
        return False
    return isinstance(op, tile.Load | tile.Store) or not op.effects & ~Effects.READS


def _stored(axes: Axes, store: tile.Store) -> set[AxisClass | None]:
    """The axes at whose ends a store is masked."""
    return {axes.of(index, 0) for index in store.subscripts if isinstance(index.type, Index)}
