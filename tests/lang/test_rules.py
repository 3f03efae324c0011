"""Programs that are right: ``# ir:`` comments name what their level ``tile`` text must contain.

The named parts stand in that order; ``# not:`` says what must not stand after the part before it
(and before the next). Every program is verified and read back from its own text.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilec.frontend.builtins import BUILTINS
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.ir.parser import parse_module
from tilec.ir.printer import module_text
from tilec.ir.verify import verify
from tilec.source import SourceFile

_FILES = sorted((Path(__file__).parent / "rules").glob("*.tk"))
_EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.tk"))


def ir_text(path: Path) -> str:
    """The verified IR of a file's only kernel, without the source that its head quotes."""
    module = check(parse(SourceFile.read(path)), {})
    lowered = lower(module, module.kernels[0].name)
    verify(lowered)
    text = module_text(lowered)
    assert module_text(parse_module(text)) == text
    return "\n".join(line for line in text.splitlines() if not line.startswith("//:"))


def missing(text: str, source: str) -> list[str]:
    """The parts that are not found in order, and those found where they must not be."""
    place, wrong, forbidden = 0, [], []
    for line in map(str.strip, source.splitlines()):
        if line.startswith("# not: "):
            forbidden.append(line[7:])
        elif line.startswith("# ir: "):
            found = text.find(line[6:], place)
            if found < 0:
                wrong.append(f"missing: {line[6:]}")
                continue
            wrong += [f"found: {part}" for part in forbidden if part in text[place:found]]
            place, forbidden = found + len(line[6:]), []
    return wrong + [f"found: {part}" for part in forbidden if part in text[place:]]


@pytest.mark.parametrize("path", _FILES, ids=lambda p: p.stem)
def test_program_lowers_to_what_it_says(path: Path) -> None:
    source = path.read_text()
    assert re.search(r"^ *# ir: ", source, re.MULTILINE)
    assert missing(ir_text(path), source) == []


def test_parts_out_of_order_or_forbidden_would_be_noticed() -> None:
    assert missing("a b c", "# ir: b\n# ir: a\n") == ["missing: a"]
    assert missing("a b c", "# ir: a\n# not: b\n# ir: c\n") == ["found: b"]


@pytest.mark.parametrize("path", _EXAMPLES, ids=lambda p: p.stem)
def test_example_lowers(path: Path) -> None:
    assert "tile.parallel" in ir_text(path)


def test_every_builtin_has_a_program() -> None:
    used = {path.stem.removeprefix("builtin_") for path in _FILES}
    assert set(BUILTINS) <= used
