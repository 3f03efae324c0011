"""Register tiles: axes that come and go without moving data, reductions, coordinates, votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilec.ir.core import Value
from tilec.ir.declare import Refused
from tilec.ir.levels import cta, math, ptx
from tilec.ir.resources import shared_bytes
from tilec.ir.types import BOOL, Bits, DType, Register, Scalar
from tilec.layout.convert import register_moves
from tilec.layout.fragments import vector_registers
from tilec.layout.index_map import thread_coordinates
from tilec.layout.linear import Layout, LayoutRefusal
from tilec.passes.select.elementwise import wide_extreme
from tilec.passes.select.rings import View, view_address
from tilec.passes.select.selector import (
    PtxValue,
    Selector,
    is_packed,
    lowers,
    record,
)
from tilec.passes.select.widths import (
    as_predicates,
    as_words,
    carried_as,
    computed,
    elements_as,
    packed_as,
    raw,
    repacked,
    unpacked,
)

_FLOAT = {"add": "add.rn", "mul": "mul.rn", "max": "max.NaN", "min": "min.NaN"}
_INTEGER = {"add": "add", "mul": "mul.lo", "max": "max", "min": "min"}


def combined(
    sel: Selector, kind: str, dtype: DType, x: PtxValue, y: PtxValue, count: int
) -> PtxValue:
    """Two partial results as one, in the computed type of ``dtype`` (bools as words or not)."""
    wide, bits = computed(dtype), x.type.kind
    if kind in ("and", "or") and not dtype.is_float:
        name = "pred" if bits == "pred" else f"b{wide.bits if wide != BOOL else 32}"
        return sel.alu(f"{kind}.{name}", x, y, kind=bits, count=count)
    if kind not in _FLOAT or dtype == BOOL:
        raise Refused(f"{dtype} cannot be combined by {kind}")
    if wide.name == "f64" and kind in ("max", "min"):
        return wide_extreme(sel, kind, x, y, count=count)
    name = _FLOAT[kind] if wide.is_float else _INTEGER[kind]
    return sel.alu(f"{name}.{wide}", x, y, kind=bits, count=count)


@lowers(math.Expand, math.Squeeze)
def _same_registers(sel: Selector, op: Any) -> None:
    if isinstance(op.x.type, Register) and isinstance(op.out.type, Register):
        changed = op.x.type.layout
        expands = isinstance(op, math.Expand)
        moved = changed.insert(op.axis) if expands else changed.drop(op.axis)
        if moved.digits != op.out.type.layout.digits:
            raise Refused(f"the result's layout must be {moved}")
    dtype = math.element_type(op.x.type)
    if is_packed(dtype) and isinstance(op.out.type, Scalar) and isinstance(op.x.type, Register):
        one = sel.pick(elements_as(sel, op.x, raw(dtype)), 0)
        sel.set(op.out, packed_as(sel, one, raw(dtype), op.out.type))
        return
    sel.values[op.out] = sel.values[op.x]


@lowers(math.Broadcast)
def _broadcast(sel: Selector, op: math.Broadcast) -> None:
    source, target = op.x.type, op.out.type
    if isinstance(source, Scalar) or not isinstance(target, Register):
        raise Refused("scalars need no broadcast; use math.fill to make a tile")
    picks = _spread_registers(source.layout, target.layout, source.shape, target.shape)
    sel.set(op.out, _picked(sel, op.x, picks, target))


def _picked(sel: Selector, value: Value[Any], picks: Sequence[int], type: Register) -> PtxValue:
    """Elements of a thread in another order, or repeated, as a value of ``type``."""
    moved = raw(value.type.dtype)
    return packed_as(sel, sel.pick(elements_as(sel, value, moved), *picks), moved, type)


def _spread_registers(
    source: Layout, target: Layout, small: Sequence[object], large: Sequence[object]
) -> tuple[int, ...]:
    """For each register of the large tile, the register of the small one that it repeats."""
    spread = [axis for axis, (s, t) in enumerate(zip(small, large, strict=True)) if s != t]
    if len(spread) > 1:
        raise Refused("broadcast one axis at a time")
    if not spread:
        if source != target:
            raise Refused("nothing is spread, and another layout takes a cta.convert")
        return tuple(range(target.size("reg")))
    try:
        return vector_registers(target, source.drop(spread[0]), spread[0])
    except LayoutRefusal as refusal:
        raise Refused(str(refusal)) from None


@lowers(cta.Slice)
def _slice(sel: Selector, op: cta.Slice) -> None:
    source, target = op.x.type, op.out.type
    for space in ("lane", "warp"):
        if source.layout.spaces.get(space, ()) != target.layout.spaces.get(space, ()):
            raise Refused(f"the slice {target.layout} is held by other threads ({space})")
    at = {source.layout(reg=r): r for r in range(source.layout.size("reg"))}
    places = []
    for register in range(target.layout.size("reg")):
        place = list(target.layout(reg=register))
        place[op.axis] += op.start
        if tuple(place) not in at:
            raise Refused(f"no register holds element {tuple(place)} of the tile")
        places.append(at[tuple(place)])
    if not is_packed(source.dtype):
        sel.set(op.out, sel.pick(sel.get(op.x), *places))
        return
    each = 32 // source.dtype.bits
    words = [places[n] // each for n in range(0, len(places), each)]
    wanted = [word * each + n for word in words for n in range(each)]
    if wanted != places:
        sel.set(op.out, _picked(sel, op.x, places, target))  # the slice cuts packed registers
        return
    sel.set(op.out, sel.pick(sel.get(op.x), *words))


@lowers(cta.Coordinates)
def _coordinates(sel: Selector, op: cta.Coordinates) -> None:
    if not isinstance(op.type, Register):
        raise Refused("coordinates are a register value")
    layout = op.type.layout
    try:
        own = sel.index_map(thread_coordinates(layout)[op.axis])
    except LayoutRefusal as refusal:
        raise Refused(str(refusal)) from None
    count = layout.size("reg")
    steps = sel.join([sel.constant(layout(reg=r)[op.axis]) for r in range(count)])
    sel.set(op.out, sel.alu("add.s32", own, steps, count=count))


def _reduction_groups(layout: Layout, kept: Layout, axis: int) -> list[list[int]]:
    """For each register of the result, the registers of the operand that it combines."""
    groups: list[list[int]] = [[] for _ in range(kept.size("reg"))]
    at = {kept(reg=r): r for r in range(kept.size("reg"))}
    for register in range(layout.size("reg")):
        place = layout(reg=register)
        reduced = tuple(0 if a == axis else c for a, c in enumerate(place))
        groups[at[reduced]].append(register)
    return groups


@lowers(cta.ReduceThread)
def _reduce_thread(sel: Selector, op: cta.ReduceThread) -> None:
    type = op.x.type
    groups = _reduction_groups(type.layout, op.out.type.layout, op.axis)
    value = unpacked(sel, op.x)
    chains = max(1, min(op.chains, len(groups[0])))
    # Element e of each group goes to chain e mod chains; the chains then combine pairwise.
    layers = [
        [g[start + c] for g in groups for c in range(chains) if start + c < len(g)]
        for start in range(0, len(groups[0]), chains)
    ]
    partial = sel.pick(value, *layers[0])
    for layer in layers[1:]:
        width = len(layer)
        whole = partial.type.count
        per_group = width // len(groups)
        front = [g * chains + c for g in range(len(groups)) for c in range(per_group)]
        summed = combined(
            sel, op.kind, type.dtype, sel.pick(partial, *front), sel.pick(value, *layer), width
        )
        if width == whole:
            partial = summed
            continue
        both = sel.join([partial, summed])
        order = list(range(whole))
        for position, index in enumerate(front):
            order[index] = whole + position
        partial = sel.pick(both, *order)
    width = chains
    while width > 1:
        half = width // 2
        low = [g * width + c for g in range(len(groups)) for c in range(half)]
        high = [g * width + width - half + c for g in range(len(groups)) for c in range(half)]
        summed = combined(
            sel, op.kind, type.dtype, sel.pick(partial, *low), sel.pick(partial, *high), len(low)
        )
        if width % 2:
            middle = sel.pick(partial, *[g * width + half for g in range(len(groups))])
            both = sel.join([summed, middle])
            order = []
            for g in range(len(groups)):
                order += [g * half + c for c in range(half)] + [len(low) + g]
            partial = sel.pick(both, *order)
        else:
            partial = summed
        width -= half
    _finish_reduction(sel, op, partial)


def _finish_reduction(
    sel: Selector, op: cta.ReduceThread | cta.ReduceLanes | cta.Exchange, value: PtxValue
) -> None:
    dtype = op.out.type.dtype
    if dtype == BOOL and value.type.kind != "pred":
        value = as_predicates(sel, value)
    sel.set(op.out, repacked(sel, value, dtype, single=False))


def _lane_bits(layout: Layout, axis: int) -> list[int]:
    bits = []
    for placed in layout.placed:
        if axis not in placed.digit.axes:
            continue
        if placed.space == "lane":
            if len(placed.digit.axes) > 1:
                raise Refused("a lane bit moves along two axes: no lanes share a row")
            bits.append(placed.weight)
        if placed.space == "reg":
            raise Refused("the axis is still spread over registers: reduce within the thread first")
    return bits


@lowers(cta.ReduceLanes)
def _reduce_lanes(sel: Selector, op: cta.ReduceLanes) -> None:
    type = op.x.type
    value = as_words(sel, unpacked(sel, op.x))
    for bit in _lane_bits(type.layout, op.axis):
        other = from_lane(sel, value, bit)
        value = combined(sel, op.kind, type.dtype, value, other, value.type.count)
    _finish_reduction(sel, op, value)


def from_lane(sel: Selector, value: PtxValue, bit: int) -> PtxValue:
    """What the lane across holds; 64 bits travel as two halves (PTX ISA, shfl: 32 bits each)."""
    kind, count = value.type.kind, value.type.count
    wide = kind in ("b64", "f64")
    if wide:
        value = sel.build.add(ptx.Unpack(value, type=Bits("b32", 2 * count))).out
    half, each = value.type.kind, value.type.count
    found = sel.alu("shfl.sync.bfly.b32", value, bit, 31, 0xFFFFFFFF, kind=half, count=each)
    if not wide:
        return found
    low, high = sel.pick(found, *range(0, each, 2)), sel.pick(found, *range(1, each, 2))
    return sel.build.add(ptx.Combine(low, high, type=Bits(kind, count))).out


@lowers(cta.Exchange)
def _exchange(sel: Selector, op: cta.Exchange) -> None:
    type = op.x.type
    view = record(sel, op.buffer, View)
    role = sel.need_role()
    value = as_words(sel, unpacked(sel, op.x))
    width = {"b64": "b64", "f64": "f64"}.get(value.type.kind, "b32")
    each = carried_as(type.dtype).bytes
    rows = type.layout.shape[0] if type.layout.rank == 1 else 0
    if not rows or shared_bytes(view.type) < each * rows * role.group_warps * role.groups:
        raise Refused("the buffer needs one element for each row and warp of a vector")
    # The parts of an element lie in the warps along the digits that are copies.
    copies = [p for p in type.layout.placed if p.space == "warp" and p.digit.is_copy]
    if any(not p.digit.is_bit for p in copies):
        raise Refused("the parts lie in a number of warps that is no power of two")
    own = sel.index_map(thread_coordinates(type.layout)[0])
    base = view_address(sel, view)

    def address_of(number: PtxValue) -> PtxValue:
        if role.groups > 1:
            number = sel.alu("mad.lo.u32", sel.group(), role.group_warps, number)
        row = sel.alu("mad.lo.u32", number, rows, own)
        return sel.alu("mad.lo.u32", row, each, base)

    count = value.type.count
    offsets = [each * type.layout(reg=r)[0] for r in range(count)]
    mine = address_of(sel.warp_in_group())
    for register in range(count):
        sel.build.add(
            ptx.Store(
                mine,
                sel.pick(value, register),
                space="shared",
                width=width,
                offset=offsets[register],
            )
        )
    barrier = sel.constant(op.barrier)
    if role.groups > 1:
        barrier = sel.alu("add.u32", sel.group(), op.barrier)
    threads = 32 * role.group_warps
    sel.build.add(ptx.BarrierSync(barrier, threads=threads))
    weights = sorted(p.weight for p in copies)
    first = sel.alu("and.b32", sel.warp_in_group(), 0xFFFFFFFF ^ sum(weights))
    subsets = [0]
    for bit in weights:
        subsets += [s | bit for s in subsets]
    total: PtxValue | None = None
    start = address_of(first)
    for subset in sorted(subsets):
        loads = [
            sel.build.add(
                ptx.Load(
                    start,
                    space="shared",
                    width=width,
                    offset=offset + each * rows * subset,
                    type=Bits(value.type.kind, 1),
                )
            ).out
            for offset in offsets
        ]
        part = sel.join(loads)
        total = part if total is None else combined(sel, op.kind, type.dtype, total, part, count)
    sel.build.add(ptx.BarrierSync(barrier, threads=threads))
    if total is None:
        raise Refused("no warp holds a part")
    _finish_reduction(sel, op, total)


@lowers(cta.AnyLane)
def _any(sel: Selector, op: cta.AnyLane) -> None:
    value = sel.get(op.x)
    total = sel.pick(value, 0)
    for register in range(1, value.type.count):
        total = sel.alu("or.pred", total, sel.pick(value, register), kind="pred")
    sel.set(op.out, sel.alu("vote.sync.any.pred", total, 0xFFFFFFFF, kind="pred"))


@lowers(cta.Convert)
def _convert(sel: Selector, op: cta.Convert) -> None:
    moves = register_moves(op.x.type.layout, op.layout)
    if moves is None:
        raise Refused(
            f"converting {op.x.type.layout} to {op.layout} needs an exchange between threads, "
            "which is not in this version"
        )
    sel.set(op.out, _picked(sel, op.x, moves, op.out.type))
