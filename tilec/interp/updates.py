"""Updates of arrays in place: one element after the other, as if nobody else ran.

The order in which elements are updated is free for a program; here it is the order of the places.
Several updates of one place by one op are ordinary, and each sees what those before it left.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.interp import elementwise
from tilec.interp.machine import Machine
from tilec.interp.memory import Memory, Selection
from tilec.interp.numbers import Data
from tilec.ir.levels import math
from tilec.ir.types import DType

_OPS: dict[str, type[math.Binary]] = {
    "add": math.Add,
    "max": math.Max,
    "min": math.Min,
    "and": math.And,
    "or": math.Or,
    "xor": math.Xor,
}


def combined(kind: str, dtype: DType, old: Data, value: Data, wide: bool) -> Data:
    """What an update leaves where ``old`` was."""
    if kind == "exchange":
        return value
    function = elementwise.BINARY[_OPS[kind]]
    with np.errstate(all="ignore"):
        return elementwise.settle(dtype, function(old, value), wide)


def update_in_order(
    machine: Machine, memory: Memory, where: Selection, kind: str, value: Data
) -> None:
    """Update a selection that names every element once."""

    def how(old: Data) -> Data:
        return combined(kind, memory.type.dtype, old, value, machine.wide)

    memory.update(where, how, machine.iteration)


def update_each(
    machine: Machine,
    memory: Memory,
    places: tuple[Data, ...],
    value: Data,
    kind: str,
    expected: Data | None = None,
) -> Data:
    """Update place after place; what each found there."""
    dtype = memory.type.dtype
    found: Data = np.empty(value.shape, value.dtype)
    for number in range(len(value)):
        where: Any = tuple(axis[number] for axis in places)
        new = value[number]

        def how(old: Data, new: Data = new, number: int = number) -> Data:
            if expected is not None:
                return new if same_bits(old, expected[number]) else old
            return combined(kind, dtype, old, new, machine.wide)

        found[number] = memory.update(where, how, machine.iteration)
    return found


def same_bits(x: Data, y: Data) -> bool:
    """Whether two numbers are one bit pattern; every NaN counts as one here."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype.kind != "f":
        return bool(x == y)
    both_nan = bool(np.isnan(x) and np.isnan(y))
    return both_nan or bool(x == y and np.signbit(x) == np.signbit(y))
