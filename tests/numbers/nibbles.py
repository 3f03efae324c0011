"""Programs on elements of four bits, their inputs and what they give, for every executor.

What is wanted is computed from integers by NumPy alone. Arrays of four-bit elements are bytes, the
first of two elements in the low half, packed here by a formula of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Data = npt.NDArray[Any]

SOURCE = """
kernel read[T: dtype = s4](w: T[N, K], y: out f32[N, K]):
    for i, j in parallel(tiles(N), tiles(K)):
        y[i, j] = cast[f32](w[i, j])

kernel upright(w: s4[N, K], y: out s8[K, N]):
    for i, j in parallel(tiles(N), tiles(K)):
        y[j, i] = cast[s8](w[i, j]).T

kernel greatest(w: s4[N, K], y: out s8[N]):
    for i in parallel(tiles(N)):
        y[i] = rowmax(cast[s8](w[i, :]))

kernel single(w: s4[N, K], y: out s32[N, K]):
    for i in parallel(N):
        for j in range(K):
            y[i, j] = cast[s32](w[i, j])

kernel parts(w: s4[N, 16], y: out s8[N, 5], z: out s8[N, 8], one: out s8[N]):
    for i in parallel(tiles(N)):
        y[i, :] = cast[s8](w[i, 3:8])
        z[i, :] = cast[s8](w[i, 4:12])
        one[i] = cast[s8](w[i, 7])

kernel from_floats(x: f32[N, K], s: out s4[N, K], u: out u4[N, K]):
    for i, j in parallel(tiles(N), tiles(K)):
        s[i, j] = cast[s4](x[i, j])
        u[i, j] = cast[u4](x[i, j])

kernel from_integers(x: s32[N, K], s: out s4[N, K], u: out u4[N, K]):
    for i, j in parallel(tiles(N), tiles(K)):
        s[i, j] = cast[s4](x[i, j])
        u[i, j] = cast[u4](x[i, j])

kernel turned_store(x: f32[K, N], s: out s4[N, K]):
    for i, j in parallel(tiles(N), tiles(K)):
        s[i, j] = cast[s4](x[j, i].T)

kernel in_rows(x: f32[N, K], s: out s4[N, K], top: out s4[N]):
    for i in parallel(tiles(N)):
        row = x[i, :]
        s[i, :] = cast[s4](row)
        top[i] = cast[s4](rowmax(row))

kernel in_place(w: inout s4[N, K]):
    for i, j in parallel(tiles(N), tiles(K)):
        w[i, j] = cast[s4](-cast[s8](w[i, j]))

kernel chosen(w: s4[N, K], keep: bool[N, K], y: out s4[N, K]):
    for i, j in parallel(tiles(N), tiles(K)):
        y[i, j] = where(keep[i, j], w[i, j], -3)

kernel weights(a: f16[M, K], w: s4[N, K], scale: f32[N], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ cast[f16](w[j, k]).T
        c[i, j] = acc * scale[j][None, :]

kernel weights_across(a: f16[M, N], w: u4[N, K], c: out f32[M, K]):
    for i, j in parallel(tiles(M), tiles(K)):
        acc = zeros[f32](i, j)
        for k in tiles(N):
            acc += a[i, k] @ (cast[f16](w[k, j]) - 8)
        c[i, j] = acc

kernel integers(a: s8[M, K], w: s4[N, K], c: out s32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[s32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ cast[s8](w[j, k]).T
        c[i, j] = acc

kernel rounded_product(a: f16[M, K], b: f16[N, K], c: out s4[M, N], d: out s4[N, M]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = cast[s4](acc)
        d[j, i] = cast[s4](acc).T
"""
ALL = np.arange(16)
SIZES = ((36, 50, 66), (2, 6, 2), (64, 128, 256))
"""M, N and K; what is packed is even."""


@dataclass(frozen=True)
class Case:
    """A call, and the outputs that it returns."""

    kernel: str
    arguments: tuple[Data, ...]
    wanted: tuple[Data, ...]
    bindings: dict[str, str] = field(default_factory=dict)


def pack(values: Data) -> Data:
    """Integers as bytes of two, the last axis half as long."""
    codes = values.astype(np.int64) % 16
    made: Data = (codes[..., 0::2] + 16 * codes[..., 1::2]).astype(np.uint8)
    return made


def saturated(x: Data, low: int, high: int) -> Data:
    """Floats as a cast makes integers of them."""
    made: Data = np.clip(np.trunc(np.where(np.isnan(x), 0, x)), low, high)
    return made


def cases(m: int, n: int, k: int) -> Iterator[Case]:
    """Every program on arrays of these sizes."""
    draw = np.random.default_rng(m + n + k)
    signed, unsigned = draw.integers(-8, 8, (n, k)), draw.integers(0, 16, (n, k))
    signed.flat[: min(16, n * k)] = (ALL - 8)[: min(16, n * k)]
    x = (draw.standard_normal((n, k)) * 8).astype(np.float32)
    x.flat[:6] = [np.nan, np.inf, -np.inf, 15.99, -8.99, -0.5]
    numbers = draw.integers(-300, 300, (n, k)).astype(np.int32)
    keep = draw.integers(0, 2, (n, k)).astype(np.bool_)
    yield Case("read", (pack(signed),), (signed,))
    yield Case("read", (pack(unsigned).view(np.int8),), (unsigned,), {"T": "u4"})
    yield Case("upright", (pack(signed),), (signed.T,))
    yield Case("greatest", (pack(signed),), (signed.max(1),))
    yield Case("single", (pack(signed[:3, :8]),), (signed[:3, :8],))
    wide = draw.integers(-8, 8, (n, 16))
    yield Case("parts", (pack(wide),), (wide[:, 3:8], wide[:, 4:12], wide[:, 7]))
    made = saturated(x, -8, 7)
    yield Case("from_floats", (x,), (pack(made), pack(saturated(x, 0, 15))))
    yield Case("from_integers", (numbers,), (pack(numbers), pack(numbers)))
    yield Case("turned_store", (np.ascontiguousarray(x.T),), (pack(made),))
    finite = np.where(np.isnan(x), 0, x)
    top = saturated(finite.max(1), -8, 7)
    yield Case("in_rows", (finite,), (pack(saturated(finite, -8, 7)), pack(top)))
    yield Case("in_place", (pack(signed),), (pack(-signed),))
    yield Case("chosen", (pack(signed), keep), (pack(np.where(keep, signed, -3)),))
    a, b = draw.integers(-3, 4, (m, k)), draw.integers(-2, 3, (n, k))
    half, scale = a.astype(np.float16), (2.0 ** draw.integers(-2, 3, n)).astype(np.float32)
    yield Case("weights", (half, pack(signed), scale), (a @ signed.T * scale,))
    left = draw.integers(-3, 4, (m, n))
    across = (left.astype(np.float16), pack(unsigned))
    yield Case("weights_across", across, (left @ (unsigned - 8),))
    yield Case("integers", (a.astype(np.int8), pack(signed)), (a @ signed.T,))
    rounded = np.clip(a @ b.T, -8, 7)
    yield Case("rounded_product", (half, b.astype(np.float16)), (pack(rounded), pack(rounded.T)))
