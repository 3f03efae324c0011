"""The values of each element type at which arithmetic goes wrong.

Idea: a table of numbers is made once, from the formats alone, and rounded to each type: zeros,
ones, the ends, subnormals, powers of two and their neighbours, ties of every narrowing and what
lies just beside them. Of 8-bit types there are all values; ``whole`` gives all of the
16-bit ones too.

Never: knows what an operation gives.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from tilec.interp.numbers import carrier, decode, rounded, storage
from tilec.ir.types import DTYPES, DType

Data = npt.NDArray[np.generic]
FLOATS = ("f64", "f32", "f16", "bf16")
STORED = ("tf32", "e4m3", "e5m2")
INTEGERS = ("s64", "s32", "s16", "s8", "u64", "u32", "u16", "u8")
ALL = (*FLOATS, *STORED, *INTEGERS, "bool")

_DIGITS = {
    "f32": (24, -126, 127),
    "tf32": (11, -126, 127),
    "bf16": (8, -126, 127),
    "f16": (11, -14, 15),
    "e5m2": (3, -14, 15),
    "e4m3": (4, -6, 8),
}
"""Digits, least and greatest exponent of each type that something is narrowed to."""


def _float_marks() -> list[float]:
    """Numbers at the corners of every float type, with ties and their neighbours."""
    found = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.1, 1 / 3, 1e300, -1e300, 5e-324, 2.0**-1022]
    for digits, least, most in _DIGITS.values():
        for exponent in (least, least - digits + 1, least - digits, -1, 0, 1, 5, most, most + 1):
            for units in (0.0, 1.0, 2.0, 3.0, 2.0 ** (digits - 1) - 1):
                step = 2.0 ** (max(exponent, least) - digits + 1)
                tie = np.ldexp(1.0, exponent) + (units + 0.5) * step
                found += [tie - step / 2, tie, tie * (1 + 2.0**-40), tie * (1 - 2.0**-40)]
                found += [tie * (1 + 2.0**-20), tie * (1 - 2.0**-20)]
    for bits in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64):
        end = 2.0**bits
        found += [end, end - 1, end + 1, end - 0.5, end - 1.5, end * (1 - 2.0**-24)]
    found += [0.5, 1.5, 2.5, 0.99, 448.0, 464.0, 465.0, 480.0, 57344.0, 61440.0, 61439.0, 65520.0]
    return [*found, *(-v for v in found)]


def _integer_marks() -> list[int]:
    """Powers of two, ties of every precision, and their neighbours, of both signs."""
    found = [0, 1, 2, 3, 7, 100, 448, 449, 464, 465, 57344, 61440, 61441, 123456789]
    for bits in range(1, 65):
        found += [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]
    for digits, _, _ in _DIGITS.values():
        for shift in (1, 2, 5, 11, 30):
            for units in ((1 << digits) + 1, (1 << digits) + 3, (2 << digits) - 1):
                tie = units << (shift - 1)
                found += [tie - 1, tie, tie + 1]
    return [*found, *(-v for v in found)]


def _distinct(values: Data) -> Data:
    """Each bit pattern once; any one NaN."""
    bits = np.ascontiguousarray(values).view(f"u{values.itemsize}")
    _, first = np.unique(bits, return_index=True)
    kept = values[np.sort(first)]
    if kept.dtype.kind != "f":
        return kept
    nans = np.isnan(kept)
    return np.concatenate([kept[~nans], kept[nans][:1]])


def every(dtype: DType) -> Data:
    """All values of a type of at most 16 bits."""
    codes = np.arange(1 << dtype.bits).astype(f"u{dtype.bytes}")
    return _distinct(decode(dtype, codes.view(storage(dtype))))


@cache
def values(name: str, whole: bool = False) -> Data:
    """The values of a type that are cast, in its carrier."""
    dtype = DTYPES[name]
    if name == "bool":
        return np.array([False, True])
    if dtype.bits == 8 or (whole and dtype.bits == 16):
        return every(dtype)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return _distinct(rounded(dtype, np.array(_float_marks(), np.float64)))
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
    inside = [v for v in _integer_marks() if low <= v < low + (1 << dtype.bits)]
    return _distinct(np.array(inside, carrier(dtype)))


_FEW_FLOATS = (
    0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.0, 0.1, np.inf, -np.inf, np.nan, 2.0**-24, 1 + 2.0**-7,
    1 + 2.0**-10, 1 + 2.0**-23, 1 - 2.0**-24, -(2.0**-14), 2.0**-126, -(2.0**-133), 2.0**-149,
    2.0**-1022, 5e-324, 65504.0, -65520.0, float.fromhex("0x1.fep127"), 3.4e38, 1.7e308, 2049.0,
    -1e-20, 16777217.0,
)  # fmt: skip
_FEW_INTEGERS = (
    0, 1, -1, 2, -2, 3, 7, -7, 8, -8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, -100, 127, -128,
    255, 32767, -32768, 65535, (1 << 31) - 1, -(1 << 31), (1 << 32) - 1, (1 << 63) - 1, -(1 << 63),
    (1 << 64) - 1, 123456789,
)  # fmt: skip


@cache
def few(name: str) -> Data:
    """The values of which all pairs meet."""
    dtype = DTYPES[name]
    if name == "bool":
        return np.array([False, True])
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return _distinct(rounded(dtype, np.array(_FEW_FLOATS, np.float64)))
    mask = (1 << dtype.bits) - 1
    wrapped = np.array([v & mask for v in _FEW_INTEGERS], np.uint64)
    return _distinct(wrapped.astype(carrier(dtype)))


def pairs(name: str) -> tuple[Data, Data]:
    """All pairs of the few."""
    some = few(name)
    return np.repeat(some, len(some)), np.tile(some, len(some))
