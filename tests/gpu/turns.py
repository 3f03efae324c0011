"""Products whose warpgroups take tiles in turns, on the GPU that is here, against torch, exactly.

    python -m tests.gpu.turns [--json PATH] [--jobs N] [--only WORDS]

Operands are small whole numbers, so that each product is exact in f32 and results are compared
element by element, with a bias on top. Grids have fewer tiles than CTAs, odd and even numbers for
a CTA, and edges; the common axis gives from no round to more than twice what the ring holds. Each
case runs twice and one of them many times in a row: what a launch leaves behind, the next would
find. Each number of stages runs in a child process with a time limit, ``N`` of them at a time.

Never: compares with another kernel of tilec.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import tilec
from tests.gpu.clusters import operand
from tests.gpu.in_parts import Record, run_parts

SOURCE = """kernel gemm(a: bf16[M, K], b: bf16[N, K], v: bf16[N],
            c: out f32[M, N], d: out bf16[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        y = acc + cast[f32](v[j])[None, :]
        c[i, j] = y
        d[i, j] = cast[bf16](max(y, 0.0))
"""
STAGES = (2, 3, 4)
COLUMNS = (64, 128, 256)
CLUSTERS = ((), (2, 1), (1, 2))
SHAPES = (
    (64, 64, 64), (1024, 1024, 512), (1000, 1000, 776), (136, 3000, 72), (4096, 4096, 1024),
    (8448, 128, 136), (16896, 64, 200), (25344, 64, 328), (300, 200, 0),
    *((2048, 2200, 64 * trips) for trips in range(1, 10)),
)  # fmt: skip
LIMIT_S = 300.0


def wrong(kernel: Any, m: int, n: int, k: int, launches: int) -> str:
    """What is wrong with the products of one shape; empty if nothing is."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    a, b = operand(m, k, True, 1), operand(n, k, True, 2)
    v = operand(1, n, True, 3)[0]
    wanted = (a.double() @ b.double().T + v.double()).float()
    for number in range(launches):
        c = torch.full(wanted.shape, float("nan"), device="cuda")
        d = torch.full(wanted.shape, float("nan"), device="cuda", dtype=torch.bfloat16)
        kernel(a, b, v, c, d)
        differing = int((c != wanted).sum())
        differing += int((d != wanted.clamp(min=0).to(torch.bfloat16)).sum())
        if differing:
            return f"launch {number}: {differing} of {2 * wanted.numel()} elements differ"
    return ""


def child(stages: int, only: str) -> list[Record]:
    """All cases of one number of stages, in this process."""
    program = tilec.compile(SOURCE)
    records: list[Record] = []
    for (m, n, k), columns, cluster in product(SHAPES, COLUMNS, CLUSTERS):
        shared = "x".join(map(str, cluster)) or "alone"
        name = f"{stages} stages.{m}x{n}x{k}.64x{columns}.{shared}"
        if only not in name:
            continue
        pins = tilec.Schedule(
            tiles=(("i", 64), ("j", columns), ("k", 64)), stages=stages, cluster=cluster,
            persistent=True, alternate=True,
        )  # fmt: skip
        try:
            why = wrong(program.gemm.using(schedule=pins), m, n, k, 20 if m == 1024 else 2)
        except (tilec.DiagnosticError, RuntimeError) as error:
            why = str(error)
        records.append({"case": name, "ok": not why, "why": why})
    return records


def main() -> int:
    """Run all; the exit code says whether any failed."""
    return run_parts(
        "products by warpgroups in turns, on a GPU",
        child,
        STAGES,
        lambda stages: f"{stages} stages",
        LIMIT_S,
    )


if __name__ == "__main__":
    sys.exit(main())
