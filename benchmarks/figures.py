"""Write the README's table of figures from the results on disk.

Idea: a figure in the README is a quotation.  This script is the only writer of the lines between
the two markers; each row names the result file that it was read from.

Invariants: only files that `benchmarks.harness` saved are read; a case that failed is shown with
its failure; the same results give the same lines.

Never: measures, or fills in a figure that no file holds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
_NONE = "No results are recorded yet."


def table(folder: Path = RESULTS) -> str:
    """The Markdown table of all comparisons in a folder."""
    rows: list[str] = []
    devices: set[str] = set()
    for path in sorted(folder.glob("*.json")):
        comparison = json.loads(path.read_text())
        if not isinstance(comparison, dict) or "cases" not in comparison:
            continue  # another script's record
        devices.add(str(comparison["device"]))
        rows += _rows(comparison, path.name)
    if not rows:
        return _NONE
    head = [
        f"On {', '.join(sorted(devices))}; medians of all rounds.",
        "",
        "| work | case | cool | hot | of the best peer, cool | error | file |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *rows])


def _rows(comparison: dict[str, Any], file: str) -> list[str]:
    peers = [_rate(comparison, c, "cool") for c in comparison["cases"] if c["role"] == "peer"]
    best = max((rate for rate in peers if rate is not None), default=None)
    rows = []
    for case in comparison["cases"]:
        cool, hot = (_rate(comparison, case, kind) for kind in ("cool", "hot"))
        share = "" if cool is None or best is None else f"{cool / best:.3f}"
        shown = case["failure"] or _number(cool, comparison["unit"])
        error = "" if case["failure"] else f"{case['error']:.1e}"
        cells = [comparison["title"], case["name"], shown, _number(hot, comparison["unit"])]
        rows.append(f"| {' | '.join([*cells, share, error, f'`{file}`'])} |")
    return rows


def _rate(comparison: dict[str, Any], case: dict[str, Any], kind: str) -> float | None:
    times = [r["seconds"] for r in case["readings"] if r["kind"] == kind]
    return float(comparison["work"]) / statistics.median(times) if times else None


def _number(rate: float | None, unit: str) -> str:
    return "" if rate is None else f"{rate:.4g} {unit}"


def rewritten(readme: str, figures: str) -> str:
    """The README's text with the lines between the markers replaced."""
    before, rest = readme.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    return f"{before}{BEGIN}\n{figures}\n{END}{after}"


def main() -> None:
    """Rewrite the figures of README.md."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON files")
    options = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    README.write_text(rewritten(text, table(options.results)), encoding="utf-8")


if __name__ == "__main__":
    main()
