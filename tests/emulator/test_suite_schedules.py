"""Every schedule chosen for a shape of the benchmark suite, on the emulator at a small shape.

The schedule comes from a compilation for the suite's shape, all of it is pinned, and the program
runs on a product that ends inside tiles and goes round the ring more than once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.emulator.examples import Subject
from tests.examples.spec import all_examples
from tilec.compiler import compile_source
from tilec.ir.facts import ArrayFacts, Facts, Schedule
from tilec.runtime.emulated import Emulator
from tilec.runtime.specialise import multiple_class, size_class
from tilec.source import SourceFile
from tilec.targets import by_name

GEMM = next(e for e in all_examples() if e.kernel == "gemm")
SHAPES = (
    *((n, n, n) for n in (512, 1024, 2048, 4096, 8192, 16384)),
    (4096, 14336, 4096), (8192, 8192, 28672), (4096, 4096, 14336), (256, 4096, 4096),
    (5000, 5000, 5000), (1000, 3000, 776), (128, 128, 131072),
    *((m, 8192, 8192) for m in (1, 16, 64, 128)),
)  # fmt: skip


def chosen(m: int, n: int, k: int) -> Schedule:
    """What the passes choose for packed operands of a shape."""
    sizes = {"M": m, "N": n, "K": k}
    facts = Facts(
        tuple((name, ArrayFacts(1, 16)) for name in "abc"),
        tuple((name, size_class(size)) for name, size in sizes.items()),
        tuple((name, multiple_class(size)) for name, size in sizes.items()),
    )
    source = SourceFile("gemm.tk", Path(GEMM.path).read_text())
    return compile_source(source, None, {}, by_name("sm_90"), facts).schedule


def _every() -> list[Any]:
    found: dict[Schedule, tuple[int, int, int]] = {}
    for shape in SHAPES:
        found.setdefault(chosen(*shape), shape)
    return [pytest.param(s, id="x".join(map(str, shape))) for s, shape in found.items()]


@pytest.mark.long
@pytest.mark.parametrize("order", ["in order", "late", "early", "random"])
def test_what_is_chosen_for_the_suite_has_no_findings(order: str) -> None:
    for case in _every():
        (schedule,) = case.values
        tiles = dict(schedule.tiles)
        rounds = 2 * (schedule.stages or 2) + 1
        rounds *= dict(schedule.splits).get("k", 1)
        sizes = {
            "M": 2 * tiles["i"] + 8, "N": tiles["j"] + 8, "K": tiles["k"] * rounds - 8
        }  # fmt: skip
        assert Subject(GEMM, schedule=schedule).wrong(sizes, Emulator(order)) == [], case.id
