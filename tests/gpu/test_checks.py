"""Do `assert` and `print` say on this GPU what they say on the interpreter, and harm nothing?

    python -m tests.gpu.test_checks --json out.json [--only WORDS] [--jobs 8]
    python -m tests.gpu.test_checks --on emulator [--only WORDS]

The cases run in supervised children, as in `test_programs`; the failures are printed last. With
`--on emulator`, which needs no GPU, they run in this process.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.gpu import checks_child
from tests.gpu.check_cases import PROGRAMS, CheckCase, all_cases
from tests.gpu.test_programs import Record, run_chunk, summary

_CHILD = "tests.gpu.checks_child"


def settings() -> list[CheckCase]:
    """The settings that only a GPU has, as cases."""
    return [CheckCase(name, "", False) for name in checks_child.SETTINGS]


def run_all(cases: list[CheckCase], jobs: int) -> list[Record]:
    """Records of all cases, `jobs` children at a time; those of one program together."""
    groups: dict[str, list[CheckCase]] = {}
    for case in cases:
        groups.setdefault(case.program, []).append(case)
    records: list[Record] = []
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(lambda chunk: run_chunk(chunk, child=_CHILD), groups.values()):
            records += found
            bad = sum("failure" in record for record in found)
            print(f"{found[0]['case']}: {len(found)} cases, {bad} failed", flush=True)
    return records


def run_here(cases: list[CheckCase], on: str) -> list[Record]:
    """Records of cases that need no GPU."""
    report = io.StringIO()
    checks_child.run_all([case for case in cases if case.program in PROGRAMS], on, report)
    found = [json.loads(line) for line in report.getvalue().splitlines()]
    return [record for record in found if "started" not in record]


def main() -> int:
    """Run the list, or the part of it that `--only` leaves."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, help="write all records here")
    parser.add_argument("--only", default="", help="words that a case's name must hold")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--on", choices=("gpu", "cta", "emulator"), default="gpu")
    options = parser.parse_args()
    words = options.only.split()
    cases = [c for c in [*all_cases(), *settings()] if all(word in c.name for word in words)]
    records = run_all(cases, options.jobs) if options.on == "gpu" else run_here(cases, options.on)
    if options.json:
        options.json.write_text(json.dumps({"records": records}, indent=1))
    print(summary(records))
    return int(any("failure" in record for record in records))


@pytest.mark.parametrize("program", [*PROGRAMS, *checks_child.SETTINGS])
def test_what_is_said_is_what_the_interpreter_says(program: str) -> None:
    """Every target, holding and failing."""
    cases = [case for case in [*all_cases(), *settings()] if case.program == program]
    assert summary(run_all(cases, 4)).startswith(f"{len(cases)} passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
