"""Which CTAs of a cluster share what: ranks, sharers of a part, and partners in a ring.

A cluster of shape (m, n) has ranks 0 to m * n - 1; a rank's place is (rank // n, rank % n). CTAs
that differ along some axes only are the sharers of what is shared along these axes. Pure
arithmetic on shapes; what a kernel of level ``cta`` says about them is read, never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.core import Kernel, Op, Value
from tilec.ir.levels import cluster, cta, flow
from tilec.ir.verify import Fault

Shape = tuple[int, int]
Along = Sequence[int]
ALONE: Shape = (1, 1)


def cluster_shape(kernel: Kernel) -> Shape:
    """CTAs of a cluster along its axes; (1, 1) where nothing is said."""
    for op in kernel.body.ops:
        if isinstance(op, cluster.Shape):
            return op.shape[0], op.shape[1]
    return ALONE


def place_of(shape: Shape, rank: int) -> tuple[int, int]:
    """Where a rank stands along both axes."""
    return rank // shape[1], rank % shape[1]


def strides(shape: Shape) -> tuple[int, int]:
    """Ranks from one place to the next along each axis."""
    return shape[1], 1


def sharers(shape: Shape, along: Along, rank: int) -> list[int]:
    """The ranks that share a part with ``rank``, itself among them, in the order of shares."""
    mine = place_of(shape, rank)
    return [
        other
        for other in range(shape[0] * shape[1])
        if all(axis in along or at == mine[axis] for axis, at in enumerate(place_of(shape, other)))
    ]


def partners(shape: Shape, shared_along: Sequence[Along], rank: int) -> list[int]:
    """The ranks whose stages the loads of ``rank`` reach: it waits for their releases."""
    reached = {rank}
    for along in shared_along:
        reached.update(sharers(shape, along, rank))
    return sorted(reached)


def shared_along(ring: Value[Any], part: int) -> tuple[int, ...]:
    """The axes of the cluster along which one part of a ring is shared."""
    made = ring.owner
    if isinstance(made, cta.MakeRing) and part < len(made.shared_along):
        return made.shared_along[part]
    return ()


def shares(kernel: Kernel, ring: Value[Any], part: int) -> int:
    """In how many shares the CTAs of a cluster load one part of a ring."""
    shape = cluster_shape(kernel)
    return len(sharers(shape, shared_along(ring, part), 0))


def ranks_behind(kernel: Kernel, values: Sequence[Value[Any]]) -> set[int]:
    """The axes of the cluster along which values may differ among its CTAs.

    What a loop carries depends on what it starts from and yields, and on how often it runs; a
    branch's result on its condition and on what both ways yield. Memory that is read at the same
    places is the same for all.
    """
    around = {id(region): op for op in kernel.body.walk() for region in op.regions}
    found: set[int] = set()
    seen: set[int] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        owner = value.owner
        if isinstance(owner, cluster.Rank):
            found.add(owner.axis)
        elif isinstance(owner, cta.CtaIndex):
            found |= {0, 1}
        elif isinstance(owner, Op) and owner.regions:
            waiting += _given(owner, owner.results.index(value))
        elif isinstance(owner, Op):
            waiting += owner.operands
        elif owner is not None and id(owner) in around:
            waiting += _carried(around[id(owner)], owner.args.index(value))
    return found


def control(op: Op) -> tuple[Value[Any], ...]:
    """What decides which of its regions an op runs, and how often."""
    if isinstance(op, flow.For):
        return op.lower, op.upper, op.step
    if isinstance(op, flow.While):
        return flow.yielded(op.test)[:1]
    return (op.condition,) if isinstance(op, flow.If) else ()


def _given(op: Op, number: int) -> list[Value[Any]]:
    """What result ``number`` of an op with regions is made of."""
    made = [flow.yielded(region) for region in op.regions]
    if isinstance(op, flow.While):
        return [*control(op), op.init[number], flow.yielded(op.body)[number]]
    if isinstance(op, flow.For):
        return [*control(op), op.init[number], made[0][number]]
    return [*control(op), *(values[number] for values in made)]


def _carried(op: Op, argument: int) -> list[Value[Any]]:
    """What an argument of an op's region is made of; a role's is the number of its group."""
    if isinstance(op, flow.For):
        return list(control(op)) if argument == 0 else _given(op, argument - 1)
    return _given(op, argument) if isinstance(op, flow.While) else []


def differing(kernel: Kernel, ring: Value[Any]) -> Iterator[tuple[Op, set[int]]]:
    """Loops and branches around a ring's stages that the CTAs of a cluster may take differently."""
    sides = (cta.Acquire, cta.Wait, cta.Release)
    for op in kernel.body.walk():
        inside = (inner for region in op.regions for inner in region.walk())
        if any(isinstance(inner, sides) and inner.ring is ring for inner in inside):
            axes = ranks_behind(kernel, control(op))
            if axes:
                yield op, axes


def cluster_faults(kernel: Kernel) -> Iterator[Fault]:
    """Rings that are shared without a cluster, or by CTAs that go through them differently."""
    shape = cluster_shape(kernel)
    for ring in kernel.body.ops:
        if isinstance(ring, cluster.Rank | cluster.ClusterIndex | cluster.ClusterCount) and (
            shape == ALONE
        ):
            yield Fault(ring, "the kernel has no cluster.shape")
        if not isinstance(ring, cta.MakeRing) or not ring.shared_along:
            continue
        if len(ring.shared_along) != len(ring.out.type.parts):
            yield Fault(
                ring,
                f"shared_along has {len(ring.shared_along)} entries, "
                f"a stage {len(ring.out.type.parts)} parts",
            )
            continue
        for along in ring.shared_along:
            if any(axis not in (0, 1) or shape[axis] < 2 for axis in along):
                yield Fault(ring, f"a part is shared along {along}, the cluster's shape is {shape}")
        for op, axes in differing(kernel, ring.out):
            yield Fault(
                op,
                f"it runs differently in the CTAs of a cluster (along axes {sorted(axes)}), "
                f"which share the stages of %{ring.out.name}",
            )
        for op in kernel.body.walk():
            if isinstance(op, cta.Load) and op.ring is ring.out:
                axes = ranks_behind(kernel, op.origin) & set(ring.shared_along[op.part])
                if axes:
                    yield Fault(
                        op,
                        f"its place differs along axes {sorted(axes)} of the cluster, along "
                        "which the part is shared",
                    )
