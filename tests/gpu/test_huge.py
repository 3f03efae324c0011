"""Are examples right on arrays of more than 2^31 elements?

    python -m tests.gpu.test_huge --json out.json

Each case runs in a supervised child; it needs about 20 GiB of GPU memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import pytest

from tests.gpu.test_programs import Record, summary
from tilec.runtime.supervise import SupervisedError, run_script

CASES = ("add", "softmax", "cross_entropy", "gemm", "far_rows")
_LIMIT_S = 120.0
_CHECKOUT = Path(__file__).resolve().parents[2]


def run(case: str) -> Record:
    """The record of one case."""
    paths = [str(_CHECKOUT), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, "-m", "tests.gpu.huge_child", case]
    try:
        output = run_script(
            command,
            limit_s=_LIMIT_S,
            environment={"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
    except SupervisedError as error:
        return {"case": case, "failure": f"{error} {error.output[-400:]}"}
    found: Record = json.loads(output.output.strip().splitlines()[-1])
    return found


def main() -> int:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, help="write all records here")
    options = parser.parse_args()
    records = [run(case) for case in CASES]
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))
    print(summary(records))
    return int(any("failure" in record for record in records))


@pytest.mark.parametrize("case", CASES)
def test_beyond_two_to_the_31_elements(case: str) -> None:
    assert "failure" not in run(case)


if __name__ == "__main__":
    sys.exit(main())
