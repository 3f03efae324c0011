"""Arrays during interpretation: reads, writes, and who touched what in a parallel loop.

A written array remembers, for each element, which iteration of the current ``tile.parallel`` wrote
it, which read it and which updated it; two different iterations on one element, one of them
writing, are a race, and so is one that updates what another one reads or writes.
Elements are told apart by their subscripts, so an output whose own elements overlap in memory must
be refused by whoever passes it in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.interp.numbers import Data, decode, encode, storage
from tilec.ir.types import Array, DType

Selection = tuple[int | slice | Data, ...]

_NOBODY, _MANY = 0, -1


class InterpretError(Exception):
    """The program, or the call, does something that has no meaning; ``line`` is its source line."""

    def __init__(self, message: str, line: int = 0, help: str = "") -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.message = message
        self.line = line
        self.help = help


class NoMeaning(InterpretError):
    """The program holds what only a GPU gives a meaning to: nothing can be said of it here."""


def unwritten(dtype: DType, shape: tuple[int, ...], wide: bool) -> Data:
    """A fresh array that shows where nothing was written: NaN, -1 or True."""
    held_as = np.dtype(np.float64) if wide and dtype.is_float else storage(dtype)
    if dtype.is_nibble:
        shape = (*shape[:-1], shape[-1] // 2)
    return np.full(shape, np.nan if held_as.kind == "f" else np.array(-1).astype(held_as), held_as)


class Memory:
    """One array in global memory: a parameter, or workspace."""

    def __init__(self, name: str, type: Array, data: Data, wide: bool) -> None:
        self.name, self.type, self.data, self.wide = name, type, data, wide
        self._bytes: Data | None = None
        """Where the elements lie of which two share a byte; ``data`` has them one by one."""
        if type.dtype.is_nibble:
            self._bytes, self.data = data, decode(type.dtype, data)
        self.writable = type.mode != "in"
        self.others = "another iteration of the parallel loop"
        """Who else may touch elements of it at the same time."""
        self._writer: Data | None = None
        self._reader: Data | None = None
        self._updater: Data | None = None

    def begin_parallel(self) -> None:
        """Forget who touched what: a new launch phase starts."""
        if self.writable:
            self._writer = np.zeros(self.data.shape, np.int32)
            self._updater = None
            if self.type.mode == "inout":  # nothing else that is written is read
                self._reader = np.zeros(self.data.shape, np.int32)

    def end_parallel(self) -> None:
        """The phase is over; what follows is ordered behind it."""
        self._writer = self._reader = self._updater = None
        if self._bytes is not None and self.writable:
            self._bytes[...] = encode(self.type.dtype, self.data, self._bytes.dtype)

    def read(self, where: Selection, iteration: int) -> Data:
        """Elements in their carrier."""
        if self._writer is not None and self._reader is not None:
            self._refuse_others(self._writer[where], iteration, "read here, written")
            self._refuse_updates(where, iteration, "read here, updated")
            seen = self._reader[where]
            mine = (seen == _NOBODY) | (seen == iteration)
            self._reader[where] = np.where(mine, iteration, _MANY)
        if self._bytes is not None:
            return np.array(self.data[where])
        return decode(self.type.dtype, self.data[where], self.wide)

    def write(self, where: Selection, values: Data, iteration: int) -> None:
        """Store carried values."""
        if self._writer is not None:
            self._refuse_others(self._writer[where], iteration, "written here and")
            self._refuse_updates(where, iteration, "written here, updated")
            if self._reader is not None:
                self._refuse_others(self._reader[where], iteration, "written here, read")
            self._writer[where] = iteration
        new = np.asarray(values)
        if self._bytes is None:
            new = encode(self.type.dtype, new, self.data.dtype)
        self.data[where] = new

    def update(self, where: Selection, how: Callable[[Data], Data], iteration: int) -> Data:
        """Replace elements by ``how`` of them, as nobody else sees in between; the old ones."""
        if self._writer is not None:
            self._refuse_others(self._writer[where], iteration, "updated here, written")
            if self._reader is not None:
                self._refuse_others(self._reader[where], iteration, "updated here, read")
            if self._updater is None:
                self._updater = np.zeros(self.data.shape, np.int32)
            known = self._updater[where]
            mine = (known == _NOBODY) | (known == iteration)
            self._updater[where] = np.where(mine, iteration, _MANY)
        old = decode(self.type.dtype, self.data[where], self.wide)
        self.data[where] = encode(self.type.dtype, np.asarray(how(old)), self.data.dtype)
        return old

    def _refuse_updates(self, where: Selection, iteration: int, what: str) -> None:
        if self._updater is not None:
            self._refuse_others(self._updater[where], iteration, what)

    def _refuse_others(self, touched: Any, iteration: int, what: str) -> None:
        others = (touched != _NOBODY) & (touched != iteration)
        if np.any(others):
            raise InterpretError(
                f"race: an element of {self.name} is {what} by {self.others}",
                help="let each iteration have elements of its own, or update memory with `+=` or "
                "an `atomic_...` function",
            )
