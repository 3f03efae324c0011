"""What each elementwise op computes, as functions of carried NumPy data.

Integers wrap, division and remainder floor, ``max`` and ``min`` carry NaN and order -0 before +0,
comparisons with NaN are false except ``ne``. Each float result is rounded once to its type.
An integer divided by zero gives 0 and leaves itself.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tilec.interp.numbers import (
    Data,
    carrier,
    from_integers,
    rounded,
    rounded_to_odd,
    to_integers,
    unsaturated,
)
from tilec.ir.levels import math
from tilec.ir.types import DType

Function = Callable[..., Any]


def larger(x: Data, y: Data) -> Data:
    """The larger of two, NaN if either is."""
    both_zero = (x == 0) & (y == 0)
    if x.dtype.kind != "f" or not np.any(both_zero):
        return np.maximum(x, y)
    return np.where(both_zero, x + y, np.maximum(x, y))


def _min(x: Data, y: Data) -> Data:
    if x.dtype.kind != "f":
        return np.minimum(x, y)
    return -larger(-x, -y)


def _width(x: Data) -> int:
    return x.dtype.itemsize * 8


def _shift_count(x: Data, y: Data) -> Data:
    """Counts past the width act as the width does: a negative count is a large unsigned one."""
    return np.where((y < 0) | (y >= _width(x)), _width(x) - 1, y).astype(x.dtype)


def _left(x: Data, y: Data) -> Data:
    gone = (y < 0) | (y >= _width(x))
    return np.where(gone, np.zeros((), x.dtype), np.left_shift(x, _shift_count(x, y)))


def _right(x: Data, y: Data) -> Data:
    gone = (y < 0) | (y >= _width(x))
    moved = np.right_shift(x, _shift_count(x, y))
    fill = np.where(x < 0, -1, 0).astype(x.dtype) if x.dtype.kind == "i" else np.zeros((), x.dtype)
    return np.where(gone, fill, moved)


def _remainder(x: Data, y: Data) -> Data:
    return np.where(y == 0, x, np.remainder(x, y))


def _ceil_divide(x: Data, y: Data) -> Data:
    rest: Data = (np.remainder(x, y) != 0).astype(x.dtype)
    return np.floor_divide(x, y) + rest


BINARY: dict[type[math.Binary], Function] = {
    math.Add: np.add,
    math.Sub: np.subtract,
    math.Mul: np.multiply,
    math.Div: np.divide,
    math.FloorDiv: np.floor_divide,
    math.Mod: _remainder,
    math.CeilDiv: _ceil_divide,
    math.Max: larger,
    math.Min: _min,
    math.And: np.bitwise_and,
    math.Or: np.bitwise_or,
    math.Xor: np.bitwise_xor,
    math.Shl: _left,
    math.Shr: _right,
}
"""Binary ops; ``bitwise_*`` of bools are the logical ones."""

UNARY: dict[type[math.Unary], Function] = {
    math.Neg: np.negative,
    math.Abs: np.abs,
    math.Not: np.invert,
    math.Exp2: lambda x: np.exp2(x, dtype=np.float64),
    math.Exp: lambda x: np.exp(x, dtype=np.float64),
    math.Log2: lambda x: np.log2(x, dtype=np.float64),
    math.Log: lambda x: np.log(x, dtype=np.float64),
    math.Sqrt: np.sqrt,
    math.Rsqrt: lambda x: 1 / np.sqrt(x, dtype=np.float64),
    math.Rcp: lambda x: 1 / x,
    math.Tanh: lambda x: np.tanh(x, dtype=np.float64),
}
"""Unary ops; functions in float64, for those of NumPy's float32 differ between machines."""

RELATIONS: dict[str, Function] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
"""Comparisons."""


def settle(dtype: DType, x: Any, wide: bool) -> Data:
    """A raw NumPy result as a value of ``dtype``."""
    data = np.asarray(x)
    return rounded(dtype, data, wide) if dtype.is_float else data.astype(carrier(dtype), copy=False)


def fused(dtype: DType, x: Data, y: Data, z: Data, wide: bool) -> Data:
    """x * y + z with one rounding."""
    if not dtype.is_float:
        return settle(dtype, x * y + z, wide)
    if carrier(dtype, wide) == np.float64:
        shape = np.broadcast_shapes(x.shape, y.shape, z.shape)
        spread = [np.broadcast_to(v, shape).ravel() for v in (x, y, z)]
        each = [_fused_once(float(a), float(b), float(c)) for a, b, c in zip(*spread, strict=True)]
        return np.array(each, np.float64).reshape(shape)
    # The product of two float32 is exact in float64; the sum's error is known (Knuth's two-sum).
    product, addend = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    total = np.asarray(product + addend)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    return rounded(dtype, rounded_to_odd(total, error), wide)


def _fused_once(x: float, y: float, z: float) -> float:
    if not all(map(np.isfinite, (x, y, z))) or x * y == 0:
        return x * y + z
    total = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(total)
    except OverflowError:
        return np.inf if total > 0 else -np.inf


def cast(source: DType, dtype: DType, x: Data, wide: bool, saturate: bool = True) -> Data:
    """Convert between element types."""
    if dtype.kind == "bool":
        return np.asarray(x != 0)
    if dtype.is_float:
        if source.is_float:
            made = rounded(dtype, x, wide)
        else:
            made = from_integers(dtype, x.astype(np.uint8) if source.kind == "bool" else x, wide)
        return made if saturate or wide else unsaturated(dtype, x, made)
    if source.is_float:
        return to_integers(dtype, x)
    return x.astype(carrier(dtype))


# --- reductions ----------------------------------------------------------------------------------


def identity(kind: str, dtype: DType, wide: bool = False) -> Data:
    """The value that changes no result of a reduction: what invalid elements are filled with."""
    held = carrier(dtype, wide)
    if kind in ("add", "or"):
        return np.zeros((), held)
    if kind == "mul":
        return np.ones((), held)
    if kind == "and":
        return np.full((), True) if dtype.kind == "bool" else np.invert(np.zeros((), held))
    if dtype.is_float:
        return np.full((), -np.inf if kind == "max" else np.inf, held)
    if dtype.kind == "bool":
        return np.full((), kind == "min")
    limits = np.iinfo(held)
    return np.full((), limits.min if kind == "max" else limits.max, held)


FREE_ORDER = {"add": np.add, "mul": np.multiply}
"""Kinds of reduction whose result depends on the order, for floats."""


def halved(kind: str, dtype: DType, x: Data, axis: int, wide: bool) -> Data:
    """Element i takes in element i + h where both exist, h = ..., 4, 2, 1; each result rounded."""
    parts = np.moveaxis(x, axis, 0)
    half = 1 << max(len(parts) - 1, 0).bit_length() >> 1
    while half:
        both = settle(dtype, FREE_ORDER[kind](parts[: len(parts) - half], parts[half:]), wide)
        parts, half = np.concatenate([both, parts[len(parts) - half : half]]), half >> 1
    return np.array(parts[0])


_COMBINED: dict[str, Any] = {
    "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip


def _ranked(x: Data) -> Data:
    """Integers in the order of the floats, -0 before +0: NumPy takes either zero for the larger."""
    bits = np.ascontiguousarray(x).view(f"i{x.itemsize}").reshape(x.shape)
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _unranked(ranks: Data) -> Data:
    bits = np.where(ranks < 0, ranks ^ np.iinfo(ranks.dtype).max, ranks)
    return np.ascontiguousarray(bits).view(f"f{bits.itemsize}").reshape(bits.shape)


def reduce(kind: str, dtype: DType, x: Data, axis: int, wide: bool) -> Data:
    """Combine along an axis; sums and products of floats are formed in float64, rounded once."""
    if kind in ("add", "mul"):
        whole = np.float64 if dtype.is_float else carrier(dtype)
        combine = np.sum if kind == "add" else np.prod
        return settle(dtype, combine(x, axis=axis, dtype=whole), wide)
    start = identity(kind, dtype, wide)
    if x.dtype.kind != "f":
        return settle(dtype, _COMBINED[kind].reduce(x, axis=axis, initial=start[()]), wide)
    found = _COMBINED[kind].reduce(_ranked(x), axis=axis, initial=_ranked(start)[()])
    return np.where(np.isnan(x).any(axis), np.nan, _unranked(found)).astype(x.dtype)


def scan(kind: str, dtype: DType, x: Data, axis: int, wide: bool) -> Data:
    """Each element combined with all before it; sums of floats in float64, rounded once each."""
    if kind in ("add", "mul"):
        whole = np.float64 if dtype.is_float else carrier(dtype)
        combine = np.cumsum if kind == "add" else np.cumprod
        return settle(dtype, combine(x, axis=axis, dtype=whole), wide)
    if x.dtype.kind != "f":
        return settle(dtype, _COMBINED[kind].accumulate(x, axis=axis), wide)
    found = _unranked(_COMBINED[kind].accumulate(_ranked(x), axis=axis))
    seen = np.logical_or.accumulate(np.isnan(x), axis=axis)
    return np.where(seen, np.nan, found).astype(x.dtype)
