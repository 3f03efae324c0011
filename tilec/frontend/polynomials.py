"""Polynomials with integer coefficients over anything that can be compared.

A polynomial maps products of unknowns to their factors. A product is the set of its unknowns, each
with its power; the empty product stands for 1, and absent products have factor 0.
"""

from __future__ import annotations

from collections.abc import Hashable

Atom = Hashable
Product = frozenset[tuple[Atom, int]]
Poly = dict[Product, int]

NOTHING: Product = frozenset()
ONE: Poly = {NOTHING: 1}


def constant(value: int) -> Poly:
    """A number."""
    return {NOTHING: value} if value else {}


def unknown(atom: Atom) -> Poly:
    """One unknown."""
    return {frozenset({(atom, 1)}): 1}


def atoms(x: Poly) -> list[Atom]:
    """The unknowns, each once."""
    return list(dict.fromkeys(atom for product in x for atom, _ in product))


def add(x: Poly, y: Poly) -> Poly:
    """x + y."""
    total = dict(x)
    for product, factor in y.items():
        total[product] = total.get(product, 0) + factor
    return {p: f for p, f in total.items() if f}


def minus(x: Poly, y: Poly) -> Poly:
    """x - y."""
    return add(x, {p: -f for p, f in y.items()})


def times(x: Poly, y: Poly) -> Poly:
    """x * y."""
    total: Poly = {}
    for one, factor in x.items():
        for other, more in y.items():
            powers = dict(one)
            for atom, power in other:
                powers[atom] = powers.get(atom, 0) + power
            product = frozenset(powers.items())
            total[product] = total.get(product, 0) + factor * more
    return {p: f for p, f in total.items() if f}


def divided(x: Poly, y: Poly) -> Poly | None:
    """x / y where y is one product that divides every product of x; else None."""
    if len(y) != 1:
        return None
    ((by, number),) = y.items()
    result: Poly = {}
    for product, factor in x.items():
        left = dict(product)
        for atom, power in by:
            left[atom] = left.get(atom, 0) - power
        if factor % number or any(power < 0 for power in left.values()):
            return None
        result[frozenset((a, p) for a, p in left.items() if p)] = factor // number
    return result


def split(x: Poly, atom: Atom) -> tuple[Poly, Poly] | None:
    """``x`` as factor * atom + rest; None if the atom stands in a higher power."""
    factor: Poly = {}
    rest: Poly = {}
    for product, number in x.items():
        power = dict(product).get(atom, 0)
        if power > 1:
            return None
        (factor if power else rest)[product - {(atom, 1)}] = number
    return factor, rest


def replaced(x: Poly, atom: Atom, by: Poly) -> Poly:
    """A polynomial with an unknown replaced wherever it stands."""
    result: Poly = {}
    for product, number in x.items():
        power = dict(product).get(atom, 0)
        term: Poly = {product - {(atom, power)}: number}
        for _ in range(power):
            term = times(term, by)
        result = add(result, term)
    return result
