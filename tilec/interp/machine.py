"""The machine: walks a kernel's ops and gives each its meaning on NumPy data.

A tile is a full-size array; elements past the edge of a ragged axis are invalid. How the machine
treats them depends on who is responsible for padding:

* implicit (what the source says): loads put poison there, and each consumer asks for its own fill
  (0 along the summed axis of a product, the identity for reductions, nothing for stores). Which
  elements are invalid is known from the size symbol of an axis, or where the type has an integer,
  from the index that made the axis.
* explicit (once ``tile.pad`` stands where a consumer needs it): loads put 0 there, as the copies of
  the hardware do, and no consumer fills anything, so a missing ``tile.pad`` shows.

Meanings are registered by op class; the machine has no list of ops. It never changes the IR.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tilec.interp.memory import InterpretError, Memory, NoMeaning
from tilec.interp.numbers import Data
from tilec.ir.core import Op, Region, Value
from tilec.ir.types import Extent

OpT = TypeVar("OpT", bound=Op)
Meaning = Callable[["Machine", Any], Any]
MEANINGS: dict[type[Op], Meaning] = {}
"""What executing an op does: it returns the values of its results, or nothing."""


def meaning(
    *classes: type[Op],
) -> Callable[[Callable[[Machine, OpT], Any]], Callable[[Machine, OpT], Any]]:
    """Register the decorated function for these op classes."""

    def register(function: Callable[[Machine, OpT], Any]) -> Callable[[Machine, OpT], Any]:
        for cls in classes:
            MEANINGS[cls] = function
        return function

    return register


Trace = Counter[tuple[str, int]]
"""How often something happened at a source line: ``rounds`` of loops, ``masks`` (a ``where`` on a
tile), ``fills`` of padding."""


@dataclass(slots=True)
class Held:
    """A scalar or tile: its data, and for each axis the valid count if an index gave one."""

    data: Data
    valid: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Unmeant:
    """What instructions give that nobody has told the meaning of: whoever needs it is refused."""

    line: int

    @property
    def data(self) -> Data:
        """Not known."""
        raise NoMeaning(
            "the interpreter does not run PTX: say what it computes with `meaning=fn`", self.line
        )

    @property
    def valid(self) -> tuple[int | None, ...]:
        """Not known either."""
        return self.data.shape


@dataclass(frozen=True, slots=True)
class Indices:
    """``size`` consecutive indices from ``start``; the first ``valid`` of them exist."""

    start: int
    size: int
    valid: int


@dataclass
class Machine:
    """State of one interpretation."""

    sizes: dict[str, int]
    """Chosen value of each size symbol."""
    wide: bool = False
    explicit: bool = False
    lazy: bool = False
    """Whether ``tile.anchor`` takes its least legal value."""
    values: dict[Value[Any], Any] = field(default_factory=dict)
    valid: dict[str, int] = field(default_factory=dict)
    """Valid count of each size symbol's current index."""
    iteration: int = 0
    trace: Trace | None = None
    silent: bool = False
    """Whether nothing is asserted and nothing printed."""
    body: Region = field(default_factory=Region)
    """All that is run."""

    def count(self, what: str, op: Op) -> None:
        """Note in the trace, if one is kept, that an op did something."""
        if self.trace is not None:
            self.trace[what, line_of(op)] += 1

    def run(self, region: Region) -> list[Any]:
        """Execute a region; the values that its terminator hands out."""
        for op in region.ops:
            if op.is_terminator:
                return [self.values[v] for v in op.operands]
            self.execute(op)
        return []

    def execute(self, op: Op) -> None:
        """Execute one op and bind its results."""
        function = MEANINGS.get(type(op))
        if function is None:
            raise InterpretError(f"{op.name} has no meaning at level tile", line_of(op))
        try:
            made = function(self, op)
        except InterpretError as error:
            if error.line:
                raise
            raise type(error)(error.message, line_of(op), error.help) from None
        results = op.results
        if len(results) == 1 and not isinstance(made, list):
            self.values[results[0]] = made
        elif results:
            self.values.update(zip(results, made, strict=True))

    def size(self, extent: Extent) -> int:
        """A tile extent as a number."""
        if isinstance(extent, int):
            return extent
        if extent not in self.sizes:
            raise InterpretError(f"the size {extent} has no value")
        return self.sizes[extent]

    def shape(self, type: Any) -> tuple[int, ...]:
        """A tile type's shape as numbers."""
        return tuple(self.size(e) for e in type.shape)

    def scalar(self, value: Value[Any]) -> Any:
        """A scalar operand as a Python number."""
        return self.values[value].data[()].item()

    def data(self, value: Value[Any]) -> Data:
        """An operand's data."""
        held: Data = self.values[value].data
        return held

    def valid_count(self, value: Value[Any], axis: int) -> int | None:
        """How many elements along an axis exist, or None when all do."""
        extent = value.type.shape[axis]
        if isinstance(extent, str):
            if extent not in self.valid:
                raise InterpretError(f"what {extent} counts is not current here: the loop is over")
            return self.valid[extent]
        known: int | None = self.values[value].valid[axis]
        return known

    def filled(self, value: Value[Any], axis: int, fill: Any) -> Data:
        """An operand's data with the invalid part of one axis set to ``fill``."""
        data = self.data(value)
        if self.explicit:
            return data
        count = self.valid_count(value, axis)
        if count is None or count >= data.shape[axis]:
            return data
        return with_fill(data, axis, count, fill)

    def enter(self, symbol: Extent, index: Indices) -> Indices:
        """Note the valid count of an index that becomes current."""
        if isinstance(symbol, str):
            self.valid[symbol] = index.valid
        return index

    def leave(self, symbols: Iterable[Extent]) -> None:
        """Forget indices whose loop is over."""
        for symbol in symbols:
            self.valid.pop(str(symbol), None)

    def memory(self, value: Value[Any]) -> Memory:
        """The array behind a parameter."""
        found: Memory = self.values[value]
        return found


def with_fill(data: Data, axis: int, count: int, fill: Any) -> Data:
    """A copy whose elements from ``count`` on along ``axis`` are ``fill``."""
    copy = data.copy()
    copy[(slice(None),) * axis + (slice(count, None),)] = fill
    return copy


def line_of(op: Op) -> int:
    """Source line of an op, 0 when unknown."""
    return op.loc.line if op.loc is not None else 0


def held(data: Any, valid: tuple[int | None, ...] = ()) -> Held:
    """Wrap data, which becomes an array of rank 0 if it is a number."""
    array = np.asarray(data)
    return Held(array, valid if len(valid) == array.ndim else (None,) * array.ndim)
