"""Let the CTAs of a cluster load together what they all want.

Law: CTAs whose places in the cluster differ only along axes that a load's coordinates do not
depend on want the same tile; so each brings an equal share of its rows to all of them, and the
tile crosses L2 once. Which coordinates depend on which axis follows from the arithmetic behind
them alone. A stage is then filled by several CTAs, and must be empty in all that it is loaded
for: its ring says along which axes each part is shared, and everything else follows from that.

The law needs that all of these CTAs go through the ring alike. Where a loop or a branch around
its stages depends on a CTA's place in the cluster, the cluster is refused: also where nothing is
shared for this very reason, since a loop's coordinates depend on what its bounds do.

A tile whose boxes do not cut into equal shares of whole swizzle atoms is loaded by each CTA for
itself, with a remark.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilec.ir import rewrite
from tilec.ir.clusters import ALONE, Shape, cluster_shape, differing, ranks_behind, sharers
from tilec.ir.core import Kernel, Op, Value
from tilec.ir.levels import cta
from tilec.ir.types import Shared, TensorMap
from tilec.layout.linear import LayoutRefusal
from tilec.layout.tma import Cut, cut_boxes
from tilec.passes.base import Context, tile_pass
from tilec.passes.check_schedule import BadChoices, impossible


@tile_pass("share-loads", level="cta")
def share_loads(kernel: Kernel, ctx: Context) -> None:
    """CTAs of a cluster load tiles that they have in common once for all."""
    shape = cluster_shape(kernel)
    if shape == ALONE:
        return
    rings = [op for op in kernel.body.ops if isinstance(op, cta.MakeRing)]
    for ring in rings:
        loads = [
            op for op in kernel.body.walk() if isinstance(op, cta.Load) and op.ring is ring.out
        ]
        along = [_along(kernel, ctx, shape, loads, n) for n in range(len(ring.out.type.parts))]
        if any(along):
            _check_alike(kernel, shape, ring)
            ring.shared_along = tuple(along)
            for load in loads:
                _cut(kernel, load, len(sharers(shape, along[load.part], 0)))
    if not any(ring.shared_along for ring in rings):
        for ring in rings:
            _check_alike(kernel, shape, ring)
        ctx.remark(None, f"the CTAs of a cluster of {shape} share no tile")
    rewrite.remove_dead(kernel.body)


def _along(
    kernel: Kernel, ctx: Context, shape: Shape, loads: list[cta.Load], part: int
) -> tuple[int, ...]:
    """The axes of the cluster along which one part of a ring is the same for all."""
    mine = [load for load in loads if load.part == part]
    behind = set().union(*(ranks_behind(kernel, load.origin) for load in mine))
    along = tuple(axis for axis in (0, 1) if shape[axis] > 1 and axis not in behind)
    if not mine or not along:
        return ()
    count = len(sharers(shape, along, 0))
    try:
        cut = _shares(mine[0], count)
    except LayoutRefusal as refusal:
        ctx.remark(mine[0], f"each CTA of a cluster loads this tile for itself: {refusal}")
        return ()
    ctx.remark(
        mine[0],
        f"{count} CTAs of a cluster want the same tile: each loads {cut.rows} rows of a box for "
        "all of them",
        ctas=count,
        rows=cut.rows,
    )
    return along


def _shares(load: cta.Load, count: int) -> Cut:
    part = load.ring.type.parts[load.part]
    assert isinstance(part, Shared)
    return cut_boxes(part.layout, part.dtype.bits, count)


def _check_alike(kernel: Kernel, shape: Shape, ring: cta.MakeRing) -> None:
    """Refuse where CTAs of a cluster may go through a ring differently."""
    for op, axes in differing(kernel, ring.out):
        which = " and ".join(str(axis) for axis in sorted(axes))
        why = (
            "its CTAs are to share what they load, and this does not run alike in all of them: it "
            f"depends on a CTA's place along axis {which} of the cluster"
        )
        instead = "leave the cluster out, or along that axis at 1"
        raise BadChoices([impossible("cluster", shape, why, instead, op)])


def _cut(kernel: Kernel, load: cta.Load, count: int) -> None:
    """Load by a map whose box is one share."""
    made = load.source.owner
    if count == 1 or not isinstance(made, cta.TensorMapOf):
        return
    box = _shares(load, count).boxes[0]
    extents = {load.axes[a]: e for a, e in zip(box.axes, box.extents, strict=True)}
    type = made.out.type
    assert isinstance(type, TensorMap)
    fresh = replace(type, box=tuple(extents.get(axis, 1) for axis in made.axes))
    load.source = _map_like(kernel, made, fresh)


def _map_like(kernel: Kernel, made: cta.TensorMapOf, type: TensorMap) -> Value[Any]:
    """The map of the same array with another box, made once."""
    ops: list[Op] = kernel.body.ops
    for op in ops:
        alike = isinstance(op, cta.TensorMapOf) and (op.array, op.axes, op.type) == (
            made.array,
            made.axes,
            type,
        )
        if alike:
            return op.results[0]
    fresh = cta.TensorMapOf(made.array, axes=made.axes, type=type)
    fresh.loc, fresh.out.name = made.loc, made.out.name
    ops.insert(ops.index(made) + 1, fresh)
    return fresh.out
