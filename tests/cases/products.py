"""Products: their operands, their accumulators, and who else reads them."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Runner, case, whole
from tests.cases.shapes import GEMM


@case("LD-02", "layout-dot", "tile-ai/tilelang#2593")
def columns_in_eights(run: Runner) -> None:
    """Products with 24, 40, 56 and 72 columns, known or not, are right."""
    text = """
kernel known[N: int](a: f16[M, K], b: f16[N, K], c: out f32[M, N]):
    for i in parallel(tiles(M)):
        acc = zeros[f32](i, N)
        for k in tiles(K):
            acc += a[i, k] @ b[:, k].T
        c[i, :] = acc
"""
    for n in (24, 40, 56, 72):
        a, b = whole(1, 128, 64), whole(2, n, 64)
        exact = a.astype("f4") @ b.astype("f4").T
        np.testing.assert_array_equal(run(text, a=a, b=b), exact)
        np.testing.assert_array_equal(run(GEMM, a=a, b=b), exact)


@case("LD-04", "layout-dot", "triton-lang/triton#10821")
def two_products_one_sum(run: Runner) -> None:
    """Two products of one iteration add to one accumulator."""
    text = """
kernel twofold(a: f16[M, K], b: f16[N, K], c: f16[M, K], d: f16[N, K], y: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
            acc += c[i, k] @ d[j, k].T
        y[i, j] = acc
"""
    a, b, c, d = (whole(s, 128, 512) for s in range(4))
    exact = a.astype("f4") @ b.astype("f4").T + c.astype("f4") @ d.astype("f4").T
    np.testing.assert_array_equal(run(text, a=a, b=b, c=c, d=d), exact)


@case("LD-08", "layout-dot", "triton-lang/triton PR#11691 and PR#9386")
def few_converted_terms(run: Runner) -> None:
    """Products of 8 and 16 converted terms, added to what was there: padding adds nothing."""
    text = """
kernel small[K: int](a: s8[M, K], b: f16[N, K], c: f32[M, N], y: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = c[i, j] + cast[f16](a[i, :]) @ b[j, :].T
"""
    for k in (2, 8, 16):
        a, b = whole(1, 64, k, dtype=np.int8), whole(2, 32, k)
        c = whole(3, 64, 32, dtype=np.float32)
        exact = a.astype("f4") @ b.astype("f4").T + c
        np.testing.assert_array_equal(run(text, a=a, b=b, c=c), exact)


@case("LD-10", "layout-dot", "tile-ai/tilelang#2954, #2609, #2714")
def operand_is_used_again(run: Runner) -> None:
    """A tile that a product reads is stored and reduced as well."""
    text = """
kernel again(
        a: f16[M, 64], b: f16[N, 64], c: out f32[M, N], copy: out f16[M, 64], some: out bool[M]):
    for i in parallel(tiles(M)):
        t = a[i, :]
        copy[i, :] = t
        some[i] = any(t > 5, axis=1)
        for j in tiles(N):
            c[i, j] = t @ b[j, :].T
"""
    a, b = whole(1, 128, 64), whole(2, 32, 64)
    c, copy, some = run(text, a=a, b=b)
    np.testing.assert_array_equal(c, a.astype("f4") @ b.astype("f4").T)
    np.testing.assert_array_equal(copy, a)
    np.testing.assert_array_equal(some, (a > 5).any(1))


@case("LD-12", "layout-dot", "triton-lang/triton#10629")
def narrow_tf32(run: Runner) -> None:
    """Products of tf32 with 8 columns read nothing beside their operand."""
    text = """
kernel narrow[N: int](a: tf32[M, K], b: tf32[N, K], c: out f32[M, N]):
    for i in parallel(tiles(M)):
        acc = zeros[f32](i, N)
        for k in tiles(K):
            acc += a[i, k] @ b[:, k].T
        c[i, :] = acc
"""
    a, b = whole(1, 64, 8, dtype=np.float32), np.full((16, 8), np.nan, np.float32)
    b[:8] = whole(2, 8, 8, dtype=np.float32)
    np.testing.assert_array_equal(run(text, a=a, b=b[:8]), a @ b[:8].T)


@case("LD-14", "layout-dot", "fla-org/flash-linear-attention PR#1262")
def rolled(run: Runner) -> None:
    """A rolled vector is what NumPy's is, for any shift."""
    text = """
kernel roll(x: f32[N], s: s32, y: out f32[N]):
    for i in parallel(tiles(N)):
        y[i] = x.at((i + s) % N, fill=0)
"""
    x = np.arange(100, dtype=np.float32)
    for s in (0, 1, 37, 99, -5):
        np.testing.assert_array_equal(run(text, x=x, s=s), np.roll(x, -s))


@case("PL-04", "pipelining", "triton-lang/triton PR#4567")
def what_leaves_a_loop(run: Runner) -> None:
    """What the last iteration leaves is right for any number of iterations, none included."""
    text = """
kernel last(x: f32[T, N], n: s32, total: out f32[N], y: out f32[N]):
    for j in parallel(tiles(N)):
        acc, seen = zeros[f32](j), full[f32](j, -1)
        for t in range(T):
            if t < n:
                acc += x[t, j]
                seen = x[t, j]
        total[j], y[j] = acc, seen
"""
    x = np.random.default_rng(1).integers(-9, 10, (5, 40)).astype(np.float32)
    for n in range(5):
        total, y = run(text, x=x, n=n)
        np.testing.assert_array_equal(total, x[:n].sum(0))
        np.testing.assert_array_equal(y, x[n - 1] if n else np.full(40, -1))


@case("DE-02", "determinism", "triton-lang/triton#10590")
def chunked_recurrence(run: Runner) -> None:
    """A recurrence of products gives the same bits each time."""
    text = """
kernel chunks(q: bf16[C, 64, 64], k: bf16[C, 64, 64], v: bf16[C, 64, 32], o: out f32[C, 64, 32]):
    for one in parallel(1):
        state = zeros[f32](64, 32)
        for c in range(C):
            o[c, :, :] = q[c, :, :] @ cast[bf16](state)
            state += k[c, :, :].T @ v[c, :, :]
"""
    q, k, v = (whole(s, 3, 64, n, dtype=np.float32, most=1) for s, n in ((1, 64), (2, 64), (3, 32)))
    bits = [(x.view(np.uint32) >> 16).astype(np.uint16) for x in (q, k, v)]
    state, expected = np.zeros((64, 32)), []
    for c in range(3):
        expected.append(q[c] @ state)
        state += k[c].T @ v[c]
    results = [run(text, q=bits[0], k=bits[1], v=bits[2]) for _ in range(3)]
    np.testing.assert_allclose(results[0], expected, rtol=1e-2, atol=1e-2)
    assert all(np.array_equal(results[0], r) for r in results)
