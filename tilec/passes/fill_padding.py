"""Make the fills that consumers ask for explicit, where an edge can occur.

The invalid elements of a ragged tile mean nothing until somebody combines along that axis: a
product needs zeros along K in both operands, a reduction its identity, a place computed while
running one outside the array. Forward analysis says what
invalid elements hold along each axis class: loads fill with zero (form-ctas reads zeros outside an
array, by TMA and by predicated loads alike), constants hold themselves, elementwise work on known
values is computed, everything else is unknown. A ``tile.pad`` is added only where what is held is
not what is asked for, and nowhere along an axis whose extent provably divides.
"""

from __future__ import annotations

import math as pymath
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Kernel, Op, Value
from tilec.ir.levels import along, math, tile
from tilec.ir.types import DType, Extent, Index, Scalar, Tile
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.base import Context, tile_pass
from tilec.passes.constants import Number, constant_value, evaluate
from tilec.passes.forming import may_be_partial
from tilec.passes.range_starts import runs_over_whole_tiles
from tilec.passes.runs import repeats_along


def identity(kind: str, dtype: DType) -> Number:
    """The value that changes nothing in a reduction."""
    if kind in ("max", "min"):
        sign = -1 if kind == "max" else 1
        if dtype.is_float:
            return sign * pymath.inf
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
        high = (1 << (dtype.bits - (dtype.kind == "signed"))) - 1
        return low if kind == "max" else high
    if dtype.kind == "bool":
        return kind == "and"
    value = {"add": 0, "mul": 1, "and": -1 if dtype.kind == "signed" else (1 << dtype.bits) - 1}
    number = value.get(kind, 0)
    return float(number) if dtype.is_float else number


def same_number(held: Number, fill: Number) -> bool:
    """Whether what is held serves as a fill: the same number, and -0 where that is asked for."""
    negative = fill == 0 and pymath.copysign(1, fill) < 0
    return (
        held == fill
        and not isinstance(held, bool)
        and not (negative and pymath.copysign(1, held) > 0)
    )


class Held:
    """What the invalid elements of tiles hold along an axis class."""

    def __init__(self, axes: Axes, kernel: Kernel, ctx: Context) -> None:
        self.axes, self.ctx = axes, ctx
        self.sizes: dict[str, int] = {f"${name}": s for name, s in ctx.schedule.tiles}
        self.grid = {
            arg
            for op in kernel.body.ops
            if isinstance(op, tile.Parallel)
            for arg in op.body.args
            if isinstance(arg.type, Scalar)
        }
        self.memo: dict[tuple[Value[Any], AxisClass], Number | None] = {}

    def along(self, value: Value[Any], axis: AxisClass) -> Number | None:
        """The value held, or None if it is unknown."""
        key = (value, axis)
        if key not in self.memo:
            self.memo[key] = None
            self.memo[key] = self._compute(value, axis)
        return self.memo[key]

    def _compute(self, value: Value[Any], axis: AxisClass) -> Number | None:
        op = value.owner
        constant = constant_value(value)
        if constant is not None:
            return constant
        if not isinstance(value.type, Tile) or not isinstance(op, Op):
            return None
        if isinstance(op, tile.Load):
            runs = axis in self.axes.all_of(value)
            return 0 if runs and not self._of_range(op, axis) else None
        if isinstance(op, tile.Gather):
            # What does not exist has a place outside the array, and gets the fill.
            return constant_value(op.fill) if axis in self.axes.all_of(value) else None
        if isinstance(op, tile.Pad):
            if self.axes.of(op.x, op.axis) is axis:
                return op.value
            return self.along(op.x, axis)
        if isinstance(op, tile.Transpose | math.Expand | math.Squeeze):
            return self.along(op.x, axis)
        if isinstance(op, math.Broadcast):
            # Spread along this axis, every element holds what the one element does.
            return self.along(op.x, axis) if axis in self.axes.all_of(op.x) else None
        if isinstance(op, math.Elementwise | math.Cast):
            held = [self.along(v, axis) for v in op.operands]
            known = [v for v in held if v is not None]
            if len(known) == len(held):
                if isinstance(op, math.Cast) and known[0] == 0:
                    return 0
                return evaluate(op, known)
        return None

    def _of_range(self, op: tile.Load, axis: AxisClass) -> bool:
        """Whether a load's tile ends with a range inside the array, beyond which are elements."""
        return any(
            isinstance(s.owner, tile.Within)
            and self.axes.of(s, 0) is axis
            and not self._whole(s.owner)
            for s in op.subscripts
            if isinstance(s.type, Index)
        )

    def _whole(self, op: tile.Within) -> bool:
        """Whether a range consists of tiles of its axis."""
        size = self.sizes.get(str(op.out.type.size), op.out.type.size)
        return isinstance(size, int) and runs_over_whole_tiles(self.ctx, op, size, self.grid)


class _Filler:
    def __init__(self, kernel: Kernel, ctx: Context) -> None:
        self.ctx = ctx
        self.axes = Axes(kernel.body)
        self.held = Held(self.axes, kernel, ctx)
        self.made: dict[tuple[Value[Any], AxisClass, Number], Value[Any]] = {}
        self.count = 0
        self.first: Op | None = None

    def ragged(self, axis: AxisClass | None) -> Value[Index] | None:
        """The index along which a tile may be partial."""
        if axis is None or axis.index is None:
            return None
        sizes: dict[str, int] = {f"${name}": s for name, s in self.ctx.schedule.tiles}
        for value, _ in axis.members:
            if isinstance(value.type, Index):
                size = sizes.get(str(value.type.size), value.type.size)
                if may_be_partial(self.ctx, value, size):
                    return axis.index
        return None

    def asked(
        self, value: Value[Any], place: int, fill: Number, builder: Builder, visible: Any
    ) -> Value[Any]:
        """The value with the fill asked for along one axis."""
        axis = self.axes.of(value, place)
        index = self.ragged(axis)
        if axis is None or index is None:
            return value
        held = self.held.along(value, axis)
        if held is not None and same_number(held, fill):
            return value
        turned = value.owner
        if isinstance(turned, tile.Transpose):
            # Law: filling and exchanging axes commute; registers hold the tile as it was computed.
            filled = self.asked(turned.x, 1 - place, fill, builder, visible)
            return builder.add(tile.Transpose(filled), value.name).out
        index = self.visible(axis, visible) or index
        pad = builder.add(tile.Pad(value, index, axis=place, value=fill), value.name)
        self.first = self.first or pad
        self.count += 1
        return pad.out

    def visible(self, axis: AxisClass, seen: set[Value[Any]]) -> Value[Index] | None:
        """An index of the class that is defined here: the part of a range, if there is one."""
        found = [v for v, _ in axis.members if isinstance(v.type, Index) and v in seen]
        cut = [v for v in found if isinstance(v.owner, tile.Within)]
        return next(iter([*cut, *found]), None)


PlaceOp = tile.Gather | tile.Scatter | tile.Atomic | tile.CompareExchange


def _place_outside(filler: _Filler, op: PlaceOp, builder: Builder, seen: set[Value[Any]]) -> None:
    """Elements that do not exist get the place -1, outside every array."""
    places = list(op.coordinates)
    for axis in range(len(places[0].type.shape) if isinstance(places[0].type, Tile) else 0):
        along = filler.axes.of(op.coordinates[0], axis)
        index = filler.ragged(along)
        if along is None or index is None:
            continue
        extents = op.array.type.shape
        if any(
            leaves_array(filler.axes, value, along, extent)
            for value, extent in zip(op.coordinates, extents, strict=True)
        ):
            continue
        index = filler.visible(along, seen) or index
        which = next((n for n, v in enumerate(places) if not repeats_along(v, axis)), 0)
        places[which] = _outside(places[which], axis, index, builder)
        filler.first = filler.first or op
        filler.count += 1
    op.coordinates = tuple(places)


def _outside(value: Value[Any], axis: int, index: Value[Index], builder: Builder) -> Value[Any]:
    """Padded with -1 along an axis, before it is spread along others."""
    made = value.owner
    if isinstance(made, math.Broadcast) and not repeats_along(value, axis):
        small = _outside(made.x, axis, index, builder)
        return builder.add(math.Broadcast(small, type=value.type), value.name).out
    if isinstance(made, math.Expand) and axis != made.axis:
        small = _outside(made.x, axis - (axis > made.axis), index, builder)
        return builder.add(math.Expand(small, axis=made.axis, type=value.type), value.name).out
    return builder.add(tile.Pad(value, index, axis=axis, value=-1), value.name).out


def leaves_array(axes: Axes, value: Value[Any], along: AxisClass | None, extent: Extent) -> bool:
    """Whether a coordinate is a loop's own index over that very extent: its edge is the array's."""
    while isinstance(value.owner, math.Broadcast | math.Expand):
        value = value.owner.x
    made = value.owner
    if along is None or not isinstance(made, tile.IndexValues):
        return False
    ranged = isinstance(made.index.owner, tile.Within)
    return not ranged and axes.of(value, 0) is along and made.index.type.extent == extent


def _fill(filler: _Filler, region: Any, seen: set[Value[Any]]) -> None:
    seen = seen | set(region.args)
    builder = Builder(region)
    old, region.ops = region.ops, []
    for op in old:
        for nested in op.regions:
            _fill(filler, nested, seen)
        builder.loc = op.loc
        if isinstance(op, along.Scan) and op.reverse:
            # Read forward, what does not exist comes after all that does.
            fill = identity(op.kind, op.x.type.dtype)
            op.x = filler.asked(op.x, op.axis, fill, builder, seen)
        elif isinstance(op, along.Combine) and (op.reverse or not op.scan):
            op.xs = tuple(
                filler.asked(x, op.axis, fill, builder, seen)
                for x, fill in zip(op.xs, op.identity, strict=True)
            )
        elif isinstance(op, math.Reduce):
            fill = identity(op.kind, math.element_type(op.x.type))
            if op.strict and op.kind == "add" and isinstance(fill, float):
                fill = -0.0  # what changes no float: 0 + -0 is 0
            op.x = filler.asked(op.x, op.axis, fill, builder, seen)
        elif isinstance(op, tile.Dot):
            left, right = (0 if v.type.dtype.is_integer else 0.0 for v in (op.a, op.b))
            op.a = filler.asked(op.a, 1, left, builder, seen)
            op.b = filler.asked(op.b, 0, right, builder, seen)
        elif isinstance(op, PlaceOp):
            _place_outside(filler, op, builder, seen)
        builder.add(op)
        seen.update(op.results)


@tile_pass("fill-padding", level="tile")
def fill_padding(kernel: Kernel, ctx: Context) -> None:
    """Whoever combines along a ragged axis finds the fill that it needs."""
    filler = _Filler(kernel, ctx)
    _fill(filler, kernel.body, set())
    if filler.count:
        ctx.remark(filler.first, f"{filler.count} fills are made explicit at ragged edges")
        rewrite.remove_dead(kernel.body)  # places as they were before they were padded
        rewrite.remove_duplicates(kernel.body)
