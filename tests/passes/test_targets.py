"""Every example assembles for every target, and what a program computes depends on none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.passes.programs import PROGRAMS, Program
from tests.passes.test_meaning import check_everywhere, promised, unpromised
from tests.ptx.assemblers import assembled_for
from tilec import pipeline
from tilec.compiler import compile_source, front, prepare
from tilec.diagnostics import DiagnosticError
from tilec.frontend.parse import parse
from tilec.ir.facts import Schedule
from tilec.ir.levels import tile
from tilec.passes.base import Context
from tilec.passes.place_shared import total_bytes
from tilec.passes.shared_needs import SMALL_BYTES, shared_needs
from tilec.source import SourceFile
from tilec.targets import TARGETS, by_name

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.tk"))
EIGHT_BITS = {"scaled_fp8"}
"""Examples with products of 8-bit floats, which sm_80 and sm_86 have not."""
OLDER = sorted(name for name in TARGETS if name != "sm_90a")
PRODUCTS = sorted(name for name, program in PROGRAMS.items() if "@" in program.text)
SM_80 = by_name("80")


def _on_targets(names: Iterable[str], long: str = "") -> list[Any]:
    """Each example on each target that has its products."""
    return [
        pytest.param(
            example,
            name,
            id=f"{example.stem}-{name}",
            marks=pytest.mark.long if name == long else (),
        )
        for example in EXAMPLES
        for name in names
        if TARGETS[name].has_fp8_casts or example.stem not in EIGHT_BITS
    ]


@pytest.mark.parametrize("target", ["sm_80", "sm_86"])
@pytest.mark.parametrize("name", sorted(EIGHT_BITS))
def test_products_of_eight_bit_floats_are_refused_where_there_are_none(
    name: str, target: str
) -> None:
    (example,) = (path for path in EXAMPLES if path.stem == name)
    with pytest.raises(DiagnosticError, match=f"{target} has none of e4m3 by e4m3"):
        compile_source(SourceFile.read(example), name, {}, TARGETS[target])


# What sm_86 runs differs from sm_80 by its shared memory alone, which has its own test below.
@pytest.mark.parametrize(("example", "target"), _on_targets(OLDER, long="sm_86"))
def test_examples_assemble_for_older_targets(example: Path, target: str) -> None:
    source = SourceFile.read(example)
    kernel = parse(source).kernels[0].name

    compiled = compile_source(source, kernel, {}, TARGETS[target])
    assert f".target {target}\n" in compiled.ptx
    assembled_for(compiled.ptx, target)  # registers may spill where nobody has tuned yet


@pytest.mark.parametrize(("example", "target"), _on_targets(TARGETS))
def test_the_account_of_shared_memory_covers_what_is_placed(example: Path, target: str) -> None:
    source = SourceFile.read(example)
    module = front(source, parse(source).kernels[0].name, {}, TARGETS[target])
    prepare(module, None, Schedule())
    ctx = Context(TARGETS[target])
    pipeline.run(module, ctx, stop_after="choose-tiles")
    accounts: dict[str, int] = {}
    slack: dict[str, int] = {}
    for kernel in module.kernels:
        schedule = pipeline.recorded_schedule(kernel)
        ctx.facts, ctx.schedule = pipeline.settled_facts(kernel), schedule
        needs = shared_needs(kernel, ctx, schedule)
        assert needs is not None
        if any(isinstance(op, tile.Dot) for op in kernel.body.walk()):
            accounts[kernel.name] = needs.total(schedule.stages or 2)
            # Elements of a fragment that need no buffer, and results that leave from registers.
            slack[kernel.name] = SMALL_BYTES + needs.staging + accounts[kernel.name] // 3
    pipeline.run(module, ctx, stop_after="form-ctas")
    for kernel in module.kernels:
        if kernel.name in accounts:
            placed = total_bytes(kernel)
            assert placed <= accounts[kernel.name] <= placed + slack[kernel.name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_mean_the_same_on_sm_80(name: str) -> None:
    program = PROGRAMS[name]
    check_everywhere(program, promised(program, program.sizes, 16), Schedule(), SM_80)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_on_sm_80_need_no_promise(name: str) -> None:
    program = PROGRAMS[name]
    check_everywhere(program, unpromised(program.sizes), Schedule(), SM_80)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("rows", [16, 32, 48, 64, 128])
@pytest.mark.parametrize("name", ["gemm", "gemm of columns", "two products of one operand"])
def test_tiles_of_few_rows(name: str, rows: int, target: str) -> None:
    program = PROGRAMS[name]
    pins = Schedule(tiles=(("i", rows), ("j", 64)))
    check_everywhere(program, promised(program, program.sizes, 16), pins, TARGETS[target])


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("rows", [16, 32])
def test_rows_that_warps_share_are_reduced(rows: int, target: str) -> None:
    program = PROGRAMS["rows of a product reduced"]
    pins = Schedule(tiles=(("i", rows), ("j", 64)))
    check_everywhere(program, promised(program, program.sizes, 16), pins, TARGETS[target])


@pytest.mark.parametrize("sizes", [(1, 1, 1), (17, 200, 0), (200, 16, 17), (65, 129, 130)])
@pytest.mark.parametrize("alignment", [2, 4, 8, 16])
def test_edges_of_gemm_on_sm_80(sizes: tuple[int, int, int], alignment: int) -> None:
    named = dict(zip(("M", "N", "K"), sizes, strict=True))
    moved: Program = replace(PROGRAMS["gemm"], sizes=named)
    check_everywhere(moved, promised(moved, named, alignment), Schedule(), SM_80)
