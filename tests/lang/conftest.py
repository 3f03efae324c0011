"""What the tests of the language share: checking a text, and accepting changed golden files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.diagnostics import Diagnostic, DiagnosticError
from tilec.frontend.check import check
from tilec.frontend.parse import parse
from tilec.source import SourceFile


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update`` rewrites golden files; another conftest may have added it."""
    with contextlib.suppress(ValueError):
        parser.addoption("--update", action="store_true", help="rewrite golden files")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--update", default=False))


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


@pytest.fixture(scope="session")
def root() -> Path:
    """Top of the checkout."""
    return Path(__file__).resolve().parents[2]
