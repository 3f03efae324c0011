"""Shared memory of one CTA: tiles, rings of them, and who may touch what when.

A ring's stage is used in rounds. Whoever acquires it finds poison in it; it is full once all its
parts have been loaded, and empty again when every group of every role that releases has done so.
A ``Slot`` is what a wait or an acquire gives: the right to one round of one stage, until it is
given back.

Inside a group, warps are ordered by barriers alone, and what ordinary stores wrote reaches TMA and
wgmma only by a fence and then a barrier: each tile remembers the writes that are not yet visible
and the reads that may still go on. The same rules are checked for all paths at once by
``ir.order``; here they are checked on the path and the rows that a run takes, whoever made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.interp.cta.faults import ProtocolFault
from tilec.interp.numbers import Data, poison
from tilec.ir.core import Op
from tilec.ir.levels import cta
from tilec.ir.types import Ring, Shared


def said(op: Op) -> str:
    """An op as messages call it."""
    values = [v for v in (*op.results, *op.operands) if v.name]
    name = f"{op.name} (%{values[0].name})" if values else op.name
    return f"{name} at source line {op.loc.line}" if op.loc else name


@dataclass(eq=False)
class Writing:
    """Rows of a tile that a group's stores wrote, until everybody may read them."""

    group: object
    op: Op
    rows: range
    published: bool = False
    ordered: bool = False


@dataclass(eq=False)
class Reading:
    """A read of rows of a tile, until the whole group knows that it is over."""

    group: object
    op: Op
    rows: range
    over: bool = False


@dataclass(eq=False)
class SharedTile:
    """One tile of shared memory."""

    data: Data
    writings: list[Writing] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)


def _meet(x: range, y: range) -> bool:
    return x.start < y.stop and y.start < x.stop


def new_tile(type: Any, wide: bool) -> SharedTile:
    """A tile that nobody has written."""
    assert isinstance(type, Shared)
    empty = poison(type.dtype, wide)
    return SharedTile(np.full(tuple(int(e) for e in type.shape), empty, empty.dtype))


ARMED = "armed"
"""What a stage of a shared ring gets from its own producer, beside the shares of all."""


@dataclass(eq=False)
class RingState:
    """The stages of one ring."""

    op: cta.MakeRing
    consumers: int
    """Groups that give each stage back."""
    wide: bool
    stages: list[list[SharedTile]] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    _needed: int = 0
    brought: list[set[Any]] = field(default_factory=list)
    """Of a ring that CTAs share: what has arrived in each stage in the round at hand."""
    begun: list[int] = field(default_factory=list)
    """Of such a ring: rounds of each stage that somebody began to fill."""

    def __post_init__(self) -> None:
        """All stages are empty."""
        type = self.op.out.type
        assert isinstance(type, Ring)
        for _ in range(type.stages):
            self.stages.append([new_tile(part, self.wide) for part in type.parts])
            self.filled.append(0)
            self.released.append(0)
            self.brought.append(set())
            self.begun.append(0)

    def arm(self, place: int, round: int) -> None:
        """The CTA's own producer says that the stage is being filled."""
        self._begin(place, round).add(ARMED)

    def bring(self, place: int, round: int, key: Any, shares: int) -> SharedTile:
        """The tile that a share of a part goes to; with the last of all shares the stage is full.

        A stage that its own producer has not armed yet is not full: it counts with that.
        """
        arrived = self._begin(place, round)
        if key in arrived:
            raise ProtocolFault(f"part {key[0]} of a stage of {self.name} is loaded twice")
        arrived.add(key)
        self._needed = shares + 1
        tile: SharedTile = self.stages[place][key[0]]
        return tile

    def is_full(self, place: int, round: int) -> bool:
        """Whether a stage has been filled in a round."""
        if not self.op.shared_along:
            return self.filled[place] > round
        if self.begun[place] == round + 1 and len(self.brought[place]) == self._needed:
            self.filled[place] = round + 1
        return self.filled[place] > round

    def _begin(self, place: int, round: int) -> set[Any]:
        """What has arrived in this round; the first to come finds nothing of an earlier one."""
        if self.begun[place] == round:
            self.is_full(place, round - 1)
            self.begun[place] = round + 1
            self.brought[place] = set()
            for tile in self.stages[place]:
                tile.data[...] = poison_of(tile.data)
                tile.writings.clear()
                tile.readings.clear()
        return self.brought[place]

    @property
    def name(self) -> str:
        """The ring's name in the text."""
        return f"%{self.op.out.name or 'ring'}"


@dataclass(eq=False)
class Slot:
    """The right to the ``number``-th filling of a ring, to fill or to read."""

    ring: RingState
    number: int
    op: Op
    group: object
    filling: bool
    loaded: set[int] = field(default_factory=set)
    over: bool = False

    @property
    def place(self) -> int:
        """Which of the ring's stages it is."""
        return self.number % len(self.ring.stages)

    @property
    def round(self) -> int:
        """How often the stage was filled before."""
        return self.number // len(self.ring.stages)

    @property
    def parts(self) -> list[SharedTile]:
        """The stage's tiles."""
        return self.ring.stages[self.place]

    def start(self) -> None:
        """What an earlier round left there is nobody's."""
        for tile in self.parts:
            tile.data[...] = poison_of(tile.data)
            tile.writings.clear()
            tile.readings.clear()

    def land(self, part: int, op: Op) -> SharedTile:
        """The tile that a copy fills; with the last one the stage is full."""
        self.issue(part, op)
        if self.over:
            self.ring.filled[self.place] += 1
        return self.parts[part]

    def issue(self, part: int, op: Op) -> None:
        """A copy of one part starts; with the last one the producer is done with the stage."""
        if not self.filling:
            raise ProtocolFault(f"{said(op)} fills a stage that was waited for, not acquired")
        if part in self.loaded:
            raise ProtocolFault(f"part {part} of the stage of {said(self.op)} is loaded twice")
        self.loaded.add(part)
        self.over = len(self.loaded) == len(self.parts)

    def give_back(self, op: Op) -> None:
        """The holder is done with the stage."""
        if self.over:
            raise ProtocolFault(f"the slot of {said(self.op)} is released twice")
        for tile in self.parts:
            for reading in tile.readings:
                if reading.group is self.group and not reading.over:
                    raise ProtocolFault(
                        f"{said(reading.op)} may still read the slot: no wait covers it before "
                        f"{said(op)}"
                    )
            tile.readings = [r for r in tile.readings if r.group is not self.group]
            tile.writings = [w for w in tile.writings if w.group is not self.group]
        self.over = True
        self.ring.released[self.place] += 1

    def check(self, op: Op) -> None:
        """Whether a part may be touched: the slot is held, in its own round of the stage."""
        if self.filling:
            raise ProtocolFault(
                f"the stage of {said(self.op)} is being filled: only copies touch it"
            )
        if self.over:
            raise ProtocolFault(f"{said(op)} uses the slot of {said(self.op)} after its release")


def poison_of(data: Data) -> Any:
    """What an array of this carrier holds where nothing does."""
    if data.dtype.kind == "f":
        return np.nan
    if data.dtype.kind == "b":
        return True
    return np.iinfo(data.dtype).max // 3 | 1


@dataclass(frozen=True)
class View:
    """A shared tile, or some of its rows, maybe transposed; of a slot or of a buffer."""

    tile: SharedTile
    data: Data
    rows: range
    slot: Slot | None = None
    turned: bool = False

    def window(self, start: int, count: int) -> View:
        """Some rows; of a transposed view the rows are columns of the tile, all of its rows."""
        part = self.data[start : start + count]
        first = self.rows.start + start
        rows = self.rows if self.turned else range(first, first + count)
        return View(self.tile, part, rows, self.slot, self.turned)

    def transposed(self) -> View:
        """The same elements with the axes exchanged."""
        return View(self.tile, self.data.T, self.rows, self.slot, not self.turned)

    # Order ------------------------------------------------------------------------------------

    def _hidden(self) -> Iterator[Writing]:
        return (w for w in self.tile.writings if _meet(w.rows, self.rows))

    def written(self, op: Op, group: object) -> None:
        """Threads of a group write here."""
        self._usable(op)
        for reading in self.tile.readings:
            if not _meet(reading.rows, self.rows):
                continue
            if reading.group is not group:
                raise ProtocolFault(f"{said(reading.op)} of another group may still be reading")
            if reading.over:
                raise ProtocolFault(
                    f"{said(reading.op)} may still be reading in other warps: no cta.sync after it"
                )
            raise ProtocolFault(f"{said(reading.op)} may still read the tile: no wait covers it")
        for writing in self._hidden():
            if writing.group is not group:
                raise ProtocolFault(f"{said(writing.op)} of another group wrote here too")
        kept = [w for w in self.tile.writings if w.rows != self.rows]
        self.tile.writings = [*kept, Writing(group, op, self.rows)]

    def read_by_threads(self, op: Op, group: object) -> Data:
        """What threads of a group read here, at once."""
        self._usable(op)
        for writing in self._hidden():
            if writing.group is not group or not writing.ordered:
                raise ProtocolFault(
                    f"what {said(writing.op)} wrote may be another warp's: no cta.sync"
                )
        self.tile.readings.append(Reading(group, op, self.rows, over=True))
        return self.data.copy()

    def read_later(self, op: Op, group: object) -> Reading:
        """A read by TMA or wgmma that begins now, at the earliest."""
        self._usable(op)
        for writing in self._hidden():
            missing = "cta.sync after the cta.publish" if writing.published else "cta.publish"
            raise ProtocolFault(f"what {said(writing.op)} wrote is not visible here: no {missing}")
        reading = Reading(group, op, self.rows)
        self.tile.readings.append(reading)
        return reading

    def _usable(self, op: Op) -> None:
        if self.slot is not None:
            self.slot.check(op)
