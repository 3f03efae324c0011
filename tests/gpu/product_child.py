"""Runs a list of product cases on the GPU, one line of JSON each, as a child of `test_products`.

Idea: small whole numbers must come out exactly in every type; random normal numbers within the
bound of a sum in f32, element by element, against float64 of the operands as the product reads
them.  Of f32, rows with an infinity, a NaN and half the
largest number are tried as well.

Invariants: the rows around the output keep what they held; a case runs twice and must give the
same bits; a hung case ends this process after its own time limit.

Never: retries a case.
"""

from __future__ import annotations

import faulthandler
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import torch  # type: ignore[import-not-found,unused-ignore]

import tilec
from tests.gpu.product_cases import FORMS, TYPES, ProductCase
from tests.gpu.program_child import _REPORTED, CASE_LIMIT_S

_TORCH = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "tf32": torch.float32,
    "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "s8": torch.int8, "u8": torch.uint8,
    "s32": torch.int32, "f64": torch.float64,
}  # fmt: skip
_LOW_BITS = 13
"""Of an f32, which a tf32 has not."""
_SENTINEL = 77
_HOPPER_FP8_BITS = 11
"""What Hopper keeps of a sum of fp8 products, two bits below the 13 to 14 that were reported."""


@cache
def kernel(text: str) -> Any:
    """The kernel of a case's program."""
    return tilec.compile(text, "product.tk").f


def as_tf32(x: Any) -> Any:
    """An f32 tensor without the bits that a tensor core does not read."""
    return ((x.view(torch.int32) >> _LOW_BITS) << _LOW_BITS).view(torch.float32)


def operand(values: Any, dtype: str, order: str) -> Any:
    """Numbers as a tensor of a type, contiguous along an axis."""
    values = as_tf32(values.float().contiguous()) if dtype == "tf32" else values
    if order == "column":
        return values.t().contiguous().to(_TORCH[dtype]).t()
    return values.contiguous().to(_TORCH[dtype])


def whole(shape: tuple[int, int], dtype: str, generator: Any) -> Any:
    """Whole numbers that every type holds, and whose sums stay exact."""
    low = 0 if dtype == "u8" else -2
    made = torch.randint(low, 3, shape, generator=generator, device="cuda")
    return made.double() if dtype == "f64" else made.float()


def normal(shape: tuple[int, int], dtype: str, generator: Any) -> Any:
    """Random normal numbers; for integers, all that there are."""
    if dtype in ("s8", "u8"):
        low = -128 if dtype == "s8" else 0
        return torch.randint(low, low + 256, shape, generator=generator, device="cuda")
    wide = torch.float64 if dtype == "f64" else torch.float32
    return torch.randn(shape, generator=generator, device="cuda", dtype=wide)


def launch(case: ProductCase, a: Any, b: Any) -> tuple[Any, str]:
    """The product, and what is wrong beside its numbers."""
    m, n, _ = case.sizes
    results = []
    for _ in range(2):
        around = torch.full(
            (m + 2, n), _SENTINEL, dtype=_TORCH[TYPES[case.types][2]], device="cuda"
        )
        around[1:-1] = -1
        kernel(case.text)(a, b, around[1:-1])
        torch.cuda.synchronize()
        if not bool((around[[0, -1]] == _SENTINEL).all()):
            return around[1:-1], "elements outside the output were written"
        results.append(around[1:-1].clone())
    if not torch.equal(*(r.view(torch.int32) for r in results)):
        return results[0], "two runs differ"
    return results[0], ""


def bound(case: ProductCase, a: Any, b: Any) -> Any:
    """The largest error of each element that the language allows."""
    terms = a.double().abs() @ b.double().abs().t()
    k = case.sizes[2]
    if "e4m3" in case.types or "e5m2" in case.types:
        return terms * 2.0**-_HOPPER_FP8_BITS * max(1, k / 32)
    if case.types == "f64":
        return 2 * terms * max(k, 2) * 2.0**-53 + 1e-300
    # Twice the bound of a loop of f32 multiply-adds; of three tf32 products, from eight terms on.
    return 2 * terms * max(k, 8 if case.types == "f32" else 2) * 2.0**-24 + 1e-37


def check(case: ProductCase, a: Any, b: Any, exact: bool) -> str:
    """What is wrong with one launch; empty when nothing is."""
    found, fault = launch(case, a, b)
    if fault:
        return fault
    read = as_tf32 if case.types == "f32-as-tf32" else lambda x: x
    left, right = (read(x.contiguous()).double() for x in (a, b))
    expected = left @ right.t()
    error = (found.double() - expected).abs()
    allowed = torch.zeros_like(error) if exact else bound(case, left, right)
    wrong = ~(error <= allowed)
    if bool(wrong.any()):
        row, column = (int(x) for x in wrong.nonzero()[0])
        return (
            f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, first [{row}, {column}]: "
            f"{float(found[row, column])} for {float(expected[row, column])}, "
            f"allowed {float(allowed[row, column]):.3g}"
        )
    return ""


def check_edges(case: ProductCase, generator: Any) -> str:
    """Infinities, NaN and half the largest f32 in single rows come out where they belong."""
    m, n, k = case.sizes
    left, right = normal((m, k), "f32", generator), torch.ones((n, k), device="cuda")
    special = (float("inf"), float("nan"), torch.finfo(torch.float32).max / 2, float("-inf"))
    for row, value in zip(range(m), special, strict=False):
        left[row] = 0.0
        left[row, row % k] = value
    a, b = (
        operand(x, dtype, order)
        for x, dtype, order in zip((left, right), ("f32", "f32"), FORMS[case.form], strict=True)
    )
    found, fault = launch(case, a, b)
    expected = (a.double() @ b.double().t()).float()
    same = (found == expected) | (found.isnan() & expected.isnan())
    finite = expected.isfinite() & ((found - expected).abs() <= 1e-5 * expected.abs() + 1e-3)
    if fault or bool((same | finite).all()):
        return fault
    row, column = (int(x) for x in (~(same | finite)).nonzero()[0])
    return f"edges: {float(found[row, column])} for {float(expected[row, column])} in row {row}"


def run(case: ProductCase) -> dict[str, Any]:
    """One case; the record has `failure` when something is wrong."""
    generator = torch.Generator(device="cuda").manual_seed(case.seed + 1)
    m, n, k = case.sizes
    types = TYPES[case.types][:2]
    for make in (whole, normal):
        exact = make is whole or TYPES[case.types][2] == "s32"
        a, b = (
            operand(make(shape, dtype, generator), dtype, order)
            for shape, dtype, order in zip(((m, k), (n, k)), types, FORMS[case.form], strict=True)
        )
        fault = check(case, a, b, exact)
        if fault:
            return {"case": case.name, "failure": f"{make.__name__}: {fault}"}
    if case.types == "f32":
        fault = check_edges(case, generator)
        if fault:
            return {"case": case.name, "failure": fault}
    return {"case": case.name}


def run_all(cases: list[ProductCase], report: TextIO) -> None:
    """Run the cases in order; an exception ends a case, a CUDA error or a hang the process."""
    for case in cases:
        print(json.dumps({"case": case.name, "started": True}), file=report, flush=True)
        faulthandler.dump_traceback_later(CASE_LIMIT_S, exit=True)
        try:
            record = run(case)
        except _REPORTED as error:
            record = {"case": case.name, "failure": f"{type(error).__name__}: {error}"}
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(record), file=report, flush=True)
        if "failure" in record:
            torch.cuda.synchronize()


def main(arguments: list[str]) -> int:
    """`product_child CASES.json REPORT.jsonl`."""
    records = json.loads(Path(arguments[0]).read_text())
    cases = [ProductCase(**{**r, "sizes": tuple(r["sizes"])}) for r in records]
    with Path(arguments[1]).open("a") as report:
        run_all(cases, report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
