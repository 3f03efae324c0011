"""Time kernels against their peers so that the ratio can be believed.

Idea: a large kernel on this chip is limited by power, so its time depends on what ran before it.
All cases of a comparison therefore run in one process, interleaved A B A B for several rounds, each
after the same idle pause.  Two readings are taken: "cool" (a short burst, L2 flushed before each
launch) and "hot" (launches back to back until the clock has settled).

Invariants: no case is timed before its numbers were checked on outputs that had been filled with
NaN; medians carry their lowest and highest round; clock and power are recorded with each reading.

Never: ranks cases by one round, or drops a round.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from tilec.diagnostics import DiagnosticError

RESULTS = Path(__file__).parent / "results"
_FLUSH_BYTES = 256 * 1024 * 1024  # several times the L2 of any target
_BATCH_S = 0.02


@dataclass(frozen=True)
class Protocol:
    """How long and how often; the defaults are those of the published tables."""

    rounds: int = 3
    pause_s: float = 0.6
    warm_s: float = 0.030
    cool_s: float = 0.120
    hot_s: float = 0.5
    hot: bool = True


@dataclass(frozen=True)
class Case:
    """One contestant.

    `launch` puts one run of the work on the current stream and returns at once.  `check` runs after
    `poison` and one launch; it returns the relative error, or raises `WrongResult`.  `role` is
    ours, peer or reference.
    """

    name: str
    launch: Callable[[], object]
    check: Callable[[], float]
    poison: Callable[[], object]
    role: str = "ours"


class WrongResult(RuntimeError):
    """A contestant computed something else; it is reported and not timed."""


#: What a contestant may raise where it cannot do the work; it is reported and not timed.
FAILURES = (
    ArithmeticError, AttributeError, DiagnosticError, ImportError, LookupError, OSError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """One round's median time of a launch, and the chip's state while it was taken."""

    kind: str
    seconds: float
    launches: int
    clock_mhz: float | None
    power_w: float | None


@dataclass
class CaseResult:
    """All readings of one case."""

    name: str
    role: str
    error: float
    readings: list[Reading] = field(default_factory=list)
    failure: str | None = None

    def seconds(self, kind: str) -> tuple[float, float, float] | None:
        """Median, lowest and highest round of the "cool" or "hot" readings."""
        times = [reading.seconds for reading in self.readings if reading.kind == kind]
        return (statistics.median(times), min(times), max(times)) if times else None


@dataclass
class Comparison:
    """One workload, its cases, and what one launch is worth (`work` in `unit` x seconds)."""

    title: str
    work: float
    unit: str
    protocol: Protocol
    device: str
    taken: str
    cases: list[CaseResult] = field(default_factory=list)

    def best(self, role: str, kind: str) -> CaseResult | None:
        """The fastest case of a role."""
        timed = [case for case in self.cases if case.role == role and case.seconds(kind)]
        return min(timed, key=lambda case: _median(case, kind), default=None)

    def save(self, name: str | None = None, folder: Path = RESULTS) -> Path:
        """Write the comparison as JSON; returns the file."""
        folder.mkdir(parents=True, exist_ok=True)
        words = "".join(c if c.isalnum() else "-" for c in (name or self.title)).strip("-")
        path = folder / f"{words}.json"
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path

    def table(self) -> str:
        """A Markdown table: medians [low-high], ratios to the best peer and to the reference."""
        lines = [
            f"### {self.title} ({self.device}, {self.taken})",
            "",
            f"| case | cool {self.unit} | hot {self.unit} | to best peer | to reference | error "
            "| MHz | W |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        lines += [self._row(case) for case in self.cases]
        return "\n".join(lines)

    def _row(self, case: CaseResult) -> str:
        if case.failure is not None:
            return f"| {case.name} | {case.failure} | | | | {case.error:.2e} | | |"
        cells = [
            case.name,
            self._rate(case, "cool"),
            self._rate(case, "hot"),
            self._ratio(case, "peer"),
            self._ratio(case, "reference"),
            f"{case.error:.2e}",
            _mean([r.clock_mhz for r in case.readings]),
            _mean([r.power_w for r in case.readings]),
        ]
        return f"| {' | '.join(cells)} |"

    def _rate(self, case: CaseResult, kind: str) -> str:
        spread = case.seconds(kind)
        if spread is None:
            return ""
        median, low, high = (self.work / seconds for seconds in spread)
        return f"{median:.4g} [{high:.4g}-{low:.4g}]"

    def _ratio(self, case: CaseResult, role: str) -> str:
        if case.role == role:
            return ""
        words = []
        for kind in ("cool", "hot"):
            other = self.best(role, kind)
            if other is not None and case.seconds(kind):
                words.append(f"{_median(other, kind) / _median(case, kind):.3f}")
        return " / ".join(words)


def _median(case: CaseResult, kind: str) -> float:
    spread = case.seconds(kind)
    return spread[0] if spread else float("inf")


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.mean(known):.0f}" if known else ""


# --- the chip's state --------------------------------------------------------------------------


class Sampler:
    """Samples clock and power in a thread, through pynvml or else nvidia-smi."""

    def __init__(self, ordinal: int = 0, interval_s: float = 0.01) -> None:
        """Nothing runs before the `with` block."""
        self._ordinal, self._interval_s = ordinal, interval_s
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._ask = _reader(ordinal)

    def __enter__(self) -> Sampler:
        """Start sampling."""
        if self._ask is not None:
            self._thread = threading.Thread(target=self._loop, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sampling."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        assert self._ask is not None
        while not self._stop.is_set():
            sample = self._ask()
            if sample is not None:
                self._samples.append(sample)
            self._stop.wait(self._interval_s)

    def medians(self) -> tuple[float | None, float | None]:
        """Median clock in MHz and power in W, or None where nothing was read."""
        if not self._samples:
            return None, None
        clocks, powers = zip(*self._samples, strict=True)
        return statistics.median(clocks), statistics.median(powers)


@cache
def _reader(ordinal: int) -> Callable[[], tuple[float, float] | None] | None:
    return _nvml_reader(ordinal) or _smi_reader(ordinal)


def _nvml_reader(ordinal: int) -> Callable[[], tuple[float, float] | None] | None:
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(ordinal)
        clock = pynvml.NVML_CLOCK_SM

        def ask() -> tuple[float, float] | None:
            try:
                power = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
                return float(pynvml.nvmlDeviceGetClockInfo(handle, clock)), float(power)
            except pynvml.NVMLError:
                return None

        return ask if ask() is not None else None
    except ImportError:
        return None
    except pynvml.NVMLError:
        return None


def _smi_reader(ordinal: int) -> Callable[[], tuple[float, float] | None] | None:
    command = ["nvidia-smi", f"--id={ordinal}", "--query-gpu=clocks.sm,power.draw"]
    command.append("--format=csv,noheader,nounits")

    def ask() -> tuple[float, float] | None:
        try:
            text = subprocess.run(
                command, capture_output=True, text=True, timeout=5, check=True
            ).stdout
            clock, power = text.strip().split(",")
            return float(clock), float(power)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None

    return ask if ask() is not None else None


# --- the readings ------------------------------------------------------------------------------


class _Timer:
    """Event timing on the current torch stream, with the L2 flush between launches."""

    def __init__(self) -> None:
        import torch  # type: ignore[import-not-found,unused-ignore]

        self._torch: Any = torch
        # Read, not written: dirty lines would be written back at the expense of what is timed.
        self._flush = torch.zeros(_FLUSH_BYTES // 4096, 1024, dtype=torch.int32, device="cuda")
        self._read = torch.empty(1024, dtype=torch.int32, device="cuda")

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def _event(self) -> Any:
        return self._torch.cuda.Event(enable_timing=True)

    def estimate_s(self, launch: Callable[[], object], count: int = 5) -> float:
        """Rough time of a launch, flushed; it also warms caches and clocks."""
        return max(statistics.median(self.flushed_s(launch, count)), 1e-6)

    def flushed_s(self, launch: Callable[[], object], count: int) -> list[float]:
        """`count` times of single launches, each after a flush of L2."""
        pairs = [(self._event(), self._event()) for _ in range(count)]
        for start, stop in pairs:
            self._torch.amax(self._flush, 0, out=self._read)
            start.record()
            launch()
            stop.record()
        self.synchronize()
        return [start.elapsed_time(stop) / 1000 for start, stop in pairs]

    def back_to_back_s(self, launch: Callable[[], object], total_s: float) -> tuple[float, int]:
        """Median time of a launch over the second half of `total_s` of uninterrupted work."""
        batch = max(1, int(_BATCH_S / self.estimate_s(launch)))
        marks = [self._event()]
        marks[0].record()
        begin, batches = time.perf_counter(), 0
        while batches < 4 or time.perf_counter() - begin < total_s:
            for _ in range(batch):
                launch()
            marks.append(self._event())
            marks[-1].record()
            batches += 1
            if batches >= 2:  # stay one batch ahead of the device, no further
                marks[-2].synchronize()
        self.synchronize()
        spans = [a.elapsed_time(b) / 1000 / batch for a, b in itertools.pairwise(marks)]
        return statistics.median(spans[len(spans) // 2 :]), batch * batches


def compare(
    title: str,
    work: float,
    unit: str,
    cases: Sequence[Case],
    protocol: Protocol | None = None,
    report: Callable[[str], object] = print,
) -> Comparison:
    """Check, then time all cases of one workload.

    `work` over seconds gives `unit`: 1e-12 x FLOP for TFLOP/s, 1e-9 x bytes for GB/s.
    """
    protocol = protocol or Protocol()
    timer = _Timer()
    import torch  # type: ignore[import-not-found,unused-ignore]

    comparison = Comparison(
        title,
        work,
        unit,
        protocol,
        torch.cuda.get_device_name(),
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    ready: list[tuple[Case, CaseResult]] = []
    for case in cases:
        result = _checked(case, timer)
        comparison.cases.append(result)
        if result.failure is None:
            ready.append((case, result))
        else:
            report(f"{case.name}: {result.failure}")
    for _ in range(protocol.rounds):
        for case, result in ready:
            result.readings.append(_cool(case, timer, protocol))
            if protocol.hot:
                result.readings.append(_hot(case, timer, protocol))
    report(comparison.table())
    return comparison


def said(error: Exception) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _checked(case: Case, timer: _Timer) -> CaseResult:
    try:
        case.poison()
        case.launch()
        timer.synchronize()
        return CaseResult(case.name, case.role, case.check())
    except WrongResult as wrong:
        return CaseResult(case.name, case.role, float("nan"), failure=str(wrong))
    except FAILURES as error:
        return CaseResult(case.name, case.role, float("nan"), failure=said(error))


def _cool(case: Case, timer: _Timer, protocol: Protocol) -> Reading:
    timer.synchronize()
    time.sleep(protocol.pause_s)
    with Sampler() as sampler:
        each = timer.estimate_s(case.launch)
        timer.flushed_s(case.launch, max(1, int(protocol.warm_s / each)))
        count = max(10, int(protocol.cool_s / each))
        times = timer.flushed_s(case.launch, count)
    clock, power = sampler.medians()
    return Reading("cool", statistics.median(times), count, clock, power)


def _hot(case: Case, timer: _Timer, protocol: Protocol) -> Reading:
    timer.synchronize()
    time.sleep(protocol.pause_s)
    with Sampler() as sampler:
        seconds, count = timer.back_to_back_s(case.launch, protocol.hot_s)
    clock, power = sampler.medians()
    return Reading("hot", seconds, count, clock, power)


def torch_case(
    name: str,
    launch: Callable[[], object],
    output: Callable[[], Any],
    expected: Any,
    tolerance: float,
    role: str = "ours",
) -> Case:
    """A case whose output is one torch tensor, compared with `expected` (float32 or float64).

    The error is the root mean square of the difference over that of the expected values.
    """

    def poison() -> None:
        tensor = output()
        if tensor.dtype.is_floating_point:
            tensor.fill_(float("nan"))
        else:
            tensor.fill_(-1 << (8 * tensor.element_size() - 1))

    def check() -> float:
        found = output().to(expected.dtype)
        scale = expected.square().mean().sqrt()
        error = float((found - expected).square().mean().sqrt() / scale)
        if not error <= tolerance:  # also true for NaN
            raise WrongResult(f"relative error {error:.3g} exceeds {tolerance:.3g}")
        return error

    return Case(name, launch, check, poison, role)
