"""What lowered programs compute: NumPy's answer, for two tile sizes and ragged extents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.interpret import bind_dims, choose_sizes, interpret
from tilec.source import SourceFile

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Arrays = dict[str, Any]


def answers(
    text: str, arrays: Mapping[str, Any], bindings: Mapping[str, object], **scalars: float
) -> list[Arrays]:
    """The arrays after running the program, once for each of two choices of tile sizes."""
    module = check(parse(SourceFile("m.tk", text)), bindings)
    kernel = lower(module, module.kernels[0].name).kernels[0]
    found = []
    for choice in (0, 1):
        copies = {name: array.copy() for name, array in arrays.items()}
        sizes = choose_sizes(kernel, bind_dims(kernel, copies), choice)
        interpret(kernel, copies, scalars, sizes)
        found.append(copies)
    return found


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def unwritten(*shape: int) -> Any:
    return np.full(shape, np.nan, np.float32)


@pytest.mark.parametrize(("m", "n", "k"), [(33, 70, 50), (1, 17, 64), (64, 16, 1)])
def test_gemm(m: int, n: int, k: int) -> None:
    a, b = random(m, k).astype(np.float16), random(n, k, seed=1).astype(np.float16)
    c = unwritten(m, n).astype(np.float16)
    text = (_EXAMPLES / "gemm.tk").read_text()
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    for found in answers(text, {"a": a, "b": b, "c": c}, {"T": "f16"}):
        np.testing.assert_allclose(found["c"], expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("shape", [(33, 70), (1, 1), (0, 5)])
def test_add(shape: tuple[int, int]) -> None:
    a, b = random(*shape), random(*shape, seed=1)
    text = (_EXAMPLES / "add.tk").read_text()
    for found in answers(text, {"a": a, "b": b, "c": unwritten(*shape)}, {"T": "f32"}):
        np.testing.assert_array_equal(found["c"], a + b)


@pytest.mark.parametrize("shape", [(33, 70), (5, 1), (1, 100)])
def test_softmax(shape: tuple[int, int]) -> None:
    x = random(*shape)
    weights = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True)
    text = (_EXAMPLES / "softmax.tk").read_text()
    for found in answers(text, {"x": x, "y": unwritten(*shape)}, {"T": "f32"}):
        np.testing.assert_allclose(found["y"], expected, rtol=1e-5, atol=1e-7)


PROGRAMS: dict[str, tuple[str, Callable[..., Any]]] = {
    "carried values start from what stands before the loop": (
        """
        total = rowsum(x[i, :])
        for j in tiles(N):
            total += rowsum(x[i, j]) * 2
        y[i] = total
        """,
        lambda x, s: x.sum(axis=1) * 3,
    ),
    "a name that a loop leaves alone keeps its value": (
        """
        first = x[i, 0]
        last = first
        for t in range(1, 3):
            last = last + x[i, 1] * cast[f32](t)
        y[i] = last - first
        """,
        lambda x, s: x[:, 1] * 3,
    ),
    "values are exchanged, not overwritten": (
        """
        a, b = x[i, 0], x[i, 1]
        for t in range(3):
            a, b = b, a
        y[i] = a - 2 * b
        """,
        lambda x, s: x[:, 1] - 2 * x[:, 0],
    ),
    "the last tile counts its own elements only": (
        """
        n = 0
        most = full[f32](i, -inf)
        for j in tiles(N):
            n += len(j)
            most = max(most, rowmax(x[i, j]))
        y[i] = most + cast[f32](n)
        """,
        lambda x, s: x.max(axis=1) + x.shape[1],
    ),
    "a run-time if changes what it assigns": (
        """
        v = x[i, 0]
        if s > 0:
            v = -v
            if s > 1 and not s > 2:
                v = v * 2
        elif s < -1:
            v = v + 1
        y[i] = v
        """,
        lambda x, s: (
            -x[:, 0] * (2 if 1 < s <= 2 else 1) if s > 0 else x[:, 0] + (1 if s < -1 else 0)
        ),
    ),
    "indices are the global ones": (
        """
        total = zeros[f32](i)
        for j in tiles(N):
            total += rowsum(where(i[:, None] >= j[None, :], x[i, j], 0))
        y[i] = total
        """,
        lambda x, s: np.tril(x).sum(axis=1),
    ),
    "integers divide downwards": (
        """
        k = (0 - i) // 4 + (0 - i) % 4
        y[i] = cast[f32](k) + 0 * x[i, 0]
        """,
        lambda x, s: -np.arange(len(x)) // 4 + -np.arange(len(x)) % 4,
    ),
    "literals fold as Python computes them": (
        """
        y[i] = x[i, 0] * (7 // 2 - 2 ** 3 % 5 + -7 // 2 + 1 / 4)
        """,
        lambda x, s: x[:, 0] * -3.75,
    ),
    "comparisons chain": (
        """
        y[i] = where(-0.5 < x[i, 0] <= 0.5, x[i, 0], s)
        """,
        lambda x, s: np.where((x[:, 0] > -0.5) & (x[:, 0] <= 0.5), x[:, 0], np.float32(s)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("s", [-2.0, 0.5, 1.5, 3.0])
def test_program(name: str, s: float) -> None:
    body, expected = PROGRAMS[name]
    head = "kernel k(x: f32[M, 19], s: f32, y: out f32[M]):\n    for i in parallel(tiles(M)):\n"
    text = head + body.lstrip("\n")
    text = text.replace("tiles(N)", "tiles(19)").rstrip() + "\n"
    x = random(37, 19)
    for found in answers(text, {"x": x, "y": unwritten(37)}, {}, s=s):
        np.testing.assert_allclose(found["y"], expected(x, s), rtol=1e-5, atol=1e-5)
