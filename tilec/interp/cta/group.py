"""One group of a role: its values, its place in each ring, and what it has in flight.

A group is a coroutine: an op that has to wait for others yields a ``Pending`` with the condition
it waits for. Ops that only compute have rules in ``MEANINGS``; ops that wait, or hold regions, are
generators in ``STEPS``. Arithmetic on elements is that of level ``tile``, place by place.

Values are ``Held`` data: scalars of rank 0, register tiles over (warp, lane, register). A scalar
that may differ between warps (a vote) has one element a warp. A branch on such a scalar goes both
ways and takes each warp's results from its own, which only ops without effects allow.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.interp import math_meanings  # noqa: F401  (registers the arithmetic)
from tilec.interp.cta.faults import ProtocolFault
from tilec.interp.cta.registers import spread, whole
from tilec.interp.cta.shared import Reading, RingState, SharedTile, View, said
from tilec.interp.machine import MEANINGS as ON_TILES
from tilec.interp.machine import Held, Machine, held, line_of
from tilec.interp.memory import InterpretError, Memory
from tilec.interp.numbers import Data
from tilec.ir.clusters import partners
from tilec.ir.core import Op, Region, Value
from tilec.ir.declare import Effects
from tilec.ir.levels import cta, flow, math
from tilec.ir.types import Register, Scalar


@dataclass(frozen=True)
class Pending:
    """What a group waits for."""

    ready: Callable[[], bool]
    what: Callable[[], str]
    op: Op


Steps = Generator[Pending, None, Any]
Rule = Callable[["Group", Any], Any]
MEANINGS: dict[type[Op], Rule] = {}
"""What an op does that never waits: it returns the values of its results."""
STEPS: dict[type[Op], Callable[[Group, Any], Steps]] = {}
"""The same for ops that may wait."""


def meaning(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Register what ops of these classes do at level ``cta``."""

    def register(rule: Rule) -> Rule:
        table: Any = STEPS if inspect.isgeneratorfunction(rule) else MEANINGS
        table.update(dict.fromkeys(classes, rule))
        return rule

    return register


def rule_of(cls: type[Op]) -> Rule | None:
    """What a class of ops does; arithmetic on elements needs no rule of this level."""
    own = MEANINGS.get(cls) or STEPS.get(cls)
    if own is not None or not issubclass(cls, (math.Elementwise, math.Cast, math.Constant)):
        return own
    arithmetic = ON_TILES.get(cls)
    return None if arithmetic is None else lambda g, op: arithmetic(g.machine, op)


@dataclass(eq=False)
class Shelf:
    """What the groups of one CTA share."""

    rings: dict[Value[Any], RingState] = field(default_factory=dict)
    tiles: list[SharedTile] = field(default_factory=list)
    turns: dict[Value[Any], set[int]] = field(default_factory=dict)
    """For each token, the groups that may go."""
    peers: list[Shelf] = field(default_factory=list)
    """Those of all CTAs of the cluster, by rank; its own among them."""
    rank: int = 0
    shape: tuple[int, int] = (1, 1)

    def partners(self, ring: Value[Any]) -> list[RingState]:
        """The ring in each CTA that loads of this one reach."""
        own = self.rings[ring]
        if not own.op.shared_along:
            return [own]
        ranks = partners(self.shape, own.op.shared_along, self.rank)
        return [self.peers[rank].rings[ring] for rank in ranks]


@dataclass(eq=False)
class FlightState:
    """A product that is computed when it must be done, from what its operands hold by then."""

    op: cta.Product
    compute: Callable[[], Data]
    readings: list[Reading]
    result: Data | None = None
    taken: Op | None = None

    def finish(self) -> None:
        """Read the operands now."""
        self.result = self.compute()
        for reading in self.readings:
            reading.over = True


@dataclass(eq=False)
class StoreState:
    """A TMA store that has not read its source yet."""

    run: Callable[[], None]
    reading: Reading


class Group:
    """One group of a role."""

    def __init__(
        self, role: cta.Role | None, number: int, values: dict[Value[Any], Any], shelf: Shelf,
        iteration: int, wide: bool,
    ) -> None:  # fmt: skip
        self.role, self.number, self.shelf = role, number, shelf
        self.warps = role.group if role is not None else 1
        self.machine = Machine({}, wide=wide, explicit=True, values=values, iteration=iteration)
        self.acquired: dict[Value[Any], int] = {}
        self.waited: dict[Value[Any], int] = {}
        self.slots: list[Any] = []
        self.open: list[FlightState] = []
        self.closed: list[list[FlightState]] = []
        self.stores: list[StoreState] = []
        self.holding: dict[Value[Any], Op] = {}

    @property
    def name(self) -> str:
        """The role's label, and which group of it."""
        if self.role is None:
            return "the kernel"
        several = self.role.warps > self.role.group
        return f"{self.role.label} {self.number}" if several else self.role.label

    @property
    def cta(self) -> int:
        """The number of its CTA."""
        return int(self.machine.iteration) - 1

    @property
    def wide(self) -> bool:
        """Whether floats are float64 and nothing is rounded."""
        return self.machine.wide

    # Values -----------------------------------------------------------------------------------

    def data(self, value: Value[Any]) -> Data:
        """A scalar's or register tile's data, place by place."""
        return self.machine.data(value)

    def number_of(self, value: Value[Any]) -> Any:
        """A scalar as a number; it is the same in all warps."""
        data = self.data(value)
        if data.size > 1 and not (data == data.flat[0]).all():
            raise ProtocolFault(f"%{value.name or '?'} differs between the warps of {self.name}")
        return data.flat[0].item()

    def tile(self, value: Value[Any]) -> Data:
        """A register tile as a whole."""
        return whole(self.data(value), value.type, self.warps)

    def registers(self, tile: Data, type: Any) -> Held:
        """A whole tile as a register value of a type."""
        return held(spread(tile, type, self.warps))

    def memory(self, value: Value[Any]) -> Memory:
        """The array behind a parameter, or behind a tensor map of it."""
        return self.machine.memory(value)

    def view(self, value: Value[Any]) -> View:
        """A shared tile."""
        found: View = self.machine.values[value]
        return found

    def bind(self, results: Iterable[Value[Any]], made: Iterable[Any]) -> None:
        """Let results stand for values."""
        self.machine.values.update(zip(results, made, strict=True))

    # Running ----------------------------------------------------------------------------------

    def role_steps(self) -> Steps:
        """The whole role; nothing may be owed when it ends."""
        assert self.role is not None
        self.bind(self.role.body.args, [held(np.int32(self.number))])
        yield from self.region(self.role.body)
        self._check_end()

    def region(self, region: Region) -> Steps:
        """All ops of a region; what its terminator hands out."""
        for op in region.ops:
            if op.is_terminator:
                return [self.machine.values[v] for v in op.operands]
            yield from self.step(op)
        return []

    def step(self, op: Op) -> Steps:
        """One op; faults get its source line and the group's name."""
        try:
            waiting = STEPS.get(type(op))
            made = (yield from waiting(self, op)) if waiting is not None else self._simple(op)
        except InterpretError as error:
            if error.line or isinstance(op, flow.For | flow.While | flow.If | cta.Weave):
                raise
            message = f"{error.message} (in {self.name})" if self.role else error.message
            raise type(error)(message, line_of(op), error.help) from None
        results = op.results
        if len(results) == 1 and not isinstance(made, list):
            self.machine.values[results[0]] = made
        elif results:
            self.bind(results, made)

    def _simple(self, op: Op) -> Any:
        rule = rule_of(type(op))
        if rule is None:
            raise InterpretError(f"{op.name} has no meaning at level cta")
        return rule(self, op)

    def now(self, op: Op) -> None:
        """An op outside of roles, which never waits."""
        for pending in self.step(op):
            raise ProtocolFault(f"{op.name} waits outside of any role", line_of(pending.op))

    def _check_end(self) -> None:
        """Nothing is owed when a role ends."""
        for slot in self.slots:
            if not slot.over:
                owed = "filled" if slot.filling else "released"
                raise ProtocolFault(
                    f"{self.name} ends, and the stage of {said(slot.op)} is not {owed}",
                    line_of(slot.op),
                )
        for flight in (*self.open, *(f for group in self.closed for f in group)):
            raise ProtocolFault(
                f"{self.name} ends before a cta.settle covers {said(flight.op)}", line_of(flight.op)
            )
        for store in self.stores:
            op = store.reading.op
            raise ProtocolFault(
                f"{self.name} ends while {said(op)} reads shared memory: no cta.drain_stores",
                line_of(op),
            )
        for op in self.holding.values():
            raise ProtocolFault(f"{self.name} ends without passing its turn on", line_of(op))


# --- control -----------------------------------------------------------------------------------


@meaning(flow.For)
def _for(g: Group, op: flow.For) -> Steps:
    lower, upper, step = (int(g.number_of(v)) for v in (op.lower, op.upper, op.step))
    if step <= 0:
        raise InterpretError(f"the loop's step is {step}; it must be positive")
    carried = [g.machine.values[v] for v in op.init]
    for index in range(lower, upper, step):
        g.bind(op.body.args, [held(np.int32(index)), *carried])
        carried = yield from g.region(op.body)
    return carried


@meaning(flow.While)
def _while(g: Group, op: flow.While) -> Steps:
    carried = [g.machine.values[v] for v in op.init]
    while True:
        g.bind(op.test.args, carried)
        yield from g.region(op.test)
        if not g.number_of(flow.yielded(op.test)[0]):
            return carried
        g.bind(op.body.args, carried)
        carried = yield from g.region(op.body)


@meaning(flow.If)
def _if(g: Group, op: flow.If) -> Steps:
    condition = g.data(op.condition)
    if condition.size == 1 or (condition == condition.flat[0]).all():
        return (yield from g.region(op.then if condition.flat[0] else op.otherwise))
    ways = []
    for region in (op.then, op.otherwise):
        for inner in region.walk():
            if inner.effects & ~Effects.READS and not inner.is_terminator:
                raise ProtocolFault(
                    f"the warps go different ways, and one of them does {inner.name}"
                )
        ways.append((yield from g.region(region)))
    return [_merged(condition, x, y, v) for x, y, v in zip(*ways, op.out, strict=True)]


def _merged(condition: Data, x: Any, y: Any, value: Value[Any]) -> Any:
    """Each warp's result from the way that it went."""
    if isinstance(value.type, Register | Scalar):
        return held(np.where(condition, x.data, y.data))
    if x is not y:
        raise ProtocolFault(f"the warps go different ways, and get another %{value.name or '?'}")
    return x


@meaning(cta.Weave)
def _weave(g: Group, op: cta.Weave) -> Steps:
    return (yield from g.region(op.body))
