"""Copies that run on their own: TMA loads, stores and sums, and cp.async (PTX ISA 9.7.9.25)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.emulator.arrays import thread_access, work_access
from tilec.emulator.asynchrony import Groups, Work, commits, issue
from tilec.emulator.clusters import Visit, check_alive, foreign, number_of, owner_of, visits
from tilec.emulator.instructions.arithmetic import narrowed, widen
from tilec.emulator.instructions.mbarriers import arrive, barrier_at, barrier_in, deliver
from tilec.emulator.instructions.memory import address_of, in_global, in_shared, space_of
from tilec.emulator.memory import gather, scatter
from tilec.emulator.order import Box, order_of
from tilec.emulator.program import Address, Vector
from tilec.emulator.shadow import GRANULE, Party, shadow_of, tell
from tilec.emulator.table import Bind, Step, lanes_of, row, where
from tilec.emulator.tensors import box_bytes, faults, read_box, swizzled, write_box

_SMALLEST = 16
"""Bytes that TMA moves at least; the unit of its swizzle."""


def _map_reader(bind: Bind, operand: Any) -> tuple[Any, list[Any]]:
    if not isinstance(operand, Address) or not isinstance(operand.coordinates, Vector):
        raise bind.fail("a tensor [map, {coordinates}] is needed")
    base = address_of(bind, Address(operand.base, operand.offset))
    return base, [bind.read(c, "s32") for c in operand.coordinates.items]


def _the_map(bind: Bind, g: Any, address: int) -> Any:
    found = g.cta.machine.maps.get(address)
    if found is None:
        g.cta.machine.findings.add(
            "tensor-map", bind.at, f"no tensor map lies at {address:#x}", where=where(g)
        )
        return None
    wrong = faults(found)
    for each in wrong:
        g.cta.machine.findings.add("tensor-map", bind.at, each, where=where(g))
    return None if wrong else found


def box_addresses(map: Any, start: int) -> Any:
    """Shared addresses of a box's 16-byte pieces, in order."""
    return swizzled(start + np.arange(0, map.box_bytes, _SMALLEST, dtype=np.int64), map.swizzle)


def granules_of(addresses: Any, width: int) -> Any:
    """The granules of pieces of memory."""
    step = np.arange(0, width, GRANULE)
    return ((addresses[:, None] + step) // GRANULE).reshape(-1)


def _fits(bind: Bind, g: Any, map: Any, start: int, coordinates: tuple[int, ...]) -> bool:
    machine = g.cta.machine
    size = machine.program.static_shared + machine.dynamic_shared
    if start % 128 or start < 0 or start + map.box_bytes > size:
        machine.findings.add(
            "misaligned" if start % 128 else "out-of-bounds",
            bind.at,
            f"a box of {map.box_bytes} bytes at shared address {start}; the CTA has {size} bytes "
            "and TMA needs multiples of 128",
            where=where(g),
        )
        return False
    if len(coordinates) != len(map.extents):
        machine.findings.add(
            "tensor-map",
            bind.at,
            f"{len(coordinates)} coordinates for a tensor of {len(map.extents)} axes",
            where=where(g),
        )
        return False
    if coordinates[0] * map.element_bytes % 16:
        # Measured: an illegal instruction (docs/hardware.md).
        machine.findings.add(
            "misaligned",
            bind.at,
            f"a box begins at element {coordinates[0]} of the innermost axis, "
            f"{coordinates[0] * map.element_bytes} bytes, no multiple of 16",
            missing="an innermost start that is a multiple of 16 bytes",
            where=where(g),
        )
        return False
    return True


@row("cp.async.bulk.tensor", effect="writes", proxy="async", group="bulk")
def _tensor(bind: Bind) -> Step:
    parts = bind.at.parts
    to_shared = parts[5].startswith("shared")
    if "tile" not in parts:
        raise bind.fail("only .tile copies are known")
    return _tensor_load(bind) if to_shared else _tensor_store(bind)


def _tensor_load(bind: Bind) -> Step:
    target, tensor, signal = bind.operands[:3]
    to, barrier_place = address_of(bind, target), address_of(bind, signal)
    base, coordinates = _map_reader(bind, tensor)
    several = "multicast::cluster" in bind.at.parts
    mask = bind.read(bind.operands[3], "u16") if several else None

    def run(g: Any) -> None:
        places = [lanes_of(c(g), g) for c in coordinates]
        masks = None if mask is None else lanes_of(mask(g), g)
        for lane in np.flatnonzero(g.active()).tolist():
            map = _the_map(bind, g, int(base(g)[lane]))
            start = tuple(int(p[lane]) for p in places)
            owner, address = owner_of(bind, g, int(to(g)[lane]))
            signal_owner, at = owner_of(bind, g, int(barrier_place(g)[lane]))
            if owner is None or signal_owner is not owner:
                continue
            targets = [owner] if masks is None else _chosen(bind, g, int(masks[lane]))
            if map is None or not _fits(bind, g, map, address, start):
                continue
            warp = int(g.warps[lane // 32])
            box = order_of(g.cta).issue(warp)
            for target in targets:
                barrier = barrier_in(bind, g, target, at)
                if barrier is not None:
                    _start_load(bind, g, warp, map, start, address, barrier, box)

    return run


def _chosen(bind: Bind, g: Any, mask: int) -> list[Any]:
    """The CTAs of a multicast's mask, which the cluster has and which have not ended."""
    ctas = g.cta.cluster.ctas
    if mask >> len(ctas) or not mask:
        g.cta.machine.findings.add(
            "cluster-rank",
            bind.at,
            f"the mask {mask:#x} in a cluster of {len(ctas)} CTAs",
            missing=f"a mask of ranks 0 to {len(ctas) - 1}, and of one at least",
            where=where(g),
        )
    found = [cta for rank, cta in enumerate(ctas) if mask >> rank & 1]
    for cta in found:
        if cta is not g.cta:
            check_alive(bind, g, cta, "writes")
    return found


def _start_load(
    bind: Bind,
    g: Any,
    warp: int,
    map: Any,
    start: tuple[int, ...],
    address: int,
    barrier: Any,
    box: Box,
) -> None:
    """Bring a box to the CTA of the barrier; ``box`` is what the issuer knew."""
    cta = barrier.cta
    own = cta is g.cta
    order, shadow = order_of(cta), shadow_of(cta)
    party = Party(
        bind.at,
        order.fresh_bit(),
        foreign(g.cta, box, cta),
        "the TMA load",
        "a wait for the phase of the mbarrier that the load signals",
        signals=barrier,
        phase=barrier.phase,
    )
    if own:
        barrier.fillers[warp] = bind.at
    else:
        barrier.peers[g.cta.rank, warp] = bind.at
        number = number_of(g.cta)
        visit = Visit(bind.at, "the multicast", number, bits=party.bits)
        visits(cta)[number, -1, party.bits] = visit
    shadow.enter(party)
    pieces = box_addresses(map, address)

    def write() -> None:
        found = shadow.work_writes(party, granules_of(pieces, _SMALLEST))
        if found is not None:
            tell(cta, bind.at, found, "writes", "the TMA load", (warp,) if own else (), party)
        buffer = cta.machine.memory.at(map.address)
        work_access(cta, party, buffer, box_bytes(map, buffer, start), writes=False)
        rows = read_box(map, buffer, start).reshape(-1, _SMALLEST)
        scatter(cta.shared, pieces, rows)
        cta.shared_written[pieces[:, None] + np.arange(_SMALLEST)] = True

    def done() -> None:
        told = party.start
        told.known |= party.bits
        if cta.machine.recorder is not None:
            cta.machine.recorder.lands(party, barrier)
        deliver(cta, barrier, map.box_bytes, told)

    work = Work("tma-load", bind.at, cta, party, [write], done, warps=(warp,))
    work.bytes = map.box_bytes
    issue(work)


def bulk_groups(cta: Any, warp: int) -> Groups:
    """The bulk stores of a warp's elected thread, in groups."""
    found: dict[int, Groups] = cta.keep("bulk-groups", lambda _: {})
    return found.setdefault(warp, Groups())


@row("cp.reduce.async.bulk.tensor", effect="writes", proxy="async", group="bulk")
def _tensor_reduce(bind: Bind) -> Step:
    if "tile" not in bind.at.parts or "add" not in bind.at.parts:
        raise bind.fail("only .add of a .tile is known")
    return _tensor_store(bind, adds=True)


_SUMS = {"f32": np.float32, "s32": np.int32, "u32": np.uint32, "u64": np.uint64}


def _added(element: str, old: Any, new: Any) -> Any:
    """Sums of two rows of elements as bytes, each rounded once."""
    if element in ("f16", "bf16"):
        a, b = (widen(np.ascontiguousarray(v).view(np.uint16), element, False) for v in (old, new))
        return narrowed(a + b, element, False).view(np.uint8).reshape(old.shape)
    kind = _SUMS[element]
    found = np.ascontiguousarray(old).view(kind) + np.ascontiguousarray(new).view(kind)
    return found.view(np.uint8).reshape(old.shape)


def _tensor_store(bind: Bind, *, adds: bool = False) -> Step:
    tensor, source = bind.operands[:2]
    of = address_of(bind, source)
    base, coordinates = _map_reader(bind, tensor)

    def run(g: Any) -> None:
        places = [lanes_of(c(g), g) for c in coordinates]
        for lane in np.flatnonzero(g.active()).tolist():
            map = _the_map(bind, g, int(base(g)[lane]))
            start = tuple(int(p[lane]) for p in places)
            address = int(of(g)[lane])
            if map is None or not _fits(bind, g, map, address, start):
                continue
            if min(start) < 0:
                # Measured: an illegal instruction (docs/hardware.md).
                g.cta.machine.findings.add(
                    "out-of-bounds",
                    bind.at,
                    f"a TMA store begins before the tensor, at {start}",
                    where=where(g),
                )
                continue
            if adds and map.element not in ("f16", "bf16", *_SUMS):
                raise bind.fail(f"no sum of {map.element or 'unnamed'} elements is known")
            _start_store(bind, g, int(g.warps[lane // 32]), map, start, address, adds)

    return run


def _start_store(
    bind: Bind, g: Any, warp: int, map: Any, start: tuple[int, ...], address: int, adds: bool
) -> None:
    cta = g.cta
    order, shadow = order_of(cta), shadow_of(cta)
    party = Party(
        bind.at,
        order.fresh_bit(),
        order.issue(warp),
        "the TMA store",
        "a cp.async.bulk.wait_group.read by the thread that issued it, and a barrier after it",
    )
    shadow.enter(party)
    pieces = box_addresses(map, address)
    written = order.fresh_bit()
    held: list[Any] = []

    def read() -> None:
        found = shadow.work_reads(party, granules_of(pieces, _SMALLEST))
        if found is not None:
            tell(cta, bind.at, found, "reads", "the TMA store", (warp,), party)
        held.append(gather(cta.shared, pieces, _SMALLEST).reshape(-1, map.element_bytes))

    def write() -> None:
        buffer = cta.machine.memory.at(map.address)
        index = box_bytes(map, buffer, start)
        work_access(cta, party, buffer, index, writes=True, bits=written, atomic=adds)
        rows = held[0]
        if adds:
            rows = _added(map.element, read_box(map, buffer, start), rows)
        write_box(map, buffer, start, rows)

    work = Work("tma-store", bind.at, cta, party, [read, write], warps=(warp,))
    work.written, work.bytes = written, map.box_bytes
    groups = bulk_groups(cta, warp)
    groups.add(work)
    issue(work)


row("cp.async.bulk.commit_group", effect="orders", group="bulk")(commits(bulk_groups))


@row("cp.async.bulk.wait_group", effect="orders", group="bulk")
def _wait_bulk(bind: Bind) -> Step:
    reads_only = "read" in bind.at.parts
    pending = bind.whole(bind.operands[0], "the number of groups")

    def run(g: Any) -> None:
        order = order_of(g.cta)
        for warp in g.active_warps():
            groups = bulk_groups(g.cta, warp)
            count = max(0, len(groups.closed) - pending)
            for work in [w for group in groups.closed[:count] for w in group]:
                if reads_only:
                    while len(work.parts) > 1:
                        work.advance()
                else:
                    work.finish()
                    order.learn(warp, work.written)
                order.learn(warp, work.party.bits)
            if not reads_only:
                groups.closed = groups.closed[count:]

    return run


# --- cp.async ------------------------------------------------------------------------------------


def copy_groups(cta: Any, warp: int) -> Groups:
    """The cp.async copies of a warp, in groups."""
    found: dict[int, Groups] = cta.keep("copy-groups", lambda _: {})
    return found.setdefault(warp, Groups())


@row("cp.async.ca", "cp.async.cg", effect="writes", group="cp.async")
def _cp_async(bind: Bind) -> Step:
    target, source, size, *rest = bind.operands
    width = bind.whole(size, "the size of a copy")
    to, of = address_of(bind, target), address_of(bind, source)
    taken = bind.read(rest[0], "u32") if rest else None
    assert space_of(bind) in ("shared", "global")

    def run(g: Any) -> None:
        into, outof = to(g), of(g)
        count = np.full(g.lanes, width) if taken is None else lanes_of(taken(g), g)
        inside = in_shared(bind, g, into, width, g.active() & (into % width == 0))
        for warp in g.active_warps():
            mine = inside & (g.tid // 32 == warp)
            if mine.any():
                _start_copy(bind, g, warp, into[mine], outof[mine], count[mine], width)

    return run


def _start_copy(
    bind: Bind, g: Any, warp: int, into: Any, outof: Any, count: Any, width: int
) -> None:
    cta = g.cta
    order, shadow = order_of(cta), shadow_of(cta)
    party = Party(
        bind.at,
        order.fresh_bit(),
        order.issue(warp),
        "the cp.async",
        "a cp.async.wait_group that covers it, and a barrier after it",
    )
    shadow.enter(party)
    granules = granules_of(into, max(width, GRANULE))

    def write() -> None:
        found = shadow.work_writes(party, granules)
        if found is not None:
            tell(cta, bind.at, found, "writes", "the cp.async", (warp,), party)
        rows = np.zeros((len(into), width), np.uint8)
        for taken in np.unique(count).tolist():
            lanes = count == taken
            if not taken:
                continue
            for buffer, which in in_global(bind, g, outof, int(taken), lanes):
                offsets = outof[which] - buffer.address
                thread_access(cta, bind.at, warp, buffer, offsets, int(taken), writes=False)
                if cta.machine.recorder is not None:
                    index = (offsets[:, None] + np.arange(int(taken))).reshape(-1)
                    cta.machine.recorder.moves(party, buffer, index, False)
                rows[which, : int(taken)] = gather(
                    buffer.data, outof[which] - buffer.address, int(taken)
                )
        scatter(cta.shared, into, rows)
        cta.shared_written[into[:, None] + np.arange(width)] = True

    work = Work("cp.async", bind.at, cta, party, [write], warps=(warp,))
    work.bytes = len(into) * width
    copy_groups(cta, warp).add(work)
    _arrivals_of(cta, warp).copies.append(work)
    issue(work)


row("cp.async.commit_group", effect="orders", group="cp.async")(commits(copy_groups))


@row("cp.async.wait_group", "cp.async.wait_all", effect="orders", group="cp.async")
def _wait_copies(bind: Bind) -> Step:
    pending = bind.whole(bind.operands[0], "the number of groups") if bind.operands else 0

    def run(g: Any) -> None:
        order = order_of(g.cta)
        for warp in g.active_warps():
            groups = copy_groups(g.cta, warp)
            if not bind.operands:
                groups.commit()
            for work in groups.wait(pending):
                work.finish()
                order.learn(warp, work.party.bits)

    return run


@dataclass
class _Arrivals:
    """Arrivals of a warp that wait for its copies, in order."""

    copies: list[Work] = field(default_factory=list)
    """Those since the last arrival."""
    landed: int = 0
    """The bits of all copies that arrivals have waited for."""
    last: Work | None = None


def _arrivals_of(cta: Any, warp: int) -> _Arrivals:
    found: dict[int, _Arrivals] = cta.keep("copy-arrivals", lambda _: {})
    return found.setdefault(warp, _Arrivals())


@row("cp.async.mbarrier.arrive.noinc", effect="orders", group="cp.async")
def _arrive_after_copies(bind: Bind) -> Step:
    """Each lane arrives once its copies so far have landed; who waits knows that they have."""
    place = address_of(bind, bind.operands[0])

    def run(g: Any) -> None:
        places = place(g)
        for warp in g.active_warps():
            mine = g.active() & (g.tid // 32 == warp)
            for at in sorted(set(places[mine].tolist())):
                barrier = barrier_at(bind, g, at)
                if barrier is not None:
                    _start_arrival(bind, g, warp, barrier, int((places[mine] == at).sum()))

    return run


def _start_arrival(bind: Bind, g: Any, warp: int, barrier: Any, lanes: int) -> None:
    cta = g.cta
    queue = _arrivals_of(cta, warp)
    copies, queue.copies, before = queue.copies, [], queue.last
    party = Party(bind.at, 0, order_of(cta).snapshot(warp), "the arrival after copies")
    barrier.arrivers[warp] = bind.at

    def land() -> None:
        told = Box.empty(cta.warps)
        for copy in copies:
            copy.finish()
            queue.landed |= copy.party.bits
        told.known = queue.landed
        if cta.machine.recorder is not None:
            cta.machine.recorder.lands(party, barrier)
        barrier.told.take(told)
        arrive(bind, g, barrier, lanes)

    work = Work("cp.async-arrive", bind.at, cta, party, [land], after=before, warps=(warp,))
    queue.last = work
    issue(work)
