"""What an op gives when its operands are constants: the compiler's own arithmetic.

Exact by the language's rules: integers wrap in their width, ``//`` and ``%`` floor, comparisons
with NaN are false except ``ne``, ``max`` and ``min`` carry NaN. Floats are folded only in f64 and
f32, and only by operations that round once, so that a folded value is the one that any executor
gives; transcendental functions are left to the executor. Shares no code with the interpreter.
"""

from __future__ import annotations

import math as pymath
import struct
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


def rounded(value: Number, dtype: DType) -> Number | None:
    """The nearest value of an element type; None where this module has no exact rounding."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.is_integer:
        return wrapped(int(value), dtype)
    if dtype.name == "f64":
        return float(value)
    if dtype.name != "f32":
        return None
    number = float(value)
    if not pymath.isfinite(number):
        return number
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return pymath.copysign(pymath.inf, number)


def wrapped(value: int, dtype: DType) -> int:
    """An integer in the range of its type, modulo two to the width."""
    value &= (1 << dtype.bits) - 1
    if dtype.kind == "signed" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def _extreme(pick: Callable[[Number, Number], Number]) -> Callable[[Any, Any], Any]:
    def choose(x: Any, y: Any) -> Any:
        return x if x != x else y if y != y else pick(x, y)

    return choose


def _divide(x: float, y: float) -> float:
    if y == 0 or pymath.isinf(y) or not pymath.isfinite(x):
        if y == 0 and x == x and x != 0 and y == y:
            return pymath.copysign(pymath.inf, x) * pymath.copysign(1.0, y)
        return pymath.nan if y == 0 or (pymath.isinf(x) and pymath.isinf(y)) else x / y
    return x / y


_ANY: dict[type[Op], Callable[..., Any]] = {
    math.Add: lambda x, y: x + y,
    math.Sub: lambda x, y: x - y,
    math.Mul: lambda x, y: x * y,
    math.Max: _extreme(max),
    math.Min: _extreme(min),
    math.Neg: lambda x: -x,
    math.Abs: abs,
}
_INTEGER: dict[type[Op], Callable[..., Any]] = {
    math.FloorDiv: lambda x, y: x // y if y else None,
    math.Mod: lambda x, y: x % y if y else None,
    math.CeilDiv: lambda x, y: -(-x // y) if y > 0 else None,
    math.And: lambda x, y: x & y,
    math.Or: lambda x, y: x | y,
    math.Xor: lambda x, y: x ^ y,
    math.Shl: lambda x, y: x << y if 0 <= y < 64 else None,
    math.Shr: lambda x, y: x >> y if 0 <= y < 64 else None,
    math.Not: lambda x: ~x,
}
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
        return _cast(inputs[0], math.element_type(op.x.type), op.dtype)
    if not isinstance(op, math.Elementwise):
        return None
    dtype = math.element_type(op.operands[0].type)
    if dtype.kind == "bool":
        function = _BOOL.get(type(op))
    elif dtype.is_integer:
        function = _INTEGER.get(type(op)) or _ANY.get(type(op))
    else:
        function = _divide if isinstance(op, math.Div) else _ANY.get(type(op))
    if function is None or rounded(0, dtype) is None:
        return None
    result = function(*inputs)
    return None if result is None else rounded(result, dtype)


def _cast(value: Number, source: DType, target: DType) -> Number | None:
    if source.is_float and target.is_integer:
        return _truncated(float(value), target)
    if target.kind == "bool":
        return bool(value)
    return rounded(value, target)


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
    inputs = [constant_value(v) for v in op.operands]
    known = [v for v in inputs if v is not None]
    return evaluate(op, known) if len(known) == len(inputs) else None
