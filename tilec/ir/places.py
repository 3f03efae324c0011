"""Places in shared memory, and whether two of them can overlap.

A place is a buffer or a part of a stage, seen through windows and transposed views. A window's
block number is known as a sum of values and a constant; two windows are apart only if their
numbers provably differ. What cannot be proved apart may overlap: that is the safe answer here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilec.ir.core import Value
from tilec.ir.levels import cta, math

Linear = tuple[frozenset[tuple[Value[Any], int]], int]
"""A sum of values times integers, and a constant."""


@dataclass(frozen=True)
class Rows:
    """A window of ``rows`` rows at ``block`` times that; None stands for an unknown number."""

    rows: int
    block: Linear | None


@dataclass(frozen=True)
class Place:
    """``root`` is a buffer's value, or the number of a stage with its ``part``.

    ``views`` lead from the root inwards; None stands for a transposition.
    """

    root: Value[Any] | int
    part: int = -1
    views: tuple[Rows | None, ...] = ()

    def overlaps(self, other: Place) -> bool:
        """Whether the two may have an element in common."""
        if (self.root, self.part) != (other.root, other.part):
            return False
        for mine, theirs in zip(self.views, other.views, strict=False):
            if mine != theirs:
                return mine is None or theirs is None or not _apart(mine, theirs)
            if mine is not None and mine.block is None:
                return True
        return True

    def outside(self, values: set[Value[Any]]) -> Place:
        """The place as known where ``values`` no longer mean what they did."""

        def known(view: Rows | None) -> Rows | None:
            if view is None or view.block is None:
                return view
            lost = any(value in values for value, _ in view.block[0])
            return replace(view, block=None) if lost else view

        return replace(self, views=tuple(known(v) for v in self.views))


def place_of(value: Value[Any], numbers: dict[Value[Any], int]) -> Place:
    """The place that a shared value names; ``numbers`` gives those of stages and slots."""
    op = value.owner
    if isinstance(op, cta.Part):
        return Place(numbers.get(op.slot, 0), op.index)
    if isinstance(op, cta.Window):
        inner = place_of(op.x, numbers)
        return replace(inner, views=(*inner.views, Rows(op.rows, linear(op.block))))
    if isinstance(op, cta.TransposeView):
        inner = place_of(op.x, numbers)
        return replace(inner, views=(*inner.views, None))
    return Place(value)


def linear(value: Value[Any]) -> Linear:
    """An s32 as a sum; what is not a sum, difference or constant multiple stands for itself."""
    op = value.owner
    if isinstance(op, math.Constant):
        return frozenset(), int(op.value)
    if isinstance(op, math.Add):
        return _sum(linear(op.x), linear(op.y), 1)
    if isinstance(op, math.Sub):
        return _sum(linear(op.x), linear(op.y), -1)
    if isinstance(op, math.Mul):
        x, y = linear(op.x), linear(op.y)
        for one, factor in ((x, y), (y, x)):
            if not factor[0]:
                return _sum((frozenset(), 0), one, factor[1])
    return frozenset({(value, 1)}), 0


def _sum(x: Linear, y: Linear, factor: int) -> Linear:
    terms = dict(x[0])
    for value, times in y[0]:
        terms[value] = terms.get(value, 0) + factor * times
    return frozenset((v, n) for v, n in terms.items() if n), x[1] + factor * y[1]


def _apart(x: Rows, y: Rows) -> bool:
    if x.block is None or y.block is None or x.block[0] != y.block[0]:
        return False
    if x.rows == y.rows:
        return x.block[1] != y.block[1]
    if x.block[0]:
        return False
    low, high = sorted(((x.block[1] * x.rows, x.rows), (y.block[1] * y.rows, y.rows)))
    return low[0] + low[1] <= high[0]
