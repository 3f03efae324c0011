"""The rest of level ``tile``: scans, and combining along an axis by a function."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.core import Op, Region, Value
from tilec.ir.declare import attribute, operand, operands, region, result, results
from tilec.ir.levels import math
from tilec.ir.levels.flow import yielded
from tilec.ir.types import Scalar, Tile, Type


class Scan(Op, name="along.scan"):
    """Combine each element with all before it along ``axis``; ``kind`` as in ``math.reduce``.

    With ``reverse`` with all after it: the scan of the axis read from its end.
    """

    x: Value[Tile] = operand()
    axis: int = attribute()
    kind: str = attribute()
    reverse: bool = attribute(default=False)
    out: Value[Tile] = result()

    def infer(self) -> Sequence[Type]:
        """The tile's own type."""
        return [self.x.type]

    def check(self) -> Iterator[str]:
        """The kind is known, the axis exists."""
        if self.kind not in math.REDUCTIONS:
            yield f"scan {self.kind} is none of {', '.join(math.REDUCTIONS)}"
        if not 0 <= self.axis < len(self.x.type.shape):
            yield f"{self.x.type} has no axis {self.axis}"


class Combine(Op, name="along.combine"):
    """Combine tuples of elements along ``axis`` by the region, an associative function of scalars.

    The region takes the elements of two tuples, the earlier one first, and yields those of one. A
    ``scan`` gives each element combined with all before it (with ``reverse`` all after it, the scan
    of the axis read from its end), otherwise the axis disappears. ``identity`` is a tuple that
    changes nothing.
    """

    xs: tuple[Value[Tile], ...] = operands()
    axis: int = attribute()
    identity: tuple[Any, ...] = attribute()
    body: Region = region()
    scan: bool = attribute(default=False)
    reverse: bool = attribute(default=False)
    out: tuple[Value[Any], ...] = results()

    def infer(self) -> Sequence[Type]:
        """The tiles, without the axis unless it is a scan."""
        if self.scan:
            return [v.type for v in self.xs]
        return [_without_axis(v.type, self.axis) for v in self.xs]

    def check(self) -> Iterator[str]:
        """Tiles of one shape, an identity for each, and a region on twice as many scalars."""
        if len({v.type.shape for v in self.xs}) != 1:
            yield "the tiles have one shape"
            return
        if not 0 <= self.axis < len(self.xs[0].type.shape):
            yield f"{self.xs[0].type} has no axis {self.axis}"
        if len(self.identity) != len(self.xs):
            yield f"{len(self.identity)} identities for {len(self.xs)} tiles"
        types: list[Type] = [Scalar(v.type.dtype) for v in self.xs]
        if [a.type for a in self.body.args] != [*types, *types]:
            yield "the region takes the elements of two tuples"
        if [v.type for v in yielded(self.body)] != types:
            yield "the region yields the elements of one tuple"


def _without_axis(type: Type, axis: int) -> Type:
    assert isinstance(type, Tile)
    shape = tuple(s for a, s in enumerate(type.shape) if a != axis)
    return Tile(type.dtype, shape) if shape else Scalar(type.dtype)
