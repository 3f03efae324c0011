"""Runs random programs on the GPU against the interpreter, one line of JSON each.

Idea: the programs, their inputs and what may differ are those of ``tests/fuzz``. What the compiler
refuses is counted and not run; a program that runs twice must give the same bits.

Never: retries a program; a hang ends this process, and ``test_fuzz`` goes on after it.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path
from typing import Any, TextIO

from tests.fuzz.programs import generate
from tests.fuzz.trials import apart, listed, meaning_of, said
from tests.gpu.fuzz_case import FuzzCase
from tests.gpu.program_child import _REPORTED, CASE_LIMIT_S
from tilec.diagnostics import DiagnosticError
from tilec.runtime.trial import gpu_child


def run(case: FuzzCase) -> dict[str, Any]:
    """One program; the record has `failure` when something is wrong, `refused` with a reason."""
    program = generate(case.seed)
    if "print(" in program.text or "assert " in program.text.replace("static_assert", ""):
        return {"case": case.name, "refused": "`print` and `assert`"}
    module, inputs, want = meaning_of(program)
    kernel = module.kernels[0]
    runs = []
    for _ in range(2):
        arrays = {name: array.copy() for name, array in inputs.arrays.items()}
        arrays |= {n: a.copy() for n, a in arrays.items() if n in want}
        try:
            found, *_ = gpu_child(("k.tk", program.text), "k", {}, {}, arrays, inputs.scalars)
        except DiagnosticError as error:
            item = listed(error.diagnostics[0])
            if item:
                return {"case": case.name, "refused": item}
            return {"case": case.name, "failure": said(error)}
        runs.append({name: array.copy() for name, array in found.items()})
    fault = apart(kernel, program, runs[0], want)
    if not fault and any(runs[0][n].tobytes() != runs[1][n].tobytes() for n in runs[0]):
        fault = "two runs differ"
    if fault:
        return {"case": case.name, "failure": fault, "text": program.text}
    return {"case": case.name}


def run_all(cases: list[FuzzCase], report: TextIO) -> None:
    """Run the cases in order; an exception ends a case, a CUDA error or a hang the process."""
    for case in cases:
        print(json.dumps({"case": case.name, "started": True}), file=report, flush=True)
        faulthandler.dump_traceback_later(CASE_LIMIT_S, exit=True)
        try:
            record = run(case)
        except _REPORTED as error:
            record = {"case": case.name, "failure": f"{type(error).__name__}: {error}"}
            if "CUDA" in str(error):
                print(json.dumps(record), file=report, flush=True)
                sys.exit(1)  # the context is lost: the parent starts afresh
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(record), file=report, flush=True)


def main(arguments: list[str]) -> int:
    """`fuzz_child CASES.json REPORT.jsonl`."""
    cases = [FuzzCase(**record) for record in json.loads(Path(arguments[0]).read_text())]
    with Path(arguments[1]).open("a") as report:
        run_all(cases, report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
