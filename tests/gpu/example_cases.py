"""The cases of the examples on a GPU, as plain data: a kernel, one of its sizes, a view, a target.

Invariants: a case's name is unique and says all of it.

Never: imports torch, or leaves a case out because it is known to fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.examples.spec import VIEWS, all_examples

TARGETS = ("", "sm_80", "sm_86", "sm_89")
"""The GPU's own, and older ones, whose PTX the driver translates."""


@dataclass(frozen=True)
class ExampleCase:
    """One call of an example; ``number`` counts its sizes, the larger ones after the others."""

    kernel: str
    number: int
    view: str
    target: str
    seed: int = 0

    @property
    def name(self) -> str:
        """All that the case is, in words."""
        target = self.target or "native"
        return f"{self.kernel} {target} {self.view} size={self.number} seed={self.seed}"


def all_cases(seed: int = 0) -> Iterator[ExampleCase]:
    """Every size of every example: each view natively, and packed for each older target."""
    for example in all_examples():
        count = len(example.sizes) + len(example.larger)
        for target in TARGETS:
            for view in VIEWS if not target else VIEWS[:1]:
                for number in range(count):
                    yield ExampleCase(example.kernel, number, view, target, seed)
