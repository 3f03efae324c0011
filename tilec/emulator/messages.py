"""Findings as diagnostics: where they are in the program and in its PTX, and what is missing."""

from __future__ import annotations

from collections.abc import Callable

from tilec.diagnostics import Diagnostic
from tilec.emulator.findings import FAULT, Finding
from tilec.emulator.parse import line_span
from tilec.source import SourceFile, Span

Place = tuple[str, int]
"""File and line of the program that a PTX text came from."""


def diagnostic_of(
    finding: Finding, ptx: SourceFile, at_source: Callable[[Place], Span | None]
) -> Diagnostic:
    """One finding; ``at_source`` gives the text of a source line if it is known."""
    labels, notes = [], []
    sides = [(finding.source, finding.line, "here")]
    if finding.other_line is not None:
        sides.append((finding.other_source, finding.other_line, "the other side"))
    for place, line, role in sides:
        span = at_source(place) if place is not None else None
        if span is not None:
            labels.append((span, role))
        elif place is not None:
            notes.append(f"line {line} of the PTX comes from {place[0]}:{place[1]}")
    labels += [(line_span(ptx, line), role) for _, line, role in sides]
    if finding.where:
        times = f", and {finding.count - 1} times more" if finding.count > 1 else ""
        notes.insert(0, f"in {finding.where}{times}")
    severity = "error" if finding.severity == FAULT else "warning"
    help = f"what is missing: {finding.missing}" if finding.missing else ""
    return Diagnostic(finding.kind, finding.message, labels, notes, help, severity=severity)
