"""Are products of every type right on this GPU, whatever their operands' majorness and extents?

    python -m tests.gpu.test_products --json out.json [--only WORDS] [--jobs 8] [--seed N]
    python -m tests.gpu.test_products --assemble [--only WORDS] [--jobs 2]

The cases run in supervised children, as in `test_programs`; the failures are printed last.
`--assemble` needs ptxas and no GPU: it makes every case's code and looks for spills and for what
the assembler complains of.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

import tilec
from tests.gpu.assemble_cases import Finding
from tests.gpu.product_cases import FORMS, TYPES, ProductCase, all_cases, matching
from tests.gpu.test_programs import Record, run_chunk, summary
from tilec.backend_ptx.assemble import AssemblyError, assemble
from tilec.diagnostics import DiagnosticError
from tilec.ir.types import DTYPES
from tilec.runtime.arrays import ArrayView
from tilec.targets import by_name

_CHILD = "tests.gpu.product_child"
_FIRST_ADDRESS = 1 << 32


def assembled(case: ProductCase) -> list[Finding]:
    """What is wrong with the code of a case."""
    target = by_name("90")
    left, right, summed, _ = TYPES[case.types]
    m, n, k = case.sizes
    orders = (*FORMS[case.form], "row")
    views = {}
    arrays = zip("abc", ((m, k), (n, k), (m, n)), (left, right, summed), orders, strict=True)
    for number, (name, shape, dtype, order) in enumerate(arrays, start=1):
        steps = (shape[1], 1) if order == "row" else (1, shape[0])
        address = _FIRST_ADDRESS * number
        views[name] = ArrayView(address, shape, steps, DTYPES[dtype].name, ("cuda", 0), None)
    try:
        kernel = tilec.compile(case.text, "product.tk").f
        ptx = kernel.compile(kernel.sort_out(views, {}, target), target).ptx
        made = assemble(ptx)
    except (DiagnosticError, AssemblyError) as error:
        return [Finding(case.name, str(error))]
    found = [Finding(case.name, note.text) for note in made.losses]
    if made.spill_bytes:
        found.append(Finding(case.name, f"{made.spill_bytes} bytes spilled"))
    return found


def run_all(cases: list[ProductCase], jobs: int) -> list[Record]:
    """Records of all cases, `jobs` children at a time; those of one type and form together."""
    groups: dict[tuple[str, str], list[ProductCase]] = {}
    for case in cases:
        groups.setdefault((case.types, case.form), []).append(case)
    records: list[Record] = []
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(lambda chunk: run_chunk(chunk, child=_CHILD), groups.values()):
            records += found
            bad = sum("failure" in record for record in found)
            print(f"{found[0]['case']}: {len(found)} cases, {bad} failed", flush=True)
    return records


def main() -> int:
    """Run or assemble the list, or the part of it that `--only` leaves."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, help="write all records here")
    parser.add_argument("--only", default="", help="words that a case's name must hold")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--assemble", action="store_true", help="make the code only; needs no GPU")
    options = parser.parse_args()
    cases = matching(all_cases(options.seed), options.only)
    if options.assemble:
        with ProcessPoolExecutor(options.jobs) as pool:
            findings = [f for found in pool.map(assembled, cases, chunksize=8) for f in found]
        print(f"{len(cases)} cases, {len(findings)} findings")
        for finding in findings:
            print(f"  {finding.case}: {' '.join(finding.text.split())[:200]}")
        return int(bool(findings))
    records = run_all(cases, options.jobs)
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "records": records}, indent=1))
    print(summary(records))
    return int(any("failure" in record for record in records))


@pytest.mark.parametrize("types", TYPES)
def test_products_of_a_type_are_right(types: str) -> None:
    """One size of each form; the script runs all of them."""
    cases = [c for c in all_cases() if c.types == types and c.sizes == (65, 72, 40)]
    assert summary(run_all(cases, 4)).startswith(f"{len(cases)} passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
