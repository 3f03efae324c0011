"""A timed CTA as rows to draw: what its roles did, when the stages of its rings were full, and when
its engines were busy.

Warps of a warpgroup that wait for the same phases are one role, drawn by its first warp. A role
that copies into shared memory for others is a producer, one that waits for such copies a consumer.
A stage is an mbarrier that copies arrive at: from the issue of the first copy to the end of the
phase it is being filled, from then on it is held, until the barrier that its filler waits for
before the next copy says that it is free.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from tilec.emulator.report.record import Mark, Trace
from tilec.emulator.report.replay import Span, Timed

FILLING, HELD = "filling", "held"
_WARPGROUP = 4
_Role = tuple[int, frozenset[Mark], bool]
"""A warpgroup, the phases of mbarriers that warps of it waited for, and whether they fill any."""


@dataclass(frozen=True)
class Row:
    """One row of a timeline."""

    name: str
    kind: str
    """role, stage or engine."""
    spans: tuple[Span, ...]

    def total(self) -> dict[str, float]:
        """Cycles by what was done."""
        found: Counter[str] = Counter()
        for span in self.spans:
            found[span.what] += span.end - span.start  # type: ignore[assignment]
        return dict(found)


@dataclass(frozen=True)
class Timeline:
    """One CTA."""

    index: tuple[int, int, int]
    cycles: float
    rows: tuple[Row, ...]
    pace: float | None
    """The median of the cycles from one stage that is given back to the next."""
    unfinished: bool

    def of(self, kind: str) -> list[Row]:
        """The rows of a kind."""
        return [row for row in self.rows if row.kind == kind]


def timeline(timed: Timed) -> Timeline:
    """The rows of a timed CTA."""
    stages = _stages(timed)
    engines = [Row(name, "engine", tuple(s)) for name, s in timed.engines.items() if s]
    rows = (*_roles(timed), *stages, *engines)
    return Timeline(timed.trace.index, timed.cycles, rows, _pace(stages), timed.unfinished)


def _roles(timed: Timed) -> list[Row]:
    groups: dict[_Role, list[int]] = defaultdict(list)
    for warp in sorted(timed.trace.warps):
        waits, fills_any = _awaited(timed.trace, [warp]), bool(_filled(timed.trace, [warp]))
        groups[warp // _WARPGROUP, frozenset(waits), fills_any].append(warp)
    fills = {first: _filled(timed.trace, warps) for (first, *_), warps in _by_first(groups)}
    rows = []
    for (first, last), warps in _by_first(groups):
        awaited = _awaited(timed.trace, warps)
        others = {mark for other, marks in fills.items() if other != first for mark in marks}
        for_others = any(
            fills[first] & _awaited(timed.trace, w) for (f, _), w in _by_first(groups) if f != first
        )
        what = "producer" if for_others else "consumer" if awaited & others else ""
        shown = f"warp {first}" if first == last else f"warps {first}-{last}"
        name = f"{what}, {shown}" if what else shown
        rows.append(Row(name, "role", tuple(timed.warps[first])))
    return rows


def _by_first(groups: dict[_Role, list[int]]) -> list[tuple[tuple[int, int], list[int]]]:
    """Groups with their first and last warps, in order."""
    return sorted(((warps[0], warps[-1]), warps) for warps in groups.values())


def _filled(trace: Trace, warps: list[int]) -> set[Mark]:
    flights = (f for w in warps for _, e in trace.warps[w] if e is not None for f in e.flights)
    return {f.fills for f in flights if f.fills is not None}


def _awaited(trace: Trace, warps: list[int]) -> set[Mark]:
    events = (e for w in warps for _, e in trace.warps[w] if e is not None)
    awaited = (e.awaits for e in events if e.awaits is not None)
    return {mark for mark in awaited if mark.kind == "mbarrier"}


def _stages(timed: Timed) -> list[Row]:
    filled = _filled(timed.trace, list(timed.trace.warps))
    phases: dict[int, list[Mark]] = defaultdict(list)
    for mark in sorted(filled & timed.marks.keys(), key=lambda m: m.round):
        phases[mark.place].append(mark)
    over = {
        (m.place, m.round): time for m, (_, time) in timed.marks.items() if m.kind == "mbarrier"
    }
    rows = []
    for number, (place, marks) in enumerate(sorted(phases.items())):
        spans: list[Span] = []
        for mark, following in zip(marks, [*marks[1:], None], strict=True):
            begin, end = timed.marks[mark]
            limit = timed.cycles if following is None else timed.marks[following][0]
            free = over.get(_freed_by(mark, following), limit)
            spans.append(Span(begin, end, FILLING, -1))
            if end < free:
                spans.append(Span(end, min(free, limit), HELD, -1))
        rows.append(Row(f"stage {number}, mbarrier at {place}", "stage", tuple(spans)))
    return rows


def _freed_by(mark: Mark, following: Mark | None) -> tuple[int, int]:
    """The phase that says that a stage is free after it was full; one that never is if unknown."""
    if following is not None and following.after is not None:
        by = following.after
        return (by.place, by.round) if by.place != mark.place else (-1, -1)
    if mark.after is None or mark.after.place == mark.place:
        return -1, -1
    return mark.after.place, mark.after.round + 1


def _pace(stages: list[Row]) -> float | None:
    ends = sorted(s.end for row in stages for s in row.spans if s.what == HELD)
    apart = [after - before for before, after in pairwise(ends)]
    return median(apart) if apart else None
