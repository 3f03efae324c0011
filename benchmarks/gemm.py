"""examples/gemm.tk against cuBLAS, Triton and the hand-written reference, in one run.

    python -m benchmarks.gemm [--shape M,N,K ...] [--form TN|TT|NN|NT] [--dtype bf16|f16]
        [--schedule PINS ...]

Idea: the program is called as any user calls it; its contestants read the same tensors.  The
reference kernel joins where it exists: 8192 cubed, bf16, both operands K-major or neither.

Invariants: float32 torch without TF32 is what every result is compared with.

Never: gives our kernel a schedule that its own passes did not choose; what `--schedule` pins runs
beside it, under its pins' name, and such a run is saved nowhere but where `--results` says.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tilec
from benchmarks import reference, triton_kernels
from benchmarks.harness import Case, Comparison, Protocol, compare, torch_case

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: Which of a[M, K] and b[N, K] have K contiguous, by the BLAS letters (T first: A is).
FORMS = {"TN": (True, True), "TT": (True, False), "NN": (False, True), "NT": (False, False)}
_REFERENCE_SHAPE = (8192, 8192, 8192)
_REFERENCE_FORMS = {"TN": False, "NT": True}


def operand(seed: int, rows: int, depth: int, k_major: bool, dtype: Any) -> Any:
    """A random (rows, depth) tensor with the asked axis contiguous."""
    import torch

    generator = torch.Generator(device="cuda").manual_seed(seed)
    shape = (rows, depth) if k_major else (depth, rows)
    values = torch.randn(*shape, generator=generator, device="cuda").to(dtype)
    return values if k_major else values.T


def exact(a: Any, b: Any) -> Any:
    """The product in float32, without TF32."""
    import torch

    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    expected = a.float() @ b.float().T
    torch.backends.cuda.matmul.allow_tf32 = allowed
    return expected


def contestants(
    shape: tuple[int, int, int],
    form: str,
    dtype_name: str,
    folder: str | None,
    kernel: Any,
    pins: Sequence[str] = (),
) -> list[Case]:
    """Ours first, then peers, then the reference where there is one."""
    import torch

    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype_name]
    rows, columns, depth = shape
    others: list[Case] = []
    if shape == _REFERENCE_SHAPE and dtype_name == "bf16" and form in _REFERENCE_FORMS:
        transposed = _REFERENCE_FORMS[form]
        given = reference.gemm(reference.reference_folder(folder), transposed)
        a, b = (x.T for x in given.inputs) if transposed else given.inputs
        expected = given.expected
        others = [*given.peers, given.reference]
    else:
        a = operand(1, rows, depth, FORMS[form][0], dtype)
        b = operand(2, columns, depth, FORMS[form][1], dtype)
        expected = exact(a, b)
        library = torch.empty(rows, columns, dtype=dtype, device="cuda")
        others = [
            torch_case(
                "cuBLAS",
                lambda: torch.matmul(a, b.T, out=library),
                lambda: library,
                expected,
                reference.TOLERANCE,
                "peer",
            )
        ]
    c = torch.empty(rows, columns, dtype=dtype, device="cuda")
    ours = torch_case(
        "tilec", lambda: kernel(a, b, c), lambda: c, expected, reference.TOLERANCE, "ours"
    )
    others = [*(_pinned(text, kernel, a, b, expected) for text in pins), *others]
    third = torch.empty_like(c)
    launch = triton_kernels.gemm(a, b, third)
    if launch is not None:
        others.append(
            torch_case("Triton", launch, lambda: third, expected, reference.TOLERANCE, "peer")
        )
    return [ours, *others]


def _pinned(text: str, kernel: Any, a: Any, b: Any, expected: Any) -> Case:
    """Our kernel with choices pinned, such as ``cluster=2:1,stages=4``."""
    import torch

    from tilec.cli_options import read_schedule

    chosen = kernel.using(schedule=read_schedule([text]))
    c = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype, device="cuda")
    return torch_case(
        text, lambda: chosen(a, b, c), lambda: c, expected, reference.TOLERANCE, "pinned"
    )


def run(shape: tuple[int, int, int], options: argparse.Namespace, protocol: Protocol) -> Comparison:
    """One comparison, saved under benchmarks/results."""
    kernel = tilec.load(str(EXAMPLES / "gemm.tk")).gemm
    pins = options.schedule or ()
    cases = contestants(shape, options.form, options.dtype, options.reference, kernel, pins)
    sizes = "x".join(map(str, shape))
    title = f"gemm {options.dtype} {options.form} {sizes}"
    work = 2e-12 * shape[0] * shape[1] * shape[2]
    found = compare(title, work, "TFLOP/s", cases, protocol)
    if options.results or not pins:
        found.save(title.replace(" ", "-"), *([options.results] if options.results else []))
    return found


def _shape(text: str) -> tuple[int, int, int]:
    sizes = tuple(int(word) for word in text.split(","))
    if len(sizes) == 1:
        sizes *= 3
    if len(sizes) != 3:
        raise argparse.ArgumentTypeError("a shape is M,N,K, or one number for all three")
    return sizes


def main(arguments: Sequence[str] | None = None) -> None:
    """Time gemm against its peers."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--shape", type=_shape, action="append", help="M,N,K; default 8192 cubed")
    parser.add_argument("--form", choices=FORMS, default="TN", help="TN: both K-major")
    parser.add_argument("--dtype", choices=("bf16", "f16"), default="bf16")
    parser.add_argument(
        "--schedule", action="append", metavar="PINS",
        help="time these choices too, as `tilec compile --schedule` takes them",
    )  # fmt: skip
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
