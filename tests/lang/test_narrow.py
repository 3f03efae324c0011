"""std.math on f16 and bf16: every number of the type, against many digits, to one unit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from mpmath import mp

from tests.lang.test_std import run
from tilec.interp.numbers import decode
from tilec.ir.types import DTYPES

EXACT: dict[str, Callable[[Any], Any]] = {
    "gelu": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
    "silu": lambda x: x / (1 + mp.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "tanh": mp.tanh,
}
#: Bits of the significand, and the exponent of the least normal number.
TYPES = {"f16": (11, -14), "bf16": (8, -126)}
AT_INFINITY = {"gelu": (np.inf, 0), "silu": (np.inf, 0), "sigmoid": (1, 0), "tanh": (1, -1)}


@cache
def numbers(dtype: str) -> Any:
    """Every number of a type, infinities and NaNs included."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    raw = bits.view(np.float16) if dtype == "f16" else bits
    with np.errstate(invalid="ignore"):
        return decode(DTYPES[dtype], raw).astype(float)


def applied(name: str, dtype: str) -> Any:
    """The function of every number, by the interpreter."""
    with np.errstate(invalid="ignore"):
        arrays = {"x": numbers(dtype).astype(np.float32), "y": np.zeros(1 << 16, np.float32)}
    run(
        f"from std.math import {name}\n"
        "kernel k(x: f32[M], y: out f32[M]):\n"
        "    for i in parallel(tiles(M)):\n"
        f"        y[i] = cast[f32]({name}(cast[{dtype}](x[i])))\n",
        arrays,
    )
    return arrays["y"].astype(float)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", EXACT)
def test_within_one_unit_for_every_number(name: str, dtype: str) -> None:
    digits, least = TYPES[dtype]
    x, found = numbers(dtype), applied(name, dtype)
    finite = np.isfinite(x)
    with mp.workprec(70):
        exact = [float(EXACT[name](mp.mpf(v))) for v in x[finite].tolist()]
    exponents = np.maximum(np.frexp(exact)[1] - 1, least)
    units = np.abs(found[finite] - exact) / 2.0 ** (exponents - digits + 1)
    worst = int(np.argmax(units))
    assert units[worst] <= 1, (x[finite][worst], found[finite][worst], exact[worst])
    assert np.isnan(found[np.isnan(x)]).all()
    assert [found[x == v][0] for v in (np.inf, -np.inf)] == list(AT_INFINITY[name])
