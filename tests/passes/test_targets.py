"""Every example assembles for every target, and what a program computes depends on none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.passes.programs import PROGRAMS, Program
from tests.passes.test_meaning import check_everywhere, promised, unpromised
from tests.ptx.assemblers import assembled_for
from tilec.compiler import Compiled, compile_source
from tilec.diagnostics import DiagnosticError
from tilec.frontend.parse import parse
from tilec.ir.facts import Schedule
from tilec.source import SourceFile
from tilec.targets import TARGETS, by_name

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.tk"))
OLDER = sorted(name for name in TARGETS if name != "sm_90a")
PRODUCTS = sorted(name for name, program in PROGRAMS.items() if "@" in program.text)
SM_80 = by_name("80")


@pytest.mark.parametrize("target", OLDER)
@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_examples_assemble_for_older_targets(example: Path, target: str) -> None:
    source = SourceFile.read(example)
    kernel = parse(source).kernels[0].name

    def compiled_with(schedule: Schedule) -> Compiled:
        return compile_source(source, kernel, {}, TARGETS[target], schedule=schedule)

    try:
        compiled = compiled_with(Schedule())
    except DiagnosticError:
        # Less shared memory than the newest target has; the message names what fits, and it does.
        with pytest.raises(DiagnosticError, match="pin at most stages=1"):
            compiled_with(Schedule())
        compiled = compiled_with(Schedule(stages=1))
    assert f".target {target}\n" in compiled.ptx
    assembled_for(compiled.ptx, target)  # registers may spill where nobody has tuned yet


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
