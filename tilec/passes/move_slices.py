"""Parts of tiles move to loads, where they cost nothing.

Laws, for a part along one axis: the part of a load is the load of the part (of arrays that the
kernel only reads, so that it does not matter when); the part of elementwise work is the work on
parts; what is spread along the axis is spread less far; other axes are inserted, exchanged and
combined as before. What a product, a loop or a branch gives is left as it is.
"""

from __future__ import annotations

from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Op, Region, Value
from tilec.ir.levels import math, tile
from tilec.ir.types import Index, Tile

Values = list[Value[Any]]


def move_slices(region: Region) -> bool:
    """Move every part as far as it goes; True if any moved."""
    changed = False
    while rewrite.apply(region, _moved):
        changed = True
    return changed


def _part(op: tile.Slice, value: Value[Any], axis: int, builder: Builder) -> Value[Any]:
    return builder.add(tile.Slice(value, axis=axis, start=op.start, size=op.size), value.name).out


def _moved(op: Op, builder: Builder) -> Values | None:
    if not isinstance(op, tile.Slice):
        return None
    made = op.x.owner
    if isinstance(made, tile.Load):
        return _of_load(op, made, builder)
    if isinstance(made, tile.Slice) and made.axis == op.axis:
        start = made.start + op.start
        return [builder.add(tile.Slice(made.x, axis=op.axis, start=start, size=op.size)).out]
    if isinstance(made, math.Elementwise | math.Cast) and len(made.results) == 1:
        parts = [
            _part(op, v, op.axis, builder) if isinstance(v.type, Tile) else v for v in made.operands
        ]
        fresh = type(made).from_parts(parts, made.attributes, [], [op.out.type])
        return [builder.add(fresh).results[0]]
    if isinstance(made, math.Fill):
        return [builder.add(math.Fill(made.x, type=op.out.type)).out]
    if isinstance(made, tile.Transpose):
        return [builder.add(tile.Transpose(_part(op, made.x, 1 - op.axis, builder))).out]
    if isinstance(made, math.Expand) and made.axis != op.axis:
        inner = _part(op, made.x, op.axis - (made.axis < op.axis), builder)
        return [builder.add(math.Expand(inner, axis=made.axis, type=op.out.type)).out]
    if isinstance(made, math.Reduce):
        axis = op.axis + (made.axis <= op.axis)
        inner = _part(op, made.x, axis, builder)
        return [builder.add(_on(made, inner, op.out.type)).results[0]]
    if isinstance(made, math.Broadcast):
        short = made.x.type.shape[op.axis] == 1
        inner = made.x if short else _part(op, made.x, op.axis, builder)
        return [builder.add(math.Broadcast(inner, type=op.out.type)).out]
    return None


def _on(made: Op, x: Value[Any], type_: Any) -> Op:
    """The same op on another operand."""
    return type(made).from_parts([x], made.attributes, [], [type_])


def _of_load(op: tile.Slice, load: tile.Load, builder: Builder) -> Values | None:
    chosen = [n for n, s in enumerate(load.subscripts) if isinstance(s.type, Index)]
    place = chosen[op.axis]
    whole = load.subscripts[place].owner
    if load.array.type.mode != "in" or not isinstance(whole, tile.Whole | tile.Part):
        return None
    before = whole.start if isinstance(whole, tile.Part) else 0
    start = before + op.start
    part = builder.add(tile.Part(load.array, axis=place, start=start, size=op.size)).out
    subscripts = tuple(part if n == place else s for n, s in enumerate(load.subscripts))
    return [builder.add(tile.Load(load.array, subscripts), load.out.name).out]
