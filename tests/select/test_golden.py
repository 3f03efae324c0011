"""Text of level cta in, text of level ptx out: one small kernel for each family of ops.

Each ``.tir`` here says in its first comment why it exists; ``pytest --update`` rewrites its golden,
``.ptx.tir`` of the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ptx.assemblers import assemble_cleanly
from tilec.backend_ptx.emit import emit
from tilec.ir.core import Module
from tilec.ir.parser import parse_module
from tilec.ir.printer import module_text
from tilec.ir.verify import verify
from tilec.passes.base import Context
from tilec.pipeline import run
from tilec.targets import by_name

FOLDER = Path(__file__).parent / "golden"
CASES = sorted(path.stem for path in FOLDER.glob("*.tir") if "." not in path.stem)


def selected(name: str, stop_after: str) -> Module:
    """The module of a case after a pass."""
    module = parse_module((FOLDER / f"{name}.tir").read_text(encoding="utf-8"))
    verify(module)
    context = Context(by_name(module.target))
    return run(module, context, start_after="place-shared", stop_after=stop_after)


@pytest.mark.parametrize("name", CASES)
def test_the_instructions_are_the_golden_ones(
    name: str, golden: Callable[[Path, str], None]
) -> None:
    text = module_text(selected(name, "select-instructions"))
    golden(FOLDER / f"{name}.ptx.tir", text)


@pytest.mark.parametrize("name", CASES)
def test_ptxas_takes_them_without_loss(name: str) -> None:
    assemble_cleanly(emit(selected(name, "place-copies")))
