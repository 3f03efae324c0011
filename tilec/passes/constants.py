"""What an op gives when its operands are constants: the compiler's own arithmetic.

Exact by the language's rules: integers wrap in their width, ``//`` and ``%`` floor, a division by
zero gives 0 and leaves the dividend, comparisons with NaN are false except ``ne``, ``max`` and
``min`` carry NaN and order -0 before +0. Floats are folded by operations that round once, so that
a folded value is the one that any executor gives: what Python's f64 rounds, a type of at most 24
digits rounds again as if once, since 53 is more than twice 24 and two. Transcendental functions
are left to the executor. Shares no code with the interpreter.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Sequence
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.levels import math
from tilec.ir.types import DType, Scalar

Number = int | float | bool


def constant_value(value: Value[Any]) -> Number | None:
    """The scalar constant that a value is, if it is one; a filled tile counts too."""
    op = value.owner
    if isinstance(op, math.Fill):
        op = op.x.owner
    if isinstance(op, math.Constant):
        return op.value
    return None


_FORMATS = {
    "f32": (24, -126, 127),
    "tf32": (11, -126, 127),
    "bf16": (8, -126, 127),
    "f16": (11, -14, 15),
    "e5m2": (3, -14, 15),
    "e4m3": (4, -6, 8),
}
"""Digits of the significand, and the exponents of the least and the greatest normal number."""
_FIELDS = {"f16": 5, "bf16": 8, "e4m3": 4, "e5m2": 5}
"""Bits of the exponent in memory, of the types that are narrower than a register."""


def rounded(value: Number, dtype: DType, saturate: bool = True) -> Number:
    """The nearest value of an element type, ties to even; integers wrap."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.is_integer:
        return wrapped(int(value), dtype)
    if dtype.name == "f64":
        return _as_f64(value)
    if value != value:
        return pymath.nan
    digits, least, most = _FORMATS[dtype.name]
    greatest = 448.0 if dtype.name == "e4m3" else pymath.ldexp(2.0 - 2.0 ** (1 - digits), most)
    sign = pymath.copysign(1.0, value) if isinstance(value, float) else -1.0 if value < 0 else 1.0
    near: float | None = None
    if not (isinstance(value, float) and pymath.isinf(value)):
        over, under = abs(value).as_integer_ratio()
        # The place of the first digit, at most one too high: then one digit more is kept first.
        exponent = over.bit_length() - under.bit_length()
        exponent += over << max(-exponent, 0) >= under << max(exponent, 0)
        last = max(exponent - digits, least - digits + 1)
        units = _nearest_even(over << max(-last, 0), under << max(last, 0))
        if units << max(last, 0) <= int(greatest) << max(-last, 0):
            near = pymath.ldexp(float(units), last)
    if near is None:
        near = pymath.inf
        if dtype.bits == 8:
            near = greatest if saturate else pymath.nan if dtype.name == "e4m3" else near
    return pymath.copysign(near, sign)


def as_written(value: Number, dtype: DType) -> Number:
    """The value of a constant: an infinity that is written is one, also of an 8-bit float."""
    return rounded(value, dtype, saturate=not (value == pymath.inf or value == -pymath.inf))


def _nearest_even(over: int, under: int) -> int:
    whole, rest = divmod(over, under)
    return whole + (2 * rest > under or (2 * rest == under and whole % 2 == 1))


def _as_f64(value: Number) -> float:
    try:
        return float(value)
    except OverflowError:
        return pymath.inf if value > 0 else -pymath.inf


def encoded(value: Number, dtype: DType) -> int:
    """The bits of the nearest value of a type that is narrower than a register."""
    near = as_written(value, dtype)
    if dtype.kind == "bool" or dtype.is_integer:
        return int(near) & ((1 << dtype.bits) - 1)
    exponent_bits = _FIELDS[dtype.name]
    digits, least, _ = _FORMATS[dtype.name]
    sign = (1 << (dtype.bits - 1)) if pymath.copysign(1.0, near) < 0 else 0
    top = ((1 << exponent_bits) - 1) << (digits - 1)
    if near != near:
        return sign | top | ((1 << (digits - 1)) - 1)
    if pymath.isinf(near):
        return sign | top
    # The significand in units of the last place; the hidden digit adds one to the exponent.
    exponent = max(pymath.frexp(near)[1] - 1, least) if near else least
    units = int(pymath.ldexp(abs(near), digits - 1 - exponent))
    return sign | (((exponent - least) << (digits - 1)) + units)


def wrapped(value: int, dtype: DType) -> int:
    """An integer in the range of its type, modulo two to the width."""
    value &= (1 << dtype.bits) - 1
    if dtype.kind == "signed" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def _extreme(larger: bool) -> Callable[[Any, Any], Any]:
    """NaN if either is; of two zeros the negative one is the smaller."""

    def rank(x: Number) -> tuple[Number, float]:
        return x, pymath.copysign(1.0, x) if isinstance(x, float) else 0.0

    def choose(x: Any, y: Any) -> Any:
        if x != x or y != y:
            return x if x != x else y
        return max(x, y, key=rank) if larger else min(x, y, key=rank)

    return choose


def _divide(x: float, y: float) -> float:
    if x != x or y != y:
        return pymath.nan
    sign = pymath.copysign(1.0, x) * pymath.copysign(1.0, y)
    if y == 0 or pymath.isinf(x):
        undefined = pymath.isinf(y) if pymath.isinf(x) else x == 0
        return pymath.nan if undefined else pymath.copysign(pymath.inf, sign)
    return x / y


def _left(x: int, y: int, bits: int) -> int:
    """Counts that are negative or past the width leave nothing."""
    return x << y if 0 <= y < bits else 0


def _right(x: int, y: int, bits: int) -> int:
    return x >> (y if 0 <= y < bits else bits)


_ANY: dict[type[Op], Callable[..., Any]] = {
    math.Add: lambda x, y: x + y,
    math.Sub: lambda x, y: x - y,
    math.Mul: lambda x, y: x * y,
    math.Max: _extreme(larger=True),
    math.Min: _extreme(larger=False),
    math.Neg: lambda x: -x,
    math.Abs: abs,
}
_INTEGER: dict[type[Op], Callable[..., Any]] = {
    math.FloorDiv: lambda x, y: x // y if y else 0,
    math.Mod: lambda x, y: x % y if y else x,
    math.CeilDiv: lambda x, y: -(-x // y) if y > 0 else None,
    math.And: lambda x, y: x & y,
    math.Or: lambda x, y: x | y,
    math.Xor: lambda x, y: x ^ y,
    math.Not: lambda x: ~x,
}
_SHIFTS: dict[type[Op], Callable[[int, int, int], int]] = {math.Shl: _left, math.Shr: _right}
_BOOL: dict[type[Op], Callable[..., Any]] = {
    math.And: lambda x, y: x and y,
    math.Or: lambda x, y: x or y,
    math.Xor: lambda x, y: x != y,
    math.Not: lambda x: not x,
}
_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
}


def evaluate(op: Op, inputs: Sequence[Number]) -> Number | None:
    """The value of an elementwise op or cast on constants; None where it is not folded."""
    if isinstance(op, math.Compare):
        return _RELATIONS[op.relation](*inputs)
    if isinstance(op, math.Where):
        return inputs[1] if inputs[0] else inputs[2]
    if isinstance(op, math.Cast):
        return _cast(inputs[0], math.element_type(op.x.type), op.dtype, op.saturate)
    if not isinstance(op, math.Elementwise):
        return None
    dtype = math.element_type(op.operands[0].type)
    if type(op) in _SHIFTS:
        x, y = inputs
        return rounded(_SHIFTS[type(op)](int(x), int(y), dtype.bits), dtype)
    if dtype.kind == "bool":
        function = _BOOL.get(type(op))
    elif dtype.is_integer:
        function = _INTEGER.get(type(op)) or _ANY.get(type(op))
    else:
        function = _divide if isinstance(op, math.Div) else _ANY.get(type(op))
    result = function(*inputs) if function is not None else None
    return None if result is None else rounded(result, dtype)


def _cast(value: Number, source: DType, target: DType, saturate: bool) -> Number:
    if source.is_float and target.is_integer:
        return _truncated(float(value), target)
    if target.kind == "bool":
        return bool(value)
    return rounded(value, target, saturate)


def _truncated(value: float, target: DType) -> int:
    """Toward zero, saturated at the ends of the type; NaN gives 0."""
    low = -(1 << (target.bits - 1)) if target.kind == "signed" else 0
    high = (1 << (target.bits - (target.kind == "signed"))) - 1
    if value != value:
        return 0
    if pymath.isinf(value):
        return high if value > 0 else low
    return max(low, min(high, int(value)))


def folded(op: Op) -> Number | None:
    """The constant that an op gives, if all its operands are scalar constants."""
    if len(op.results) != 1 or not isinstance(op.results[0].type, Scalar):
        return None
    if not isinstance(op, math.Elementwise | math.Cast):
        return None
    known = []
    for value in op.operands:
        given = constant_value(value)
        if given is None:
            return None
        # A constant's text may have more digits than its type.
        known.append(as_written(given, math.element_type(value.type)))
    return evaluate(op, known)
