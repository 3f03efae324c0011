"""Are the example programs right on this GPU, for every case of the acceptance list?

Idea: the cases run in supervised children, several at once (compiling is most of the work).  A
child that hangs or crashes costs one case: its report names the case, and a new child takes the
rest.

    python -m tests.gpu.test_programs --json out.json [--only WORDS] [--jobs 8] [--seed N]
    python -m tests.gpu.test_programs --sanitizer

Invariants: every case ends up with exactly one record; the failures are printed last.

Never: runs a kernel in this process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.cases import Case, all_cases, matching, small_cases
from tilec.runtime.supervise import SupervisedError, run_script

Record = dict[str, Any]

CHUNK = 120
_START_S, _EACH_S = 120.0, 5.0
_MOST_CRASHES = 8  # of one chunk; more than that is one fault seen again and again
_SHOWN = 24  # failures in full; all are in the JSON file
_CHILD = "tests.gpu.program_child"
_CHECKOUT = Path(__file__).resolve().parents[2]


def chunks(cases: Sequence[Case], size: int = CHUNK) -> list[list[Case]]:
    """Cases that share code together, at most `size` a chunk."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group[:2], []).append(case)
    found = []
    for group in groups.values():
        group.sort(key=lambda case: case.group)
        found += [group[start : start + size] for start in range(0, len(group), size)]
    return found


def run_chunk(
    cases: Sequence[Any], prefix: Sequence[str] = (), slower: float = 1.0, child: str = ""
) -> list[Record]:
    """Records of a chunk, one a case, in as many children as it takes.

    A case is a dataclass with a ``name``; ``child`` is the module that runs a list of them.
    """
    records: list[Record] = []
    left, crashes = list(cases), 0
    with tempfile.TemporaryDirectory(prefix="tilec-cases-") as folder:
        while left:
            asked, report = Path(folder) / "cases.json", Path(folder) / f"report{crashes}.jsonl"
            asked.write_text(json.dumps([asdict(case) for case in left]))
            command = [*prefix, sys.executable, "-m", child or _CHILD, str(asked), str(report)]
            limit_s = slower * (_START_S + _EACH_S * len(left))
            reason = _ended(command, limit_s)
            done, hung = _read(report)
            records += done
            seen = {record["case"] for record in done}
            left = [case for case in left if case.name not in seen]
            if not left and reason:
                records[-1].setdefault("failure", reason)  # the last words came after all results
            if not left:
                break
            crashes += 1
            blamed = hung or left[0].name
            records.append({"case": blamed, "failure": reason or "the child left it out"})
            left = [case for case in left if case.name != blamed]
            if crashes == _MOST_CRASHES:
                why = f"not run: {crashes} children of this chunk crashed, the last: {reason}"
                records += [{"case": case.name, "failure": why} for case in left]
                break
    return records


def _ended(command: list[str], limit_s: float) -> str:
    """Run the child; empty when it ended well, else why not, with its last lines."""
    paths = [str(_CHECKOUT), os.environ.get("PYTHONPATH", "")]
    environment = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    try:
        run_script(command, limit_s=limit_s, environment=environment)
    except SupervisedError as error:
        head = str(error).partition("\n")[0].replace(" ".join(command), "the child")
        lines = [line.strip() for line in error.output.splitlines() if line.strip()]
        findings = [line.strip("= ") for line in lines if line.startswith("=====")]
        return " | ".join([head, *(findings[-12:] or lines[-3:])])
    return ""


def _read(report: Path) -> tuple[list[Record], str]:
    """The finished records of a report, and the name of the case that was running at its end."""
    if not report.exists():
        return [], ""
    done: list[Record] = []
    running = ""
    for line in report.read_text().splitlines():
        record = json.loads(line)
        if record.get("started"):
            running = record["case"]
        else:
            done.append(record)
            running = ""
    return done, running


def run_all(cases: Sequence[Case], jobs: int) -> list[Record]:
    """Records of all cases, `jobs` children at a time."""
    pieces = chunks(cases)
    records: list[Record] = []
    with ThreadPoolExecutor(jobs) as pool:
        for number, found in enumerate(pool.map(run_chunk, pieces), start=1):
            records += found
            bad = sum("failure" in record for record in found)
            print(f"chunk {number} of {len(pieces)}: {len(found)} cases, {bad} failed", flush=True)
    return records


def sanitize() -> list[Record]:
    """The small cases under memcheck and synccheck of compute-sanitizer."""
    tool = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin"
    )
    if tool is None:
        raise SystemExit("compute-sanitizer is not installed; it comes with the CUDA toolkit")
    records = []
    for check in ("memcheck", "synccheck"):
        # Looking up optional driver entry points fails by design; our own calls check their status.
        quiet = ["--report-api-errors", "no"]
        prefix = [tool, "--tool", check, "--error-exitcode", "9", "--print-limit", "5", *quiet]
        for cases in chunks(small_cases()):
            found = run_chunk(cases, prefix, slower=4.0)
            records += [{**record, "case": f"{check}: {record['case']}"} for record in found]
    return records


def summary(records: Sequence[Record]) -> str:
    """Counts, then the failures, which come last."""
    bad = [record for record in records if "failure" in record]
    lines = [f"{len(records) - len(bad)} passed, {len(bad)} failed"]
    if bad:
        lines += ["", "| case | failure |", "| --- | --- |"]
        lines += [
            f"| {r['case']} | {' '.join(str(r['failure']).split())[:240]} |" for r in bad[:_SHOWN]
        ]
    return "\n".join(lines)


def main() -> int:
    """Run the list, or the part of it that `--only` leaves."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, help="write all records here")
    parser.add_argument("--only", default="", help="words that a case's name must hold")
    parser.add_argument("--most", type=int, default=0, help="at most so many cases, evenly taken")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--sanitizer", action="store_true", help="small cases, memory and barriers")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    if options.sanitizer:
        records = sanitize()
    else:
        cases = matching(all_cases(options.seed), options.only)
        if options.most and len(cases) > options.most:
            cases = [cases[i * len(cases) // options.most] for i in range(options.most)]
        records = run_all(cases, options.jobs)
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "records": records}, indent=1))
    print(summary(records))
    return int(any("failure" in record for record in records))


@pytest.mark.parametrize("program", ["gemm bf16", "gemm f16", "add", "softmax"])
def test_the_program_is_as_right_as_torch(program: str) -> None:
    """An even selection of the list; the script runs all of it."""
    cases = matching(all_cases(seed=1), program)
    records = run_chunk(cases[:: max(1, len(cases) // CHUNK)])
    assert summary([record for record in records if "failure" in record]) == "0 passed, 0 failed"


if __name__ == "__main__":
    sys.exit(main())
