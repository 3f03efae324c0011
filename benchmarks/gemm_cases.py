"""Who takes part in a comparison of products: the inputs, our kernel, its peers, the right answer.

Idea: a `Row` says what is multiplied; a function for each kind of product makes its contestants.
Ours are files of `examples/`, called as any user calls them; all contestants read the same
tensors.

Invariants: what a result is compared with is float32 without TF32, or float64 for integers; a
kernel gets a schedule only where one was asked for on the command line.

Never: leaves a contestant out because it is faster, or times one unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilec
from benchmarks import quack_kernels, reference, triton_kernels
from benchmarks.harness import Case, torch_case
from tilec.ir.facts import Schedule

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: Which of a[M, K] and b[N, K] have K contiguous, by the BLAS letters (T first: A is).
FORMS = {"TN": (True, True), "TT": (True, False), "NN": (False, True), "NT": (False, False)}
REFERENCE_SHAPE = (8192, 8192, 8192)
_REFERENCE_FORMS = {"TN": False, "NT": True}
#: Sums of 8-bit floats keep 13 bits behind the point of the largest product, in every library.
_FP8_TOLERANCE = 3e-2
#: Operands keep 10 bits behind the point, and some libraries cut where others round.
_TF32_TOLERANCE = 2e-3


@dataclass(frozen=True)
class Row:
    """One workload: a kind of product, M, N, K, how operands lie, their type, how many at once."""

    kind: str
    shape: tuple[int, int, int]
    form: str = "TN"
    dtype: str = "bf16"
    batches: int = 1

    @property
    def title(self) -> str:
        """The row in words."""
        sizes = "x".join(map(str, self.shape))
        many = f"{self.batches} of " if self.batches > 1 else ""
        return f"{self.kind} {self.dtype} {self.form} {many}{sizes}"

    @property
    def work(self) -> float:
        """TFLOP of one launch."""
        return 2e-12 * self.batches * self.shape[0] * self.shape[1] * self.shape[2]


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
    expected = a.float() @ b.float().transpose(-1, -2)
    torch.backends.cuda.matmul.allow_tf32 = allowed
    return expected


def contestants(
    row: Row,
    folder: str | None = None,
    schedule: Schedule | None = None,
    beside: Sequence[str] = (),
) -> list[Case]:
    """Ours first, then it with each pin of ``beside``, then peers and what else is timed."""
    if row.kind == "gemm":
        return _dense(row, folder, schedule, beside)
    return _KINDS[row.kind](row, schedule)


def _kernel(file: str, name: str, schedule: Schedule | None) -> Any:
    return getattr(tilec.load(str(EXAMPLES / f"{file}.tk")), name).using(schedule)


def _dense(
    row: Row, folder: str | None, schedule: Schedule | None, beside: Sequence[str]
) -> list[Case]:
    """gemm.tk; the reference kernel joins where it exists."""
    import torch

    dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[row.dtype]
    rows, columns, depth = row.shape
    others: list[Case] = []
    given = _reference(row, folder)
    if given is not None:
        a, b = (x.T for x in given.inputs) if row.form == "NT" else given.inputs
        expected = given.expected
        others = [*given.peers, given.reference]
    else:
        a = operand(1, rows, depth, FORMS[row.form][0], dtype)
        b = operand(2, columns, depth, FORMS[row.form][1], dtype)
        expected = exact(a, b)
        others = [_cublas(a, b, expected)]
    c, third, fourth = (torch.empty(rows, columns, dtype=dtype, device="cuda") for _ in range(3))
    kernel = _kernel("gemm", "gemm", schedule)
    ours = _case("tilec", lambda: kernel(a, b, c), c, expected)
    for name, launch, result in (
        ("Triton", triton_kernels.gemm(a, b, third), third),
        ("QuACK", quack_kernels.gemm(a, b, fourth), fourth),
    ):
        if launch is not None:
            others.append(_case(name, launch, result, expected, role="peer"))
    return [ours, *(_pinned(text, kernel, a, b, expected) for text in beside), *others]


def _pinned(text: str, kernel: Any, a: Any, b: Any, expected: Any) -> Case:
    """Our kernel with choices pinned, such as ``cluster=2:1,stages=4``."""
    import torch

    from tilec.cli_options import read_schedule

    chosen = kernel.using(schedule=read_schedule([text]))
    c = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype, device="cuda")
    return _case(text, lambda: chosen(a, b, c), c, expected, role="pinned")


def _reference(row: Row, folder: str | None) -> reference.Workload | None:
    """The hand-written kernel for a row, where there is one and its folder is at hand."""
    if row.shape != REFERENCE_SHAPE or row.dtype != "bf16" or row.form not in _REFERENCE_FORMS:
        return None
    try:
        found = reference.reference_folder(folder)
    except FileNotFoundError:
        if folder is not None:
            raise
        return None
    return reference.gemm(found, _REFERENCE_FORMS[row.form])


def _cublas(a: Any, b: Any, expected: Any, role: str = "peer") -> Case:
    import torch

    library = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype, device="cuda")
    return _case("cuBLAS", lambda: torch.matmul(a, b.T, out=library), library, expected, role=role)


def _case(
    name: str,
    launch: Callable[[], object],
    result: Any,
    expected: Any,
    tolerance: float = reference.TOLERANCE,
    role: str = "ours",
) -> Case:
    """A contestant that writes to a tensor of its own."""
    return torch_case(name, launch, lambda: result, expected, tolerance, role)


class _Returned:
    """A peer that allocates its result: the latest one is what is checked."""

    def __init__(self, name: str, launch: Callable[[], Any], expected: Any, tolerance: float):
        import torch

        self._launch = launch
        self._last = torch.zeros(1, device="cuda")
        self.case = torch_case(name, self._run, lambda: self._last, expected, tolerance, "peer")

    def _run(self) -> None:
        self._last = self._launch()


def _batched(row: Row, schedule: Schedule | None) -> list[Case]:
    import torch

    rows, columns, depth = row.shape
    many = row.batches
    a = operand(1, many * rows, depth, True, torch.bfloat16).view(many, rows, depth)
    b = operand(2, many * columns, depth, True, torch.bfloat16).view(many, columns, depth)
    expected = exact(a, b)
    c, library = (torch.empty(many, rows, columns, dtype=a.dtype, device="cuda") for _ in range(2))
    kernel = _kernel("batched", "batched", schedule)
    return [
        _case("tilec", lambda: kernel(a, b, c), c, expected),
        _case(
            "cuBLAS",
            lambda: torch.bmm(a, b.transpose(1, 2), out=library),
            library,
            expected,
            role="peer",
        ),
    ]


def _fp8(row: Row, schedule: Schedule | None) -> list[Case]:
    """Per-tensor scales, or one a row of each operand; cuBLAS with fast accumulation."""
    import torch

    rows, columns, depth = row.shape
    by_rows = row.kind == "fp8 rows"
    a = operand(1, rows, depth, True, torch.float8_e4m3fn)
    b = operand(2, columns, depth, True, torch.float8_e4m3fn)
    generator = torch.Generator(device="cuda").manual_seed(3)
    scales = [
        torch.rand(extent if by_rows else 1, generator=generator, device="cuda") + 0.5
        for extent in (rows, columns)
    ]
    expected = exact(a, b) * scales[0][:, None] * scales[1][None, :]
    c = torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda")
    kernel = _kernel("scaled_fp8", "scaled_fp8_rows" if by_rows else "scaled_fp8", schedule)
    shown = (scales[0][:, None], scales[1][None, :]) if by_rows else (scales[0][0], scales[1][0])

    def library() -> Any:
        return torch._scaled_mm(a, b.T, *shown, out_dtype=torch.bfloat16, use_fast_accum=True)

    return [
        _case("tilec", lambda: kernel(a, b, *scales, c), c, expected, _FP8_TOLERANCE),
        _Returned("cuBLAS", library, expected, _FP8_TOLERANCE).case,
    ]


def _s8(row: Row, schedule: Schedule | None) -> list[Case]:
    import torch

    rows, columns, depth = row.shape
    generator = torch.Generator(device="cuda").manual_seed(1)
    a, b = (
        torch.randint(
            -128, 128, (extent, depth), generator=generator, device="cuda", dtype=torch.int8
        )
        for extent in (rows, columns)
    )
    expected = a.double() @ b.double().T
    c = torch.empty(rows, columns, dtype=torch.int32, device="cuda")
    kernel = _kernel("quantised", "product_s8", schedule)
    return [
        _case("tilec", lambda: kernel(a, b, c), c, expected, 0.0),
        _Returned("cuBLAS", lambda: torch._int_mm(a, b.T), expected, 0.0).case,
    ]


def _tf32(row: Row, schedule: Schedule | None) -> list[Case]:
    import torch

    rows, columns, depth = row.shape
    a = operand(1, rows, depth, True, torch.float32)
    b = operand(2, columns, depth, True, torch.float32)
    expected = exact(a, b)
    c, library = (torch.empty(rows, columns, device="cuda") for _ in range(2))
    kernel = _kernel("gemm_tf32", "gemm_tf32", schedule)

    def peer() -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.matmul(a, b.T, out=library)
        torch.backends.cuda.matmul.allow_tf32 = False

    return [
        _case("tilec", lambda: kernel(a, b, c), c, expected, _TF32_TOLERANCE),
        _case("cuBLAS", peer, library, expected, _TF32_TOLERANCE, "peer"),
    ]


def _linear(row: Row, schedule: Schedule | None) -> list[Case]:
    """Bias and gelu in the kernel, in torch as users write it, and the product alone."""
    import torch

    rows, columns, depth = row.shape
    a = operand(1, rows, depth, True, torch.bfloat16)
    b = operand(2, columns, depth, True, torch.bfloat16)
    bias = operand(3, 1, columns, True, torch.bfloat16)[0]
    product = exact(a, b)
    # Eager torch rounds before it activates, so that is what both are compared with.
    expected = torch.nn.functional.gelu((product + bias.float()).bfloat16().float())
    c, plain = (torch.empty(rows, columns, dtype=a.dtype, device="cuda") for _ in range(2))
    kernel = _kernel("linear", "linear", schedule)
    alone = _kernel("gemm", "gemm", schedule)

    def eager() -> Any:
        return torch.nn.functional.gelu(torch.nn.functional.linear(a, b, bias))

    return [
        _case("tilec", lambda: kernel(a, b, bias, c), c, expected),
        _Returned("torch", eager, expected, reference.TOLERANCE).case,
        _case("tilec, product alone", lambda: alone(a, b, plain), plain, product, role="plain"),
        _cublas(a, b, product, "plain"),
    ]


_KINDS: dict[str, Callable[[Row, Schedule | None], list[Case]]] = {
    "batched": _batched,
    "fp8": _fp8,
    "fp8 rows": _fp8,
    "s8": _s8,
    "tf32": _tf32,
    "bias+gelu": _linear,
}
