"""Consumer warpgroups that share tiles, and such that take them in turns, by epilogue.

    python -m benchmarks.turns [--shape M,N,K ...] [--case NAME ...] [--results FOLDER]

Idea: turns hide what follows the products of a tile, and pay with narrower tiles. So each epilogue
is timed as the compiler chooses, in turns, and in turns with each operand shared in clusters.

Invariants: float32 torch without TF32 is what every result is compared with.

Never: pins a tile.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tilec
from benchmarks import reference
from benchmarks.gemm_cases import exact, operand
from benchmarks.harness import Case, Protocol, compare, torch_case

TEXT = """
from std.{MODULE} import gelu

kernel product(a: bf16[M, K], b: bf16[N, K], v: bf16[N], c: out bf16[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        y = acc + cast[f32](v[j])[None, :]
        c[i, j] = {RESULT}
"""
EPILOGUES = {
    "plain": ("math", "cast[bf16](acc)"),
    "bias": ("math", "cast[bf16](y)"),
    "bias and gelu of bf16": ("narrow", "gelu(cast[bf16](y))"),
    "bias and gelu of f32": ("math", "cast[bf16](gelu(y))"),
}
SCHEDULES = {
    "as chosen": tilec.Schedule(),
    "in turns": tilec.Schedule(alternate=True),
    "in turns, clusters 2:1": tilec.Schedule(alternate=True, cluster=(2, 1)),
    "in turns, clusters 1:2": tilec.Schedule(alternate=True, cluster=(1, 2)),
}


def contestants(epilogue: str, sizes: tuple[int, int, int]) -> list[Case]:
    """One epilogue in each schedule."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    rows, columns, depth = sizes
    a = operand(1, rows, depth, True, torch.bfloat16)
    b = operand(2, columns, depth, True, torch.bfloat16)
    v = operand(3, 1, columns, True, torch.bfloat16)[0]
    expected = exact(a, b)
    if epilogue != "plain":
        expected += v.float()
    if "gelu" in epilogue:
        expected = torch.nn.functional.gelu(expected)
    module, result = EPILOGUES[epilogue]
    text = TEXT.lstrip("\n").format(MODULE=module, RESULT=result)
    kernel = tilec.compile(text, "product.tk").product
    cases = []
    for name, pins in SCHEDULES.items():
        c = torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda")
        cases.append(_case(name, kernel.using(pins), (a, b, v), c, expected))
    return cases


def _case(name: str, kernel: Any, inputs: Sequence[Any], c: Any, expected: Any) -> Case:
    return torch_case(name, lambda: kernel(*inputs, c), lambda: c, expected, reference.TOLERANCE)


def _shape(text: str) -> tuple[int, int, int]:
    m, n, k = (int(part) for part in text.split(","))
    return m, n, k


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the cases."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--shape", type=_shape, action="append", help="M,N,K")
    parser.add_argument("--case", choices=EPILOGUES, action="append", help="default all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.3)
    parser.add_argument("--results", type=Path, help="folder for the JSON files")
    options = parser.parse_args(arguments)
    protocol = Protocol(rounds=options.rounds, pause_s=options.pause)
    for sizes in options.shape or [(8192, 14336, 4096)]:
        for epilogue in options.case or EPILOGUES:
            title = f"turns {epilogue} {'x'.join(map(str, sizes))}"
            work = 2e-12 * sizes[0] * sizes[1] * sizes[2]
            found = compare(title, work, "TFLOP/s", contestants(epilogue, sizes), protocol)
            found.save(title.replace(" ", "-"), *([options.results] if options.results else []))


if __name__ == "__main__":
    main()
