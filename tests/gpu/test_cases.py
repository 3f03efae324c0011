"""Are the cases from the field right on this GPU, each in a supervised child?

python -m tests.gpu.test_cases [--json FILE] [ID ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.cases.case import all_cases
from tests.gpu.test_programs import _ended

_LIMIT_S = 400.0

Record = dict[str, Any]


def run_cases(ids: list[str]) -> list[Record]:
    """The record of each case; a child that ends early costs the case that it was at."""
    records: list[Record] = []
    left = list(ids)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.jsonl"
            report.touch()
            said = _ended(
                [sys.executable, "-m", "tests.gpu.cases_child", str(report), *left], _LIMIT_S
            )
            lines = [json.loads(line) for line in report.read_text().splitlines()]
        done = [line for line in lines if "started" not in line]
        records += done
        left = left[len(done) :]
        if left and said:
            records.append({"case": left[0], "failure": said})
            left = left[1:]
    return records


@pytest.mark.parametrize("id", [case.id for case in all_cases()])
def test_the_case_is_right_on_this_gpu(id: str) -> None:
    (record,) = run_cases([id])
    assert "failure" not in record, record["failure"]


def main() -> int:
    """Run them, print what failed, and write all records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    records = run_cases(given.ids or [case.id for case in all_cases()])
    if given.json:
        given.json.write_text(json.dumps(records, indent=1) + "\n")
    failed = [record for record in records if "failure" in record]
    for record in failed:
        print(f"{record['case']}: {record['failure']}")
    print(f"{len(records) - len(failed)} of {len(records)} cases are right")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
