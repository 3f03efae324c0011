"""Pieces of an axis: registers are renamed; what another lane holds comes by a shuffle."""

from __future__ import annotations

from tilec.ir.declare import Refused
from tilec.ir.levels import piece
from tilec.layout.linear import Layout
from tilec.passes.select.registers import from_lane
from tilec.passes.select.selector import Selector, is_packed, lowers


def _registers(
    large: Layout, small: Layout, axis: int, step: int, extent: int, which: int
) -> list[int]:
    """For each register of a part, the register of the whole that holds the same element."""
    at = {large(reg=r): r for r in range(large.size("reg"))}
    found = []
    for register in range(small.size("reg")):
        place = list(small(reg=register))
        high, low = divmod(place[axis], step)
        place[axis] = high * step * extent + which * step + low
        found.append(at[tuple(place)])
    return found


def _whole_registers(op: piece.Take | piece.Join) -> None:
    if is_packed(op.out.type.dtype):
        raise Refused(f"elements of {op.out.type.dtype} share registers, and are not taken apart")


@lowers(piece.Take)
def _take(sel: Selector, op: piece.Take) -> None:
    _whole_registers(op)
    large, small = op.x.type.layout, op.out.type.layout
    picks = _registers(large, small, op.axis, op.step, op.extent, op.which)
    sel.set(op.out, sel.pick(sel.get(op.x), *picks))


@lowers(piece.Join)
def _join(sel: Selector, op: piece.Join) -> None:
    _whole_registers(op)
    large, small = op.out.type.layout, op.parts[0].type.layout
    order = [0] * large.size("reg")
    each = small.size("reg")
    for which in range(len(op.parts)):
        targets = _registers(large, small, op.axis, op.step, len(op.parts), which)
        for register, target in enumerate(targets):
            order[target] = which * each + register
    sel.set(op.out, sel.pick(sel.join([sel.get(part) for part in op.parts]), *order))


@lowers(piece.Close, piece.Spread)
def _same_registers(sel: Selector, op: piece.Close | piece.Spread) -> None:
    before, after = op.x.type.layout, op.out.type.layout
    large, small = (before, after) if isinstance(op, piece.Close) else (after, before)
    picks = _registers(large, small, op.axis, op.step, op.extent, 0)
    if picks != list(range(large.size("reg"))):
        raise Refused(f"registers of {before} are not those of {after}")
    sel.values[op.out] = sel.values[op.x]


@lowers(piece.Partner)
def _partner(sel: Selector, op: piece.Partner) -> None:
    dtype = op.x.type.dtype
    if dtype.bits < 32:
        raise Refused(f"a shuffle moves 32 bits, or twice as many, not {dtype}")
    weight = piece.lane_weight(op.x.type.layout, op.axis, op.step)
    assert weight is not None
    sel.set(op.out, from_lane(sel, sel.get(op.x), weight))
