"""The benchmark protocol: what is timed, in which order, and how the table is made."""

from __future__ import annotations

import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from benchmarks import harness
from benchmarks.harness import Case, CaseResult, Comparison, Protocol, Reading, WrongResult


class _Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: _Event) -> float:
        return max((other.at - self.at) * 1000, 1e-6)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for torch whose events read the CPU's clock."""
    torch: Any = types.ModuleType("torch")
    torch.int32 = "int32"
    torch.empty = torch.zeros = torch.amax = lambda *_, **__: None
    torch.cuda = types.SimpleNamespace(
        Event=_Event, synchronize=lambda: None, get_device_name=lambda: "a clock"
    )
    monkeypatch.setitem(sys.modules, "torch", torch)


_SHORT = Protocol(rounds=3, pause_s=0.0, warm_s=0.001, cool_s=0.004, hot_s=0.004)


def _case(name: str, log: list[str], seconds: float, error: float, role: str = "ours") -> Case:
    def launch() -> None:
        log.append(name)
        time.sleep(seconds)

    def check() -> float:
        log.append(f"check {name}")
        if error > 0.1:
            raise WrongResult(f"relative error {error}")
        return error

    return Case(name, launch, check, lambda: log.append(f"poison {name}"), role)


@pytest.mark.usefixtures("clock")
def test_numbers_are_checked_first_and_rounds_interleave() -> None:
    """Poison, one launch, check; then A B A B A B."""
    log: list[str] = []
    cases = [_case("a", log, 0.0005, 0.0), _case("b", log, 0.0005, 0.0, "peer")]
    result = harness.compare("t", 1.0, "u", cases, _SHORT, report=lambda text: None)
    assert log[:6] == ["poison a", "a", "check a", "poison b", "b", "check b"]
    turns = [name for name, before in zip(log[6:], ["", *log[6:]], strict=False) if name != before]
    assert turns == ["a", "b"] * 3
    assert [len(case.readings) for case in result.cases] == [6, 6]


@pytest.mark.usefixtures("clock")
def test_a_wrong_result_is_reported_and_never_timed() -> None:
    """A fast wrong kernel must not look good."""
    log: list[str] = []
    said: list[str] = []
    cases = [_case("wrong", log, 0.0, 1.0), _case("right", log, 0.0005, 0.0)]
    result = harness.compare("t", 1.0, "u", cases, _SHORT, report=said.append)
    assert log.count("wrong") == 1
    assert result.cases[0].failure == "relative error 1.0"
    assert result.cases[0].readings == []
    assert "relative error 1.0" in result.table()
    assert said[0].startswith("wrong:")


@pytest.mark.usefixtures("clock")
def test_a_slower_case_reads_slower() -> None:
    """Both readings follow the work."""
    log: list[str] = []
    cases = [_case("slow", log, 0.004, 0.0), _case("fast", log, 0.0005, 0.0)]
    result = harness.compare("t", 1.0, "u", cases, _SHORT, report=lambda text: None)
    for kind in ("cool", "hot"):
        slow, fast = (case.seconds(kind) for case in result.cases)
        assert slow is not None
        assert fast is not None
        assert slow[0] > 2 * fast[0]


def _recorded() -> Comparison:
    def case(name: str, role: str, cool: list[float]) -> CaseResult:
        readings = [Reading("cool", seconds, 10, 1500.0, 690.0) for seconds in cool]
        return CaseResult(name, role, 1e-3, readings)

    found = Comparison("gemm", 2.0, "TFLOP/s", Protocol(), "GPU", "today")
    found.cases = [
        case("ours", "ours", [0.010, 0.012, 0.011]),
        case("lib", "peer", [0.022, 0.022, 0.022]),
        case("other", "peer", [0.033, 0.033, 0.033]),
        case("ref", "reference", [0.0055, 0.0055, 0.0055]),
    ]
    return found


def test_the_table_gives_medians_spreads_and_ratios() -> None:
    """Median of three rounds; ratios above 1 mean faster than the other."""
    found = _recorded()
    assert found.cases[0].seconds("cool") == (0.011, 0.010, 0.012)
    best = found.best("peer", "cool")
    assert best is not None
    assert best.name == "lib"
    row = next(line for line in found.table().splitlines() if line.startswith("| ours"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "181.8 [166.7-200]"
    assert cells[3:5] == ["2.000", "0.500"]
    assert cells[6:] == ["1500", "690"]


def test_results_are_written_as_json(tmp_path: Path) -> None:
    """Every reading is kept."""
    path = _recorded().save("gemm 8192", tmp_path)
    assert path.name == "gemm-8192.json"
    stored = json.loads(path.read_text())
    assert stored["cases"][0]["readings"][1]["seconds"] == 0.012
