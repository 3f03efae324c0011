"""After every pass of level ``cta`` a kernel computes what its source says.

Each program runs on the ``cta`` interpreter after each pass from ``form-ctas`` on:
with every promise about its arrays, with none, and with schedules that change who does what.
"""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.passes.programs import PROGRAMS, Program
from tilec import pipeline
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.cta.run import run_cta
from tilec.ir.core import Module
from tilec.ir.facts import ArrayFacts, Facts, Schedule
from tilec.passes.base import Context
from tilec.runtime.expressions import evaluate
from tilec.source import SourceFile
from tilec.targets import by_name
from tilec.targets.base import Target

TARGET = by_name("90")
CTA_PASSES = ("form-ctas", "split-roles", "pipeline-products", "overlap-stores", "weave")


def lowered(program: Program, facts: Facts, schedule: Schedule, target: Target = TARGET) -> Module:
    """The program at level ``tile``, carrying its facts and pins."""
    module = lower(check(parse(SourceFile("f.tk", program.text.lstrip("\n"))), {}), "f")
    module.target = target.name
    kernel = module.kernels[0]
    pipeline.record_facts(kernel, facts)
    kernel.schedule = {**kernel.schedule, **schedule.as_attributes()}
    return module


def promised(program: Program, sizes: dict[str, int], alignment: int) -> Facts:
    """What holds of row-major arrays of these sizes."""
    arrays = tuple(
        (name, ArrayFacts(program.units.get(name, len(axes) - 1), alignment))
        for name, axes in program.shapes.items()
    )
    multiples = tuple((n, s & -s) for n, s in sizes.items())
    return Facts(arrays, tuple(sizes.items()), multiples)


def unpromised(sizes: dict[str, int]) -> Facts:
    """No word about strides, and bounds only."""
    return Facts((), tuple(sizes.items()))


def check_everywhere(
    program: Program, facts: Facts, schedule: Schedule, target: Target = TARGET
) -> None:
    """Run the program after each pass of level ``cta`` and compare with NumPy."""
    rng = np.random.default_rng(7)
    sizes = program.sizes
    module = lowered(program, facts, schedule, target)
    types = {arg.name: arg.type for arg in module.kernels[0].body.args}
    inputs = {
        name: (rng.standard_normal if types[name].dtype.is_float else _small_numbers(rng))(
            tuple(sizes[a] for a in axes)
        )
        for name, axes in program.shapes.items()
    }
    expected: dict[str, Any] = program.means(SimpleNamespace(**inputs))
    ctx = Context(target)
    for name in pipeline.PIPELINE[: pipeline.position("place-shared") + 1]:
        pipeline.step(module, pipeline.find_pass(name), ctx)
        if name not in CTA_PASSES:
            continue
        out = {k for k in expected if f"{k}: out" in program.text}
        arrays = {k: _unwritten(v) if k in out else v.copy() for k, v in inputs.items()}
        for kernel in module.kernels:
            for item, _, extents in kernel.attributes.get("workspace", ()):
                shapes = {k: v.shape for k, v in inputs.items()}
                shape = [evaluate(extent, shapes, program.scalars) for extent in extents]
                arrays.setdefault(str(item), np.full(shape, np.nan))
            run_cta(kernel, arrays, program.scalars, wide=True)
        for key, value in expected.items():
            np.testing.assert_allclose(arrays[key], value, 1e-9, 1e-9, err_msg=f"{key} {name}")


def _small_numbers(rng: np.random.Generator) -> Any:
    """Draws what every integer type holds, and sums of products of it."""
    return lambda shape: rng.integers(0, 8, shape)


def _unwritten(like: np.ndarray) -> np.ndarray:
    """What shows where nothing was written."""
    return np.full_like(like, np.nan if like.dtype.kind == "f" else -99)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_mean_the_same_with_every_promise_kept(name: str) -> None:
    program = PROGRAMS[name]
    check_everywhere(program, promised(program, program.sizes, 16), Schedule())


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_mean_the_same_when_nothing_is_known_of_arrays(name: str) -> None:
    program = PROGRAMS[name]
    check_everywhere(program, unpromised(program.sizes), Schedule())


SCHEDULES = {
    "two warpgroups, persistent": Schedule(
        tiles=(("i", 128), ("j", 64), ("k", 16)), stages=2, persistent=True, group=2
    ),
    "three stages, wide tiles": Schedule(tiles=(("i", 64), ("j", 256), ("k", 16)), stages=3),
    "persistent small tiles": Schedule(
        tiles=(("i", 64), ("j", 16), ("k", 32)), stages=4, persistent=True, group=16
    ),
    "three warpgroups": Schedule(tiles=(("i", 192), ("j", 48), ("k", 64)), stages=2),
}


PRODUCTS = ("gemm", "gemm of columns", "two products of one operand")
TOO_WIDE = ("two products of one operand", "three stages, wide tiles")
"""Two accumulators of 256 columns are all registers of a thread."""


@pytest.mark.parametrize(
    ("name", "schedule"),
    [(n, s) for n in PRODUCTS for s in SCHEDULES if (n, s) != TOO_WIDE],
)
def test_schedules_do_not_change_what_a_product_is(name: str, schedule: str) -> None:
    program = PROGRAMS[name]
    check_everywhere(program, promised(program, program.sizes, 16), SCHEDULES[schedule])


@pytest.mark.parametrize("name", ["softmax", "add", "normalised rows", "sums of columns"])
@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(tiles=(("i", 32),), persistent=True, warpgroups=2),
        Schedule(tiles=(("i", 128), ("j", 256)), vector=2),
    ],
    ids=["persistent", "large tiles"],
)
def test_kernels_without_products_run_under_any_schedule(name: str, schedule: Schedule) -> None:
    program = PROGRAMS[name]
    # A pin for a loop that the program does not have would be refused.
    loops = [loop for loop in ("i", "j") if re.search(rf"\b{loop}\b", program.text)]
    tiles = tuple((loop, size) for loop, size in schedule.tiles if loop in loops)
    check_everywhere(program, promised(program, program.sizes, 16), replace(schedule, tiles=tiles))


@pytest.mark.parametrize("pins", [(("i", 16),), (("i", 80), ("j", 512)), (("i", 256), ("k", 16))])
@pytest.mark.parametrize("alignment", [2, 16])
def test_any_pinned_tile_of_a_product_runs(
    pins: tuple[tuple[str, int], ...], alignment: int
) -> None:
    program = PROGRAMS["gemm"]
    facts = promised(program, program.sizes, alignment)
    check_everywhere(program, facts, Schedule(tiles=pins, warpgroups=None))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (17, 200, 0), (200, 16, 17), (65, 129, 130)])
@pytest.mark.parametrize("alignment", [2, 16])
def test_gemm_at_its_edges(sizes: tuple[int, int, int], alignment: int) -> None:
    program = PROGRAMS["gemm"]
    named = dict(zip(("M", "N", "K"), sizes, strict=True))
    moved = Program(program.text, program.shapes, program.means, sizes=named)
    check_everywhere(moved, promised(moved, named, alignment), Schedule())


@pytest.mark.parametrize("columns", [1, 17, 500, 1000])
def test_rows_of_any_length(columns: int) -> None:
    for name in ("softmax", "one row a CTA"):
        program = PROGRAMS[name]
        named = {"M": 9, "N": columns}
        moved = Program(program.text, program.shapes, program.means, sizes=named)
        check_everywhere(moved, promised(moved, named, 4), Schedule())


@pytest.mark.parametrize("shares", [2, 3, 7])
@pytest.mark.parametrize("inner", [0, 17, 72, 200])
def test_a_product_in_shares_is_the_same_product(shares: int, inner: int) -> None:
    program = PROGRAMS["gemm"]
    named = {"M": 150, "N": 88, "K": inner}
    moved = Program(program.text, program.shapes, program.means, sizes=named)
    schedule = Schedule(tiles=(("k", 16),), splits=(("k", shares),))
    check_everywhere(moved, promised(moved, named, 16), schedule)


@pytest.mark.parametrize("shares", [2, 5])
@pytest.mark.parametrize("columns", [1, 88, 300])
def test_rows_merge_as_their_join_says(shares: int, columns: int) -> None:
    program = PROGRAMS["rows by join"]
    named = {"M": 70, "N": columns}
    moved = Program(program.text, program.shapes, program.means, sizes=named)
    schedule = Schedule(tiles=(("j", 32),), splits=(("j", shares),))
    check_everywhere(moved, promised(moved, named, 4), schedule)


@pytest.mark.parametrize("step", [16, 64, 80, 128])
@pytest.mark.parametrize("inner", [0, 63, 129, 400])
def test_a_range_of_whole_tiles_is_a_part_of_the_axis(step: int, inner: int) -> None:
    program = PROGRAMS["product in ranges"]
    named = {"M": 70, "N": 40, "K": inner}
    moved = Program(program.text, program.shapes, program.means, sizes=named)
    check_everywhere(moved, promised(moved, named, 16), Schedule(tiles=(("k", step),)))
