"""Proofs that a computed subscript stays inside its axis.

An integer expression is read as a polynomial over dimensions, loop variables and quotients. Known
are: dimensions are not negative; a loop's variable lies between its bounds, which therefore are
not empty where it is used; and what the kernel's ``require`` lines state. ``H % HK == 0`` makes
``H`` the product ``HK * q``, so ``h // (H // HK)`` of an ``h`` below ``H`` is below ``HK``.

A proof removes one unknown after the other by a bound of it; what has no proof is refused. Sums and
products may wrap around on the way to a result that fits; quotients and remainders are formed of
numbers only that provably do not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import Any

from tilec.frontend.checked import (
    Apply,
    Broadcast,
    Const,
    Expand,
    Expr,
    ExtentValue,
    Fill,
    IndexType,
    Indices,
    Ref,
    Relation,
    Variable,
)
from tilec.frontend.polynomials import (
    NOTHING,
    ONE,
    Atom,
    Poly,
    Product,
    add,
    atoms,
    constant,
    divided,
    minus,
    replaced,
    split,
    times,
    unknown,
)
from tilec.ir.types import Extent

_DEPTH = 3
"""Stated facts that one proof may combine."""
_LARGEST = (1 << 31) - 1
Frozen = frozenset[tuple[Product, int]]
"""A polynomial as something to compare and hash."""


@dataclass(frozen=True)
class Quotient:
    """A quotient or remainder that is no polynomial."""

    op: str
    over: Frozen
    by: Frozen


@dataclass(frozen=True)
class Extreme:
    """The smaller or larger of two."""

    op: str
    one: Frozen
    other: Frozen


@dataclass
class Known:
    """What is known of the integers of one kernel."""

    exact: dict[Atom, Poly] = field(default_factory=dict)
    """Dimensions that a requirement expresses by others."""
    facts: list[Poly] = field(default_factory=list)
    """Polynomials over dimensions that are not negative."""
    quotients: int = 0

    # -- reading -------------------------------------------------------------------------------

    def read(self, expr: Expr) -> Poly:
        """An integer expression; what is not arithmetic is an unknown of its own."""
        match expr:
            case Const() if isinstance(expr.value, int):
                return constant(int(expr.value))
            case ExtentValue():
                return self.dimension(expr.dim)
            case Ref() if isinstance(expr.variable.value, Expr):
                return self.read(expr.variable.value)
            case Ref():
                return unknown(expr.variable)
            case Indices() if isinstance(expr.operand.type, IndexType):
                return unknown(expr.operand.type.axis)
            case Expand() | Broadcast() | Fill():
                return self.read(expr.operand)
            case Apply():
                return self._apply(expr)
        return unknown(expr)

    def dimension(self, extent: Extent) -> Poly:
        """A dimension, expressed by others where a requirement says how."""
        if isinstance(extent, int):
            return constant(extent)
        return self.exact.get(extent, unknown(extent))

    def _apply(self, expr: Apply) -> Poly:
        parts = [self.read(e) for e in expr.operands]
        match expr.op:
            case "add":
                return add(*parts)
            case "sub":
                return minus(*parts)
            case "mul":
                return times(*parts)
            case "neg":
                return minus(constant(0), parts[0])
            case "floordiv" | "mod":
                return self._quotient(expr, *parts)
            case "min" | "max":
                one, other = map(_frozen, parts)
                return unknown(Extreme(expr.op, one, other))
        return unknown(expr)

    def divides(self, over: Expr, by: Expr) -> bool:
        """Whether a divisor cannot be zero where its dividend has a value."""
        return self.holds(minus(self.read(by), ONE), self.read(over))

    def _quotient(self, expr: Apply, over: Poly, by: Poly) -> Poly:
        # Where the variables of the dividend have values, sizes that bound them are not 0.
        if not (self.holds(minus(by, ONE), over) and self.holds(over) and self._fits(over)):
            return unknown(expr)
        exact = divided(over, by)
        if exact is not None:
            return exact if expr.op == "floordiv" else constant(0)
        return unknown(Quotient(expr.op, _frozen(over), _frozen(by)))

    def _fits(self, value: Poly) -> bool:
        """Whether a number is below some extent, and so has not wrapped around."""
        bounds = [constant(_LARGEST), *(self.dimension(a) for a in self._extents(value))]
        return any(self.holds(minus(bound, value)) for bound in bounds)

    def _extents(self, value: Poly) -> list[str]:
        names = [a for a in _all_atoms(self, value) if isinstance(a, str)]
        return [*dict.fromkeys([*names, *(a for a in self.exact if isinstance(a, str))])]

    # -- assuming ------------------------------------------------------------------------------

    def assume(self, condition: Expr) -> None:
        """Take in what a requirement states; what is no relation of sizes teaches nothing."""
        if isinstance(condition, Apply) and condition.op == "and":
            for part in condition.operands:
                self.assume(part)
        if not isinstance(condition, Relation) or not _is_integer(condition.left):
            return
        left, right = condition.left, condition.right
        if condition.relation == "eq" and isinstance(left, Apply) and left.op == "mod":
            if isinstance(right, Const) and right.value == 0:
                self._divides(self.read(left.operands[0]), self.read(left.operands[1]))
            return
        a, b = self.read(left), self.read(right)
        match condition.relation:
            case "eq":
                if not self._express(minus(a, b)):
                    self.facts += [minus(a, b), minus(b, a)]
            case "le":
                self.facts.append(minus(b, a))
            case "lt":
                self.facts.append(minus(minus(b, a), ONE))
            case "ge":
                self.facts.append(minus(a, b))
            case "gt":
                self.facts.append(minus(minus(a, b), ONE))

    def _divides(self, over: Poly, by: Poly) -> None:
        """``over % by == 0``: a launch in which ``by`` is 0 cannot state it."""
        self.facts.append(minus(by, ONE))
        self.quotients += 1
        self._express(minus(over, times(by, unknown(f"quotient {self.quotients}"))))

    def _express(self, zero: Poly) -> bool:
        """Express a dimension that stands alone in ``zero == 0`` by the rest."""
        for product, factor in zero.items():
            names = [atom for atom, power in product if isinstance(atom, str) and power == 1]
            if len(product) != 1 or not names or abs(factor) != 1:
                continue
            (name,) = names
            rest = {p: -factor * f for p, f in zero.items() if p != product}
            if name in atoms(rest) or not all(map(_is_size, atoms(rest))):
                continue
            self.exact = {a: replaced(p, name, rest) for a, p in self.exact.items()}
            self.exact[name] = rest
            self.facts = [replaced(f, name, rest) for f in self.facts] + [rest]
            return True
        return False

    # -- proving -------------------------------------------------------------------------------

    def inside(self, subscript: Expr, extent: Extent) -> bool:
        """Whether 0 <= subscript < extent, always."""
        at, end = self.read(subscript), self.dimension(extent)
        return self.holds(at) and self.holds(minus(minus(end, at), ONE))

    def holds(self, value: Poly, beside: Poly | None = None) -> bool:
        """Whether a polynomial is proved not to be negative where ``beside`` has a value too."""
        facts = [*self.facts, *self._not_empty(value), *self._not_empty(beside or {})]
        return self._holds(value, facts, _DEPTH)

    def _not_empty(self, value: Poly) -> list[Poly]:
        """Where a loop's variable has a value, its range is not empty."""
        found = []
        for atom in _all_atoms(self, value):
            bounds = _bounds(self, atom)
            if bounds is not None:
                found.append(minus(bounds[1], bounds[0]))
        return found

    def _holds(self, value: Poly, facts: list[Poly], depth: int) -> bool:
        value = _reduced(value)
        atom = _outermost(self, value)
        if atom is not None:
            return self._without(value, atom, facts, depth)
        raised = value
        for least in _positive_atoms(facts):
            raised = replaced(raised, least, add(unknown(least), ONE))
        if all(f >= 0 for f in raised.values()):
            return True
        # Only facts about sizes help here: others still have unknowns of their own.
        return depth > 0 and any(
            self._holds(minus(value, fact), facts, depth - 1)
            for fact in facts
            if fact and _outermost(self, fact) is None
        )

    def _without(self, value: Poly, atom: Atom, facts: list[Poly], depth: int) -> bool:
        """Replace an unknown by what bounds it from the side that matters."""
        parts = split(value, atom)
        if parts is None:
            return False
        factor, rest = parts
        if self._holds(factor, facts, 1):
            return any(
                all(self._holds(add(rest, times(factor, b)), facts, depth) for b in bounds)
                for bounds in self._lower(atom)
            )
        size = minus(constant(0), factor)
        if not self._holds(size, facts, 1):
            return False
        if isinstance(atom, Quotient) and atom.op == "floordiv":
            # n * (a // b) <= r, for integers, if n * a < (r + 1) * b.
            over, by = dict(atom.over), dict(atom.by)
            gap = minus(times(add(rest, ONE), by), times(size, over))
            return self._holds(minus(gap, ONE), facts, depth)
        return any(
            all(self._holds(minus(rest, times(size, b)), facts, depth) for b in bounds)
            for bounds in self._upper(atom)
        )

    def _lower(self, atom: Atom) -> list[list[Poly]]:
        """Ways to bound from below: in each, all are lower bounds of what it may be."""
        if isinstance(atom, Quotient):
            return [[constant(0)]]
        if isinstance(atom, Extreme):
            one, other = dict(atom.one), dict(atom.other)
            return [[one, other]] if atom.op == "min" else [[one], [other]]
        bounds = _bounds(self, atom)
        return [] if bounds is None else [[bounds[0]]]

    def _upper(self, atom: Atom) -> list[list[Poly]]:
        """The same from above."""
        if isinstance(atom, Quotient):
            return [[minus(dict(atom.by), ONE)], [dict(atom.over)]]
        if isinstance(atom, Extreme):
            one, other = dict(atom.one), dict(atom.other)
            return [[one], [other]] if atom.op == "min" else [[one, other]]
        bounds = _bounds(self, atom)
        return [] if bounds is None else [[bounds[1]]]


def _is_integer(expr: Expr) -> bool:
    dtype: Any = getattr(expr.type, "dtype", None)
    return dtype is not None and dtype.is_integer


def _reduced(value: Poly) -> Poly:
    """An equivalent claim about integers: n * p + c >= 0 if and only if p + c // n >= 0."""
    common = gcd(*(factor for product, factor in value.items() if product))
    if common < 2:
        return value
    return {p: f // common for p, f in value.items() if f // common}


def _is_size(atom: Atom) -> bool:
    return isinstance(atom, str)


def _frozen(value: Poly) -> Frozen:
    return frozenset(value.items())


def _bounds(known: Known, atom: Atom) -> tuple[Poly, Poly] | None:
    """Least and greatest value of a loop's variable or of an index."""
    if isinstance(atom, Variable) and atom.bounds is not None:
        start, stop = atom.bounds
        return known.read(start), minus(known.read(stop), ONE)
    extent = getattr(atom, "extent", None)
    if extent is not None:
        return constant(0), minus(known.dimension(extent), ONE)
    return None


def _parts(known: Known, atom: Atom) -> list[Poly]:
    """The polynomials that an unknown is made of."""
    if isinstance(atom, Quotient):
        return [dict(atom.over), dict(atom.by)]
    if isinstance(atom, Extreme):
        return [dict(atom.one), dict(atom.other)]
    return list(_bounds(known, atom) or ())


def _all_atoms(known: Known, value: Poly) -> list[Atom]:
    """Everything that a polynomial mentions, directly or within."""
    found: dict[Atom, None] = {}
    todo = [value]
    while todo:
        for atom in atoms(todo.pop()):
            if atom not in found:
                found[atom] = None
                todo += _parts(known, atom)
    return list(found)


def _outermost(known: Known, value: Poly) -> Atom | None:
    """An unknown of a polynomial that no other one of it is made of."""
    unknowns = [a for a in atoms(value) if not _is_size(a)]
    for atom in unknowns:
        others = (p for a in unknowns if a is not atom for p in _parts(known, a))
        if not any(atom in _all_atoms(known, part) for part in others):
            return atom
    return None


def _positive_atoms(facts: list[Poly]) -> list[Atom]:
    """Sizes that are at least 1, since a product of them is."""
    found: dict[Atom, None] = {}
    for fact in facts:
        products = [p for p in fact if p]
        if len(products) == 1 and fact[products[0]] > 0 and fact.get(NOTHING, 0) < 0:
            found.update(dict.fromkeys(a for a, _ in products[0] if _is_size(a)))
    return list(found)
