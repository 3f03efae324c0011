"""The protocol of level ``cta``: what is done with rings, products, stores and turns, and when.

Four kinds of rules. Those about the kernel as a whole (warps, registers, named barriers, shared
memory, who fills a ring and who empties it) are in ``resources``, those about tensor maps and
their tiles in ``copies``, whether both sides of a ring go as many rounds in ``rounds``. Those
about order are checked here by running each role's body on abstract states: what an op does to a
state, and what it asks of it, is in ``order``. A branch is taken both ways (ways of one condition
agree); a loop is run again until no new state appears, so a slot or flight that it carries is
followed through it.

Nothing is executed, and no arithmetic is done beyond telling two windows apart. Order is looked at
role by role: whether two roles together can deadlock is not decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tilec.ir.alternation import placing_faults
from tilec.ir.clusters import cluster_faults
from tilec.ir.copies import copy_faults
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.held import State
from tilec.ir.levels import cta, flow, math
from tilec.ir.order import RULES, Reports, at_end
from tilec.ir.resources import resource_faults
from tilec.ir.rounds import round_faults
from tilec.ir.verify import Fault
from tilec.targets.base import Target

ROUNDS = 24
"""Rounds of a loop that are followed; bodies repeat themselves after a few."""
STATES = 64
"""States of a role that are told apart at one op before the check gives up with a fault."""


def protocol_faults(kernel: Kernel, target: Target | None = None) -> list[Fault]:
    """All breaches of the protocol by a kernel of level ``cta`` that is otherwise valid.

    Limits of the machine are checked when a target is given.
    """
    faults = [*resource_faults(kernel, target), *copy_faults(kernel), *round_faults(kernel)]
    faults += [*cluster_faults(kernel), *placing_faults(kernel)]
    for op in kernel.body.ops:
        if isinstance(op, cta.Role):
            faults.extend(_Walk(op).faults())
    return faults


class _Walk:
    """Runs one role's body on abstract states."""

    def __init__(self, role: cta.Role) -> None:
        self.role = role
        self.reports = Reports()
        tested = Counter(op.condition for op in role.body.walk() if isinstance(op, flow.If))
        self.shared_conditions = {value for value, count in tested.items() if count > 1}
        self.inner: dict[int, set[Value[Any]]] = {}

    def faults(self) -> list[Fault]:
        """Run the role from its start to its end."""
        for state in self.region(self.role.body, [State()]):
            at_end(state, self.reports)
        order = {id(op): position for position, op in enumerate(self.role.body.walk())}
        return sorted(self.reports.faults, key=lambda f: (order[id(f.op)], f.message))

    def region(self, region: Region, states: list[State]) -> list[State]:
        """Run the ops of a region on states that it may change; the states after it."""
        for op in region.ops:
            if isinstance(op, flow.For):
                states = self.loop(op, states)
            elif isinstance(op, flow.If):
                states = self.branch(op, states)
            elif isinstance(op, flow.While):
                states = self.repeat(op, states)
            elif op.regions:
                states = self.body(op, op.regions[0], states)
            elif rule := RULES.get(type(op)):
                for state in states:
                    rule(state, op, self.reports)
                states = merged(states)
            if len(states) > STATES:
                self.reports.add(op, f"more than {STATES} cases meet here: too many to follow")
                states = states[:STATES]
        return states

    def run_inside(
        self, region: Region, states: list[State], results: Sequence[Value[Any]]
    ) -> list[State]:
        """Run a region once, leave it, and let ``results`` stand for what it yields."""
        after = self.region(region, states)
        for state in after:
            carried = state.numbers(flow.yielded(region))
            state.leave(self.values_of(region), carried)
            state.bind(results, carried)
        return merged(after)

    def body(self, op: Op, region: Region, states: list[State]) -> list[State]:
        """Run the region of an op that executes it once."""
        return self.run_inside(region, states, op.results)

    def branch(self, op: flow.If, states: list[State]) -> list[State]:
        """Both ways, unless the path has already decided this condition."""
        after: list[State] = []
        for way, region in ((True, op.then), (False, op.otherwise)):
            taken = [s.copy() for s in states if s.decided.get(op.condition, way) == way]
            if op.condition in self.shared_conditions:
                for state in taken:
                    state.decided[op.condition] = way
            after.extend(self.run_inside(region, taken, op.out))
        return merged(after)

    def repeat(self, op: flow.While, states: list[State]) -> list[State]:
        """The test once more than the body; any number of rounds."""
        for state in states:
            state.bind(op.test.args, state.numbers(op.init))
        reached: dict[Any, State] = {}
        for _ in range(ROUNDS):
            tested = self.region(op.test, states)
            for state in tested:
                carried = state.numbers(op.test.args)
                state.leave(self.values_of(op.test), carried)
                state.bind(op.body.args, carried)
            states = [state for state in merged(tested) if state.key() not in reached]
            reached.update((state.key(), state.copy()) for state in states)
            if not states or len(reached) > STATES:
                break
            states = self.run_inside(op.body, states, op.test.args)
        else:
            self.reports.add(op, f"after {ROUNDS} rounds this loop still leaves more behind")
        for state in reached.values():
            carried = state.numbers(op.body.args)
            state.leave(self.values_of(op.body), carried)
            state.bind(op.finals, carried)
        return merged(list(reached.values()))

    def loop(self, op: flow.For, states: list[State]) -> list[State]:
        """As many rounds as constants give, else any number."""
        for state in states:
            state.bind(op.body.args[1:], state.numbers(op.init))
        trips = trip_count(op)
        after = self.all_rounds(op, states) if trips is None else self.rounds(op, states, trips)
        for state in after:
            carried = state.numbers(op.body.args[1:])
            state.leave(self.values_of(op.body), carried)
            state.bind(op.finals, carried)
        return merged(after)

    def all_rounds(self, op: flow.For, states: list[State]) -> list[State]:
        """The states after 0, 1, 2, ... rounds."""
        reached = {state.key(): state for state in states}
        fresh = list(reached.values())
        for _ in range(ROUNDS):
            after = self.round(op, fresh)
            fresh = [state for state in after if state.key() not in reached]
            reached.update((state.key(), state) for state in fresh)
            if not fresh or len(reached) > STATES:
                return [state.copy() for state in reached.values()]
        self.reports.add(op, f"after {ROUNDS} rounds this loop still leaves more and more behind")
        return [state.copy() for state in reached.values()]

    def rounds(self, op: flow.For, states: list[State], trips: int) -> list[State]:
        """The states after exactly ``trips`` rounds, or once they stay as they are."""
        for _ in range(min(trips, ROUNDS)):
            after = self.round(op, states)
            if {state.key() for state in after} == {state.key() for state in states}:
                break
            states = after
        return states

    def round(self, op: flow.For, states: list[State]) -> list[State]:
        """One round; what it yields stands for the body's arguments in the next."""
        return self.run_inside(op.body, [state.copy() for state in states], op.body.args[1:])

    def values_of(self, region: Region) -> set[Value[Any]]:
        """All values defined in a region."""
        if id(region) not in self.inner:
            ops = list(region.walk())
            args = [a for r in (region, *(r for op in ops for r in op.regions)) for a in r.args]
            self.inner[id(region)] = {*args, *(v for op in ops for v in op.results)}
        return self.inner[id(region)]


def merged(states: Sequence[State]) -> list[State]:
    """The states that differ from one another."""
    if len(states) < 2:
        return list(states)
    return list({state.key(): state for state in states}.values())


def trip_count(op: flow.For) -> int | None:
    """Rounds of a loop whose bounds are constants; None when they are known at run time."""
    bounds = [v.owner for v in (op.lower, op.upper, op.step)]
    values = [int(o.value) for o in bounds if isinstance(o, math.Constant)]
    if len(values) != 3 or values[2] < 1:
        return None
    lower, upper, step = values
    return max(0, -(-(upper - lower) // step))
