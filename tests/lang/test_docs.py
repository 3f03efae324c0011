"""The pages about the language are true: examples compile, and every error code has a section."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tilec.compiler import compile_source
from tilec.diagnostics import DiagnosticError
from tilec.frontend.builtins import BUILTINS
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.numbers import decode
from tilec.ir.verify import verify
from tilec.runtime.trial import array_parameters, make_inputs, on_interpreter
from tilec.source import SourceFile
from tilec.targets import by_name

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs" / "language.md"
_BLOCK = re.compile(r"^```tk\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ERROR = re.compile(r"# error: ([a-z0-9-]+): (.*)$")


def blocks() -> list[tuple[int, str]]:
    """The first line and text of each ``tk`` block of the page."""
    text = _PAGE.read_text()
    return [(text.count("\n", 0, m.start()) + 2, m[1]) for m in _BLOCK.finditer(text)]


def _line(part: int | str) -> str:
    return str(part) if isinstance(part, int) else ""


@pytest.mark.parametrize(("line", "text"), blocks(), ids=_line)
def test_example_compiles_or_fails_as_it_says(line: int, text: str) -> None:
    expected = [
        (number, found[1], found[2])
        for number, row in enumerate(text.splitlines(), 1)
        if (found := _ERROR.search(row))
    ]
    source = SourceFile(f"language.md:{line}", text)
    try:
        module = check(parse(source), {})
        for kernel in module.kernels:
            verify(lower(module, kernel.name))
        errors = []
    except DiagnosticError as error:
        errors = list(error.diagnostics)
    assert [(e.span.line, e.code) for e in errors if e.span] == [e[:2] for e in expected]
    for error, (_, _, part) in zip(errors, expected, strict=True):
        assert part in error.message


@pytest.mark.parametrize(
    ("line", "text"), [b for b in blocks() if "# error:" not in b[1]], ids=_line
)
def test_example_becomes_ptx_and_means_the_same_at_two_tile_sizes(line: int, text: str) -> None:
    source = SourceFile(f"language.md:{line}", text)
    module = check(parse(source), {})
    for checked in module.kernels:
        assert compile_source(source, checked.name, {}, by_name("90")).ptx
        kernel = lower(module, checked.name).kernels[0]
        sizes = {"M": 72, "N": 50, "K": 33, "B": 3, "BE": 4, "H": 4, "HK": 2}
        inputs = make_inputs(kernel, {d: sizes[d] for d in checked.dims}, {}, seed=line)
        first, second = (
            on_interpreter(kernel, inputs, choice, lazy=bool(choice)).outputs for choice in (0, 1)
        )
        for name, found in first.items():
            dtype = array_parameters(kernel)[name].dtype
            numbers, others = decode(dtype, found), decode(dtype, second[name])
            assert not np.isnan(numbers).any()
            np.testing.assert_allclose(numbers, others, rtol=1e-2, atol=1e-4)


def codes_in_use(folder: Path) -> Iterator[str]:
    """Codes that the sources give to diagnostics: literal first arguments of their makers."""
    for path in folder.rglob("*.py"):
        makers = {"BadChoice", "Diagnostic"}
        if "frontend" in path.parts:
            makers |= {"fail", "error", "BadIndentation"}
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                function = node.func
                name = getattr(function, "attr", getattr(function, "id", ""))
                if name in makers and isinstance(node.args[0].value, str):
                    yield node.args[0].value
            yield from _said_by_name(node)


def _said_by_name(node: ast.AST) -> Iterator[str]:
    """``code="..."`` in a call, or as a default."""
    keywords = node.keywords if isinstance(node, ast.Call) else []
    pairs = [(k.arg, k.value) for k in keywords]
    if isinstance(node, ast.FunctionDef):
        defaults = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        pairs += [(a.arg, d) for a, d in defaults if d is not None]
    for name, value in pairs:
        if name == "code" and isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def test_every_code_has_a_section_and_every_section_a_code() -> None:
    sections = re.findall(r"^## (\S+)$", (_ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)
    assert sections == sorted(set(codes_in_use(_ROOT / "tilec")))


def test_every_function_is_on_the_page() -> None:
    page = _PAGE.read_text()
    assert [name for name in BUILTINS if f"`{name}" not in page] == []


def test_every_code_of_the_language_is_shown_by_some_faulty_program() -> None:
    shown = set()
    for path in (Path(__file__).parent / "errors").glob("*.tk"):
        shown |= set(re.findall(r"# error: ([a-z0-9-]+)", path.read_text()))
    by_bindings = {"no-such-kernel", "unknown-parameter"}
    assert set(codes_in_use(_ROOT / "tilec" / "frontend")) - shown - by_bindings == set()
