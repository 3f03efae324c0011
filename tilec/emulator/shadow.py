"""Races in memory: who wrote and who read each piece of it last, and whether an order says so.

Memory is watched in granules of two bytes. Of each granule the last write is kept (a warp and its
epoch, or a piece of work in flight), for each warp its last read, and the work in flight that
reads it. An access that no chain of synchronisation orders after a conflicting one is a finding
with both parties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.emulator.order import Box, Order, order_of
from tilec.emulator.program import Instruction

GRANULE = 2
Index = npt.NDArray[np.int64]
Changed = Callable[[], Index]
_EVER = 1 << 40
_NOBODY: Mapping[int, Box] = {}


@dataclass(eq=False)
class Party:
    """A piece of work in flight, as memory sees it."""

    at: Instruction
    bits: int
    """All must be known to a warp before it may touch what the work touches."""
    start: Box
    """What its issuer knew."""
    what: str = "the transfer"
    waits: str = "a wait for it"
    reads: list[Index] = field(default_factory=list)
    number: int = -1
    issued: int = 0
    """When it was issued, in accesses of the shadow."""
    signals: Any = None
    """The mbarrier that it fills, and in which phase."""
    phase: int = 0


Visitor = tuple[int, int]
"""A CTA's number and one of its warps."""
Others = Mapping[int, Box]


def _knows(others: Others, visitor: Visitor, epoch: Any) -> Any:
    """Whether what a warp of another CTA did up to an epoch comes before."""
    told = others.get(visitor[0])
    return epoch <= (0 if told is None else told.clock[visitor[1]])


class Shadow:
    """One memory: the shared memory of a CTA."""

    def __init__(self, bytes: int, order: Order) -> None:
        """Nothing has been touched."""
        count = -(-bytes // GRANULE)
        self.order = order
        self.writer = np.full(count, -1, np.int16)
        """The warp that wrote last, -2 for work in flight, -3 for a visitor, -1 for nobody."""
        self.epoch = np.zeros(count, np.int32)
        """Of the writing warp; the work's number if it was work."""
        self.write_at = np.zeros(count, np.int32)
        self.read_epoch = np.zeros((order.warps, count), np.int32)
        self.read_at = np.zeros((order.warps, count), np.int32)
        self.atomic = np.zeros(count, np.bool_)
        """Whether the last write was an atomic: atomics do not race with one another."""
        self.write_time = np.zeros(count, np.int32)
        self.read_time = np.zeros((order.warps, count), np.int32)
        self.time = 0
        """Accesses so far."""
        self.visitors: list[tuple[Visitor, int]] = []
        """Warps of other CTAs that wrote here, each with its epoch then."""
        self.visits: dict[Visitor, tuple[Any, Any]] = {}
        """For each warp of another CTA that read here: its epochs, and the lines."""
        self.works: list[Party] = []
        self.readers: list[Party] = []
        """Work that reads and that some warp does not know to be finished."""

    # --- threads -------------------------------------------------------------------------------

    def read(self, warp: int, granules: Index, line: int) -> tuple[Any, str] | None:
        """A warp reads; the other party and its name if that is a race."""
        others = self.order.others[warp]
        found = self._writes_before(
            granules, self.order.clock[warp], self.order.known[warp], others=others
        )
        self.read_epoch[warp, granules] = self.order.clock[warp, warp]
        self.read_at[warp, granules] = line
        self.time += 1
        self.read_time[warp, granules] = self.time
        return found

    def write(
        self,
        warp: int,
        granules: Index,
        line: int,
        atomic: bool = False,
        changed: Changed | None = None,
    ) -> tuple[Any, str] | None:
        """A warp writes; the other party and its name if that is a race.

        Two writes of the same bytes do not race: ``changed`` gives the granules where others stood.
        """
        clock, known = self.order.clock[warp], self.order.known[warp]
        others = self.order.others[warp]
        plain = granules[~self.atomic[granules]] if atomic else granules
        found = self._writes_before(plain, clock, known, others=others)
        if found is not None and found[1] == "write" and changed is not None:
            found = self._writes_before(changed(), clock, known, others=others)
        found = (
            found
            or self._reads_before(granules, clock, skip=warp, others=others)
            or self._work_before(granules, known)
        )
        self.writer[granules] = warp
        self.atomic[granules] = atomic
        self.epoch[granules] = self.order.clock[warp, warp]
        self.write_at[granules] = line
        self.time += 1
        self.write_time[granules] = self.time
        return found

    # --- other CTAs of the cluster ---------------------------------------------------------------

    def visit(
        self, visitor: Visitor, epoch: int, knows: Box, granules: Index, line: int, *, writes: bool
    ) -> tuple[Any, str] | None:
        """A warp of another CTA reads or writes; ``knows`` is in the frame of this one."""
        found = self._writes_before(
            granules, knows.clock, knows.known, others=knows.others, me=visitor
        )
        if not writes:
            if visitor not in self.visits:
                empty = np.zeros((2, len(self.writer)), np.int32)
                self.visits[visitor] = (empty[0], empty[1])
            epochs, lines = self.visits[visitor]
            epochs[granules], lines[granules] = epoch, line
            return found
        found = (
            found
            or self._reads_before(granules, knows.clock, -1, others=knows.others, me=visitor)
            or self._work_before(granules, knows.known)
        )
        self.writer[granules], self.atomic[granules] = -3, False
        self.epoch[granules] = len(self.visitors)
        self.write_at[granules] = line
        self.visitors.append((visitor, epoch))
        return found

    # --- work in flight --------------------------------------------------------------------------

    def enter(self, party: Party) -> None:
        """A piece of work gets a number."""
        party.number, party.issued = len(self.works), self.time
        self.works.append(party)

    def work_reads(self, party: Party, granules: Index) -> tuple[Any, str] | None:
        """Work reads; generic writes must have gone through a proxy fence."""
        start = party.start
        found = self._writes_before(
            granules, start.proxy, start.known | party.bits, party.issued, start.others
        )
        if found is not None and found[1] == "write":
            unfenced = self._writes_before(
                granules, start.clock, start.known | party.bits, others=start.others
            )
            if unfenced is None or unfenced[1] != "write":
                found = (found[0], "fence")
        party.reads.append(granules)
        if party not in self.readers:
            self.readers.append(party)
        return found

    def work_writes(self, party: Party, granules: Index) -> tuple[Any, str] | None:
        """Work writes; whoever used the memory before must have come to an end."""
        start = party.start
        found = (
            self._writes_before(
                granules, start.clock, start.known | party.bits, party.issued, start.others
            )
            or self._reads_before(
                granules, start.clock, skip=-1, since=party.issued, others=start.others
            )
            or self._work_before(granules, start.known | party.bits)
        )
        self.writer[granules] = -2
        self.atomic[granules] = False
        self.epoch[granules] = party.number
        self.write_at[granules] = party.at.line
        return found

    # --- questions -----------------------------------------------------------------------------

    def _writes_before(
        self,
        granules: Index,
        clock: Any,
        known: int,
        since: int = _EVER,
        others: Others = _NOBODY,
        me: Visitor | None = None,
    ) -> tuple[Any, str] | None:
        writer = self.writer[granules]
        for place in granules[writer == -3] if self.visitors else ():
            visitor, epoch = self.visitors[self.epoch[place]]
            if visitor != me and not _knows(others, visitor, epoch):
                return int(self.write_at[place]), "write"
        by_warp = writer >= 0
        if by_warp.any():
            late = by_warp & (self.epoch[granules] > clock[np.maximum(writer, 0)])
            if late.any():
                place = int(granules[np.argmax(late)])
                if self.write_time[place] > since:
                    return (int(self.write_at[place]), int(self.writer[place])), "writes early"
                return int(self.write_at[place]), "write"
        by_work = writer == -2
        if by_work.any():
            for number in np.unique(self.epoch[granules[by_work]]).tolist():
                work = self.works[number]
                if work.bits & ~known:
                    return work, "work"
        return None

    def _reads_before(
        self,
        granules: Index,
        clock: Any,
        skip: int,
        since: int = _EVER,
        others: Others = _NOBODY,
        me: Visitor | None = None,
    ) -> tuple[Any, str] | None:
        for visitor, (visited, lines) in self.visits.items():
            unknown = ~np.asarray(_knows(others, visitor, visited[granules]))
            if visitor != me and unknown.any():
                return int(lines[granules[np.argmax(unknown)]]), "read"
        epochs = self.read_epoch[:, granules]
        late = epochs > np.asarray(clock)[:, None]
        if skip >= 0:
            late[skip] = False
        if late.any():
            warp, place = np.unravel_index(int(np.argmax(late)), late.shape)
            line = int(self.read_at[warp, granules[place]])
            if self.read_time[warp, granules[place]] > since:
                return (line, int(warp)), "reads early"
            return line, "read"
        return None

    def _work_before(self, granules: Index, known: int) -> tuple[Any, str] | None:
        everyone = ~0
        for warp in range(self.order.warps):
            everyone &= self.order.known[warp]
        self.readers = [p for p in self.readers if p.bits & ~everyone]
        touched: npt.NDArray[np.bool_] | None = None
        for party in self.readers:
            if not party.bits & ~known:
                continue
            if touched is None:
                touched = np.zeros(len(self.writer), np.bool_)
                touched[granules] = True
            if any(touched[each].any() for each in party.reads):
                return party, "work-read"
        return None


def shadow_of(cta: Any) -> Shadow:
    """What is known of a CTA's shared memory."""
    found: Shadow = cta.keep("shadow", lambda c: Shadow(len(c.shared), order_of(c)))
    return found


class Races:
    """Watches the accesses of threads to shared memory."""

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
        """Check each warp's part of an access."""
        if space != "shared":
            return
        shadow = shadow_of(g.cta)
        step = np.arange(0, max(width, GRANULE), GRANULE)
        for number, warp, picked in g.by_warp(offsets, lanes):
            granules = ((picked[:, None] + step) // GRANULE).reshape(-1)
            if writes:
                atomic = at.parts[0] in ("atom", "red")
                changed = None if rows is None else _changes(g, number, offsets, rows, lanes)
                found = shadow.write(warp, granules, at.line, atomic, changed)
            else:
                found = shadow.read(warp, granules, at.line)
            if found is not None:
                does = "writes" if writes else "reads"
                tell(g.cta, at, found, does, f"warp {warp}", (warp,))


def _changes(g: Any, number: int, offsets: Any, rows: Any, lanes: Any) -> Changed:
    """The granules in which a warp's bytes differ from what stood there when its turn came."""

    def granules() -> Index:
        index = offsets[:, None] + np.arange(rows.shape[1])
        before, mine = slice(0, 32 * number), slice(32 * number, 32 * number + 32)
        there = g.cta.shared.copy()
        there[index[before][lanes[before]]] = rows[before][lanes[before]]
        of_warp, told = index[mine][lanes[mine]], rows[mine][lanes[mine]]
        found: Index = np.unique(of_warp[there[of_warp] != told] // GRANULE)
        return found

    return granules


_MISSING = {
    "write": "a barrier between that write and this access",
    "read": "a barrier between that read and this write",
    "fence": "a fence.proxy.async between the write and the async operation, before the barrier",
}


def tell(
    cta: Any,
    at: Instruction,
    found: tuple[Any, str],
    does: str,
    who: str,
    warps: tuple[int, ...] = (),
    party: Party | None = None,
) -> None:
    """Record a race; ``warps`` issued the access, or ``party`` made it."""
    other, kind = found
    machine = cta.machine
    if kind in ("reads early", "writes early") and party is not None:
        # A thread was there first, after the issue of the work: the fault is the thread's.
        line, warp = other
        toucher = next(i for i in machine.program.instructions if i.line == line)
        verb = kind.partition(" ")[0]
        kept = "work" if does == "writes" else "work-read"
        tell(cta, toucher, (party, kept), verb, f"warp {warp}", (warp,))
        return
    if isinstance(other, Party) and _waited_too_early(cta, at, other, who, warps):
        return
    if isinstance(other, Party):
        machine.findings.add(
            "unfinished-work",
            at,
            f"{who} {does} shared memory that {other.what} of line {other.at.line} "
            f"{'reads' if kind == 'work-read' else 'writes'}, and does not know that it is done",
            other=other.at,
            missing=other.waits,
            where=f"CTA {cta.index}",
        )
        return
    before = next((i for i in machine.program.instructions if i.line == other), None)
    name = {"fence": "missing-proxy-fence"}.get(kind, "data-race")
    machine.findings.add(
        name,
        at,
        f"{who} {does} shared memory that line {other} {'reads' if kind == 'read' else 'writes'}, "
        + ("and no proxy fence lies between" if kind == "fence" else "in no order"),
        other=before,
        missing=_MISSING[kind],
        where=f"CTA {cta.index}",
    )


def _waited_too_early(
    cta: Any, at: Instruction, other: Party, who: str, warps: tuple[int, ...]
) -> bool:
    """Whether a warp has waited for the mbarrier that the work fills, but for an earlier phase."""
    passed = {} if other.signals is None else other.signals.passed
    early = [w for w in warps if w in passed and passed[w][0] < other.phase]
    if not early:
        return False
    phase, wait = passed[early[0]]
    cta.machine.findings.add(
        "wrong-phase",
        at,
        f"{who} uses what {other.what} of line {other.at.line} brings in phase {other.phase} of "
        f"the mbarrier at {other.signals.address}; at line {wait.line} warp {early[0]} waited for "
        + (f"phase {phase}" if phase >= 0 else "the phase before the first, which is over at once"),
        other=wait,
        missing=f"a wait for the parity {other.phase & 1} between the two",
        where=f"CTA {cta.index}",
    )
    return True
