"""The report of a launch: sums by line and timelines, to be read as text, SVG or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilec.emulator.program import Program
from tilec.emulator.report.drawn import chart, table
from tilec.emulator.report.lines import LineSums, line_sums
from tilec.emulator.report.record import Recorder
from tilec.emulator.report.replay import replay
from tilec.emulator.report.svg import svg
from tilec.emulator.report.timeline import Row, Timeline, timeline
from tilec.source import SourceFile

VERSION = 1
"""Of the JSON; docs/emulator.md describes it."""


@dataclass(frozen=True)
class Report:
    """One launch."""

    kernel: str
    ctas: int
    """That began; the first few of them are timed."""
    room: int
    """How many of them fit on an SM by their threads and shared memory."""
    lines: tuple[LineSums, ...]
    timelines: tuple[Timeline, ...]

    @property
    def macs(self) -> dict[str, int]:
        """Multiplications with addition on tensor cores, by element types."""
        found: dict[str, int] = {}
        for line in self.lines:
            for types, count in line.macs.items():
                found[types] = found.get(types, 0) + count
        return found

    def text(self) -> str:
        """The table of lines, and the timeline of the first CTA."""
        parts = [f"{self.kernel}: {self.ctas} CTA{'s' * (self.ctas != 1)}", table(self.lines)]
        if self.timelines:
            parts.append(chart(self.timelines[0]))
            if self.room > 1 and self.ctas > 1:
                said = f"by threads and shared memory {self.room} CTAs fit on an SM"
                parts.append(f"{said}; each is timed alone on one")
            spans = ", ".join(f"{t.index}: {t.cycles:.0f}" for t in self.timelines[1:])
            parts += [f"other CTAs that were timed: {spans}"] if spans else []
        return "\n\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return {
            "kernel": self.kernel,
            "ctas": self.ctas,
            "room": self.room,
            "macs": self.macs,
            "lines": [_line(line) for line in self.lines],
            "timelines": [_timeline(each) for each in self.timelines],
        }


def report_of(program: Program, ptx: SourceFile, recorder: Recorder) -> Report:
    """The report of what a recorder saw."""
    timed = replay(program, recorder)
    lines = line_sums(program, ptx, recorder, timed)
    timelines = tuple(timeline(each) for each in timed)
    return Report(program.name, len(recorder.traces), recorder.room, tuple(lines), timelines)


def as_text(reports: Sequence[Report]) -> str:
    """All launches, one after the other."""
    return "\n\n".join(report.text() for report in reports) or "nothing was launched"


def as_svg(reports: Sequence[Report]) -> str:
    """The timeline of each launch's first CTA."""
    return svg([(f"{r.kernel}, CTA {r.timelines[0].index}", r.timelines[0])
                for r in reports if r.timelines])  # fmt: skip


def as_json(reports: Sequence[Report]) -> dict[str, Any]:
    """All launches."""
    return {"version": VERSION, "launches": [report.as_json() for report in reports]}


def _line(line: LineSums) -> dict[str, Any]:
    return {
        "file": line.file,
        "line": line.line,
        "text": line.text,
        "issued": line.issued,
        "read": dict(line.read),
        "written": dict(line.written),
        "bank_conflicts": line.conflicts,
        "sectors": line.sectors,
        "wasted_sectors": line.wasted,
        "macs": dict(line.macs),
        "working_cycles": line.works,
        "waiting_cycles": line.waits,
    }


def _timeline(each: Timeline) -> dict[str, Any]:
    return {
        "cta": list(each.index),
        "cycles": each.cycles,
        "pace": each.pace,
        "unfinished": each.unfinished,
        "roles": [_row(row) for row in each.of("role")],
        "stages": [_row(row) for row in each.of("stage")],
        "engines": [_row(row) for row in each.of("engine")],
    }


def _row(row: Row) -> dict[str, Any]:
    spans = [[s.start, s.end, s.what] for s in row.spans]
    return {"name": row.name, "total": row.total(), "spans": spans}
