"""Reads, writes and updates at places computed while running, on registers.

Each thread goes to the places of the elements that it holds. What does not exist has the place -1
(``fill-padding``), so nothing here asks about edges. An update is done once for each element: where
several groups hold the same tile, by the first.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilec.ir.core import Value
from tilec.ir.declare import Refused
from tilec.ir.levels import math, memory, tile
from tilec.ir.types import Register, Scalar, Shared, Tile
from tilec.layout.copies import first_copies, repeats_registers
from tilec.layout.shared import swizzled
from tilec.passes.form_stores import single
from tilec.passes.form_tiles import forms, in_layout
from tilec.passes.forming import GROUP_BARRIER, Forming
from tilec.passes.runs import run_of


def _coordinates(f: Forming, op: Any, type: Register) -> tuple[Value[Register], ...]:
    found = []
    for value in op.coordinates:
        found.append(in_layout(f, _spread(f, value, type), type.layout))
    return tuple(found)


def _spread(f: Forming, value: Value[Any], like: Register) -> Value[Any]:
    """What stands for a value, as a tile even if it is a scalar."""
    made = f.get(value)
    if not isinstance(made.type, Scalar):
        return made
    type = Register(made.type.dtype, like.shape, like.layout)
    return f.body.add(math.Fill(made, type=type)).out


def _remark(f: Forming, op: Any, vector: int, what: str) -> None:
    how = f"{vector} neighbours an access" if vector > 1 else "element by element"
    f.ctx.remark(op, f"{op.array.name} is {what} at computed places, {how}")


@forms(tile.Gather)
def _gather(f: Forming, op: tile.Gather) -> None:
    type = f.frames.register(op.out)
    run, vector = run_of(f.ctx, op)
    places = _coordinates(f, op, type)
    made = memory.Gather(op.array, f.get(op.fill), places, run=run, vector=vector)
    f.values[op.out] = f.body.add(made, op.out.name).out
    _remark(f, op, vector, "read")


@forms(tile.Scatter)
def _scatter(f: Forming, op: tile.Scatter) -> None:
    value = f.get(op.value)
    run, vector = run_of(f.ctx, op)
    places = _coordinates(f, op, value.type)
    made = memory.Scatter(op.array, value, places, update=op.update, run=run, vector=vector)
    _remark(f, op, vector, "updated" if op.update else "written")
    if op.update:
        f.once(op.value, made)
    else:
        f.body.add(made)


@forms(tile.Atomic, tile.CompareExchange)
def _atomic(f: Forming, op: tile.Atomic | tile.CompareExchange) -> None:
    """Update, and hand what was found to all copies of an element."""
    scalar = not isinstance(op.out.type, Tile)
    type = single(f, op.array.type.dtype) if scalar else f.get(op.value).type
    if f.team.groups > 1 and (scalar or f.team.split not in f.axes.all_of(op.out)):
        raise Refused(
            "an atomic update with a result that several warpgroups need is not in this version: "
            "pin warpgroups = 1"
        )
    value, places = _spread(f, op.value, type), _coordinates(f, op, type)
    fill = f.get(op.fill)
    made: Any
    if isinstance(op, tile.Atomic):
        made = memory.Atomic(op.array, value, fill, places, update=op.update)
    else:
        expected = in_layout(f, _spread(f, op.expected, type), type.layout)
        made = memory.CompareExchange(op.array, expected, value, fill, places)
    found = f.body.add(made, op.out.name).out
    if any(first_copies(type.layout, f.team.warps)) or repeats_registers(type.layout):
        found = share(f, found)
    if scalar:
        found = f.body.add(math.Squeeze(found, axis=0, type=op.out.type), op.out.name).out
    f.values[op.out] = found
    f.ctx.remark(op, f"{op.array.name} is updated in memory: atomic, in any order")


def share(f: Forming, found: Value[Register]) -> Value[Register]:
    """What the first copy of each element holds, in all its copies."""
    dtype, groups, count = found.type.dtype, f.team.groups, prod(map(int, found.type.shape))
    type = Shared(dtype, (groups, count), swizzled(groups, count, dtype.bits, 0))
    buffer = f.buffer("shared_results", type, "results")
    return f.body.add(memory.Share(found, buffer, barrier=GROUP_BARRIER), found.name).out
