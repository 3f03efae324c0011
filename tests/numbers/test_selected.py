"""Selected instructions leave what the interpreter leaves, bit for bit, at the edges of every type.

The instructions run on the NumPy machine of ``tests/select``; ``tests.gpu.edge_values`` runs the
same programs on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.gpu.cta_case import fault
from tests.numbers.programs import Program, alignments, elementwise, reductions, scalars
from tests.numbers.wide_functions import wide_functions, wide_rows
from tests.select.simt import Array, Machine
from tilec.runtime.arrays import ArrayView
from tilec.runtime.specialise import effective_strides

FAMILIES: dict[str, tuple[Callable[[], Iterator[Program]], int]] = {
    "elementwise": (elementwise, 6),
    "scalars": (scalars, 4),
    "reductions": (reductions, 4),
    "alignments": (alignments, 4),
    "functions of f64": (partial(wide_functions, 150), 4),
    "rows of 64 bits": (wide_rows, 1),
}
"""Programs, and how many tests share them: they run side by side."""


def faults(program: Program) -> str:
    """What is wrong after a run; empty if nothing."""
    (kernel,) = program.compiled().module.kernels
    arrays = {}
    for name, array in {**program.inputs, **program.outputs}.items():
        raw = array.stored(array.values if name in program.inputs else None)
        view = ArrayView(0, array.values.shape, array.steps, array.dtype, ("cpu", 0), None)
        arrays[name] = Array(raw, array.first, array.values.shape, effective_strides(view))
    found = Machine(kernel, arrays).run()
    wrong = {n: fault(want, found[n], None) for n, want in program.expected().items()}
    return "; ".join(f"{name}: {text}" for name, text in wrong.items() if text)


@pytest.mark.parametrize(
    ("family", "piece"), [(name, n) for name, (_, count) in FAMILIES.items() for n in range(count)]
)
def test_instructions_and_interpreter_agree(family: str, piece: int) -> None:
    make, count = FAMILIES[family]
    found = {p.name: faults(p) for p in list(make())[piece::count]}
    assert {name: text for name, text in found.items() if text} == {}
