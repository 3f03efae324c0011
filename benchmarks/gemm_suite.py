"""Suites of products: every row against its peers, and what they come to together.

    python -m benchmarks.gemm --suite [NAME] [--rounds 3] [--results DIR] [--pin KEY=VALUE,...]

Idea: a suite is a list of rows; the harness checks and times each with its contestants interleaved.
What is read is the ratio of the best peer's time to ours, row by row, and its geometric mean.

Invariants: a row whose contestants cannot be made, and a contestant that fails, are recorded with
the reason and counted; a suite's file says which rows stood in it, how they were timed, and what
was pinned.

Never: drops a row, or ends because one failed.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.gemm_cases import Row, contestants
from benchmarks.harness import FAILURES, RESULTS, Comparison, Protocol, compare, said
from tilec.ir.facts import Schedule

_CUBES = (512, 1024, 2048, 4096, 8192, 16384)
_OTHERS = (
    (4096, 14336, 4096), (8192, 8192, 28672), (4096, 4096, 14336), (256, 4096, 4096),
    (5000, 5000, 5000), (1000, 3000, 776),
)  # fmt: skip
_SEED, _COUNT = 20, 20
QUICK = Protocol(rounds=3, pause_s=0.25, warm_s=0.01, cool_s=0.05, hot=False)
"""Short enough for all suites in one go."""


def _random_rows() -> list[Row]:
    """Sizes from 128 to 12288, alike likely in each octave, of multiples of 8, 16 or 64."""
    numbers = random.Random(_SEED)

    def size() -> int:
        step = numbers.choice((8, 16, 64))
        extent: float = 128 * 96 ** numbers.random()
        return max(1, round(extent / step)) * step

    return [Row("gemm", (size(), size(), size())) for _ in range(_COUNT)]


def _rows() -> dict[str, list[Row]]:
    wide = [Row("gemm", (m, 8192, 8192)) for m in (1, 16, 64, 128)]
    long = [Row("gemm", (128, 128, 131072)), Row("gemm", (4097, 4097, 4097))]
    return {
        "dense": [Row("gemm", shape) for shape in (*((n, n, n) for n in _CUBES), *_OTHERS)],
        "layouts": [
            Row("gemm", (n, n, n), form) for n in (4096, 8192) for form in ("TN", "NN", "NT", "TT")
        ],
        "skinny": [*wide, *long],
        "types": [
            *(Row("fp8", (n, n, n), dtype="e4m3") for n in (4096, 8192)),
            Row("fp8 rows", (8192, 8192, 8192), dtype="e4m3"),
            Row("s8", (8192, 8192, 8192), dtype="s8"),
            Row("tf32", (8192, 8192, 8192), dtype="f32"),
            Row("gemm", (8192, 8192, 8192), dtype="f16"),
        ],
        "epilogue": [Row("bias+gelu", (8192, 14336, 4096))],
        "batched": [Row("batched", (1024, 1024, 1024), batches=64)],
        "random": _random_rows(),
    }


SUITES = _rows()
AGAINST = ("peer", "reference", "plain", "TN")
"""What ours is compared with: roles of other contestants, and ours on operands as TN has them."""


@dataclass
class RowResult:
    """A row, and its comparison or why there is none."""

    row: Row
    comparison: Comparison | None = None
    failure: str | None = None

    def seconds(self, role: str) -> float | None:
        """The median of the fastest case of a role."""
        best = self.comparison.best(role, "cool") if self.comparison is not None else None
        spread = best.seconds("cool") if best is not None else None
        return spread[0] if spread is not None else None

    def rate(self, role: str) -> float | None:
        """TFLOP/s of the fastest of a role."""
        seconds = self.seconds(role)
        return self.row.work / seconds if seconds is not None else None

    def trouble(self) -> str:
        """What failed, in words."""
        if self.failure is not None:
            return self.failure
        cases = self.comparison.cases if self.comparison is not None else []
        return "; ".join(f"{c.name}: {c.failure}" for c in cases if c.failure is not None)


@dataclass
class SuiteResult:
    """All rows of a suite, and what they come to."""

    name: str
    pinned: str
    rows: list[RowResult] = field(default_factory=list)
    seconds: float = 0.0

    def ratio(self, result: RowResult, against: str) -> float | None:
        """How many times as fast ours is as something of `AGAINST`."""
        ours, other = result.seconds("ours"), result.seconds(against)
        if against == "TN" and result.row.form != "TN":
            alike = replace(result.row, form="TN")
            other = next((r.seconds("ours") for r in self.rows if r.row == alike), None)
        return other / ours if ours is not None and other is not None else None

    def summary(self, against: str = "peer") -> dict[str, Any]:
        """Geometric mean and worst of the ratios, and how many rows have none."""
        known = [(self.ratio(r, against), r.row.title) for r in self.rows]
        ratios = [(ratio, title) for ratio, title in known if ratio is not None]
        if not ratios:
            return {"rows": 0, "without": len(known)}
        worst = min(ratios)
        return {
            "rows": len(ratios),
            "without": len(known) - len(ratios),
            "geometric_mean": geometric_mean(ratio for ratio, _ in ratios),
            "worst": worst[0],
            "worst_row": worst[1],
        }

    def table(self) -> str:
        """The suite as a Markdown table."""
        pinned = f", pinned {self.pinned}" if self.pinned else ""
        lines = [
            f"### gemm, {self.name}{pinned}",
            "",
            "| row | ours TFLOP/s | best peer | | to peer | to reference | to plain | to TN "
            "| remarks |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        lines += [self._line(row) for row in self.rows]
        for against in AGAINST:
            found = self.summary(against)
            if found["rows"]:
                lines += [
                    "",
                    f"To {against}: geometric mean {found['geometric_mean']:.3f} of "
                    f"{found['rows']} rows, worst {found['worst']:.3f} ({found['worst_row']}).",
                ]
        return "\n".join(lines)

    def _line(self, result: RowResult) -> str:
        peer = result.comparison.best("peer", "cool") if result.comparison is not None else None
        cells = [
            result.row.title,
            _number(result.rate("ours"), ".4g"),
            _number(result.rate("peer"), ".4g"),
            peer.name if peer is not None else "",
            *(_number(self.ratio(result, against), ".3f") for against in AGAINST),
            result.trouble().replace("|", "/"),
        ]
        return f"| {' | '.join(cells)} |"

    def save(self, folder: Path) -> Path:
        """Write the suite as JSON."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"gemm-suite-{self.name}.json"
        rows = [
            {
                **asdict(result),
                "title": result.row.title,
                "work": result.row.work,
                "ratios": {against: self.ratio(result, against) for against in AGAINST},
            }
            for result in self.rows
        ]
        record = {
            "suite": self.name,
            "pinned": self.pinned,
            "seconds": round(self.seconds, 1),
            "unit": "TFLOP/s",
            "summary": {against: self.summary(against) for against in AGAINST},
            "rows": rows,
        }
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        return path


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def run_suite(
    name: str,
    protocol: Protocol,
    schedule: Schedule | None = None,
    pinned: str = "",
    folder: str | None = None,
    report: Callable[[str], object] = print,
) -> SuiteResult:
    """Time every row of a suite."""
    result = SuiteResult(name, pinned)
    begin = time.perf_counter()
    for row in SUITES[name]:
        found = RowResult(row)
        result.rows.append(found)
        try:
            cases = contestants(row, folder, schedule)
            found.comparison = compare(
                row.title, row.work, "TFLOP/s", cases, protocol, report=lambda _: None
            )
        except FAILURES as error:
            found.failure = said(error)
        ratio = _number(result.ratio(found, "peer"), ".3f") or "no ratio"
        report(f"{row.title}: {ratio} {found.trouble()}".rstrip())
    result.seconds = time.perf_counter() - begin
    return result


def run_suites(
    names: Sequence[str],
    protocol: Protocol,
    schedule: Schedule | None,
    pinned: str,
    folder: str | None,
    results: Path | None,
    plot: bool,
) -> None:
    """Time suites, save each as soon as it is done, and print their tables."""
    done = []
    for name in names:
        found = run_suite(name, protocol, schedule, pinned, folder)
        found.save(results or RESULTS)
        done.append(found)
        print(f"\n{found.table()}\n\n({found.seconds:.0f} s)\n", flush=True)
        if plot:
            from benchmarks.gemm_plot import draw

            print(draw(found, results or RESULTS), flush=True)
