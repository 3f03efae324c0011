"""The table of small ``cta`` kernels that the GPU runs, on the machine of this folder.

What needs TMA, products or several roles at once waits for the GPU.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu.cta_case import Case, Placed, fault
from tests.gpu.cta_ops import FAMILIES
from tests.select.simt import Array, Machine, Unsupported
from tilec.ir.parser import parse_module
from tilec.passes.base import Context
from tilec.pipeline import run
from tilec.runtime.arrays import ArrayView
from tilec.runtime.specialise import effective_strides
from tilec.targets import by_name


def faults(case: Case) -> str:
    """What is wrong after a launch; empty if nothing."""
    module = parse_module(case.text)
    ctx = Context(by_name(module.target))
    run(module, ctx, start_after="place-shared", stop_after="select-instructions")
    (kernel,) = module.kernels
    arrays = {}
    for name in {**case.outputs, **case.inputs}:
        array = case.inputs.get(name) or case.outputs[name]
        raw = array.stored(array.values if name in case.inputs else None)
        view = ArrayView(0, array.values.shape, array.steps, array.dtype, ("cpu", 0), None)
        arrays[name] = Array(raw, array.first, array.values.shape, effective_strides(view))
    found = Machine(kernel, arrays).run()
    wrong = {name: fault(want, found[name], case.error) for name, want in case.outputs.items()}
    return "; ".join(f"{name}: {text}" for name, text in wrong.items() if text)


PIECES = {"elementwise": 6, "registers": 3, "memory": 2, "shared": 3, "mma": 2, "control": 1}
"""How many tests share a family: they run side by side."""
TIMED = ("ring", "tma", "branch", "turns")
"""First words of the kernels with TMA or turns, the only ones that this machine leaves out."""


@pytest.mark.parametrize(
    ("family", "piece"), [(family, n) for family, count in PIECES.items() for n in range(count)]
)
def test_selected_instructions_compute_what_the_kernel_says(family: str, piece: int) -> None:
    wrong = {}
    for case in list(FAMILIES[family]())[piece :: PIECES[family]]:
        if case.name.split()[0] in TIMED:
            with pytest.raises(Unsupported):
                faults(case)
        elif found := faults(case):
            wrong[case.name] = found
    assert not wrong


def test_a_kernel_that_leaves_something_else_is_found_out() -> None:
    case = next(c for c in FAMILIES["elementwise"]() if c.name == "math.add s32")
    want = case.outputs["out"]
    off = Placed(want.dtype, want.values + (np.arange(512) == 77).astype(np.int32))
    assert faults(case) == ""
    found = faults(replace(case, outputs={"out": off}))
    assert found.startswith(f"out: {len(want.values)} of {want.values.size} elements differ")
    assert "(0, 77)" in found


def test_a_store_that_goes_astray_is_found_out() -> None:
    case = next(c for c in FAMILIES["memory"]() if c.name == "move f32 vector 4 uneven")
    text = case.text.replace(", bounded = (0, 1)", "")
    assert text != case.text
    with pytest.raises(AssertionError, match="outside every array"):
        faults(replace(case, text=text))
