"""Broken programs get diagnostics, never a traceback; whole ones give valid IR."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tilec.diagnostics import DiagnosticError, render
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.ir.verify import verify
from tilec.source import SourceFile

_HERE = Path(__file__).parent
_PROGRAMS = [
    *sorted((_HERE.parents[1] / "examples").glob("*.tk")),
    *sorted((_HERE / "rules").glob("*.tk")),
]
_TOKEN = re.compile(r"[A-Za-z_]\w*|[0-9.]+|[^\sA-Za-z_0-9]|\n *")


def mutants(text: str, count: int, seed: int) -> list[str]:
    """Programs with a token left out, doubled, exchanged with another or replaced by one."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        tokens = [(m.start(), m.end()) for m in _TOKEN.finditer(text)]
        (a, b), (c, d) = sorted(chance.sample(tokens, 2))
        first, second = text[a:b], text[c:d]
        made.append(
            chance.choice(
                [
                    text[:a] + text[b:],
                    text[:b] + " " + first + text[b:],
                    text[:a] + second + text[b:c] + first + text[d:],
                    text[:a] + second + text[b:],
                ]
            )
        )
    return made


def refusal(text: str) -> str:
    """What is said about a program; nothing if it becomes valid IR."""
    try:
        module = check(parse(SourceFile("mutant.tk", text)), {})
        for kernel in module.kernels:
            verify(lower(module, kernel.name))
    except DiagnosticError as error:
        return render(error.diagnostics)
    return ""


@pytest.mark.parametrize("path", _PROGRAMS, ids=lambda p: p.stem)
def test_mutants_are_refused_with_a_message_or_lower_to_valid_ir(path: Path) -> None:
    refusals = [refusal(text) for text in mutants(path.read_text(), 40, seed=len(path.stem))]
    assert any(refusals)
    assert all(r.startswith("error[") for r in refusals if r)
