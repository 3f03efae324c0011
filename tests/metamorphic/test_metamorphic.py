"""Writing a program otherwise changes neither its Schedule nor its products.

Renamed, reordered, moved into a function, split over lines, with another function in one place or
an output more: the author who does that must get the same kernel. What is compared are the sizes
and choices of the Schedule, the products, threads and shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.metamorphic.changes import (
    exchanged,
    fenced,
    renamed,
    reordered,
    split,
    widened,
)
from tilec.compiler import compile_source
from tilec.frontend.words import language_words
from tilec.ir.facts import Schedule
from tilec.source import SourceFile
from tilec.targets import by_name

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemm": ("gemm", {}),
    "swiglu": ("swiglu", {}),
    "attention": ("attention", {"D": 64}),
    "attention causal": ("attention", {"D": 128, "CAUSAL": True}),
    "attention_window": ("attention_window", {}),
    "softmax": ("softmax", {}),
    "layernorm": ("layernorm", {}),
    "cross_entropy": ("cross_entropy", {}),
    "split_k": ("split_k", {}),
}
IN_CHECK = 3
"""Variants of each kind that `./check` takes, evenly; `./check --long` takes all."""


def _source(program: str) -> str:
    return (EXAMPLES / f"{PROGRAMS[program][0]}.tk").read_text()


@cache
def made(text: str, bindings: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    """What of a compilation must stay the same."""
    compiled = compile_source(
        SourceFile("program.tk", text), None, dict(bindings), by_name("sm_90")
    )
    found: list[Any] = []
    for kernel in compiled.module.kernels:
        schedule = Schedule.from_attributes(kernel.schedule)
        sizes = sorted(size for _, size in schedule.tiles)
        choices = (schedule.stages, schedule.warpgroups, schedule.group, schedule.persistent)
        products = sum(op.name == "ptx.wgmma" for op in kernel.body.walk())
        found.append((sizes, choices, products, kernel.attributes["threads"],
                      kernel.attributes["shared_bytes"]))  # fmt: skip
    return tuple(found)


def variants(program: str) -> Iterator[tuple[str, str, str]]:
    """Kind, what was done, and text."""
    text = _source(program)
    known = language_words()
    words = {*known.keywords, *known.constants, *known.types, *known.functions}
    for kind, changed in (
        ("renamed", renamed(text)),
        ("reordered", reordered(text)),
        ("function", fenced(text, words)),
        ("split", split(text)),
        ("exchanged", exchanged(text)),
        ("output", widened(text)),
    ):
        for what, new in changed:
            yield kind, what, new


def _sampled() -> Iterator[Any]:
    for program in PROGRAMS:
        kinds: dict[str, list[tuple[str, str]]] = {}
        for kind, what, text in variants(program):
            kinds.setdefault(kind, []).append((what, text))
        for kind, found in kinds.items():
            step = max(1, len(found) // IN_CHECK)
            for number, (what, text) in enumerate(found):
                quick = number % step == 0 and program in ("gemm", "attention", "softmax")
                marks = () if quick else (pytest.mark.long,)
                yield pytest.param(program, text, id=f"{program}: {kind}: {what}", marks=marks)


@pytest.mark.parametrize(("program", "changed"), list(_sampled()))
def test_writing_it_otherwise_changes_no_choice(program: str, changed: str) -> None:
    bindings = tuple(PROGRAMS[program][1].items())
    assert made(changed, bindings) == made(_source(program), bindings)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_has_variants_of_several_kinds(program: str) -> None:
    kinds = {kind for kind, _, _ in variants(program)}
    assert {"renamed", "output"} <= kinds
    assert len(kinds) >= 3


def test_a_change_that_matters_is_noticed() -> None:
    text = _source("gemm")
    wider = text.replace("tiles(K)", "tiles(K, 32)")
    assert made(wider, ()) != made(text, ())
    line = "            acc += a[i, k] @ b[j, k].T\n"
    assert made(text.replace(line, line * 3), ()) != made(text, ())
