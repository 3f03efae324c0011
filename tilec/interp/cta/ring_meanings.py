"""Meaning of the ops on shared memory: rings, tiles, products, stores, barriers, turns.

Whatever proceeds on its own is done as late as the level allows: a product when a wait must be
sure of it, a TMA store when its source may change. What was overwritten too soon is then wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.interp.cta.faults import ProtocolFault
from tilec.interp.cta.group import FlightState, Group, Pending, Steps, StoreState, meaning
from tilec.interp.cta.memory_meanings import origin_of, read_tile, update_tile, write_tile
from tilec.interp.cta.shared import RingState, Slot, View, new_tile, said
from tilec.interp.elementwise import settle
from tilec.interp.machine import Held
from tilec.interp.numbers import Data
from tilec.interp.tile_meanings import product, read_as_tf32
from tilec.ir.clusters import shared_along, sharers
from tilec.ir.core import Value
from tilec.ir.levels import cta, mma
from tilec.ir.levels.turns import Skip
from tilec.ir.types import Shared
from tilec.layout.tma import cut_boxes

# --- what a CTA has ----------------------------------------------------------------------------


@meaning(cta.Buffer)
def _buffer(g: Group, op: cta.Buffer) -> View:
    tile = new_tile(op.out.type, g.wide)
    g.shelf.tiles.append(tile)
    return View(tile, tile.data, range(len(tile.data)))


@meaning(cta.Turns)
def _turns(g: Group, op: cta.Turns) -> None:
    g.shelf.turns[op.out] = {0}


# --- rings -------------------------------------------------------------------------------------


@meaning(cta.Acquire)
def _acquire(g: Group, op: cta.Acquire) -> Steps:
    ring = g.shelf.rings[op.ring]
    number = g.acquired.get(op.ring, 0)
    g.acquired[op.ring] = number + 1
    slot = Slot(ring, number, op, g, filling=True)
    needed, place = slot.round * ring.consumers, slot.place
    reached = g.shelf.partners(op.ring)

    def released() -> int:
        return min(other.released[place] for other in reached)

    def what() -> str:
        return (
            f"stage {place} of {ring.name} to be empty (released {released()} times, "
            f"{needed} are needed)"
        )

    yield Pending(lambda: released() >= needed, what, op)
    if ring.op.shared_along:
        ring.arm(place, slot.round)
    else:
        slot.start()
    g.slots = [*(s for s in g.slots if not s.over), slot]
    return slot


@meaning(cta.Wait)
def _wait(g: Group, op: cta.Wait) -> Steps:
    ring = g.shelf.rings[op.ring]
    number = g.waited.get(op.ring, 0)
    g.waited[op.ring] = number + 1
    slot = Slot(ring, number, op, g, filling=False)
    place, needed = slot.place, slot.round + 1

    def what() -> str:
        return (
            f"stage {place} of {ring.name} to be full (filled {ring.filled[place]} times, "
            f"{needed} are needed)"
        )

    yield Pending(lambda: ring.is_full(place, slot.round), what, op)
    g.slots = [*(s for s in g.slots if not s.over), slot]
    return slot


@meaning(Skip)
def _skip(g: Group, op: Skip) -> None:
    g.waited[op.ring] = g.waited.get(op.ring, 0) + int(g.number_of(op.count))


def _of_ring(g: Group, slot: Slot, ring: Value[Any]) -> Slot:
    if slot.ring is not g.shelf.rings[ring]:
        raise ProtocolFault(f"the stage of {said(slot.op)} comes from another ring")
    return slot


@meaning(cta.Load)
def _load(g: Group, op: cta.Load) -> None:
    slot = _of_ring(g, g.machine.values[op.stage], op.ring)
    shape = slot.parts[op.part].data.shape
    tile = read_tile(g, op, g.memory(op.source), shape, None)
    if not slot.ring.op.shared_along:
        slot.land(op.part, op).data[...] = tile
        return
    slot.issue(op.part, op)
    ranks = sharers(g.shelf.shape, shared_along(op.ring, op.part), g.shelf.rank)
    share = _share_of(op, len(ranks), ranks.index(g.shelf.rank))
    for rank in ranks:
        ring = g.shelf.peers[rank].rings[op.ring]
        key = (op.part, g.shelf.rank)
        target = ring.bring(slot.place, slot.round, key, _brought(g, ring, rank))
        for piece in share:
            target.data[piece] = tile[piece]


def _share_of(op: cta.Load, count: int, number: int) -> list[tuple[slice, ...]]:
    """The pieces of a tile that one of ``count`` CTAs loads for all."""
    part = op.ring.type.parts[op.part]
    assert isinstance(part, Shared)
    cut = cut_boxes(part.layout, part.dtype.bits, count)
    pieces = []
    for box in cut.boxes:
        at = list(box.origin)
        at[box.axes[-1]] += number * cut.rows
        extents = dict(zip(box.axes, box.extents, strict=True))
        pieces.append(tuple(slice(a, a + extents[n]) for n, a in enumerate(at)))
    return pieces


def _brought(g: Group, ring: RingState, rank: int) -> int:
    """How many shares fill a stage of a CTA."""
    return sum(len(sharers(g.shelf.shape, along, rank)) for along in ring.op.shared_along)


@meaning(mma.Copy)
def _copy(g: Group, op: mma.Copy) -> None:
    slot = _of_ring(g, g.machine.values[op.stage], op.ring)
    shape = slot.parts[op.part].data.shape
    tile = read_tile(g, op, g.memory(op.array), shape, op.bounded)
    slot.land(op.part, op).data[...] = tile


@meaning(cta.Release)
def _release(g: Group, op: cta.Release) -> None:
    _of_ring(g, g.machine.values[op.slot], op.ring).give_back(op)


@meaning(cta.Part)
def _part(g: Group, op: cta.Part) -> View:
    slot: Slot = g.machine.values[op.slot]
    slot.check(op)
    tile = slot.parts[op.index]
    if tile not in g.shelf.tiles:
        g.shelf.tiles.append(tile)
    return View(tile, tile.data, range(len(tile.data)), slot)


@meaning(cta.Window)
def _window(g: Group, op: cta.Window) -> View:
    view, block = g.view(op.x), int(g.number_of(op.block))
    if not 0 <= block * op.rows <= len(view.data) - op.rows:
        raise ProtocolFault(f"window {block} of {op.rows} rows lies outside {op.x.type}")
    return view.window(block * op.rows, op.rows)


@meaning(cta.TransposeView)
def _transpose(g: Group, op: cta.TransposeView) -> View:
    return g.view(op.x).transposed()


# --- turns -------------------------------------------------------------------------------------


@meaning(cta.WaitTurn)
def _wait_turn(g: Group, op: cta.WaitTurn) -> Steps:
    token, mine = g.shelf.turns[op.turns], int(g.number_of(op.group))
    if op.turns in g.holding:
        raise ProtocolFault(f"the turn is already held since {said(g.holding[op.turns])}")
    yield Pending(lambda: mine in token, lambda: f"its turn (of %{op.turns.name or 'turns'})", op)
    token.discard(mine)
    g.holding[op.turns] = op


@meaning(cta.PassTurn)
def _pass_turn(g: Group, op: cta.PassTurn) -> None:
    if g.holding.pop(op.turns, None) is None:
        raise ProtocolFault("the turn is passed on without having been waited for")
    following = (int(g.number_of(op.group)) + 1) % op.turns.type.groups
    g.shelf.turns[op.turns].add(following)


# --- products ----------------------------------------------------------------------------------


def _multiplied(op: Any, a: Data, b: Data, acc: Data | None, wide: bool) -> Data:
    """a @ b^T + acc in the result's type; tensor cores read an f32 as tf32."""
    kind = op.b.type.dtype.name
    if kind == "f32" and not wide:
        a, b = read_as_tf32(a), read_as_tf32(b)
    summed = product(a, b.T, kind, wide)
    return settle(op.out.type.dtype, summed if acc is None else summed + acc, wide)


@meaning(cta.Product)
def _product(g: Group, op: cta.Product) -> FlightState:
    views = [g.view(v) for v in (op.a, op.b) if isinstance(v.type, Shared)]
    readings = [view.read_later(op, g) for view in views]
    registers = None if isinstance(op.a.type, Shared) else g.tile(op.a)
    before = None if op.acc is None else g.machine.values[op.acc]
    if isinstance(before, FlightState):
        _take(before, op)
    start = None if op.acc is None or isinstance(before, FlightState) else g.tile(op.acc)

    def compute() -> Data:
        acc = before.result if isinstance(before, FlightState) else start
        if isinstance(before, FlightState) and acc is None:
            raise ProtocolFault(f"{said(op)} accumulates on a product that is not committed")
        a = views[0].data if registers is None else registers
        return _multiplied(op, a, views[-1].data, acc, g.wide)

    flight = FlightState(op, compute, readings)
    g.open.append(flight)
    return flight


def _take(flight: FlightState, op: Any) -> None:
    """A flight has one use: to be accumulated on, or to be settled."""
    if flight.taken is not None:
        raise ProtocolFault(
            f"the flight of {said(flight.op)} was already taken by {said(flight.taken)}"
        )
    flight.taken = op


@meaning(cta.Commit)
def _commit(g: Group, op: cta.Commit) -> None:
    g.closed.append(g.open)
    g.open = []


@meaning(cta.Settle)
def _settle(g: Group, op: cta.Settle) -> list[Held]:
    while len(g.closed) > op.pending:
        for done in g.closed.pop(0):
            done.finish()
    made = []
    for value, out in zip(op.flights, op.settled, strict=True):
        flight: FlightState = g.machine.values[value]
        _take(flight, op)
        if flight.result is None:
            raise ProtocolFault(f"the flight of {said(flight.op)} is handed out before it is done")
        made.append(g.registers(flight.result, out.type))
    return made


@meaning(mma.MmaProduct)
def _mma(g: Group, op: mma.MmaProduct) -> Held:
    a, b = (
        g.view(v).read_by_threads(op, g) if isinstance(v.type, Shared) else g.tile(v)
        for v in (op.a, op.b)
    )
    acc = None if op.acc is None else g.tile(op.acc)
    return g.registers(_multiplied(op, a, b, acc, g.wide), op.out.type)


# --- tiles -------------------------------------------------------------------------------------


@meaning(cta.Put)
def _put(g: Group, op: cta.Put) -> None:
    view = g.view(op.target)
    view.written(op, g)
    view.data[...] = g.tile(op.value)


@meaning(cta.Get)
def _get(g: Group, op: cta.Get) -> Held:
    return g.registers(g.view(op.x).read_by_threads(op, g), op.out.type)


@meaning(cta.Publish)
def _publish(g: Group, op: cta.Publish) -> None:
    for tile in g.shelf.tiles:
        for writing in tile.writings:
            writing.published |= writing.group is g


@meaning(cta.Sync)
def _sync(g: Group, op: cta.Sync) -> None:
    for tile in g.shelf.tiles:
        tile.writings = [w for w in tile.writings if w.group is not g or not w.published]
        for writing in tile.writings:
            writing.ordered |= writing.group is g
        tile.readings = [r for r in tile.readings if r.group is not g or not r.over]


@meaning(cta.StoreTile)
def _store(g: Group, op: cta.StoreTile) -> None:
    view, array, origin = g.view(op.x), g.memory(op.target), origin_of(g, op.origin)
    reading = view.read_later(op, g)
    put = update_tile if op.update else write_tile
    g.stores.append(
        StoreState(lambda: put(g, op, array, np.array(view.data), None, origin), reading)
    )


@meaning(cta.DrainStores)
def _drain(g: Group, op: cta.DrainStores) -> None:
    while len(g.stores) > op.pending:
        store = g.stores.pop(0)
        store.run()
        store.reading.over = True
