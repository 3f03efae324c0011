"""What the tests of the language share: checking a text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilec.diagnostics import Diagnostic, DiagnosticError
from tilec.frontend.check import check
from tilec.frontend.parse import parse
from tilec.source import SourceFile


@pytest.fixture(scope="session")
def errors_of() -> Callable[[SourceFile], list[Diagnostic]]:
    """All diagnostics of parsing and checking a text, those of the checker only if it parses."""

    def find(source: SourceFile) -> list[Diagnostic]:
        try:
            check(parse(source), {})
        except DiagnosticError as error:
            return list(error.diagnostics)
        return []

    return find
