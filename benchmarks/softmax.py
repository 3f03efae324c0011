"""examples/softmax.tk against torch, Triton, the hand-written reference, and the copy bandwidth.

    python -m benchmarks.softmax [--shape ROWS,COLUMNS ...]

Idea: a softmax that reads and writes each element once can at best run at the speed of a copy of
the same tensor, so `torch.Tensor.copy_` is in every comparison as the bound.

Invariants: float32 torch is what every result is compared with; GB/s counts one read and one write.

Never: quotes a bandwidth that was not taken in the same run.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tilec
from benchmarks import reference, triton_kernels
from benchmarks.gemm import EXAMPLES
from benchmarks.harness import Case, Comparison, Protocol, compare, torch_case

_REFERENCE_SHAPE = (32768, 4096)


def contestants(shape: tuple[int, int], folder: str | None, kernel: Any) -> list[Case]:
    """Ours, torch, Triton, the copy, and the reference where there is one."""
    import torch

    if shape == _REFERENCE_SHAPE:
        given = reference.softmax(reference.reference_folder(folder))
        (x,), expected = given.inputs, given.expected
        others = [*given.peers, given.reference]
    else:
        generator = torch.Generator(device="cuda").manual_seed(1)
        x = torch.randn(*shape, generator=generator, device="cuda").to(torch.bfloat16)
        expected = torch.softmax(x.float(), -1)
        library, copied = torch.empty_like(x), torch.empty_like(x)
        others = [
            torch_case(
                "torch",
                lambda: torch.softmax(x, -1, out=library),
                lambda: library,
                expected,
                reference.TOLERANCE,
                "peer",
            ),
            torch_case(
                "copy (bound)",
                lambda: copied.copy_(x),
                lambda: copied,
                x.float(),
                reference.TOLERANCE,
                "bound",
            ),
        ]
    y, third = torch.empty_like(x), torch.empty_like(x)
    ours = torch_case("tilec", lambda: kernel(x, y), lambda: y, expected, reference.TOLERANCE)
    launch = triton_kernels.softmax(x, third)
    if launch is not None:
        others.append(
            torch_case("Triton", launch, lambda: third, expected, reference.TOLERANCE, "peer")
        )
    return [ours, *others]


def run(shape: tuple[int, int], options: argparse.Namespace, protocol: Protocol) -> Comparison:
    """One comparison, saved under benchmarks/results."""
    kernel = tilec.load(str(EXAMPLES / "softmax.tk")).softmax
    title = f"softmax bf16 {shape[0]}x{shape[1]}"
    gigabytes = 1e-9 * 2 * 2 * shape[0] * shape[1]
    cases = contestants(shape, options.reference, kernel)
    found = compare(title, gigabytes, "GB/s", cases, protocol)
    found.save(title.replace(" ", "-"), *([options.results] if options.results else []))
    return found


def _shape(text: str) -> tuple[int, int]:
    rows, _, columns = text.partition(",")
    return int(rows), int(columns)


def main(arguments: Sequence[str] | None = None) -> None:
    """Time the row softmax against its peers and against a copy."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--shape", type=_shape, action="append", help="default 32768,4096")
    parser.add_argument("--reference", help="folder of the reference PTX")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.6)
    parser.add_argument("--no-hot", action="store_true", help="leave out the back-to-back reading")
    parser.add_argument("--results", type=Path, help="folder for the JSON files")
    options = parser.parse_args(arguments)
    protocol = Protocol(rounds=options.rounds, pause_s=options.pause, hot=not options.no_hot)
    for shape in options.shape or [_REFERENCE_SHAPE]:
        run(shape, options, protocol)


if __name__ == "__main__":
    main()
