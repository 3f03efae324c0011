"""Folds: element i takes in element i + h, from registers, another lane or another warp.

Both sides of an exchange compute the same sum with its terms exchanged, which changes no bit of
it, so all copies of the result agree.
"""

from __future__ import annotations

from tilec.ir.declare import Refused
from tilec.ir.levels import fold, ptx
from tilec.ir.resources import shared_bytes
from tilec.ir.types import Bits
from tilec.layout.linear import Layout
from tilec.passes.select.registers import combined, from_lane
from tilec.passes.select.rings import View, view_address
from tilec.passes.select.selector import PtxValue, Selector, lowers, record
from tilec.passes.select.widths import repacked, unpacked


@lowers(fold.Fold)
def _fold(sel: Selector, op: fold.Fold) -> None:
    type = op.x.type
    last = fold.outermost(type.layout, op.axis)
    value = unpacked(sel, op.x)
    if last.space == "reg":
        parts = _parts(sel, value, type.layout, op.out.type.layout, op.axis)
        total = _halved(sel, op, parts)
    else:
        other = from_lane(sel, value, last.weight)
        total = combined(sel, op.kind, type.dtype, value, other, value.type.count)
    sel.set(op.out, repacked(sel, total, type.dtype, single=False))


def _parts(
    sel: Selector, value: PtxValue, before: Layout, after: Layout, axis: int
) -> list[PtxValue]:
    """The registers of each value of the digit that goes, in the order of the result's."""
    last = fold.outermost(before, axis)
    step = fold.step_of(last, axis)
    at = {before(reg=r): r for r in range(before.size("reg"))}
    parts = []
    for number in range(last.digit.extent):
        picks = []
        for register in range(after.size("reg")):
            place = list(after(reg=register))
            place[axis] += step * number
            picks.append(at[tuple(place)])
        parts.append(sel.pick(value, *picks))
    return parts


def _halved(sel: Selector, op: fold.Fold, parts: list[PtxValue]) -> PtxValue:
    half = 1 << (len(parts) - 1).bit_length() - 1
    while half:
        for number in range(len(parts) - half):
            mine, other = parts[number], parts[number + half]
            count = mine.type.count
            parts[number] = combined(sel, op.kind, op.x.type.dtype, mine, other, count)
        parts, half = parts[:half], half // 2
    return parts[0]


@lowers(fold.FoldWarps)
def _fold_warps(sel: Selector, op: fold.FoldWarps) -> None:
    type = op.x.type
    if not type.dtype.is_float or type.dtype.bits < 32:
        raise Refused(f"parts of {type.dtype} are not exchanged in this version")
    view, role, value = record(sel, op.buffer, View), sel.need_role(), sel.get(op.x)
    count, each = value.type.count, type.dtype.bytes
    width = f"b{type.dtype.bits}"
    if shared_bytes(view.type) < 32 * each * count * role.group_warps * role.groups:
        raise Refused("the buffer needs room for every element that the warps hold")
    weight = fold.outermost(type.layout, op.axis).weight
    warp = sel.warp_in_group()
    base = sel.alu("mad.lo.u32", sel.lane(), each, view_address(sel, view))

    def address_of(number: PtxValue) -> PtxValue:
        if role.groups > 1:
            number = sel.alu("mad.lo.u32", sel.group(), role.group_warps, number)
        return sel.alu("mad.lo.u32", number, 32 * each * count, base)

    barrier = sel.constant(op.barrier)
    if role.groups > 1:
        barrier = sel.alu("add.u32", sel.group(), op.barrier)
    mine, other = address_of(warp), address_of(sel.alu("xor.b32", warp, weight))
    for n in range(count):
        part = sel.pick(value, n)
        store = ptx.Store(mine, part, space="shared", width=width, offset=32 * each * n)
        sel.build.add(store)
    sel.build.add(ptx.BarrierSync(barrier, threads=32 * role.group_warps))
    loads = [
        sel.build.add(
            ptx.Load(
                other,
                space="shared",
                width=width,
                offset=32 * each * n,
                type=Bits(value.type.kind, 1),
            )
        ).out
        for n in range(count)
    ]
    total = combined(sel, op.kind, type.dtype, value, sel.join(loads), count)
    sel.build.add(ptx.BarrierSync(barrier, threads=32 * role.group_warps))
    sel.set(op.out, total)
