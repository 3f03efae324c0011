"""Programs that the passes are tried on: more shapes of program than the three examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Program:
    """A source, what it means in NumPy, and the shapes of its arrays by size names."""

    text: str
    shapes: dict[str, str]
    means: Callable[[Any], dict[str, np.ndarray]]
    scalars: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=lambda: {"M": 150, "N": 88, "K": 72, "B": 2})
    units: dict[str, int] = field(default_factory=dict)
    """Contiguous axes that are not the last one."""


def _product_loop(operands: str) -> str:
    return f"""
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += {operands}
"""


_STORE = "        c[i, j] = cast[T](acc)\n"


def _gemm(head: str, operands: str, tail: str = _STORE) -> str:
    return head + _product_loop(operands) + tail


def _softmax2(s: np.ndarray) -> np.ndarray:
    """Rows as powers of two that sum to one."""
    p = np.exp2(s - s.max(-1, keepdims=True))
    return np.asarray(p / p.sum(-1, keepdims=True))


PROGRAMS: dict[str, Program] = {
    "gemm": Program(
        _gemm(
            "kernel f[T: dtype = bf16](a: T[M, K], b: T[N, K], c: out T[M, N]):",
            "a[i, k] @ b[j, k].T",
        ),
        {"a": "MK", "b": "NK", "c": "MN"},
        lambda x: {"c": x.a @ x.b.T},
    ),
    "gemm of columns": Program(
        _gemm(
            "kernel f[T: dtype = f16](a: T[M, K], b: T[N, K], c: out T[M, N]):",
            "a[i, k] @ b[j, k].T",
        ),
        {"a": "MK", "b": "NK", "c": "MN"},
        lambda x: {"c": x.a @ x.b.T},
        units={"a": 0, "b": 0},
    ),
    "operands transposed in the program": Program(
        _gemm(
            "kernel f[T: dtype = bf16](a: T[K, M], b: T[K, N], c: out T[M, N]):",
            "a[k, i].T @ b[k, j]",
        ),
        {"a": "KM", "b": "KN", "c": "MN"},
        lambda x: {"c": x.a.T @ x.b},
    ),
    "bias and activation": Program(
        _gemm(
            "kernel f[T: dtype = bf16](a: T[M, K], b: T[N, K], v: T[N], c: out T[M, N]):",
            "a[i, k] @ b[j, k].T",
            "        y = acc + cast[f32](v[j])[None, :]\n        c[i, j] = cast[T](max(y, 0.0))\n",
        ),
        {"a": "MK", "b": "NK", "v": "N", "c": "MN"},
        lambda x: {"c": np.maximum(x.a @ x.b.T + x.v, 0)},
    ),
    "residual in f32": Program(
        _gemm(
            "kernel f(a: bf16[M, K], b: bf16[K, N], r: f32[M, N], c: out f32[M, N], s: f32):",
            "a[i, k] @ b[k, j]",
            "        c[i, j] = acc * s + r[i, j]\n",
        ),
        {"a": "MK", "b": "KN", "r": "MN", "c": "MN"},
        lambda x: {"c": (x.a @ x.b) * 0.5 + x.r},
        scalars={"s": 0.5},
    ),
    "update in place": Program(
        _gemm(
            "kernel f(a: bf16[M, K], b: bf16[N, K], c: inout f32[M, N], s: f32):",
            "a[i, k] @ b[j, k].T",
            "        c[i, j] = acc * s + 0.5 * c[i, j]\n",
        ),
        {"a": "MK", "b": "NK", "c": "MN"},
        lambda x: {"c": x.a @ x.b.T * 0.25 + 0.5 * x.c},
        scalars={"s": 0.25},
    ),
    "what was there before a write": Program(
        _gemm(
            "kernel f(a: bf16[M, K], b: bf16[N, K], c: inout f32[M, N], d: out f32[M, N]):",
            "a[i, k] @ b[j, k].T",
            "        old = c[i, j]\n        c[i, j] = acc\n        d[i, j] = acc - old\n",
        ),
        {"a": "MK", "b": "NK", "c": "MN", "d": "MN"},
        lambda x: {"c": x.a @ x.b.T, "d": x.a @ x.b.T - x.c},
    ),
    "batched": Program(
        """
kernel f[T: dtype = f16](a: T[B, M, K], b: T[B, N, K], c: out T[B, M, N]):
    for h, i, j in parallel(B, tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[h, i, k] @ b[h, j, k].T
        c[h, i, j] = cast[T](acc)
""",
        {"a": "BMK", "b": "BNK", "c": "BMN"},
        lambda x: {"c": np.einsum("bmk,bnk->bmn", x.a, x.b)},
    ),
    "two products of one operand": Program(
        """
kernel f[T: dtype = bf16](a: T[M, K], b: T[N, K], d: T[N, K], c: out T[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        g = zeros[f32](i, j)
        u = zeros[f32](i, j)
        for k in tiles(K):
            g += a[i, k] @ b[j, k].T
            u += a[i, k] @ d[j, k].T
        c[i, j] = cast[T](g * u)
""",
        {"a": "MK", "b": "NK", "d": "NK", "c": "MN"},
        lambda x: {"c": (x.a @ x.b.T) * (x.a @ x.d.T)},
    ),
    "rows of a product reduced": Program(
        """
kernel f[T: dtype = bf16](a: T[M, K], b: T[N, K], c: out T[M, N], s: out f32[M]):
    for i in parallel(tiles(M)):
        t = zeros[f32](i)
        for j in tiles(N):
            acc = zeros[f32](i, j)
            for k in tiles(K):
                acc += a[i, k] @ b[j, k].T
            t = t + rowsum(acc * acc + 1.0)
            c[i, j] = cast[T](acc)
        s[i] = t
""",
        {"a": "MK", "b": "NK", "c": "MN", "s": "M"},
        lambda x: {"c": x.a @ x.b.T, "s": ((x.a @ x.b.T) ** 2 + 1).sum(1)},
    ),
    "computed operand": Program(
        _gemm(
            "kernel f[T: dtype = bf16](a: T[M, K], b: T[N, K], c: out T[M, N]):",
            "cast[T](exp2(cast[f32](a[i, k]))) @ b[j, k].T",
        ),
        {"a": "MK", "b": "NK", "c": "MN"},
        lambda x: {"c": np.exp2(x.a) @ x.b.T},
    ),
    "product without a loop": Program(
        """
kernel f[T: dtype = bf16, D: int = 64](q: T[M, D], k: T[N, D], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        c[i, j] = q[i, :] @ k[j, :].T
""",
        {"q": "MD", "k": "ND", "c": "MN"},
        lambda x: {"c": x.q @ x.k.T},
        sizes={"M": 150, "N": 88, "D": 64},
    ),
    "add": Program(
        """
kernel f(a: f32[M, N], b: f32[M, N], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        c[i, j] = a[i, j] + b[i, j]
""",
        {"a": "MN", "b": "MN", "c": "MN"},
        lambda x: {"c": x.a + x.b},
    ),
    "vectors": Program(
        """
kernel f(a: f32[N], b: f32[N], c: out f32[N]):
    for i in parallel(tiles(N)):
        c[i] = a[i] * b[i] + 1.0
""",
        {"a": "N", "b": "N", "c": "N"},
        lambda x: {"c": x.a * x.b + 1},
    ),
    "outer product": Program(
        """
kernel f(a: f32[M], b: f32[N], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        c[i, j] = a[i][:, None] * b[j][None, :]
""",
        {"a": "M", "b": "N", "c": "MN"},
        lambda x: {"c": np.outer(x.a, x.b)},
    ),
    "triangle": Program(
        """
kernel f(a: f32[M, N], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        c[i, j] = where(i[:, None] >= j[None, :], a[i, j], 0.0)
""",
        {"a": "MN", "c": "MN"},
        lambda x: {"c": np.tril(x.a)},
    ),
    "transposed": Program(
        """
kernel f(a: f32[M, N], c: out f32[N, M]):
    for i, j in parallel(tiles(M), tiles(N)):
        c[j, i] = a[i, j].T
""",
        {"a": "MN", "c": "NM"},
        lambda x: {"c": x.a.T},
    ),
    "softmax": Program(
        """
kernel f(x: f32[M, N], y: out f32[M, N]):
    for i in parallel(tiles(M)):
        row = x[i, :]
        p = exp2(row - rowmax(row)[:, None])
        y[i, :] = p / rowsum(p)[:, None]
""",
        {"x": "MN", "y": "MN"},
        lambda x: {
            "y": np.exp2(x.x - x.x.max(1, keepdims=True))
            / np.exp2(x.x - x.x.max(1, keepdims=True)).sum(1, keepdims=True)
        },
    ),
    "normalised rows": Program(
        """
kernel f(a: f32[M, N], w: f32[N], c: out f32[M, N], m: out f32[M]):
    for i in parallel(tiles(M)):
        x = a[i, :]
        mu = rowsum(x) / cast[f32](N)
        d = x - mu[:, None]
        v = rowsum(d * d) / cast[f32](N)
        c[i, :] = d * rsqrt(v + 0.5)[:, None] * w[:][None, :]
        m[i] = mu
""",
        {"a": "MN", "w": "N", "c": "MN", "m": "M"},
        lambda x: {
            "m": x.a.mean(1),
            "c": (x.a - x.a.mean(1, keepdims=True))
            / np.sqrt(x.a.var(1, keepdims=True) + 0.5)
            * x.w,
        },
    ),
    "sums of columns": Program(
        """
kernel f(a: f32[M, N], c: out f32[N]):
    for j in parallel(tiles(N)):
        t = zeros[f32](j)
        for i in tiles(M):
            t = t + sum(a[i, j], axis=0)
        c[j] = t
""",
        {"a": "MN", "c": "N"},
        lambda x: {"c": x.a.sum(0)},
    ),
    "sums of rows in tiles": Program(
        """
kernel f(a: f32[M, N], c: out f32[M]):
    for i in parallel(tiles(M)):
        t = zeros[f32](i)
        for j in tiles(N):
            t = t + rowsum(a[i, j])
        c[i] = t
""",
        {"a": "MN", "c": "M"},
        lambda x: {"c": x.a.sum(1)},
    ),
    "product in parts": Program(
        """
kernel f[T: dtype = bf16](a: T[M, K], b: T[N, K], c: out T[M, N], s: out f32[N]):
    part = temp[f32](M, N)
    most = temp[f32](N)
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        part[i, j] = acc
    for j in parallel(tiles(N)):
        m = full[f32](j, -inf)
        for i in tiles(M):
            m = max(m, max(part[i, j], axis=0))
        most[j] = m
    for i, j in parallel(tiles(M), tiles(N)):
        c[i, j] = cast[T](part[i, j] - most[j][None, :])
    for j in parallel(tiles(N)):
        s[j] = most[j]
""",
        {"a": "MK", "b": "NK", "c": "MN", "s": "N"},
        lambda x: {"c": x.a @ x.b.T - (x.a @ x.b.T).max(0), "s": (x.a @ x.b.T).max(0)},
    ),
    "decoding in shares": Program(
        """
fn kept(m, of):
    return where(m == of, 1, exp2(m - of))

fn merged(m1, l1, a1, m2, l2, a2):
    m = max(m1, m2)
    first, second = kept(m1, m), kept(m2, m)
    return m, l1 * first + l2 * second, a1 * first[:, None] + a2 * second[:, None]

kernel f[D: int = 64](q: bf16[B, M, D], k: bf16[B, N, D], v: bf16[B, N, D], o: out f32[B, M, D]):
    schedule splits.j=3
    for b, i in parallel(B, tiles(M)):
        m = full[f32](i, -inf)
        l = zeros[f32](i)
        acc = zeros[f32](i, D)
        for j in tiles(N, 64) join merged(m, l, acc):
            s = q[b, i, :] @ k[b, j, :].T
            r = anchor(m, s)
            p = exp2sub(s, r[:, None])
            alpha = exp2sub(m, r)
            l = l * alpha + rowsum(p)
            acc = acc * alpha[:, None] + cast[bf16](p) @ v[b, j, :]
            m = r
        o[b, i, :] = acc / l[:, None]
""",
        {"q": "BMD", "k": "BND", "v": "BND", "o": "BMD"},
        lambda x: {"o": _softmax2(x.q @ x.k.swapaxes(1, 2)) @ x.v},
        sizes={"B": 2, "M": 5, "N": 65, "D": 64},
    ),
    "product in ranges": Program(
        """
kernel f[T: dtype = bf16](a: T[M, K], b: T[N, K], c: out T[M, N]):
    parts = temp[f32](3, M, N)
    for s, i, j in parallel(3, tiles(M), tiles(N)):
        length = (K + 191) // 192 * 64
        acc = zeros[f32](i, j)
        for k in tiles(s * length, (s + 1) * length, max=K):
            acc += a[i, k] @ b[j, k].T
        parts[s, i, j] = acc
    for i, j in parallel(tiles(M), tiles(N)):
        total = zeros[f32](i, j)
        for s in range(3):
            total += parts[s, i, j]
        c[i, j] = cast[T](total)
""",
        {"a": "MK", "b": "NK", "c": "MN"},
        lambda x: {"c": x.a @ x.b.T},
    ),
    "rows by join": Program(
        """
fn merged(m1, l1, m2, l2):
    m = max(m1, m2)
    return m, l1 * exp2sub(m1, m) + l2 * exp2sub(m2, m)

kernel f(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        m = full[f32](i, -inf)
        l = zeros[f32](i)
        for j in tiles(N) join merged(m, l):
            r = anchor(m, x[i, j])
            l = l * exp2sub(m, r) + rowsum(exp2sub(x[i, j], r[:, None]))
            m = r
        y[i] = m + log2(l)
""",
        {"x": "MN", "y": "M"},
        lambda x: {"y": np.log2(np.exp2(x.x).sum(1))},
    ),
    "one row a CTA": Program(
        """
kernel f(x: f32[M, N], y: out f32[M]):
    for i in parallel(M):
        y[i] = sum(x[i, :] * 2.0, axis=0)
""",
        {"x": "MN", "y": "M"},
        lambda x: {"y": 2 * x.x.sum(1)},
    ),
    "homes pinned to shared memory": Program(
        """
kernel f(x: f32[M, N], y: out f32[M, N]):
    for i in parallel(tiles(M)):
        shared row = x[i, :] * 2
        shared mean = rowsum(row) / cast[f32](N)
        register top = rowmax(row)
        y[i, :] = (row - mean[:, None]) * top[:, None]
""",
        {"x": "MN", "y": "MN"},
        lambda x: {"y": 4 * (x.x - x.x.mean(1)[:, None]) * x.x.max(1)[:, None]},
    ),
    "homes of operands": Program(
        """
kernel f(a: bf16[M, K], b: bf16[N, K], c: out f32[M, N]):
    for i, j in parallel(tiles(M, 128), tiles(N, 64)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            shared p = a[i, k]
            shared q = cast[bf16](cast[f32](b[j, k]) * 2)
            shared r = p @ q.T
            acc += r + rowsum(cast[f32](p))[:, None]
        c[i, j] = acc
""",
        {"a": "MK", "b": "NK", "c": "MN"},
        lambda x: {"c": 2 * x.a @ x.b.T + x.a.sum(1)[:, None]},
    ),
    "strict sums of rows": Program(
        """
kernel f(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        strict:
            y[i] = rowsum(x[i, :] * 2) + prod(where(x[i, :] > 0, 1.5, 1.0), axis=1)
""",
        {"x": "MN", "y": "M"},
        lambda x: {"y": 2 * x.x.sum(1) + 1.5 ** (x.x > 0).sum(1)},
    ),
    "strict sums of columns": Program(
        """
kernel f(x: f32[M, N], z: out f32[N]):
    for j in parallel(tiles(N)):
        t = zeros[f32](j)
        for i in tiles(M, 64):
            strict:
                t += sum(x[i, j], axis=0)
        z[j] = t
""",
        {"x": "MN", "z": "N"},
        lambda x: {"z": x.x.sum(0)},
    ),
}
