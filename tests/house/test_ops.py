"""Every op is documented, shown in a text of the suite, and found in the reference."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import tilec.ir.levels  # registers the ops
from tests.ir.texts import TESTS, all_texts
from tilec.ir.core import Op
from tilec.ir.document import FAMILIES, page
from tilec.ir.types import Type

DOCS = TESTS.parent / "docs"
OPS = sorted(Op.registry)


def test_the_reference_is_up_to_date() -> None:
    written = (DOCS / "ops.md").read_text()
    assert written == page(), "run `python -m tilec.ir.document > docs/ops.md`"


@pytest.mark.parametrize("name", OPS)
def test_an_op_says_what_it_means(name: str) -> None:
    cls = Op.registry[name]
    assert cls.__doc__, name
    assert cls.__doc__.strip().split("\n")[0].rstrip().endswith((".", ",", ";", ":"))
    assert name.split(".")[0] in FAMILIES
    assert inspect.getmodule(cls) is FAMILIES[name.split(".")[0]]


def test_every_op_appears_in_a_text_that_is_parsed_and_printed() -> None:
    """The round-trip tests run over these texts."""
    text = "\n".join(path.read_text() for path in all_texts())
    assert [name for name in OPS if f"{name}(" not in text] == []


def test_every_type_belongs_to_a_level() -> None:
    admitted = {cls for _, types in tilec.ir.levels.LEVELS.values() for cls in types}
    assert set(Type.registry.values()) == admitted


def test_the_page_on_the_text_form_shows_valid_texts() -> None:
    from tilec.ir.parser import parse_module
    from tilec.ir.printer import module_text
    from tilec.ir.verify import verify

    blocks = _blocks(DOCS / "ir.md")
    assert blocks
    for block in blocks:
        module = parse_module(block)
        verify(module)
        assert module_text(parse_module(module_text(module))) == module_text(module)


def _blocks(page: Path) -> list[str]:
    """The fenced ``tir`` blocks of a page."""
    parts = page.read_text().split("```tir\n")[1:]
    return [part.split("```")[0] for part in parts]
