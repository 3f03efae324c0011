"""What the generator knows of each value: element type, axes, and how exact it is.

Idea: a float that is a multiple of ``2**-grain``, and no larger than ``bound``, is exact while both
fit its significand, whatever the order of sums is. So most results can be compared bit for bit.
Where a rounding happens, ``error`` bounds how far two executors may be apart, and grows with what
is computed from it. Decisions (comparisons, conversions to integers) are made on exact values only.

Never: looks at a program; it is arithmetic on bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import frexp

INTEGERS = {"s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64}
FLOATS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
"""Types of floats that are computed with, and the bits of their significands."""
STORED = {"e4m3": 4, "e5m2": 3, "tf32": 11}
"""Types of floats that are only loaded, stored, converted and multiplied as tiles."""
DTYPES = (*FLOATS, *INTEGERS, "bool", *STORED)
DIGITS = {**FLOATS, **STORED}
_FINEST = {"e4m3": 9, "e5m2": 16, "f16": 24}
"""Grains of the least subnormal numbers."""
LARGEST = {"e4m3": 256.0, "e5m2": 2.0**13}
"""Bounds of values; types that are not here take ``MOST``."""
MOST = 2.0**13


class TooLarge(Exception):
    """A value would leave what its type holds; the generator draws something else."""


@dataclass(frozen=True)
class Axis:
    """One axis: how it is written as a subscript, the extent in types, and its most elements."""

    index: str
    extent: str
    most: int

    @property
    def is_tile(self) -> bool:
        """Whether a loop over tiles gives its index."""
        return self.index != ":"


@dataclass(frozen=True)
class Value:
    """An expression and what is known of it."""

    text: str
    dtype: str
    axes: tuple[Axis, ...] = ()
    bound: float = 0.0
    grain: int = 0
    error: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether every executor gives the same bits."""
        return self.error == 0

    def said(self, text: str, **changes: object) -> Value:
        """The same value, written otherwise."""
        return replace(self, text=text, **changes)  # type: ignore[arg-type]


def power_above(x: float) -> float:
    """The least power of two that is no less than ``x``, 1 at least."""
    found = 1.0
    while found < x:
        found *= 2
    return found


def rounded(dtype: str, bound: float, grain: int, error: float) -> tuple[float, int, float]:
    """Bound, grain and error of a float of ``dtype`` that is rounded once."""
    bound = power_above(bound + error)
    if bound > LARGEST.get(dtype, MOST):
        raise TooLarge
    grain = max(grain, 0)
    digits = DIGITS[dtype]
    span = frexp(bound)[1] - 1
    if error or span + grain > digits or grain > _FINEST.get(dtype, 40):
        error = error + bound * 2.0 ** (1 - digits)
        grain = 0
    return bound, grain, error


def number(dtype: str, text: str, axes: tuple[Axis, ...], *parts: float) -> Value:
    """A value of a float type from bound, grain and error before rounding."""
    bound, grain, error = rounded(dtype, parts[0], int(parts[1]), parts[2])
    return Value(text, dtype, axes, bound, grain, error)


def whole(dtype: str, text: str, axes: tuple[Axis, ...]) -> Value:
    """An integer or a bool, of which any may come."""
    return Value(text, dtype, axes, 1.0 if dtype == "bool" else 2.0 ** INTEGERS[dtype])


def added(x: Value, y: Value, text: str) -> Value:
    """``x + y`` or ``x - y``."""
    if x.dtype not in FLOATS:
        return x.said(text)
    parts = x.bound + y.bound, max(x.grain, y.grain), x.error + y.error
    return number(x.dtype, text, x.axes, *parts)


def multiplied(x: Value, y: Value, text: str) -> Value:
    """``x * y``."""
    if x.dtype not in FLOATS:
        return x.said(text)
    error = x.bound * y.error + y.bound * x.error + x.error * y.error
    return number(x.dtype, text, x.axes, x.bound * y.bound, x.grain + y.grain, error)


def joined(x: Value, y: Value, text: str) -> Value:
    """One of the two, or their minimum or maximum."""
    return x.said(
        text,
        bound=max(x.bound, y.bound),
        grain=max(x.grain, y.grain),
        error=max(x.error, y.error),
    )


def approximate(x: Value, text: str, bound: float, slope: float, error: float) -> Value:
    """A function of ``x`` with a largest slope, and an error of its own."""
    made = slope * x.error + error + bound * 2.0 ** (1 - FLOATS[x.dtype])
    return number(x.dtype, text, x.axes, bound, 0, made)


def summed(x: Value, count: int, dtype: str, text: str, axes: tuple[Axis, ...]) -> Value:
    """A sum of up to ``count`` elements."""
    if dtype not in FLOATS:
        return whole(dtype, text, axes)
    error = x.error * count
    bound = x.bound * max(count, 1)
    if error:
        error += bound * 2.0 ** (-DIGITS[dtype]) * count
    made = number(dtype, text, axes, bound, x.grain, error)
    if made.error and not error:  # sums that round do so once for each element
        made = made.said(text, error=made.bound * 2.0 ** (1 - DIGITS[dtype]) * count)
    return made


def converted(x: Value, dtype: str, text: str) -> Value:
    """``cast[dtype](x)``."""
    if dtype not in DIGITS:
        return whole(dtype, text, x.axes)
    if x.dtype in DIGITS or x.dtype == "bool":
        return number(dtype, text, x.axes, x.bound, x.grain, x.error)
    return number(dtype, text, x.axes, x.bound, 0, 0.0)
