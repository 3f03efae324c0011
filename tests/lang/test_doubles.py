"""Functions of f64, of the language and of ``std.math``, against 240-bit arithmetic."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest

from tests.lang.test_std import EXACT, run
from tests.numbers.wide_functions import BUILTIN, SHIPPED, sample

COUNT = 500
INF, NAN = np.inf, np.nan
FAR = 2.0**30
"""Beyond it sin and cos are NaN."""
TRUTH = {**EXACT, "exp2": lambda x: mp.mpf(2) ** x, "log2": lambda x: mp.log(x) / mp.log(2)}
WAYS = [(f"from std.math import {name}\n", name) for name in SHIPPED]
WAYS += [("", name) for name in BUILTIN]
WAYS += [(f"from std.doubles import {name}\n", name) for name in ("exp2", "log2")]


def applied(imports: str, name: str, *given: Any) -> Any:
    """A function on float64 arrays."""
    inputs = "".join(f"x{n}: f64[M], " for n in range(len(given)))
    values = ", ".join(f"x{n}[i]" for n in range(len(given)))
    arrays = {f"x{n}": np.asarray(x, np.float64) for n, x in enumerate(given)}
    arrays["c"] = np.zeros_like(arrays["x0"])
    text = f"{imports}kernel k({inputs}c: out f64[M]):\n    for i in parallel(tiles(M)):\n"
    with np.errstate(all="ignore"):
        run(f"{text}        c[i] = {name}({values})\n", arrays)
    return arrays["c"]


def ulps(found: float, exact: Any) -> float:
    """The error in units in the last place of the exact result, subnormal ones included."""
    if np.isinf(found):
        return 0.0 if abs(exact) >= mp.mpf(2) ** 1024 * (1 - mp.mpf(2) ** -54) else np.inf
    exponent = max(mp.frexp(exact)[1] - 1, -1022)
    return float(abs(mp.mpf(found) - exact) / mp.mpf(2) ** (exponent - 52))


@pytest.mark.parametrize(("imports", "name"), WAYS)
def test_within_four_units_in_the_last_place(imports: str, name: str) -> None:
    given = sample(name, COUNT)
    found = applied(imports, name, *given)
    with mp.workprec(240):
        errors = [
            ulps(float(y), TRUTH[name](*map(mp.mpf, map(float, xs))))
            for y, *xs in zip(found, *given, strict=True)
        ]
    worst = int(np.argmax(errors))
    assert errors[worst] <= 4, (name, [float(x[worst]) for x in given], errors[worst])


def test_where_a_quarter_turn_cancels_most() -> None:
    # Numerators of the continued fraction of half of pi, as far as they are doubles below 2**30.
    hardest = [3.0, 11.0, 22.0, 344.0, 355.0, 51819.0, 52174.0, 260515.0, 573204.0, 4846147.0]
    hardest += [5419351.0, 37362253.0, 42781604.0, 122925461.0, 411557987.0, 534483448.0]
    for name in ("sin", "cos"):
        found = applied(f"from std.math import {name}\n", name, hardest)
        with mp.workprec(240):
            exact = [TRUTH[name](mp.mpf(x)) for x in hardest]
            assert max(map(ulps, map(float, found), exact)) <= 4


SPECIAL: dict[str, tuple[list[Any], list[float]]] = {
    "exp": ([0, INF, -INF, NAN, 1e300, -1e300, 709.8], [1, INF, 0, NAN, INF, 0, INF]),
    "exp2": (
        [0, 10, -1074, 1023, 1024, INF, -INF, NAN],
        [1, 1024, 5e-324, 2.0**1023, INF, INF, 0, NAN],
    ),
    "log": ([1, 0, INF, -1, NAN, 5e-324], [0, -INF, INF, NAN, NAN, -744.4400719213812]),
    "log2": ([1, 0, INF, -1, NAN, 5e-324, 2.0**900], [0, -INF, INF, NAN, NAN, -1074, 900]),
    "sin": ([0, INF, NAN, 2e9], [0, NAN, NAN, NAN]),
    "cos": ([0, INF, NAN, -2e9], [1, NAN, NAN, NAN]),
    "tanh": ([0, INF, -INF, NAN, 30], [0, 1, -1, NAN, 1]),
    "erf": ([0, INF, -INF, NAN, 9], [0, 1, -1, NAN, 1]),
    "rsqrt": ([4, 0, INF, -1, NAN], [0.5, INF, 0, NAN, NAN]),
    "sigmoid": ([0, INF, -INF, NAN], [0.5, 1, 0, NAN]),
    "silu": ([0, INF, -INF, NAN], [0, INF, 0, NAN]),
    "gelu": ([0, INF, -INF, NAN, -50], [0, INF, 0, NAN, 0]),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str) -> None:
    given, expected = SPECIAL[name]
    found = applied(f"from std.doubles import {name}\n", name, given)
    np.testing.assert_array_equal(found, np.float64(expected))


def test_pow_has_the_special_values_of_c() -> None:
    values = [0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 2.5, INF, -INF, NAN, 2.0**54, 1e-300, 1e300]
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    found = applied("from std.math import pow\n", "pow", x, y)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-15)
    signed_apart = (np.sign(found) != np.sign(expected)) & (expected != 0) & ~np.isnan(expected)
    assert not signed_apart.any()


def test_weights_of_a_softmax_in_f64() -> None:
    x = np.random.default_rng(2).standard_normal((5, 40)) * 30
    x[2, :7] = -INF
    arrays = {"x": x, "y": np.zeros_like(x)}
    run(
        "kernel k(x: f64[M, N], y: out f64[M, N]):\n"
        "    for i in parallel(tiles(M)):\n"
        "        r = anchor(full[f64](i, -inf), x[i, :])\n"
        "        y[i, :] = exp2sub(x[i, :], r[:, None])\n",
        arrays,
    )
    ratios = arrays["y"] / arrays["y"].max(axis=1, keepdims=True)
    np.testing.assert_allclose(ratios, np.exp2(x - x.max(axis=1, keepdims=True)), rtol=1e-15)


STRICT = """from std.math import tanh
kernel k(x: f64[M], y: out f64[M], z: out f64[M]):
    for i in parallel(tiles(M)):
        strict:
            y[i] = exp(x[i])
            z[i] = tanh(x[i])
"""


def test_those_of_f64_are_fixed_to_the_last_bit() -> None:
    x = np.linspace(-3, 3, 50)
    arrays = {"x": x, "y": np.zeros_like(x), "z": np.zeros_like(x)}
    run(STRICT, arrays)
    np.testing.assert_array_equal(arrays["y"], applied("", "exp", x))
    np.testing.assert_array_equal(arrays["z"], applied("", "tanh", x))
