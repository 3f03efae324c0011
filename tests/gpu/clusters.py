"""Products in clusters of CTAs on the GPU that is here, against torch, exactly.

    python -m tests.gpu.clusters [--json PATH] [--jobs N] [--only WORDS]

Operands are small whole numbers, so that each product is exact in f32 and results are compared
element by element. Shapes end inside a cluster, inside a tile, and at neither; the common axis
gives from no round to more than the ring holds. The product of one cluster runs twice and many
times in a row: what one launch leaves behind, the next one would find. Each cluster runs in a
child process with a time limit, ``N`` of them at a time.

Never: compares with another kernel of tilec.
"""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

import tilec
from tests.gpu.in_parts import Record, run_parts

SOURCE = """kernel gemm(a: bf16[M, K], b: bf16[N, K], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = acc

kernel rows(a: bf16[M, K], b: bf16[64, K], c: out f32[M, 64]):
    for i in parallel(tiles(M)):
        acc = zeros[f32](i, 64)
        for k in tiles(K):
            acc += a[i, k] @ b[:, k].T
        c[i, :] = acc
"""
CLUSTERS = ((2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (8, 1))
SHAPES = (
    (64, 64, 64), (1024, 1024, 512), (1000, 1000, 776), (136, 3000, 72), (4096, 4096, 1024),
    (300, 200, 0), *((640, 1088, 64 * trips) for trips in range(1, 9)),
)  # fmt: skip
FORMS = ("TN", "NN", "TT", "NT")
TILES = ((128, 256, 2, 3), (128, 128, 2, 2), (64, 64, 1, 4))
"""Tiles of i and j, warpgroups, stages."""
LIMIT_S = 300.0


def operand(rows: int, columns: int, k_major: bool, seed: int) -> Any:
    """Small whole numbers as bf16, the asked axis contiguous."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    made = torch.Generator(device="cuda").manual_seed(seed)
    shape = (rows, columns) if k_major else (columns, rows)
    values = torch.randint(-3, 4, shape, generator=made, device="cuda").to(torch.bfloat16)
    return values if k_major else values.T


def wrong(kernel: Any, a: Any, b: Any, launches: int) -> str:
    """What is wrong with the product of two operands; empty if nothing is."""
    import torch

    wanted = (a.double() @ b.double().T).float()
    for number in range(launches):
        c = torch.full(wanted.shape, float("nan"), device="cuda")
        kernel(a, b, c)
        differing = int((c != wanted).sum())
        if differing:
            return f"launch {number}: {differing} of {wanted.numel()} elements differ"
    return ""


def child(shape: tuple[int, int], only: str) -> list[Record]:
    """All cases of one cluster, in this process."""
    program = tilec.compile(SOURCE)
    records: list[Record] = []
    for (m, n, k), form, (i, j, groups, stages), persistent in product(
        SHAPES, FORMS, TILES, (True, False)
    ):
        cluster = "x".join(map(str, shape))
        name = f"{cluster}.{form}.{m}x{n}x{k}.{i}x{j}.{'persistent' if persistent else 'once'}"
        if only not in name or (form != "TN" and (m * n % 64 or k == 0)):
            continue
        pins = tilec.Schedule(
            tiles=(("i", i), ("j", j), ("k", 64)), warpgroups=groups, stages=stages,
            persistent=persistent, cluster=shape,
        )  # fmt: skip
        a, b = operand(m, k, form[0] == "T", 1), operand(n, k, form[1] == "N", 2)
        try:
            why = wrong(program.gemm.using(schedule=pins), a, b, 20 if m == 1024 else 2)
        except (tilec.DiagnosticError, RuntimeError) as error:
            why = str(error)
        records.append({"case": name, "ok": not why, "why": why})
    if shape[0] == 1:
        pins = tilec.Schedule(tiles=(("i", 64), ("k", 64)), cluster=shape)
        for m, k in ((1, 8), (1000, 776), (8192, 1024)):
            name = f"rows.{shape[1]}.{m}x{k}"
            if only in name:
                why = wrong(
                    program.rows.using(schedule=pins), operand(m, k, True, 1),
                    operand(64, k, True, 2), 2,
                )  # fmt: skip
                records.append({"case": name, "ok": not why, "why": why})
    return records


def main() -> int:
    """Run all; the exit code says whether any failed."""
    return run_parts(
        "products in clusters on a GPU",
        child,
        CLUSTERS,
        lambda shape: "x".join(map(str, shape)),
        LIMIT_S,
    )


if __name__ == "__main__":
    sys.exit(main())
