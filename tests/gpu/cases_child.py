"""Runs cases from the field on the GPU, one line of JSON each, as a child of `test_cases`.

A case's line is written before it runs and again with its result; a hung case ends this process.
Arrays of NumPy travel to the GPU and back, so the checks are those of `tests/cases`.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from pathlib import Path

from tests.cases.case import CASES, Runner, all_cases
from tilec.diagnostics import DiagnosticError
from tilec.runtime.kernel import gpu_available

CASE_LIMIT_S = 60.0


def main(arguments: list[str]) -> int:
    """`cases_child REPORT.jsonl ID...`."""
    if not gpu_available():
        print("there is no GPU that CUDA can use here")
        return 1
    all_cases()
    with Path(arguments[0]).open("a") as report:
        for id in arguments[1:]:
            print(json.dumps({"case": id, "started": True}), file=report, flush=True)
            faulthandler.dump_traceback_later(CASE_LIMIT_S, exit=True)
            record = {"case": id}
            try:
                CASES[id].check(Runner())
            except (
                AssertionError,
                ArithmeticError,
                LookupError,
                RuntimeError,
                TypeError,
                ValueError,
                DiagnosticError,
            ) as error:
                record["failure"] = f"{type(error).__name__}: {error}"
            faulthandler.cancel_dump_traceback_later()
            print(json.dumps(record), file=report, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
