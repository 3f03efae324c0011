"""Text of level ptx in, PTX out, and what ptxas says about it.

Each ``.tir`` here says in its first comment why it exists; its golden ``.ptx`` has the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ptx.assemblers import assemble_cleanly
from tilec.backend_ptx.emit import emit
from tilec.backend_ptx.registers import place_copies
from tilec.ir.parser import parse_module
from tilec.ir.printer import module_text
from tilec.ir.verify import verify

FOLDER = Path(__file__).parent
CASES = sorted(path.stem for path in FOLDER.glob("*.tir"))


def compiled(name: str) -> str:
    """The PTX of a case."""
    module = parse_module((FOLDER / f"{name}.tir").read_text(encoding="utf-8"))
    verify(module)
    for kernel in module.kernels:
        place_copies(kernel)
    verify(module, "place-copies")
    return emit(module)


@pytest.mark.parametrize("name", CASES)
def test_the_text_is_the_golden_one(name: str, golden: Callable[[Path, str], None]) -> None:
    golden(FOLDER / f"{name}.ptx", compiled(name))


@pytest.mark.parametrize("name", CASES)
def test_ptxas_takes_it_without_loss(name: str) -> None:
    assemble_cleanly(compiled(name))


@pytest.mark.parametrize("name", CASES)
def test_a_dump_taken_after_place_copies_resumes_to_the_same_text(name: str) -> None:
    module = parse_module((FOLDER / f"{name}.tir").read_text(encoding="utf-8"))
    for kernel in module.kernels:
        place_copies(kernel)
    resumed = parse_module(module_text(module))
    for kernel in resumed.kernels:
        place_copies(kernel)
    assert module_text(resumed) == module_text(module)
    assert emit(resumed) == emit(module)


@pytest.mark.parametrize("name", CASES)
def test_emission_is_deterministic(name: str) -> None:
    assert compiled(name) == compiled(name)
