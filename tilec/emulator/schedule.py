"""Who goes on next, and when work in flight is done: every legal choice is one of these.

``in order`` runs the first gang that can go on for as long as it can. ``random`` chooses by a
seed. ``late`` does work in flight only when nothing else can go on, ``early`` at once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

ORDERS = ("in order", "random", "late", "early")
_LONG, _SHORT = 1_000_000, 40


@dataclass
class Choice:
    """One way to schedule a run."""

    order_name: str = "in order"
    seed: int = 0
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """The generator of this run."""
        if self.order_name not in ORDERS:
            raise ValueError(f"no order {self.order_name}; there are {', '.join(ORDERS)}")
        self.random = random.Random(self.seed)

    def order(self, items: list[T]) -> list[T]:
        """The order in which CTAs run."""
        if self.order_name == "random":
            self.random.shuffle(items)
        return items

    def gang(self, ready: list[Any]) -> Any:
        """Which of the gangs that can go on does; None if there is none."""
        if not ready:
            return None
        return self.random.choice(ready) if self.order_name == "random" else ready[0]

    def quantum(self, gang: Any) -> int:
        """How many instructions it runs before another may."""
        if self.order_name == "random":
            return self.random.randint(1, _SHORT)
        return _LONG

    def issued(self, work: Any) -> None:
        """Work was put in flight: it may be done at once."""
        if self.order_name == "early" and work.may_finish():
            work.finish()

    def settle(self, in_flight: list[Any]) -> None:
        """Do some of the work in flight now."""
        if self.order_name == "late":
            return
        for work in list(in_flight):
            if self.order_name == "random":
                if work in in_flight and work.may_finish() and self.random.random() < 0.5:
                    work.advance()
            elif work in in_flight and work.may_finish():
                work.finish()

    def force(self, in_flight: list[Any]) -> bool:
        """Do one piece of work because nothing else can go on; False if there is none."""
        for work in in_flight:
            if work.may_finish():
                work.finish()
                return True
        return False
