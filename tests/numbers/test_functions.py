"""The interpreter lies within the bounds that a GPU is held to; what is a little worse does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu.cta_case import Placed
from tests.numbers.functions import BUILTIN, SHIPPED, Function, functions
from tests.numbers.programs import unwritten

_EVERY = 29
PROGRAMS = {f.name: f for rules in (BUILTIN, SHIPPED) for f in functions(rules)}


def thinned(program: Function) -> Function:
    """Every so many of the arguments."""
    inputs = {n: Placed(a.dtype, a.values[::_EVERY].copy()) for n, a in program.inputs.items()}
    count = len(next(iter(inputs.values())).values)
    return replace(program, inputs=inputs, outputs={"y": unwritten("f32", count)})


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_is_within_its_bound(name: str) -> None:
    program = thinned(PROGRAMS[name])
    result = program.expected()["y"]
    assert program.judge(result, result.stored(result.values)) == ""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_result_that_is_further_off_is_found(name: str) -> None:
    program = thinned(PROGRAMS[name])
    result = program.expected()["y"]
    share = np.float32(2.0**-9 if name.endswith("builtin tanh") else 2.0**-19)
    with np.errstate(over="ignore"):
        worse = replace(result, values=result.values * (1 + share))
    assert program.judge(worse, worse.stored(worse.values)) != ""
