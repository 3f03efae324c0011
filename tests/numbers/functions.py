"""Functions whose last bits are open, on dense samples, and how far they may be off.

Idea: a program applies one function to a sample over its whole range, denser where it is hard; the
result is compared with NumPy's float64, whose own error is nothing beside a bound in f32. The
bounds of the language's functions are those of docs/language.md, where a subnormal argument or
result may count as 0; those of ``std.math`` are 4 units in the last place, everywhere.

Never: shares code with the functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.gpu.cta_case import Placed
from tests.numbers.edges import Data, values
from tests.numbers.programs import Program, given, unwritten

COUNT = 200_000
LEAST_NORMAL = 2.0**-126
_GREATEST = float(np.finfo(np.float32).max)

Exact = Callable[..., Any]
Bound = Callable[[Data, Data], Data]
"""The largest error, from the arguments and the exact results."""


@dataclass(frozen=True)
class Rule:
    """A function: what it gives exactly, how far off it may be, and where it is tried."""

    exact: Exact
    bound: Bound
    sample: Callable[[np.random.Generator], tuple[Data, ...]]
    flushes: bool


@dataclass(frozen=True)
class Function(Program):
    """A program of one function, and its rule."""

    rule: Rule | None = None

    def judge(self, want: Placed, raw: Any) -> str:
        """What is wrong with the output's storage; empty if nothing."""
        assert self.rule is not None
        arguments = [a.values.astype(np.float64) for a in self.inputs.values()]
        return misses(self.rule, arguments, want.elements(raw).astype(np.float64))


def misses(rule: Rule, arguments: list[Data], found: Data) -> str:
    """Where results are further off than the rule allows; empty if nowhere."""
    with np.errstate(all="ignore"):
        exact = np.asarray(rule.exact(*arguments), np.float64)
        allowed = rule.bound(arguments[0], exact)
        error = np.abs(found - exact)
        overflow = (np.abs(exact) > _GREATEST * (1 - 2.0**-22)) & (np.sign(found) == np.sign(exact))
        right = (error <= allowed) | (found == exact) | (np.isnan(found) & np.isnan(exact))
        right |= overflow & (np.abs(found) > _GREATEST * (1 - 2.0**-22))
        if rule.flushes:
            right |= (np.abs(exact) < LEAST_NORMAL) & (np.abs(found) <= LEAST_NORMAL)
            zero = np.asarray(rule.exact(*(np.copysign(0, a) for a in arguments)), np.float64)
            small = np.abs(arguments[0]) < LEAST_NORMAL
            right |= small & ((found == zero) | (np.isnan(found) & np.isnan(zero)))
    if right.all():
        return ""
    place = int(np.flatnonzero(~right)[0])
    worst = np.nanmax(np.where(right, 0, error / np.maximum(ulp(exact), 2.0**-149)))
    at = ", ".join(f"{float(a[place])!r}" for a in arguments)
    return (
        f"{np.count_nonzero(~right)} of {right.size} are off, the worst by {worst:.3g} ulp, first "
        f"of ({at}): {found[place]!r} for {exact[place]!r}"
    )


def ulp(exact: Data) -> Data:
    """A unit in the last place of f32, subnormal results included."""
    _, exponent = np.frexp(np.where(np.isfinite(exact), exact, 1.0))
    return np.ldexp(1.0, np.maximum(exponent - 1, -126) - 23)


def _ulps(count: float) -> Bound:
    return lambda x, exact: count * ulp(exact)


def _relative(share: float) -> Bound:
    return lambda x, exact: share * np.abs(exact) + 2.0**-149


def _near_one(share: float) -> Bound:
    """A distance between a half and two, a share elsewhere, as lg2.approx has it."""
    return lambda x, exact: share * np.where((x > 0.5) & (x < 2), 1.0, np.abs(exact))


def _spread(least: float, most: float) -> Callable[[np.random.Generator], Data]:
    """Magnitudes from 2 to the power ``least`` to that of ``most``, of both signs."""

    def sample(chance: np.random.Generator) -> Data:
        size = np.exp2(chance.uniform(least, most, COUNT))
        return (size * chance.choice([-1.0, 1.0], COUNT)).astype(np.float32)

    return sample


def _over(*pieces: Any) -> Callable[[np.random.Generator], tuple[Data, ...]]:
    """One argument: ranges, samples, and the edge values of f32."""

    def sample(chance: np.random.Generator) -> tuple[Data, ...]:
        parts = [
            piece(chance) if callable(piece) else chance.uniform(*piece, COUNT) for piece in pieces
        ]
        return (np.concatenate([*parts, values("f32")]).astype(np.float32),)

    return sample


def _logarithms(chance: np.random.Generator) -> Data:
    return np.concatenate([_positive(chance), 1 + _spread(-23, -1)(chance)])


def _positive(chance: np.random.Generator) -> Data:
    return np.abs(_spread(-149, 128)(chance))


def _turns(chance: np.random.Generator) -> Data:
    """Near multiples of a quarter turn the most digits are lost."""
    whole = chance.integers(1, 667_000, COUNT) * (np.pi / 2)
    return np.concatenate([whole, chance.uniform(-(2.0**20), 2.0**20, COUNT)]).astype(np.float32)


def _powers(chance: np.random.Generator) -> tuple[Data, ...]:
    x = np.abs(_spread(-140, 127)(chance)).astype(np.float64)
    limit = 150 / np.maximum(np.abs(np.log2(x)), 1e-3)
    y = np.clip(limit, 0, 1e6) * chance.uniform(-1, 1, COUNT)
    return x.astype(np.float32), y.astype(np.float32)


def _each(function: Callable[[float], float]) -> Exact:
    return lambda x: np.array([function(float(v)) for v in np.ravel(x)]).reshape(np.shape(x))


def _turned(function: Exact) -> Exact:
    """Beyond 2**20 the answer is NaN."""
    return lambda x: np.where(np.abs(x) <= 2.0**20, function(x), np.nan)


def _sigmoid(x: Data) -> Data:
    return np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))


def _silu(x: Data) -> Data:
    return np.where(x == -np.inf, -0.0, x * _sigmoid(x))


def _gelu(x: Data) -> Data:
    tail = _each(math.erfc)(-x / math.sqrt(2)) / 2
    return np.where(x == -np.inf, -0.0, x * tail)


_WIDE = _over((-20.0, 20.0), _spread(-149, 127))
_EXPONENTS = _over((-104.0, 89.0), _spread(-30, 6))
BUILTIN: dict[str, Rule] = {
    "exp2": Rule(np.exp2, _relative(2.0**-22), _over((-150.0, 129.0), _spread(-30, 7)), True),
    "exp": Rule(
        np.exp,
        lambda x, exact: (2.0**-22 + 2.0**-23 * np.abs(x)) * np.abs(exact) + 2.0**-149,
        _EXPONENTS,
        True,
    ),
    "log2": Rule(np.log2, _near_one(2.0**-22), _over(_logarithms), True),
    "log": Rule(np.log, _near_one(2.0**-21), _over(_logarithms), True),
    "rsqrt": Rule(lambda x: 1 / np.sqrt(x), _relative(2.0**-22.9), _over(_positive), True),
    "tanh": Rule(np.tanh, _relative(2.0**-11), _WIDE, True),
}
"""The functions of the language, with the bounds of docs/language.md."""
SHIPPED: dict[str, Rule] = {
    "exp": Rule(np.exp, _ulps(4), _EXPONENTS, False),
    "log": Rule(np.log, _ulps(4), _over(_logarithms), False),
    "sin": Rule(_turned(np.sin), _ulps(4), _over((-20.0, 20.0), _spread(-149, 20), _turns), False),
    "cos": Rule(_turned(np.cos), _ulps(4), _over((-20.0, 20.0), _spread(-149, 20), _turns), False),
    "tanh": Rule(np.tanh, _ulps(4), _WIDE, False),
    "erf": Rule(_each(math.erf), _ulps(4), _WIDE, False),
    "pow": Rule(np.power, _ulps(4), _powers, False),
    "rsqrt": Rule(lambda x: 1 / np.sqrt(x), _ulps(4), _over(_positive), False),
    "sigmoid": Rule(_sigmoid, _ulps(4), _WIDE, False),
    "silu": Rule(_silu, _ulps(4), _WIDE, False),
    "gelu": Rule(_gelu, _ulps(4), _over((-20.0, 20.0), (-3.0, 0.0), _spread(-149, 127)), False),
}
"""The functions of std.math."""


def functions(rules: Mapping[str, Rule]) -> Iterator[Function]:
    """A program for each."""
    shipped = rules is SHIPPED
    for name, rule in rules.items():
        arguments = rule.sample(np.random.default_rng(len(name)))
        inputs = {f"x{n}": given("f32", data) for n, data in enumerate(arguments)}
        head = "".join(f"{n}: f32[M], " for n in inputs)
        taken = ", ".join(f"{n}[i]" for n in inputs)
        text = (
            f"kernel k({head}y: out f32[M]):\n"
            "    for i in parallel(tiles(M)):\n"
            f"        y[i] = {name}({taken})\n"
        )
        if shipped:
            text = f"from std.math import {name}\n{text}"
        origin = "std.math" if shipped else "builtin"
        outputs = {"y": unwritten("f32", len(arguments[0]))}
        yield Function(f"function {origin} {name}", text, inputs, outputs, rule=rule)
