"""Where a stage collects what it finds wrong, and the way out of the expression that is wrong.

``fail`` records a diagnostic and leaves the statement at hand; the checker goes on with the next.
``Abandoned`` never leaves the frontend.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from tilec.diagnostics import Diagnostic, Label
from tilec.source import Span


class Abandoned(Exception):
    """The statement at hand cannot be understood; what is wrong has been recorded."""


class Report:
    """The diagnostics of one run of the checker, in the order found, each once."""

    def __init__(self) -> None:
        self.errors: list[Diagnostic] = []
        self.context: list[Label] = []
        """The calls and imports under way, outermost first; errors inside them show these too."""

    def error(
        self,
        code: str,
        message: str,
        labels: Sequence[Label],
        notes: Iterable[str] = (),
        help: str = "",
    ) -> None:
        """Record something wrong and go on."""
        shown = {span for span, _ in labels}
        around = [label for label in reversed(self.context) if label[0] not in shown]
        found = Diagnostic(code, message, (*labels, *around), tuple(notes), help)
        if not any(self._is_told(found, known) for known in self.errors):
            self.errors.append(found)

    def _is_told(self, found: Diagnostic, known: Diagnostic) -> bool:
        """Whether the same has been said; of a function that is called often, by any call."""
        if not self.context:
            return found == known
        return (found.code, found.message, found.span) == (known.code, known.message, known.span)

    def fail(
        self,
        code: str,
        message: str,
        labels: Sequence[Label],
        notes: Iterable[str] = (),
        help: str = "",
    ) -> NoReturn:
        """Record something wrong and abandon the statement."""
        self.error(code, message, labels, notes, help)
        raise Abandoned

    def not_yet(self, construct: str, span: Span, instead: str) -> NoReturn:
        """Refuse what the language has and this version has not."""
        self.fail(
            "not-in-this-version",
            f"{construct} cannot be compiled by this version",
            [(span, "used here")],
            help=instead,
        )
