"""Order inside one role: what each op asks of the protocol's state, and what it does to it.

A rule is a function of an op's class over ``State`` (see ``held``). It reports, and then goes on
as if all were well: one mistake, one message. Rules look at one op at a time and know nothing of
control flow, which is ``protocol``'s.

Facts used: after a wait that leaves n groups of products pending, all but the n newest are
finished (PTX ISA, wgmma.wait_group), likewise for stores and the reading of their source
(cp.async.bulk.wait_group.read); what ordinary instructions wrote becomes visible to TMA and wgmma
by a proxy fence in the writing thread and then a barrier (PTX ISA, async proxy).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.held import OLD, Products, Reading, Stage, State, Written
from tilec.ir.levels import cta, memory, mma
from tilec.ir.levels.fold import FoldWarps
from tilec.ir.places import Place, place_of
from tilec.ir.types import Flight, Shared
from tilec.ir.verify import Fault


class Reports:
    """Collects what is wrong, each thing once."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def add(self, op: Op, message: str) -> None:
        """Report ``message`` at ``op`` unless it was reported before."""
        fault = Fault(op, message)
        if fault not in self.faults:
            self.faults.append(fault)


Rule = Callable[[State, Any, Reports], None]
RULES: dict[type[Op], Rule] = {}
"""What each op asks of the state and does to it; ops without a rule do not matter here."""


def _rule(*ops: type[Op]) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


def said(op: Op) -> str:
    """An op as messages call it: by its result, its operand, and its source line."""
    values = [v for v in (*op.results, *op.operands) if v.name]
    name = f"{op.name} (%{values[0].name})" if values else op.name
    return f"{name} at source line {op.loc.line}" if op.loc else name


def _stage(state: State, value: Value[Any]) -> Stage | None:
    thing = state.things.get(state.names.get(value, 0))
    return thing if isinstance(thing, Stage) else None


def _used(state: State, value: Value[Any], op: Op, reports: Reports) -> Place:
    """The place of a shared operand, after a look at whether it may still be touched."""
    place = place_of(value, state.names)
    thing = state.things.get(place.root) if isinstance(place.root, int) else None
    if isinstance(thing, Stage) and thing.finished:
        reports.add(op, f"it uses the slot of {said(thing.op)} after its release")
    return place


# --- rings -------------------------------------------------------------------------------------


@_rule(cta.Acquire)
def _acquire(state: State, op: cta.Acquire, reports: Reports) -> None:
    """The stage before must be full of loads."""
    for number, thing in state.things.items():
        if isinstance(thing, Stage) and thing.ring is op.ring and thing.loaded is not None:
            _report_unloaded(thing, op, reports)
            state.things[number] = replace(thing, finished=True)
    state.new(op.out, Stage(op, op.ring, loaded=frozenset()))


def _report_unloaded(stage: Stage, at: Op, reports: Reports) -> None:
    missing = set(range(len(stage.ring.type.parts))) - (stage.loaded or set())
    if stage.loaded is not None and missing:
        parts = ", ".join(map(str, sorted(missing)))
        where = "" if at is stage.op else f" of {said(stage.op)}"
        reports.add(at, f"nothing loads part {parts} of the stage{where}: its wait never ends")


@_rule(cta.Load, mma.Copy)
def _load(state: State, op: cta.Load | mma.Copy, reports: Reports) -> None:
    """Each part once."""
    stage = _stage(state, op.stage)
    if stage is None or stage.loaded is None:
        return
    if stage.ring is not op.ring:
        reports.add(op, f"the stage comes from another ring: {said(stage.op)}")
    if not 0 <= op.part < len(stage.ring.type.parts):
        reports.add(op, f"the stage has no part {op.part}")
        return
    if op.part in stage.loaded:
        reports.add(op, f"part {op.part} of the stage of {said(stage.op)} is loaded twice")
    loaded = stage.loaded | {op.part}
    full = len(loaded) == len(stage.ring.type.parts)
    state.things[state.names[op.stage]] = replace(stage, loaded=loaded, finished=full)


@_rule(cta.Wait)
def _wait(state: State, op: cta.Wait, reports: Reports) -> None:
    """A role that holds all stages waits for ever."""
    held = [
        thing
        for thing in state.things.values()
        if isinstance(thing, Stage)
        and thing.ring is op.ring
        and thing.loaded is None
        and not thing.finished
    ]
    if len(held) >= op.ring.type.stages:
        reports.add(
            op,
            f"the role holds all {op.ring.type.stages} stages of the ring (the last from "
            f"{said(held[-1].op)}), so nobody can fill the one waited for",
        )
        return
    state.new(op.out, Stage(op, op.ring))


@_rule(cta.Release)
def _release(state: State, op: cta.Release, reports: Reports) -> None:
    """Once, to the right ring, when nothing reads the slot any more."""
    stage = _stage(state, op.slot)
    if stage is None:
        return
    number = state.names[op.slot]
    if stage.ring is not op.ring:
        reports.add(op, f"the slot comes from another ring: {said(stage.op)}")
    if stage.finished:
        reports.add(op, f"the slot of {said(stage.op)} is released twice")
    for reading in state.readings:
        if reading.place.root == number and not reading.over and reading.product:
            reports.add(
                op, f"{said(reading.op)} may still read the slot: {_remedy(state, reading)}"
            )
        elif reading.place.root == number and not reading.over and _is_store(reading):
            reports.add(op, f"{said(reading.op)} may still read the slot: drain it first")
    state.readings = frozenset(r for r in state.readings if r.place.root != number)
    state.written = frozenset(w for w in state.written if w.place.root != number)
    state.things[number] = replace(stage, finished=True)


def _is_store(reading: Reading) -> bool:
    return isinstance(reading.op, cta.StoreTile)


def _remedy(state: State, reading: Reading) -> str:
    product = state.things.get(reading.product)
    if isinstance(product, Products) and product.age is None:
        return "no cta.commit closes its group before a cta.settle"
    return "no cta.settle covers it before this"


@_rule(cta.Part)
def _part(state: State, op: cta.Part, reports: Reports) -> None:
    """A slot in hand; a stage being filled is for loads only."""
    stage = _stage(state, op.slot)
    if stage is None:
        return
    if stage.loaded is not None:
        reports.add(op, f"the stage of {said(stage.op)} is filled by cta.load, never through parts")
    elif stage.finished:
        reports.add(op, f"it uses the slot of {said(stage.op)} after its release")


# --- products ----------------------------------------------------------------------------------


@_rule(cta.Product)
def _product(state: State, op: cta.Product, reports: Reports) -> None:
    """Operands visible, the accumulator used once."""
    shared = [v for v in (op.a, op.b) if isinstance(v.type, Shared)]
    places = [_used(state, v, op, reports) for v in shared]
    for place in places:
        _check_visible(state, place, op, reports)
    if op.acc is not None and isinstance(op.acc.type, Flight):
        _take(state, op.acc, op, reports)
    number = state.new(op.out, Products(op))
    state.readings |= {Reading(op, place, product=number) for place in places}


def _take(state: State, flight: Value[Any], op: Op, reports: Reports) -> Products | None:
    """A flight has one use: to be accumulated on, or to be settled."""
    number = state.names.get(flight, 0)
    thing = state.things.get(number)
    if not isinstance(thing, Products):
        return None
    if thing.taken is not None:
        done = "settled" if isinstance(thing.taken, cta.Settle) else "accumulated on"
        what = f"the flight of {said(thing.op)}"
        by = "" if thing.taken is op else f" by {said(thing.taken)}"
        reports.add(op, f"{what} was already {done}{by}: its registers hold something else now")
    state.things[number] = replace(thing, taken=op)
    return thing


@_rule(cta.Commit)
def _commit(state: State, op: cta.Commit, reports: Reports) -> None:
    """Open products form the newest group."""
    for number, thing in state.things.items():
        if isinstance(thing, Products) and not thing.complete:
            age = 0 if thing.age is None else min(thing.age + 1, OLD)
            state.things[number] = replace(thing, age=age)


@_rule(cta.Settle)
def _settle(state: State, op: cta.Settle, reports: Reports) -> None:
    """All groups but the newest are finished; the flights handed out are among them."""
    if not 0 <= op.pending < OLD:
        reports.add(op, f"pending = {op.pending}: a wait can leave 0 to {OLD - 1} groups pending")
    done = {
        number: replace(thing, complete=True)
        for number, thing in state.things.items()
        if isinstance(thing, Products) and thing.age is not None and thing.age >= op.pending
    }
    state.things.update(done)
    state.readings = frozenset(
        replace(r, over=True, product=0) if r.product in done else r for r in state.readings
    )
    for flight in op.flights:
        product = _take(state, flight, op, reports)
        if product is None or product.complete:
            continue
        if product.age is None:
            reports.add(op, f"no cta.commit stands between {said(product.op)} and this")
        else:
            reports.add(
                op,
                f"the group of {said(product.op)} is among the {op.pending} newest, "
                "which this leaves pending",
            )


# --- turns -------------------------------------------------------------------------------------


@_rule(cta.WaitTurn)
def _wait_turn(state: State, op: cta.WaitTurn, reports: Reports) -> None:
    """Not while holding it."""
    if op.turns in state.turns:
        reports.add(op, f"the turn is already held since {said(state.turns[op.turns])}")
    state.turns[op.turns] = op


@_rule(cta.PassTurn)
def _pass_turn(state: State, op: cta.PassTurn, reports: Reports) -> None:
    """Only while holding it."""
    if state.turns.pop(op.turns, None) is None:
        reports.add(op, "the turn is passed on without having been waited for")


# --- shared tiles ------------------------------------------------------------------------------


def _check_visible(state: State, place: Place, op: Op, reports: Reports) -> None:
    for write in state.written:
        if write.place.overlaps(place):
            missing = "cta.sync after the cta.publish" if write.published else "cta.publish"
            reports.add(op, f"what {said(write.op)} wrote is not visible here: no {missing}")


@_rule(cta.Put)
def _put(state: State, op: cta.Put, reports: Reports) -> None:
    """Only where no read is going on."""
    place = _used(state, op.target, op, reports)
    for reading in state.readings:
        if not reading.place.overlaps(place):
            continue
        who = said(reading.op)
        if reading.over:
            after = "cta.settle" if isinstance(reading.op, cta.Product) else "cta.drain_stores"
            at_once = isinstance(reading.op, cta.Get | mma.MmaProduct)
            after = "" if at_once else f" after the {after}"
            reports.add(op, f"{who} may still be reading in other warps: no cta.sync{after}")
        elif _is_store(reading):
            reports.add(op, f"{who} may still read the tile: no cta.drain_stores covers it")
        else:
            reports.add(op, f"{who} may still read the tile: {_remedy(state, reading)}")
    state.readings = frozenset(r for r in state.readings if not r.place.overlaps(place))
    kept = {w for w in state.written if w.place != place}
    state.written = frozenset({*kept, Written(op, place)})


@_rule(cta.Get)
def _get(state: State, op: cta.Get, reports: Reports) -> None:
    """After a barrier behind the write."""
    _read_by_threads(state, op.x, op, reports)


@_rule(mma.MmaProduct)
def _mma(state: State, op: mma.MmaProduct, reports: Reports) -> None:
    """Its shared operands are read as by ``cta.get``: all is over when it has run."""
    for value in (op.a, op.b):
        if isinstance(value.type, Shared):
            _read_by_threads(state, value, op, reports)


def _read_by_threads(state: State, value: Value[Any], op: Op, reports: Reports) -> None:
    place = _used(state, value, op, reports)
    for write in state.written:
        if write.place.overlaps(place) and not write.ordered:
            reports.add(op, f"what {said(write.op)} wrote may be another warp's: no cta.sync")
    state.readings |= {Reading(op, place, over=True)}


@_rule(cta.Exchange, FoldWarps, memory.Share)
def _exchange(state: State, op: cta.Exchange | memory.Share, reports: Reports) -> None:
    """It orders its buffer by itself."""
    _used(state, op.buffer, op, reports)


@_rule(cta.Publish)
def _publish(state: State, op: cta.Publish, reports: Reports) -> None:
    """This thread's writes."""
    state.written = frozenset(replace(w, published=True) for w in state.written)


@_rule(cta.Sync)
def _sync(state: State, op: cta.Sync, reports: Reports) -> None:
    """Published writes become visible; finished reads are known to be over."""
    state.written = frozenset(replace(w, ordered=True) for w in state.written if not w.published)
    state.readings = frozenset(r for r in state.readings if not r.over)


@_rule(cta.StoreTile)
def _store(state: State, op: cta.StoreTile, reports: Reports) -> None:
    """Of visible tiles."""
    place = _used(state, op.x, op, reports)
    _check_visible(state, place, op, reports)
    state.readings = frozenset(
        replace(r, age=min(r.age + 1, OLD)) if _is_store(r) and not r.over else r
        for r in state.readings
    )
    state.readings |= {Reading(op, place)}


@_rule(cta.DrainStores)
def _drain(state: State, op: cta.DrainStores, reports: Reports) -> None:
    """All stores but the newest have read their source."""
    state.readings = frozenset(
        replace(r, age=0, over=True) if _is_store(r) and r.age >= op.pending else r
        for r in state.readings
    )


# --- the end -----------------------------------------------------------------------------------


def at_end(state: State, reports: Reports) -> None:
    """Nothing is owed when a role ends."""
    for thing in state.things.values():
        if isinstance(thing, Stage) and not thing.finished:
            if thing.loaded is None:
                reports.add(thing.op, "the slot is not released on every path to the role's end")
            _report_unloaded(thing, thing.op, reports)
        elif isinstance(thing, Products) and thing.taken is None:
            reports.add(thing.op, "the flight is neither settled nor accumulated on")
        elif isinstance(thing, Products) and not thing.complete:
            reports.add(thing.op, "the role ends before a cta.settle covers this product")
    for op in state.turns.values():
        reports.add(op, "the turn is not passed on before the role's end")
    for reading in state.readings:
        if _is_store(reading) and not reading.over:
            reports.add(
                reading.op, "the role may end while this reads shared memory: no cta.drain_stores"
            )
