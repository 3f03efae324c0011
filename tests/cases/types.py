"""Conversions, narrow integers, and numbers that are none."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Runner, case, normal
from tilec.interp.numbers import decode
from tilec.ir.types import DTYPES

_WITH_FP8 = ("90", "89")
"""Others refuse casts of 8-bit floats: tests/faults/unsupported-on-target."""


def cast(source: str, target: str, option: str = "") -> str:
    """A kernel that converts."""
    return (
        f"kernel convert(x: {source}[N], y: out {target}[N]):\n    for i in parallel(tiles(N)):\n"
        f"        y[i] = cast[{target}](x[i]{option})\n"
    )


@case("DT-01", "dtype", "tile-ai/tilelang#2944")
def overflow_to_e5m2(run: Runner) -> None:
    """What is too large for e5m2 is infinity where saturation is off, and the greatest else."""
    x = np.array([65504, 1e5, 1e6, np.inf, -1e5, -np.inf, 57344, np.nan], np.float32)
    with np.errstate(all="ignore"):
        bits = run(
            cast("f32", "e5m2", ", saturate=false"), x=x, y=np.empty(8, np.uint8), targets=_WITH_FP8
        )
        held = run(cast("f32", "e5m2"), x=x, y=np.empty(8, np.uint8), targets=_WITH_FP8)
    np.testing.assert_array_equal(bits[:7], [0x7C, 0x7C, 0x7C, 0x7C, 0xFC, 0xFC, 0x7B])
    np.testing.assert_array_equal(held[:7], [0x7B, 0x7B, 0x7B, 0x7B, 0xFB, 0xFB, 0x7B])
    for found in (bits[7], held[7]):
        assert found & 0x7C == 0x7C
        assert found & 3


def _nearest_even(x: np.ndarray, codes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The code of the nearest value, of two the one whose last bit is 0."""
    far = np.abs(x[:, None] - values[None, :])
    best = far.min(axis=1, keepdims=True)
    even = np.where(far == best, codes[None, :] & 1, 2)
    return codes[even.argmin(axis=1)]


@case("DT-03", "dtype", "triton-lang/triton#5925")
def every_f16_to_e5m2(run: Runner) -> None:
    """Every f16 becomes the nearest e5m2, ties to even, on every target."""
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = x[np.isfinite(x) & (np.abs(x) <= 57344) & ~np.signbit(x)]
    codes = np.arange(0x7C, dtype=np.uint8)
    values = decode(DTYPES["e5m2"], codes, True)
    found = run(cast("f16", "e5m2"), x=x, y=np.empty(len(x), np.uint8), targets=_WITH_FP8)
    np.testing.assert_array_equal(found, _nearest_even(x.astype("f8"), codes, values))
    assert decode(DTYPES["e5m2"], found[x == 9], True) == 8
    assert decode(DTYPES["e5m2"], found[x == 11], True) == 12


@case("DT-05", "dtype", "triton-lang/triton#9991")
def integers_to_bool(run: Runner) -> None:
    """An integer is true where it is not 0, all of its bits being looked at."""
    x = np.array([0, 1, 256, 512, -256, 65536], np.int32)
    found = run(cast("s32", "bool"), x=x)
    np.testing.assert_array_equal(found.view(np.uint8), x != 0)


@case("DT-07", "dtype", "tile-ai/tilelang#2427")
def filled_bytes(run: Runner) -> None:
    """A tile of bytes filled with any value holds it in every element."""
    text = """
kernel filled(v: s8, y: out s8[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = v
"""
    for v in (-128, -7, -1, 0, 1, 100, 127):
        assert (run(text, v=v, y=np.zeros((64, 64), np.int8)) == v).all()


@case("DT-09", "dtype", "triton-lang/triton#8654 and #6192")
def f32_products(run: Runner) -> None:
    """Products of f32 are as accurate as f32; tf32 has to be asked for."""
    text = """
kernel gemm(a: f32[M, K], b: f32[K, N], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
"""
    rough = text.replace("a[i, k] @ b[k, j]", "dot(a[i, k], b[k, j], precision=tf32)")
    a, b = normal(1, 64, 1024), normal(2, 1024, 64)
    exact = a.astype("f8") @ b.astype("f8")
    assert np.abs(run(text, a=a, b=b) - exact).max() <= 1e-5 * 32
    error = np.abs(run(rough, a=a, b=b) - exact).max()
    assert 1e-5 * 32 < error <= 5e-3 * 32


@case("DT-11", "dtype", "intel/intel-xpu-backend-for-triton#7771")
def every_code_of_8_bits(run: Runner) -> None:
    """All codes of e4m3 and e5m2 decode alike to f32, f16 and bf16."""
    codes = np.arange(256, dtype=np.uint8)
    for source in ("e4m3", "e5m2"):
        values = decode(DTYPES[source], codes, True)
        for target, storage in (("f32", np.float32), ("f16", np.float16), ("bf16", np.uint16)):
            found = run(cast(source, target), x=codes, y=np.empty(256, storage), targets=_WITH_FP8)
            numbers = decode(DTYPES[target], found, True)
            np.testing.assert_array_equal(numbers, values)
            sure = ~np.isnan(values)
            np.testing.assert_array_equal(np.signbit(numbers[sure]), np.signbit(values[sure]))


@case("DT-13", "dtype", "tile-ai/tilelang#3024")
def extrema_keep_nan(run: Runner) -> None:
    """`min`, `max` and a clamp made of them are NaN where either side is."""
    text = """
kernel extrema[T: dtype](x: T[N], y: T[N], low: out T[N], high: out T[N], clamped: out T[N]):
    for i in parallel(tiles(N)):
        low[i], high[i] = min(x[i], y[i]), max(x[i], y[i])
        clamped[i] = min(max(x[i], -1), 1)
"""
    for dtype in (np.float16, np.float32, np.float64):
        x = np.array([np.nan, 1, np.nan, 3, -5], dtype)
        y = np.array([1, np.nan, np.nan, -2, -7], dtype)
        low, high, clamped = run(text, x=x, y=y)
        np.testing.assert_array_equal(low, np.minimum(x, y))
        np.testing.assert_array_equal(high, np.maximum(x, y))
        np.testing.assert_array_equal(clamped, np.clip(x, -1, 1))
