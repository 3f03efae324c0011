"""Level ``tile``: what the author says beside what is computed.

A home that a tile is to have, what instructions are said to mean, what must hold, and what is to be
shown. None of it changes a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.declare import Effects, attribute, operand, operands, result
from tilec.ir.levels import math
from tilec.ir.types import BOOL, Index, Tile, Type


class Home(Op, name="author.home", effects=Effects.ORDERS):
    """The author wants this tile in ``shared`` memory, or in ``register`` memory."""

    x: Value[Tile] = operand()
    home: str = attribute()

    def check(self) -> Iterator[str]:
        """The home is known."""
        if self.home not in ("shared", "register"):
            yield f"a home is shared or register, not {self.home}"


class Meaning(Op, name="author.meaning"):
    """What the author says that ``x`` is: the interpreter takes that, compiled code ``x``."""

    x: Value[Any] = operand()
    says: Value[Any] = operand()
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """The same type."""
        return [self.x.type]

    def check(self) -> Iterator[str]:
        """Both have one type."""
        if self.x.type != self.says.type:
            yield f"{self.x.type} is said to be {self.says.type}"


class Assert(Op, name="author.assert", effects=Effects.ORDERS):
    """The author says that the condition holds, for every element that exists.

    ``axes`` says along which axes of the condition the indices run; ``text`` is the message, in
    code points.
    """

    condition: Value[Any] = operand()
    indices: tuple[Value[Index], ...] = operands()
    axes: tuple[int, ...] = attribute(default=())
    text: tuple[int, ...] = attribute(default=())

    def check(self) -> Iterator[str]:
        """The condition is bool, with one index for each axis named."""
        yield from _axes_faults(self)
        if math.element_type(self.condition.type) != BOOL:
            yield f"the condition has type {self.condition.type}, bool is needed"


class Print(Op, name="author.print", effects=Effects.ORDERS):
    """Show the elements that exist of a scalar or tile, and the index of each axis that has one.

    ``axes`` says along which axes of the value the indices run; ``text`` goes before, in code
    points.
    """

    x: Value[Any] = operand()
    indices: tuple[Value[Index], ...] = operands()
    axes: tuple[int, ...] = attribute(default=())
    text: tuple[int, ...] = attribute(default=())

    def check(self) -> Iterator[str]:
        """One index for each axis named."""
        yield from _axes_faults(self)


def _axes_faults(op: Assert | Print) -> Iterator[str]:
    """One index for each axis named, and the value has these axes."""
    value = op.condition if isinstance(op, Assert) else op.x
    rank = len(value.type.shape) if isinstance(value.type, Tile) else 0
    if len(op.axes) != len(op.indices):
        yield f"{len(op.indices)} indices for {len(op.axes)} axes"
    if any(not 0 <= axis < rank for axis in op.axes):
        yield f"axes {op.axes} of a value of type {value.type}"
