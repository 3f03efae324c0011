"""What the ops of family ``memory`` do, on the small machine of ``cta_machine``.

It is strict about vectors: their elements must be neighbours, all inside the array or all outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.passes.cta_machine import Group, before_ends, means, ordered, origin_of, overlap
from tilec.ir.levels import memory

_UPDATE: dict[str, Any] = {
    "": lambda old, new: new,
    "exchange": lambda old, new: new,
    "add": lambda old, new: old + new,
    "max": np.maximum,
    "min": np.minimum,
    "and": lambda old, new: int(old) & int(new),
    "or": lambda old, new: int(old) | int(new),
    "xor": lambda old, new: int(old) ^ int(new),
}


def _visits(g: Group, op: Any) -> Iterator[tuple[tuple[int, ...], tuple[int, ...] | None]]:
    """Each element of a tile, and its place in the array, or None outside."""
    shape = op.coordinates[0].type.shape
    at = [np.broadcast_to(g.values[v], shape) for v in op.coordinates]
    extents = g.values[op.array].shape
    for here in np.ndindex(*shape):
        place = tuple(int(one[here]) for one in at)
        inside = all(0 <= n < extent for n, extent in zip(place, extents, strict=True))
        yield here, place if inside else None
    if getattr(op, "run", -1) >= 0:
        _check_run(at, op.run, op.vector, extents)


def _check_run(at: list[np.ndarray], axis: int, vector: int, extents: tuple[int, ...]) -> None:
    """A vector's places follow each other along one coordinate, all inside or all out."""
    moved = [np.moveaxis(one, axis, -1) for one in at]
    parts = [one.reshape(*one.shape[:-1], -1, vector) for one in moved]
    inside = np.ones(parts[0].shape, bool)
    for one, extent in zip(parts, extents, strict=True):
        inside &= (one >= 0) & (one < extent)
    assert np.all(inside.all(-1) == inside.any(-1)), "a vector lies across the array's end"
    whole = inside.all(-1)
    steps = [np.diff(one, axis=-1)[whole] for one in parts]
    rising = [n for n, step in enumerate(steps) if np.all(step == 1)]
    assert not np.any(whole) or rising, "a vector's elements are no neighbours"
    assert all(np.all(step == 0) for n, step in enumerate(steps) if n not in rising[:1])


@means(memory.Gather)
def _gather_places(g: Group, op: memory.Gather) -> None:
    out = np.full(op.out.type.shape, g.values[op.fill])
    for here, place in _visits(g, op):
        if place is not None:
            out[here] = g.values[op.array][place]
    g.values[op.out] = out


@means(memory.Scatter)
def _scatter_places(g: Group, op: memory.Scatter) -> None:
    array, value = g.values[op.array], np.broadcast_to(g.values[op.value], op.value.type.shape)
    for here, place in _visits(g, op):
        if place is not None:
            array[place] = _UPDATE[op.update](array[place], value[here])


@means(memory.Update)
def _update_tile(g: Group, op: memory.Update) -> None:
    where, array = origin_of(g, op.origin), g.values[op.array]
    value = np.broadcast_to(g.values[op.value], op.value.type.shape)
    value = before_ends(op, value, where, array.ndim)
    there, here = overlap(array, where[: array.ndim], op.axes, value.shape, op.bounded)
    if all(part.stop > part.start for part in here):
        new = value[here].transpose(ordered(op.axes))
        array[there] = _UPDATE[op.update](array[there], new)


@means(memory.Atomic, memory.CompareExchange)
def _atomic_places(g: Group, op: memory.Atomic | memory.CompareExchange) -> None:
    array, value = g.values[op.array], np.broadcast_to(g.values[op.value], op.value.type.shape)
    out = np.full(op.out.type.shape, g.values[op.fill])
    for here, place in _visits(g, op):
        if place is None:
            continue
        out[here] = array[place]
        if isinstance(op, memory.Atomic):
            array[place] = _UPDATE[op.update](array[place], value[here])
        elif array[place] == np.broadcast_to(g.values[op.expected], value.shape)[here]:
            array[place] = value[here]
    g.values[op.out] = out


@means(memory.Share)
def _share(g: Group, op: memory.Share) -> None:
    g.values[op.out] = g.values[op.x]
