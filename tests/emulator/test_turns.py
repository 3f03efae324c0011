"""Products whose warpgroups take tiles in turns: right in every order, and nothing to find.

Grids of odd and even numbers of tiles, with edges; the common axis gives from no round to more
than twice what the ring holds, with as many stages as there are powers of two, and others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilec
from tests.emulator.planting import plant
from tilec.emulator.schedule import ORDERS
from tilec.targets import TARGETS
from tilec.targets.sm_90 import SM_90

PLAIN = "c[i, j] = cast[f16](acc)"
BIASED = "c[i, j] = cast[f16](max(acc + cast[f32](v[j])[None, :], 0.0))"
SOURCE = """kernel gemm(a: f16[M, K], b: f16[N, K], v: f16[N], c: out f16[M, N]):
    for i, j in parallel(tiles(M, 64), tiles(N, {N})):
        acc = zeros[f32](i, j)
        for k in tiles(K, 64):
            acc += a[i, k] @ b[j, k].T
        {END}
"""


@pytest.fixture(autouse=True)
def few_ctas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of two SMs, whose CTAs have several tiles each."""
    monkeypatch.setitem(TARGETS, "sm_90a", replace(SM_90, sms=2))


def wrong(
    sizes: tuple[int, int, int],
    how: tilec.Emulator,
    stages: int = 2,
    columns: int = 64,
    end: str = BIASED,
    cluster: tuple[int, ...] = (),
) -> int:
    """Elements that differ from the exact product; faults are raised."""
    m, n, k = sizes
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, (rows, k)).astype(np.float16) for rows in (m, n))
    v = rng.integers(-3, 4, n).astype(np.float16)
    pins = tilec.Schedule(alternate=True, stages=stages, persistent=True, cluster=cluster)
    source = SOURCE.format(N=columns, END=end)
    c = tilec.compile(source).gemm.using(schedule=pins, on=how)(a, b, v)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    if end == BIASED:
        exact = np.maximum(exact + v.astype(np.float64), 0)
    return int((c.astype(np.float64) != exact).sum())


@pytest.mark.parametrize(("stages", "trips"), [(s, t) for s in (2, 3) for t in range(2 * s + 2)])
def test_any_number_of_rounds(trips: int, stages: int) -> None:
    order = ORDERS[(trips + stages) % len(ORDERS)]
    assert wrong((72, 136, 64 * trips), tilec.Emulator(order, seed=trips), stages) == 0


@pytest.mark.parametrize("sizes", [(64, 64), (64, 320), (200, 136), (128, 128)])
@pytest.mark.parametrize("order", ["late", "random"])
def test_grids(sizes: tuple[int, int], order: str) -> None:
    assert wrong((*sizes, 136), tilec.Emulator(order, seed=1)) == 0


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)])
def test_beside_clusters(cluster: tuple[int, int]) -> None:
    how = tilec.Emulator("late")
    assert wrong((200, 328, 200), how, stages=3, end=PLAIN, cluster=cluster) == 0


def test_a_wide_tile() -> None:
    assert wrong((200, 520, 264), tilec.Emulator("random"), stages=3, columns=256) == 0


@pytest.mark.long
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_all_orders(order: str, seed: int, stages: int) -> None:
    for end in (PLAIN, BIASED):
        assert wrong((200, 264, 200), tilec.Emulator(order, seed=seed), stages, end=end) == 0


# --- faults planted in what is emitted ------------------------------------------------------------

DAMAGE = {
    "a stage waits for both groups": (
        r"(mbarrier\.init\.shared::cta\.b64 [^,]+), 4;", r"\1, 8;", {"deadlock"},
    ),
    "a group passes over too little": (
        r"(add\.u32 (%r\d+), %r\d+), (%r\d+);(\n  shr\.u32 %r\d+, \2, 1;)", r"\1, 0;\4",
        {"deadlock", "data-race", "arrival-count", "unfinished-work"},
    ),
    "the turn is never passed on": (
        r"bar\.arrive %r\d+, 256;", "", {"deadlock"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    what, instead, kinds = DAMAGE[name]
    changed = plant(monkeypatch, what, instead)
    with pytest.raises(tilec.EmulationError) as fault:
        wrong((200, 136, 136), tilec.Emulator("late"))
    assert changed == [True]
    assert kinds & {diagnostic.code for diagnostic in fault.value.diagnostics}
