"""A CTA again, on a clock: each warp goes on when what it needs is there, and units are busy.

Each warp has a clock. An instruction issues when its operands are ready, the issue slot of the
warp's quarter of the SM is free, and so is the unit that it occupies; a wait ends when its mark has
all contributions; copies and products end when the unit that does them has had time for them. The
warp whose clock is least goes on, so that units are given out in the order of time.

Invariants: a warp's clock never goes back; its spans follow one another without a gap from 0 to
its end. What a warp does is what the run did: a wait that it passed there ends here too.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tilec.emulator.liveness import read, written
from tilec.emulator.program import Instruction, Number, Program
from tilec.emulator.report import latencies as model
from tilec.emulator.report.record import Access, Event, Flight, Mark, Recorder, Taken, Trace

WORKS = "works"
WAITS = ("operands", "unit", "mbarrier", "barrier", "products", "copies", "fence")
"""What a warp waits for: results of its own instructions, an issue slot or a unit, a phase of an
mbarrier, a named barrier, a group of products, a group of copies, the end of a fence."""
QUARTERS = 4
BUSY = "busy"
TENSOR, PORT = "tensor cores", "memory port"
"""The engines."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a warp, an engine or a stage did from one cycle to another."""

    start: float
    end: float
    what: str
    instruction: int
    """The first of them, by number; -1 for none."""


@dataclass
class Timed:
    """What the replay of a CTA gave."""

    trace: Trace
    cycles: float
    warps: dict[int, list[Span]]
    engines: dict[str, list[Span]]
    marks: dict[Mark, tuple[float, float]]
    """Phases of mbarriers and the like: when a transfer for it was issued first (or its first
    contribution came), and when it was over."""
    spent: Counter[tuple[int, bool]]
    """Cycles of all warps by instruction, working and waiting."""
    unfinished: bool = False
    """Whether the run ended before these warps did."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What the model knows of an instruction."""

    at: Instruction
    cost: model.Cost
    flows: bool
    """Whether it only gives a result, and does not stop its warp when operands are late."""
    takes: tuple[tuple[str, int], ...]
    gives: tuple[tuple[str, int], ...]
    product: float
    """Cycles of tensor cores."""
    group: str
    """The asynchronous groups that it closes or waits for: commit or wait, and of what."""
    pending: int
    """Groups that a wait leaves."""
    reads_only: bool


_GROUPS = {
    "wgmma.commit_group": "products", "wgmma.wait_group": "products",
    "cp.async.bulk.commit_group": "stores", "cp.async.bulk.wait_group": "stores",
    "cp.async.commit_group": "copies", "cp.async.wait_group": "copies",
    "cp.async.wait_all": "copies",
}  # fmt: skip
_OF_FLIGHT = {"wgmma": "products", "tma-store": "stores", "cp.async": "copies"}


def _step_of(at: Instruction) -> _Step:
    name = model.class_of(at)
    shape = model.shape_of(at)
    product = at.parts[0] == "wgmma" and shape is not None
    cycles = 0.0
    if shape is not None:
        cycles = model.product_cycles(shape) if product else model.warp_product_cycles(shape)
    group = next((g for opcode, g in _GROUPS.items() if at.opcode.startswith(opcode)), "")
    waits = group and "commit_group" not in at.parts
    pending = 0
    if waits and at.operands and isinstance(at.operands[0], Number):
        pending = at.operands[0].value
    gives = () if product else tuple((r.bank, r.row) for r in written(at))
    takes = tuple((r.bank, r.row) for r in read(at))
    if product:  # accumulators belong to the products in flight, which take turns by themselves
        held = {(r.bank, r.row) for r in written(at)}
        takes = tuple(t for t in takes if t not in held)
    kind = "" if not group else f"{'wait' if waits else 'commit'} {group}"
    cost = model.COSTS[name]
    return _Step(
        at, cost, name in model.FLOWS, takes, gives, cycles, kind, pending, "read" in at.parts
    )


@dataclass(eq=False)
class _Warp:
    number: int
    taken: list[Taken]
    clock: float = 0
    place: int = 0
    arrived: bool = False
    """Whether the arrivals of the instruction that it is at have been made."""
    ready: dict[tuple[str, int], float] = field(default_factory=dict)
    open: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    closed: dict[str, list[list[Any]]] = field(default_factory=lambda: defaultdict(list))
    spans: list[Span] = field(default_factory=list)
    spent: Counter[tuple[int, bool]] = field(default_factory=Counter)
    """Cycles by instruction, and whether it waited."""

    def until(self, time: float, what: str, instruction: int) -> None:
        """The clock goes on to a time; spans of the same kind on end are one."""
        if time <= self.clock:
            return
        self.spent[instruction, what != WORKS] += time - self.clock  # type: ignore[assignment]
        last = self.spans[-1] if self.spans else None
        if last is not None and last.what == what:
            self.spans[-1] = Span(last.start, time, what, last.instruction)
        else:
            self.spans.append(Span(self.clock, time, what, instruction))
        self.clock = time


@dataclass(eq=False)
class _Due:
    """How far a mark is."""

    came: int = 0
    begun: float = float("inf")
    time: float = 0
    waiting: list[_Warp] = field(default_factory=list)


class Replay:
    """One CTA on a clock."""

    def __init__(self, program: Program, recorder: Recorder, trace: Trace) -> None:
        """All warps at their first instruction."""
        self.steps = [_step_of(at) for at in program.instructions]
        self.trace, self.sharers = trace, recorder.sharers
        self.share = model.memory_share(len(recorder.traces))
        self.warps = {n: _Warp(n, taken) for n, taken in sorted(trace.warps.items())}
        self.free: dict[Any, float] = defaultdict(float)
        self.due: dict[Mark, _Due] = defaultdict(_Due)
        self.ends: dict[int, float] = {}
        """When flights end, by identity."""
        self.sources_free: dict[int, float] = {}
        """When the shared memory that a store reads is free again."""
        self.busy: dict[str, list[tuple[float, float]]] = {TENSOR: [], PORT: []}
        """When engines are busy, in no order; quarters of the tensor cores overlap."""
        self.fetched: set[int] = set()
        self.queue: list[tuple[float, int]] = []

    def run(self) -> Timed:
        """Until no warp can go on."""
        for warp in self.warps.values():
            self._push(warp)
        while self.queue:
            _, number = heapq.heappop(self.queue)
            self._go(self.warps[number])
        cycles = max((w.clock for w in self.warps.values()), default=0.0)
        engines = {name: _merged(times) for name, times in self.busy.items()}
        cycles = max([cycles, *(spans[-1].end for spans in engines.values() if spans)])
        left = not all(self._ended(warp) for warp in self.warps.values())
        over = {m: d for m, d in self.due.items() if m.needed and d.came == m.needed}
        marks = {m: (d.begun, d.time) for m, d in over.items()}
        spans = {n: w.spans for n, w in self.warps.items()}
        spent: Counter[tuple[int, bool]] = Counter()
        for warp in self.warps.values():
            spent.update(warp.spent)
        return Timed(self.trace, cycles, spans, engines, marks, spent, left)

    def _ended(self, warp: _Warp) -> bool:
        """Whether a warp came to its end: in a run that hangs it did not."""
        if not warp.taken or warp.place < len(warp.taken):
            return False
        last = warp.taken[-1][0]
        ends = self.steps[last].at.parts[0] in ("ret", "exit", "trap")
        return ends or last == len(self.steps) - 1

    def _push(self, warp: _Warp) -> None:
        heapq.heappush(self.queue, (warp.clock, warp.number))

    def _go(self, warp: _Warp) -> None:
        """Instructions of one warp, as long as it is the one whose clock is least."""
        while warp.place < len(warp.taken):
            number, event = warp.taken[warp.place]
            step = self.steps[number]
            ready = max((warp.ready.get(r, 0.0) for r in step.takes), default=0.0)
            if ready > warp.clock and not step.flows:
                warp.until(ready, "operands", number)
            elif not self._issue(warp, number, step, event, ready):
                return  # it waits; whoever makes the mark lets it go on
            if self.queue and self.queue[0][0] < warp.clock:
                self._push(warp)
                return

    def _issue(
        self, warp: _Warp, number: int, step: _Step, event: Event | None, ready: float
    ) -> bool:
        """One instruction, its operands there at ``ready``; False if it has to wait for others."""
        if not warp.arrived:
            self._take_turn(warp, number, step, event, ready)
            warp.arrived = True
            for mark in event.arrives if event is not None else ():
                self._comes(mark, warp.clock + (0 if step.cost.stops else step.cost.latency))
        if event is not None and event.awaits is not None:
            due = self.due[event.awaits]
            if due.came < event.awaits.needed:
                due.waiting.append(warp)
                return False
            warp.until(due.time, event.awaits.kind, number)
        if step.group and not self._groups(warp, number, step):
            return False
        if step.cost.stops:
            what = step.group or ("barrier" if step.cost.unit == "shared" else "fence")
            warp.until(warp.clock + step.cost.latency, what, number)
        warp.arrived = False
        warp.place += 1
        return True

    def _take_turn(
        self, warp: _Warp, number: int, step: _Step, event: Event | None, ready: float
    ) -> None:
        """The issue slot and the unit; results are ready after the latency."""
        cost, quarter = step.cost, warp.number % QUARTERS
        if cost.unit == "none" and not cost.stops:
            self._results(warp, step, max(warp.clock, ready))
            return
        unit = cost.unit if cost.unit in model.WIDE else (cost.unit, quarter)
        slot = ("issue", quarter)
        start = max(warp.clock, self.free[slot], self.free[unit])
        warp.until(start, "unit", number)
        warp.until(start + 1, WORKS, number)
        self.free[slot] = start + 1
        accesses = event.accesses if event is not None else []
        turns = sum(a.turns for a in accesses if a.space == "shared")
        by_warp = cost.unit == "tensor" and not self._asynchronous(step)
        busy = step.product if by_warp else cost.busy
        self.free[unit] = start + max(busy, turns)
        start = max(start, ready)
        if by_warp:
            self.busy[TENSOR].append((start, start + busy))
        end = start + max(busy, turns, 1) - 1 + cost.latency
        for access in accesses:
            if access.space == "global":
                end = max(end, self._access(access, start))
        self._results(warp, step, end)
        for flight in event.flights if event is not None else ():
            self._fly(warp, flight, start, number, step)

    @staticmethod
    def _asynchronous(step: _Step) -> bool:
        return step.at.parts[0] == "wgmma"

    @staticmethod
    def _results(warp: _Warp, step: _Step, time: float) -> None:
        for register in step.gives:
            warp.ready[register] = time

    # --- marks -----------------------------------------------------------------------------------

    def _comes(self, mark: Mark, time: float, begun: float | None = None) -> None:
        """A contribution to a mark; the last lets those go on that wait."""
        due = self.due[mark]
        due.came += 1
        due.begun = min(due.begun, time if begun is None else begun)
        due.time = max(due.time, time)
        if due.came == mark.needed:
            for warp in due.waiting:
                self._push(warp)
            due.waiting.clear()

    def _groups(self, warp: _Warp, number: int, step: _Step) -> bool:
        """Close a group, or wait for all but the newest; False if some has not begun yet."""
        does, what = step.group.split()
        if does == "commit" or step.at.parts[-1] == "wait_all":
            warp.closed[what].append(warp.open[what])
            warp.open[what] = []
        if does == "commit":
            return True
        count = max(0, len(warp.closed[what]) - step.pending)
        for flight in [f for group in warp.closed[what][:count] for f in group]:
            mark = flight.product
            if mark is not None and self.due[mark].came < mark.needed:
                self.due[mark].waiting.append(warp)
                return False
            times = self.sources_free if step.reads_only else self.ends
            name = "products" if what == "products" else "copies"
            warp.until(times[id(flight)], name, number)
        if not step.reads_only:
            warp.closed[what] = warp.closed[what][count:]
        return True

    # --- memory, copies and products -------------------------------------------------------------

    def _transfer(self, moved: int, lines: tuple[int, ...], start: float) -> tuple[float, float]:
        """When bytes have passed the SM's port and the memory behind it, and when they arrive."""
        begin = max(start, self.free["port"])
        end = begin + moved / model.PORT_BYTES
        new = [line for line in lines if line not in self.fetched]
        latency = model.L2_LATENCY
        if new:
            self.fetched.update(new)
            latency = model.MEMORY_LATENCY
            bytes = sum(model.LINE / self.sharers[line] for line in new)
            self.free["memory share"] = max(begin, self.free["memory share"]) + bytes / self.share
            end = max(end, self.free["memory share"])
        self.free["port"] = begin + moved / model.PORT_BYTES
        if moved:
            self.busy[PORT].append((begin, end))
        return end, end + latency

    def _access(self, access: Access, start: float) -> float:
        """A load or store of threads; a store is over for its warp when it has left."""
        moved = access.sectors * model.SECTOR
        _, landed = self._transfer(moved, () if access.writes else access.lines, start)
        return start if access.writes else landed

    def _fly(self, warp: _Warp, flight: Flight, start: float, number: int, step: _Step) -> None:
        if flight.product is not None:
            self._multiply(warp, flight, start, number, step)
        elif flight.kind == "cp.async-arrive":
            copies = [*warp.open["copies"], *(f for g in warp.closed["copies"] for f in g)]
            self.ends[id(flight)] = max([start, *(self.ends[id(f)] for f in copies)])
        else:
            extra = 0 if flight.kind == "cp.async" else model.TENSOR_COPY
            lines = () if flight.writes else flight.lines
            left, landed = self._transfer(flight.moved, lines, start + extra)
            self.sources_free[id(flight)] = left
            self.ends[id(flight)] = landed
        if flight.kind in _OF_FLIGHT:
            warp.open[_OF_FLIGHT[flight.kind]].append(flight)
        if flight.fills is not None:
            self._comes(flight.fills, self.ends[id(flight)], start)

    def _multiply(
        self, warp: _Warp, flight: Flight, start: float, number: int, step: _Step
    ) -> None:
        """A product begins when all warps of its warpgroup have issued it and it is its turn."""
        mark = flight.product
        assert mark is not None
        due = self.due[mark]
        if due.came + 1 == mark.needed:
            begin = max(start, due.time, self.free[TENSOR])
            end = begin + step.product
            self.free[TENSOR] = end
            self.ends[id(flight)] = end + model.PRODUCT_LATENCY
            self.busy[TENSOR].append((begin, end))
        self._comes(mark, start)


def _merged(times: list[tuple[float, float]]) -> list[Span]:
    """Spans of an engine that is busy at these times."""
    spans: list[Span] = []
    for start, end in sorted(times):
        if spans and start <= spans[-1].end + 0.5:
            spans[-1] = Span(spans[-1].start, max(spans[-1].end, end), BUSY, -1)
        else:
            spans.append(Span(start, end, BUSY, -1))
    return spans


def replay(program: Program, recorder: Recorder) -> list[Timed]:
    """The CTAs whose instructions were kept, each on an SM of its own."""
    return [Replay(program, recorder, trace).run() for trace in recorder.traces if trace.timed]
