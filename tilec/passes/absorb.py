"""Rounds of a loop that change nothing, where a condition has one value on their whole tile.

The proof runs the body on terms: a constant for all elements of a tile, or a name for something
unknown, the same for the same computation. Laws, x being any term:

    x + 0 = x - 0 = x * 1 = x / 1 = x       0 * x = 0 / x = 0        0 @ x + c = x @ 0 + c = c
    max(x, -inf) = min(x, inf) = x          a reduction or a scan of its identity is its identity
    where(true, x, y) = x                   where(false, x, y) = y         where(c, x, x) = x
    exp(-inf) = exp2(-inf) = 0              exp(0) = exp2(0) = 1
    anchor(m, -inf) = m                     exp2sub(-inf, x) = 0
    -inf - x = -inf       x - x = 0       x == -inf is false       where x is known not to be -inf

So 0 counts for every product with it, whatever inf or NaN the other factor holds: an index
predicate says that a tile does not take part. A row whose running maximum is +inf or NaN is lost.

A running maximum may still be -inf, and then weights are 0 instead of 1. So the round is run once
for each case: a carried value that the body compares with an infinity has it, or has not. In the
first case it counts what else is then known: "where m is -inf, l is 0" holds at the start if l
starts with 0, and by induction if a round that leaves m at -inf leaves l at 0. A maximum that
starts with a number never is -inf.

The answer is about values alone; whoever drops a round sees to its effects.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from tilec.ir.core import Op, Region, Value
from tilec.ir.levels import along, flow, math, tile
from tilec.passes.constants import Number, constant_value, evaluate

MOST_CASES = 3
"""Carried values whose cases are told apart: two to this power rounds are run on terms."""


@dataclass(frozen=True)
class Known:
    """All elements have this value."""

    value: Number


Term = Known | int
"""A constant, or the number of something unknown."""

_VIEWS = (math.Expand, math.Squeeze, math.Broadcast, math.Fill, tile.Transpose, tile.Pad)
"""Ops that keep elements; a fill stands outside of what a tile means."""


@dataclass
class Terms:
    """The terms of a round under assumptions."""

    assumed: dict[Value[Any], Term] = field(default_factory=dict)
    apart: dict[Value[Any], Number] = field(default_factory=dict)
    """Carried values that are not a certain infinity."""
    found: dict[Value[Any], Term] = field(default_factory=dict)
    names: dict[Any, int] = field(default_factory=dict)
    unlike: dict[int, Number] = field(default_factory=dict)
    """The infinities that unknown terms are known not to be."""

    def of(self, value: Value[Any]) -> Term:
        """The term that stands for a value of the round or from outside."""
        if value in self.assumed:
            return self.assumed[value]
        if value not in self.found:
            self.found[value] = self._outside(value)
        return self.found[value]

    def name(self, *key: Any) -> int:
        """The number of something unknown."""
        return self.names.setdefault(key, len(self.names))

    def _outside(self, value: Value[Any]) -> Term:
        inner = value
        while isinstance(inner.owner, math.Expand | math.Squeeze | math.Broadcast):
            inner = inner.owner.x
        known = constant_value(inner)
        if known is not None:
            return Known(known)
        number = self.name("value", value)
        if value in self.apart:
            self.unlike[number] = self.apart[value]
        return number

    def run(self, region: Region) -> None:
        """Give every result of the region's ops a term."""
        for op in region.ops:
            if len(op.results) == 1 and not op.regions and not op.effects:
                self.found[op.results[0]] = self._term(op)

    def is_not(self, term: Term, infinity: Number) -> bool:
        """Whether a term is known not to be an infinity."""
        if isinstance(term, Known):
            return term.value != infinity
        return self.unlike.get(term) == infinity

    def _term(self, op: Op) -> Term:
        inputs = [self.of(v) for v in op.operands]
        if isinstance(op, _VIEWS):
            return self._view(op, inputs[0])
        law = _TERMS.get(type(op))
        found = law(self, op, inputs) if law is not None else None
        if found is not None:
            return found
        known = [term.value for term in inputs if isinstance(term, Known)]
        if len(known) == len(inputs) and isinstance(op, math.Elementwise | math.Cast):
            value = evaluate(op, known)
            if value is not None:
                return Known(value)
        return self.name(type(op), repr(op.attributes), op.results[0].type, *inputs)

    def _view(self, op: Op, inner: Term) -> Term:
        if isinstance(inner, Known) or isinstance(op, tile.Pad):
            return inner
        axis, type = getattr(op, "axis", None), op.results[0].type
        number = self.name("view", isinstance(op, tile.Transpose), axis, type, inner)
        if inner in self.unlike:
            self.unlike[number] = self.unlike[inner]
        return number


# --- the laws -----------------------------------------------------------------------------------


def _is(term: Term, value: Number) -> bool:
    return isinstance(term, Known) and term.value == value


def _sum(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    x, y = inputs
    return x if _is(y, 0) else y if _is(x, 0) else None


def _difference(terms: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    x, y = inputs
    if _is(y, 0):
        return x
    if isinstance(x, Known) and pymath.isinf(x.value) and terms.is_not(y, x.value):
        return x
    if isinstance(x, int) and x == y and x in terms.unlike:
        return Known(0.0)
    return None


def _times(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    x, y = inputs
    if _is(x, 0) or _is(y, 0):
        return Known(0)
    return x if _is(y, 1) else y if _is(x, 1) else None


def _quotient(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    x, y = inputs
    return Known(0) if _is(x, 0) and not _is(y, 0) else x if _is(y, 1) else None


def _multiplied(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    x, y, z = inputs
    return z if _is(x, 0) or _is(y, 0) else None


def _extreme(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    x, y = inputs
    least = -pymath.inf if isinstance(op, math.Max) else pymath.inf
    return x if x == y or _is(y, least) else y if _is(x, least) else None


def _chosen(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    condition, x, y = inputs
    if isinstance(condition, Known):
        return x if condition.value else y
    return x if x == y else None


def _logical(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    if math.element_type(op.out.type).kind != "bool":
        return None
    x, y = inputs
    ends = not isinstance(op, math.And)
    for one, other in ((x, y), (y, x)):
        if isinstance(one, Known):
            return one if bool(one.value) == ends else other
    return None


def _compared(terms: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    for one, other in (inputs, inputs[::-1]):
        if isinstance(one, Known) and isinstance(other, int) and terms.is_not(other, one.value):
            return Known(op.relation == "ne") if op.relation in ("eq", "ne") else None
    return None


def _power(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    (x,) = inputs
    return Known(0.0) if _is(x, -pymath.inf) else Known(1.0) if _is(x, 0) else None


def _weight(terms: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    x, y = inputs
    if _is(x, -pymath.inf):
        return Known(0.0)
    return Known(1.0) if isinstance(x, int) and x == y and x in terms.unlike else None


def _anchored(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    return inputs[0] if _is(inputs[1], -pymath.inf) else None


def _cast(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    (x,) = inputs
    if isinstance(x, Known) and op.dtype.is_float and (x.value in (0, 1) or _endless(x.value)):
        return Known(float(x.value))
    return None


def _endless(value: Number) -> bool:
    return isinstance(value, float) and pymath.isinf(value)


_IDENTITIES: dict[str, Number] = {
    "add": 0,
    "mul": 1,
    "max": -pymath.inf,
    "min": pymath.inf,
    "and": True,
    "or": False,
}


def _combined(_: Terms, op: Any, inputs: Sequence[Term]) -> Term | None:
    return inputs[0] if _is(inputs[0], _IDENTITIES[op.kind]) else None


Law = Callable[[Terms, Any, Sequence[Term]], Term | None]
_TERMS: dict[type[Op], Law] = {
    math.Add: _sum,
    math.Sub: _difference,
    math.Mul: _times,
    math.Div: _quotient,
    math.Fma: _multiplied,
    math.Max: _extreme,
    math.Min: _extreme,
    math.Where: _chosen,
    math.And: _logical,
    math.Or: _logical,
    math.Compare: _compared,
    math.Exp: _power,
    math.Exp2: _power,
    math.Cast: _cast,
    math.Reduce: _combined,
    along.Scan: _combined,
    tile.Dot: _multiplied,
    tile.Anchor: _anchored,
    tile.Exp2Sub: _weight,
}


# --- rounds -------------------------------------------------------------------------------------


def absorbs(loop: tile.ForTiles, condition: Value[Any], *, holds: bool) -> bool:
    """Whether a round in which the condition has one value leaves what is carried as it is."""
    keys = _keys(loop)
    if len(keys) > MOST_CASES:
        return False
    choices = [(False,) if _never(loop, *key) else (True, False) for key in keys.items()]
    for case in product(*choices):
        terms = Terms({condition: Known(holds)})
        for (value, infinity), equal in zip(keys.items(), case, strict=True):
            if equal:
                terms.assumed[value] = Known(infinity)
                terms.assumed.update(_follows(loop, value, infinity))
            else:
                terms.apart[value] = infinity
        terms.run(loop.body)
        carried = zip(loop.body.args[1:], flow.yielded(loop.body), strict=True)
        if any(terms.of(before) != terms.of(after) for before, after in carried):
            return False
    return True


def _keys(loop: tile.ForTiles) -> dict[Value[Any], Number]:
    """Carried values that the round compares with an infinity."""
    carried = set(loop.body.args[1:])
    found: dict[Value[Any], Number] = {}
    for op in loop.body.ops:
        if isinstance(op, math.Compare) and op.relation in ("eq", "ne"):
            for one, other in ((op.x, op.y), (op.y, op.x)):
                value, known = _source(one), constant_value(_source(other))
                if value in carried and isinstance(known, float) and pymath.isinf(known):
                    found[value] = known
        elif isinstance(op, tile.Exp2Sub) and _source(op.x) in carried:
            found[_source(op.x)] = -pymath.inf
    return found


def _source(value: Value[Any]) -> Value[Any]:
    while isinstance(value.owner, math.Expand | math.Squeeze | math.Broadcast):
        value = value.owner.x
    return value


def _never(loop: tile.ForTiles, key: Value[Any], infinity: Number) -> bool:
    """Whether a carried value starts with another number, and has the infinity only if it had."""
    place = loop.body.args.index(key) - 1
    start = constant_value(loop.init[place])
    facts: dict[Value[Any], Term] = {}
    _imply(flow.yielded(loop.body)[place], infinity, facts)
    return start is not None and start != infinity and facts.get(key) == Known(infinity)


def _follows(loop: tile.ForTiles, key: Value[Any], infinity: Number) -> dict[Value[Any], Term]:
    """What carried values are wherever ``key`` has the infinity, by induction over rounds."""
    carried = list(loop.body.args[1:])
    last = dict(zip(carried, flow.yielded(loop.body), strict=True))
    believed: dict[Value[Any], Term] = {}
    for value, start in zip(carried, loop.init, strict=True):
        known = constant_value(start)
        if value is not key and known is not None:
            believed[value] = Known(known)
    while believed:
        facts: dict[Value[Any], Term] = {}
        _imply(last[key], infinity, facts)
        if facts.get(key) != Known(infinity):
            return {}
        terms = Terms({**believed, **facts})
        terms.run(loop.body)
        wrong = [v for v, term in believed.items() if terms.of(last[v]) != term]
        if not wrong:
            return believed
        for value in wrong:
            del believed[value]
    return {}


def _imply(value: Value[Any], infinity: Number, facts: dict[Value[Any], Term]) -> None:
    """Note what must be the least (or greatest) number if ``value`` is."""
    waiting = [value]
    kinds = {-pymath.inf: (math.Max, "max"), pymath.inf: (math.Min, "min")}
    extreme, reduction = kinds[float(infinity)]
    while waiting:
        value = waiting.pop()
        if value in facts:
            continue
        facts[value] = Known(infinity)
        op = value.owner
        if isinstance(op, extreme):
            waiting.extend((op.x, op.y))
        elif isinstance(op, tile.Anchor) and reduction == "max":
            waiting.extend((op.m, op.s))
        elif isinstance(op, math.Reduce) and op.kind == reduction:
            waiting.append(op.x)
        elif isinstance(op, _VIEWS) and not isinstance(op, math.Fill):
            waiting.append(op.operands[0])
