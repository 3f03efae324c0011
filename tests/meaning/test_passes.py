"""A pass at level ``tile`` changes how a program is written, not what it means.

Each example is interpreted after every pass and must give what it gave before, on sizes with ragged
edges. From the pass on that states padding, nothing is filled any more behind the program's back.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilec import pipeline
from tilec.compiler import front, prepare
from tilec.interp.interpret import interpret_launches
from tilec.ir.core import Module
from tilec.ir.facts import Facts, Schedule
from tilec.passes.base import Context
from tilec.runtime import trial
from tilec.source import SourceFile
from tilec.targets import by_name

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TARGET = by_name("90")
CASES = [
    ("add", {"M": 17, "N": 1000}),
    ("gemm", {"M": 65, "N": 200, "K": 100}),
    ("gemm", {"M": 1, "N": 16, "K": 17}),
    ("softmax", {"M": 17, "N": 1000}),
    ("softmax", {"M": 3, "N": 1}),
]
TWO_LAUNCHES = """
kernel two_launches(x: f32[M, N], y: out f32[M, N], s: f32):
    sums = temp[f32](N)
    rows = temp[f32](M, 3)
    for j in parallel(tiles(N)):
        total = zeros[f32](j)
        for i in tiles(M):
            total += sum(abs(x[i, j]), axis=0)
        sums[j] = total * s
    for i in parallel(tiles(M)):
        rows[i, 1] = rowmax(x[i, :])
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = x[i, j] / (sums[j] + 1)[None, :] + rows[i, 1][:, None]
"""

IN_SHARES = """
fn add(m, l, k, n):
    return max(m, k), l + n

kernel in_shares[D: int = 32](
        x: bf16[B, M, N], v: bf16[N, D], y: out f32[B, M, D], z: out f32[B, M]):
    schedule splits.j=3, splits.j_2=2
    for b, i in parallel(B, tiles(M)):
        acc = zeros[f32](i, D)
        low = full[f32](i, 5.0)
        for j in tiles(N):
            s = where(i[:, None] + (N - M) >= j[None, :], x[b, i, j], 0)
            acc += s @ v[j, :]
            low = min(low, rowmin(cast[f32](s)))
        y[b, i, :] = acc + low[:, None]
    for b, i in parallel(B, tiles(M)):
        m = full[f32](i, -inf)
        l = zeros[f32](i)
        for j in tiles(N) join add(m, l):
            l += rowsum(cast[f32](x[b, i, j]))
            m = max(m, rowmax(cast[f32](x[b, i, j])))
        z[b, i] = l + max(m, 0)
"""


def _facts(dims: dict[str, int]) -> Facts:
    return Facts((), tuple((name, size) for name, size in dims.items()))


def _results(module: Module, inputs: trial.Inputs, explicit: bool) -> dict[str, np.ndarray]:
    arrays = {k: v.copy() for k, v in inputs.arrays.items()}
    interpret_launches(module.kernels, arrays, inputs.scalars, explicit=explicit)
    types = trial.array_parameters(module.kernels[0])
    written = [n for n, t in types.items() if t.mode != "in" and n in arrays]
    return {name: arrays[name] for name in written}


@pytest.mark.parametrize(("program", "dims"), CASES)
def test_every_pass_keeps_the_meaning(program: str, dims: dict[str, int]) -> None:
    check_every_pass(SourceFile.read(EXAMPLES / f"{program}.tk"), dims)


@pytest.mark.parametrize("dims", [{"M": 65, "N": 130}, {"M": 1, "N": 1}, {"M": 5, "N": 0}])
def test_every_pass_keeps_the_meaning_of_several_launches(dims: dict[str, int]) -> None:
    check_every_pass(SourceFile("two.tk", TWO_LAUNCHES), dims)


@pytest.mark.parametrize("dims", [{"M": 70, "N": 200}, {"M": 1, "N": 1}, {"M": 5, "N": 0}])
def test_every_pass_keeps_the_meaning_of_loops_in_shares(dims: dict[str, int]) -> None:
    check_every_pass(SourceFile("shares.tk", IN_SHARES), {"B": 2, **dims})


def check_every_pass(source: SourceFile, dims: dict[str, int]) -> None:
    """Interpret after each pass of level ``tile``, and compare with the program's meaning."""
    module = front(source, None, {}, TARGET)
    prepare(module, _facts(dims), Schedule())
    inputs = trial.make_inputs(module.kernels[0], dims, {}, seed=3)
    reference = trial.on_interpreter(module.kernels[0], inputs, choice=1, wide=True)
    ctx = Context(TARGET)
    explicit = False
    for name in pipeline.PIPELINE[: pipeline.position("apply-tiles") + 1]:
        pipeline.step(module, pipeline.find_pass(name), ctx)
        explicit = explicit or name == "fill-padding"
        found = trial.Trial(_results(module, inputs, explicit), 0.0, name)
        for row in trial.compare(module.kernels[0], found, reference):
            assert row.ok, (name, row)
