"""Races in global memory, between CTAs and inside one.

Of each byte the last write is kept and the last two readers that differ, each packed into one
number. What orders two accesses: inside a CTA its clocks, between CTAs only what atomics and fences
hand over (PTX ISA 8.8: a release pattern, an acquire pattern, and an access of one that reads what
the other wrote). CTAs run one after another here; that one ran first orders nothing. Launches do:
each has a shadow of its own.

Known gap: of three readers that nothing orders before a write, the middle one may go unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.emulator.order import Box, Order, learn_of, order_of
from tilec.emulator.program import Instruction
from tilec.emulator.shadow import Party

Index = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint64]
_LINE, _EPOCH, _WARP, _CTA = 0, 17, 37, 43
"""First bits of the fields of a packed access; the last bit says that it was atomic."""
_ATOMIC = 1 << 63
_WORK = 63
"""In place of a warp: a piece of work, whose number stands for the epoch."""
_STRONG = frozenset(("atom", "red", "relaxed", "acquire", "release", "acq_rel", "volatile"))
_WHO = ((1 << 63) - 1) >> _WARP << _WARP


@dataclass(frozen=True)
class Access:
    """Who touched a byte."""

    cta: int
    warp: int
    epoch: int
    line: int
    atomic: bool = False

    def code(self) -> int:
        """Packed; never 0."""
        fields = (self.line & 0x1FFFF) << _LINE | (self.epoch & 0xFFFFF) << _EPOCH
        fields |= self.warp << _WARP | ((self.cta + 1) & 0xFFFFF) << _CTA
        return fields | (_ATOMIC if self.atomic else 0)

    @staticmethod
    def of(code: int) -> Access:
        """Unpacked."""
        return Access(
            (code >> _CTA & 0xFFFFF) - 1,
            code >> _WARP & 63,
            code >> _EPOCH & 0xFFFFF,
            code >> _LINE & 0x1FFFF,
            bool(code & _ATOMIC),
        )


@dataclass
class _Bytes:
    """What is known of one buffer."""

    writes: Codes
    reads: Codes
    before: Codes
    """The last reader that is not the last one."""


@dataclass
class Arrays:
    """The global memory of a launch."""

    ctas: int = 0
    """How many have a number."""
    buffers: dict[int, _Bytes] = field(default_factory=dict)
    works: list[Party] = field(default_factory=list)
    flags: dict[int, Box] = field(default_factory=dict)
    """What was released at an address; ``others`` holds it."""
    fenced: dict[tuple[int, int], dict[int, Box]] = field(default_factory=dict)
    """What a warp had done when it came to its last fence."""
    heard: dict[tuple[int, int], dict[int, Box]] = field(default_factory=dict)
    """What a warp has read of flags and its next fence makes it know."""

    def number(self, cta: Any) -> int:
        """A CTA's number."""
        return int(cta.keep("number", lambda _: self._next()))

    def _next(self) -> int:
        self.ctas += 1
        return self.ctas - 1

    def _bytes(self, buffer: Any) -> _Bytes:
        found = self.buffers.get(buffer.address)
        if found is None:
            made = (np.zeros(len(buffer.data), np.uint64) for _ in range(3))
            found = self.buffers[buffer.address] = _Bytes(*made)
        return found

    # --- accesses ------------------------------------------------------------------------------

    def touch(
        self, cta: Any, buffer: Any, index: Index, by: Access, knows: Box, *, writes: bool
    ) -> tuple[Access, str] | None:
        """Somebody touches bytes; the access that nothing orders before, if there is one."""
        kept = self._bytes(buffer)
        found = self._unordered(kept.writes[index], by, knows, "write")
        if writes:
            found = (
                found
                or self._unordered(kept.reads[index], by, knows, "read")
                or self._unordered(kept.before[index], by, knows, "read")
            )
            kept.writes[index] = by.code()
            return found
        code = np.uint64(by.code())
        old = kept.reads[index]
        differs = ((old ^ code) & np.uint64(_WHO) != 0) & (old != 0)
        if differs.any():
            kept.before[index[differs]] = old[differs]
        kept.reads[index] = code
        return found

    def _unordered(
        self, codes: Codes, by: Access, knows: Box, kind: str
    ) -> tuple[Access, str] | None:
        if not codes.any():
            return None
        for code in np.unique(codes).tolist():
            if not code:
                continue
            other = Access.of(code)
            if not (other.atomic and by.atomic) and not self._ordered(other, by, knows):
                return other, kind
        return None

    def _ordered(self, other: Access, by: Access, knows: Box) -> bool:
        known = knows if other.cta == by.cta else knows.others.get(other.cta)
        if known is None:
            return False
        if other.warp == _WORK:
            return not self.works[other.epoch].bits & ~known.known
        mine = other.cta == by.cta and other.warp == by.warp
        clock = known.wide if by.warp == _WORK else known.clock
        return mine or other.epoch <= int(clock[other.warp])

    # --- hand-over between CTAs ------------------------------------------------------------------

    def fence(self, cta: Any, warps: list[int]) -> None:
        """A fence that orders what comes before it with strong accesses after it, and back."""
        order, number = order_of(cta), self.number(cta)
        for warp in warps:
            learn_of(order.others[warp], self.heard.pop((number, warp), {}))
            self.fenced[(number, warp)] = self._all_of(order, number, warp)

    def strong(
        self, cta: Any, at: Instruction, warp: int, addresses: set[int], reads: bool
    ) -> None:
        """A strong access: it hands over what was released at its address, and adds to it."""
        order, number = order_of(cta), self.number(cta)
        parts = set(at.parts)
        me = (number, warp)
        if at.parts[0] in ("atom", "red", "st"):
            tells = self.fenced.get(me, {})
            if parts & {"release", "acq_rel"}:
                tells = self._all_of(order, number, warp)
            for address in addresses if tells else ():
                flag = self.flags.setdefault(address, Box.empty(order.warps))
                learn_of(flag.others, tells)
        if reads:
            for address in addresses & self.flags.keys():
                learn_of(self.heard.setdefault(me, {}), self.flags[address].others)
            if parts & {"acquire", "acq_rel"}:
                learn_of(order.others[warp], self.heard.pop(me, {}))

    @staticmethod
    def _all_of(order: Order, number: int, warp: int) -> dict[int, Box]:
        box = Box.empty(order.warps)
        order.release([warp], box)
        return {**box.others, number: box}


def arrays_of(machine: Any) -> Arrays:
    """What is known of a launch's global memory."""
    found: Arrays = machine.keep("arrays", lambda _: Arrays())
    return found


class GlobalRaces:
    """Watches the accesses of threads to global memory."""

    def accessed(
        self,
        at: Instruction,
        g: Any,
        space: str,
        buffer: Any,
        offsets: Any,
        width: int,
        lanes: Any,
        writes: bool,
        rows: Any = None,
    ) -> None:
        """Check each warp's part of an access."""
        if space != "global":
            return
        arrays = arrays_of(g.cta.machine)
        atomic = not _STRONG.isdisjoint(at.parts)
        for _, warp, picked in g.by_warp(offsets, lanes):
            if atomic:
                places = {buffer.address + int(p) for p in picked}
                arrays.strong(g.cta, at, warp, places, at.parts[0] != "st")
            thread_access(g.cta, at, warp, buffer, picked, width, writes=writes, atomic=atomic)


def thread_access(
    cta: Any,
    at: Instruction,
    warp: int,
    buffer: Any,
    offsets: Any,
    width: int,
    *,
    writes: bool,
    atomic: bool = False,
) -> None:
    """Lanes of a warp touch an array."""
    arrays, order = arrays_of(cta.machine), order_of(cta)
    by = Access(arrays.number(cta), warp, int(order.clock[warp, warp]), at.line, atomic)
    knows = Box(
        order.clock[warp], order.proxy[warp], order.wide[warp], order.known[warp],
        order.others[warp],
    )  # fmt: skip
    index = (offsets[:, None] + np.arange(width)).reshape(-1)
    found = arrays.touch(cta, buffer, index, by, knows, writes=writes)
    if found is not None:
        _tell(cta, at, buffer, found, "writes" if writes else "reads", f"warp {warp}")


def work_access(
    cta: Any,
    party: Party,
    buffer: Any,
    index: Index,
    *,
    writes: bool,
    bits: int = 0,
    atomic: bool = False,
) -> None:
    """A copy of the async proxy touches an array; ``bits`` say that this part of it is done."""
    arrays = arrays_of(cta.machine)
    if cta.machine.recorder is not None:
        cta.machine.recorder.moves(party, buffer, index, writes)
    held = party if not bits else Party(party.at, bits, party.start, party.what, party.waits)
    arrays.works.append(held)
    by = Access(arrays.number(cta), _WORK, len(arrays.works) - 1, party.at.line, atomic)
    found = arrays.touch(cta, buffer, index, by, party.start, writes=writes)
    if found is not None:
        _tell(cta, party.at, buffer, found, "writes" if writes else "reads", party.what)


def _tell(
    cta: Any, at: Instruction, buffer: Any, found: tuple[Access, str], does: str, who: str
) -> None:
    other, kind = found
    machine = cta.machine
    arrays = arrays_of(machine)
    before = next((i for i in machine.program.instructions if i.line == other.line), None)
    same = other.cta == arrays.number(cta)
    if other.warp == _WORK and same:
        work = arrays.works[other.epoch]
        machine.findings.add(
            "unfinished-work",
            at,
            f"{who} {does} {buffer.name}, which {work.what} of line {other.line} {kind}s, and does "
            "not know that it is done",
            other=before,
            missing="a cp.async.bulk.wait_group (without .read) by the thread that issued it, and "
            "a barrier after it" if kind == "write" else work.waits,
            where=f"CTA {cta.index}",
        )  # fmt: skip
        return
    missing = "a barrier between the two"
    if not same:
        missing = "a release by one CTA after its access and an acquire by the other before its"
    machine.findings.add(
        "data-race",
        at,
        f"{who} {does} {buffer.name}, which line {other.line} {kind}s "
        + ("in the same CTA" if same else "in another CTA")
        + ", in no order",
        other=before,
        missing=missing,
        where=f"CTA {cta.index}",
    )
