"""Level ``tile``: what the author says beside what is computed.

A home that a tile is to have, and what instructions are said to mean. None of it changes a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.declare import Effects, attribute, operand, result
from tilec.ir.types import Tile, Type


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
