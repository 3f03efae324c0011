"""Every program of docs/language.md that compiles, on the emulator, against the interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.lang.test_docs import blocks
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.numbers import decode
from tilec.runtime.emulated import Emulator
from tilec.runtime.kernel import Program
from tilec.runtime.trial import array_parameters, make_inputs, on_emulator, on_interpreter
from tilec.source import SourceFile
from tilec.targets import by_name

SIZES = {"M": 72, "N": 50, "K": 33, "B": 3, "BE": 4, "H": 4, "HK": 2}
RUNS = [
    (line, text, kernel)
    for line, text in blocks()
    if "# error:" not in text
    for kernel in re.findall(r"^kernel (\w+)", text, re.MULTILINE)
]


def _named(value: object) -> str:
    return "" if "\n" in str(value) else str(value)


@pytest.mark.parametrize(("line", "text", "name"), RUNS[::5], ids=_named)
def test_some_programs_of_the_page_mean_the_same(line: int, text: str, name: str) -> None:
    _compare(line, text, name, "sm_90")


@pytest.mark.long
@pytest.mark.parametrize("target", ["sm_89", "sm_90"])
@pytest.mark.parametrize(("line", "text", "name"), RUNS, ids=_named)
def test_a_program_of_the_page_means_the_same(line: int, text: str, name: str, target: str) -> None:
    _compare(line, text, name, target)


def _compare(line: int, text: str, name: str, target: str) -> None:
    source, wanted = SourceFile("language.md", text), by_name(target)
    checked = next(k for k in check(parse(source), {}).kernels if k.name == name)
    ir = lower(check(parse(source), {}), name, wanted.name).kernels[0]
    inputs = make_inputs(ir, {d: SIZES[d] for d in checked.dims}, {}, seed=line)
    kernel = getattr(Program(source), name)
    found, faults = on_emulator(kernel, ir, inputs, wanted, Emulator("late"))
    assert [f"{f.code}: {f.message}" for f in faults] == []
    truth = on_interpreter(ir, inputs)
    for output, values in found.outputs.items():
        dtype = array_parameters(ir)[output].dtype
        numbers, others = decode(dtype, values), decode(dtype, truth.outputs[output])
        np.testing.assert_allclose(numbers, others, rtol=1e-2, atol=1e-4)
