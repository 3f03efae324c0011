"""Sums and products of floats in the one order that ``strict:`` fixes, on any register layout.

Law (``math.reduce``, ``strict``): for h the powers of two from large to small, element i takes in
element i + h. The digits of a layout whose steps along the axis are powers of two are sets of such
h, so folding them from the largest step down is that order, whoever holds the parts. Elements that
do not exist hold what changes nothing (``fill-padding``), so they may take part.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Value
from tilec.ir.declare import Refused
from tilec.ir.levels import fold, math
from tilec.ir.types import Register, Shared
from tilec.layout.linear import LayoutRefusal
from tilec.layout.shared import swizzled
from tilec.passes.forming import GROUP_BARRIER, Forming


def strict_sum(f: Forming, op: math.Reduce, value: Value[Any], axis: int) -> Value[Register]:
    """The sum or product along an axis of a register tile, which disappears."""
    if value.type.dtype.bits < 32:
        raise Refused(f"a strict sum or product of {value.type.dtype} is not in this version")
    while value.type.shape[axis] > 1:
        try:
            last = fold.outermost(value.type.layout, axis)
        except LayoutRefusal as refusal:
            raise Refused(
                f"the order of a strict sum does not fit how this tile lies in registers "
                f"({value.type.layout}): {refusal}"
            ) from None
        if last.space == "warp":
            value = _between_warps(f, op, value, axis)
        else:
            value = f.body.add(fold.Fold(value, axis=axis, kind=op.kind), op.out.name).out
    layout = value.type.layout.drop(axis)
    type = Register(value.type.dtype, layout.shape, layout)
    return f.body.add(math.Squeeze(value, axis=axis, type=type), op.out.name).out


def _between_warps(f: Forming, op: math.Reduce, value: Value[Any], axis: int) -> Value[Any]:
    warps = f.team.warps * f.team.groups
    each = 32 * value.type.layout.size("reg")
    layout = swizzled(warps, each, value.type.dtype.bits, 0)
    buffer = f.buffer("fold", Shared(value.type.dtype, (warps, each), layout), "parts")
    made = fold.FoldWarps(value, buffer, op.kind, GROUP_BARRIER, axis=axis)
    return f.body.add(made, op.out.name).out
