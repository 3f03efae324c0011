"""Random programs on this GPU against the interpreter.

    python -m tests.gpu.test_fuzz --count 300 --seed 0 --json out.json

They are the programs of ``tests/fuzz``, in supervised children, as in ``test_programs``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.gpu.fuzz_case import FuzzCase
from tests.gpu.test_programs import Record, run_chunk, summary

_CHUNK = 25


def run_all(seeds: range, jobs: int) -> list[Record]:
    """Records of all seeds, `jobs` children at a time."""
    cases = [FuzzCase(f"seed {seed}", seed) for seed in seeds]
    pieces = [cases[at : at + _CHUNK] for at in range(0, len(cases), _CHUNK)]
    records: list[Record] = []
    with ThreadPoolExecutor(jobs) as pool:
        for found in pool.map(lambda p: run_chunk(p, child="tests.gpu.fuzz_child"), pieces):
            records += found
            bad = sum("failure" in record for record in found)
            print(f"{found[0]['case']} and on: {len(found)} programs, {bad} failed", flush=True)
    return records


def main() -> int:
    """Run so many programs from a seed on."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--json", type=Path, help="write all records here")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    options = parser.parse_args()
    records = run_all(range(options.seed, options.seed + options.count), options.jobs)
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "records": records}, indent=1))
    for reason, count in Counter(r["refused"] for r in records if "refused" in r).most_common():
        print(f"{count:5} refused: {reason}")
    print(summary(records))
    return int(any("failure" in record for record in records))


def test_random_programs_mean_the_same_on_the_gpu() -> None:
    """A few; the script runs more."""
    assert summary(run_all(range(40), 2)).startswith("40 passed, 0 failed")


if __name__ == "__main__":
    sys.exit(main())
