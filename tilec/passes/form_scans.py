"""Scans, and reductions by a function of the program, on any register layout.

Law: combining is associative, so the prefix of an element is what stands before its block, combined
with what stands before it inside the block. Blocks are the digits of the layout along the axis,
from the innermost out (``piece``): a thread combines what its registers hold in order, lanes
exchange partial results in steps of two (each then holds those of twice as many), and where warps
share the axis, all their totals come to every warp through shared memory. The order of operands is
the axis's own everywhere, so nothing has to commute.

A value here is a tuple of tiles of one layout: one for a scan by name, several where the program's
function combines tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Op, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import along, cta, flow, math, piece
from tilec.ir.types import F32, S32, DType, Register, Scalar, Tile
from tilec.layout.linear import Layout, LayoutRefusal
from tilec.passes.constants import Number
from tilec.passes.fill_padding import identity
from tilec.passes.form_tiles import forms, in_layout
from tilec.passes.forming import Forming

Tiles = tuple[Value[Any], ...]
KINDS: dict[str, type[math.Binary]] = {
    "add": math.Add,
    "mul": math.Mul,
    "max": math.Max,
    "min": math.Min,
    "and": math.And,
    "or": math.Or,
}


@dataclass
class Along:
    """Combining along one axis: by what, with what for nothing, and from which end."""

    f: Forming
    axis: int
    combine: Callable[[Tiles, Tiles], Tiles]
    nothing: tuple[Number, ...]
    reverse: bool = False
    commutes: bool = False

    # -- the recursion over digits ---------------------------------------------------------------

    def inclusive(self, x: Tiles) -> Tiles:
        """Each element combined with all before it."""
        group = self.group(x)
        if group is None:
            return x
        if group.space != "reg":
            before = self.exclusive(x)
            return self.combine(before, x) if before is not None else x
        parts = [self.take(x, group, n) for n in self.order(group.extent)]
        for number in range(1, len(parts)):
            parts[number] = self.combine(parts[number - 1], parts[number])
        before = self.exclusive(parts[-1])
        if before is not None:
            parts = [self.combine(before, part) for part in parts]
        return self.joined(parts, x)

    def exclusive(self, x: Tiles) -> Tiles | None:
        """All before each element, combined; None where there is one element."""
        group = self.group(x)
        if group is None:
            return None
        if group.space == "reg":
            return self._exclusive_registers(x, group)
        if group.space == "lane":
            return self._exclusive_lanes(x, group)
        home = x[0].type.layout
        before = self.exclusive(self._gathered(x, group))
        assert before is not None
        return tuple(in_layout(self.f, one, home) for one in before)

    def _exclusive_registers(self, x: Tiles, group: piece.Group) -> Tiles:
        parts = [self.take(x, group, n) for n in self.order(group.extent)]
        inside: list[Tiles | None] = [None, parts[0]]
        for part in parts[1:]:
            last = inside[-1]
            assert last is not None
            inside.append(self.combine(last, part))
        total = inside.pop()
        assert total is not None
        before = self.exclusive(total)
        found = []
        for one in inside:
            if before is None:
                found.append(one or self.none(parts[0]))
            else:
                found.append(before if one is None else self.combine(before, one))
        return self.joined(found, x)

    def _exclusive_lanes(self, x: Tiles, group: piece.Group) -> Tiles:
        total, inside = x, None
        for step in self.steps(group):
            other, later = self.partner(total, step), self.later(total, step)
            if inside is None:
                inside = self.chosen(later, other, self.none(x))
            else:
                inside = self.chosen(later, self.combine(other, inside), inside)
            total = self.both(later, other, total)
        assert inside is not None
        before = self.exclusive(self.close(total, group))
        if before is None:
            return inside
        return self.combine(self.spread(before, group, x), inside)

    def total(self, x: Tiles) -> Tiles:
        """All elements combined; the axis has one element then, which every thread of it holds."""
        group = self.group(x)
        if group is None:
            return x
        if group.space == "reg":
            parts = [self.take(x, group, n) for n in self.order(group.extent)]
            while len(parts) > 1:
                pairs = zip(parts[::2], parts[1::2], strict=False)
                rest = parts[-1:] if len(parts) % 2 else []
                parts = [*(self.combine(a, b) for a, b in pairs), *rest]
            return self.total(parts[0])
        if group.space == "lane":
            for step in self.steps(group):
                other = self.partner(x, step)
                x = self.both(self.later(x, step), other, x)
            return self.total(self.close(x, group))
        return self.total(self._gathered(x, group))

    # -- digits ----------------------------------------------------------------------------------

    def group(self, x: Tiles) -> piece.Group | None:
        """The innermost digits along the axis; None if it has one element."""
        if x[0].type.shape[self.axis] == 1:
            return None
        try:
            return piece.innermost(x[0].type.layout, self.axis)
        except LayoutRefusal as refusal:
            raise Refused(f"elements cannot be combined in order: {refusal}") from None

    def order(self, count: int) -> list[int]:
        """The values of a digit in the order of the scan."""
        numbers = list(range(count))
        return numbers[::-1] if self.reverse else numbers

    def steps(self, group: piece.Group) -> list[int]:
        """The exchanges between lanes, nearest first."""
        if group.extent & (group.extent - 1):
            raise Refused(
                f"{group.extent} lanes share the axis, and only powers of two exchange in pairs: "
                "pin a tile that is a power of two along it"
            )
        return [1 << bit for bit in range(group.extent.bit_length() - 1)]

    def take(self, x: Tiles, group: piece.Group, which: int) -> Tiles:
        """The elements with one value of a digit that registers hold."""
        return tuple(
            self.add(piece.Take(v, axis=self.axis, extent=group.extent, which=which), v) for v in x
        )

    def joined(self, parts: Sequence[Tiles], like: Tiles) -> Tiles:
        """The way back from ``take``, for parts in the order of the scan."""
        forward = [parts[n] for n in self.order(len(parts))]
        columns = zip(*forward, strict=True)
        return tuple(
            self.add(piece.Join(column, axis=self.axis, type=v.type), v)
            for column, v in zip(columns, like, strict=True)
        )

    def close(self, x: Tiles, group: piece.Group) -> Tiles:
        """One element for all lanes of a digit that hold the same."""
        return tuple(self.add(piece.Close(v, axis=self.axis, extent=group.extent), v) for v in x)

    def spread(self, x: Tiles, group: piece.Group, like: Tiles) -> Tiles:
        """The way back from ``close``."""
        return tuple(
            self.add(piece.Spread(v, axis=self.axis, extent=group.extent, type=w.type), w)
            for v, w in zip(x, like, strict=True)
        )

    def _gathered(self, x: Tiles, group: piece.Group) -> Tiles:
        """The values of a digit that warps hold, in registers of every warp."""
        layout: Layout = x[0].type.layout
        spaces = {name: list(digits) for name, digits in layout.digits}
        moved = [p.digit for p in layout.placed if p.space == "warp" and self.axis in p.digit.axes]
        if any(len(digit.axes) > 1 for digit in moved):
            raise Refused("a warp moves along this axis and another one")
        spaces["warp"] = [d for d in spaces["warp"] if d not in moved] + [
            type(d)((), d.extent) for d in moved
        ]
        spaces["reg"] = [*moved, *spaces.get("reg", [])]
        wanted = Layout.make(spaces, layout.rank)
        return tuple(in_layout(self.f, one, wanted) for one in x)

    # -- lanes -----------------------------------------------------------------------------------

    def partner(self, x: Tiles, step: int) -> Tiles:
        """What the lane holds that differs in one bit of the place."""
        found = []
        for one in x:
            wide = _wider(one.type.dtype)
            given = one if wide is None else self.add(math.Cast(one, dtype=wide), one)
            other = self.add(piece.Partner(given, axis=self.axis, step=step), one)
            found.append(other if wide is None else self._narrowed(other, one))
        return tuple(found)

    def _narrowed(self, wide: Value[Any], like: Value[Any]) -> Value[Any]:
        return self.add(math.Cast(wide, dtype=like.type.dtype), like)

    def later(self, x: Tiles, step: int) -> Value[Any]:
        """Whether an element comes after its partner."""
        type = x[0].type
        places = Register(S32, type.shape, type.layout)
        own = self.f.body.add(cta.Coordinates(axis=self.axis, type=places)).out
        bit = self.f.body.add(math.And(own, self.filled(step, places))).out
        none = self.filled(0, places)
        relation = "eq" if self.reverse else "ne"
        return self.f.body.add(math.Compare(bit, none, relation=relation), "later").out

    def both(self, later: Value[Any], other: Tiles, own: Tiles) -> Tiles:
        """What two partners hold, combined in order."""
        if self.commutes:
            return self.combine(own, other)
        return self.combine(self.chosen(later, other, own), self.chosen(later, own, other))

    def chosen(self, condition: Value[Any], x: Tiles, y: Tiles) -> Tiles:
        """x where the condition holds, y elsewhere."""
        pairs = zip(x, y, strict=True)
        return tuple(self.add(math.Where(condition, a, b), a) for a, b in pairs)

    def none(self, like: Tiles) -> Tiles:
        """What stands for no element at all."""
        return tuple(self.filled(n, v.type) for n, v in zip(self.nothing, like, strict=True))

    def filled(self, number: Number, type: Register) -> Value[Any]:
        """A tile of one number."""
        one = self.f.body.add(math.Constant(number, type=Scalar(type.dtype))).out
        return self.f.body.add(math.Fill(one, type=type)).out

    def add(self, op: Any, like: Value[Any]) -> Value[Any]:
        """Add an op with one result, named after what it stands for."""
        return self.f.body.add(op, like.name).results[0]  # type: ignore[no-any-return]


def _wider(dtype: DType) -> DType | None:
    """The element type that a narrow one travels as; None if it travels as it is."""
    if dtype.bits >= 32:
        return None
    return F32 if dtype.is_float else S32


def _check_axis(f: Forming, op: Any, x: Value[Any]) -> None:
    axis = f.axes.of(x, op.axis)
    if f.team.split is not None and axis is f.team.split and f.team.groups > 1:
        raise Refused(
            f"elements are combined in order along {axis.name}, which several groups share: pin "
            "warpgroups=1"
        )


@forms(along.Scan)
def _scan(f: Forming, op: along.Scan) -> None:
    """A scan by one of the kinds; narrow elements are combined as wider ones, then rounded."""
    _check_axis(f, op, op.x)
    value, dtype = f.get(op.x), op.x.type.dtype
    wide = _wider(dtype)
    if wide is not None:
        value = f.body.add(math.Cast(value, dtype=wide), op.out.name).out
    kind, nothing = op.kind, identity(op.kind, dtype)
    if dtype.name == "bool":
        kind, nothing = {"and": "min", "or": "max"}[kind], int(nothing)

    def combine(x: Tiles, y: Tiles) -> Tiles:
        made: Any = KINDS[kind](x[0], y[0])
        return (f.body.add(made, op.out.name).out,)

    along = Along(f, op.axis, combine, (nothing,), op.reverse, commutes=True)
    (found,) = along.inclusive((value,))
    if wide is not None:
        found = f.body.add(math.Cast(found, dtype=dtype), op.out.name).out
    f.values[op.out] = found


@forms(along.Combine)
def _combine(f: Forming, op: along.Combine) -> None:
    """A scan or a reduction by the function in the op's region."""
    _check_axis(f, op, op.xs[0])
    narrow = [v for v in op.xs if v.type.dtype.bits < 32 and v.type.dtype.name != "bool"]
    if narrow:
        raise Refused(
            f"elements of {narrow[0].type.dtype} are not combined by a function in this version: "
            "cast to f32 or s32 first"
        )
    given = tuple(f.get(v) for v in op.xs)
    home = given[0].type.layout
    given = tuple(in_layout(f, v, home) for v in given)
    axis, single = op.axis, not op.scan and len(op.xs[0].type.shape) == 1
    along = Along(f, axis, lambda x, y: inlined(f, op.body, (*x, *y)), op.identity, op.reverse)
    if op.scan:
        found = along.inclusive(given)
    else:
        found = tuple(_without(f, v, axis, single) for v in along.total(given))
    for old, new in zip(op.out, found, strict=True):
        goal = old.type
        layout = f.frames.register(old).layout if isinstance(goal, Tile) else None
        f.values[old] = new if layout is None else in_layout(f, new, layout)


def _without(f: Forming, value: Value[Any], axis: int, single: bool) -> Value[Any]:
    """A tile without an axis of one element; a scalar if that was all."""
    if single:
        scalar = math.Squeeze(value, axis=axis, type=Scalar(value.type.dtype))
        return f.body.add(scalar, value.name).out
    layout = value.type.layout.drop(axis)
    type = Register(value.type.dtype, layout.shape, layout)
    return f.body.add(math.Squeeze(value, axis=axis, type=type), value.name).out


def inlined(f: Forming, body: Region, given: Tiles) -> Tiles:
    """The ops of a function on scalars, on register tiles of one layout."""
    like = given[0].type
    stands: rewrite.Mapping = dict(zip(body.args, given, strict=True))
    for op in body.ops:
        if isinstance(op, flow.Yield):
            return tuple(stands[v] if v in stands else _repeated(f, v, like) for v in op.values)
        stands[op.results[0]] = _on_tiles(f, op, stands, like)
    raise Refused("the function hands nothing out")


def _repeated(f: Forming, value: Value[Any], like: Register) -> Value[Any]:
    """A scalar that stands outside the function, such as a constant that others share."""
    type = Register(value.type.dtype, like.shape, like.layout)
    return f.body.add(math.Fill(f.get(value), type=type)).out


def _on_tiles(f: Forming, op: Op, stands: rewrite.Mapping, like: Register) -> Value[Any]:
    types = [Register(r.type.dtype, like.shape, like.layout) for r in op.results]
    if isinstance(op, math.Constant):
        number = f.body.add(math.Constant(op.value, type=op.type)).out
        return f.body.add(math.Fill(number, type=types[0])).out
    if not isinstance(op, math.Elementwise | math.Cast):
        raise Refused(f"a function that combines elements has no {op.name} in this version")
    operands = [stands[v] if v in stands else _repeated(f, v, like) for v in op.operands]
    made = type(op).from_parts(operands, op.attributes, [], types)
    return f.body.add(made, op.results[0].name).results[0]
