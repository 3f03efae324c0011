"""Branches, ends, votes, shuffles and the barriers of a CTA (PTX ISA 9.7.12, 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulator.cta import Cta
from tilec.emulator.gang import WARP
from tilec.emulator.order import Box, order_of
from tilec.emulator.program import Instruction, Pair, Symbol
from tilec.emulator.table import EXIT, Bind, Block, Result, Step, lanes_of, row, where

# --- branches ------------------------------------------------------------------------------------


@row("bra")
def _bra(bind: Bind) -> Step:
    label = bind.operands[0]
    if not isinstance(label, Symbol) or label.name not in bind.program.labels:
        raise bind.fail("there is no such label")
    target = bind.program.labels[label.name]
    if bind.at.guard is None:
        return lambda g: target
    guard, negated = bind.read(bind.at.guard, "pred"), bind.at.guard_negated
    meets = bind.machine.meets

    def run(g: Any) -> Result:
        taken = guard(g)
        taken = ~taken if negated else taken
        g.diverge(taken, target, meets[bind.number])
        here: int = g.pc
        return here

    return run


@row("ret", "exit")
def _ret(bind: Bind) -> Step:
    return lambda g: EXIT


@row("trap")
def _trap(bind: Bind) -> Step:
    at = bind.at

    def run(g: Any) -> Result:
        g.cta.machine.findings.add("trap", at, "a trap was reached", where=where(g))
        return EXIT

    return run


@row("nanosleep", "griddepcontrol", "pragma", "prefetch", "discard", "applypriority")
def _nothing(bind: Bind) -> Step:
    return lambda g: None


# --- inside a warp -------------------------------------------------------------------------------


@row("shfl.sync")
def _shfl(bind: Bind) -> Step:
    """PTX ISA 9.7.9.6: lane ``j`` of the segment that the clamp operand describes."""
    mode = bind.at.parts[2]
    target, value, by, clamp, _members = bind.operands
    inside = bind.write(target.second, "pred") if isinstance(target, Pair) else None
    write = bind.write(target.first if isinstance(target, Pair) else target, "b32")
    read = bind.read(value, "b32")
    distance, limits = bind.read(by, "u32"), bind.read(clamp, "u32")

    def run(g: Any) -> None:
        lane = (np.arange(g.lanes) % WARP).astype(np.int64)
        b = lanes_of(distance(g), g).astype(np.int64)
        c = lanes_of(limits(g), g).astype(np.int64)
        segment, bound = (c >> 8) & 31, c & 31
        most = (lane & segment) | (bound & ~segment)
        least = lane & segment
        if mode == "up":
            source, good = lane - b, lane - b >= most
        elif mode == "down":
            source, good = lane + b, lane + b <= most
        elif mode == "bfly":
            source, good = lane ^ b, (lane ^ b) <= most
        else:
            source = least | (b & ~segment)
            good = source <= most
        source = np.where(good, source, lane)
        base = np.arange(g.lanes) // WARP * WARP
        write(g, lanes_of(read(g), g)[base + source])
        if inside is not None:
            inside(g, good)

    return run


@row("vote.sync")
def _vote(bind: Bind) -> Step:
    mode = bind.at.parts[2]
    target, source, _members = bind.operands
    write = bind.write(target, "b32" if mode == "ballot" else "pred")
    read = bind.read(source, "pred")

    def run(g: Any) -> None:
        held = (lanes_of(read(g), g) & g.active()).reshape(-1, WARP)
        here = g.active().reshape(-1, WARP)
        if mode == "ballot":
            bits = (held.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(axis=1)
            write(g, np.repeat(bits.astype(np.uint32), WARP))
            return
        every = (held == here).all(axis=1)
        found = {"any": held.any(axis=1), "all": every, "uni": every | ~held.any(axis=1)}[mode]
        write(g, np.repeat(found, WARP))

    return run


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


@row("redux.sync")
def _redux(bind: Bind) -> Step:
    combine = _REDUCTIONS[bind.at.parts[2]]
    type = bind.types()[-1]
    target, source, _members = bind.operands
    write, read = bind.write(target, type), bind.read(source, type)

    def run(g: Any) -> None:
        values = lanes_of(read(g), g).reshape(-1, WARP)
        found = combine.reduce(values, axis=1, dtype=values.dtype)  # type: ignore[attr-defined]
        write(g, np.repeat(found, WARP))

    return run


@row("elect.sync")
def _elect(bind: Bind) -> Step:
    """The lowest active lane of each warp (any would do)."""
    target = bind.operands[0]
    if not isinstance(target, Pair):
        raise bind.fail("a destination d|p is needed")
    leader, write = bind.write(target.first, "b32"), bind.write(target.second, "pred")

    def run(g: Any) -> None:
        here = g.active().reshape(-1, WARP)
        first = here.argmax(axis=1)
        leader(g, np.repeat(first.astype(np.uint32), WARP))
        write(g, (np.arange(WARP) == first[:, None]).reshape(-1))

    return run


@row("bar.warp.sync", effect="orders")
def _warp_sync(bind: Bind) -> Step:
    return lambda g: None


# --- barriers of the CTA -------------------------------------------------------------------------


@dataclass
class Barrier:
    """A named barrier: who has come in this round, and how many rounds there were."""

    told: Box
    """What those of the running round told it."""
    over: Box
    rounds: int = 0
    expected: int = 0
    came: dict[int, Instruction] = field(default_factory=dict)
    """Warps of this round and the instruction that brought them."""
    count: int = 0
    users: dict[int, Instruction] = field(default_factory=dict)
    """Warps that have ever come, and where."""


def barriers(cta: Cta) -> dict[int, Barrier]:
    """The sixteen named barriers of a CTA."""
    found: dict[int, Barrier] = cta.keep("barriers", _sixteen)
    return found


def _sixteen(cta: Cta) -> dict[int, Barrier]:
    return {n: Barrier(Box.empty(cta.warps), Box.empty(cta.warps)) for n in range(16)}


def _uniform(bind: Bind, value: Any, g: Any, what: str) -> int:
    chosen = lanes_of(value, g)[g.active()]
    if len(set(chosen.tolist())) > 1:
        g.cta.machine.findings.add(
            "divergent-aligned",
            bind.at,
            f"{what} differs between the lanes of a warp",
            where=where(g),
        )
    return int(chosen[0])


def arrive(bind: Bind, g: Any, number: int, expected: int) -> tuple[Barrier, int]:
    """The gang's active warps come to a barrier; the barrier and the round that they are in."""
    barrier = barriers(g.cta)[number]
    here = g.active().reshape(-1, WARP)
    partly = here.any(axis=1) & ~here.all(axis=1)
    if partly.any() and g.cta.threads % WARP == 0:
        g.cta.machine.findings.add(
            "divergent-aligned",
            bind.at,
            f"{bind.at.opcode} is reached by some lanes of a warp only",
            missing="all lanes of the warp at this instruction",
            where=where(g),
        )
    if barrier.came and barrier.expected != expected:
        g.cta.machine.findings.add(
            "barrier-count",
            bind.at,
            f"barrier {number} expects {barrier.expected} threads and {expected} are named here",
            other=next(iter(barrier.came.values())),
            where=where(g),
        )
    if expected % WARP or not expected:
        g.cta.machine.findings.add(
            "barrier-count",
            bind.at,
            f"barrier {number} with {expected} threads, no multiple of {WARP}",
            where=where(g),
        )
    barrier.expected = expected
    round_ = barrier.rounds
    for warp in g.active_warps():
        barrier.came[warp] = barrier.users[warp] = bind.at
        barrier.count += WARP
    order_of(g.cta).release(g.active_warps(), barrier.told)
    if barrier.count > expected:
        g.cta.machine.findings.add(
            "barrier-count",
            bind.at,
            f"{barrier.count} threads come to barrier {number}, which expects {expected}",
            other=next(iter(barrier.came.values())),
            where=where(g),
        )
    if barrier.count >= expected:
        barrier.over.take(barrier.told)
        barrier.told = Box.empty(g.cta.warps)
        barrier.rounds, barrier.count = barrier.rounds + 1, 0
        barrier.came = {}
    return barrier, round_


def _expected(bind: Bind) -> Callable[[Any], int]:
    operands = bind.operands
    if len(operands) > 1:
        count = bind.read(operands[1], "u32")
        return lambda g: _uniform(bind, count(g), g, "the number of threads")
    return lambda g: int(g.cta.warps * WARP)


@row("bar.sync", "barrier.sync", "barrier.cta.sync", effect="orders")
def _bar_sync(bind: Bind) -> Step:
    which = bind.read(bind.operands[0], "u32")
    expected = _expected(bind)
    at = bind.at

    def run(g: Any) -> Result:
        state = g.owners.get(("bar", id(at)))
        if state is None:
            g.split(lanes_of(which(g), g))
            number = _uniform(bind, which(g), g, "the barrier's number")
            barrier, round_ = arrive(bind, g, number, expected(g))
        else:
            barrier, round_, number = state
        if barrier.rounds > round_:
            g.owners.pop(("bar", id(at)), None)
            if g.cta.machine.recorder is not None:
                g.cta.machine.recorder.meets(g.active_warps(), barrier, number, round_, True)
            order_of(g.cta).acquire(g.active_warps(), barrier.over)
            return None
        g.owners[("bar", id(at))] = (barrier, round_, number)
        return Block(
            f"barrier {number}: {barrier.count} of {barrier.expected} threads have come",
            lambda: barrier.rounds > round_,
            ("bar", number),
        )

    return run


@row("bar.arrive", "barrier.arrive", "barrier.cta.arrive", effect="orders")
def _bar_arrive(bind: Bind) -> Step:
    which = bind.read(bind.operands[0], "u32")
    expected = _expected(bind)

    def run(g: Any) -> None:
        g.split(lanes_of(which(g), g))
        number = _uniform(bind, which(g), g, "the barrier's number")
        barrier, round_ = arrive(bind, g, number, expected(g))
        if g.cta.machine.recorder is not None:
            g.cta.machine.recorder.meets(g.active_warps(), barrier, number, round_, False)

    return run
