"""Tile ops on registers: what changes axes, reduces, asks for coordinates, or reads scalars.

Elementwise ops are kept as they are; their operands have the same axis classes and so the same
layout (``frames``). A reduction is taken apart by who holds the parts: registers of a thread,
lanes of a warp, warps of a group.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import cta, math, parts, tile
from tilec.ir.types import BOOL, F32, S32, Index, Register, Scalar, Shared, Tile
from tilec.layout.convert import conversion, register_moves
from tilec.layout.linear import Layout
from tilec.layout.shared import row_major, swizzled
from tilec.passes.form_strict import strict_sum
from tilec.passes.forming import GROUP_BARRIER, Forming, users
from tilec.passes.frames import slice_of
from tilec.passes.raster import constant
from tilec.passes.recompute import recomputed
from tilec.passes.select.widths import carried_as

Form = Callable[[Forming, Any], None]
FORMS: dict[type[Op], Form] = {}
"""How each tile op becomes ``cta`` ops."""


def forms(*ops: type[Op]) -> Callable[[Form], Form]:
    """Register how op classes are formed."""

    def register(function: Form) -> Form:
        FORMS.update(dict.fromkeys(ops, function))
        return function

    return register


def elementwise(f: Forming, op: Op) -> None:
    """The same op on registers; scalars stay scalars."""
    types = [f.frames.register(r) if isinstance(r.type, Tile) else r.type for r in op.results]
    operands = [f.get(v) for v in op.operands]
    registers = [t for t in types if isinstance(t, Register)]
    if registers:
        operands = [in_layout(f, v, registers[0].layout) for v in operands]
    made = f.body.add(type(op).from_parts(operands, op.attributes, [], types))
    for old, new in zip(op.results, made.results, strict=True):
        new.name = old.name
        f.values[old] = new


def in_layout(f: Forming, value: Value[Any], layout: Layout) -> Value[Any]:
    """The value in a layout, converted (and said so) if it has another one."""
    if not isinstance(value.type, Register) or value.type.layout == layout:
        return value
    if register_moves(value.type.layout, layout) is None:
        again = _read_so(f, value, layout) or recomputed(f.body, value, layout)
        if again is not None:
            return again
    dtype = value.type.dtype
    price = conversion(value.type.layout, layout, max(32, dtype.bits))
    f.ctx.remark(
        value.owner if isinstance(value.owner, Op) else None,
        f"%{value.name} changes its register layout: {price}",
    )
    if register_moves(value.type.layout, layout) is not None:
        return f.body.add(cta.Convert(value, layout=layout), value.name).out
    if dtype.bits >= 32:
        return _through_shared(f, value, layout)
    # Narrow elements share registers and bool has none: they travel as wider ones, exactly.
    wider = f.body.add(math.Cast(value, dtype=F32 if dtype.is_float else S32)).out
    moved = _through_shared(f, wider, layout)
    return f.body.add(math.Cast(moved, dtype=dtype), value.name).out


def _read_so(f: Forming, value: Value[Any], layout: Layout) -> Value[Any] | None:
    """A tile just read from shared memory, read in the layout instead; the first read is dead then.

    Law: between two reads of shared memory with nothing but reads between them, nothing changes.
    """
    read = value.owner
    latest = itertools.takewhile(lambda op: isinstance(op, cta.Get), reversed(f.body.region.ops))
    if not isinstance(read, cta.Get) or read not in latest:
        return None
    wanted = Register(value.type.dtype, value.type.shape, layout)
    made = cta.Get(read.x, instruction="load", type=wanted)
    return f.body.add(made, value.name).out


def _through_shared(f: Forming, value: Value[Register], layout: Layout) -> Value[Any]:
    """Every thread writes what it holds and reads what the other layout asks of it."""
    type, groups = value.type, f.team.groups
    rows, *others = layout.shape
    shape = (rows * groups, *others)
    plain = row_major(*shape)
    shared = f.buffer("converted", Shared(type.dtype, shape, plain), "converted")
    if groups > 1:
        shared = f.body.add(cta.Window(shared, f.group, rows=rows)).out
    f.body.add(cta.Put(shared, value, instruction="store"))
    f.sync()
    wanted = Register(type.dtype, type.shape, layout)
    found = f.body.add(cta.Get(shared, instruction="load", type=wanted), value.name).out
    f.sync()
    return found


@forms(tile.ExtentOf)
def _extent(f: Forming, op: tile.ExtentOf) -> None:
    f.values[op.out] = f.extent(op.array, op.axis)


@forms(tile.Part)
def _part(f: Forming, op: tile.Part) -> None:
    f.origins[op.out] = constant(f.body, op.start)


@forms(tile.Slice)
def _slice(f: Forming, op: tile.Slice) -> None:
    raise Refused(
        "a part of what a product, a loop or a branch gives, or of an array that is written, is "
        "not taken in this version: take parts of what it is computed from"
    )


@forms(tile.Whole)
def _whole(f: Forming, op: tile.Whole) -> None:
    f.origins[op.out] = constant(f.body, 0)


@forms(tile.Within)
def _within(f: Forming, op: tile.Within) -> None:
    """Where the tile starts, and where its range ends: what lies beyond is another range's."""
    first = f.body.add(math.Max(f.get(op.lower), constant(f.body, 0))).out
    f.origins[op.out] = f.body.add(math.Add(f.origins[op.index], first), op.out.name).out
    f.limits[op.out] = f.body.add(math.Min(f.get(op.upper), f.get(op.extent)), "end").out


@forms(parts.FirstIndex)
def _first(f: Forming, op: parts.FirstIndex) -> None:
    f.values[op.out] = f.origins[op.index]


@forms(tile.ValidCount)
def _valid(f: Forming, op: tile.ValidCount) -> None:
    left = f.body.add(math.Sub(f.limit(op.index), f.origins[op.index])).out
    if op.index in f.limits:
        left = f.body.add(math.Max(left, constant(f.body, 0))).out
    size = constant(f.body, int(op.index.type.size))
    f.values[op.out] = f.body.add(math.Min(left, size), op.out.name).out


@forms(tile.IndexValues)
def _indices(f: Forming, op: tile.IndexValues) -> None:
    f.values[op.out] = _global_indices(f, op.index, f.frames.register(op.out), 0, op.out.name)


@forms(tile.Positions)
def _positions(f: Forming, op: tile.Positions) -> None:
    type = f.frames.register(op.out)
    f.values[op.out] = f.body.add(cta.Coordinates(axis=0, type=type), op.out.name).out


def _global_indices(
    f: Forming, index: Value[Index], type: Register, axis: int, name: str
) -> Value[Register]:
    coordinates = Register(S32, type.shape, type.layout)
    own = f.body.add(cta.Coordinates(axis=axis, type=coordinates)).out
    return f.body.add(math.Add(own, f.start(index)), name).out


@forms(tile.Load)
def _scalar(f: Forming, op: tile.Load) -> None:
    origin = tuple(f.get(s) for s in op.subscripts)
    f.values[op.out] = f.body.add(cta.ReadScalar(op.array, origin), op.out.name).out


@forms(tile.Transpose)
def _transpose(f: Forming, op: tile.Transpose) -> None:
    """Nothing: products and stores exchange axes themselves, and a load was read so."""
    if op.out in f.values or isinstance(op.x.owner, tile.Load):
        return
    for user in users(f.kernel.body, op.out):
        if not isinstance(user, tile.Dot | tile.Store | tile.Transpose):
            raise Refused(
                "a transpose of what a loop, a branch or a product gives is stored or "
                f"multiplied, and not taken on by {user.name}, in this version"
            )


def read_turned(f: Forming, op: tile.Transpose, source: tile.Load) -> None:
    """Read a load's tile with its axes exchanged, where the load stands."""
    try:
        type = f.frames.register(op.out)
    except Refused:
        return  # a product takes it alone, and views what it puts into shared memory
    axes = tuple(a for a, s in enumerate(source.subscripts) if isinstance(s.type, Index))
    bounded = tuple(sorted(1 - a for a in f.bounded(source.subscripts)))
    made = cta.Read(
        source.array,
        tuple(f.place(source.subscripts, whole=False)),
        axes=axes[::-1],
        type=type,
        bounded=bounded,
    )
    f.values[op.out] = f.body.add(made, op.out.name).out


@forms(tile.Pad)
def _pad(f: Forming, op: tile.Pad) -> None:
    """The fill of the read itself where that is all, a select otherwise."""
    value = f.get(op.x)
    if not f.ragged(op.index):
        f.values[op.out] = value
        return
    type = value.type
    at = _global_indices(f, op.index, type, op.axis, "")
    inside = f.body.add(math.Compare(at, f.limit(op.index), relation="lt"), "inside").out
    fill = f.body.add(math.Constant(op.value, type=Scalar(type.dtype))).out
    f.values[op.out] = f.body.add(math.Where(inside, value, fill), op.out.name).out


@forms(math.Fill)
def _fill(f: Forming, op: math.Fill) -> None:
    type = f.frames.register(op.out)
    f.values[op.out] = f.body.add(math.Fill(f.get(op.x), type=type), op.out.name).out


@forms(math.Expand)
def _expand(f: Forming, op: math.Expand) -> None:
    value = f.get(op.x)
    if isinstance(value.type, Scalar):
        raise Refused("a scalar has no axes to insert one before")
    layout = value.type.layout.insert(op.axis)
    type = Register(value.type.dtype, layout.shape, layout)
    f.values[op.out] = f.body.add(math.Expand(value, axis=op.axis, type=type), op.out.name).out


@forms(math.Squeeze)
def _squeeze(f: Forming, op: math.Squeeze) -> None:
    value = f.get(op.x)
    layout = value.type.layout.drop(op.axis)
    type = Register(value.type.dtype, layout.shape, layout)
    f.values[op.out] = f.body.add(math.Squeeze(value, axis=op.axis, type=type), op.out.name).out


@forms(math.Broadcast)
def _broadcast(f: Forming, op: math.Broadcast) -> None:
    """One axis after the other; the source takes the slice of the goal's layout."""
    value = f.get(op.x)
    goal = f.frames.register(op.out)
    if isinstance(value.type, Scalar):
        f.values[op.out] = f.body.add(math.Fill(value, type=goal), op.out.name).out
        return
    extents = zip(value.type.shape, goal.shape, strict=True)
    spread = [axis for axis, (small, large) in enumerate(extents) if small != large]
    for count, axis in enumerate(spread):
        later = spread[count + 1 :]
        layout = goal.layout
        for other in later:
            layout = slice_of(layout, [other]).insert(other)
        needed = slice_of(layout, [axis]).insert(axis)
        value = in_layout(f, value, needed)
        type = Register(value.type.dtype, layout.shape, layout)
        value = f.body.add(math.Broadcast(value, type=type), op.out.name).out
    f.values[op.out] = value


@forms(math.Reduce)
def _reduce(f: Forming, op: math.Reduce) -> None:
    value = f.get(op.x)
    axis_class = f.axes.of(op.x, op.axis)
    if f.team.groups > 1 and axis_class is not None and axis_class is f.team.split:
        raise Refused(
            f"a reduction along {axis_class.name}, which several groups share, is not in this "
            "version: pin warpgroups=1"
        )
    axis, kind = op.axis, op.kind
    votes = value.type.dtype == BOOL
    if votes:
        # Shuffles and shared memory move numbers: all is the least of 0 and 1, any the largest.
        value, kind = _as_number(f, value), {"and": "min", "or": "max"}[kind]
    single = not isinstance(op.out.type, Tile)
    if single:
        # A vector is a row of a tile with one row; its one sum is the scalar.
        layout = value.type.layout.insert(0)
        type = Register(value.type.dtype, layout.shape, layout)
        value, axis = f.body.add(math.Expand(value, axis=0, type=type)).out, 1
    if op.strict and op.kind in ("add", "mul") and value.type.dtype.is_float:
        _finish_sum(f, op, strict_sum(f, op, value, axis), single)
        return
    before = value.type.layout
    partial = f.body.add(cta.ReduceThread(value, axis=axis, kind=kind), op.out.name).out
    warps = [p.digit for p in before.placed if p.space == "warp" and axis in p.digit.axes]
    combined = f.body.add(cta.ReduceLanes(partial, axis=axis, kind=kind), op.out.name).out
    if warps:
        combined = _over_warps(f, op, before, combined, kind)
    if votes:
        none = constant(f.body, 0)
        combined = f.body.add(math.Compare(combined, none, relation="ne"), op.out.name).out
    _finish_sum(f, op, combined, single)


def _finish_sum(f: Forming, op: math.Reduce, combined: Value[Register], single: bool) -> None:
    if single:
        scalar = math.Squeeze(combined, axis=0, type=Scalar(combined.type.dtype))
        f.values[op.out] = f.body.add(scalar, op.out.name).out
        return
    goal = f.frames.register(op.out)
    f.values[op.out] = in_layout(f, combined, goal.layout)


def _as_number(f: Forming, value: Value[Register]) -> Value[Register]:
    type = Register(S32, value.type.shape, value.type.layout)
    one, none = (f.body.add(math.Fill(constant(f.body, n), type=type)).out for n in (1, 0))
    return f.body.add(math.Where(value, one, none), value.name).out


def _over_warps(
    f: Forming, op: math.Reduce, before: Layout, value: Value[Register], kind: str
) -> Value[Register]:
    """Combine over the warps that share a row."""
    copies = [p for p in before.placed if p.space == "warp" and p.digit.is_copy]
    if copies:
        raise Refused("some warps of a row hold copies, which would be counted twice")
    rows = value.type.layout.shape[0]
    warps = f.team.warps * f.team.groups
    # Partial results lie in memory as they lie in registers, one at least 32 bits wide each.
    wide = carried_as(value.type.dtype)
    layout = swizzled(warps, rows, wide.bits, 0)
    type = Shared(wide, (warps, rows), layout)
    buffer = f.buffer("exchange", type, "partials")
    return f.body.add(
        cta.Exchange(value, buffer, kind=kind, barrier=GROUP_BARRIER), op.out.name
    ).out
