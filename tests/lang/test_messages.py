"""Whole messages, as an author sees them; ``pytest --update`` accepts changed ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.diagnostics import Diagnostic, render, render_json
from tilec.source import SourceFile

_FOLDER = Path(__file__).parent / "messages"
_FILES = sorted(_FOLDER.glob("*.tk"))


@pytest.mark.parametrize("path", _FILES, ids=lambda p: p.stem)
def test_message_is_the_golden_one(
    path: Path,
    golden: Callable[[Path, str], None],
    errors_of: Callable[[SourceFile], list[Diagnostic]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(_FOLDER)  # what is imported is named as the author names it
    source = SourceFile(path.name, path.read_text())
    errors = errors_of(source)
    assert errors
    golden(path.with_suffix(".txt"), render(errors) + "\n")


def test_json_says_the_same_with_lines_and_columns(
    errors_of: Callable[[SourceFile], list[Diagnostic]],
) -> None:
    source = SourceFile("k.tk", (_FOLDER / "in-is-written.tk").read_text())
    (found,) = json.loads(render_json(errors_of(source)))
    assert found["code"] == "in-is-written"
    assert found["severity"] == "error"
    first = found["labels"][0]
    assert (first["file"], first["line"], first["column"]) == ("k.tk", 3, 9)
    assert (first["end_line"], first["end_column"]) == (3, 20)


def test_colour_changes_nothing_but_colour(
    errors_of: Callable[[SourceFile], list[Diagnostic]],
) -> None:
    import re

    source = SourceFile("k.tk", (_FOLDER / "carried-type-changes.tk").read_text())
    errors = errors_of(source)
    coloured = render(errors, color=True)
    assert coloured != render(errors)
    assert re.sub("\x1b\\[[0-9]+m", "", coloured) == render(errors)
