"""Everything tilec says about a program, in one form, with one renderer.

A ``Diagnostic`` has a code that names the trouble (each has a section in ``docs/errors.md``), one
short message that says what is wrong, labels that say what was found where, notes that say why,
and a help that says what to type. A stage collects all its diagnostics and raises them together
as one ``DiagnosticError``. Bugs of the compiler never travel as diagnostics.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tilec.source import SourceFile, Span

Label = tuple[Span, str]
"""A place and what was found there."""

_COLORS = {"error": "31", "warning": "33", "remark": "36", "bar": "34", "bold": "1"}


@dataclass(frozen=True)
class Diagnostic:
    """One finding; the first label is where it is reported."""

    code: str
    message: str
    labels: Sequence[Label] = ()
    notes: Sequence[str] = ()
    help: str = ""
    severity: str = field(default="error", kw_only=True)

    @property
    def span(self) -> Span | None:
        """The place at which this is reported, if it has one."""
        return self.labels[0][0] if self.labels else None

    def to_json(self) -> dict[str, object]:
        """A plain dictionary with 1-based lines and columns."""
        return {
            "severity": self.severity,
            "code": self.code,
            "message": self.message,
            "labels": [_label_json(span, text) for span, text in self.labels],
            "notes": list(self.notes),
            "help": self.help,
        }


class DiagnosticError(Exception):
    """One or more diagnostics that stop the compilation."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        many = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        super().__init__(many)
        self.diagnostics: tuple[Diagnostic, ...] = many

    def __str__(self) -> str:
        return render(self.diagnostics)


def require_utf8(source: SourceFile) -> None:
    """Refuse a file whose bytes are no UTF-8, at the first of them."""
    if source.undecoded is None:
        return
    place, byte = source.undecoded
    raise DiagnosticError(
        Diagnostic(
            "not-utf-8",
            f"{source.name} is not encoded as UTF-8",
            [(Span(source, place, place + 1), f"this is the byte 0x{byte:02X}")],
            notes=["everything before it is; other encodings, such as Latin-1, are not read"],
            help="save the file as UTF-8",
        )
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A help text naming the closest known word, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else ""


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """All diagnostics as a JSON array."""
    return json.dumps([d.to_json() for d in diagnostics], indent=1)


def render(diagnostics: Iterable[Diagnostic], color: bool = False) -> str:
    """All diagnostics as text with carets, in the order given."""
    return "\n\n".join(_render_one(d, color) for d in diagnostics)


def _label_json(span: Span, text: str) -> dict[str, object]:
    return {
        "file": span.file.name,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
        "text": text,
    }


def _render_one(diagnostic: Diagnostic, color: bool) -> str:
    def paint(text: str, style: str) -> str:
        return f"\x1b[{_COLORS[style]}m{text}\x1b[0m" if color else text

    head = paint(f"{diagnostic.severity}[{diagnostic.code}]", diagnostic.severity)
    lines = [f"{head}: {paint(diagnostic.message, 'bold')}"]
    width = max([len(str(span.line)) for span, _ in diagnostic.labels], default=1)
    margin = " " * width
    bar = paint("|", "bar")
    for file, labels in _by_file(diagnostic.labels):
        primary = labels[0][0]
        lines.append(f"{margin}{paint('-->', 'bar')} {primary}")
        lines.append(f"{margin} {bar}")
        shown = 0
        for number in sorted({span.line for span, _ in labels}):
            if shown and number > shown + 1:
                lines.append(paint("...", "bar"))
            shown = number
            text = file.line(number)
            lines.append(f"{number:>{width}} {bar} {text.expandtabs(4)}".rstrip())
            for span, note in labels:
                if span.line == number:
                    mark = "^" if span is diagnostic.labels[0][0] else "-"
                    row = _underline(span, text, mark, note)
                    lines.append(f"{margin} {bar} {paint(row, diagnostic.severity)}")
        if diagnostic.notes or diagnostic.help:
            lines.append(f"{margin} {bar}")
    lines += [_remark(margin, "note", note) for note in diagnostic.notes]
    if diagnostic.help:
        lines.append(_remark(margin, "help", diagnostic.help))
    return "\n".join(lines)


def _remark(margin: str, kind: str, text: str) -> str:
    head = f"{margin} = {kind}: "
    return head + text.replace("\n", "\n" + " " * len(head))


def _by_file(labels: Sequence[Label]) -> list[tuple[SourceFile, list[Label]]]:
    groups: dict[str, tuple[SourceFile, list[Label]]] = {}
    for span, text in labels:
        groups.setdefault(span.file.name, (span.file, []))[1].append((span, text))
    return list(groups.values())


def _underline(span: Span, text: str, mark: str, note: str) -> str:
    """Carets under the part of ``span`` that lies on its first line, then the note."""
    first = span.column - 1
    last = span.end_column - 1 if span.end_line == span.line else len(text)
    before = len(text[:first].expandtabs(4))
    length = max(1, len(text[:last].expandtabs(4)) - before)
    return f"{' ' * before}{mark * length} {note}".rstrip()
