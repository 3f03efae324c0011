"""The examples on the interpreter, at two tile sizes, packed and strided, against NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.examples.spec import (
    FOLDER,
    Example,
    Given,
    Sizes,
    all_examples,
    decoded,
    fault,
    run_inputs,
    stored,
    truth_of,
)
from tilec.compiler import front
from tilec.interp.interpret import bind_dims, choose_sizes, interpret
from tilec.interp.memory import unwritten
from tilec.ir.core import Kernel
from tilec.ir.types import DTYPES
from tilec.source import SourceFile
from tilec.targets import by_name

EXAMPLES = tuple(all_examples())
CASES = [(e, s, n) for e in EXAMPLES for n, s in enumerate(e.sizes)]


def _named(case: Any) -> str:
    if isinstance(case, Example):
        return case.kernel
    return ",".join(f"{k}={v}" for k, v in case.items()) if isinstance(case, dict) else str(case)


@cache
def _program(example: Example, bindings: tuple[tuple[str, Any], ...]) -> Kernel:
    source = SourceFile(str(example.path), example.path.read_text())
    return front(source, example.kernel, dict(bindings), by_name("sm_90")).kernels[0]


@pytest.mark.parametrize(("example", "sizes", "number"), CASES, ids=_named)
def test_an_example_is_right_whatever_its_tiles(
    example: Example, sizes: Sizes, number: int
) -> None:
    kernel = _program(example, tuple(example.bindings(sizes).items()))
    view = "repeated" if number % 2 else "packed"
    given = run_inputs(example, sizes, view)
    truth = truth_of(example, given, sizes)
    arrays = {k: stored(v.dtype, v.values) for k, v in given.items() if isinstance(v, Given)}
    scalars = {k: v for k, v in given.items() if not isinstance(v, Given)}
    for lazy in (False, True):
        written = dict(arrays)
        for name, output in example.outputs.items():
            fresh = unwritten(DTYPES[output.dtype], output.extents(sizes), False)
            written[name] = arrays[name].copy() if name in arrays else fresh
        tiles = choose_sizes(kernel, bind_dims(kernel, written), int(lazy))
        interpret(kernel, written, scalars, tiles, lazy=lazy)
        for name, output in example.outputs.items():
            why = fault(output, decoded(output.dtype, written[name]), truth[name])
            assert not why, f"{name}: {why}"


def test_every_kernel_of_the_folder_is_declared() -> None:
    """A new example comes with its sizes and its truth."""
    from tilec.frontend.parse import parse

    declared = {(e.file, e.kernel) for e in EXAMPLES}
    for path in FOLDER.glob("*.tk"):
        for kernel in parse(SourceFile(path.name, path.read_text())).kernels:
            assert (path.stem, kernel.name) in declared, f"{path.name}: {kernel.name}"


def test_closeness_can_fail() -> None:
    example = next(e for e in EXAMPLES if e.kernel == "add")
    truth = np.ones((2, 2))
    assert fault(example.outputs["c"], truth * (1 + 2.0**-6), truth)
    assert fault(example.outputs["c"], truth * np.nan, truth)
    assert not fault(example.outputs["c"], truth, truth)
