"""A small kernel, the arrays that it is launched on, and what it must leave in them.

Idea: each array lies in storage of its own with poison before, between and after its elements.
After the launch the whole storage is compared, so a store that goes astray within it shows.

Invariants: floats agree when their bits do or both are NaN, unless the case states an error that
its instructions are allowed.

Never: touches a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.interp.numbers import decode, encode, rounded, storage
from tilec.ir.types import DTYPES
from tilec.runtime.arrays import packed_strides

Data = npt.NDArray[Any]
GUARD_BYTES = 512
_POISON = 0xA5


@dataclass(frozen=True)
class Placed:
    """An array: elements as memory holds them, and where they lie (strides in elements)."""

    dtype: str
    values: Data
    strides: tuple[int, ...] | None = None
    offset: int = 0

    @property
    def steps(self) -> tuple[int, ...]:
        """Strides in elements; row-major unless given."""
        if self.strides is not None:
            return self.strides
        return packed_strides(self.values.shape)

    @property
    def first(self) -> int:
        """Bytes from the start of the storage to element (0, ..., 0)."""
        return GUARD_BYTES + self.offset * self.values.itemsize

    def stored(self, values: Data | None = None) -> Data:
        """The bytes of the storage; poison where there are no elements, or no values yet."""
        span = sum((n - 1) * s for n, s in zip(self.values.shape, self.steps, strict=True)) + 1
        each = self.values.itemsize
        raw = np.full(2 * GUARD_BYTES + (self.offset + span) * each, _POISON, np.uint8)
        if values is not None:
            at = np.ndarray(
                values.shape, values.dtype, raw, self.first, [s * each for s in self.steps]
            )
            at[...] = values
        return raw

    def elements(self, raw: Data) -> Data:
        """The elements in the bytes of a storage."""
        each = self.values.itemsize
        return np.ndarray(
            self.values.shape, self.values.dtype, raw, self.first, [s * each for s in self.steps]
        ).copy()


@dataclass(frozen=True)
class Error:
    """How far a result may be off: a share of the expected value, and a distance."""

    relative: float
    absolute: float = 0.0


@dataclass(frozen=True)
class Case:
    """A kernel's text, its inputs, and its outputs with what they must hold."""

    name: str
    text: str
    inputs: Mapping[str, Placed]
    outputs: Mapping[str, Placed]
    error: Error | None = None
    limit_registers: bool = field(default=True)
    """Whether a spill of registers counts as a failure."""


def values(dtype: str, data: Any) -> Data:
    """Numbers rounded to an element type, as the interpreter carries them."""
    kind = DTYPES[dtype]
    if kind.is_float:
        return rounded(kind, np.asarray(data, np.float64))
    return np.asarray(data).astype(storage(kind))


def held(dtype: str, data: Any) -> Data:
    """Carried numbers as memory holds them."""
    kind = DTYPES[dtype]
    return encode(kind, np.asarray(data), storage(kind))


def placed(dtype: str, data: Any, **where: Any) -> Placed:
    """An array of carried numbers."""
    return Placed(dtype, held(dtype, data), **where)


def fault(want: Placed, raw: Data, error: Error | None) -> str:
    """What is wrong with a storage after the launch; empty if nothing is."""
    expected = want.stored(want.values)
    found = want.elements(raw)
    around = expected.copy()
    np.ndarray(
        found.shape, found.dtype, around, want.first, [s * found.itemsize for s in want.steps]
    )[...] = found
    strays = int(np.count_nonzero(around != raw))
    if strays:
        return f"{strays} bytes outside the array were written"
    wrong = _wrong(want.dtype, found, want.values, error)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    kind = DTYPES[want.dtype]
    got, should = (decode(kind, a[at][None])[0] for a in (found, want.values))
    return f"{int(wrong.sum())} of {wrong.size} elements differ, first {at}: {got} for {should}"


def _wrong(dtype: str, found: Data, expected: Data, error: Error | None) -> Data:
    kind = DTYPES[dtype]
    if not kind.is_float:
        return np.asarray(found != expected)
    x, y = (decode(kind, a).astype(np.float64) for a in (found, expected))
    both_nan = np.isnan(x) & np.isnan(y)
    if error is None:
        unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[found.itemsize]
        return np.asarray((found.view(unsigned) != expected.view(unsigned)) & ~both_nan)
    with np.errstate(invalid="ignore"):
        near = (np.abs(x - y) <= error.relative * np.abs(y) + error.absolute) | (x == y)
    return np.asarray(~(near | both_nan))
