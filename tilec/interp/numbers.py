"""Element types as NumPy holds them: carriers, exact rounding, bits in memory, poison.

A value of a narrow float type (bf16, f16, tf32, e4m3, e5m2) is carried as the float32 that equals
it; every result is rounded back to the type once, to nearest even, as the language says. Single
``+ - * /`` and square roots through float32 stay correctly rounded, because float32 has more than
twice the bits of these types plus two. In ``wide`` arithmetic all floats are float64 and nothing is
rounded: it serves as a reference, not as the language's meaning.

This module decides nothing about programs and shares no code with the compiler's own folding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.ir.types import DType

Data = npt.NDArray[Any]


@dataclass(frozen=True)
class Format:
    """A binary float format: bits of precision, least normal exponent, greatest finite value."""

    precision: int
    least_exponent: int
    greatest: float
    saturates: bool = False
    tie_up: float = 0.0
    """Half a step past the greatest value: a tie that goes to the even side, whichever it is."""


FORMATS: dict[str, Format] = {
    "f16": Format(11, -14, 65504.0),
    "bf16": Format(8, -126, float.fromhex("0x1.fep127")),
    "tf32": Format(11, -126, float.fromhex("0x1.ffcp127")),
    "e4m3": Format(4, -6, 448.0, saturates=True, tie_up=464.0),
    "e5m2": Format(3, -14, 57344.0, saturates=True, tie_up=61440.0),
}
"""The narrow float types; f32 and f64 are NumPy's own."""

_NATIVE = {
    "f64": np.float64, "f32": np.float32, "bool": np.bool_,
    "s64": np.int64, "s32": np.int32, "s16": np.int16, "s8": np.int8,
    "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8,
    "s4": np.int8, "u4": np.uint8,
}  # fmt: skip
_STORAGE = {"f16": np.float16, "tf32": np.float32, "bf16": np.uint16, "e4m3": np.uint8,
            "e5m2": np.uint8, "s4": np.uint8, "u4": np.uint8}  # fmt: skip
_POISON = 0x6DB6DB6D6DB6DB6D  # odd in every width, so that no power of two hides it


def storage(dtype: DType) -> np.dtype[Any]:
    """How memory holds the type: bf16 and fp8 as their bits in an unsigned integer.

    Of four-bit elements that integer has two, so an array's last axis is half as long.
    """
    return np.dtype(_STORAGE.get(dtype.name) or _NATIVE[dtype.name])


def carrier(dtype: DType, wide: bool = False) -> np.dtype[Any]:
    """The NumPy type that carries values of ``dtype`` between ops."""
    if dtype.is_float and wide:
        return np.dtype(np.float64)
    return np.dtype(_NATIVE.get(dtype.name, np.float32))


def poison(dtype: DType, wide: bool = False) -> Data:
    """What invalid elements hold: NaN, or a large odd number, so that a use of them shows."""
    held = carrier(dtype, wide)
    if dtype.is_float:
        return np.full((), np.nan, held)
    if dtype.kind == "bool":
        return np.full((), True)
    mask = (1 << (dtype.bits - (dtype.kind == "signed"))) - 1
    return np.full((), _POISON & mask, held)


# --- rounding ------------------------------------------------------------------------------------


def rounded(dtype: DType, x: Data, wide: bool = False) -> Data:
    """The float values ``x`` rounded once to ``dtype``, to nearest even, in its carrier."""
    if wide:
        return x.astype(np.float64, copy=False)
    if dtype.name in _NATIVE:
        return x.astype(carrier(dtype), copy=False)
    if dtype.name == "bf16" and x.dtype == np.float32:
        return _bf16_from_f32(x)
    with np.errstate(over="ignore"):  # beyond the greatest value lies infinity
        if dtype.name == "f16":
            return x.astype(np.float16).astype(np.float32)
        return _round_to(x.astype(np.float64), FORMATS[dtype.name]).astype(np.float32)


def _bf16_from_f32(x: Data) -> Data:
    bits = np.asarray(x).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    raised = (bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)
    made: Data = np.where(np.isnan(x), x, raised.view(np.float32))
    return made


def _round_to(x: Data, form: Format) -> Data:
    """Scale the last kept bit to one, round to an even integer, scale back: exact in float64."""
    _, exponent = np.frexp(x)
    last = np.maximum(exponent - form.precision, form.least_exponent - form.precision + 1)
    nearest = np.ldexp(np.rint(np.ldexp(x, -last)), last)
    beyond = np.abs(nearest) > form.greatest
    limit = form.greatest if form.saturates else np.inf
    return np.where(beyond, np.copysign(limit, x), nearest)


def unsaturated(dtype: DType, x: Data, made: Data) -> Data:
    """``x`` rounded as ``made``, but what has overflowed is infinite, or NaN where that is none."""
    form = FORMATS.get(dtype.name)
    if form is None or not form.saturates:
        return made
    size = np.abs(x.astype(np.float64))
    if dtype.name == "e4m3":  # 448 is even, and all patterns above it are NaN
        return np.where(size > form.tie_up, np.float32(np.nan), made)
    return np.where(size >= form.tie_up, np.copysign(np.inf, made), made).astype(made.dtype)


def rounded_to_odd(total: Data, error: Data) -> Data:
    """``total`` moved to its odd neighbour on the side of ``error`` where it is inexact.

    A float64 sum rounded to odd can be rounded again to a narrower type as if once (the standard
    argument: the odd last bit keeps it off every tie of the narrower type).
    """
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    toward = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & even & np.isfinite(total), np.nextafter(total, toward), total)


def from_integers(dtype: DType, x: Data, wide: bool = False) -> Data:
    """Integers as floats of ``dtype``, rounded once."""
    if wide or dtype.name in ("f64", "f32"):
        return x.astype(carrier(dtype, wide))
    near = x.astype(np.float64)
    # Integers past 2^53 lose bits in float64: keep them in the last bit, then round.
    if x.dtype.itemsize == 8:
        exact = [int(a) - int(b) for a, b in zip(x.ravel(), near.ravel(), strict=True)]
        near = rounded_to_odd(near, np.array(exact, np.float64).reshape(x.shape))
    return rounded(dtype, near)


def to_integers(dtype: DType, x: Data) -> Data:
    """Floats truncated and saturated to an integer type; NaN becomes 0."""
    limits = np.iinfo(carrier(dtype))
    whole = np.trunc(x.astype(np.float64))
    inside = np.where(np.isnan(whole), 0.0, whole)
    low, high = inside <= float(limits.min), inside >= float(limits.max)
    safe = np.where(low | high, 0.0, inside).astype(carrier(dtype))
    return np.where(low, limits.min, np.where(high, limits.max, safe)).astype(carrier(dtype))


# --- memory --------------------------------------------------------------------------------------


@cache
def _fp8_values(name: str) -> Data:
    """The value of each of the 256 bit patterns."""
    exponent_bits = 4 if name == "e4m3" else 5
    mantissa_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    codes = np.arange(256)
    exponent = (codes & 0x7F) >> mantissa_bits
    mantissa = (codes & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    scale = np.maximum(exponent, 1) - bias
    values = np.ldexp(np.where(exponent == 0, mantissa, 1 + mantissa), scale)
    if name == "e4m3":
        values[(codes & 0x7F) == 0x7F] = np.nan
    else:
        top = exponent == (1 << exponent_bits) - 1
        values[top] = np.where(mantissa[top] == 0, np.inf, np.nan)
    made: Data = np.where(codes < 128, values, -values).astype(np.float32)
    return made


def decode(dtype: DType, stored: Data, wide: bool = False) -> Data:
    """Elements of an array as the carrier holds them, those of four bits out of their bytes.

    An array of a wider float may stand for one of a narrower type: its values are rounded.
    """
    if dtype.is_nibble:
        return _unpacked(dtype, stored)
    if not dtype.is_float:
        return stored.astype(carrier(dtype), copy=False)
    if dtype.name == "bf16" and stored.dtype == np.uint16:
        values = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    elif dtype.name in ("e4m3", "e5m2") and stored.dtype == np.uint8:
        # Exact as it is; rounding would saturate an infinity that memory may well hold.
        return np.asarray(_fp8_values(dtype.name)[stored]).astype(carrier(dtype, wide))
    elif stored.dtype.kind == "V" or stored.dtype.kind == "f":
        values = stored.astype(np.float64 if stored.dtype == np.float64 else np.float32)
    else:
        raise TypeError(f"an array of {stored.dtype} does not hold {dtype}")
    return rounded(dtype, values, wide)


def shape_of(dtype: DType, stored: Data) -> tuple[int, ...]:
    """The shape in elements of an array as memory holds it."""
    if not dtype.is_nibble or not stored.ndim:
        return stored.shape
    return (*stored.shape[:-1], 2 * stored.shape[-1])


def _unpacked(dtype: DType, stored: Data) -> Data:
    """Two elements of each byte, the one in its low half first, along the last axis."""
    codes = stored.astype(np.uint8)
    halves = np.stack([codes & 15, codes >> 4], axis=-1).reshape(shape_of(dtype, codes))
    if dtype.kind == "unsigned":
        return halves
    made: Data = (halves.astype(np.int8) ^ 8) - 8
    return made.astype(np.int8)


def _packed(values: Data, into: np.dtype[Any]) -> Data:
    """The other way; of integers that four bits do not hold, the low four."""
    codes = values.astype(np.int64).astype(np.uint8) & 15
    made: Data = (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)
    return made.view(into)


def encode(dtype: DType, values: Data, into: np.dtype[Any]) -> Data:
    """Carried values as elements of an array with NumPy type ``into``; inverse of ``decode``.

    Values in a float32 carrier are of the type already; others are rounded to it.
    """
    if dtype.is_nibble:
        return _packed(values, into)
    if not dtype.is_float or into.kind not in "u":
        return values.astype(into)
    exact = values if values.dtype == np.float32 else rounded(dtype, values)
    if dtype.name == "bf16":
        upper = (exact.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        # The mantissa of a NaN may lie in the lower half alone: it stays one.
        return np.where(np.isnan(exact), upper | np.uint16(0x40), upper)
    table = _fp8_values(dtype.name)
    finite = 0x7F if dtype.name == "e4m3" else 0x7C
    codes = np.searchsorted(table[:finite], np.abs(exact)).astype(np.uint8)
    codes = np.where(np.isnan(exact), np.uint8(0x7F), codes)
    codes = np.where(np.isinf(exact), np.uint8(0x7C), codes)
    return np.where(np.signbit(exact), codes | np.uint8(0x80), codes).astype(np.uint8)
