"""Suites of products: what stands in them, what their files and tables say, and that none ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gemm_plot, gemm_suite
from benchmarks.gemm_cases import Row
from benchmarks.gemm_suite import QUICK, SUITES, RowResult, SuiteResult
from benchmarks.harness import CaseResult, Comparison, Reading

_TN, _NN = Row("gemm", (4096, 4096, 4096)), Row("gemm", (4096, 4096, 4096), "NN")


def _compared(row: Row, **seconds: float) -> Comparison:
    roles = {"tilec": "ours", "alone": "plain"}
    cases = [
        CaseResult(name, roles.get(name, "peer"), 0.0, [Reading("cool", each, 10, None, None)])
        for name, each in seconds.items()
    ]
    return Comparison(row.title, row.work, "TFLOP/s", QUICK, "a chip", "today", cases)


def _suite() -> SuiteResult:
    return SuiteResult(
        "layouts",
        "stages=3",
        [
            RowResult(_TN, _compared(_TN, tilec=1.0, cuBLAS=2.0, Triton=3.0)),
            RowResult(_NN, _compared(_NN, tilec=2.0, cuBLAS=1.0)),
            RowResult(Row("s8", (8, 8, 8)), failure="Refused: no"),
        ],
    )


def test_ratios_are_to_the_best_peer_and_their_mean_is_geometric() -> None:
    found = _suite().summary()
    assert found["geometric_mean"] == pytest.approx(1.0)
    assert (found["worst"], found["rows"], found["without"]) == (0.5, 2, 1)
    assert _suite().summary("TN")["worst"] == 0.5


def test_the_file_says_what_failed_and_what_was_pinned(tmp_path: Path) -> None:
    record = json.loads(_suite().save(tmp_path).read_text())
    assert record["pinned"] == "stages=3"
    assert [row["failure"] for row in record["rows"]] == [None, None, "Refused: no"]
    assert record["rows"][0]["ratios"]["peer"] == 2.0
    table = _suite().table()
    assert "pinned stages=3" in table
    assert "Refused: no" in table
    assert "geometric mean 1.000 of 2 rows, worst 0.500" in table


def test_a_row_that_cannot_be_made_does_not_end_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    def contestants(row: Row, *_: Any) -> list[Any]:
        if row is SUITES["skinny"][1]:
            raise ValueError("no such product\nand more")
        return []

    def compare(title: str, work: float, *_: Any, **__: Any) -> Comparison:
        return Comparison(title, work, "TFLOP/s", QUICK, "a chip", "today")

    monkeypatch.setattr(gemm_suite, "contestants", contestants)
    monkeypatch.setattr(gemm_suite, "compare", compare)
    done = gemm_suite.run_suite("skinny", QUICK, report=lambda _: None)
    assert len(done.rows) == len(SUITES["skinny"])
    assert [r.failure for r in done.rows if r.failure] == ["ValueError: no such product"]


def test_random_rows_are_the_same_in_every_run_and_in_no_other_suite() -> None:
    rows = SUITES["random"]
    assert rows == gemm_suite._random_rows()
    assert len(set(rows)) == 20
    assert not set(rows) & {row for name in SUITES if name != "random" for row in SUITES[name]}


def test_without_matplotlib_the_plot_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "not installed" in gemm_plot.draw(_suite(), tmp_path)
    assert [len(rows) for rows in gemm_plot.points(_suite()).values()] == [2, 2, 1]
