"""Each faulty line of ``errors/*.tk`` says in a comment what is found there, and nothing else is.

The comment is ``# error: code: part of the message``; the line is that of the first label.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.diagnostics import Diagnostic
from tilec.source import SourceFile

_FILES = sorted((Path(__file__).parent / "errors").glob("*.tk"))
_EXPECTED = re.compile(r"# error: ([a-z0-9-]+)(?:: (.*))?$")

ErrorsOf = Callable[[SourceFile], list[Diagnostic]]


def expected_errors(text: str) -> list[tuple[int, str, str]]:
    """Line, code and part of the message for each comment."""
    return [
        (number, found[1], (found[2] or "").strip())
        for number, line in enumerate(text.splitlines(), 1)
        if (found := _EXPECTED.search(line))
    ]


def unmatched(source: SourceFile, errors: list[Diagnostic]) -> list[str]:
    """What was expected and not found, and what was found and not expected."""
    left = list(errors)
    wrong: list[str] = []
    for line, code, part in expected_errors(source.text):
        hit = next(
            (
                e
                for e in left
                if e.span and e.span.line == line and e.code == code and part in e.message
            ),
            None,
        )
        if hit is None:
            wrong.append(f"line {line}: expected {code}: {part}")
        else:
            left.remove(hit)
    return wrong + [
        f"line {e.span.line if e.span else 0}: found {e.code}: {e.message}" for e in left
    ]


@pytest.mark.parametrize("path", _FILES, ids=lambda p: p.stem)
def test_every_error_is_reported_on_its_line_and_nothing_else(
    path: Path, errors_of: ErrorsOf
) -> None:
    source = SourceFile.read(path)
    assert expected_errors(source.text)
    assert unmatched(source, errors_of(source)) == []


def test_a_missing_or_surplus_error_would_be_noticed(errors_of: ErrorsOf) -> None:
    good = SourceFile("good.tk", "kernel k(a: f32[M]):  # error: syntax: what\n    x = y\n")
    assert unmatched(good, errors_of(good)) == [
        "line 1: expected syntax: what",
        "line 2: found unknown-name: `y` is not known here",
    ]
