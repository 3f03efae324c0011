"""Arithmetic on literals while checking: sizes, choices and conditions known at compile time.

It works on Python's own numbers, so ``//`` and ``%`` floor as the language says. Numbers have a
largest magnitude, that of the widest element type, and what would exceed it is never computed: a
literal such as ``2 ** (10 ** 10)`` costs nothing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from tilec.frontend.checked import Constant
from tilec.ir.types import DType

MOST_BITS = 1024
"""Integers of more bits exceed every element type; `f64` ends at 2 to this power."""

_BINARY: dict[str, Callable[..., Constant]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
TOO_LARGE = "larger than any element type holds"
_FORMATS = {
    "f64": (53, 1023),
    "f32": (24, 127),
    "tf32": (11, 127),
    "bf16": (8, 127),
    "f16": (11, 15),
    "e5m2": (3, 15),
    "e4m3": (4, 8),
}
"""Digits of the significand and the largest exponent of each float type."""
_RELATIONS: dict[str, Callable[..., bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def fold_binary(op: str, left: Constant, right: Constant) -> Constant:
    """``left op right``; raises ``ArithmeticError`` or ``TypeError`` where there is no answer."""
    if _bits(op, left, right) > MOST_BITS:
        raise OverflowError(TOO_LARGE)
    value = _BINARY[op](left, right)
    if isinstance(value, complex):
        raise ArithmeticError("a root of a negative number")
    if math.isinf(value) and math.isfinite(left) and math.isfinite(right):
        raise OverflowError(TOO_LARGE)
    return value


def _bits(op: str, left: Constant, right: Constant) -> int:
    """No fewer bits than the result has, if it is an integer."""
    if not isinstance(left, int) or not isinstance(right, int):
        return 0
    if op == "**" and abs(left) > 1:
        return abs(left).bit_length() * max(right, 0) - (max(right, 1) - 1)
    if op == "<<" and left:
        return left.bit_length() + max(right, 0)
    return left.bit_length() + right.bit_length() - 1 if op == "*" else 0


def shown(value: Constant) -> str:
    """A number as a message shows it: a long one by its magnitude."""
    long = isinstance(value, int) and abs(value) >= 10**20
    return f"{float(value):.4g}" if long else str(value)


def largest(dtype: DType) -> float:
    """The largest finite number of a float type."""
    digits, exponent = _FORMATS[dtype.name]
    if dtype.name == "e4m3":
        return 448.0  # its top significand is NaN: PTX ISA, alternate floating-point formats
    return math.ldexp(2.0 - math.ldexp(1.0, 1 - digits), exponent)


def fits(value: Constant, dtype: DType) -> bool:
    """Whether a number, rounded to the nearest of a float type, is still finite."""
    if not math.isfinite(value):
        return dtype.name != "e4m3" or math.isnan(value)  # PTX ISA: e4m3 has no infinity
    digits, exponent = _FORMATS[dtype.name]
    half_step = math.ldexp(1.0, exponent - digits)
    return abs(value) <= largest(dtype) or abs(value) - largest(dtype) < half_step


def fold_relation(op: str, left: Constant, right: Constant) -> bool:
    """Whether the comparison holds."""
    return _RELATIONS[op](left, right)
