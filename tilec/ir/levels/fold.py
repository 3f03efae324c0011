"""The rest of level ``cta``: combining halves of an axis, for sums of one order.

A strict sum combines element i with element i + h, for h the powers of two from large to small
(``math.reduce`` says it whole). Each op here is the steps of that order which one digit of the
layout holds, the one with the largest step along the axis: what is left is as long as that step.
``fold.warp`` is for digits of registers and lanes, ``fold.group`` for those of warps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilec.ir.core import Op, Value
from tilec.ir.declare import Effects, attribute, operand, result
from tilec.ir.levels import cta
from tilec.ir.types import Register, Type
from tilec.layout.linear import Digit, Layout, LayoutRefusal, Placed


def outermost(layout: Layout, axis: int) -> Placed:
    """The digit that is folded next: the one with the largest step along an axis."""
    moving = [p for p in layout.placed if axis in p.digit.axes]
    if not moving:
        raise LayoutRefusal(f"nothing moves along axis {axis}")
    last = max(moving, key=lambda p: step_of(p, axis))
    if len(last.digit.axes) > 1:
        raise LayoutRefusal("a digit moves along the combined axis and another one")
    step = step_of(last, axis)
    if step & (step - 1):
        raise LayoutRefusal(f"elements {step} apart lie together: that is no power of two")
    if last.space != "reg" and not last.digit.is_bit:
        raise LayoutRefusal(f"{last.digit.extent} parts lie in the {last.space}s of a row")
    return last


def step_of(placed: Placed, axis: int) -> int:
    """How far one unit of a digit moves along an axis."""
    return next(step for a, step in placed.digit.steps if a == axis)


def folded(layout: Layout, axis: int) -> Layout:
    """The layout after one fold: the digit is gone, or all its values hold the same."""
    gone = outermost(layout, axis)
    spaces: dict[str, list[Digit]] = {name: [] for name, _ in layout.digits}
    for placed in layout.placed:
        if placed != gone:
            spaces[placed.space].append(placed.digit)
        elif placed.space != "reg":
            spaces[placed.space].append(Digit((), placed.digit.extent))
    return Layout.make(spaces, layout.rank)


def _folded_type(type: Register, axis: int) -> Register:
    try:
        layout = folded(type.layout, axis)
    except LayoutRefusal as refusal:
        raise TypeError(str(refusal)) from None
    return Register(type.dtype, layout.shape, layout)


class Fold(Op, name="fold.warp"):
    """Combine element i with i + h along ``axis``, within threads or between lanes."""

    x: Value[Register] = operand()
    axis: int = attribute()
    kind: str = attribute()
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The axis is as long as the step of the digit that is folded."""
        return [_folded_type(self.x.type, self.axis)]

    def check(self) -> Iterator[str]:
        """The digit is one of registers or lanes."""
        if outermost(self.x.type.layout, self.axis).space == "warp":
            yield "the elements to combine lie in several warps, which takes fold.group"


class FoldWarps(
    cta.Exchange,
    name="fold.group",
    effects=Effects.READS | Effects.WRITES | Effects.ORDERS,
):
    """Combine element i with i + h along ``axis``, between warps, through a shared buffer.

    The buffer has room for every element that a group holds, at this stage of the sum.
    """

    axis: int = attribute()

    def infer(self) -> Sequence[Type]:
        """The axis is as long as the step of the digit that is folded."""
        return [_folded_type(self.x.type, self.axis)]

    def check(self) -> Iterator[str]:
        """The digit is one of warps."""
        if outermost(self.x.type.layout, self.axis).space != "warp":
            yield "the elements to combine lie in one warp, which takes fold.warp"
