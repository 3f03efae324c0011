"""Stands in for the GPU child of tests/gpu/test_programs: answers, raises, crashes or hangs.

The seed of a case says what becomes of it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

PASSES, FAILS, CRASHES = 0, 1, 2


def main(arguments: list[str]) -> None:
    """`fake_child CASES.json REPORT.jsonl`."""
    with Path(arguments[1]).open("a") as report:
        for case in json.loads(Path(arguments[0]).read_text()):
            sizes = "x".join(map(str, case["sizes"]))
            arrays = ",".join(o["view"] for o in case["operands"])
            name = f"{case['program']} {case['dtype']} {sizes} {arrays} seed={case['seed']}"
            print(json.dumps({"case": name, "started": True}), file=report, flush=True)
            if case["seed"] == CRASHES:
                print("the last words", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            record = {"case": name} | ({"failure": "wrong"} if case["seed"] == FAILS else {})
            print(json.dumps(record), file=report, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
