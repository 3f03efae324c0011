"""Rounds of a ring: how often its producer fills a stage, and each consumer waits for one.

Counts are sums of products of loop trips, with trips known as values: constants, ``ceildiv`` of a
bound by a step, less the rounds that were peeled. Two roles that count alike meet in every launch.
A branch around the rounds of a loop that may be empty is passed over; where two ways differ
otherwise, in ``flow.while``, where trips depend on what a loop carries, and where a side has no
loop that depends on the launch, nothing is claimed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tilec.ir.alternation import Bounds, skipped_rings, whole_loop
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.levels import cluster, cta, flow, math
from tilec.ir.levels.turns import Skip
from tilec.ir.places import linear
from tilec.ir.types import S32, Scalar
from tilec.ir.verify import Fault

Count = dict[tuple[Any, ...], int]
"""Coefficients by the sorted trips that they are multiplied with."""
_ZERO = math.Constant(0, type=Scalar(S32))
_ZERO_ALONE = (frozenset[tuple[Value[Any], int]](), 0)


def round_faults(kernel: Kernel) -> Iterator[Fault]:
    """Rings whose two sides go different numbers of rounds."""
    roles = [op for op in kernel.body.ops if isinstance(op, cta.Role)]
    uses = {role: _uses(role) for role in roles}
    for role in roles:
        yield from _skipping_faults(role)
    for ring in (op for op in kernel.body.ops if isinstance(op, cta.MakeRing)):
        sides: dict[type[Op], list[tuple[cta.Role, Count, Op]]] = {cta.Acquire: [], cta.Wait: []}
        for role in roles:
            for side, found in sides.items():
                last = uses[role].get((side, ring.out))
                counted = _Counter(side, ring.out, role).region(role.body) if last else None
                if counted is not None and last is not None:
                    found.append((role, counted, last))
        for maker, made, filled in sides[cta.Acquire]:
            for taker, taken, emptied in sides[cta.Wait]:
                if made == taken or not (_loops(made) and _loops(taken)):
                    continue
                if _known(made, maker) and _known(taken, taker):
                    filling = _loop_of(maker.body, filled)
                    emptying = _loop_of(taker.body, emptied)
                    yield Fault(
                        emptying,
                        f"role {taker.label} waits for other rounds of %{ring.out.name} than role "
                        f"{maker.label} fills{_line(filling)}: {_shown(emptying)}, "
                        f"there {_shown(filling)}",
                    )


def _skipping_faults(role: cta.Role) -> Iterator[Fault]:
    """Groups that take iterations in turns pass over as many rounds as an iteration goes."""
    for loop in (op for op in role.body.ops if isinstance(op, flow.For)):
        for skip in (op for op in loop.body.ops if isinstance(op, Skip)):
            counter = _Counter(cta.Wait, skip.ring, role)
            gone, passed = counter.region(loop.body), counter.number(skip.count)
            if gone is not None and passed is not None and gone != passed:
                yield Fault(
                    skip,
                    f"the groups of role {role.label} pass over other rounds of %{skip.ring.name} "
                    "than an iteration of the loop goes",
                )


def _uses(role: cta.Role) -> dict[tuple[type[Op], Value[Any]], Op]:
    """The last op of a role that fills a stage of a ring, and the last that waits for one."""
    return {
        (type(op), _ring(op)): op
        for op in role.body.walk()
        if isinstance(op, cta.Acquire | cta.Wait)
    }


def _loops(count: Count) -> bool:
    """Whether a count depends on the launch."""
    return any(trips for trips in count)


def _known(count: Count, role: cta.Role) -> bool:
    """Whether no trip depends on what a loop of the role carries: the other role has its own."""
    inside = {
        id(value)
        for op in role.body.walk()
        for value in (*op.results, *(a for region in op.regions for a in region.args))
    }
    todo: list[Any] = list(count)
    while todo:
        part = todo.pop()
        if isinstance(part, tuple):
            if len(part) == 2 and part[0] == "value" and part[1] in inside:
                return False
            todo.extend(part)
    return True


def _ring(op: Any) -> Any:
    return op.ring


def _loop_of(region: Region, wanted: Op) -> Op:
    """The innermost loop around an op, or the op itself."""
    found = wanted
    for op in region.walk():
        if isinstance(op, flow.For) and any(inner is wanted for inner in op.body.walk()):
            found = op
    return found


def _line(op: Op) -> str:
    return f" at source line {op.loc.line}" if op.loc is not None else ""


def _shown(op: Op) -> str:
    if not isinstance(op, flow.For):
        return "no loop"
    names = [
        str(v.owner.value) if isinstance(v.owner, math.Constant) else f"%{v.name}"
        for v in (op.lower, op.upper, op.step)
    ]
    return f"a loop from {names[0]} to {names[1]} in steps of {names[2]}"


def _is_guard(op: flow.If, counts: list[Count | None]) -> bool:
    """Whether one way does nothing since ``lower >= upper``: the rounds of an empty loop."""
    made = op.condition.owner
    relation = made.relation if isinstance(made, math.Compare) else ""
    return (relation == "ge" and not counts[0]) or (relation == "lt" and not counts[1])


class _Counter:
    """Counts one kind of op on one ring in a role."""

    def __init__(self, side: type[Op], ring: Value[Any], role: cta.Role) -> None:
        self.side, self.ring, self.role = side, ring, role
        self.indices: dict[Value[Any], Any] = {}

    def region(self, region: Region) -> Count | None:
        total: Counter[tuple[Any, ...]] = Counter()
        for op in region.ops:
            count = self.op(op)
            if count is None:
                return None
            for key, times in count.items():
                total[key] += times
        return {key: times for key, times in total.items() if times}

    def op(self, op: Op) -> Count | None:
        if isinstance(op, self.side) and _ring(op) is self.ring:
            return {(): 1}
        if not op.has_regions:
            return {}
        if isinstance(op, flow.For):
            return self.loop(op)
        counts = [self.region(region) for region in op.regions]
        if any(count is None for count in counts):
            return None
        if isinstance(op, flow.If) and not _is_guard(op, counts):
            return counts[0] if counts[0] == counts[1] else None
        different = [count for n, count in enumerate(counts) if count and count not in counts[:n]]
        if len(different) > 1 or (different and isinstance(op, flow.While)):
            return None
        return different[0] if different else {}

    def loop(self, op: flow.For) -> Count | None:
        limits: Bounds = (op.lower, op.upper, op.step)
        if self.ring in skipped_rings(self.role):
            limits = whole_loop(self.role, op) or limits
        bounds = tuple(self.key(v) for v in limits)
        self.indices[op.body.args[0]] = ("index", *bounds)
        inside = self.region(op.body)
        if inside is None or not inside:
            return inside
        total: Counter[tuple[Any, ...]] = Counter()
        for trip, factor in self.trips(*limits).items():
            for key, times in inside.items():
                total[tuple(sorted((*key, *trip), key=repr))] += factor * times
        return {key: times for key, times in total.items() if times}

    def trips(self, start: Value[Any], upper: Value[Any], stride: Value[Any]) -> Count:
        """Rounds of a loop that has at least those which were peeled."""
        terms, lower = linear(start)
        step = linear(stride)
        if step[0] or step[1] < 1 or (not terms and lower % step[1]):
            return {(tuple(self.key(v) for v in (start, upper, stride)),): 1}
        if terms:  # from some place on, which peeled rounds have moved up
            parts = sorted(((self.key(v), n) for v, n in terms), key=repr)
            first = ("from", *parts, lower % step[1], self.key(upper), step[1])
            peeled = lower // step[1]
            return {(first,): 1, **({(): -peeled} if peeled else {})}
        least = lower // step[1]
        known = linear(upper)
        if not known[0]:
            return {(): max(0, -(-known[1] // step[1]) - least)}
        whole: tuple[Any, ...] = ("blocks", self.key(upper), step[1])
        if step[1] == 1 and isinstance(upper.owner, math.CeilDiv):
            by = linear(upper.owner.y)
            if not by[0]:
                whole = ("blocks", self.key(upper.owner.x), by[1])
        return {(whole,): 1, **({(): -least} if least else {})}

    def number(self, value: Value[Any]) -> Count | None:
        """A number of rounds that is computed as such, for comparing it with what is counted."""
        terms, constant = linear(value)
        total: Counter[tuple[Any, ...]] = Counter({(): constant})
        for term, times in terms:
            made = term.owner
            if isinstance(made, math.Max) and linear(made.y) == _ZERO_ALONE:
                made = made.x.owner
            if not isinstance(made, math.CeilDiv):
                return None
            span, start, by = made.x, _ZERO.out, made.y
            less = span.owner
            if isinstance(less, math.Sub):
                span, start = less.x, less.y
            for trip, factor in self.trips(start, span, by).items():
                total[trip] += factor * times
        return {key: times for key, times in total.items() if times}

    def key(self, value: Value[Any]) -> Any:
        """What a value is, the same for equal computations of different roles."""
        if value in self.indices:
            return self.indices[value]
        terms, constant = linear(value)
        if not terms:
            return constant
        if terms != frozenset({(value, 1)}):
            parts = sorted(((self.key(v), n) for v, n in terms), key=repr)
            return ("sum", *parts, constant)
        op = value.owner
        if isinstance(op, cta.ExtentOf):
            return ("extent", op.array.type.shape[op.axis])
        if isinstance(
            op, cta.CtaIndex | cta.CtaCount | cluster.ClusterIndex | cluster.ClusterCount
        ):
            return op.name
        if isinstance(op, cluster.Rank):
            return (op.name, op.axis)
        if isinstance(op, cta.ReadScalar):
            # Both roles read it of the same launch; nothing says that it changes in between.
            return ("read", op.array.name, *(self.key(v) for v in op.origin))
        if not isinstance(op, Op) or op.regions or op.effects or not op.operands:
            return ("value", id(value))
        parts = [self.key(v) for v in op.operands]
        return (
            op.name,
            *parts,
            *(repr(a) for a in op.attributes.values()),
            op.results.index(value),
        )
