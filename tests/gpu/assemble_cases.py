"""Compile the acceptance cases and assemble what they lead to; needs ptxas and no GPU.

    python -m tests.gpu.assemble_cases [--only WORDS] [--seed N] [--jobs 2]

Idea: which code a call runs depends on its arrays' strides, addresses and sizes only, so the code
of every case can be made from made-up addresses.  Many cases share code; each is assembled once.

Invariants: every product is on tensor cores, and by wgmma where it has the rows of one (fewer are
tiles of 16 rows by mma.sync, which computes none that are not there); nothing spills and the
assembler has no complaint that costs speed.

Never: launches anything, or counts a refusal as a pass.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tilec
from tests.gpu.cases import Case, all_cases, matching, strides
from tilec.backend_ptx.assemble import AssemblyError, assemble
from tilec.compiler import Compiled
from tilec.diagnostics import DiagnosticError
from tilec.runtime.arrays import ArrayView
from tilec.targets import by_name

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_BYTES = {"bf16": 2, "f16": 2, "f32": 4}
_FIRST_ADDRESS = 1 << 32
_ROWS_OF_WGMMA = 64


@dataclass(frozen=True)
class Finding:
    """What is wrong with the code of a case."""

    case: str
    text: str


@cache
def _kernel(program: str) -> Any:
    return getattr(tilec.load(str(EXAMPLES / f"{program}.tk")), program)


def compiled(case: Case) -> Compiled | None:
    """The code that a call would run; None where nothing would be launched."""
    kernel, target = _kernel(case.program), by_name("90")
    views = {}
    places = zip(kernel.parameters, case.shapes, case.operands, strict=True)
    for number, (parameter, shape, operand) in enumerate(places):
        first, second, offset = strides(shape, operand, _BYTES[case.dtype])
        address = _FIRST_ADDRESS * (number + 1) + offset * _BYTES[case.dtype]
        views[parameter.name] = ArrayView(
            address, shape, (first, second), case.dtype, ("cuda", 0), None
        )
    if 0 in case.shapes[-1]:
        return None
    made: Compiled = kernel.compile(kernel.sort_out(views, {}, target), target)
    return made


def examine(case: Case, ptx: str) -> list[Finding]:
    """Assemble one text and say what is wrong with it."""
    return [Finding(case.name, text) for text in _complaints(case, ptx)]


def _complaints(case: Case, ptx: str) -> list[str]:
    try:
        made = assemble(ptx)
    except AssemblyError as error:
        return [str(error)]
    found = [note.text for note in made.losses]
    if made.spill_bytes:
        found.append(f"{made.spill_bytes} bytes spilled")
    if case.program == "gemm" and "wgmma.mma_async" not in ptx:
        if _rows(case) >= _ROWS_OF_WGMMA:
            found.append("no wgmma")
        elif "mma.sync" not in ptx:
            found.append("no tensor cores")
    return found


def _rows(case: Case) -> int:
    return case.shapes[-1][0]


def examine_all(cases: Iterable[Case], jobs: int) -> tuple[int, list[Finding]]:
    """How many different texts the cases lead to, and what is wrong with them."""
    found: list[Finding] = []
    texts: dict[str, Case] = {}
    for case in cases:
        try:
            made = compiled(case)
        except DiagnosticError as error:
            found.append(Finding(case.name, str(error.diagnostics[0].message)))
            continue
        if made is not None:
            texts[made.ptx] = max(case, texts.get(made.ptx, case), key=_rows)
    with ProcessPoolExecutor(jobs) as pool:
        for findings in pool.map(examine, texts.values(), texts):
            found += findings
    return len(texts), found


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine the list, or the part of it that `--only` leaves."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--only", default="", help="words that a case's name must hold")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    cases = matching(all_cases(options.seed), options.only)
    count, found = examine_all(cases, options.jobs)
    print(f"{len(cases)} cases lead to {count} kernels; {len(found)} findings")
    for finding in found:
        print(f"  {finding.case}: {finding.text}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
