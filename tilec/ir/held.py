"""What a role has in hand at one point of one path, as far as its protocol goes.

Slots and stages (of which ring, given back or not), products (in which group, finished or not),
shared tiles that were written and are not yet visible to others, reads of shared tiles that may
still be going on, turns held. Things are numbered, and numbers travel with the values that loops
and branches carry, so that two rounds of a loop are never confused. No op is known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.places import Place

OLD = 8
"""Groups and stores this old are not told apart; a wait may leave at most 7 pending."""


@dataclass(frozen=True)
class Stage:
    """A slot that was waited for or, with ``loaded`` parts, a stage that is being filled."""

    op: Op
    ring: Value[Any]
    finished: bool = False
    loaded: frozenset[int] | None = None


@dataclass(frozen=True)
class Products:
    """A product; ``age`` counts the commits after the one that closed its group.

    ``taken`` says which op made use of the flight.
    """

    op: Op
    age: int | None = None
    complete: bool = False
    taken: Op | None = None

    @property
    def finished(self) -> bool:
        """Whether nothing more is owed."""
        return self.complete and self.taken is not None


@dataclass(frozen=True)
class Written:
    """A shared tile that ordinary instructions wrote, until everybody may read it."""

    op: Op
    place: Place
    published: bool = False
    ordered: bool = False


@dataclass(frozen=True)
class Reading:
    """A read of a shared tile, until the whole group knows that it is over.

    ``age`` counts the stores issued after a store; ``product`` is the number of a product.
    """

    op: Op
    place: Place
    age: int = 0
    product: int = 0
    over: bool = False


@dataclass
class State:
    """What a role has in hand at one point of one path."""

    names: dict[Value[Any], int] = field(default_factory=dict)
    things: dict[int, Stage | Products] = field(default_factory=dict)
    written: frozenset[Written] = frozenset()
    readings: frozenset[Reading] = frozenset()
    turns: dict[Value[Any], Op] = field(default_factory=dict)
    decided: dict[Value[Any], bool] = field(default_factory=dict)
    count: int = 0

    def copy(self) -> State:
        """A state that goes its own way."""
        return State(
            dict(self.names),
            dict(self.things),
            self.written,
            self.readings,
            dict(self.turns),
            dict(self.decided),
            self.count,
        )

    def new(self, value: Value[Any], thing: Stage | Products) -> int:
        """Number a thing and let ``value`` stand for it."""
        self.count += 1
        self.things[self.count] = thing
        self.names[value] = self.count
        return self.count

    def numbers(self, values: Iterable[Value[Any]]) -> list[int]:
        """The numbers behind values, 0 where there is nothing to follow."""
        return [self.names.get(v, 0) for v in values]

    def bind(self, values: Sequence[Value[Any]], numbers: Sequence[int]) -> None:
        """Let values stand for things already numbered."""
        for value, number in zip(values, numbers, strict=True):
            self.names.pop(value, None)
            if number:
                self.names[value] = number

    def leave(self, inner: set[Value[Any]], kept: Sequence[int]) -> None:
        """Forget the values of a region, and what is finished and neither named nor ``kept``."""
        self.names = {v: n for v, n in self.names.items() if v not in inner}
        named = {*self.names.values(), *kept}
        self.things = {n: t for n, t in self.things.items() if n in named or not t.finished}
        self.decided = {v: way for v, way in self.decided.items() if v not in inner}
        self.written = frozenset(replace(w, place=w.place.outside(inner)) for w in self.written)
        self.readings = frozenset(replace(r, place=r.place.outside(inner)) for r in self.readings)

    def key(self) -> Any:
        """Equal for states that no later op can tell apart."""
        named = dict.fromkeys(self.names.values())
        nameless = [n for n, t in self.things.items() if n not in named and not t.finished]
        number = {n: i for i, n in enumerate([*named, *nameless], 1)}

        def place(p: Place) -> Any:
            root = number.get(p.root, -1) if isinstance(p.root, int) else p.root
            return root, p.part, p.views

        things = {n: _facts(self.things[n]) for n in number}
        return (
            frozenset((v, number[n]) for v, n in self.names.items()),
            tuple(things[n] for n in named),
            frozenset(things[n] for n in nameless),
            sum(isinstance(self.things[n], Stage) for n in nameless),
            frozenset((w.op, place(w.place), w.published, w.ordered) for w in self.written),
            frozenset(
                (r.op, place(r.place), r.age, number.get(r.product, -1), r.over)
                for r in self.readings
            ),
            frozenset(self.turns),
            frozenset(self.decided.items()),
        )


def _facts(thing: Stage | Products) -> Any:
    if isinstance(thing, Stage):
        return thing.op, thing.ring, thing.finished, thing.loaded
    return thing.op, thing.age, thing.complete, thing.taken
