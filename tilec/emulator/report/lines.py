"""What a run did by line of the program: a recorder's sums, brought to their lines.

A line is one of the program that the PTX came from, where the text says so with `.loc`, and else a
line of the PTX itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilec.emulator.program import Program
from tilec.emulator.report.record import Recorder
from tilec.emulator.report.replay import Timed
from tilec.source import SourceFile

SPACES = ("global", "tensor map", "shared")
_COMMENT = re.compile(r"^\s*// (\S+):(\d+): (.*)$", re.MULTILINE)


@dataclass
class LineSums:
    """One line: what its instructions did in all CTAs together."""

    file: str
    line: int
    text: str
    issued: int = 0
    """Instructions of warps; one that its guard turns off counts."""
    read: Counter[str] = field(default_factory=Counter)
    """Bytes by space."""
    written: Counter[str] = field(default_factory=Counter)
    conflicts: int = 0
    """Turns of shared memory that conflicts of banks cost."""
    sectors: int = 0
    wasted: int = 0
    """Sectors of global memory beyond those that the bytes fill."""
    macs: Counter[str] = field(default_factory=Counter)
    works: float = 0
    """Cycles of warps of the CTAs that were timed, and those that they waited."""
    waits: float = 0


def line_sums(
    program: Program, ptx: SourceFile, recorder: Recorder, timed: Iterable[Timed]
) -> list[LineSums]:
    """All lines that anything was done for, in the order of their text."""
    places = _places(program, ptx)
    found: dict[tuple[str, int], LineSums] = {}
    texts = {(f, int(n)): text for f, n, text in _COMMENT.findall(ptx.text)}
    rows = ptx.text.splitlines()
    for number, sums in enumerate(recorder.sums):
        if not sums.issued:
            continue
        file, line = place = places[number]
        if place not in found:
            own = rows[line - 1].strip() if file == ptx.name else ""
            found[place] = LineSums(file, line, texts.get(place, own))
        into = found[place]
        into.issued += sums.issued
        for (space, writes), count in sums.bytes.items():
            (into.written if writes else into.read)[space] += count
        into.conflicts += sums.conflicts
        into.sectors += sums.sectors
        into.wasted += sums.wasted
        into.macs += sums.macs
    for each in timed:
        for (number, waits), cycles in each.spent.items():
            if waits:
                found[places[number]].waits += cycles
            else:
                found[places[number]].works += cycles
    return [found[place] for place in sorted(found)]


def _places(program: Program, ptx: SourceFile) -> list[tuple[str, int]]:
    """File and line of each instruction; one of the PTX where nothing says where it came from."""
    found = []
    for at in program.instructions:
        if at.source is None:
            found.append((ptx.name, at.line))
        else:
            name = program.files.get(at.source.file, f"file {at.source.file}")
            found.append((name.rpartition("/")[2], at.source.line))
    return found
