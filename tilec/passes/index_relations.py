"""Conditions on indices as formulas: affine relations, joined by and and or.

A relation is ``sum >= 0``, where the sum has integer coefficients and its terms are indices of
loops, positions along an axis, and numbers that are the same for a whole tile. ``not`` moves
inwards, ``==`` is two relations, ``!=`` either of two. Sums are taken as whole numbers: index
arithmetic is expected to stay in its type, as the subscripts that it stands for do.

Nothing here asks what a relation is good for, and nothing is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.levels import math, tile
from tilec.ir.types import BOOL, DType, Scalar
from tilec.passes.constants import constant_value

LEAST_BITS = 32
"""Integers from this width on hold every index."""


@dataclass(frozen=True)
class Sum:
    """Terms times coefficients, and a constant."""

    terms: dict[Value[Any], int] = field(default_factory=dict)
    constant: int = 0

    def plus(self, other: Sum, factor: int = 1) -> Sum:
        """This sum and ``factor`` times another one."""
        terms = dict(self.terms)
        for value, coefficient in other.terms.items():
            terms[value] = terms.get(value, 0) + factor * coefficient
        kept = {value: n for value, n in terms.items() if n}
        return Sum(kept, self.constant + factor * other.constant)

    def without(self, value: Value[Any]) -> Sum:
        """The sum less one of its terms."""
        return Sum({v: n for v, n in self.terms.items() if v is not value}, self.constant)


@dataclass(frozen=True)
class AtLeastZero:
    """``sum >= 0`` for an element."""

    sum: Sum


@dataclass(frozen=True)
class Flag:
    """A condition that is the same for the whole tile, or its opposite."""

    value: Value[Any]
    holds: bool


@dataclass(frozen=True)
class Both:
    """Two formulas that hold together."""

    first: Formula
    second: Formula


@dataclass(frozen=True)
class Either:
    """Two formulas of which one holds at least."""

    first: Formula
    second: Formula


Formula = AtLeastZero | Flag | Both | Either


def relation(condition: Value[Any], *, holds: bool = True) -> Formula | None:
    """The formula that a condition is (or its opposite is); None if it asks for more."""
    op = condition.owner
    if isinstance(op, math.Expand | math.Squeeze | math.Broadcast | math.Fill | tile.Transpose):
        return relation(op.x, holds=holds)
    if isinstance(op, math.Not):
        return relation(op.x, holds=not holds)
    if isinstance(op, math.And | math.Or) and math.element_type(op.out.type) == BOOL:
        first, second = relation(op.x, holds=holds), relation(op.y, holds=holds)
        if first is None or second is None:
            return None
        both = isinstance(op, math.And) == holds
        return Both(first, second) if both else Either(first, second)
    if isinstance(op, math.Compare):
        found = _compared(op, holds)
        if found is not None:
            return found
    return Flag(condition, holds) if condition.type == Scalar(BOOL) else None


_OPPOSITE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


def _compared(op: math.Compare, holds: bool) -> Formula | None:
    x, y = affine(op.x), affine(op.y)
    if x is None or y is None:
        return None
    ahead, behind = x.plus(y, -1), y.plus(x, -1)
    one = Sum({}, 1)
    kind = op.relation if holds else _OPPOSITE[op.relation]
    if kind in ("ge", "le"):
        return AtLeastZero(ahead if kind == "ge" else behind)
    if kind in ("gt", "lt"):
        return AtLeastZero((ahead if kind == "gt" else behind).plus(one, -1))
    if kind == "eq":
        return Both(AtLeastZero(ahead), AtLeastZero(behind))
    return Either(AtLeastZero(ahead.plus(one, -1)), AtLeastZero(behind.plus(one, -1)))


def _counts(dtype: DType) -> bool:
    return dtype.is_integer and dtype.kind == "signed" and dtype.bits >= LEAST_BITS


def affine(value: Value[Any]) -> Sum | None:
    """The sum that an integer is; None where it is not affine in indices and uniform numbers."""
    if not isinstance(value.type, Scalar) and not hasattr(value.type, "dtype"):
        return None
    if not _counts(math.element_type(value.type)):
        return None
    op = value.owner
    known = constant_value(value)
    if known is not None:
        return Sum({}, int(known))
    if isinstance(op, tile.IndexValues):
        return Sum({op.index: 1})
    if isinstance(op, tile.Positions):
        return Sum({value: 1})
    found = _computed(op) if isinstance(op, Op) else None
    if found is None and isinstance(value.type, Scalar) and value.type.dtype.bits == LEAST_BITS:
        return Sum({value: 1})
    return found


def _computed(op: Op) -> Sum | None:
    if isinstance(
        op, math.Expand | math.Squeeze | math.Broadcast | math.Fill | tile.Transpose | math.Cast
    ):
        return affine(op.x)
    if isinstance(op, math.Neg):
        x = affine(op.x)
        return Sum().plus(x, -1) if x is not None else None
    if isinstance(op, math.Add | math.Sub):
        x, y = affine(op.x), affine(op.y)
        if x is None or y is None:
            return None
        return x.plus(y, 1 if isinstance(op, math.Add) else -1)
    if isinstance(op, math.Mul):
        x, y = affine(op.x), affine(op.y)
        for one, other in ((x, y), (y, x)):
            if one is not None and other is not None and not one.terms:
                return Sum().plus(other, one.constant)
    return None


def atoms(formula: Formula) -> Iterator[AtLeastZero]:
    """All relations of a formula."""
    if isinstance(formula, AtLeastZero):
        yield formula
    elif isinstance(formula, Both | Either):
        yield from atoms(formula.first)
        yield from atoms(formula.second)


def implied(formula: Formula) -> Iterator[AtLeastZero]:
    """What two relations of a conjunction say of uniform numbers: their sum, where indices cancel.

    j <= i and i - j < w say 0 <= w - 1.
    """
    together = [f for f in _conjuncts(formula) if isinstance(f, AtLeastZero)]
    for number, first in enumerate(together):
        for second in together[number + 1 :]:
            total = first.sum.plus(second.sum)
            if all(isinstance(value.type, Scalar) for value in total.terms):
                yield AtLeastZero(total)


def _conjuncts(formula: Formula) -> Iterator[Formula]:
    if isinstance(formula, Both):
        yield from _conjuncts(formula.first)
        yield from _conjuncts(formula.second)
    else:
        yield formula


def terms(formula: Formula) -> Iterator[Value[Any]]:
    """Every value that a formula speaks of."""
    for atom in atoms(formula):
        yield from atom.sum.terms
    yield from flags(formula)


def flags(formula: Formula) -> Iterator[Value[Any]]:
    """The uniform conditions of a formula."""
    if isinstance(formula, Flag):
        yield formula.value
    elif isinstance(formula, Both | Either):
        yield from flags(formula.first)
        yield from flags(formula.second)
