"""Loops on conditions known while running, and votes: any and all along an axis."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.machine_runs import check_text

HALVED = """
kernel f(x: f32[M, N], y: out f32[M, N], n: out s32[M]):
    for i in parallel(M):
        row = x[i, :]
        top = max(abs(row), axis=0)
        count = 0
        while top > 1 and count < 5:
            row = row * 0.5
            top = max(abs(row), axis=0)
            count += 1
        y[i, :] = row
        n[i] = count
"""

COLLATZ = """
kernel f(x: s32[M], y: out s32[M]):
    for i in parallel(M):
        steps = 0
        v = max(x[i], 1)
        while v > 1:
            if v % 2 == 0:
                v = v // 2
            else:
                v = 3 * v + 1
            steps += 1
        y[i] = steps
"""

SQUARED_UNTIL = """
kernel f(x: bf16[64, 64], limit: f32, y: out f32[64, 64]):
    for b in parallel(1):
        acc = zeros[f32](64, 64)
        last = 0.0
        while last < limit:
            acc += x[:, :] @ x[:, :]
            last += 1.0
        y[:, :] = acc
"""

VOTES = """
kernel f(x: f32[M, N], a: out bool[M], b: out bool[M]):
    for i in parallel(tiles(M)):
        row = x[i, :]
        a[i] = any(row > 2, axis=1)
        b[i] = all(row < 2, axis=1)
"""

VOTES_OF_COLUMNS = """
kernel f(x: f32[M, N], a: out bool[N], b: out bool[N]):
    for j in parallel(tiles(N)):
        some = full[bool](j, false)
        every = full[bool](j, true)
        for i in tiles(M):
            some = some | any(x[i, j] > 2, axis=0)
            every = every & all(x[i, j] < 2, axis=0)
        a[j] = some
        b[j] = every
"""


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(11).standard_normal(shape)


@pytest.mark.parametrize("columns", [1, 100, 2000])
def test_a_row_is_halved_until_it_is_small(columns: int) -> None:
    x = random(6, columns) * np.array([0.1, 1, 4, 20, 1000, 0])[:, None]
    y, n = x.copy(), np.zeros(6)
    for row in range(6):
        while np.abs(y[row]).max() > 1 and n[row] < 5:
            y[row] *= 0.5
            n[row] += 1
    check_text(HALVED, {"x": x}, {"y": y, "n": n})


def test_a_loop_that_need_not_run_has_branches_inside() -> None:
    x = np.array([0, 1, 2, 3, 7, 27])
    check_text(COLLATZ, {"x": x}, {"y": np.array([0, 0, 1, 7, 16, 111])})


@pytest.mark.parametrize("alignment", [2, 16])
def test_products_inside(alignment: int) -> None:
    x = random(64, 64)
    scalars = {"limit": 2.5}
    check_text(SQUARED_UNTIL, {"x": x}, {"y": 3 * (x @ x)}, scalars=scalars, alignment=alignment)


@pytest.mark.parametrize("shape", [(5, 1), (40, 33), (3, 3000), (200, 20)])
@pytest.mark.parametrize("text", [VOTES, VOTES_OF_COLUMNS], ids=["rows", "columns"])
def test_votes(shape: tuple[int, int], text: str) -> None:
    x = random(*shape)
    x[0] = 3
    axis = 1 if text is VOTES else 0
    wanted = {"a": (x > 2).any(axis), "b": (x < 2).all(axis)}
    check_text(text, {"x": x}, wanted)
