"""A script of cases in parts: each part in a supervised child, several side by side, one summary.

Never: knows what a case is; a part's function gives records with ``case``, ``ok`` and ``why``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tilec.runtime import supervise

Record = dict[str, Any]
Part = TypeVar("Part")


def run_parts(
    description: str,
    child: Callable[[Part, str], list[Record]],
    parts: Sequence[Part],
    named: Callable[[Part], str],
    limit_s: float,
) -> int:
    """Run all parts as the command line asks; the exit code says whether any case failed.

    A part whose child ends, or is stopped after ``limit_s`` seconds, is one failed case.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write all records here")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    options = parser.parse_args()

    def supervised(part: Part) -> list[Record]:
        try:
            found: list[Record] = supervise.run(child, part, options.only, limit_s=limit_s)
        except RuntimeError as error:
            return [{"case": named(part), "ok": False, "why": str(error)}]
        return found

    with ThreadPoolExecutor(options.jobs) as pool:
        records = [record for found in pool.map(supervised, parts) for record in found]
    failed = [record for record in records if not record["ok"]]
    for record in failed:
        print(f"{record['case']}: {record['why']}")
    print(f"{len(records) - len(failed)} passed, {len(failed)} failed")
    if options.json:
        options.json.write_text(json.dumps({"records": records}, indent=1))
    return int(bool(failed))
