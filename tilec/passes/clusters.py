"""A grid of clusters: CTAs that run together take tiles that lie side by side.

With a cluster of (m, n) CTAs, m by n neighbouring tiles along the last two axes of the grid form a
block; blocks are numbered as tiles are otherwise (``raster``), and a CTA takes the tile of its
cluster's block that its rank says. Where the tiles along an axis do not fill the last block, the
tiles beyond the end are computed like all others: their loads find zeros, and each of their
elements lies outside the arrays, so none is stored. All CTAs of a cluster thus go the same rounds.

Who shares what is not asked here (``share-loads``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.clusters import ALONE, Shape
from tilec.ir.core import Kernel, Op, Value
from tilec.ir.declare import Effects
from tilec.ir.facts import Schedule
from tilec.ir.levels import author, cluster, cta, math, tile
from tilec.ir.types import Index, Scalar
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.base import Context
from tilec.passes.check_schedule import BadChoice, BadChoices, impossible
from tilec.passes.forming import Forming
from tilec.passes.mapping import divides
from tilec.passes.raster import constant


def asked_shape(ctx: Context, kernel: Kernel, schedule: Schedule) -> Shape:
    """The cluster that a kernel is formed for: the one chosen, if it has products to share for."""
    if schedule.cluster in ((), ALONE):
        return ALONE
    dots = [op for op in kernel.body.walk() if isinstance(op, tile.Dot)]
    if not dots:
        ctx.remark(None, "cluster has no effect: there is no product whose operands CTAs share")
        return ALONE
    first, second = schedule.cluster
    return first, second


def padded_axes(ctx: Context, axes: Axes, loop: tile.Parallel, shape: Shape) -> dict[Any, Any]:
    """The axes whose last block may have tiles beyond the end, with the loop's index of each."""
    found: dict[AxisClass, Value[Any]] = {}
    for arg, size, count in _axes(loop, shape):
        axis = axes.of(arg, 0) if isinstance(arg.type, Index) else None
        if axis is not None and not divides(ctx, arg.type.extent, count * int(size)):
            found[axis] = arg
    return found


def check_cluster(ctx: Context, axes: Axes, loop: tile.Parallel, shape: Shape) -> None:
    """Refuse a cluster along an axis without tiles, or whose extra tiles would do something."""
    faults = [*_faults(ctx, axes, loop, shape)]
    if faults:
        raise BadChoices(faults)


def _axes(loop: tile.Parallel, shape: Shape) -> list[tuple[Value[Any], Any, int]]:
    """The clustered axes of a grid: index, tile size, CTAs."""
    last = list(zip(loop.body.args, loop.sizes, strict=True))[-2:]
    counts = shape[-len(last) :]
    return [(a, s, n) for (a, s), n in zip(last, counts, strict=True) if n > 1]


def _faults(ctx: Context, axes: Axes, loop: tile.Parallel, shape: Shape) -> Iterator[BadChoice]:
    if len(loop.sizes) == 1 and shape[0] > 1:
        yield impossible(
            "cluster", shape, "the grid has one axis, which is the last one",
            f"write `cluster=1:{shape[0]}`", loop,
        )  # fmt: skip
        return
    for arg, size, _ in _axes(loop, shape):
        if not size:
            yield impossible(
                "cluster", shape, f"{arg.name} is a number, no tile of indices",
                "leave that axis at 1", loop,
            )  # fmt: skip
            return
    for axis, index in padded_axes(ctx, axes, loop, shape).items():
        for op in loop.body.walk():
            if _unmasked(axes, op, axis):
                yield impossible(
                    "cluster", shape,
                    f"the grid may end inside a cluster along {index.name}, and {op.name} would "
                    "act for tiles that do not exist",
                    f"require that {index.type.extent} is divided by a whole cluster of tiles, or "
                    "leave the cluster out",
                    op,
                )  # fmt: skip
                return


def _unmasked(axes: Axes, op: Op, axis: AxisClass) -> bool:
    """Whether an op does something that no bound along the axis can undo."""
    if isinstance(op, tile.Store):
        indices = [s for s in op.subscripts if isinstance(s.type, Index)]
        return not any(axes.of(index, 0) is axis for index in indices)
    acts = bool(op.effects & Effects.WRITES) or isinstance(op, author.Assert | author.Print)
    return acts or isinstance(op, tile.Within)


# --- the grid of a kernel -----------------------------------------------------------------------


def blocks(f: Forming, counts: Sequence[Value[Scalar]]) -> list[Value[Scalar]]:
    """Clusters along each axis, from tiles along each axis."""
    found = list(counts)
    for axis, size in _clustered(f, len(counts)):
        by = constant(f.top, size)
        found[axis] = f.top.add(math.CeilDiv(found[axis], by), "clusters").out
    return found


def ctas_of(f: Forming, clusters: Value[Scalar]) -> Value[Scalar]:
    """The CTAs of so many clusters; the kernel is said to run in them."""
    f.top.add(cluster.Shape(shape=f.cluster))
    size = constant(f.top, f.cluster[0] * f.cluster[1])
    return f.top.add(math.Mul(clusters, size), "ctas").out


def own_places(f: Forming, places: Sequence[Value[Scalar]]) -> list[Value[Scalar]]:
    """The place of this CTA's tile along each axis, from that of its cluster's block."""
    found = list(places)
    for axis, size in _clustered(f, len(places)):
        name = found[axis].name
        first = f.body.add(math.Mul(found[axis], constant(f.body, size))).out
        number = axis - (len(places) - 2)
        if number not in f.ranks:
            f.ranks[number] = f.top.add(cluster.Rank(axis=number), f"rank_{number}").out
        found[axis] = f.body.add(math.Add(first, f.ranks[number]), name).out
    return found


def numbering(f: Forming) -> tuple[Value[Scalar], Value[Scalar]]:
    """Where a CTA's numbers start, and how far apart they are: of tiles, or of clusters."""
    if f.cluster == ALONE:
        return f.top.add(cta.CtaIndex(), "cta").out, f.top.add(cta.CtaCount(), "count").out
    index = f.top.add(cluster.ClusterIndex(), "cluster").out
    return index, f.top.add(cluster.ClusterCount(), "count").out


def _clustered(f: Forming, axes: int) -> list[tuple[int, int]]:
    """The axes of the grid along which a cluster has several CTAs, and how many."""
    last = range(max(0, axes - 2), axes)
    counts = f.cluster[-len(last) :]
    return [(axis, count) for axis, count in zip(last, counts, strict=True) if count > 1]
