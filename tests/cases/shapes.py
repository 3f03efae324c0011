"""Shapes of which no tile is full, and memory that is not the plain one."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Runner, case, guarded, normal, whole

GEMM = """
kernel gemm[T: dtype = f16](a: T[M, K], b: T[N, K], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = acc
"""
COPY = """
kernel copy[T: dtype = f32](x: T[M, N], y: out T[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = x[i, j]
"""
SUMS = """
kernel sums(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        total = zeros[f32](i)
        for j in tiles(N):
            total += rowsum(x[i, j])
        y[i] = total
"""


@case("OS-02", "odd-shapes", "triton-lang/triton#934")
def outer_product(run: Runner) -> None:
    """A product over one term: what lies beyond the edges adds nothing."""
    a, b = whole(1, 1, 1), whole(2, 128, 1)
    np.testing.assert_array_equal(run(GEMM, a=a, b=b), a.astype("f4") @ b.astype("f4").T)


@case("OS-04", "odd-shapes", "triton-lang/triton PR#10427")
def empty_products(run: Runner) -> None:
    """Products of empty arrays: sums of nothing are 0, and nothing runs for empty results."""
    c = np.full((64, 64), 123, np.float32)
    run(GEMM, a=whole(1, 64, 0), b=whole(2, 64, 0), c=c)
    assert not c.any()
    assert run(GEMM, a=whole(1, 0, 64), b=whole(2, 64, 64)).shape == (0, 64)
    assert run(GEMM, a=whole(1, 64, 64), b=whole(2, 0, 64)).shape == (64, 0)


@case("OS-06", "odd-shapes", "tile-ai/tilelang#2955")
def table_by_remainder(run: Runner) -> None:
    """A table read by the remainder of the column, whose period does not divide the rows."""
    text = """
kernel repeated(table: s32[P], out_rows: s32[M, N], y: out s32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = table.at(j % P, fill=-1)[None, :] + out_rows[i, j]
"""
    for n, period in ((40, 12), (64, 24)):
        table = np.arange(period, dtype=np.int32) * 3 + 1
        zero = np.zeros((4, n), np.int32)
        expected = np.broadcast_to(table[np.arange(n) % period], (4, n))
        np.testing.assert_array_equal(run(text, table=table, out_rows=zero), expected)


@case("OS-08", "odd-shapes", "tile-ai/tilelang#2529")
def partial_copy(run: Runner) -> None:
    """A copy whose last tile is partial leaves what lies behind the end."""
    text = """
kernel copy(x: f16[N], y: out f16[N]):
    for i in parallel(tiles(N, 256)):
        y[i] = x[i]
"""
    memory = np.full(1064, 7, np.float16)
    x = normal(1, 1000, dtype=np.float16)
    run(text, x=x, y=memory[:1000])
    np.testing.assert_array_equal(memory[:1000], x)
    assert (memory[1000:] == 7).all()


@case("OS-10", "odd-shapes", "jax-ml/jax#20051")
def matrix_by_vector(run: Runner) -> None:
    """Products with one or eight columns, or one row: the compiler pads."""
    for m, n, k in ((32, 1, 32), (32, 8, 32), (1, 32, 32)):
        a, b = whole(1, m, k), whole(2, n, k)
        np.testing.assert_array_equal(run(GEMM, a=a, b=b), a.astype("f4") @ b.astype("f4").T)


@case("SO-05", "strides-offsets", "NVIDIA/TransformerEngine PR#2746")
def rows_of_a_view(run: Runner) -> None:
    """Row-wise log-sum-exp of a part of wider rows, and of a transposed array."""
    text = """
kernel lse(x: f32[B, S, V], y: out f32[B, S]):
    for b, s in parallel(B, tiles(S)):
        row = x[b, s, :]
        top = rowmax(row)
        y[b, s] = top + log(rowsum(exp(row - top[:, None])))
"""
    big = normal(1, 1, 4, 48)[:, :, :32]
    turned = normal(2, 5, 3, 32).transpose(1, 0, 2)
    for x in (big, turned):
        expected = np.log(np.exp(x.astype("f8")).sum(-1))
        np.testing.assert_allclose(run(text, x=x), expected, rtol=1e-5, atol=1e-6)


@case("TA-02", "tma-alignment", "triton-lang/triton#11583")
def clipped_stores(run: Runner) -> None:
    """Stores of rows that end between 16-byte steps leave the next bytes."""
    for dtype, columns in ((np.int8, 466), (np.int16, 470), (np.int32, 466)):
        x = np.random.default_rng(1).integers(-100, 100, (32, columns)).astype(dtype)
        y, memory = guarded(32, columns, 512, dtype)
        run(COPY, using={"T": f"s{8 * memory.itemsize}"}, x=x, y=y)
        np.testing.assert_array_equal(y, x)
        assert (memory[:, columns:] == 7).all()


@case("TA-04", "tma-alignment", "NVIDIA/cutlass#1884 and PR#2283")
def unaligned_results(run: Runner) -> None:
    """Results of products whose leading extent is no multiple of 8 elements, either way round."""
    text = GEMM.replace("c: out f32", "c: out f16").replace("= acc", "= cast[f16](acc)")
    a, b = whole(1, 134, 64, most=2), whole(2, 100, 64, most=2)
    exact = a.astype("f4") @ b.astype("f4").T
    by_columns = np.zeros((100, 134), np.float16).T
    run(text, a=a, b=b, c=by_columns)
    np.testing.assert_array_equal(by_columns, exact)
    np.testing.assert_array_equal(run(text, a=a, b=b), exact)


@case("TA-06", "tma-alignment", "tile-ai/tilelang#2567")
def rows_without_alignment(run: Runner) -> None:
    """A loop over rows whose pitch no bulk copy can take ends, with the right sums."""
    for columns in (250, 256):
        x = normal(1, 70, columns)
        np.testing.assert_allclose(run(SUMS, x=x), x.astype("f8").sum(-1), rtol=1e-4, atol=1e-4)


@case("TA-08", "tma-alignment", "triton-lang/triton PR#9439")
def odd_scalars_before_maps(run: Runner) -> None:
    """Scalars of odd sizes among the arrays of a product do not move the tensor maps."""
    text = """
kernel scaled(p: s8, a: bf16[M, K], q: f32, r: s64, b: bf16[N, K], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = acc * q + cast[f32](p) + cast[f32](r)
"""
    one = np.full((128, 64), 0x3F80, np.uint16)
    c = run(text, p=3, a=one, q=0.5, r=-(1 << 20), b=one)
    assert (c == 64 * 0.5 + 3 - (1 << 20)).all()
