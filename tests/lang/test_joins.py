"""``join``: the interpreter runs a loop in order, and tries what the author promises of parts."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tilec.runtime import kernel as kernels

MERGED = """
from std.merges import softmax, welford

fn add(a, b):
    return a + b

fn mean(a, b):
    return (a + b) / 2

kernel total(x: f32[M, N], first: f32, y: out f32[M]):
    for i in parallel(tiles(M)):
        s = full[f32](i, first)
        for j in tiles(N, 16) join add(s):
            s += rowsum(x[i, j])
        y[i] = s

kernel averaged(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        s = zeros[f32](i)
        for j in tiles(N, 16) join mean(s):
            s += rowsum(x[i, j])
        y[i] = s

kernel lse(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        l = zeros[f32](i)
        m = full[f32](i, -inf)
        for j in tiles(N) join softmax(m, l):
            r = anchor(m, x[i, j])
            l = l * exp2sub(m, r) + rowsum(exp2sub(x[i, j], r[:, None]))
            m = r
        y[i] = m + log2(l)

kernel counted(x: f32[M, N], y: out s32[M]):
    for i in parallel(tiles(M)):
        s = zeros[s32](i)
        for j in tiles(N, 16) join add(s):
            s += sum(where(x[i, j] > 0, 1, 0), axis=1)
        y[i] = s
"""


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "gpu_available", lambda: False)


def rows(m: int = 20, n: int = 100) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((m, n)).astype(np.float32)


@pytest.mark.parametrize("n", [0, 1, 16, 100])
def test_loops_with_join_mean_what_they_mean_in_order(n: int) -> None:
    program, x = tilec.compile(MERGED), rows(n=n)
    np.testing.assert_allclose(program.total(x, 0.0), x.sum(1), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(program.counted(x), (x > 0).sum(1))
    if n:
        wide = np.log2(np.exp2(x.astype(np.float64)).sum(1))
        np.testing.assert_allclose(program.lse(x), wide, rtol=1e-4, atol=1e-4)


def test_initial_values_that_change_something_are_found() -> None:
    with pytest.raises(tilec.LaunchError, match=r"`join` of s: two parts .* must change"):
        tilec.compile(MERGED).total(rows(), 100.0)


def test_a_function_that_does_not_merge_is_found() -> None:
    with pytest.raises(tilec.LaunchError, match="`join` of s: two parts of the loop, merged"):
        tilec.compile(MERGED).averaged(rows())
