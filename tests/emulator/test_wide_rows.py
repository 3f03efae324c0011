"""Combining 64-bit elements along an axis, as emitted: what other lanes hold comes in two words."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.compiler import front
from tilec.runtime.emulated import Emulator
from tilec.runtime.kernel import Program
from tilec.runtime.trial import make_inputs, on_emulator, on_interpreter
from tilec.source import SourceFile
from tilec.targets import by_name

SCANS = """fn after(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2

kernel f(a: f64[M, N], x: f64[M, N], k: s64[M, N], y: out f64[M, N], c: out f64[M, N],
         n: out s64[M], z: out f64[M]):
    for i in parallel(tiles(M)):
        scales, states = scan(after, (a[i, :] * 0.1, x[i, :]), axis=1, identity=(1, 0))
        y[i, :] = states
        c[i, :] = cumsum(x[i, :], axis=1, reverse=true)
        n[i] = sum(cumsum(k[i, :], axis=1), axis=1)
        last, z[i] = reduce(after, (a[i, :] * 0.1, x[i, :]), axis=1, identity=(1, 0))
"""
STRICT = """kernel f(x: f64[M, N], y: out f64[M], z: out f64[M]):
    for i in parallel(tiles(M)):
        strict:
            y[i] = rowsum(x[i, :] / 3)
            z[i] = prod(x[i, :] * 0.5 + 1.5, axis=1)
"""


def outputs(text: str, dims: dict[str, int], target: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each output on the emulator and as the interpreter has it; nothing may be found wrong."""
    source, wanted = SourceFile("rows.tk", text), by_name(target)
    ir = front(source, None, {}, wanted).kernels[0]
    inputs = make_inputs(ir, dims, {}, seed=7)
    found, faults = on_emulator(Program(source).f, ir, inputs, wanted, Emulator("late"))
    assert [f"{f.code}: {f.message}" for f in faults] == []
    truth = on_interpreter(ir, inputs).outputs
    return [(found.outputs[name], truth[name]) for name in truth]


@pytest.mark.parametrize(("columns", "target"), [(37, "sm_80"), (37, "sm_90"), (300, "sm_90")])
def test_scans_and_functions(columns: int, target: str) -> None:
    for found, truth in outputs(SCANS, {"M": 5, "N": columns}, target):
        np.testing.assert_allclose(found, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("columns", "target"), [(37, "sm_80"), (37, "sm_90"), (2000, "sm_90")])
def test_strict_sums_have_one_order(columns: int, target: str) -> None:
    for found, truth in outputs(STRICT, {"M": 3, "N": columns}, target):
        np.testing.assert_array_equal(found, truth)
