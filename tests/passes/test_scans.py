"""Scans and reductions by a function: along either axis, forward and back, over warps and edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.passes.machine_runs import check_text
from tilec.ir.facts import Schedule

BY_ROWS = """
kernel f(x: f32[M, N], y: out f32[M, N], z: out f32[M, N]):
    for i in parallel(tiles(M)):
        y[i, :] = cumsum(x[i, :], axis=1)
        z[i, :] = cummax(x[i, :], axis=1, reverse=true)
"""

BY_COLUMNS = """
kernel f(x: f32[M, N], y: out f32[M, N], z: out f32[M, N]):
    for j in parallel(tiles(N)):
        above = zeros[f32](j)
        least = full[f32](j, inf)
        for i in tiles(M):
            y[i, j] = cumsum(x[i, j], axis=0) + above[None, :]
            z[i, j] = min(cummin(x[i, j], axis=0), least[None, :])
            above += sum(x[i, j], axis=0)
            least = min(least, min(x[i, j], axis=0))
"""

ALONE = """
kernel f(x: f32[M, N], y: out f32[M, N]):
    for m in parallel(M):
        y[m, :] = cumsum(x[m, :], axis=0, reverse=true)
"""

# Affine maps x -> a x + b compose associatively and do not commute.
AFFINE = """
fn after(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2

kernel f(
        a: f32[M, N], b: f32[M, N],
        y: out f32[M, N], z: out f32[M, N], p: out f32[M], q: out f32[M]):
    for i in parallel(tiles(M)):
        s, t = scan(after, (a[i, :], b[i, :]), axis=1, identity=(1, 0))
        y[i, :] = t
        u, v = scan(after, (a[i, :], b[i, :]), axis=1, identity=(1, 0), reverse=true)
        z[i, :] = u + v
        c, d = reduce(after, (a[i, :], b[i, :]), axis=1, identity=(1, 0))
        p[i] = c
        q[i] = d
"""

COLUMNS_BY_FUNCTION = """
from std.merges import welford

kernel f(x: f32[M, N], y: out f32[N], z: out f32[N]):
    for j in parallel(tiles(N)):
        n, mean, s = full[f32](j, 0), full[f32](j, 0), full[f32](j, 0)
        for i in tiles(M):
            k, m, t = reduce(welford, (1, x[i, j], 0), axis=0, identity=(0, 0, 0))
            n, mean, s = welford(n, mean, s, k, m, t)
        y[j] = mean
        z[j] = s / n
"""

VECTOR = """
fn larger(v1, p1, v2, p2):
    first = (v1 > v2) | ((v1 == v2) & (p1 < p2))
    return where(first, v1, v2), where(first, p1, p2)

kernel f(x: f32[M, N], y: out s32[M]):
    for m in parallel(M):
        row = x[m, :]
        places = cast[s32](cumsum(row * 0 + 1, axis=0)) - 1
        v, p = reduce(larger, (row, places), axis=0, identity=(-inf, 2147483647))
        y[m] = p
"""


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape)


def back(function: Any, x: np.ndarray, axis: int) -> np.ndarray:
    return np.flip(function(np.flip(x, axis), axis=axis), axis)


SIZES = [(9, 1), (9, 17), (5, 300), (2, 4100), (40, 0)]


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("alignment", [0, 16])
def test_along_rows_over_registers_lanes_and_warps(shape: tuple[int, int], alignment: int) -> None:
    x = random(*shape)
    z = back(np.maximum.accumulate, x, 1)
    check_text(BY_ROWS, {"x": x}, {"y": np.cumsum(x, 1), "z": z}, alignment=alignment)


@pytest.mark.parametrize(
    ("shape", "size", "alignment"),
    [
        ((17, 9), 16, 0),
        ((300, 5), 16, 16),
        ((17, 9), 128, 16),
        ((300, 5), 128, 0),
        pytest.param((300, 5), 16, 0, marks=pytest.mark.long),
        pytest.param((17, 9), 16, 16, marks=pytest.mark.long),
        pytest.param((17, 9), 128, 0, marks=pytest.mark.long),
        pytest.param((300, 5), 128, 16, marks=pytest.mark.long),
    ],
)
def test_along_columns_with_a_carry(shape: tuple[int, int], size: int, alignment: int) -> None:
    x = random(*shape)
    wanted = {"y": np.cumsum(x, 0), "z": np.minimum.accumulate(x, 0)}
    tiles = Schedule(tiles=(("i", size), ("j", 32)))
    check_text(BY_COLUMNS, {"x": x}, wanted, schedule=tiles, alignment=alignment)


@pytest.mark.parametrize("columns", [1, 33, 513, 3000])
def test_a_row_that_a_whole_cta_shares(columns: int) -> None:
    x = random(3, columns)
    check_text(ALONE, {"x": x}, {"y": back(np.cumsum, x, 1)})


def affine(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The compositions of all maps up to each."""
    s, t = np.ones(a.shape), np.zeros(a.shape)
    p, q = np.ones(len(a)), np.zeros(len(a))
    for n in range(a.shape[1]):
        p, q = p * a[:, n], q * a[:, n] + b[:, n]
        s[:, n], t[:, n] = p, q
    return s, t


@pytest.mark.parametrize("shape", SIZES[:-1])
@pytest.mark.parametrize("warpgroups", [1, pytest.param(2, marks=pytest.mark.long)])
def test_functions_that_do_not_commute_keep_their_order(
    shape: tuple[int, int], warpgroups: int
) -> None:
    a, b = 1 + random(*shape) / 100, random(*shape)
    s, t = affine(a, b)
    u, v = (np.flip(part, 1) for part in affine(np.flip(a, 1), np.flip(b, 1)))
    wanted = {"y": t, "z": u + v, "p": s[:, -1], "q": t[:, -1]}
    check_text(AFFINE, {"a": a, "b": b}, wanted, schedule=Schedule(warpgroups=warpgroups))


@pytest.mark.parametrize("shape", [(1, 9), (17, 9), (130, 70)])
@pytest.mark.parametrize("alignment", [0, 16])
def test_counts_means_and_squares_of_columns(shape: tuple[int, int], alignment: int) -> None:
    x = random(*shape)
    wanted = {"y": x.mean(0), "z": x.var(0)}
    check_text(COLUMNS_BY_FUNCTION, {"x": x}, wanted, alignment=alignment)


@pytest.mark.parametrize("columns", [1, 40, 2000])
def test_pairs_of_value_and_place(columns: int) -> None:
    x = np.round(random(4, columns) * 3)
    check_text(VECTOR, {"x": x}, {"y": x.argmax(1)})
