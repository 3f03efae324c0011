"""Meaning of the ops of level ``tile``: loops over tiles, memory, products, padding."""

from __future__ import annotations

import sys
from itertools import product as grid_of
from typing import Any

import numpy as np

from tilec.interp.elementwise import settle
from tilec.interp.looking import AssertError, failed, loops_at, printed, text_of
from tilec.interp.machine import Held, Indices, Machine, held, meaning, with_fill
from tilec.interp.memory import InterpretError, Memory, Selection
from tilec.interp.numbers import Data, poison, rounded
from tilec.interp.updates import update_in_order
from tilec.ir.checks import loops_around
from tilec.ir.core import Value
from tilec.ir.declare import Effects
from tilec.ir.levels import author, parts, tile
from tilec.ir.types import DType, Index, Scalar


@meaning(tile.ExtentOf)
def _extent(machine: Machine, op: tile.ExtentOf) -> Held:
    return held(np.int32(machine.memory(op.array).data.shape[op.axis]))


@meaning(tile.Whole)
def _whole(machine: Machine, op: tile.Whole) -> Indices:
    extent, size = machine.memory(op.array).data.shape[op.axis], machine.size(op.size)
    if extent > size:
        raise InterpretError(f"the axis has {extent} elements, its tile only {size}")
    return machine.enter(op.size, Indices(0, size, extent))


@meaning(tile.Part)
def _part(machine: Machine, op: tile.Part) -> Indices:
    return Indices(op.start, op.size, op.size)


@meaning(tile.Slice)
def _slice(machine: Machine, op: tile.Slice) -> Held:
    source = machine.values[op.x]
    where = (slice(None),) * op.axis + (slice(op.start, op.start + op.size),)
    valid = (*source.valid[: op.axis], None, *source.valid[op.axis + 1 :])
    return held(source.data[where], valid)


@meaning(tile.Parallel)
def _parallel(machine: Machine, op: tile.Parallel) -> None:
    extents = [machine.scalar(v) for v in op.extents]
    sizes = [1 if s == 0 else machine.size(s) for s in op.sizes]
    memories = [m for m in machine.values.values() if isinstance(m, Memory)]
    for memory in memories:
        memory.begin_parallel()
    counts = [range(0, extent, size) for extent, size in zip(extents, sizes, strict=True)]
    for number, starts in enumerate(grid_of(*counts), start=1):
        machine.iteration = number
        for axis, start in enumerate(starts):
            machine.values[op.body.args[axis]] = (
                held(np.int32(start))
                if op.sizes[axis] == 0
                else machine.enter(op.sizes[axis], _tile_at(start, sizes[axis], extents[axis]))
            )
        machine.run(op.body)
    machine.leave(op.sizes)
    machine.iteration = 0
    for memory in memories:
        memory.end_parallel()


def _tile_at(start: int, size: int, extent: int) -> Indices:
    return Indices(start, size, min(size, extent - start))


@meaning(tile.ForTiles, parts.ForPart)
def _for_tiles(machine: Machine, op: tile.ForTiles) -> list[Any]:
    extent, size = machine.scalar(op.extent), machine.size(op.size)
    lower, upper = 0, extent
    if isinstance(op, parts.ForPart):
        lower, upper = machine.scalar(op.lower), machine.scalar(op.upper)
        if lower < 0 or lower % size or (lower < upper and upper > -(-extent // size) * size):
            raise InterpretError(f"a part from {lower} to {upper} of {extent} in steps of {size}")
    return _rounds(machine, op, range(lower, upper, size), [machine.values[v] for v in op.init])


def _rounds(machine: Machine, op: tile.ForTiles, starts: range, carried: list[Any]) -> list[Any]:
    """Some rounds of a loop, in order, from a state to the state after them."""
    extent, size = machine.scalar(op.extent), machine.size(op.size)
    for start in starts:
        index = machine.enter(op.size, _tile_at(start, size, extent))
        if isinstance(op, parts.ForPart) and op.full and index.valid < size:
            raise InterpretError("a part that is said to be full has an edge")
        machine.count("rounds", op)
        machine.values.update(zip(op.body.args, [index, *carried], strict=True))
        carried = machine.run(op.body)
    machine.leave([op.size])
    return carried


@meaning(tile.ForShare)
def _for_share(machine: Machine, op: tile.ForShare) -> list[Any]:
    extent, size, share = machine.scalar(op.extent), machine.size(op.size), machine.scalar(op.share)
    starts = range(0, extent, size)
    each = -(-len(starts) // op.count)
    carried = [machine.values[v] for v in op.init]
    return _rounds(machine, op, starts[share * each : (share + 1) * each], carried)


@meaning(tile.ForJoined)
def _for_joined(machine: Machine, op: tile.ForJoined) -> list[Any]:
    """In order; and in two parts as well, which must come to much the same.

    Rounds that write run once only. Where an anchor takes its least value, what is carried depends
    on where a part starts, legally, so nothing can be compared.
    """
    extent, size = machine.scalar(op.extent), machine.size(op.size)
    starts, init = range(0, extent, size), [machine.values[v] for v in op.init]
    carried = _rounds(machine, op, starts, init)
    if machine.lazy or any(inner.effects & ~Effects.READS for inner in op.body.walk()):
        return carried
    half = (len(starts) + 1) // 2
    parts = [_rounds(machine, op, part, init) for part in (starts[:half], starts[half:])]
    machine.values.update(zip(op.join.args, [v for part in parts for v in part], strict=True))
    for value, ordered, merged in zip(op.init, carried, machine.run(op.join), strict=True):
        if not _alike(value.type.dtype, ordered.data, merged.data):
            raise InterpretError(
                f"`join` of {value.name}: two parts of the loop, merged, come to something else "
                "than the loop in order; the function must be associative, and merging with the "
                "initial values must change nothing"
            )
    return carried


_JOIN_BITS = 8
"""Bits of a float32 result on which parts and whole must agree; narrower floats lose more."""


def _alike(dtype: DType, one: Data, other: Data) -> bool:
    """Whether two results differ by no more than another order of sums explains."""
    if not dtype.is_float:
        return bool(np.array_equal(one, other))
    x, y = one.astype(np.float64), other.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    finite = np.abs(x[np.isfinite(x)])
    bits = _JOIN_BITS if dtype.bits > 16 else _JOIN_BITS // 2
    allowed = 2.0**-bits * max(float(finite.max()) if finite.size else 0.0, 2.0**-20)
    with np.errstate(invalid="ignore"):
        return bool(np.all(same | (np.abs(x - y) <= allowed)))


@meaning(tile.IndexValues)
def _indices(machine: Machine, op: tile.IndexValues) -> Held:
    index: Indices = machine.values[op.index]
    data = np.arange(index.start, index.start + index.size, dtype=np.int32)
    if not machine.explicit:
        data = with_fill(data, 0, index.valid, poison(op.out.type.dtype))
    return held(data, (index.valid,))


@meaning(parts.FirstIndex)
def _first(machine: Machine, op: parts.FirstIndex) -> Held:
    return held(np.int32(machine.values[op.index].start))


@meaning(tile.ValidCount)
def _length(machine: Machine, op: tile.ValidCount) -> Held:
    return held(np.int32(machine.values[op.index].valid))


# --- memory --------------------------------------------------------------------------------------


def _select(machine: Machine, memory: Memory, subscripts: tuple[Value[Any], ...]) -> Selection:
    """Array elements that the valid part of the subscripts selects."""
    where: list[int | slice] = []
    for axis, value in enumerate(subscripts):
        extent = memory.data.shape[axis]
        if isinstance(value.type, Index):
            index: Indices = machine.values[value]
            last = index.start + index.valid
            where.append(slice(index.start, last))
            inside = index.start >= 0 and last <= extent
        else:
            at = int(machine.scalar(value))
            where.append(at)
            last, inside = at + 1, 0 <= at < extent
        if not inside:
            raise InterpretError(
                f"subscript {axis} of {memory.name} reaches {last - 1}, "
                f"the axis has {extent} elements"
            )
    return tuple(where)


def _spans(machine: Machine, subscripts: tuple[Value[Any], ...]) -> list[Indices]:
    return [machine.values[v] for v in subscripts if isinstance(v.type, Index)]


@meaning(tile.Load)
def _load(machine: Machine, op: tile.Load) -> Held:
    memory = machine.memory(op.array)
    found = memory.read(_select(machine, memory, op.subscripts), machine.iteration)
    if isinstance(op.out.type, Scalar):
        return held(found)
    spans, dtype = _spans(machine, op.subscripts), op.out.type.dtype
    outside = np.zeros((), found.dtype) if machine.explicit else poison(dtype, machine.wide)
    data = np.full([s.size for s in spans], outside, found.dtype)
    data[tuple(slice(s.valid) for s in spans)] = found
    return held(data, tuple(s.valid for s in spans))


@meaning(tile.Store)
def _store(machine: Machine, op: tile.Store) -> None:
    memory, data = machine.memory(op.array), machine.data(op.value)
    where = _select(machine, memory, op.subscripts)
    valid = tuple(slice(s.valid) for s in _spans(machine, op.subscripts))
    if op.update:
        update_in_order(machine, memory, where, op.update, data[valid])
        return
    memory.write(where, data[valid], machine.iteration)


# --- tiles ---------------------------------------------------------------------------------------


@meaning(tile.Transpose)
def _transpose(machine: Machine, op: tile.Transpose) -> Held:
    source = machine.values[op.x]
    return held(source.data.T, source.valid[::-1])


@meaning(tile.Dot)
def _dot(machine: Machine, op: tile.Dot) -> Held:
    a, b = machine.filled(op.a, 1, 0), machine.filled(op.b, 0, 0)
    if op.precision == "tf32" and not machine.wide:
        a, b = read_as_tf32(a), read_as_tf32(b)
    summed = product(a, b, op.a.type.dtype.name, machine.wide) + machine.data(op.acc)
    valid = tuple(
        given if given is not None else own
        for given, own in zip(
            machine.values[op.acc].valid,
            (machine.values[op.a].valid[0], machine.values[op.b].valid[1]),
            strict=True,
        )
    )
    dtype = op.out.type.dtype
    if dtype.is_float:
        return held(rounded(dtype, np.asarray(summed), machine.wide), valid)
    return held(settle(dtype, summed, machine.wide), valid)


def read_as_tf32(x: Data) -> Data:
    """What a tensor core reads of an f32: its low 13 bits count as zero."""
    made: Data = (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return made


def product(a: Data, b: Data, dtype: str, wide: bool) -> Data:
    """a @ b: narrow floats in float32, f32 in float64 and rounded once, integers exactly."""
    if a.dtype.kind in "iub":
        through: Any = np.int64
    else:
        through = np.float64 if wide or dtype in ("f32", "f64") else np.float32
    made: Data = np.matmul(a.astype(through), b.astype(through))
    return made


@meaning(author.Home)
def _home(machine: Machine, op: author.Home) -> None:
    """Where a value lies says nothing about what it is."""


@meaning(author.Assert)
def _assert(machine: Machine, op: author.Assert) -> None:
    if machine.silent:
        return
    data, ranges = _existing(machine, op, op.condition)
    if data.all():
        return
    first = np.argwhere(~data)[0].tolist()
    element = [low + at for (low, _), at in zip(ranges, first, strict=True)]
    beside = "" if data.ndim else _loops(machine, op)
    raise AssertError(failed(text_of(op.text), element, int((~data).sum()) - 1, beside))


def _loops(machine: Machine, op: author.Assert) -> str:
    """Where the loops around an op stand."""
    around = loops_around(machine.body, op)
    here = [machine.values[index] for index in around.indices]
    values = [at.start if isinstance(at, Indices) else int(at.data) for at in here]
    return loops_at(around.names, values)


Ranges = list[tuple[int, int]]


def _existing(
    machine: Machine, op: author.Assert | author.Print, value: Value[Any]
) -> tuple[Data, Ranges]:
    """The elements that exist of a scalar or tile, and which indices they have, from 0 if none."""
    data = machine.data(value)
    counts = [machine.valid_count(value, axis) for axis in range(data.ndim)]
    starts = [0] * data.ndim
    for axis, index in zip(op.axes, op.indices, strict=True):
        here: Indices = machine.values[index]
        starts[axis], counts[axis] = here.start, here.valid
    data = data[tuple(slice(count) for count in counts)]
    return data, [(low, low + n) for low, n in zip(starts, data.shape, strict=True)]


@meaning(author.Print)
def _print(machine: Machine, op: author.Print) -> None:
    if not machine.silent:
        data, ranges = _existing(machine, op, op.x)
        sys.stdout.write(printed(text_of(op.text), ranges, data))


@meaning(author.Meaning)
def _said(machine: Machine, op: author.Meaning) -> Held:
    said: Held = machine.values[op.says]
    return said


@meaning(tile.Pad)
def _pad(machine: Machine, op: tile.Pad) -> Held:
    source, index = machine.values[op.x], machine.values[op.index]
    machine.count("fills", op)
    value = np.asarray(op.value).astype(source.data.dtype)
    valid = list(source.valid)
    valid[op.axis] = index.valid
    return held(with_fill(source.data, op.axis, index.valid, value), tuple(valid))


@meaning(tile.Require)
def _require(machine: Machine, op: tile.Require) -> None:
    if not machine.scalar(op.condition):
        raise InterpretError("this launch breaks the requirement")
