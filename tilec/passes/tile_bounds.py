"""For which tiles of a loop a formula holds somewhere, and for which everywhere.

With c the coefficient of the loop's index, B its tile size, and R the rest of a relation c j + R
>= 0, which lies between R0 and R1 over the tiles of the other indices:

    everywhere in tile t:  c > 0:  t >= ceil(-R0 / (c B))     c < 0:  t < (R0 / -c + 1) / B
    somewhere in tile t:   c > 0:  t >= ceil(-R1 / c) / B     c < 0:  t < ceil((R1 / -c + 1) / B)

(divisions floor unless they say ceil; the last tile ends where the axis does). Conjunctions
intersect and alternatives unite. Where a union is no list of spans in a known order, what holds
somewhere takes the span around it and what holds everywhere takes one part of it: the first answer
is never too small, the second never too large. Numbers that are known are computed here, others by
scalar ops in front of the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.ir.core import Builder, Value
from tilec.ir.levels import math, parts, tile
from tilec.ir.types import S32, Index, Scalar
from tilec.passes.index_relations import AtLeastZero, Both, Flag, Formula, Sum, implied

Number = int | Value[Any]


def same(x: Number, y: Number) -> bool:
    """Whether two numbers are known to be equal."""
    return x == y if isinstance(x, int) and isinstance(y, int) else x is y


class Numbers:
    """Scalar arithmetic in front of a loop, done at once where both operands are known."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def value(self, number: Number) -> Value[Scalar]:
        """A number as an s32."""
        if not isinstance(number, int):
            return number
        return self.builder.add(math.Constant(number, type=Scalar(S32))).out

    def _add(self, op: Any) -> Number:
        made: Value[Any] = self.builder.add(op).out
        return made

    def plus(self, x: Number, y: Number, factor: int = 1) -> Number:
        """x + factor y."""
        if isinstance(y, int):
            y, factor = factor * y, 1
            if y == 0:
                return x
            if isinstance(x, int):
                return x + y
        if abs(factor) != 1:
            y = self._add(math.Mul(self.value(y), self.value(abs(factor))))
        if factor > 0:
            return y if x == 0 else self._add(math.Add(self.value(x), self.value(y)))
        return self._add(math.Sub(self.value(x), self.value(y)))

    def product(self, x: Number, y: Number) -> Number:
        """x y."""
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        return self._add(math.Mul(self.value(x), self.value(y)))

    def divided(self, x: Number, by: int) -> Number:
        """x / by, to the lower integer."""
        if by == 1 or isinstance(x, int):
            return x // by if isinstance(x, int) else x
        return self._add(math.FloorDiv(x, self.value(by)))

    def divided_up(self, x: Number, by: int) -> Number:
        """x / by, to the upper integer."""
        return self.divided(self.plus(x, by - 1), by)

    def least(self, x: Number, y: Number) -> Number:
        """The smaller of two."""
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        if same(x, y):
            return x
        return self._add(math.Min(self.value(x), self.value(y)))

    def most(self, x: Number, y: Number) -> Number:
        """The larger of two."""
        if isinstance(x, int) and isinstance(y, int):
            return max(x, y)
        if same(x, y):
            return x
        return self._add(math.Max(self.value(x), self.value(y)))

    def if_reached(self, x: Number, bound: Number, then: Number, otherwise: Number) -> Number:
        """``then`` where x >= bound, else ``otherwise``."""
        if isinstance(x, int) and isinstance(bound, int):
            return then if x >= bound else otherwise
        reached = self.builder.add(
            math.Compare(self.value(x), self.value(bound), relation="ge")
        ).out
        return self.chosen(reached, then, otherwise)

    def chosen(self, condition: Value[Any], then: Number, otherwise: Number) -> Number:
        """One of two, by a condition."""
        return self._add(math.Where(condition, self.value(then), self.value(otherwise)))


@dataclass(frozen=True)
class Span:
    """The tiles ``lower`` to ``upper - 1``; none if ``upper`` is not above ``lower``."""

    lower: Number
    upper: Number


class Tiles:
    """The tiles of one loop; ``index`` is what the body calls an index into the axis."""

    def __init__(
        self, numbers: Numbers, extent: Number, size: int, index: dict[Value[Any], Sum]
    ) -> None:
        self.numbers = numbers
        self.extent = extent
        self.size = size
        self.index = index
        """The loop's own index under each of its names, less what is added to it."""
        self.count = numbers.divided_up(extent, size)

    def whole(self) -> list[Span]:
        """All tiles."""
        return [Span(0, self.count)]

    def full(self, limit: Number) -> list[Span]:
        """The tiles that have no edge inside, if the axis ends at ``limit``."""
        return [Span(0, self.numbers.divided(limit, self.size))]

    def somewhere(self, formula: Formula) -> list[Span]:
        """Spans in order that hold every tile in which the formula holds for an element."""
        found = self._spans(formula, everywhere=False)
        for relation in implied(formula):
            found = self.common(found, [self._relation(relation.sum, False)])
        return found

    def everywhere(self, formula: Formula) -> list[Span]:
        """Spans in order of tiles in which the formula holds for all elements."""
        return self._spans(formula, everywhere=True)

    def _spans(self, formula: Formula, *, everywhere: bool) -> list[Span]:
        if isinstance(formula, AtLeastZero):
            return [self._relation(formula.sum, everywhere)]
        if isinstance(formula, Flag):
            yes, no = (self.count, 0) if formula.holds else (0, self.count)
            return [Span(0, self.numbers.chosen(formula.value, yes, no))]
        first = self._spans(formula.first, everywhere=everywhere)
        second = self._spans(formula.second, everywhere=everywhere)
        if isinstance(formula, Both):
            return self.common(first, second)
        return self._united(first, second, everywhere)

    # -- one relation --------------------------------------------------------------------------

    def _relation(self, total: Sum, everywhere: bool) -> Span:
        n, size = self.numbers, self.size
        coefficient = 0
        for value, shift in self.index.items():
            if value in total.terms:
                factor = total.terms[value]
                total = total.without(value).plus(shift, factor)
                coefficient += factor
        if coefficient == 0:
            rest = self.bound(total, upper=not everywhere)
            return Span(0, n.if_reached(rest, 0, self.count, 0))
        if coefficient > 0:
            negative = Sum().plus(total, -1)
            if everywhere:
                step = coefficient * size
                return Span(
                    n.divided(self.bound(negative, upper=True, more=step - 1), step), self.count
                )
            first = n.divided(self.bound(negative, upper=False, more=coefficient - 1), coefficient)
            beyond = n.if_reached(first, self.extent, self.count, n.divided(first, size))
            return Span(beyond, self.count)
        step = -coefficient
        if everywhere:
            reach = n.divided(self.bound(total, upper=False, more=step), step)
            return Span(0, n.if_reached(reach, self.extent, self.count, n.divided(reach, size)))
        more = step + step * (size - 1)  # ceil((R / step + 1) / size), for whole numbers
        return Span(0, n.divided(self.bound(total, upper=True, more=more), step * size))

    def bound(self, total: Sum, *, upper: bool, more: int = 0) -> Number:
        """The most or the least that a sum can be over the tiles of its indices, and ``more``."""
        n = self.numbers
        found: Number = 0
        more += total.constant
        for value, factor in sorted(total.terms.items(), key=lambda term: term[1] < 0):
            term, ahead = self._term(value, (factor > 0) == upper)
            found = n.plus(found, term, factor)
            more += factor * ahead
        return n.plus(found, more)

    def _term(self, value: Value[Any], upper: bool) -> tuple[Number, int]:
        """The first or the last of an index's values, as a number and a constant."""
        n, owner = self.numbers, value.owner
        if isinstance(owner, tile.Positions):
            return (int(owner.out.type.shape[0]) if upper else 1), -1
        if not isinstance(value.type, Index):
            return value, 0
        first: Number = 0
        if not isinstance(owner, tile.Whole):
            first = n.builder.add(parts.FirstIndex(value)).out
        if not upper:
            return first, 0
        length: Number = n.builder.add(tile.ValidCount(value)).out
        return n.plus(first, length), -1

    # -- several -------------------------------------------------------------------------------

    def common(self, first: list[Span], second: list[Span]) -> list[Span]:
        """The tiles of both lists."""
        return [
            Span(self._more(a.lower, b.lower), self._less(a.upper, b.upper))
            for a in first
            for b in second
        ]

    def _more(self, x: Number, y: Number) -> Number:
        if same(x, 0) or same(y, 0):  # no tile lies before the first, whatever a bound says
            return y if same(x, 0) else x
        return self.numbers.most(x, y)

    def _less(self, x: Number, y: Number) -> Number:
        if same(x, self.count) or same(y, self.count):
            return y if same(x, self.count) else x
        return self.numbers.least(x, y)

    def _united(self, first: list[Span], second: list[Span], everywhere: bool) -> list[Span]:
        for some, others in ((first, second), (second, first)):
            joined = self._with_end(some, others)
            if joined is not None:
                return joined
        if everywhere:
            return first
        return [self.around([*first, *second])]

    def around(self, spans: list[Span]) -> Span:
        """One span that holds several."""
        lower, upper = spans[0].lower, spans[0].upper
        for span in spans[1:]:
            lower = self.numbers.least(lower, span.lower)
            upper = self.numbers.most(upper, span.upper)
        return Span(lower, upper)

    def _with_end(self, spans: list[Span], others: list[Span]) -> list[Span] | None:
        """A span that begins at the first tile or ends at the last, and others."""
        n = self.numbers
        if len(spans) != 1:
            return None
        (one,) = spans
        starts, ends = same(one.lower, 0), same(one.upper, self.count)
        if starts and len(others) == 1 and same(others[0].lower, 0):
            return [Span(0, n.most(one.upper, others[0].upper))]
        if ends and len(others) == 1 and same(others[0].upper, self.count):
            return [Span(n.least(one.lower, others[0].lower), self.count)]
        if starts and len(others) == 1 and same(others[0].upper, self.count):
            return [Span(0, n.least(one.upper, others[0].lower)), *others]
        if starts:
            rest = [Span(n.most(one.upper, other.lower), other.upper) for other in others]
            return [one, *rest]
        if ends:
            cut = [Span(other.lower, n.least(other.upper, one.lower)) for other in others]
            return [*cut, one]
        return None
