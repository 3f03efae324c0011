"""Meaning of the ops that follow a row's maximum, run along an axis, or name places while running.

``tile.anchor`` has many legal values; the machine takes one end or the other, so that a program
whose result depends on the choice shows. Places outside an array are no error here: a gather gives
its fill, a scatter writes nothing. Two valid elements of one scatter at one place are a race.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.interp import elementwise
from tilec.interp.machine import Held, Indices, Machine, held, meaning
from tilec.interp.memory import InterpretError, Memory, unwritten
from tilec.interp.numbers import Data, poison
from tilec.interp.updates import update_each
from tilec.ir.core import Value
from tilec.ir.levels import along, tile
from tilec.ir.types import Tile


@meaning(tile.Anchor)
def _anchor(machine: Machine, op: tile.Anchor) -> Held:
    """The greatest legal value, or the least: what a lazy rescaling comes to at its laziest."""
    dtype, last = op.m.type.dtype, len(op.s.type.shape) - 1
    scores = machine.filled(op.s, last, -np.inf)
    top = elementwise.reduce("max", dtype, scores, last, machine.wide)
    if machine.lazy:
        top = elementwise.settle(dtype, top - op.slack, machine.wide)
    raised = elementwise.larger(machine.data(op.m), top)
    return held(elementwise.settle(dtype, raised, machine.wide), machine.values[op.m].valid)


@meaning(tile.Exp2Sub)
def _exp2_sub(machine: Machine, op: tile.Exp2Sub) -> Held:
    x, r = machine.data(op.x), machine.data(op.y)
    power = elementwise.settle(op.out.type.dtype, x - r, machine.wide)
    raw = np.where(x == -np.inf, np.zeros((), x.dtype), np.exp2(power))
    data = elementwise.settle(op.out.type.dtype, raw, machine.wide)
    return held(data, _valid(machine, op.operands))


# --- along an axis -------------------------------------------------------------------------------


@meaning(tile.Positions)
def _positions(machine: Machine, op: tile.Positions) -> Held:
    return held(np.arange(machine.size(op.out.type.shape[0]), dtype=np.int32))


@meaning(along.Scan)
def _scan(machine: Machine, op: along.Scan) -> Held:
    dtype = op.x.type.dtype
    fill = elementwise.identity(op.kind, dtype, machine.wide)
    data = machine.filled(op.x, op.axis, fill)
    if op.reverse:
        data = np.flip(data, op.axis)
    found = elementwise.scan(op.kind, dtype, data, op.axis, machine.wide)
    if op.reverse:
        found = np.flip(found, op.axis)
    return held(found, machine.values[op.x].valid)


@meaning(along.Combine)
def _combine(machine: Machine, op: along.Combine) -> list[Held]:
    """One element after the other: whatever else is done must come to the same."""
    count = len(op.xs)
    tiles = [
        np.moveaxis(machine.filled(x, op.axis, fill), op.axis, 0)
        for x, fill in zip(op.xs, op.identity, strict=True)
    ]
    order = range(tiles[0].shape[0])
    total = [np.full(t.shape[1:], n, t.dtype) for t, n in zip(tiles, op.identity, strict=True)]
    found = [t.copy() for t in tiles]
    for place in reversed(order) if op.reverse else order:
        given = [held(part) for part in (*total, *(t[place] for t in tiles))]
        machine.values.update(zip(op.body.args, given, strict=True))
        made = [one.data for one in machine.run(op.body)]
        for number in range(count):
            total[number] = np.broadcast_to(made[number], total[number].shape)
            found[number][place] = total[number]
    valid = machine.values[op.xs[0]].valid
    if op.scan:
        return [held(np.moveaxis(f, 0, op.axis), valid) for f in found]
    return [held(np.asarray(t), (*valid[: op.axis], *valid[op.axis + 1 :])) for t in total]


# --- places --------------------------------------------------------------------------------------


@meaning(tile.Within)
def _within(machine: Machine, op: tile.Within) -> Indices:
    index: Indices = machine.values[op.index]
    lower, upper = machine.scalar(op.lower), machine.scalar(op.upper)
    start = index.start + max(lower, 0)
    end = min(upper, machine.scalar(op.extent))
    valid = min(max(end - start, 0), index.size)
    return machine.enter(op.out.type.size, Indices(start if valid else 0, index.size, valid))


def _valid(machine: Machine, operands: list[Value[Any]]) -> tuple[int | None, ...]:
    """How many elements exist along each axis, as any operand knows it."""
    tiles = [v for v in operands if isinstance(v.type, Tile)]
    if not tiles:
        return ()
    each = [
        [machine.valid_count(v, axis) for v in tiles] for axis in range(len(tiles[0].type.shape))
    ]
    return tuple(min((n for n in axis if n is not None), default=None) for axis in each)


def _places(
    machine: Machine, memory: Memory, coordinates: tuple[Value[Any], ...]
) -> tuple[tuple[Data, ...], Data, tuple[slice, ...], tuple[int | None, ...]]:
    """Coordinates of the valid elements, which of them are inside, and where they are."""
    valid = _valid(machine, list(coordinates))
    # Once padding is explicit, what does not exist is known by its place, outside the array.
    part = tuple(slice(None if machine.explicit else n) for n in valid)
    at = tuple(np.asarray(machine.data(v))[part].astype(np.int64) for v in coordinates)
    inside = np.ones(at[0].shape, np.bool_)
    for one, extent in zip(at, memory.data.shape, strict=True):
        inside &= (one >= 0) & (one < extent)
    return at, inside, part, valid


@meaning(tile.Gather)
def _gather(machine: Machine, op: tile.Gather) -> Held:
    memory = machine.memory(op.array)
    at, inside, part, valid = _places(machine, memory, op.coordinates)
    fill = machine.data(op.fill)
    found = np.full(inside.shape, fill, fill.dtype)
    found[inside] = memory.read(tuple(one[inside] for one in at), machine.iteration)
    return _whole(machine, op, found, part, valid)


@meaning(tile.Scatter)
def _scatter(machine: Machine, op: tile.Scatter) -> None:
    memory = machine.memory(op.array)
    at, inside, part, _ = _places(machine, memory, op.coordinates)
    where = tuple(one[inside] for one in at)
    if op.update:
        value = np.asarray(machine.data(op.value))[part][inside]
        update_each(machine, memory, where, value, op.update)
        return
    places = np.stack(where, axis=-1) if where else np.zeros((0, 0))
    if len(np.unique(places, axis=0)) < len(places):
        raise InterpretError(
            f"race: two elements are written to one place of {memory.name}",
            help="write each place once, or add to it: `y.at(..., drop) += x`",
        )
    memory.write(where, np.asarray(machine.data(op.value))[part][inside], machine.iteration)


def _found(machine: Machine, op: Any, update: str, expected: Value[Any] | None) -> Held:
    memory = machine.memory(op.array)
    at, inside, part, valid = _places(machine, memory, op.coordinates)
    value = np.asarray(machine.data(op.value))[part][inside]
    wanted = None if expected is None else np.asarray(machine.data(expected))[part][inside]
    fill = machine.data(op.fill)
    found = np.full(inside.shape, fill, fill.dtype)
    where = tuple(one[inside] for one in at)
    found[inside] = update_each(machine, memory, where, value, update, wanted)
    return _whole(machine, op, found, part, valid)


@meaning(tile.Atomic)
def _atomic(machine: Machine, op: tile.Atomic) -> Held:
    return _found(machine, op, op.update, None)


@meaning(tile.CompareExchange)
def _compare_exchange(machine: Machine, op: tile.CompareExchange) -> Held:
    return _found(machine, op, "exchange", op.expected)


def _whole(
    machine: Machine,
    op: Any,
    found: Data,
    part: tuple[slice, ...],
    valid: tuple[int | None, ...],
) -> Held:
    """What was found, as a tile whose other elements do not exist."""
    if not isinstance(op.out.type, Tile):
        return held(found)
    outside = np.zeros((), found.dtype) if machine.explicit else poison(op.out.type.dtype)
    data = np.full(machine.shape(op.out.type), outside, found.dtype)
    data[part] = found
    return held(data, valid)


@meaning(tile.Temp)
def _temp(machine: Machine, op: tile.Temp) -> Memory:
    shape = tuple(machine.scalar(v) for v in op.extents)
    type = op.out.type
    return Memory(op.out.name, type, unwritten(type.dtype, shape, machine.wide), machine.wide)
