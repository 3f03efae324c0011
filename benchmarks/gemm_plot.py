"""A suite as a picture: the rate of each contestant over the amount of work.

Invariants: drawn from what was measured in the run, nothing else; without matplotlib (the extra
`plot`) nothing is drawn, and the answer says so.

Never: smooths, or leaves out a point.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.gemm_suite import SuiteResult


def points(suite: SuiteResult) -> dict[str, list[tuple[float, float, str]]]:
    """Work in TFLOP, rate in TFLOP/s and title of each row, by contestant."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    for result in suite.rows:
        for case in result.comparison.cases if result.comparison is not None else []:
            spread = case.seconds("cool")
            if spread is not None:
                work = result.row.work
                found.setdefault(case.name, []).append((work, work / spread[0], result.row.title))
    return {name: sorted(rows) for name, rows in found.items()}


def draw(suite: SuiteResult, folder: Path) -> str:
    """Save the picture beside the JSON; says where, or why not."""
    try:
        import matplotlib
    except ImportError:
        return "no plot: matplotlib is not installed (`pip install tilec[plot]`)"
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5))
    for name, rows in points(suite).items():
        axes.plot([w for w, _, _ in rows], [r for _, r, _ in rows], marker="o", label=name)
    axes.set_xscale("log")
    axes.set_xlabel("TFLOP of one launch")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(f"gemm, {suite.name}")
    axes.grid(alpha=0.3)
    axes.legend()
    path = folder / f"gemm-suite-{suite.name}.svg"
    figure.savefig(path, bbox_inches="tight")
    pyplot.close(figure)
    return f"plot: {path}"
