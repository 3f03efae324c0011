"""The check buffer: what a running kernel writes down for ``assert`` and ``print``.

One block of words for all launches of a call, given to the kernel as workspace. Prints have one
part of it and assertions another (``PARTS``), so that however much is printed, what fails has room.
For each part the head of the block counts the words that its records wanted, and the records. They
follow one another in the order in which they were claimed; from the first that does not fit whole
on, none is written, and the counts tell how many those are. A record of an assertion is small, so
the first that fails always fits: no failure is silent.

A record has ``HEAD`` words (which site, and which group of warps wrote it), one for each loop
around, two for each axis of the value (the index of the group's first element, and where the axis
ends), and then, of a print, a word for each element of the group's tile, row by row, floats in the
second block at the same place; of an assertion, ``FIRST`` minus the place of the first element that
fails, and how many do. A site is one ``assert`` or ``print`` of one launch; the kernel lists its
sites in its attribute ``checks``.

Never: a value or an address of a run; this says only where things lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.levels import flow, tile
from tilec.ir.types import DTYPES, F64, S64, Array, DType

WORDS = "checks.words"
"""The kernel's parameter for the block; no name of a program has a dot."""
FLOATS = "checks.floats"
CAPACITY = 1 << 20
"""Words of the block: 8 MiB."""
ASSERTS = 1 << 18
"""How many of them are for assertions, at the end of the block."""


@dataclass(frozen=True)
class Part:
    """The words for the records of one kind, and where they are counted."""

    claimed: int
    """The place of the count of words that records wanted."""
    records: int
    """The place of the count of records."""
    first: int
    end: int

    @property
    def size(self) -> int:
        """Words for records."""
        return self.end - self.first

    def used(self, words: Any) -> slice:
        """The places that hold records, by the counts of the block."""
        return slice(self.first, min(self.first + int(words[self.claimed]), self.end))


RESERVED = 4
"""Words for the counts, at the head of the block."""
PARTS = {
    "print": Part(0, 1, RESERVED, CAPACITY - ASSERTS),
    "assert": Part(2, 3, CAPACITY - ASSERTS, CAPACITY),
}
"""By the kind of site."""
HEAD = 2
FIRST = 1 << 40
"""More than any place in a tile."""

BLOCKS = {
    WORDS: Array(S64, (CAPACITY,), "inout"),
    FLOATS: Array(F64, (PARTS["print"].end,), "inout"),
}

_SITES_OF_A_LAUNCH = 1 << 16


@dataclass(frozen=True)
class Site:
    """One ``assert`` or ``print``, as one launch runs it."""

    kind: str
    """``assert`` or ``print``."""
    line: int
    dtype: DType
    shape: tuple[int, ...]
    """Of a group's part of the value; ``()`` for a scalar."""
    loops: tuple[str, ...]
    """Names of the loops around, from the outermost on."""
    parallel: int
    """How many of them are those of the launch."""
    text: tuple[int, ...]

    @property
    def before(self) -> int:
        """Words before the elements."""
        return HEAD + len(self.loops) + 2 * len(self.shape)

    @property
    def size(self) -> int:
        """Words of a record."""
        return self.before + (2 if self.kind == "assert" else prod(self.shape))

    def as_attribute(self) -> tuple[Any, ...]:
        """The site as the kernel lists it."""
        return (
            self.kind, self.line, self.dtype, self.shape, self.loops, self.parallel, self.text,
        )  # fmt: skip


def site_number(kernel: Kernel, place: int) -> int:
    """The word that names the ``place``-th site of a kernel; never 0."""
    launch = int(kernel.attributes.get("launch", ("", 1, 1))[1])
    return launch * _SITES_OF_A_LAUNCH + place


def sites_of(kernels: Sequence[Kernel]) -> dict[int, Site]:
    """All sites of the launches of one kernel, by number."""
    return dict(_sites(kernels))


def _sites(kernels: Sequence[Kernel]) -> Iterator[tuple[int, Site]]:
    for kernel in kernels:
        for place, item in enumerate(kernel.attributes.get("checks", ())):
            kind, line, dtype, shape, loops, parallel, text = item
            found = DTYPES[str(dtype)] if not isinstance(dtype, DType) else dtype
            names = tuple(map(str, loops))
            yield (
                site_number(kernel, place),
                Site(str(kind), line, found, tuple(shape), names, parallel, tuple(text)),
            )


def launch_of(number: int) -> int:
    """Which launch a site belongs to, from 1 on."""
    return number // _SITES_OF_A_LAUNCH


# --- where a site stands --------------------------------------------------------------------------

UNNAMED = "_"
"""The name of an index that messages do not mention."""


@dataclass(frozen=True)
class Around:
    """The loops with an index around an op, from the outermost on: names and indices."""

    names: tuple[str, ...]
    indices: tuple[Value[Any], ...]
    parallel: int
    """How many of them are those of the launch."""


def loops_around(region: Region, op: Op) -> Around:
    """The loops that an op stands in."""
    loops = _path(region, op) or []
    names, indices, parallel = [], [], 0
    for loop, body in loops:
        args = body.args if isinstance(loop, tile.Parallel) else body.args[:1]
        # A tile of a range has another index of its own, which the values have.
        cut = {inner.index for inner in body.ops if isinstance(inner, tile.Within)}
        names += [UNNAMED if arg in cut or not arg.name else arg.name for arg in args]
        indices += args
        parallel += len(args) if isinstance(loop, tile.Parallel) else 0
    return Around(tuple(names), tuple(indices), parallel)


def _path(region: Region, op: Op) -> list[tuple[Op, Region]] | None:
    for here in region.ops:
        if here is op:
            return []
        for nested in here.regions:
            inner = _path(nested, op)
            if inner is not None:
                loops = isinstance(here, tile.Parallel | tile.ForTiles | flow.For)
                return [(here, nested), *inner] if loops else inner
    return None
