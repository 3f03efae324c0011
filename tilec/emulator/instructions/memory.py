"""Loads and stores by threads: parameters, global and shared memory (PTX ISA 9.7.9.8, 9.7.9.11).

An access that leaves its memory, or that is not aligned to its width, is a finding; a load gives
zeros there and a store does nothing, so that the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.emulator.clusters import visited
from tilec.emulator.gang import VIEWS
from tilec.emulator.memory import GAP, PARAMETERS, WINDOW_BITS, gather, scatter
from tilec.emulator.program import WIDTH, Address, Symbol
from tilec.emulator.table import Bind, Step, lanes_of, row, where

_KNOWN = ("global", "shared", "param", "shared::cta", "shared::cluster", "const", "local")


def space_of(bind: Bind) -> str:
    """The state space that an opcode names."""
    for part in bind.at.parts:
        if part in _KNOWN:
            return part.partition("::")[0]
    return "generic"


def address_of(bind: Bind, operand: Any) -> Callable[[Any], Any]:
    """A reader of addresses as int64, one a lane."""
    if not isinstance(operand, Address) or operand.coordinates is not None:
        raise bind.fail("an address in brackets is needed")
    base, offset = operand.base, operand.offset
    if isinstance(base, Symbol):
        constant = bind.machine.address_of(bind, base.name) + offset
        return lambda g: np.full(g.lanes, constant, np.int64)
    bank = getattr(base, "bank", "b64")
    read = bind.read(base, "u32" if bank == "b32" else "u64")
    return lambda g: lanes_of(read(g), g).astype(np.int64) + offset


def _shape(bind: Bind) -> tuple[str, int, int]:
    """Element type, elements a lane, and bytes of the access."""
    type = bind.types()[-1]
    count = next((int(p[1:]) for p in bind.at.parts if p in ("v2", "v4", "v8")), 1)
    return type, count, WIDTH[type] * count


@row("ld", effect="reads")
def _ld(bind: Bind) -> Step:
    type, count, width = _shape(bind)
    target, place = bind.operands
    targets = bind.many(target)
    if len(targets) != count:
        raise bind.fail(f"{count} registers are needed, there are {len(targets)}")
    address, space = address_of(bind, place), space_of(bind)
    banks = [getattr(t, "bank", None) for t in targets]
    held = [_held(type, bank) for bank in banks]
    writes = [bind.write(t, h) for t, h in zip(targets, held, strict=True)]
    stored = np.dtype(f"{VIEWS[type][1]().dtype.kind}{WIDTH[type]}")

    def run(g: Any) -> None:
        rows = load(bind, g, space, address(g), width)
        values = np.ascontiguousarray(rows).view(stored).reshape(g.lanes, count)
        for number, write in enumerate(writes):
            write(g, values[:, number].astype(VIEWS[held[number]][1], copy=False))

    return run


def _held(type: str, bank: str | None) -> str:
    """The type as which a register holds a loaded element: narrow ones are widened."""
    if bank is None or VIEWS[type][0] == bank:
        return {"b8": "u16", "u8": "u16", "s8": "s16"}.get(type, type)
    return f"{'s' if type[0] == 's' else 'u'}{bank[1:]}"


@row("st", effect="writes")
def _st(bind: Bind) -> Step:
    type, count, width = _shape(bind)
    place, value = bind.operands
    values = bind.many(value)
    if len(values) != count:
        raise bind.fail(f"{count} registers are needed, there are {len(values)}")
    address, space = address_of(bind, place), space_of(bind)
    reads = [bind.read(v, _held(type, getattr(v, "bank", None))) for v in values]
    stored = np.dtype(f"{VIEWS[type][1]().dtype.kind}{WIDTH[type]}")

    def run(g: Any) -> None:
        rows = np.empty((g.lanes, count), stored)
        for number, read in enumerate(reads):
            rows[:, number] = lanes_of(read(g), g).astype(stored)
        store(bind, g, space, address(g), rows.view(np.uint8).reshape(g.lanes, width))

    return run


def load(bind: Bind, g: Any, space: str, addresses: Any, width: int) -> Any:
    """Bytes at each active lane's address, as rows; zeros for lanes that may not."""
    found = np.zeros((g.lanes, width), np.uint8)
    if space == "param" or (space == "generic" and _in_parameters(addresses, g)):
        offset = int(addresses[g.active()][0]) - PARAMETERS
        found[:] = np.frombuffer(g.cta.machine.parameters, np.uint8)[offset : offset + width]
        return found
    lanes = aligned(bind, g, addresses, width)
    if space == "shared":
        if "shared::cluster" in bind.at.parts:
            addresses = own_window(g, addresses)
            for owner, which, offsets in visited(bind, g, addresses, width, lanes, writes=False):
                found[which] = gather(owner.shared, offsets[which], width)
            lanes = lanes & (addresses >> WINDOW_BITS == 0)
        inside = in_shared(bind, g, addresses, width, lanes)
        picked = addresses[inside]
        observe(bind, g, "shared", None, addresses, width, inside, writes=False)
        found[inside] = gather(g.cta.shared, picked, width)
        return found
    for buffer, which in in_global(bind, g, addresses, width, lanes):
        offsets = addresses - buffer.address
        observe(bind, g, "global", buffer, offsets, width, which, writes=False)
        found[which] = gather(buffer.data, offsets[which], width)
    return found


def store(bind: Bind, g: Any, space: str, addresses: Any, rows: Any) -> None:
    """Write rows of bytes at each active lane's address."""
    width = rows.shape[1]
    lanes = aligned(bind, g, addresses, width)
    if space == "shared":
        if "shared::cluster" in bind.at.parts:
            addresses = own_window(g, addresses)
            for owner, which, offsets in visited(bind, g, addresses, width, lanes, writes=True):
                scatter(owner.shared, offsets[which], rows[which])
            lanes = lanes & (addresses >> WINDOW_BITS == 0)
        inside = in_shared(bind, g, addresses, width, lanes)
        observe(bind, g, "shared", None, addresses, width, inside, writes=True, rows=rows)
        scatter(g.cta.shared, addresses[inside], rows[inside])
        return
    for buffer, which in in_global(bind, g, addresses, width, lanes):
        offsets = addresses - buffer.address
        observe(bind, g, "global", buffer, offsets, width, which, writes=True)
        scatter(buffer.data, offsets[which], rows[which])


def own_window(g: Any, addresses: Any) -> Any:
    """Addresses of the cluster that mean the own CTA, as plain ones."""
    own = addresses >> WINDOW_BITS == g.cta.rank + 1
    return (
        np.where(own, addresses & ((1 << WINDOW_BITS) - 1), addresses) if own.any() else addresses
    )


def _in_parameters(addresses: Any, g: Any) -> bool:
    first = int(addresses[g.active()][0])
    return PARAMETERS <= first < PARAMETERS + (1 << 20)


def aligned(bind: Bind, g: Any, addresses: Any, width: int) -> Any:
    """The active lanes whose address is a multiple of the access; others are a finding."""
    active = g.active()
    wrong = active & (addresses % width != 0)
    if wrong.any():
        lane = int(np.argmax(wrong))
        g.cta.machine.findings.add(
            "misaligned",
            bind.at,
            f"{int(wrong.sum())} lanes access {width} bytes at addresses that are no multiple of "
            f"{width}, such as {int(addresses[lane]):#x}",
            missing=f"addresses that are multiples of {width}",
            where=where(g),
        )
    return active & ~wrong


def in_shared(bind: Bind, g: Any, addresses: Any, width: int, lanes: Any) -> Any:
    """The lanes whose access lies in the CTA's shared memory; others are a finding."""
    machine = g.cta.machine
    if "shared::cluster" in bind.at.parts and (addresses[lanes] >> WINDOW_BITS).any():
        raise bind.fail("only loads and stores are known in the memory of another CTA")
    size = machine.program.static_shared + machine.dynamic_shared
    inside = (addresses >= 0) & (addresses + width <= size)
    outside = lanes & ~inside
    if outside.any():
        lane = int(np.argmax(outside))
        machine.findings.add(
            "out-of-bounds",
            bind.at,
            f"{int(outside.sum())} lanes access shared memory at {int(addresses[lane])}; the CTA "
            f"has {size} bytes",
            where=where(g),
        )
    return lanes & inside


def in_global(bind: Bind, g: Any, addresses: Any, width: int, lanes: Any) -> Any:
    """Each buffer that is accessed and the lanes that do; accesses of no buffer are findings."""
    machine = g.cta.machine
    left = lanes.copy()
    while left.any():
        lane = int(np.argmax(left))
        buffer = machine.memory.at(int(addresses[lane]))
        if buffer is None:
            near = machine.memory.below(int(addresses[lane]))
            end = 0 if near is None else near.address + len(near.data)
            which = left & (addresses >= end) & (addresses <= addresses[lane] + GAP)
            _outside(bind, g, addresses, which, width, near)
            left &= ~which
            continue
        start, end = buffer.address, buffer.address + len(buffer.data)
        near = left & (addresses >= start) & (addresses < max(end, start + 1))
        fits = near & (addresses + width <= end)
        if (near & ~fits).any():
            _outside(bind, g, addresses, near & ~fits, width, buffer)
        if fits.any():
            yield buffer, fits
        left &= ~near


def _outside(bind: Bind, g: Any, addresses: Any, which: Any, width: int, near: Any = None) -> None:
    lane = int(np.argmax(which))
    beside = ""
    if near is not None:
        over = int(addresses[lane]) + width - near.address - len(near.data)
        beside = f", {over} bytes beyond the end of {near.name}" if over <= GAP else ""
    g.cta.machine.findings.add(
        "out-of-bounds",
        bind.at,
        f"{int(which.sum())} lanes access {width} bytes of global memory that no array holds, at "
        f"{int(addresses[lane]):#x}{beside}",
        missing="a predicate that keeps the access inside its array",
        where=where(g),
    )


def observe(
    bind: Bind,
    g: Any,
    space: str,
    buffer: Any,
    offsets: Any,
    width: int,
    lanes: Any,
    *,
    writes: bool,
    rows: Any = None,
) -> None:
    """Tell whoever looks at accesses, and keep which bytes hold something.

    ``rows`` are the bytes that are written, before they are.
    """
    if not lanes.any():
        return
    machine = g.cta.machine
    written = g.cta.shared_written if space == "shared" else buffer.written
    index = offsets[lanes][:, None] + np.arange(width)
    if writes:
        written[index] = True
    elif not written[index].all():
        missing = ~written[index].all(axis=1)
        machine.findings.add(
            "uninitialised-memory",
            bind.at,
            f"{int(missing.sum())} lanes read {space} memory that nothing has written"
            + (f", in {buffer.name}" if buffer is not None else ""),
            missing="a write, and an order after it, on every way here",
            where=where(g),
        )
    for watcher in machine.watchers:
        watcher.accessed(bind.at, g, space, buffer, offsets, width, lanes, writes, rows)
