"""Products in tiles of few rows, and operands that threads copy, on the GPU that is here.

    python -m tests.gpu.few_rows

Each product of small integers is exact in f32, so results are compared bit for bit. Targets, tile
heights and alignments are taken in all combinations; a failure names its own.

Never: compares with anything but NumPy's integers.
"""

from __future__ import annotations

import sys
from itertools import product

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

import tilec

SOURCE = """kernel gemm(a: bf16[M, K], b: bf16[N, K], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = acc
"""
SIZES = ((1, 64, 64), (16, 40, 72), (33, 200, 130), (200, 136, 1000))
ROWS = (16, 32, 48, 64, 128)
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a")


def operand(rows: int, columns: int, spare: int, seed: int) -> torch.Tensor:
    """Integers from -2 to 2 in rows ``spare`` elements longer than they need to be."""
    data = np.random.default_rng(seed).integers(-2, 3, (rows, columns + spare))
    return torch.tensor(data, dtype=torch.bfloat16, device="cuda")[:, :columns]


def main() -> int:
    """Run all combinations; the number of failures decides the exit code."""
    gemm = tilec.compile(SOURCE).gemm
    failed = ran = 0
    for target, rows, (m, n, k), even in product(TARGETS, ROWS, SIZES, (8, 4, 2, 1)):
        pitch = -k % 8 + even
        a, b = operand(m, k, pitch, 1), operand(n, k, pitch, 2)
        pins = tilec.Schedule(tiles=(("i", rows), ("j", 64)))
        c = gemm.using(schedule=pins, target=target)(a, b)
        wanted = a.double() @ b.double().T
        ran += 1
        if not torch.equal(c.double(), wanted):
            failed += 1
            wrong = int((c.double() != wanted).sum())
            print(f"{target} rows {rows} {m} x {n} x {k} pitch {pitch}: {wrong} elements differ")
    print(f"{ran - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
