"""A report as text: a table of lines, and timelines of one character a slice of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tilec.emulator.report.lines import SPACES, LineSums
from tilec.emulator.report.replay import BUSY
from tilec.emulator.report.timeline import FILLING, HELD, Row, Timeline

LETTERS = {
    "works": "#", "operands": "o", "unit": "u", "mbarrier": "m", "barrier": "b",
    "products": "p", "copies": "c", "fence": "f", FILLING: "-", HELD: "=", BUSY: "#",
}  # fmt: skip
_SAYS = {
    "works": "issues", "operands": "waits for its operands", "unit": "waits for its turn",
    "mbarrier": "for an mbarrier", "barrier": "for a named barrier", "products": "for products",
    "copies": "for copies", "fence": "for a fence", FILLING: "a stage being filled",
    HELD: "a stage that is full",
}  # fmt: skip
_TEXT = 44
"""Characters of a line's text that are shown."""
_MOST = 60
"""Lines that a table shows at most."""


def table(lines: Sequence[LineSums]) -> str:
    """What each line did; columns of which nothing is said are left out.

    Of a long text, such as PTX without a program, only the lines that time goes into are shown.
    """
    spent = sum(line.works + line.waits for line in lines) or 1.0
    kept = sorted(range(len(lines)), key=lambda n: -lines[n].works - lines[n].waits)[:_MOST]
    left_out, lines = len(lines) - len(kept), [lines[n] for n in sorted(kept)]
    columns: list[tuple[str, list[str]]] = [
        ("line", [f"{line.file}:{line.line}" for line in lines]),
        ("issued", [str(line.issued) for line in lines]),
        ("works %", [_share(line.works / spent) for line in lines]),
        ("waits %", [_share(line.waits / spent) for line in lines]),
    ]
    for space in SPACES:
        columns.append((f"{space} read", [_bytes(line.read[space]) for line in lines]))
        columns.append((f"{space} written", [_bytes(line.written[space]) for line in lines]))
    columns.append(("conflicts", [_number(line.conflicts) for line in lines]))
    columns.append(("wasted sectors", [_of(line.wasted, line.sectors) for line in lines]))
    columns.append(("MACs", [_macs(line.macs) for line in lines]))
    shown = [(head, cells) for head, cells in columns if any(cells)]
    widths = [max(len(head), *(len(c) for c in cells)) for head, cells in shown]
    rows = [[head for head, _ in shown], *zip(*(cells for _, cells in shown), strict=True)]
    texts = ["", *(line.text for line in lines)]
    made = []
    for cells, text in zip(rows, texts, strict=True):
        first = cells[0].ljust(widths[0])
        rest = [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
        made.append("  ".join([first, *rest, text[:_TEXT]]).rstrip())
    if left_out:
        made.append(f"{left_out} lines that take less time are left out; JSON has them all")
    return "\n".join(made)


def chart(line: Timeline, width: int = 96) -> str:
    """The rows of a timeline, one character for each of ``width`` slices of time."""
    cycles = max(line.cycles, 1.0)
    names = max(len(row.name) for row in line.rows) if line.rows else 0
    made = [f"CTA {line.index}: {line.cycles:.0f} cycles, {cycles / width:.3g} a character"]
    used: dict[str, None] = {}
    for row in line.rows:
        made.append(f"{row.name.ljust(names)} |{_slices(row, cycles, width, used)}|")
    said = [f"{LETTERS[w]} {_SAYS[w]}" for w in LETTERS if w in used and w in _SAYS]
    if said:
        made.append("  ".join(said))
    for row in line.of("role"):
        made.append(f"{row.name.ljust(names)}  {_total(row)}")
    for row in line.of("engine"):
        busy = sum(row.total().values()) / cycles
        made.append(f"{row.name.ljust(names)}  busy {100 * busy:.0f}% of the time")
    if line.pace is not None:
        made.append(f"a stage is given back every {line.pace:.0f} cycles (median)")
    if line.unfinished:
        made.append("the run ended before all warps did")
    return "\n".join(made)


def _slices(row: Row, cycles: float, width: int, used: dict[str, None]) -> str:
    """Of each slice what took most of it; a blank where that is nothing."""
    each = cycles / width
    parts: list[Counter[str]] = [Counter() for _ in range(width)]
    for span in row.spans:
        first, last = int(span.start / each), min(width - 1, int(span.end / each))
        for number in range(first, last + 1):
            inside = min(span.end, (number + 1) * each) - max(span.start, number * each)
            parts[number][span.what] += inside  # type: ignore[assignment]
    found = ""
    for part in parts:
        what, most = max(part.items(), key=lambda item: item[1], default=("", 0.0))
        if not what or most < each - sum(part.values()):
            found += " "
            continue
        used[what] = None
        found += LETTERS[what]
    return found


def _total(row: Row) -> str:
    total = row.total()
    end = row.spans[-1].end if row.spans else 0.0
    parts = [f"{name} {total[name]:.0f}" for name in LETTERS if name in total]
    return f"ends at {end:.0f}: {', '.join(parts)}"


def _share(part: float) -> str:
    return f"{100 * part:.1f}"


def _number(value: int) -> str:
    return str(value) if value else ""


def _bytes(value: int) -> str:
    return f"{value} B" if value else ""


def _of(part: int, whole: int) -> str:
    return f"{part}/{whole}" if part else ""


def _macs(macs: Counter[str]) -> str:
    return ", ".join(f"{count} {types}" for types, count in sorted(macs.items()))
