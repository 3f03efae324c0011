"""mbarriers: objects in shared memory that count arrivals and bytes (PTX ISA 9.7.13.15).

A phase ends when all expected arrivals have come and all announced bytes have been delivered. A
wait for a parity blocks until the phase of that parity is over; what arrivals told the barrier,
those who pass the wait know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulator.arrays import arrays_of
from tilec.emulator.clusters import foreign, note_visit, number_of, owner_of
from tilec.emulator.cta import Cta
from tilec.emulator.instructions.memory import address_of
from tilec.emulator.order import Box, order_of
from tilec.emulator.program import Address, Instruction
from tilec.emulator.table import Bind, Block, Result, Step, lanes_of, row, where


@dataclass
class Mbarrier:
    """One barrier object."""

    address: int
    expected: int
    at: Instruction
    pending: int = 0
    bytes: int = 0
    """Bytes announced and not delivered."""
    phase: int = 0
    told: Box = None  # type: ignore[assignment]
    """What the arrivals of the running phase told it."""
    over: Box = None  # type: ignore[assignment]
    """What all phases that are over told it."""
    came: list[Instruction] = field(default_factory=list)
    maker: int = 0
    """The warp that initialised it."""
    made: int = 0
    """Its epoch then."""
    shown: int = 0
    """Its epoch at the fence that shows the barrier to the async proxy; 0 before that."""
    arrivers: dict[int, Instruction] = field(default_factory=dict)
    """The warps that have ever arrived, and where."""
    fillers: dict[int, Instruction] = field(default_factory=dict)
    """The warps whose transfers have ever signalled it."""
    announcer: Instruction | None = None
    """Who announced bytes last."""
    cta: Any = None
    """The CTA in whose shared memory it lies."""
    peers: dict[tuple[int, int], Instruction] = field(default_factory=dict)
    """Rank and warp of those in other CTAs that have ever arrived or filled, and where."""
    passed: dict[int, tuple[int, Instruction]] = field(default_factory=dict)
    """For each warp, the number of the phase that it last waited for, and where."""

    def state(self) -> str:
        """In words, for reports."""
        return (
            f"mbarrier at {self.address}: phase {self.phase}, {self.pending} of {self.expected} "
            f"arrivals missing, {self.bytes} bytes missing"
        )

    def settle(self, warps: int) -> None:
        """End the phase when nothing is missing."""
        if self.pending == 0 and self.bytes == 0:
            self.over.take(self.told)
            self.told = Box.empty(warps)
            self.phase += 1
            self.pending = self.expected
            self.came = []


def mbarriers(cta: Cta) -> dict[int, Mbarrier]:
    """The barriers of a CTA by address."""
    found: dict[int, Mbarrier] = cta.keep("mbarriers", lambda _: {})
    return found


def barrier_at(bind: Bind, g: Any, address: int) -> Mbarrier | None:
    """The barrier at an address; None, with a finding, where none was initialised."""
    owner, offset = owner_of(bind, g, address)
    return None if owner is None else barrier_in(bind, g, owner, offset)


def barrier_in(bind: Bind, g: Any, owner: Cta, offset: int) -> Mbarrier | None:
    """The same in the window of a CTA."""
    found = mbarriers(owner).get(offset)
    if found is None:
        of = "" if owner is g.cta else f" of CTA {owner.index}"
        g.cta.machine.findings.add(
            "uninitialised-barrier",
            bind.at,
            f"no mbarrier was initialised at shared address {offset}{of}",
            where=where(g),
        )
        return None
    _check_seen(bind, g, found)
    return found


def _check_seen(bind: Bind, g: Any, barrier: Mbarrier) -> None:
    """The initialisation comes before every use, and TMA needs a fence after it as well."""
    order = order_of(g.cta)
    if barrier.cta is g.cta:
        seen = {w: int(order.clock[w, barrier.maker]) for w in g.active_warps()}
    else:
        number = number_of(barrier.cta)
        told = {w: order.others[w].get(number) for w in g.active_warps()}
        seen = {w: 0 if b is None else int(b.clock[barrier.maker]) for w, b in told.items()}
    by_copy = bind.row.proxy == "async"
    needed = barrier.shown if by_copy else barrier.made
    unseen = [w for w in seen if seen[w] < needed]
    if not unseen and (barrier.shown or not by_copy):
        return
    who = "TMA" if by_copy else f"warp {unseen[0]}"
    of = "" if barrier.cta is g.cta else f" of CTA {barrier.cta.index}"
    g.cta.machine.findings.add(
        "barrier-init-unseen",
        bind.at,
        f"{who} uses the mbarrier at {barrier.address}{of}, whose initialisation at line "
        f"{barrier.at.line} is not ordered before",
        other=barrier.at,
        missing="" if not of else "a barrier of the cluster between the two",
        where=where(g),
    )


def deliver(cta: Cta, barrier: Mbarrier, count: int, box: Box) -> None:
    """Bytes have arrived (complete_tx), and what their transfer knows with them."""
    barrier.told.take(box)
    barrier.bytes -= count
    barrier.settle(cta.warps)


def _addresses(bind: Bind, operand: Any) -> Any:
    if not isinstance(operand, Address):
        raise bind.fail("an address in brackets is needed")
    return address_of(bind, operand)


@row("mbarrier.init", effect="orders", group="mbarrier")
def _init(bind: Bind) -> Step:
    place, count = bind.operands
    address, expected = _addresses(bind, place), bind.read(count, "u32")

    def run(g: Any) -> None:
        lane = int(np.argmax(g.active()))
        at = int(address(g)[lane])
        number = int(lanes_of(expected(g), g)[lane])
        found = mbarriers(g.cta)
        if at in found and (found[at].pending != found[at].expected or found[at].phase):
            g.cta.machine.findings.add(
                "barrier-in-use",
                bind.at,
                f"the mbarrier at {at} is initialised again while it is in use",
                other=found[at].at,
                where=where(g),
            )
        if at % 8:
            g.cta.machine.findings.add(
                "misaligned",
                bind.at,
                f"an mbarrier at {at}, which is no multiple of 8",
                where=where(g),
            )
        if number < 1:
            g.cta.machine.findings.add(
                "arrival-count",
                bind.at,
                f"an mbarrier that expects {number} arrivals",
                missing="at least one arrival",
                where=where(g),
            )
        warps = g.cta.warps
        made = Mbarrier(at, number, bind.at, number, told=Box.empty(warps), over=Box.empty(warps))
        made.cta = g.cta
        made.maker = int(g.warps[lane // 32])
        made.made = int(order_of(g.cta).clock[made.maker, made.maker])
        order_of(g.cta).release([made.maker], Box.empty(warps))
        found[at] = made
        g.cta.shared_written[at : at + 8] = True

    return run


@row("mbarrier.inval", effect="orders", group="mbarrier")
def _inval(bind: Bind) -> Step:
    address = _addresses(bind, bind.operands[0])

    def run(g: Any) -> None:
        for at in {int(a) for a in address(g)[g.active()]}:
            mbarriers(g.cta).pop(at, None)

    return run


@row("mbarrier.arrive", effect="orders", group="mbarrier")
def _arrive(bind: Bind) -> Step:
    """Each active lane arrives; ``.expect_tx`` announces bytes first, once a lane."""
    announces = "expect_tx" in bind.at.parts
    places = [o for o in bind.operands if isinstance(o, Address)]
    address = _addresses(bind, places[0] if places else bind.operands[-1])
    after = bind.operands.index(places[0]) + 1
    number = bind.read(bind.operands[after], "u32") if len(bind.operands) > after else None

    def run(g: Any) -> None:
        where_to, counts = address(g), None if number is None else lanes_of(number(g), g)
        order = order_of(g.cta)
        for lane in np.flatnonzero(g.active()).tolist():
            barrier = barrier_at(bind, g, int(where_to[lane]))
            if barrier is None:
                continue
            arrivals = 1
            if announces and counts is not None:
                barrier.bytes += int(counts[lane])
                barrier.announcer = bind.at
            elif counts is not None:
                arrivals = int(counts[lane])
            warp = int(g.warps[lane // 32])
            if barrier.cta is g.cta:
                barrier.arrivers[warp] = bind.at
            else:
                barrier.peers[g.cta.rank, warp] = bind.at
                note_visit(g, bind, warp, barrier.cta, "the arrival")
            if g.cta.machine.recorder is not None:
                g.cta.machine.recorder.arrives(warp, barrier)
            box = Box.empty(g.cta.warps)
            order.release([warp], box)
            barrier.told.take(foreign(g.cta, box, barrier.cta))
            arrive(bind, g, barrier, arrivals)

    return run


def arrive(bind: Bind, g: Any, barrier: Mbarrier, arrivals: int) -> None:
    """Arrivals come to a barrier; more than it expects in a phase are a finding."""
    if arrivals > barrier.pending:
        g.cta.machine.findings.add(
            "arrival-count",
            bind.at,
            f"{barrier.state()}; {arrivals} more come",
            other=barrier.at,
            missing=f"as many arrivals a phase as expected: {barrier.expected}",
            where=where(g),
        )
        return
    barrier.pending -= arrivals
    barrier.came.append(bind.at)
    barrier.settle(barrier.cta.warps)


@row("mbarrier.expect_tx", effect="orders", group="mbarrier")
def _expect(bind: Bind) -> Step:
    address, number = _addresses(bind, bind.operands[0]), bind.read(bind.operands[1], "u32")

    def run(g: Any) -> None:
        places, counts = address(g), lanes_of(number(g), g)
        for lane in np.flatnonzero(g.active()).tolist():
            barrier = barrier_at(bind, g, int(places[lane]))
            if barrier is not None:
                barrier.bytes += int(counts[lane])
                barrier.announcer = bind.at

    return run


@row("mbarrier.try_wait", "mbarrier.test_wait", effect="orders", group="mbarrier")
def _wait(bind: Bind) -> Step:
    """True once the phase of that parity is over; the gang is suspended until then."""
    if "parity" not in bind.at.parts:
        raise bind.fail("only waits for a parity are known")
    target, place, parity = bind.operands[:3]
    write = bind.write(target, "pred")
    address, wanted = _addresses(bind, place), bind.read(parity, "u32")

    def run(g: Any) -> Result:
        g.split(address(g) * 2 + lanes_of(wanted(g), g) % 2)
        active = g.active()
        lane = int(np.argmax(active))
        places, parities = address(g), lanes_of(wanted(g), g)
        if len(set(places[active].tolist())) > 1 or len(set(parities[active].tolist())) > 1:
            raise bind.fail("lanes that wait for different barriers are beyond the emulator")
        barrier = barrier_in(bind, g, g.cta, int(places[lane]))
        if barrier is None:
            write(g, np.bool_(True))
            return None
        bit = int(parities[lane]) & 1
        if barrier.phase & 1 == bit:
            return Block(
                f"parity {bit} of the {barrier.state()}",
                lambda: barrier.phase & 1 != bit,
                ("mbarrier", barrier.address),
            )
        for warp in g.active_warps():
            barrier.passed[warp] = (barrier.phase - 1, bind.at)
        if g.cta.machine.recorder is not None:
            g.cta.machine.recorder.passes(g.cta, g.active_warps(), barrier)
        order_of(g.cta).acquire(g.active_warps(), barrier.over)
        write(g, np.bool_(True))
        return None

    return run


@row("fence.acq_rel", "fence.sc", "fence.acquire", "fence.release", "membar", effect="orders")
def _fence(bind: Bind) -> Step:
    wide = not {"cta", "cluster"} & set(bind.at.parts)

    def run(g: Any) -> None:
        if wide:
            arrays_of(g.cta.machine).fence(g.cta, g.active_warps())

    return run


@row("fence.mbarrier_init", effect="orders")
def _fence_init(bind: Bind) -> Step:
    return lambda g: _show_barriers(g)


@row("fence.proxy.async", effect="orders")
def _fence_proxy(bind: Bind) -> Step:
    spaces = {p.partition("::")[0] for p in bind.at.parts[2:]} & {"shared", "global"}

    def run(g: Any) -> None:
        _show_barriers(g)
        order_of(g.cta).fence_proxy(
            g.active_warps(),
            shared=not spaces or "shared" in spaces,
            wide=not spaces or "global" in spaces,
        )

    return run


def _show_barriers(g: Any) -> None:
    """Barriers that a warp initialised are there for the async proxy and for other warps."""
    order = order_of(g.cta)
    for warp in g.active_warps():
        for barrier in mbarriers(g.cta).values():
            if barrier.maker == warp and not barrier.shown:
                barrier.shown = int(order.clock[warp, warp])
        order.clock[warp, warp] += 1


@row("fence.proxy.tensormap", "fence.proxy.alias", effect="orders")
def _other_proxies(bind: Bind) -> Step:
    return lambda g: None
