"""What follows a product, as emitted: right on ragged tiles, whatever the columns of a tile are."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.compiler import front
from tilec.ir.facts import Schedule
from tilec.runtime.emulated import Emulator
from tilec.runtime.kernel import Program
from tilec.runtime.trial import make_inputs, on_emulator, on_interpreter
from tilec.source import SourceFile
from tilec.targets import by_name

HEAD = """from std.math import gelu, silu

kernel f(a: bf16[M, K], b: bf16[N, K], {}):
    for i, j in parallel({}):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
"""
OPEN, PINNED = "tiles(M), tiles(N)", "tiles(M, 128), tiles(N, 128)"
EPILOGUES = {
    "bias": ("bias: bf16[N], c: out bf16[M, N]",
             ["c[i, j] = cast[bf16](acc + cast[f32](bias[j])[None, :])"]),
    "residual": ("r: bf16[M, N], c: out bf16[M, N]",
                 ["c[i, j] = cast[bf16](acc + cast[f32](r[i, j]))"]),
    "scale": ("s: f32, c: out bf16[M, N]", ["c[i, j] = cast[bf16](acc * s)"]),
    "relu": ("c: out bf16[M, N]", ["c[i, j] = cast[bf16](max(acc, 0))"]),
    "gelu": ("c: out bf16[M, N]", ["c[i, j] = gelu(cast[bf16](acc))"]),
    "silu": ("c: out bf16[M, N]", ["c[i, j] = silu(cast[bf16](acc))"]),
    "8-bit floats": ("s: f32, c: out e4m3[M, N]", ["c[i, j] = cast[e4m3](acc * s)"]),
    "two outputs": ("c: out bf16[M, N], d: out f32[M, N]",
                    ["c[i, j] = cast[bf16](acc)", "d[i, j] = acc"]),
    "update in place": ("s: f32, c: inout bf16[M, N]",
                        ["c[i, j] = cast[bf16](acc + s * cast[f32](c[i, j]))"]),
    "row sums": ("c: out bf16[M, N], t: inout f32[M]",
                 ["c[i, j] = cast[bf16](acc)", "t[i] += rowsum(acc)"]),
}  # fmt: skip
PAIRED = """from std.math import silu

kernel f(a: bf16[M, K], b: bf16[N, 2, K], c: out bf16[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        g = zeros[f32](i, j)
        u = zeros[f32](i, j)
        for k in tiles(K):
            g += a[i, k] @ b[j, 0, k].T
            u += a[i, k] @ b[j, 1, k].T
        c[i, j] = cast[bf16](cast[f32](silu(cast[bf16](g))) * u)
"""
DIMS = {"M": 70, "N": 200, "K": 72}


def compare(text: str, schedule: Schedule, order: str = "late") -> None:
    """Outputs are the interpreter's within rounding, and nothing is found wrong."""
    source, target = SourceFile("f.tk", text), by_name("sm_90")
    ir = front(source, "f", {}, target).kernels[0]
    inputs = make_inputs(ir, DIMS, {}, seed=4)
    kernel = Program(source).f.using(schedule)
    found, faults = on_emulator(kernel, ir, inputs, target, Emulator(order))
    assert [f"{f.code}: {f.message}" for f in faults] == []
    for name, truth in on_interpreter(ir, inputs).outputs.items():
        got = np.asarray(found.outputs[name], np.float64)
        largest = np.abs(np.asarray(truth, np.float64)).max()
        assert largest > 0
        np.testing.assert_allclose(got, truth, rtol=2.0**-3, atol=2.0**-7 * largest)


@pytest.mark.parametrize("columns", [None, 72, 184])
@pytest.mark.parametrize("name", EPILOGUES)
def test_an_epilogue_is_right(name: str, columns: int | None) -> None:
    parameters, lines = EPILOGUES[name]
    sums = "sum" in " ".join(lines)
    chosen = columns if not sums else None  # who sums along columns pins them
    text = HEAD.format(parameters, PINNED if sums else OPEN)
    text += "".join(f"        {line}\n" for line in lines)
    compare(text, Schedule(tiles=(("j", chosen),) if chosen else ()))


@pytest.mark.parametrize("columns", [None, 104])
def test_a_gate_over_pairs_of_columns(columns: int | None) -> None:
    compare(PAIRED, Schedule(tiles=(("j", columns),) if columns else ()), "random")
