"""Products of operands that TMA cannot read: copied first, brought by threads, and cuBLAS.

    python -m benchmarks.repack [--case NAME ...] [--results FOLDER]

Idea: each case is one program on tensors in a layout that rules TMA out, run as the compiler
chooses and with `repacks` pinned either way, so that the estimate behind the choice can be judged.
cuBLAS multiplies the same tensors where it can; of e4m3 it reads K-major operands alone, and gets
those.

Invariants: float32 torch without TF32 is what every result is compared with.

Never: pins anything but `repacks`, or leaves out a case that the estimate gets wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilec
from benchmarks import reference
from benchmarks.gemm import FORMS, exact, operand
from benchmarks.harness import Case, Protocol, compare, torch_case

TEXT = """
kernel product[T: dtype = bf16](a: T[M, K], b: T[N, K], c: out bf16[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = cast[bf16](acc)
"""


@dataclass(frozen=True)
class Layout:
    """Sizes, a type, and which of a and b have K contiguous, in BLAS letters."""

    dtype: str
    form: str
    sizes: tuple[int, int, int]

    @property
    def name(self) -> str:
        """All of it, in words."""
        return f"{self.dtype} {self.form} {'x'.join(map(str, self.sizes))}"


CASES = (
    *(Layout("bf16", form, (4097, 4097, 4097)) for form in FORMS),
    Layout("bf16", "TN", (1025, 1025, 1025)),
    Layout("bf16", "TN", (4096, 4096, 4098)),
    Layout("bf16", "TN", (4096, 4096, 4100)),
    Layout("bf16", "TN", (16, 8192, 8191)),
    Layout("bf16", "TN", (128, 8192, 8191)),
    *(Layout("e4m3", form, (4096, 4096, 4096)) for form in FORMS),
    Layout("e4m3", "NT", (8192, 8192, 8192)),
    Layout("e4m3", "TN", (4097, 4097, 4097)),
)
"""Rows of odd lengths, of 4 and of 8 bytes, few rows, and bytes that lie along M or N."""


def contestants(layout: Layout) -> list[Case]:
    """As chosen, pinned either way, and cuBLAS."""
    import torch

    dtype = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}[layout.dtype]
    rows, columns, depth = layout.sizes
    a = operand(1, rows, depth, FORMS[layout.form][0], dtype)
    b = operand(2, columns, depth, FORMS[layout.form][1], dtype)
    expected = exact(a, b)
    kernel = tilec.compile(TEXT.lstrip("\n"), "product.tk").product.using(T=layout.dtype)
    cases = []
    for name, pins in (("as chosen", ()), ("copied", (1, 1)), ("as it lies", (0, 0))):
        ours = kernel.using(tilec.Schedule(repacks=tuple(zip("ab", pins, strict=False))))
        c = torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda")
        cases.append(_case(f"tilec, {name}", lambda k=ours, c=c: k(a, b, c), c, expected, "ours"))
    library = _library(layout, a, b)
    if library is not None:
        launch, found = library
        cases.append(_case("cuBLAS", launch, found, expected, "peer"))
    return cases


def _case(name: str, launch: Any, found: Any, expected: Any, role: str) -> Case:
    return torch_case(name, launch, lambda: found, expected, reference.TOLERANCE, role)


def _library(layout: Layout, a: Any, b: Any) -> tuple[Any, Any] | None:
    """A launch of cuBLAS and where its result is; None where torch offers none."""
    import torch

    found = torch.empty(a.shape[0], b.shape[0], dtype=torch.bfloat16, device="cuda")
    if layout.dtype == "bf16":
        return lambda: torch.matmul(a, b.T, out=found), found
    if layout.sizes[2] % 16 or layout.sizes[1] % 16:
        return None
    left, right = a.contiguous(), b.contiguous()
    one = torch.ones((), device="cuda")

    def launch() -> None:
        torch._scaled_mm(
            left, right.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True, out=found
        )

    return launch, found


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the cases."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--case", action="append", help="words of the cases to run; default all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.3)
    parser.add_argument("--results", type=Path, help="folder for the JSON files")
    options = parser.parse_args(arguments)
    protocol = Protocol(rounds=options.rounds, pause_s=options.pause)
    for layout in CASES:
        if options.case and not any(set(c.split()) <= {*layout.name.split()} for c in options.case):
            continue
        rows, columns, depth = layout.sizes
        title = f"repack {layout.name}"
        work = 2e-12 * rows * columns * depth
        found = compare(title, work, "TFLOP/s", contestants(layout), protocol)
        found.save(title.replace(" ", "-"), *([options.results] if options.results else []))


if __name__ == "__main__":
    main()
