"""Each faulty program or call gets the message that stands beside it, and no class is small.

``pytest tests/faults --update`` accepts changed messages; read them as the author of the kernel.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.fault import CLASSES, FOLDER, all_faults, found_in
from tilec.diagnostics import render, render_json

_FAULTS = all_faults()
_ERRORS_PAGE = FOLDER.parents[1] / "docs" / "errors.md"
_OF_PYTHON = re.compile(
    r"Traceback|\.py\b|NoneType|<class|object at 0x|\b[A-Z]\w+(Error|Exception)\b|\btilec\.\w+\."
)
_WITHOUT_HELP = {"assert-fails", "static-assert-fails"}
"""What to type is in the message, which is the author's own."""


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", _FAULTS, ids=_name)
def test_message_is_the_golden_one(
    path: Path, golden: Callable[[Path, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)  # what is imported is named as the author names it
    errors = found_in(path)
    assert errors
    sections = set(re.findall(r"^## (\S+)$", _ERRORS_PAGE.read_text(), re.MULTILINE))
    for error in errors:
        assert error.code in sections
        assert error.span is not None, "nothing says where"
        assert error.help or error.code in _WITHOUT_HELP, "nothing says what to type"
    text = render(errors)
    assert not _OF_PYTHON.search(text)
    golden(path.with_suffix(".txt"), text + "\n")


def test_every_class_has_six_faults_and_all_have_a_hundred_and_twenty() -> None:
    counts = Counter(path.parent.name for path in _FAULTS)
    assert set(counts) == set(CLASSES)
    assert {name: count for name, count in counts.items() if count < 6} == {}
    assert len(_FAULTS) >= 120


def test_every_file_belongs_to_a_fault() -> None:
    known = {path.with_suffix(end) for path in _FAULTS for end in (".tk", ".txt", ".toml")}
    strays = [p for p in FOLDER.glob("*/*.*") if p not in known and p.suffix != ".pyc"]
    assert strays == []


def test_json_says_the_same_with_lines_and_columns() -> None:
    (found,) = json.loads(render_json(found_in(FOLDER / "structure" / "in-is-written.tk")))
    assert found["code"] == "in-is-written"
    assert found["severity"] == "error"
    first = found["labels"][0]
    assert (first["file"], first["line"], first["column"]) == ("in-is-written.tk", 3, 9)
    assert (first["end_line"], first["end_column"]) == (3, 20)


def test_colour_changes_nothing_but_colour() -> None:
    errors = found_in(FOLDER / "carried-types" / "carried-type-changes.tk")
    coloured = render(errors, color=True)
    assert coloured != render(errors)
    assert re.sub("\x1b\\[[0-9]+m", "", coloured) == render(errors)
