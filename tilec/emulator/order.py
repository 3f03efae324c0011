"""What happens before what: vector clocks of the warps of a CTA, and what they know is finished.

A warp's epoch grows each time it lets others see what it did (an arrival, a fence). Each warp
keeps, for every warp, up to which epoch that one's accesses come before its own (``clock``), up to
which they also come before what it starts in the async proxy, in shared memory (``proxy``) and in
global memory (``wide``): a fence.proxy.async lies between (PTX ISA 8.5). It keeps which pieces of
work in flight it has waited for (``known``, one bit a piece), and what atomics and fences have told
it of other CTAs (``others``). Synchronisation moves these from warps into a ``Box`` (a release) and
out of it (an acquire): a race is two accesses that no such chain orders, whatever order the run
took.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Clock = npt.NDArray[np.int32]


@dataclass
class Box:
    """What a barrier has been told: whoever passes it learns this."""

    clock: Clock
    proxy: Clock
    wide: Clock
    known: int = 0
    others: dict[int, Box] = field(default_factory=dict)
    """Of other CTAs, by their numbers."""

    @staticmethod
    def empty(warps: int) -> Box:
        """Nothing yet."""
        clock, proxy, wide = np.zeros((3, warps), np.int32)
        return Box(clock, proxy, wide)

    def take(self, other: Box) -> None:
        """Learn what another one was told."""
        np.maximum(self.clock, other.clock, out=self.clock)
        np.maximum(self.proxy, other.proxy, out=self.proxy)
        np.maximum(self.wide, other.wide, out=self.wide)
        self.known |= other.known
        learn_of(self.others, other.others)


def learn_of(mine: dict[int, Box], told: dict[int, Box]) -> None:
    """Take over what is known of other CTAs."""
    for cta, box in told.items():
        if cta not in mine:
            mine[cta] = Box.empty(len(box.clock))
        mine[cta].take(box)


class Order:
    """The clocks of one CTA."""

    def __init__(self, warps: int) -> None:
        """No warp knows of any other; epochs begin at 1."""
        self.warps = warps
        self.clock = np.zeros((warps, warps), np.int32)
        self.proxy = np.zeros((warps, warps), np.int32)
        self.wide = np.zeros((warps, warps), np.int32)
        np.fill_diagonal(self.clock, 1)
        self.known = [0] * warps
        self.others: list[dict[int, Box]] = [{} for _ in range(warps)]
        self._bits = 0

    def fresh_bit(self) -> int:
        """A bit for a piece of work."""
        bit = 1 << self._bits
        self._bits += 1
        return bit

    def snapshot(self, warp: int) -> Box:
        """What a warp knows now."""
        made = Box.empty(self.warps)
        self._tell(warp, made)
        return made

    def issue(self, warp: int) -> Box:
        """What a warp knows as it starts work; what it does from now on is another epoch."""
        made = self.snapshot(warp)
        self.clock[warp, warp] += 1
        return made

    def release(self, warps: Iterable[int], box: Box) -> None:
        """The warps tell the box what they did and know; what they do next is another epoch."""
        for warp in warps:
            self._tell(warp, box)
            self.clock[warp, warp] += 1

    def _tell(self, warp: int, box: Box) -> None:
        np.maximum(box.clock, self.clock[warp], out=box.clock)
        np.maximum(box.proxy, self.proxy[warp], out=box.proxy)
        np.maximum(box.wide, self.wide[warp], out=box.wide)
        box.known |= self.known[warp]
        learn_of(box.others, self.others[warp])

    def acquire(self, warps: Iterable[int], box: Box) -> None:
        """The warps learn what the box was told."""
        for warp in warps:
            np.maximum(self.clock[warp], box.clock, out=self.clock[warp])
            np.maximum(self.proxy[warp], box.proxy, out=self.proxy[warp])
            np.maximum(self.wide[warp], box.wide, out=self.wide[warp])
            self.known[warp] |= box.known
            learn_of(self.others[warp], box.others)

    def fence_proxy(self, warps: Iterable[int], *, shared: bool = True, wide: bool = True) -> None:
        """What comes before the warps now also comes before their work in the async proxy."""
        for warp in warps:
            if shared:
                np.maximum(self.proxy[warp], self.clock[warp], out=self.proxy[warp])
            if wide:
                np.maximum(self.wide[warp], self.clock[warp], out=self.wide[warp])
            self.clock[warp, warp] += 1

    def learn(self, warp: int, bits: int) -> None:
        """A warp has waited for pieces of work."""
        self.known[warp] |= bits


def order_of(cta: Any) -> Order:
    """The clocks of a CTA."""
    found: Order = cta.keep("order", lambda c: Order(c.warps))
    return found
