"""Products in clusters on the emulator: right in every order, and nothing to find.

Sizes end inside a cluster, inside a tile and at neither; the common axis gives from no round to
more than twice the ring holds.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tests.emulator.planting import plant
from tilec.emulator.schedule import ORDERS

SOURCE = """kernel gemm(a: f16[M, K], b: f16[N, K], c: out f16[M, N]):
    for i, j in parallel(tiles(M, 64), tiles(N, 64)):
        acc = zeros[f32](i, j)
        for k in tiles(K, 64):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = cast[f16](acc)
"""
STAGES = 2
SHAPES = ((2, 1), (1, 2), (2, 2))
SIZES = ((64, 64), (200, 136), (128, 256))


def wrong(
    sizes: tuple[int, int, int], shape: tuple[int, int], how: tilec.Emulator, persistent: bool
) -> int:
    """Elements that differ from the exact product; faults are raised."""
    m, n, k = sizes
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, (rows, k)).astype(np.float16) for rows in (m, n))
    pins = tilec.Schedule(cluster=shape, stages=STAGES, warpgroups=1, persistent=persistent)
    c = tilec.compile(SOURCE).gemm.using(schedule=pins, on=how)(a, b)
    return int((c.astype(np.float64) != a.astype(np.float64) @ b.astype(np.float64).T).sum())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("trips", range(2 * STAGES + 2))
def test_any_number_of_rounds(trips: int, shape: tuple[int, int]) -> None:
    order = ORDERS[(trips + shape[0]) % len(ORDERS)]
    how = tilec.Emulator(order, seed=trips)
    assert wrong((72, 136, 64 * trips), shape, how, bool(trips % 2)) == 0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("order", ["late", "random"])
def test_ragged_grids(sizes: tuple[int, int], shape: tuple[int, int], order: str) -> None:
    assert wrong((*sizes, 136), shape, tilec.Emulator(order, seed=1), True) == 0


@pytest.mark.long
@pytest.mark.parametrize("shape", [*SHAPES, (4, 1), (1, 4), (4, 2)])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(3))
def test_all_orders(shape: tuple[int, int], order: str, seed: int) -> None:
    for persistent in (True, False):
        assert wrong((200, 264, 200), shape, tilec.Emulator(order, seed=seed), persistent) == 0


# --- faults planted in what is emitted ------------------------------------------------------------

_BARRIER = r"barrier\.cluster\.arrive\.aligned;\n  barrier\.cluster\.wait\.aligned;\n"
DAMAGE = {
    "fewer arrivals expected": (
        r"(mbarrier\.init\.shared::cta\.b64 [^,]+), 12;", r"\1, 8;",
        {"arrival-count", "unfinished-work"},
    ),
    "more arrivals expected": (
        r"(mbarrier\.init\.shared::cta\.b64 [^,]+), 12;", r"\1, 13;", {"deadlock"},
    ),
    "all arrivals in the own CTA": (
        r"and\.b32 (%r\d+), %r\d+, 3;(?=\n *mapa)", r"mov.u32 \1, %cluster_ctarank;",
        {"arrival-count", "unfinished-work", "data-race"},
    ),
    "no barrier at the start": (
        r"(fence\.mbarrier_init[^$]*\$end_0:\n  )" + _BARRIER, r"\1bar.sync 0;\n",
        {"barrier-init-unseen", "uninitialised-barrier"},
    ),
    "no barrier at the end": (_BARRIER + r"  ret;", "ret;", {"peer-ended"}),
    "the mask of one CTA": (r"shl\.b32 (%r\d+), 3, ", r"shl.b32 \1, 1, ", {"deadlock"}),
    "a mask of a CTA too many": (
        r"cvt\.u16\.u32 %h0, %r\d+;", "mov.b16 %h0, 15;",
        {"unfinished-work", "data-race", "deadlock", "byte-count"},
    ),
    "a mask of a CTA that is not": (
        r"cvt\.u16\.u32 %h0, %r\d+;", "mov.b16 %h0, 19;", {"cluster-rank"},
    ),
    "both shares at one place": (
        r"mad\.lo\.u32 (%r\d+), (%r\d+), 4096, ", r"mad.lo.u32 \1, \2, 0, ",
        {"unfinished-work", "uninitialised-memory"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    what, instead, kinds = DAMAGE[name]
    changed = plant(monkeypatch, what, instead)
    with pytest.raises(tilec.EmulationError) as fault:
        wrong((200, 136, 328), (2, 2), tilec.Emulator("late"), True)
    assert changed == [True]
    assert kinds & {diagnostic.code for diagnostic in fault.value.diagnostics}
