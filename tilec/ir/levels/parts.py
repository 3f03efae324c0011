"""Loops of level ``tile`` in parts, and the numbers that say where a part begins and ends.

The author writes whole loops; a pass that knows which of their tiles are alike makes these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilec.ir.core import Op, Value
from tilec.ir.declare import attribute, operand, result
from tilec.ir.levels import tile
from tilec.ir.types import S32, Index, Scalar, Type


class ForPart(tile.ForTiles, name="parts.for"):
    """The rounds of ``tile.for`` whose tiles start at ``lower``, the next one, ... below ``upper``.

    ``lower`` is a multiple of the tile size. ``full`` says that no tile of the part has an edge
    inside. Made where a loop's rounds differ in what they have to mask.
    """

    lower: Value[Scalar] = operand()
    upper: Value[Scalar] = operand()
    full: bool = attribute(default=False)

    def check(self) -> Iterator[str]:
        """As ``tile.for``; the bounds are s32."""
        yield from super().check()
        if self.lower.type != Scalar(S32) or self.upper.type != Scalar(S32):
            yield "lower and upper must be s32"


class FirstIndex(Op, name="parts.first"):
    """The first of the global indices of an ``index``."""

    index: Value[Index] = operand()
    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """An s32."""
        return [Scalar(S32)]
