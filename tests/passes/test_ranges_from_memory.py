"""Tiles of ranges that are read from memory: on the grid, in loops, with products and without.

The arrays go on beyond each range, there with NaN where nobody may look: what is read too far and
not masked shows, and so does what is written too far.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.passes.machine_runs import check_text
from tilec.ir.facts import Schedule

OFFSETS = ([0, 3, 3, 67, 131, 150], [5, 5, 100, 100, 140, 149], [0, 0, 0, 0, 0, 0])
"""Whole and in part, empty, one over a tile, not from the start nor to the end."""

SUMS = """
kernel f(off: s32[BE], x: f32[M, N], y: out f32[B, N]):
    require BE == B + 1
    for b, j in parallel(B, tiles(N)):
        total = zeros[f32](j)
        for i in tiles(off[b], off[b + 1], max=M):
            total += sum(x[i, j], axis=0)
        y[b, j] = total
"""

GROUPED = """
kernel f(off: s32[GE], a: bf16[M, K], b: bf16[G, N, K], c: out bf16[M, N]):
    require GE == G + 1
    for g, i, j in parallel(G, tiles(off[g], off[g + 1], max=M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[g, j, k].T
        c[i, j] = cast[bf16](acc)
"""

SCALED = """
kernel f(off: s32[GE], s: f32[G], x: f32[M, N], y: out f32[M, N]):
    require GE == G + 1
    for g, i, j in parallel(G, tiles(off[g], off[g + 1], max=M), tiles(N, 32)):
        y[i, j] = x[i, j] * s[g] + cast[f32](len(j))
"""

ALONG = """
kernel f(lo: s32[B], hi: s32[B], x: f32[B, N], y: out f32[B, N], top: out f32[B]):
    for b in parallel(B):
        best = -inf
        for j in tiles(lo[b], hi[b], max=N):
            row = x[b, j]
            y[b, j] = row * 2
            best = max(best, max(row, axis=0))
        top[b] = best
"""

DEPTH = """
kernel f(ks: s32[SE], a: bf16[M, K], b: bf16[N, K], c: out f32[S, M, N]):
    require SE == S + 1
    for s, i, j in parallel(S, tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(ks[s], ks[s + 1], max=K):
            acc += a[i, k] @ b[j, k].T
        c[s, i, j] = acc
"""

ROWS_OF_B = """
kernel f(ks: s32[SE], a: bf16[S, M, K], b: bf16[K, N], c: out f32[S, M, N]):
    require SE == S + 1
    for s, i, j in parallel(S, tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(ks[s], ks[s + 1], max=K):
            p = a[s, i, k]
            acc += p @ b[k, j]
        c[s, i, j] = acc
"""

COUNTS = """
kernel f(off: s32[BE], x: f32[M, N], y: out f32[B, N]):
    require BE == B + 1
    for b, j in parallel(B, tiles(N)):
        total = zeros[f32](j)
        for i in tiles(off[b], off[b + 1], max=M):
            total += sum(full[f32](i, j, 1), axis=0)
        y[b, j] = total
"""


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


def outside_is_nan(x: np.ndarray, low: int, high: int) -> np.ndarray:
    x = x.copy()
    x[:low] = x[high:] = np.nan
    return x


@pytest.mark.parametrize("off", OFFSETS)
@pytest.mark.parametrize("alignment", [0, 4, 16])
def test_a_loop_over_a_range_sees_its_rows_only(off: list[int], alignment: int) -> None:
    x = outside_is_nan(random(150, 88), off[0], off[-1])
    sums = [x[a:b].sum(axis=0) for a, b in itertools.pairwise(off)]
    check_text(SUMS, {"off": np.array(off), "x": x}, {"y": np.stack(sums)}, alignment=alignment)


@pytest.mark.parametrize("off", OFFSETS)
def test_what_a_range_holds_is_counted_where_nothing_is_read(off: list[int]) -> None:
    counts = np.repeat(np.diff(off)[:, None], 88, axis=1).astype(float)
    check_text(COUNTS, {"off": np.array(off), "x": random(150, 88)}, {"y": counts})


@pytest.mark.parametrize("off", OFFSETS)
@pytest.mark.parametrize("alignment", [0, 2, 16])
@pytest.mark.parametrize("persistent", [False, True])
def test_grouped_products_write_each_group_with_its_own_matrix(
    off: list[int], alignment: int, persistent: bool
) -> None:
    a, b = outside_is_nan(random(150, 72), off[0], off[-1]), random(5, 88, 72)
    c = np.full((150, 88), np.nan)
    for g, (low, high) in enumerate(itertools.pairwise(off)):
        c[low:high] = a[low:high] @ b[g].T
    check_text(
        GROUPED,
        {"off": np.array(off), "a": a, "b": b},
        {"c": c},
        alignment=alignment,
        schedule=Schedule(persistent=persistent),
    )


@pytest.mark.parametrize("off", OFFSETS)
@pytest.mark.parametrize("alignment", [0, 16])
def test_a_grid_over_ranges_writes_what_they_hold(off: list[int], alignment: int) -> None:
    x, s = random(150, 88), random(5)
    tiles = Schedule(tiles=(("i", 16), ("j", 32)))
    y = np.full((150, 88), np.nan)
    for g, (low, high) in enumerate(itertools.pairwise(off)):
        for j in range(0, 88, 32):
            y[low:high, j : j + 32] = x[low:high, j : j + 32] * s[g] + min(32, 88 - j)
    given = {"off": np.array(off), "s": s, "x": x}
    check_text(SCALED, given, {"y": y}, alignment=alignment, schedule=tiles)


@pytest.mark.parametrize("alignment", [0, 16])
def test_ranges_along_memory_start_and_end_anywhere(alignment: int) -> None:
    low, high = np.array([0, 7, 100, 5, -3]), np.array([0, 8, 1000, 261, 20])
    x, y, top = random(5, 300), np.full((5, 300), np.nan), np.full(5, -np.inf)
    for b, (start, end) in enumerate(zip(low, high, strict=True)):
        start = max(start, 0)
        y[b, start:end] = 2 * x[b, start:end]
        top[b] = max(x[b, start:end], default=-np.inf)
    given = {"lo": low, "hi": high, "x": x}
    check_text(ALONG, given, {"y": y, "top": top}, alignment=alignment)


@pytest.mark.parametrize("ks", [[0, 1, 64, 130], [3, 3, 20, 129]])
@pytest.mark.parametrize("alignment", [0, 16])
def test_products_sum_over_a_range(ks: list[int], alignment: int) -> None:
    a, b = random(70, 136), random(40, 136)
    parts = [a[:, p:q] @ b[:, p:q].T for p, q in itertools.pairwise(ks)]
    given = {"ks": np.array(ks), "a": a, "b": b}
    check_text(DEPTH, given, {"c": np.stack(parts)}, alignment=alignment)


@pytest.mark.parametrize("ks", [[0, 1, 64, 130], [3, 3, 20, 129]])
@pytest.mark.parametrize("alignment", [0, 16])
def test_products_take_rows_of_a_range(ks: list[int], alignment: int) -> None:
    a, b = random(3, 70, 136), random(136, 40)
    parts = [a[s, :, p:q] @ b[p:q] for s, (p, q) in enumerate(itertools.pairwise(ks))]
    b = outside_is_nan(b, ks[0], ks[-1])
    given = {"ks": np.array(ks), "a": a, "b": b}
    check_text(ROWS_OF_B, given, {"c": np.stack(parts)}, alignment=alignment)
