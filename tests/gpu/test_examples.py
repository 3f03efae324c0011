"""Are all examples right on this GPU: every size, view and target?

    python -m tests.gpu.test_examples --json out.json [--only WORDS] [--jobs 8] [--seed N]

The cases run in supervised children, as in `test_programs`; the failures are printed last.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gpu.example_cases import ExampleCase, all_cases
from tests.gpu.test_programs import Record, run_chunk, summary

_CHILD = "tests.gpu.example_child"


def grouped(cases: list[ExampleCase]) -> list[list[ExampleCase]]:
    """Cases of one kernel and target together: they share compiled code."""
    groups: dict[tuple[str, str], list[ExampleCase]] = {}
    for case in cases:
        groups.setdefault((case.kernel, case.target), []).append(case)
    return sorted(groups.values(), key=len, reverse=True)


def run_all(cases: list[ExampleCase], jobs: int) -> list[Record]:
    """Records of all cases, `jobs` children at a time."""
    records: list[Record] = []
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(lambda chunk: run_chunk(chunk, child=_CHILD), grouped(cases)):
            records += found
            bad = sum("failure" in record for record in found)
            print(f"{found[0]['case']}: {len(found)} cases, {bad} failed", flush=True)
    return records


def main() -> int:
    """Run the list, or the part of it that `--only` leaves."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, help="write all records here")
    parser.add_argument("--only", default="", help="words that a case's name must hold")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wanted = set(options.only.split())
    cases = [c for c in all_cases(options.seed) if wanted <= set(c.name.split())]
    records = run_all(cases, options.jobs)
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "records": records}, indent=1))
    print(summary(records))
    return int(any("failure" in record for record in records))


@pytest.mark.parametrize("target", ["native", "sm_80"])
def test_the_examples_are_right(target: str) -> None:
    """One size of each; the script runs all of them."""
    cases = [c for c in all_cases() if {target, "packed", "size=3"} <= set(c.name.split())]
    assert summary(run_all(cases, 4)).startswith(f"{len(cases)} passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
