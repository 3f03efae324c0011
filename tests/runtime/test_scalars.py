"""Which numbers a scalar parameter takes, and the bits that it passes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tilec.ir.types import DTYPES
from tilec.runtime.scalars import held, integer_range, key, scalar_bits
from tilec.runtime.specialise import LaunchError


@pytest.mark.parametrize(
    ("dtype", "value", "wanted"),
    [
        ("f32", 1.0, "0000803f00000000"),
        ("f64", 1.0, "000000000000f03f"),
        ("f16", 1.0, "003c000000000000"),
        ("bf16", 1.0, "803f000000000000"),
        ("f32", -math.inf, "000080ff00000000"),
        ("e4m3", -1.0, "b800000000000000"),
        ("e4m3", 447.9, "7e00000000000000"),
        ("e5m2", math.inf, "7c00000000000000"),
        ("s32", -1, "ffffffffffffffff"),
        ("u8", 255, "ff00000000000000"),
        ("s64", -(1 << 63), "0000000000000080"),
        ("u64", (1 << 64) - 1, "ffffffffffffffff"),
        ("bool", True, "0100000000000000"),
    ],
)
def test_scalars_are_passed_as_their_bits(dtype: str, value: Any, wanted: str) -> None:
    assert scalar_bits(DTYPES[dtype], held("x", DTYPES[dtype], value)).hex() == wanted


@pytest.mark.parametrize("name", [n for n, t in DTYPES.items() if not t.is_float])
def test_integers_fit_exactly_in_their_range(name: str) -> None:
    dtype = DTYPES[name]
    low, high = integer_range(dtype)
    assert [held("x", dtype, v) for v in (low, high, float(low))] == [low, high, low]
    for outside in (low - 1, high + 1, 1e20, math.nan, math.inf, 0.5):
        with pytest.raises(LaunchError, match=f"x is of type {name}, a whole number from {low} to"):
            held("x", dtype, outside)


@pytest.mark.parametrize(
    ("name", "fits", "above"),
    [
        ("f32", 3.4028235e38, 3.5e38),
        ("f16", 65519.0, 65520.0),
        ("bf16", float.fromhex("0x1.fefp127"), float.fromhex("0x1.ffp127")),
        ("f64", 1.7e308, 10**400),
        ("bf16", 1e38, 1e300),
        ("e5m2", 57344.0, 57345.0),
    ],
)
def test_finite_floats_stay_finite(name: str, fits: float, above: float) -> None:
    dtype = DTYPES[name]
    assert held("x", dtype, fits) == fits
    assert held("x", dtype, -math.inf) == -math.inf
    assert math.isnan(held("x", dtype, math.nan))
    for outside in (above, -above):
        with pytest.raises(LaunchError, match=f"x is of type {name}, at most"):
            held("x", dtype, outside)


@pytest.mark.parametrize("value", ["7", b"7", 1j, np.complex64(1j), [1], object()])
@pytest.mark.parametrize("name", ["s32", "f32", "bool"])
def test_what_is_no_real_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(LaunchError, match=f"x is a number of type {name}, got"):
        held("x", DTYPES[name], value)


def test_numbers_of_other_libraries_become_pythons_own() -> None:
    for value in (np.float16(2), np.int8(2), Fraction(2), 2):
        assert type(held("x", DTYPES["f32"], value)) is float
        assert type(held("x", DTYPES["u8"], value)) is int
    assert held("x", DTYPES["bool"], np.bool_(True)) is True


def test_numbers_of_other_bits_have_other_keys() -> None:
    values = [0.0, -0.0, 0, False, 1, 1.0, True, np.float32(1), math.nan]
    assert len({key(v) for v in values}) == len(values)
    assert key(math.nan) == key(float("nan"))
