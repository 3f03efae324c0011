"""Register tiles as threads hold them: an array over (warp, lane, register of the thread).

A layout says which element each of these places holds. Copies of an element are places of their
own: that they agree is checked where a tile is taken as a whole (``whole``), not assumed, so a
reduction over several warps that nobody finished, or lanes that went different ways, show there.
Ops that move no data are ``renamed``: a thread finds each element of the result among its own
registers, or the op is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod

import numpy as np

from tilec.interp.cta.faults import ProtocolFault
from tilec.interp.numbers import Data, poison
from tilec.ir.types import Flight, Register
from tilec.layout.linear import Layout

LANES = 32
_KEPT = 512
"""Layouts whose places are kept; a kernel has some dozens."""

Tiled = Register | Flight


@lru_cache(maxsize=_KEPT)
def coordinates(layout: Layout, warps: int) -> tuple[Data, ...]:
    """For each axis, the coordinate of the element at each place."""
    at = {
        "warp": np.arange(warps)[:, None, None],
        "lane": np.arange(LANES)[None, :, None],
        "reg": np.arange(layout.size("reg"))[None, None, :],
    }
    shape = (warps, LANES, layout.size("reg"))
    made = []
    for axis in range(layout.rank):
        found = np.zeros(shape, np.int64)
        added = np.zeros(shape, np.int64)
        for placed in layout.placed:
            digit = placed.digit
            value = at[placed.space] // placed.weight % digit.extent
            for along, step in digit.steps:
                if along != axis:
                    continue
                if digit.is_bit:
                    found = found ^ (value * step)
                else:
                    added = added + value * step
        made.append(found + added)
    return tuple(made)


@lru_cache(maxsize=_KEPT)
def elements(layout: Layout, warps: int, shape: tuple[int, ...]) -> Data:
    """The number of the element at each place, row-major."""
    if not shape:
        return np.zeros((warps, LANES, layout.size("reg")), np.int64)
    found: Data = np.ravel_multi_index(coordinates(layout, warps), shape)
    return found


@lru_cache(maxsize=_KEPT)
def firsts(layout: Layout, warps: int, shape: tuple[int, ...]) -> Data:
    """The first place of each element, as a number of a place."""
    held = elements(layout, warps, shape).ravel()
    found, places = np.unique(held, return_index=True)
    if len(found) != prod(shape):
        raise ProtocolFault(f"the layout {layout} does not hold every element of {shape}")
    return places


def shape_of(type: Tiled) -> tuple[int, ...]:
    """A register tile's extents, which are integers by now."""
    return tuple(int(extent) for extent in type.shape)


def spread(tile: Data, type: Tiled, warps: int) -> Data:
    """A whole tile as the threads hold it."""
    made: Data = tile.reshape(-1)[elements(type.layout, warps, shape_of(type))]
    return made


def first_copies(data: Data, type: Tiled, warps: int) -> Data:
    """The whole tile as the first copy of each element has it."""
    shape = shape_of(type)
    made: Data = data.reshape(-1)[firsts(type.layout, warps, shape)].reshape(shape)
    return made


def whole(data: Data, type: Tiled, warps: int) -> Data:
    """The whole tile; all copies of an element must be equal."""
    made = first_copies(data, type, warps)
    back = spread(made, type, warps)
    differ = (back != data) & ~((back != back) & (data != data))
    if differ.any():
        warp, lane, register = (int(n) for n in np.argwhere(differ)[0])
        place = tuple(int(c[warp, lane, register]) for c in coordinates(type.layout, warps))
        raise ProtocolFault(
            f"copies of element {list(place)} differ: {back[warp, lane, register]} in the first "
            f"thread that holds it, {data[warp, lane, register]} in lane {lane} of warp {warp}"
        )
    return made


def only_firsts(data: Data, type: Register, warps: int) -> Data:
    """Only the first copy of each element keeps it, as after an atomic update."""
    made = np.full(data.shape, poison(type.dtype), data.dtype)
    places = firsts(type.layout, warps, shape_of(type))
    made.reshape(-1)[places] = data.reshape(-1)[places]
    return made


Move = Callable[[tuple[Data, ...]], tuple[Data, ...]]
"""From the coordinates of a result's elements to those of the operand's elements."""


def find_registers(
    source: Layout, shape: tuple[int, ...], wanted: tuple[Data, ...], warps: int
) -> tuple[Data, Data]:
    """For each wanted element, a register of its thread that holds it, and whether one does."""
    there = elements(source, warps, shape)
    size = wanted[0].shape if wanted else (warps, LANES, 1)
    inside = np.ones(size, np.bool_)
    for one, extent in zip(wanted, shape, strict=True):
        inside &= (one >= 0) & (one < extent)
    clipped = tuple(np.clip(one, 0, n - 1) for one, n in zip(wanted, shape, strict=True))
    numbers = np.ravel_multi_index(clipped, shape) if shape else np.zeros(size, np.int64)
    order = np.argsort(there, axis=-1, kind="stable")
    ranked = np.take_along_axis(there, order, -1)
    # One search for all threads: thread after thread, each on numbers of its own.
    apart = (np.arange(ranked[..., 0].size) * (prod(shape) + 1)).reshape(*ranked.shape[:2], 1)
    place = np.searchsorted((ranked + apart).ravel(), (numbers + apart).ravel())
    each = ranked.shape[-1]
    within = place.reshape(size) - np.arange(ranked[..., 0].size).reshape(*size[:2], 1) * each
    within = np.clip(within, 0, each - 1)
    found = np.take_along_axis(order, within, -1)
    return found, inside & (np.take_along_axis(there, found, -1) == numbers)


def renamed(data: Data, source: Tiled, target: Tiled, move: Move, warps: int) -> Data:
    """A result whose elements each thread holds already, under other coordinates."""
    wanted = move(coordinates(target.layout, warps))
    found, there = find_registers(source.layout, shape_of(source), wanted, warps)
    if not there.all():
        warp, lane, register = (int(n) for n in np.argwhere(~there)[0])
        place = [int(one[warp, lane, register]) for one in wanted]
        raise ProtocolFault(
            f"lane {lane} of warp {warp} does not hold element {place} of {source}, "
            "and this op moves nothing between threads"
        )
    return np.take_along_axis(data, found, -1)
