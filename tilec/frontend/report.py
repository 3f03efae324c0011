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

    def error(
        self,
        code: str,
        message: str,
        labels: Sequence[Label],
        notes: Iterable[str] = (),
        help: str = "",
    ) -> None:
        """Record something wrong and go on."""
        found = Diagnostic(code, message, tuple(labels), tuple(notes), help)
        if found not in self.errors:
            self.errors.append(found)

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
