"""Runs a list of cases on the GPU, one line of JSON each, as the child of `test_programs`.

Idea: a case's line is written before the kernel runs and again with its result, so that the parent
knows which case hung or crashed.  A hung case ends this process after its own time limit.

Invariants: every output lies between guards, is filled with NaN before each launch, and must leave
the guards as they were; the reference is float64 of the same inputs; every case runs twice and
must give the same bits.

Never: retries a case, or compares with anything but float64 and torch's own result.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import torch  # type: ignore[import-not-found,unused-ignore]

import tilec
from tests.gpu.cases import Case, Operand, extent, strides
from tilec.diagnostics import DiagnosticError
from tilec.ir.verify import VerifyError

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CASE_LIMIT_S = 30.0
TIMES_TORCH = 1.25
_GUARD = 64  # elements on both sides of an output; keeps the alignment of what it guards
_REPORTED = (
    DiagnosticError,
    VerifyError,
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
)
_DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


@cache
def kernel(program: str) -> Any:
    """The kernel of an example, called as its file."""
    return getattr(tilec.load(str(EXAMPLES / f"{program}.tk")), program)


def as_case(record: dict[str, Any]) -> Case:
    """A case from its JSON form."""
    operands = tuple(Operand(**operand) for operand in record["operands"])
    return Case(**{**record, "sizes": tuple(record["sizes"]), "operands": operands})


class Storage:
    """An array between guards, in memory of its own."""

    def __init__(self, shape: tuple[int, int], operand: Operand, dtype: Any) -> None:
        """Room for the view; nothing is written yet."""
        steps = strides(shape, operand, dtype.itemsize)
        count = extent(shape, steps)
        self.whole = torch.empty(count + 2 * _GUARD, dtype=dtype, device="cuda")
        self.view = self.whole.as_strided(shape, steps[:2], _GUARD + steps[2])
        self._outside = torch.ones(self.whole.shape, dtype=torch.bool, device="cuda")
        self._outside.as_strided(shape, steps[:2], _GUARD + steps[2]).fill_(False)

    def poison(self) -> None:
        """NaN everywhere."""
        self.whole.fill_(float("nan"))

    def strays(self) -> int:
        """Elements outside the view that are no longer NaN."""
        return int((self._outside & ~self.whole.isnan()).sum())


def inputs(case: Case) -> list[Any]:
    """The input tensors: random normal, laid out as the case says."""
    generator = torch.Generator(device="cuda").manual_seed(case.seed)
    found = []
    for shape, operand in zip(case.shapes[:-1], case.operands[:-1], strict=True):
        storage = Storage(shape, operand, _DTYPES[case.dtype])
        values = torch.randn(storage.whole.shape, generator=generator, device="cuda")
        storage.whole.copy_(values)
        found.append(storage.view)
    return found


def _gemm(a: Any, b: Any) -> tuple[Any, Any, float]:
    wide = a.double() @ b.double().T
    # Sums of f32 products carry rounding of this size whatever their order.
    noise = ((a.double() ** 2) @ (b.double() ** 2).T).max().sqrt() if wide.numel() else 0.0
    return wide, a @ b.T, 2.0**-22 * float(noise)


def _add(a: Any, b: Any) -> tuple[Any, Any, float]:
    return a.double() + b.double(), a + b, 0.0


def _softmax(x: Any) -> tuple[Any, Any, float]:
    wide = torch.softmax(x.double(), -1)
    return wide, torch.softmax(x, -1), 2.0**-21 * float(wide.max()) if wide.numel() else 0.0


REFERENCES: dict[str, Callable[..., tuple[Any, Any, float]]] = {
    "gemm": _gemm,
    "add": _add,
    "softmax": _softmax,
}
"""Each program's float64 result, torch's own, and the absolute error that f32 cannot avoid."""


def distance(found: Any, expected: Any) -> tuple[float, float]:
    """Root mean square and largest difference; NaN stays NaN."""
    if expected.numel() == 0:
        return 0.0, 0.0
    difference = (found.double() - expected).abs()
    return float(difference.square().mean().sqrt()), float(difference.max())


def run(case: Case) -> dict[str, Any]:
    """One case; the record has `failure` when something is wrong."""
    operands = inputs(case)
    output = Storage(case.shapes[-1], case.operands[-1], _DTYPES[case.dtype])
    results = []
    strays = 0
    for _ in range(2):
        output.poison()
        kernel(case.program)(*operands, output.view)
        torch.cuda.synchronize()
        results.append(output.view.clone())
        strays += output.strays()
    expected, theirs, noise = REFERENCES[case.program](*operands)
    ours, peer = distance(results[0], expected), distance(theirs, expected)
    record: dict[str, Any] = {"case": case.name, "error": ours[0], "torch": peer[0]}
    bits = [r.contiguous().view(torch.int16 if r.itemsize == 2 else torch.int32) for r in results]
    if strays:
        record["failure"] = f"{strays} elements outside the output were written"
    elif not all(x <= TIMES_TORCH * y + noise for x, y in zip(ours, peer, strict=True)):
        record["failure"] = (
            f"error {ours[0]:.3g} (largest {ours[1]:.3g}), torch's {peer[0]:.3g} ({peer[1]:.3g})"
        )
    elif not torch.equal(bits[0], bits[1]):
        record["failure"] = f"{int((bits[0] != bits[1]).sum())} elements differ between two runs"
    return record


def run_all(cases: list[Case], report: TextIO, limit_s: float = CASE_LIMIT_S) -> None:
    """Run the cases in order; an exception ends a case, a CUDA error or a hang the process."""
    torch.backends.cuda.matmul.allow_tf32 = False
    for case in cases:
        print(json.dumps({"case": case.name, "started": True}), file=report, flush=True)
        faulthandler.dump_traceback_later(limit_s, exit=True)
        try:
            record = run(case)
        except torch.cuda.OutOfMemoryError:
            raise
        except _REPORTED as error:
            record = {"case": case.name, "failure": f"{type(error).__name__}: {error}"}
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(record), file=report, flush=True)
        if "failure" in record:
            torch.cuda.synchronize()  # raises when the context is lost: the parent starts afresh


def main(arguments: list[str]) -> int:
    """`program_child CASES.json REPORT.jsonl`."""
    cases = [as_case(record) for record in json.loads(Path(arguments[0]).read_text())]
    with Path(arguments[1]).open("a") as report:
        run_all(cases, report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
