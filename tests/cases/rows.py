"""Reductions, scans and softmax."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.cases.case import Runner, case, normal
from tilec.ir.facts import Schedule

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@case("RD-02", "reductions", "triton-lang/triton#10094 and #1736")
def ties_of_argmax(run: Runner) -> None:
    """Of equal extrema the lowest index is found, however many warps look."""
    text = """
kernel places(x: f32[M, N], most: out s32[M], least: out s32[M]):
    for i in parallel(tiles(M)):
        most[i] = argmax(x[i, :], axis=1)
        least[i] = argmin(x[i, :], axis=1)
"""
    x = np.ones((3, 4096), np.float32)
    x[1, 1:] = 5
    x[2, ::7] = -3
    most, least = run(text, x=x)
    np.testing.assert_array_equal(most, x.argmax(1))
    np.testing.assert_array_equal(least, x.argmin(1))


@case("RD-04", "reductions", "triton-lang/triton#2359 and #3485")
def recurrence(run: Runner) -> None:
    """A scan by a function that does not commute keeps the order of the axis."""
    text = """
fn after(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2

kernel recurrence(a: f32[M, N], b: f32[M, N], y: out f32[M, N]):
    for i in parallel(tiles(M)):
        scales, states = scan(after, (a[i, :], b[i, :]), axis=1, identity=(1, 0))
        y[i, :] = states
"""
    rng = np.random.default_rng(1)
    a = rng.choice([1.0, 1.0, 1.0, -1.0], (2, 1024)).astype(np.float32)
    b = rng.integers(-4, 5, (2, 1024)).astype(np.float32)
    state, expected = np.zeros(2), np.zeros((2, 1024))
    for t in range(1024):
        state = a[:, t] * state + b[:, t]
        expected[:, t] = state
    np.testing.assert_array_equal(run(text, a=a, b=b), expected)


@case("RD-06", "reductions", "fla-org/flash-linear-attention PR#1095")
def sums_from_the_end(run: Runner) -> None:
    """A scan from the end adds from the end: small numbers behind large ones are not lost."""
    text = """
kernel suffix(x: f32[M, N], y: out f32[M, N]):
    for i in parallel(tiles(M)):
        y[i, :] = cumsum(x[i, :], axis=1, reverse=true)
"""
    x = np.array([[1e8] * 32 + [1] * 32], np.float32)
    np.testing.assert_array_equal(run(text, x=x)[0, 32:], np.arange(32, 0, -1))


@case("RD-08", "reductions", "triton-lang/triton#5327")
def two_columns(run: Runner) -> None:
    """Sums over rows of two columns count every element once, whoever has copies of it."""
    text = """
kernel columns(x: f32[R, C], y: out f32[C]):
    for j in parallel(tiles(C)):
        total = zeros[f32](j)
        for i in tiles(R):
            total += sum(x[i, j], axis=0)
        y[j] = total
"""
    x = normal(1, 37, 2)
    for groups in (None, 1, 2):
        kernel = {} if groups is None else {"schedule": Schedule(warpgroups=groups)}
        y = run(text, using=kernel, x=x)
        np.testing.assert_allclose(y, x.astype("f8").sum(0), rtol=1e-5, atol=1e-6)


@case("RD-10", "reductions", "tile-ai/tilelang#2536 and #2523")
def scan_of_a_part(run: Runner) -> None:
    """A scan of some columns of a row reads those columns, and the rest stays."""
    text = """
kernel part(x: f32[M, 32], y: out f32[M, 32]):
    for i in parallel(tiles(M)):
        y[i, 0:8] = cumsum(x[i, 0:8], axis=1)
        y[i, 8:] = x[i, 8:]
"""
    x = np.random.default_rng(1).integers(-9, 10, (64, 32)).astype(np.float32)
    expected = x.copy()
    expected[:, :8] = np.cumsum(x[:, :8], 1)
    np.testing.assert_array_equal(run(text, x=x), expected)


@case("SM-01", "softmax-causal", "Dao-AILab/flash-attention#1930")
def one_finite_logit(run: Runner) -> None:
    """The log-sum-exp of logits that are -inf but for one is that one, wherever it stands."""
    text = """
kernel lse(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        m = full[f32](i, -inf)
        l = zeros[f32](i)
        for j in tiles(N):
            s = x[i, j]
            r = anchor(m, s)
            l = l * exp2sub(m, r) + rowsum(exp2sub(s, r[:, None]))
            m = r
        y[i] = m + log2(l)
"""
    x = np.full((3, 100_000), -np.inf, np.float32)
    for row, place in enumerate((50_000, 0, 99_999)):
        x[row, place] = 10
    np.testing.assert_array_equal(run(text, x=x), [10, 10, 10])


@case("SM-03", "softmax-causal", "Dao-AILab/flash-attention#282, #402, #517")
def causal_from_the_bottom_right(run: Runner) -> None:
    """With fewer queries than keys the mask is aligned at the last ones."""
    text = (EXAMPLES / "attention.tk").read_text()
    for m, n in ((2, 5), (5, 6), (1, 128), (128, 130)):
        q, k, v = (normal(s, 1, 1, e, 16) for s, e in ((1, m), (2, n), (3, n)))
        bits = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (q, k, v)]
        q, k, v = ((b.astype(np.uint32) << 16).view(np.float32)[0, 0] for b in bits)
        s = q.astype("f8") @ k.T.astype("f8") * 0.25
        s[np.arange(n)[None, :] > np.arange(m)[:, None] + n - m] = -np.inf
        p = np.exp(s - s.max(1, keepdims=True))
        expected = p / p.sum(1, keepdims=True) @ v
        o, _ = run(
            text, using={"CAUSAL": True, "D": 16}, q=bits[0], k=bits[1], v=bits[2], scale=0.25
        )
        found = (o.astype(np.uint32) << 16).view(np.float32)[0, 0]
        np.testing.assert_allclose(found, expected, atol=2e-2, rtol=2e-2)


@case("SM-05", "softmax-causal", "pytorch/pytorch PR#131060")
def masked_rows(run: Runner) -> None:
    """A softmax under a mask: nothing kept gives zeros, one kept gives 1; no row spoils others."""
    text = """
kernel masked(x: f16[M, N], keep: bool[M, N], y: out f16[M, N]):
    for i in parallel(tiles(M)):
        s = where(keep[i, :], cast[f32](x[i, :]) * LOG2E, -inf)
        top = rowmax(s)
        p = exp2sub(s, top[:, None])
        total = rowsum(p)[:, None]
        y[i, :] = cast[f16](where(total > 0, p / total, 0))
"""
    x = normal(1, 4, 37, dtype=np.float16)
    keep = np.ones((4, 37), bool)
    keep[0], keep[1, 1:] = False, False
    y = run(text, x=x, keep=keep)
    assert not y[0].any()
    np.testing.assert_array_equal(y[1], [1] + [0] * 36)
    wide = np.exp(x[2:].astype("f8"))
    np.testing.assert_allclose(y[2:], wide / wide.sum(1, keepdims=True), atol=2e-3)
