"""Where clusters are chosen: rows across lines of memory, and the same rounds for every CTA."""

from __future__ import annotations

import pytest

from tilec.compiler import compile_source
from tilec.ir.facts import ArrayFacts, Facts
from tilec.source import SourceFile
from tilec.targets import by_name

GEMM = """kernel gemm(a: bf16[M, K], b: bf16[N, K], c: out bf16[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = cast[bf16](acc)
"""


def _cluster(m: int, n: int, k: int, target: str = "sm_90", source: str = GEMM) -> tuple[int, ...]:
    facts = Facts(
        tuple((name, ArrayFacts(1, 16)) for name in "abc"),
        (("M", m), ("N", n), ("K", k)),
        tuple((name, 8 if size % 64 else 64) for name, size in zip("MNK", (m, n, k), strict=True)),
    )
    compiled = compile_source(SourceFile("gemm.tk", source), None, {}, by_name(target), facts)
    return compiled.schedule.cluster


def test_rows_across_lines_are_shared_by_two_ctas() -> None:
    assert _cluster(5000, 5000, 5000) == (2, 1)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(4096, 4096, 4096), (8192, 8192, 8192), (1000, 1000, 1000), (5000, 5000, 200)]
)
def test_whole_lines_small_launches_and_short_sums_stay_alone(m: int, n: int, k: int) -> None:
    assert _cluster(m, n, k) == ()


def test_a_store_that_no_edge_of_the_grid_masks_keeps_tiles_apart() -> None:
    twice = GEMM.replace("c: out", "d: out s32[M], c: out") + "        d[i] = i\n"
    assert _cluster(5000, 5000, 5000, source=twice) == ()


def test_an_old_target_has_none() -> None:
    assert _cluster(5000, 5000, 5000, target="sm_80") == ()
