"""Programs that random ones were shrunk to, each after what was wrong with it; now they compile."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.programs import Program
from tests.fuzz.trials import attempt

FOUND = {
    "a pinned loop whose result nobody uses": """
kernel k(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        acc = zeros[f32](i)
        for j in tiles(N, 16):
            acc += rowsum(x[i, j])
        y[i] = rowmax(x[i, :])
""",
    "the same in one of two launches, and a loop with an offer": """
kernel k(x: f32[M, N], y: out f32[M]):
    w = temp[f32](M)
    for i in parallel(tiles(M)):
        acc = zeros[f32](i)
        for j in tiles(N, 16):
            acc += rowsum(x[i, j])
        for j in tiles(N, tune=[32, 16]):
            acc += rowsum(x[i, j])
        w[i] = rowmax(x[i, :])
    for i in parallel(tiles(M)):
        y[i] = w[i]
""",
    "two dimensions taken whole in one launch": """
kernel k(x: f32[B, M], z: s32[N], y: out f32[B], v: out s32[B, N]):
    for b in parallel(B):
        y[b] = max(x[b, :], axis=0)
        v[b, :] = z[:]
""",
    "padding of computed operands of integers": """
kernel k(x: s8[M, 7], z: s8[20, 7], y: out s32[M, 20]):
    for i in parallel(tiles(M)):
        y[i, :] = where(x[i, :] > 1, x[i, :], 1) @ (z[:, :] + 1).T
""",
    "complements of literals": """
kernel k(x: s32[M], y: out s32[M]):
    for i in parallel(tiles(M)):
        y[i] = x[i] & ~~1
""",
}
DIMS = {"B": 2, "M": 17, "N": 40}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_wrong_is_right(name: str) -> None:
    program = Program(1, FOUND[name], DIMS, {"y": 1e-4}, Counter())
    outcome = attempt(program)
    assert outcome.failure == ""
    assert outcome.ptx
