"""Meaning of the ops that reach global memory: tiles, places, and updates in place.

Strict about edges and vectors: a tile that is not ``bounded`` along an axis lies inside, and the
elements of one vector are neighbours, all inside the array or all outside.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.interp.cta.faults import ProtocolFault
from tilec.interp.cta.group import Group, meaning
from tilec.interp.cta.registers import only_firsts, shape_of, whole
from tilec.interp.machine import Held, held
from tilec.interp.memory import InterpretError, Memory
from tilec.interp.numbers import Data, carrier
from tilec.interp.updates import update_each, update_in_order
from tilec.ir.core import Value
from tilec.ir.levels import cta, memory

Where = tuple[Any, ...]


@meaning(cta.ExtentOf)
def _extent(g: Group, op: cta.ExtentOf) -> Held:
    return held(np.int32(g.memory(op.array).data.shape[op.axis]))


@meaning(cta.TensorMapOf)
def _map(g: Group, op: cta.TensorMapOf) -> Memory:
    return g.memory(op.array)


def origin_of(g: Group, origin: tuple[Value[Any], ...]) -> list[int]:
    """The numbers of a place in an array, and of the ends that follow it."""
    return [int(g.number_of(v)) for v in origin]


def overlap(
    extents: tuple[int, ...],
    origin: list[int],
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    bounded: tuple[int, ...] | None,
) -> tuple[Where, tuple[slice, ...]]:
    """Where a tile lies in an array, and which part of the tile that is.

    The array's axes come in their order; None for ``bounded`` is a copy, which clips everywhere.
    """
    there: list[Any] = list(origin)
    here = []
    for tile_axis, (axis, extent) in enumerate(zip(axes, shape, strict=True)):
        low = min(max(origin[axis], 0), extents[axis])
        high = min(max(origin[axis] + extent, low), extents[axis])
        if bounded is not None and high - low < extent and tile_axis not in bounded:
            raise ProtocolFault(
                f"axis {axis} runs from {origin[axis]} to {origin[axis] + extent}, over the edge "
                f"at {extents[axis]}, and the access is not bounded there"
            )
        there[axis] = slice(low, high)
        here.append(slice(low - origin[axis], high - origin[axis]))
    for axis, at in enumerate(origin):
        if axis not in axes and not 0 <= at < extents[axis]:
            if bounded is not None:
                raise ProtocolFault(f"{at} is outside axis {axis}, of {extents[axis]} elements")
            there[axis] = slice(0, 0)
    return tuple(there), tuple(here)


def ordered(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The tile axes in the order of the array axes that they run along."""
    return tuple(int(a) for a in np.argsort(axes))


def _is_somewhere(there: Where) -> bool:
    return all(not isinstance(part, slice) or part.stop > part.start for part in there)


def read_tile(
    g: Group,
    op: Any,
    array: Memory,
    shape: tuple[int, ...],
    bounded: tuple[int, ...] | None,
    fill: Any = 0,
) -> Data:
    """A tile of an array; what lies outside is ``fill``."""
    out = np.full(shape, fill, carrier(array.type.dtype, g.wide))
    there, here = overlap(array.data.shape, origin_of(g, op.origin), op.axes, shape, bounded)
    if _is_somewhere(there):
        found = array.read(there, g.machine.iteration)
        out.transpose(ordered(op.axes))[tuple(here[a] for a in ordered(op.axes))] = found
    return out


def write_tile(
    g: Group,
    op: Any,
    array: Memory,
    value: Data,
    bounded: tuple[int, ...] | None,
    origin: list[int],
) -> None:
    """Write a tile, or its part inside."""
    there, here = overlap(array.data.shape, origin, op.axes, value.shape, bounded)
    if _is_somewhere(there):
        array.write(there, value[here].transpose(ordered(op.axes)), g.machine.iteration)


def _before_ends(op: Any, value: Data, origin: list[int], rank: int) -> Data:
    """What lies beyond the end of a range is not looked at, whatever it holds."""
    for axis, end in zip(op.limited, origin[rank:], strict=True):
        left = max(end - origin[op.axes[axis]], 0)
        value = value[tuple(slice(left) if a == axis else slice(None) for a in range(value.ndim))]
    return value


@meaning(cta.Read)
def _read(g: Group, op: cta.Read) -> Held:
    type = op.out.type
    tile = read_tile(g, op, g.memory(op.array), shape_of(type), op.bounded, op.fill)
    return g.registers(tile, type)


@meaning(cta.ReadScalar)
def _read_scalar(g: Group, op: cta.ReadScalar) -> Held:
    array, where = g.memory(op.array), origin_of(g, op.origin)
    _check_inside(array, where)
    return held(array.read(tuple(where), g.machine.iteration))


def _check_inside(array: Memory, where: list[int]) -> None:
    if not all(0 <= at < extent for at, extent in zip(where, array.data.shape, strict=True)):
        raise ProtocolFault(f"{where} is outside {array.name}, of shape {array.data.shape}")


@meaning(cta.Write)
def _write(g: Group, op: cta.Write) -> None:
    array, origin = g.memory(op.array), origin_of(g, op.origin)
    rank = array.data.ndim
    value = _before_ends(op, _whole(g, op.value), origin, rank)
    write_tile(g, op, array, value, op.bounded, origin[:rank])


def _whole(g: Group, value: Value[Any]) -> Data:
    return whole(g.data(value), value.type, g.warps)


@meaning(memory.Update)
def _update(g: Group, op: memory.Update) -> None:
    array, origin = g.memory(op.array), origin_of(g, op.origin)
    rank = array.data.ndim
    value = _before_ends(op, _whole(g, op.value), origin, rank)
    update_tile(g, op, array, value, op.bounded, origin[:rank])


def update_tile(
    g: Group,
    op: Any,
    array: Memory,
    value: Data,
    bounded: tuple[int, ...] | None,
    origin: list[int],
) -> None:
    """Update a tile of an array, or its part inside."""
    there, here = overlap(array.data.shape, origin, op.axes, value.shape, bounded)
    if _is_somewhere(there):
        new = value[here].transpose(ordered(op.axes))
        update_in_order(g.machine, array, there, op.update, new)


# --- places ------------------------------------------------------------------------------------


def _places(g: Group, op: Any) -> tuple[list[Data], Data]:
    """The coordinates of each element, and which of them are inside."""
    extents = g.memory(op.array).data.shape
    at = [_whole(g, v).astype(np.int64) for v in op.coordinates]
    inside = np.ones(at[0].shape, np.bool_)
    for one, extent in zip(at, extents, strict=True):
        inside &= (one >= 0) & (one < extent)
    if getattr(op, "run", -1) >= 0 and op.vector > 1:
        _check_run(at, op.run, op.vector, inside)
    return at, inside


def _check_run(at: list[Data], axis: int, vector: int, inside: Data) -> None:
    """A vector's places follow each other along one coordinate, all inside or all out."""

    def cut(one: Data) -> Data:
        moved = np.moveaxis(one, axis, -1)
        made: Data = moved.reshape(*moved.shape[:-1], -1, vector)
        return made

    whole_ones = cut(inside).all(-1)
    if (whole_ones != cut(inside).any(-1)).any():
        raise ProtocolFault("a vector lies across the array's end")
    steps = [np.diff(cut(one), axis=-1)[whole_ones] for one in at]
    if not (steps[-1] == 1).all() or any((step != 0).any() for step in steps[:-1]):
        raise ProtocolFault("a vector's elements are no neighbours")


@meaning(memory.Gather)
def _gather(g: Group, op: memory.Gather) -> Held:
    at, inside = _places(g, op)
    array = g.memory(op.array)
    out = np.full(inside.shape, g.number_of(op.fill), carrier(array.type.dtype, g.wide))
    out[inside] = array.read(tuple(one[inside] for one in at), g.machine.iteration)
    return g.registers(out, op.out.type)


@meaning(memory.Scatter)
def _scatter(g: Group, op: memory.Scatter) -> None:
    at, inside = _places(g, op)
    where = tuple(one[inside] for one in at)
    array, value = g.memory(op.array), _whole(g, op.value)[inside]
    if op.update:
        update_each(g.machine, array, where, value, op.update)
        return
    places = np.stack(where, axis=-1) if where else np.zeros((0, 0))
    if len(np.unique(places, axis=0)) < len(places):
        raise InterpretError(f"race: two elements are written to one place of {array.name}")
    array.write(where, value, g.machine.iteration)


@meaning(memory.Atomic, memory.CompareExchange)
def _atomic(g: Group, op: memory.Atomic | memory.CompareExchange) -> Held:
    at, inside = _places(g, op)
    array, value = g.memory(op.array), _whole(g, op.value)
    out = np.full(inside.shape, g.number_of(op.fill), value.dtype)
    compares = isinstance(op, memory.CompareExchange)
    expected = _whole(g, op.expected)[inside] if isinstance(op, memory.CompareExchange) else None
    kind = "exchange" if compares else op.update  # type: ignore[union-attr]
    where = tuple(one[inside] for one in at)
    out[inside] = update_each(g.machine, array, where, value[inside], kind, expected)
    given = g.registers(out, op.out.type)
    return held(only_firsts(given.data, op.out.type, g.warps))
