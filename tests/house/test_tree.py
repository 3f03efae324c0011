"""Files stay small, and what was meant for later or for one machine only is not committed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDERS = ("tilec", "tests", "benchmarks", "docs", "examples", "grammar")
ENDINGS = {".py", ".md", ".tk", ".tir", ".lark", ".toml", ".json", ".txt", ".ptx"}
MOST_LINES = 600
# Put together from pieces, so that this file may be looked at as well.
FORBIDDEN = ("TO" + "DO", "FIX" + "ME", "/wo" + "rk/", "/tmp/" + "venv")


def _files() -> Iterator[Path]:
    yield from (p for p in CHECKOUT.iterdir() if p.suffix in ENDINGS)
    for folder in FOLDERS:
        for path in sorted((CHECKOUT / folder).rglob("*")):
            if path.suffix in ENDINGS and path.is_file():
                yield path


def _python() -> Iterator[Path]:
    for path in _files():
        if path.suffix == ".py" and path.name not in (
            "_ir_parser.py",
            "_tk_parser.py",
            "_ptx_parser.py",
        ):
            yield path


def _name(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def test_no_file_is_longer_than_can_be_read() -> None:
    long = {_name(p): n for p in _python() if (n := p.read_text().count("\n")) > MOST_LINES}
    assert long == {}


@pytest.mark.parametrize("word", FORBIDDEN)
def test_nothing_is_put_off_and_no_path_of_one_machine_is_named(word: str) -> None:
    pattern = re.compile(rf"(?<![A-Za-z]){re.escape(word)}")
    assert [_name(p) for p in _files() if pattern.search(p.read_text())] == []


def test_every_module_class_and_public_function_says_what_it_is() -> None:
    silent = []
    for path in (p for p in _python() if p.is_relative_to(CHECKOUT / "tilec")):
        tree = ast.parse(path.read_text())
        if path.read_text() and ast.get_docstring(tree) is None:
            silent.append(_name(path))
        for node in tree.body:
            if (
                isinstance(node, ast.ClassDef | ast.FunctionDef)
                and not node.name.startswith("_")
                and ast.get_docstring(node) is None
            ):
                silent.append(f"{_name(path)}: {node.name}")
    assert silent == []


def test_no_error_is_caught_without_a_name() -> None:
    """A handler for every exception hides bugs; which ones are meant has to be said."""
    wide = []
    for path in (p for p in _python() if p.is_relative_to(CHECKOUT / "tilec")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None
                or (isinstance(node.type, ast.Name) and node.type.id == "Exception")
            ):
                wide.append(f"{_name(path)}:{node.lineno}")
    assert wide == []
