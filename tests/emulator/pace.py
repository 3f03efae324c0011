"""What the model of time says of gemm beside what an H200 took: ``python -m tests.emulator.pace``.

Prints the table of docs/emulator.md. The prediction comes from two tiles of the program that the
figure was taken with, a few blocks of K each; the measured cycles are those of the run under load,
the time of a launch at the clock that was read with it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np

from tests.emulator.running import prepared
from tests.emulator.subjects import bf16
from tilec.emulator.launch import start
from tilec.emulator.parse import parse_ptx
from tilec.emulator.report.latencies import SMS
from tilec.emulator.report.record import Recorder
from tilec.emulator.report.replay import replay

TABLE = ("<!-- pace: begin -->", "<!-- pace: end -->")
RESULT = Path(__file__).resolve().parents[2] / "benchmarks/results/gemm-bf16-TN-8192x8192x8192.json"
_SIZE, _TILE, _BLOCK, _BLOCKS = 8192, (128, 256), 64, 6


@cache
def predicted_parts() -> tuple[float, float]:
    """Cycles of a block of K, and of a tile beyond those of its blocks."""
    rng = np.random.default_rng(0)
    k = _BLOCK * _BLOCKS
    a, b = (bf16(rng.standard_normal((256, k))) for _ in range(2))
    sizes = dict.fromkeys(("M", "N", "K"), _SIZE)
    text, launch = prepared("gemm", {"a": a, "b": b, "c": np.zeros((256, 256), np.uint16)}, sizes)
    (program,) = parse_ptx(text).values()
    recorder = Recorder(program)
    start(program, text, replace(launch, grid=(1, 1, 1)), recorder=recorder)
    (timed,) = replay(program, recorder)
    first, second = timed.engines["tensor cores"]
    block = (first.end - first.start) / _BLOCKS
    return block, second.start - first.end


def predicted() -> float:
    """Cycles of a block of K at the size that was measured, with its share of the tile's end."""
    block, rest = predicted_parts()
    return block + rest / (_SIZE // _BLOCK)


@cache
def measured() -> float:
    """The same from the figure: cycles of a launch over the blocks that the busiest SM has."""
    cases = json.loads(RESULT.read_text(encoding="utf-8"))["cases"]
    ours = next(case for case in cases if case["role"] == "ours")
    hot = [r for r in ours["readings"] if r["kind"] == "hot"]
    cycles = median(r["seconds"] * r["clock_mhz"] * 1e6 for r in hot)
    tiles = (_SIZE // _TILE[0]) * (_SIZE // _TILE[1])
    return cycles / (-(-tiles // SMS) * (_SIZE // _BLOCK))


def rows() -> str:
    """The table; rounded, so that not every change of the program changes it."""
    block, rest = predicted_parts()
    return "\n".join((
        "| gemm.tk, bf16, 8192³, a block of K of 64 | cycles |",
        "| --- | ---: |",
        f"| predicted, tensor cores alone | {block:.0f} |",
        f"| predicted, with 1/{_SIZE // _BLOCK} of what a tile takes beyond "
        f"({round(rest, -2):.0f}) | {round(predicted(), -1):.0f} |",
        f"| measured on an H200 under load (`{RESULT.name}`) | {round(measured(), -1):.0f} |",
        f"| predicted / measured | {predicted() / measured():.1f} |",
    ))  # fmt: skip


if __name__ == "__main__":
    print(rows())
