"""CTAs of a cluster: their shared windows, their barrier, and what crosses from one to another.

An address of the cluster (``mapa``) has the rank of its CTA, plus one, above the offset bits; a
plain shared address means the own CTA. What one CTA tells another is said in the frame of the one
that learns it: its own warps come first, all others stand under ``others`` (``foreign``).

A CTA may end only when it knows that nobody will touch its memory any more: each access from
outside is kept, and has to come before the last of its warps ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulator.arrays import arrays_of
from tilec.emulator.cta import Cta
from tilec.emulator.gang import WARP
from tilec.emulator.memory import WINDOW_BITS
from tilec.emulator.order import Box, learn_of, order_of
from tilec.emulator.program import Instruction
from tilec.emulator.shadow import GRANULE, shadow_of, tell
from tilec.emulator.table import Bind, where


@dataclass(eq=False)
class Cluster:
    """CTAs that run together, and the barrier of all their threads."""

    shape: tuple[int, int, int]
    ctas: list[Cta] = field(default_factory=list)
    rounds: int = 0
    count: int = 0
    """Threads that have come in this round."""
    came: dict[tuple[int, int], Instruction] = field(default_factory=dict)
    """Rank and warp of those of this round."""
    round_of: dict[tuple[int, int], int] = field(default_factory=dict)
    """For each warp that arrived and has not waited yet, its round."""
    told: dict[int, Box] = field(default_factory=dict)
    over: dict[int, Box] = field(default_factory=dict)
    """By numbers of CTAs: what the running round and all rounds before were told."""

    @property
    def threads(self) -> int:
        """Threads of all CTAs."""
        return sum(cta.threads for cta in self.ctas)

    def settle(self) -> None:
        """End the round when all threads have come that are left."""
        left = sum(cta.threads - cta.exited for cta in self.ctas)
        if self.count and self.count >= left:
            learn_of(self.over, self.told)
            self.told, self.count, self.came = {}, 0, {}
            self.rounds += 1


@dataclass(frozen=True)
class Visit:
    """An access to a CTA's shared memory or barriers by another CTA of its cluster."""

    at: Instruction
    what: str
    number: int
    """The visiting CTA."""
    warp: int = 0
    epoch: int = 0
    bits: int = 0
    """Of a piece of work, in the frame of the CTA that is visited."""


def visits(cta: Cta) -> dict[tuple[int, int, int], Visit]:
    """The last access of each kind from outside."""
    found: dict[tuple[int, int, int], Visit] = cta.keep("visits", lambda _: {})
    return found


def number_of(cta: Cta) -> int:
    """The number of a CTA in what CTAs know of each other."""
    return arrays_of(cta.machine).number(cta)


def foreign(teller: Cta, box: Box, learner: Cta) -> Box:
    """What a box of one CTA says, in the frame of another."""
    if teller is learner:
        return box
    number, own = number_of(learner), Box(box.clock, box.proxy, box.wide, box.known)
    made = Box.empty(teller.warps)
    learn_of(made.others, {number_of(teller): own})
    learn_of(made.others, {n: b for n, b in box.others.items() if n != number})
    if number in box.others:
        made.take(Box(*_parts(box.others[number])))
    return made


def _parts(box: Box) -> tuple[Any, Any, Any, int]:
    return box.clock, box.proxy, box.wide, box.known


# --- addresses ----------------------------------------------------------------------------------


def mapped(offset: int, rank: int) -> int:
    """The address of the cluster for a place in a CTA's window."""
    return (rank + 1) << WINDOW_BITS | offset


def owner_of(bind: Bind, g: Any, address: int) -> tuple[Cta | None, int]:
    """The CTA that an address means, and the offset in its window; None, with a finding, if none.

    A CTA that has ended is a finding as well.
    """
    rank, offset = (address >> WINDOW_BITS) - 1, address & ((1 << WINDOW_BITS) - 1)
    if rank < 0:
        return g.cta, address
    ctas = g.cta.cluster.ctas
    if rank >= len(ctas) or "shared::cluster" not in bind.at.parts:
        told = (
            f"rank {rank} of a cluster of {len(ctas)} CTAs"
            if rank >= len(ctas)
            else "another window than .shared::cta"
        )
        g.cta.machine.findings.add(
            "cluster-rank", bind.at, f"the address {address:#x} means {told}", where=where(g)
        )
        return None, offset
    if ctas[rank] is not g.cta:
        check_alive(bind, g, ctas[rank], "accesses")
    return ctas[rank], offset


def check_alive(bind: Bind, g: Any, other: Cta, does: str) -> None:
    """A CTA that others still use has not ended."""
    if other.finished:
        g.cta.machine.findings.add(
            "peer-ended",
            bind.at,
            f"{where(g)} {does} shared memory of CTA {other.index}, which has ended",
            where=where(g),
        )


def note_visit(g: Any, bind: Bind, warp: int, other: Cta, what: str) -> None:
    """A warp touches another CTA: that one may end only after this."""
    if other is not g.cta:
        number, epoch = number_of(g.cta), int(order_of(g.cta).clock[warp, warp])
        key = (number, warp, bind.at.line)
        visits(other)[key] = Visit(bind.at, what, number, warp, epoch)


def visited(
    bind: Bind, g: Any, addresses: Any, width: int, lanes: Any, *, writes: bool
) -> Iterator[tuple[Cta, Any, Any]]:
    """Each other CTA that lanes access, those lanes, and the offsets in its window.

    What may not be is a finding, and is left out.
    """
    windows, offsets = addresses >> WINDOW_BITS, addresses & ((1 << WINDOW_BITS) - 1)
    program = g.cta.machine.program
    size = program.static_shared + g.cta.machine.dynamic_shared
    for window in np.unique(windows[lanes & (windows > 0)]).tolist():
        which = lanes & (windows == window)
        owner, _ = owner_of(bind, g, int(addresses[int(np.argmax(which))]))
        if owner is None:
            continue
        outside = which & (offsets + width > size)
        if outside.any():
            g.cta.machine.findings.add(
                "out-of-bounds",
                bind.at,
                f"{int(outside.sum())} lanes access shared memory of CTA {owner.index} at "
                f"{int(offsets[int(np.argmax(outside))])}; a CTA has {size} bytes",
                where=where(g),
            )
            which = which & ~outside
        _visit(bind, g, owner, offsets, width, which, writes=writes)
        yield owner, which, offsets


def _visit(
    bind: Bind, g: Any, owner: Cta, offsets: Any, width: int, lanes: Any, *, writes: bool
) -> None:
    """Check what warps do in the memory of another CTA, and keep it."""
    index = offsets[lanes][:, None] + np.arange(width)
    if writes:
        owner.shared_written[index] = True
    elif not owner.shared_written[index].all():
        g.cta.machine.findings.add(
            "uninitialised-memory",
            bind.at,
            f"shared memory of CTA {owner.index} is read that nothing has written",
            missing="a write, and an order after it, on every way here",
            where=where(g),
        )
    order, number, shadow = order_of(g.cta), number_of(g.cta), shadow_of(owner)
    step = np.arange(0, max(width, GRANULE), GRANULE)
    for _, warp, picked in g.by_warp(offsets, lanes):
        granules = ((picked[:, None] + step) // GRANULE).reshape(-1)
        knows = foreign(g.cta, order.snapshot(warp), owner)
        me, epoch = (number, warp), int(order.clock[warp, warp])
        found = shadow.visit(me, epoch, knows, granules, bind.at.line, writes=writes)
        note_visit(g, bind, warp, owner, "the access")
        if found is not None:
            who = f"warp {warp} of CTA {g.cta.index}"
            tell(owner, bind.at, found, "writes" if writes else "reads", who)


def check_visits(cta: Cta) -> None:
    """The last warp of a CTA has ended: everything from outside has come before."""
    order = order_of(cta)
    known, clocks = 0, Box.empty(cta.warps)
    for warp in range(cta.warps):
        known |= order.known[warp]
        learn_of(clocks.others, order.others[warp])
    for visit in visits(cta).values():
        theirs = clocks.others.get(visit.number)
        ordered = theirs is not None and int(theirs.clock[visit.warp]) >= visit.epoch
        if visit.bits:
            ordered = not visit.bits & ~known
        if not ordered:
            cta.machine.findings.add(
                "peer-ended",
                visit.at,
                f"{visit.what} reaches CTA {cta.index}, and nothing orders it before the end of "
                "that CTA",
                where=f"CTA {cta.index}",
            )


# --- the barrier of the cluster -------------------------------------------------------------------


def come(bind: Bind, g: Any, *, tells: bool) -> None:
    """Warps arrive; what they did is handed over unless the arrival is relaxed."""
    cluster, order = g.cta.cluster, order_of(g.cta)
    number = number_of(g.cta)
    for warp in g.active_warps():
        me = (g.cta.rank, warp)
        if me in cluster.round_of:
            g.cta.machine.findings.add(
                "barrier-count",
                bind.at,
                f"warp {warp} arrives at the barrier of its cluster twice",
                other=cluster.came.get(me),
                missing="a barrier.cluster.wait between the two",
                where=where(g),
            )
            continue
        cluster.came[me], cluster.round_of[me] = bind.at, cluster.rounds
        cluster.count += WARP
        if tells:
            box = Box.empty(g.cta.warps)
            order.release([warp], box)
            learn_of(cluster.told, {**box.others, number: box})
    cluster.settle()


def round_to_wait_for(bind: Bind, g: Any) -> int | None:
    """The round that the gang's warps arrived in; None, with a finding, if they did not."""
    cluster = g.cta.cluster
    rounds = [cluster.round_of.get((g.cta.rank, warp)) for warp in g.active_warps()]
    if None in rounds:
        g.cta.machine.findings.add(
            "barrier-count",
            bind.at,
            "a wait at the barrier of the cluster by warps that have not arrived there",
            missing="a barrier.cluster.arrive before",
            where=where(g),
        )
        return None
    return int(max(r for r in rounds if r is not None))


def pass_barrier(g: Any) -> None:
    """Warps go on after the barrier; they know what all that came had done."""
    cluster, order = g.cta.cluster, order_of(g.cta)
    number = number_of(g.cta)
    others = {n: box for n, box in cluster.over.items() if n != number}
    for warp in g.active_warps():
        cluster.round_of.pop((g.cta.rank, warp), None)
        learn_of(order.others[warp], others)
        if number in cluster.over:
            order.acquire([warp], Box(*_parts(cluster.over[number])))
