"""Examples with ranges and states on the machine of level ``cta``, in float64 throughout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.examples.ranges import CUMSUM, GROUPED_GEMM, RETENTION, VARLEN_ATTENTION
from tests.examples.spec import Example, Given, Sizes, run_inputs, truth_of
from tests.passes.machine_runs import check_text

CASES = [
    (CUMSUM, {"M": 5, "N": 300}),
    (GROUPED_GEMM, {"G": 4, "GE": 5, "M": 150, "N": 88, "K": 72}),
    (VARLEN_ATTENTION, {"E": 4, "TQ": 90, "TK": 77, "H": 2, "HK": 1, "D": 64, "CAUSAL": True}),
    (VARLEN_ATTENTION, {"E": 3, "TQ": 70, "TK": 140, "H": 1, "HK": 1, "D": 128, "CAUSAL": False}),
    (RETENTION, {"B": 1, "H": 2, "N": 140, "D": 64}),
]


@pytest.mark.parametrize(("example", "sizes"), CASES, ids=lambda v: getattr(v, "kernel", ""))
@pytest.mark.parametrize("alignment", [2, 16])
def test_an_example_keeps_its_meaning(example: Example, sizes: Sizes, alignment: int) -> None:
    given = run_inputs(example, sizes)
    truth: dict[str, Any] = {}
    for name, value in truth_of(example, given, sizes).items():
        # What no group holds is left alone: here it is NaN before and after.
        kept = given[name].exact() if name in given else np.zeros(0)
        truth[name] = np.where(value == kept, np.nan, value) if name in given else value
    text = example.path.read_text().replace(f"kernel {example.kernel}", "kernel f")
    inputs = {k: v.exact() for k, v in given.items() if isinstance(v, Given) and k not in truth}
    scalars = {k: v for k, v in given.items() if not isinstance(v, Given)}
    check_text(
        text,
        inputs,
        truth,
        scalars=scalars,
        values=example.bindings(sizes),
        alignment=alignment,
        tolerance=1e-6,
    )
