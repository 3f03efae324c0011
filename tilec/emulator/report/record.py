"""What a run did, kept for a report: of each warp its instructions in order, and what they touched.

The recorder wraps the steps of a machine that is to report and watches its accesses; a machine that
is not has neither. What orders warps is kept as `Mark`s: a phase of an mbarrier, a round of a named
barrier, a product that a warpgroup issues together. A mark knows how many contributions it got, so
that the replay (``replay.py``) needs no rules of barriers of its own.

Never: changes what a run does, or says when anything happened; the order of a run says nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulator.asynchrony import Work
from tilec.emulator.conflicts import ProductWatcher, sectors_of, turns
from tilec.emulator.program import Instruction, Program
from tilec.emulator.report.latencies import LINE, Shape, room, shape_of
from tilec.emulator.table import Block, Result, Step

TIMED = 4
"""CTAs whose instructions are kept in order; of all others only sums are."""


@dataclass(eq=False, slots=True)
class Mark:
    """Something that is waited for: it is there when all contributions have come."""

    kind: str
    """mbarrier, barrier or products."""
    place: int
    """The barrier's address or number; of a product its instruction."""
    round: int
    needed: int = 0
    after: Mark | None = None
    """What whoever fills it waited for before: the stage that it fills was free then."""


@dataclass(eq=False, slots=True)
class Access:
    """What a warp's instruction did to memory."""

    space: str
    writes: bool
    bytes: int
    turns: int = 0
    """Cycles of shared memory, and how many fewer there would be without conflicts."""
    conflicts: int = 0
    sectors: int = 0
    """Sectors of global memory, and how many more than its bytes fill."""
    wasted: int = 0
    lines: tuple[int, ...] = ()


@dataclass(eq=False, slots=True)
class Flight:
    """Work in flight: a copy or a product."""

    kind: str
    bytes: int = 0
    """Of shared memory."""
    moved: int = 0
    """Of global memory."""
    writes: bool = False
    """Whether it writes global memory."""
    lines: tuple[int, ...] = ()
    fills: Mark | None = None
    """The phase of an mbarrier that it arrives at."""
    product: Mark | None = None
    after: Mark | None = None
    """What its issuer had waited for last."""


@dataclass(eq=False, slots=True)
class Event:
    """What one instruction of a warp did beyond taking its turn."""

    accesses: list[Access] = field(default_factory=list)
    arrives: list[Mark] = field(default_factory=list)
    awaits: Mark | None = None
    flights: list[Flight] = field(default_factory=list)


Taken = tuple[int, Event | None]
"""An instruction that a warp took, by its number, and what it did."""


@dataclass(eq=False)
class Trace:
    """One CTA: the instructions of each warp."""

    index: tuple[int, int, int]
    timed: bool
    warps: dict[int, list[Taken]] = field(default_factory=dict)
    lines: set[int] = field(default_factory=set)
    """Lines of global memory that it touched."""
    last_wait: dict[int, Mark] = field(default_factory=dict)
    """The mbarrier phase that each warp waited for last."""


@dataclass
class Sums:
    """What an instruction did in all CTAs."""

    issued: int = 0
    bytes: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """By space, and whether it was written."""
    conflicts: int = 0
    sectors: int = 0
    wasted: int = 0
    macs: Counter[str] = field(default_factory=Counter)


class Recorder(ProductWatcher):
    """Keeps what a run does."""

    def __init__(self, program: Program) -> None:
        """Nothing is known yet."""
        self.program = program
        self.traces: list[Trace] = []
        self.sums = [Sums() for _ in program.instructions]
        self.shapes: list[Shape | None] = [shape_of(at) for at in program.instructions]
        self.sharers: Counter[int] = Counter()
        """How many CTAs touch each line."""
        self.room = 1
        """How many CTAs could share an SM, if registers let them."""
        self._numbers = {id(at): n for n, at in enumerate(program.instructions)}
        self._plain: list[Taken] = [(n, None) for n in range(len(program.instructions))]
        self._events: dict[int, Event] = {}
        self._marks: dict[tuple[int, int], Mark] = {}
        self._kept: list[Any] = []
        """Barriers whose identity is a key."""
        self._flights: dict[int, tuple[Flight, int, Trace, Any]] = {}

    # --- instructions ----------------------------------------------------------------------------

    def wrapped(self, step: Step, at: Instruction, number: int) -> Step:
        """The step, recorded for each warp that takes it."""
        stays = at.parts[0] == "bra"  # afterwards the warps are elsewhere

        def run(g: Any) -> Result:
            self._events = {}
            before = g.active_warps() if stays else None
            result = step(g)
            if isinstance(result, Block):
                return result
            trace = self._trace(g.cta)
            self._took(trace, number, g.active_warps() if before is None else before)
            return result

        return run

    def _trace(self, cta: Any) -> Trace:
        found: Trace = cta.keep("trace", self._new_trace)
        return found

    def _new_trace(self, cta: Any) -> Trace:
        self._close_last()
        self._flights, self._marks, self._kept = {}, {}, []
        machine = cta.machine
        self.room = room(cta.threads, machine.program.static_shared + machine.dynamic_shared)
        self.traces.append(Trace(cta.index, len(self.traces) < TIMED))
        return self.traces[-1]

    def _close_last(self) -> None:
        """CTAs run one after another: when the next begins, the lines of the last are known."""
        if self.traces and self.traces[-1].lines:
            self.sharers.update(self.traces[-1].lines)
            self.traces[-1].lines = set()

    def finish(self) -> None:
        """The run is over."""
        self._close_last()

    def _took(self, trace: Trace, number: int, warps: list[int]) -> None:
        sums, shape = self.sums[number], self.shapes[number]
        sums.issued += len(warps)
        if shape is not None and shape.m < 64:
            sums.macs[shape.types] += shape.macs * len(warps)
        plain = self._plain[number]
        for warp in warps:
            event = self._events.get(warp)
            if event is not None:
                self._add(sums, trace, event)
            if trace.timed:
                taken = plain if event is None else (number, event)
                trace.warps.setdefault(warp, []).append(taken)

    @staticmethod
    def _add(sums: Sums, trace: Trace, event: Event) -> None:
        for access in event.accesses:
            sums.bytes[access.space, access.writes] += access.bytes
            sums.conflicts += access.conflicts
            sums.sectors += access.sectors
            sums.wasted += access.wasted
            trace.lines.update(access.lines)

    def _event(self, warp: int) -> Event:
        return self._events.setdefault(warp, Event())

    # --- memory ----------------------------------------------------------------------------------

    def accessed(
        self,
        at: Instruction,
        g: Any,
        space: str,
        buffer: Any,
        offsets: Any,
        width: int,
        lanes: Any,
        writes: bool,
        rows: Any = None,
    ) -> None:
        """Threads touch memory."""
        for _, warp, picked in g.by_warp(offsets, lanes):
            made = Access(space, writes, len(picked) * width)
            if space == "shared":
                found = turns(picked, width)
                made.turns, made.conflicts = sum(found), sum(found) - len(found)
            else:
                first = picked + buffer.address
                made.sectors, fill = sectors_of(first, width)
                made.wasted = made.sectors - fill
                made.lines = _lines(np.concatenate((first, first + width - 1)))
            self._event(warp).accesses.append(made)

    def product(self, at: Instruction, cta: Any, rows: Any) -> None:
        """A product reads an operand."""
        found = [each for group in rows for each in turns(group, 16)]
        self.sums[self._numbers[id(at)]].conflicts += sum(found) - len(found)

    # --- order -----------------------------------------------------------------------------------

    def mark(self, kind: str, barrier: Any, place: int, round: int) -> Mark:
        """The mark of a round of a barrier."""
        key = (id(barrier), round)
        if key not in self._marks:
            self._kept.append(barrier)
            self._marks[key] = Mark(kind, place, round)
        return self._marks[key]

    def arrives(self, warp: int, barrier: Any) -> None:
        """A lane of a warp arrives at an mbarrier."""
        made = self.mark("mbarrier", barrier, barrier.address, barrier.phase)
        made.needed += 1
        self._event(warp).arrives.append(made)

    def passes(self, cta: Any, warps: list[int], barrier: Any) -> None:
        """Warps have waited for the last phase of an mbarrier."""
        made = self.mark("mbarrier", barrier, barrier.address, barrier.phase - 1)
        trace = self._trace(cta)
        for warp in warps:
            self._event(warp).awaits = made
            trace.last_wait[warp] = made

    def meets(self, warps: list[int], barrier: Any, number: int, round: int, waits: bool) -> None:
        """Warps come to a named barrier, and have waited there for the others."""
        made = self.mark("barrier", barrier, number, round)
        made.needed += len(warps)
        for warp in warps:
            self._event(warp).arrives.append(made)
            if waits:
                self._event(warp).awaits = made

    # --- work in flight --------------------------------------------------------------------------

    def issued(self, work: Work) -> None:
        """Work begins."""
        number = self._numbers[id(work.at)]
        trace, flight = self._trace(work.cta), Flight(work.kind, work.bytes)
        sums, shape = self.sums[number], self.shapes[number]
        if work.kind == "wgmma" and shape is not None:
            flight.bytes = shape.shared_bytes
            flight.product = Mark("products", number, 0, len(work.warps))
            sums.macs[shape.types] += shape.macs
        if flight.bytes:
            sums.bytes["shared", work.kind in ("tma-load", "cp.async")] += flight.bytes
        self._flights[id(work.party)] = flight, number, trace, work.party
        for warp in work.warps:
            self._event(warp).flights.append(flight)
            flight.after = trace.last_wait.get(warp)

    def moves(self, party: Any, buffer: Any, index: Any, writes: bool) -> None:
        """A copy in flight touches bytes of an array."""
        flight, number, trace, _ = self._flights[id(party)]
        flight.moved, flight.writes = flight.moved + len(index), writes
        flight.lines += _lines(index + buffer.address)
        space = "global" if flight.kind == "cp.async" else "tensor map"
        self.sums[number].bytes[space, writes] += len(index)
        trace.lines.update(flight.lines)

    def lands(self, party: Any, barrier: Any) -> None:
        """Work in flight is done and arrives at an mbarrier."""
        flight = self._flights[id(party)][0]
        made = self.mark("mbarrier", barrier, barrier.address, barrier.phase)
        made.needed += 1
        made.after = made.after or flight.after
        flight.fills = made


def _lines(addresses: Any) -> tuple[int, ...]:
    return tuple(np.unique(addresses // LINE).tolist())
