"""Meaning of the ops on register tiles: axes, reductions, folds, pieces, layouts, votes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.interp import elementwise
from tilec.interp.cta.faults import ProtocolFault
from tilec.interp.cta.group import Group, meaning
from tilec.interp.cta.registers import (
    LANES,
    coordinates,
    find_registers,
    firsts,
    renamed,
    shape_of,
    spread,
    whole,
)
from tilec.interp.machine import Held, held
from tilec.interp.numbers import Data
from tilec.ir.levels import cta, fold, math, memory, piece
from tilec.ir.types import DType, Register

_PAIRS: dict[str, type[math.Binary]] = {
    "add": math.Add, "mul": math.Mul, "max": math.Max, "min": math.Min, "and": math.And,
    "or": math.Or,
}  # fmt: skip


def paired(kind: str, dtype: DType, x: Data, y: Data, wide: bool) -> Data:
    """Two partial results as one."""
    return elementwise.settle(dtype, elementwise.BINARY[_PAIRS[kind]](x, y), wide)


# --- axes --------------------------------------------------------------------------------------


@meaning(math.Fill)
def _fill(g: Group, op: math.Fill) -> Held:
    places = (g.warps, LANES, op.out.type.layout.size("reg"))
    return held(np.broadcast_to(g.data(op.x), places))


@meaning(math.Expand)
def _expand(g: Group, op: math.Expand) -> Any:
    if not isinstance(op.x.type, Register):
        return g.registers(
            np.full(op.out.type.shape, g.number_of(op.x), g.data(op.x).dtype), op.out.type
        )

    def move(at: tuple[Data, ...]) -> tuple[Data, ...]:
        return (*at[: op.axis], *at[op.axis + 1 :])

    return held(renamed(g.data(op.x), op.x.type, op.out.type, move, g.warps))


@meaning(math.Squeeze)
def _squeeze(g: Group, op: math.Squeeze) -> Any:
    if not isinstance(op.out.type, Register):
        return held(g.tile(op.x).reshape(()))

    def move(at: tuple[Data, ...]) -> tuple[Data, ...]:
        zero = np.zeros((g.warps, LANES, op.out.type.layout.size("reg")), np.int64)
        return (*at[: op.axis], zero, *at[op.axis :])

    return held(renamed(g.data(op.x), op.x.type, op.out.type, move, g.warps))


@meaning(math.Broadcast)
def _broadcast(g: Group, op: math.Broadcast) -> Held:
    small = shape_of(op.x.type)

    def move(at: tuple[Data, ...]) -> tuple[Data, ...]:
        return tuple(one * (extent != 1) for one, extent in zip(at, small, strict=True))

    return held(renamed(g.data(op.x), op.x.type, op.out.type, move, g.warps))


@meaning(cta.Slice)
def _slice(g: Group, op: cta.Slice) -> Held:
    def move(at: tuple[Data, ...]) -> tuple[Data, ...]:
        return tuple(one + op.start * (axis == op.axis) for axis, one in enumerate(at))

    return held(renamed(g.data(op.x), op.x.type, op.out.type, move, g.warps))


@meaning(cta.Convert)
def _convert(g: Group, op: cta.Convert) -> Held:
    wanted = coordinates(op.layout, g.warps)
    found, there = find_registers(op.x.type.layout, shape_of(op.x.type), wanted, g.warps)
    if there.all():
        return held(np.take_along_axis(g.data(op.x), found, -1))
    return g.registers(g.tile(op.x), op.out.type)


@meaning(cta.Coordinates)
def _coordinates(g: Group, op: cta.Coordinates) -> Held:
    return held(coordinates(op.out.type.layout, g.warps)[op.axis].astype(np.int32))


@meaning(cta.AnyLane)
def _any(g: Group, op: cta.AnyLane) -> Held:
    data = g.data(op.x)
    return held(data.any((1, 2), keepdims=True) if data.ndim else data)


# --- reductions --------------------------------------------------------------------------------


@meaning(math.Reduce)
def _reduce(g: Group, op: math.Reduce) -> Held:
    tile, dtype = g.tile(op.x), op.out.type.dtype
    in_order = op.strict and dtype.is_float and op.kind in elementwise.FREE_ORDER
    how = elementwise.halved if in_order else elementwise.reduce
    return g.registers(how(op.kind, dtype, tile, op.axis, g.wide), op.out.type)


@meaning(cta.ReduceThread)
def _reduce_thread(g: Group, op: cta.ReduceThread) -> Held:
    """Registers that differ along the axis alone become one."""
    source, kept = op.x.type.layout, op.out.type.layout
    at = {kept(reg=r): r for r in range(kept.size("reg"))}
    groups: list[list[int]] = [[] for _ in at]
    for register in range(source.size("reg")):
        place = source(reg=register)
        groups[at[tuple(0 if a == op.axis else c for a, c in enumerate(place))]].append(register)
    parts = g.data(op.x)[..., np.array(groups)]
    return held(elementwise.reduce(op.kind, op.out.type.dtype, parts, parts.ndim - 1, g.wide))


@meaning(cta.ReduceLanes)
def _reduce_lanes(g: Group, op: cta.ReduceLanes) -> Held:
    data, dtype = g.data(op.x), op.out.type.dtype
    lanes = np.arange(LANES)
    for placed in op.x.type.layout.placed:
        if placed.space != "lane" or op.axis not in placed.digit.axes:
            continue
        for bit in _bits(placed.weight, placed.digit.extent):
            data = paired(op.kind, dtype, data, data[:, lanes ^ bit], g.wide)
    return held(data)


def _bits(weight: int, extent: int) -> list[int]:
    """The bits of a lane's number that a digit is made of."""
    return [weight << n for n in range(extent.bit_length() - 1)]


@meaning(cta.Exchange)
def _exchange(g: Group, op: cta.Exchange) -> Held:
    """The parts of an element lie in the warps along the digits that are copies."""
    data, dtype = g.data(op.x), op.out.type.dtype
    warps = np.arange(g.warps)
    for placed in op.x.type.layout.placed:
        if placed.space == "warp" and placed.digit.is_copy:
            for bit in _bits(placed.weight, placed.digit.extent):
                data = paired(op.kind, dtype, data, data[warps ^ bit], g.wide)
    return held(data)


@meaning(fold.Fold, fold.FoldWarps)
def _fold(g: Group, op: fold.Fold | fold.FoldWarps) -> Held:
    """Element i with i + h, for h the powers of two from large to small, down to the new extent."""
    parts = np.moveaxis(g.tile(op.x), op.axis, 0)
    dtype, step = op.out.type.dtype, int(op.out.type.shape[op.axis])
    half = 1 << (len(parts) // step - 1).bit_length() - 1
    while half:
        rest = len(parts) - half * step
        both = paired(op.kind, dtype, parts[:rest], parts[half * step :], g.wide)
        parts, half = np.concatenate([both, parts[rest : half * step]]), half // 2
    return g.registers(np.moveaxis(parts, 0, op.axis), op.out.type)


# --- pieces of an axis -------------------------------------------------------------------------


def _inserted(one: Data, step: int, extent: int, which: int) -> Data:
    """A coordinate where a digit of that value has been put in."""
    made: Data = one // step * (step * extent) + which * step + one % step
    return made


def _closed(one: Data, step: int, extent: int) -> Data:
    """A coordinate without its digit."""
    made: Data = one // (step * extent) * step + one % step
    return made


def _along(at: tuple[Data, ...], axis: int, one: Data) -> tuple[Data, ...]:
    return (*at[:axis], one, *at[axis + 1 :])


@meaning(piece.Take)
def _take(g: Group, op: piece.Take) -> Held:
    def move(at: tuple[Data, ...]) -> tuple[Data, ...]:
        return _along(at, op.axis, _inserted(at[op.axis], op.step, op.extent, op.which))

    return held(renamed(g.data(op.x), op.x.type, op.out.type, move, g.warps))


@meaning(piece.Join)
def _join(g: Group, op: piece.Join) -> Held:
    count = len(op.parts)

    def move(at: tuple[Data, ...]) -> tuple[Data, ...]:
        return _along(at, op.axis, _closed(at[op.axis], op.step, count))

    digit = coordinates(op.out.type.layout, g.warps)[op.axis] // op.step % count
    moved = [renamed(g.data(p), p.type, op.out.type, move, g.warps) for p in op.parts]
    return held(np.choose(digit, moved) if count <= 32 else _chosen(digit, moved))


def _chosen(digit: Data, parts: list[Data]) -> Data:
    """``np.choose`` takes 32 choices at most."""
    made = parts[0].copy()
    for number, part in enumerate(parts[1:], 1):
        made[digit == number] = part[digit == number]
    return made


@meaning(piece.Close)
def _close(g: Group, op: piece.Close) -> Held:
    """Lanes that are taken for one must hold the same, whichever value of the digit they have."""
    data, source, target = g.data(op.x), op.x.type, op.out.type
    at = coordinates(target.layout, g.warps)
    made = np.zeros(at[0].shape, data.dtype)
    missing = np.ones(at[0].shape, np.bool_)
    for which in range(op.extent):
        wanted = _along(at, op.axis, _inserted(at[op.axis], op.step, op.extent, which))
        found, there = find_registers(source.layout, shape_of(source), wanted, g.warps)
        take = missing & there
        made[take] = np.take_along_axis(data, found, -1)[take]
        missing &= ~there
    if missing.any():
        raise ProtocolFault(f"a lane holds no value of the digit of {source} that closes up")
    whole(made, target, g.warps)
    return held(made)


@meaning(piece.Spread)
def _spread(g: Group, op: piece.Spread) -> Held:
    def move(at: tuple[Data, ...]) -> tuple[Data, ...]:
        return _along(at, op.axis, _closed(at[op.axis], op.step, op.extent))

    return held(renamed(g.data(op.x), op.x.type, op.out.type, move, g.warps))


@meaning(piece.Partner)
def _partner(g: Group, op: piece.Partner) -> Held:
    weight = piece.lane_weight(op.x.type.layout, op.axis, op.step)
    if weight is None:
        raise ProtocolFault(f"no bit of the lane number moves by {op.step}")
    return held(g.data(op.x)[:, np.arange(LANES) ^ weight])


# --- copies ------------------------------------------------------------------------------------


@meaning(memory.Share)
def _share(g: Group, op: memory.Share) -> Held:
    type, data = op.x.type, g.data(op.x)
    first = data.reshape(-1)[firsts(type.layout, g.warps, shape_of(type))]
    return held(spread(first, type, g.warps))
