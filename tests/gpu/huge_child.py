"""Runs one huge case on the GPU and prints its record, as a child of `test_huge`.

Idea: the result is compared with torch's, a slice of rows at a time, on the GPU: what lies beyond
2^31 elements is as right as what lies below, to the rounding of the element type.

Never: holds float64 copies of whole arrays.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
import torch.nn.functional as nn  # type: ignore[import-not-found,unused-ignore]

import tilec

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_SLICE = 1 << 27  # elements that are compared at a time
_LIMIT = 1 << 31
_CLOSE = 2.0**-7  # two roundings to bf16


def kernel(name: str) -> Any:
    """The kernel of an example, called as its file."""
    return getattr(tilec.load(str(_EXAMPLES / f"{name}.tk")), name)


def random(*shape: int) -> Any:
    """Random normal bf16, made in slices."""
    made = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
    torch.manual_seed(0)
    flat = made.view(-1)
    for start in range(0, flat.numel(), _SLICE):
        flat[start : start + _SLICE].normal_()
    return made


def worst(found: Any, expected: Callable[[int, int], Any]) -> float:
    """The largest error against the largest expected element, over slices of rows."""
    rows = max(1, _SLICE // max(1, found.shape[-1]))
    largest = 0.0
    for start in range(0, found.shape[0], rows):
        want = expected(start, start + rows).float()
        got = found[start : start + rows].float()
        difference = (got - want).abs().max() / want.abs().max().clamp_min(1e-6)
        largest = max(largest, float(difference.nan_to_num(float("inf"))))
    return largest


def add() -> tuple[int, float]:
    """Sums of two arrays of 2.15e9 elements."""
    a, b = random(65537, 32800), random(65537, 32800)
    c = torch.full_like(a, float("nan"))
    kernel("add")(a, b, c)
    return a.numel(), worst(c, lambda s, e: a[s:e] + b[s:e])


def softmax() -> tuple[int, float]:
    """131073 rows of 16400."""
    x = random(131073, 16400)
    y = torch.full_like(x, float("nan"))
    kernel("softmax")(x, y)
    return x.numel(), worst(y, lambda s, e: torch.softmax(x[s:e].float(), -1))


def cross_entropy() -> tuple[int, float]:
    """Gradients of 16500 rows of 131072 logits."""
    x = random(16500, 131072)
    label = torch.randint(0, x.shape[1], (x.shape[0],), device="cuda", dtype=torch.int32)
    loss = torch.full((x.shape[0],), float("nan"), device="cuda")
    gradient = torch.full_like(x, float("nan"))
    kernel("cross_entropy")(x, label, loss, gradient)

    def expected(start: int, end: int) -> Any:
        p = torch.softmax(x[start:end].float(), -1)
        p.scatter_add_(1, label[start:end, None].long(), -torch.ones_like(p[:, :1]))
        return p

    losses = worst(
        loss[:, None],
        lambda s, e: nn.cross_entropy(x[s:e].float(), label[s:e].long(), reduction="none")[:, None],
    )
    return x.numel(), max(losses, worst(gradient, expected))


def gemm() -> tuple[int, float]:
    """A product whose result has 2.15e9 elements."""
    a, b = random(65537, 64), random(32800, 64)
    c = torch.full((65537, 32800), float("nan"), dtype=torch.bfloat16, device="cuda")
    kernel("gemm")(a, b, c)
    return c.numel(), worst(c, lambda s, e: a[s:e] @ b.T)


def far_rows() -> tuple[int, float]:
    """Rows that lie more than 2^31 elements from one another."""
    stride = _LIMIT + 8
    whole = torch.zeros(2 * stride + 1000, dtype=torch.bfloat16, device="cuda")
    a = whole.as_strided((3, 1000), (stride, 1))
    a.copy_(random(3, 1000))
    c = torch.full((3, 1000), float("nan"), dtype=torch.bfloat16, device="cuda")
    kernel("add")(a, a, c)
    return 2 * stride, worst(c, lambda s, e: a[s:e] + a[s:e])


CASES = {f.__name__: f for f in (add, softmax, cross_entropy, gemm, far_rows)}


def main(arguments: list[str]) -> int:
    """`huge_child CASE`."""
    elements, error = CASES[arguments[0]]()
    torch.cuda.synchronize()
    record = {"case": arguments[0], "elements": elements, "error": error}
    if elements <= _LIMIT or not error <= _CLOSE:
        record["failure"] = f"error {error:.3g} of the largest, over {elements} elements"
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
