"""What ``assert`` and ``print`` of a compiled kernel said: the check buffer, read after a call.

The words are what the kernel wrote (``ir.checks``), whoever ran it. Prints come out launch after
launch, tile after tile in the order of the parallel loop, and within a tile in the order in which
they were written; parts of one value that groups of warps hold are put together again. What fails
leaves as one ``AssertFails`` that names the first element. What had no room is said to be missing.

Never: touches a GPU, or keeps anything from call to call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.compiler import at_line
from tilec.interp.looking import AssertError, failed, loops_at, printed, text_of
from tilec.interp.numbers import carrier
from tilec.ir.checks import (
    FIRST,
    FLOATS,
    HEAD,
    PARTS,
    RESERVED,
    WORDS,
    Part,
    Site,
    launch_of,
    sites_of,
)
from tilec.ir.core import Kernel, Module
from tilec.runtime.specialise import LaunchError

_LABEL = "does not hold"

Words = npt.NDArray[Any]


class AssertFails(LaunchError, AssertionError):
    """An ``assert`` of a kernel does not hold; the kernel ran to its end all the same."""


@dataclass(frozen=True)
class _Record:
    """One record as it was written."""

    place: int
    number: int
    site: Site
    group: int
    loops: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    """Of the group's part: the index of its first element along each axis, and where that ends."""
    data: Words

    @property
    def counts(self) -> tuple[int, ...]:
        """How many elements exist along each axis."""
        return tuple(
            max(min(size, end - first), 0)
            for size, (first, end) in zip(self.site.shape, self.spans, strict=True)
        )


@dataclass(frozen=True)
class _Failure:
    """What one record says of an assertion; its order is that of ``order``."""

    order: tuple[Any, ...]
    site: Site
    loops: tuple[int, ...]
    element: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Said:
    """What one call reported."""

    texts: tuple[str, ...] = ()
    """Of the prints, in order, each with its line's end."""
    failures: tuple[_Failure, ...] = ()
    """In order: the first one is what an error speaks of."""
    unprinted: int = 0
    """Records of prints that the buffer had no room for."""
    unnamed: int = 0
    """Records of assertions that fail, and that the buffer had no room for."""


def used_words(name: str, counts: Words) -> list[slice]:
    """What has been written of a block, by the counts at the head of ``WORDS``."""
    if name == FLOATS:
        return [PARTS["print"].used(counts)]
    return [slice(0, RESERVED), *(part.used(counts) for part in PARTS.values())]


def read_checks(kernels: Sequence[Kernel], blocks: Mapping[str, Words]) -> Said:
    """What the blocks say, of which the ``used_words`` are needed."""
    if WORDS not in blocks:
        return Said()
    sites, words = sites_of(kernels), blocks[WORDS]
    shown, failing = (
        list(_records(sites, PARTS[kind], words, blocks.get(FLOATS)))
        for kind in ("print", "assert")
    )
    return Said(
        tuple(_prints(shown)),
        tuple(sorted(map(_failure, failing), key=_order)),
        int(words[PARTS["print"].records]) - len(shown),
        int(words[PARTS["assert"].records]) - len(failing),
    )


def _order(failure: _Failure) -> tuple[Any, ...]:
    return failure.order


def _records(
    sites: Mapping[int, Site], part: Part, words: Words, floats: Words | None
) -> Iterator[_Record]:
    """The records of a part in the order in which they were claimed, as far as they had room."""
    used = part.used(words)
    place = used.start
    while place < used.stop:
        number = int(words[place])
        if number == 0:  # of a record that did not fit, and had only the end of the part for itself
            return
        site = sites[number]
        head = [int(word) for word in words[place + 1 : place + site.before]]
        loops, spans = (
            head[HEAD - 1 : HEAD - 1 + len(site.loops)],
            head[HEAD - 1 + len(site.loops) :],
        )
        block = floats if site.kind == "print" and site.dtype.is_float else words
        assert block is not None
        yield _Record(
            place, number, site, head[0], tuple(loops),
            tuple(zip(spans[::2], spans[1::2], strict=True)),
            block[place + site.before : place + site.size],
        )  # fmt: skip
        place += site.size


# --- prints ---------------------------------------------------------------------------------------


def _prints(records: Sequence[_Record]) -> list[str]:
    """The texts: parts of groups are one, and the order does not depend on which CTA was first."""
    found: dict[tuple[Any, ...], list[_Record]] = {}
    seen: dict[tuple[Any, ...], int] = {}
    for record in records:
        own = (record.number, record.loops, record.group)
        seen[own] = seen.get(own, 0) + 1
        found.setdefault((record.number, record.loops, seen[own]), []).append(record)
    parts = [sorted(some, key=lambda r: r.group) for some in found.values()]
    parts.sort(key=lambda some: (_tile(some[0]), some[0].group, some[0].place))
    return [text for some in parts for text in _texts(some)]


def _tile(record: _Record) -> tuple[int, ...]:
    """The launch, and the place in its parallel loop."""
    return launch_of(record.number), *record.loops[: record.site.parallel]


def _texts(parts: Sequence[_Record]) -> Iterator[str]:
    """One print, of the parts that groups hold; several texts where the buffer had no room."""
    site = parts[0].site
    there = [part for part in parts if all(part.counts)] or [parts[0]]
    starts = [[first for first, _ in part.spans] for part in there]
    axis = next((n for n in range(len(site.shape)) if len({s[n] for s in starts}) > 1), 0)
    runs: list[list[_Record]] = []
    for part in sorted(there, key=lambda part: part.spans):
        last = runs[-1][-1] if runs else None
        if last is None or last.spans[axis][0] + last.counts[axis] != part.spans[axis][0]:
            runs.append([])
        runs[-1].append(part)
    for run in runs:
        pieces = [p.data.reshape(site.shape)[tuple(slice(n) for n in p.counts)] for p in run]
        data = np.concatenate(pieces, axis) if site.shape else pieces[0]
        first = [low for low, _ in run[0].spans]
        ranges = [(low, low + n) for low, n in zip(first, data.shape, strict=True)]
        yield printed(text_of(site.text), ranges, data.astype(carrier(site.dtype)))


# --- assertions -----------------------------------------------------------------------------------


def _failure(record: _Record) -> _Failure:
    site = record.site
    place, count = FIRST - int(record.data[0]), int(record.data[1])
    within = np.unravel_index(place, site.shape) if site.shape else ()
    element = tuple(first + int(at) for (first, _), at in zip(record.spans, within, strict=True))
    order = (_tile(record), record.loops, site.line, element)
    return _Failure(order, site, record.loops, element, count)


def at_assertion(error: AssertError, module: Module) -> AssertFails:
    """What the interpreter says of an assertion, at its line."""
    labels = at_line(module, error.line, _LABEL)
    return AssertFails(error.message, code="assert-fails", labels=labels)


def tell(said: Said, module: Module) -> None:
    """Print what was printed, and raise ``AssertFails`` if an assertion does not hold."""
    sys.stdout.write("".join(said.texts))
    if said.unprinted:
        sys.stdout.write(f"({_without_room(said.unprinted, 'print')})\n")
    if said.failures:
        raise assert_fails(said, module)


def _without_room(records: int, kind: str) -> str:
    many = f"{records} records" if records > 1 else "one record"
    room = f"the buffer's {PARTS[kind].size} words for what `{kind}` says"
    return f"{many} more had no room in {room}"


def assert_fails(said: Said, module: Module) -> AssertFails:
    """The error about the first element at which an assertion does not hold."""
    first = said.failures[0]
    line = first.site.line
    same = [f for f in said.failures if f.site.line == line and f.site.text == first.site.text]
    beside = "" if first.site.shape else loops_at(first.site.loops, first.loops)
    more = sum(f.count for f in same) - 1
    notes = [
        f"line {other}: another assertion fails as well"
        for other in sorted({f.site.line for f in said.failures} - {line})
    ]
    if said.unnamed:
        missing = _without_room(said.unnamed, "assert")
        notes.append(f"{missing}: elements that come before may be among them, and are not counted")
    return AssertFails(
        failed(text_of(first.site.text), first.element, more, beside),
        code="assert-fails",
        labels=at_line(module, line, _LABEL),
        notes=notes,
    )
