"""Loops whose iterations overlap, and what they may not exchange."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Runner, case, normal, whole
from tests.cases.shapes import GEMM
from tilec.ir.facts import Schedule


@case("LD-06", "layout-dot", "fla-org/flash-linear-attention#984 and PR#988")
def squared_sums(run: Runner) -> None:
    """Two loops sum a matrix, which is multiplied by others from both sides, for any stages."""
    text = """
kernel both(x: bf16[K, 64], z: bf16[K, 64], e: bf16[64, 64], y: out f32[64, 64]):
    for one in parallel(1):
        s = zeros[f32](64, 64)
        for k in tiles(K, 32):
            s += x[k, :].T @ z[k, :]
        for k in tiles(K, 32):
            s += z[k, :].T @ x[k, :]
        left = e[:, :] @ cast[bf16](s)
        y[:, :] = cast[bf16](left) @ e[:, :]
"""
    x, z, e = (whole(s, n, 64, dtype=np.float32, most=1) for s, n in ((1, 128), (2, 128), (3, 64)))
    bits = [(a.view(np.uint32) >> 16).astype(np.uint16) for a in (x, z, e)]
    s = x.T @ z + z.T @ x
    expected = e @ s @ e
    found = run(text, x=bits[0], z=bits[1], e=bits[2])
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-2 * np.abs(expected).max())


@case("PL-02", "pipelining", "tile-ai/tilelang#2595")
def numbers_drawn(run: Runner) -> None:
    """What an update in memory gives is used twice, and each update happens once."""
    text = """
kernel drawn(n: s32, count: inout s32[1], y: out s32[N], z: out s32[N]):
    for one in parallel(1):
        for t in range(n):
            old = atomic_add(count[0], 1)
            y.at(old, drop) = old + 1
            z.at(old, drop) = old * 2
"""
    count, y, z = (np.zeros(e, np.int32) for e in (1, 9, 9))
    run(text, n=9, count=count, y=y, z=z)
    np.testing.assert_array_equal(y, np.arange(1, 10))
    np.testing.assert_array_equal(z, np.arange(9) * 2)
    assert count[0] == 9


@case("PL-06", "pipelining", "triton-lang/triton#8259")
def read_after_write(run: Runner) -> None:
    """What a loop stores and reads again in one iteration is what it stored."""
    text = """
kernel again(x: inout f32[M, N], y: out f32[M, N]):
    for i in parallel(tiles(M)):
        for j in tiles(N, 128):
            x[i, j] = cast[f32](i[:, None] * 1000 + j[None, :])
            y[i, j] = x[i, j] - cast[f32](i[:, None] * 1000 + j[None, :])
"""
    x, y = run(text, x=normal(1, 3, 500))
    assert not y.any()
    np.testing.assert_array_equal(x, np.arange(3)[:, None] * 1000 + np.arange(500))


@case("PL-08", "pipelining", "triton-lang/triton#11014")
def any_number_of_stages(run: Runner) -> None:
    """The number of stages changes nothing."""
    a, b = whole(1, 64, 200), whole(2, 64, 200)
    exact = a.astype("f4") @ b.astype("f4").T
    for stages in (2, 3, 4):
        found = run(GEMM, using={"schedule": Schedule(stages=stages)}, a=a, b=b)
        np.testing.assert_array_equal(found, exact)


@case("PL-10", "pipelining", "jax-ml/jax#40048")
def tiles_that_do_not_divide(run: Runner) -> None:
    """Tiles of 96 columns over 1000 write what there is, on every target."""
    text = """
kernel twice(x: f32[M, N], y: out f32[M, N]):
    for i in parallel(tiles(M)):
        for j in tiles(N, 96):
            y[i, j] = x[i, j] * 2
"""
    x = normal(1, 20, 1000)
    memory = np.full((20, 1100), 7, np.float32)
    run(text, x=x, y=memory[:, :1000])
    np.testing.assert_array_equal(memory[:, :1000], x * 2)
    assert (memory[:, 1000:] == 7).all()


@case("AS-03", "async-sync", "triton-lang/triton PR#8554")
def one_tile_two_products(run: Runner) -> None:
    """One tile of a loop feeds two products, once transposed."""
    text = """
kernel twofold(
        x: f16[K, 64, 64], y: f16[64, 32], z: f16[64, 32],
        p: out f32[64, 32], q: out f32[64, 32]):
    for one in parallel(1):
        a, b = zeros[f32](64, 32), zeros[f32](64, 32)
        for k in range(K):
            t = x[k, :, :]
            a += t @ y[:, :]
            b += t.T @ z[:, :]
        p[:, :], q[:, :] = a, b
"""
    x, y, z = whole(1, 3, 64, 64), whole(2, 64, 32), whole(3, 64, 32)
    p, q = run(text, x=x, y=y, z=z)
    np.testing.assert_array_equal(p, sum(t.astype("f4") @ y.astype("f4") for t in x))
    np.testing.assert_array_equal(q, sum(t.T.astype("f4") @ z.astype("f4") for t in x))


@case("IN-01", "integration", "pytorch/pytorch#196657", refusal="arrays-overlap")
def one_array_twice(run: Runner) -> None:
    """An array that is two outputs is refused; two outputs of one kernel are both written."""
    text = """
kernel pair(x: f32[N], y: f32[N], a: out f32[N], b: out f32[N]):
    for i in parallel(tiles(N)):
        a[i] = x[i] + y[i]
        b[i] = x[i] + y[i] + 1
"""
    x, y, c = np.ones(3, np.float32), np.full(3, 2, np.float32), np.zeros(3, np.float32)
    a, b = run(text, x=x, y=y)
    np.testing.assert_array_equal(a, [3, 3, 3])
    np.testing.assert_array_equal(b, [4, 4, 4])
    run.refused(text, "arrays-overlap", "a is written and overlaps b", x=x, y=y, a=c, b=c)


@case("RS-03", "resources", "state-spaces/mamba#387", refusal="refused")
def too_large_a_head(run: Runner) -> None:
    """A product whose tiles no shared memory holds is refused with the limit."""
    run.refused(
        "kernel k(q: bf16[M, 2048], k: bf16[N, 2048], o: out f32[M, N]):\n"
        "    for i, j in parallel(tiles(M, 128), tiles(N, 128)):\n"
        "        o[i, j] = q[i, :] @ k[j, :].T\n",
        "refused",
        "232448 bytes of shared memory",
    )
