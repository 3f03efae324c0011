"""The rest of level ``cta``: taking an axis apart by who holds it, for scans and reductions.

An axis of ``n`` elements is seen as digits: element p has the digit (p // step) % extent. Where
one place of the hardware (registers of a thread, lanes of a warp) holds all values of a digit, it
can be taken away: ``piece.take`` picks the elements with one value of it and closes the axis up,
``piece.join`` is the way back; ``piece.close`` does so where all values of the digit are the same
by then, and ``piece.spread`` repeats them again. ``piece.partner`` is what another lane holds. Only
``piece.partner`` moves data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.declare import attribute, operand, operands, result, result_type
from tilec.ir.types import Register, Type
from tilec.layout.linear import Digit, Layout, LayoutRefusal, Placed


@dataclass(frozen=True)
class Group:
    """Neighbouring digits of an axis in one space: ``extent`` values, ``step`` elements apart."""

    space: str
    step: int
    extent: int


def step_of(placed: Placed, axis: int) -> int:
    """How far one unit of a digit moves along an axis."""
    return next(step for a, step in placed.digit.steps if a == axis)


def innermost(layout: Layout, axis: int) -> Group:
    """The digits with the smallest steps along an axis that one space holds."""
    moving = [p for p in layout.placed if axis in p.digit.axes]
    if not moving:
        raise LayoutRefusal(f"nothing moves along axis {axis}")
    moving.sort(key=lambda p: step_of(p, axis))
    first = moving[0]
    reach = step_of(first, axis)
    if reach != 1:
        raise LayoutRefusal(f"no digit moves by one along axis {axis}")
    for placed in moving:
        if placed.space != first.space or step_of(placed, axis) != reach:
            break
        if len(placed.digit.axes) > 1:
            raise LayoutRefusal("a digit moves along this axis and another one")
        reach *= placed.digit.extent
    return Group(first.space, 1, reach)


def closed(layout: Layout, axis: int, group: Group) -> Layout:
    """The layout without a group of digits; those of lanes and warps become copies."""
    end = group.step * group.extent
    spaces: dict[str, list[Digit]] = {name: [] for name, _ in layout.digits}
    reach = 1
    for placed in layout.placed:
        digit = placed.digit
        step = step_of(placed, axis) if axis in digit.axes else 0
        if group.step <= step < end:
            if placed.space != group.space or len(digit.axes) > 1:
                raise LayoutRefusal(f"the digit of step {step} lies in {placed.space}s as well")
            reach *= digit.extent
            if placed.space == "reg":
                continue
            digit = Digit((), digit.extent)
        elif step >= end:
            steps = tuple((a, s // group.extent if a == axis else s) for a, s in digit.steps)
            digit = Digit(steps, digit.extent)
        spaces[placed.space].append(digit)
    if reach != group.extent:
        raise LayoutRefusal(f"{group.space}s hold {reach} of {group.extent} values of the digit")
    return Layout.make(spaces, layout.rank)


def _closed_type(type: Register, axis: int, group: Group) -> Register:
    try:
        layout = closed(type.layout, axis, group)
    except LayoutRefusal as refusal:
        raise TypeError(str(refusal)) from None
    return Register(type.dtype, layout.shape, layout)


class Take(Op, name="piece.take"):
    """The elements p along ``axis`` with (p // step) % extent = which; the axis closes up.

    Registers of one thread hold all values of the digit.
    """

    x: Value[Register] = operand()
    axis: int = attribute()
    extent: int = attribute()
    which: int = attribute()
    step: int = attribute(default=1)
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The layout without the digit."""
        return [_closed_type(self.x.type, self.axis, Group("reg", self.step, self.extent))]

    def check(self) -> Iterator[str]:
        """The digit has that value."""
        if not 0 <= self.which < self.extent:
            yield f"a digit of {self.extent} values has none called {self.which}"


class Join(Op, name="piece.join"):
    """One tile of which ``piece.take`` along ``axis`` gives the parts, in their order."""

    parts: tuple[Value[Register], ...] = operands()
    axis: int = attribute()
    type: Type = result_type()
    step: int = attribute(default=1)
    out: Value[Register] = result()

    def check(self) -> Iterator[str]:
        """Each part is what would be taken."""
        group = Group("reg", self.step, len(self.parts))
        try:
            wanted = _closed_type(self.out.type, self.axis, group)
        except TypeError as error:
            yield str(error)
            return
        if any(part.type != wanted for part in self.parts):
            yield f"each part has type {wanted}"


class Close(Op, name="piece.close"):
    """The axis closes up: elements that differ in the digit (p // step) % extent are the same.

    Lanes of one warp hold the values of the digit; no data moves.
    """

    x: Value[Register] = operand()
    axis: int = attribute()
    extent: int = attribute()
    step: int = attribute(default=1)
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The layout with copies in the place of the digit."""
        return [_closed_type(self.x.type, self.axis, Group("lane", self.step, self.extent))]


class Spread(Op, name="piece.spread"):
    """The way back from ``piece.close``: each element along ``axis`` is repeated."""

    x: Value[Register] = operand()
    axis: int = attribute()
    extent: int = attribute()
    type: Type = result_type()
    step: int = attribute(default=1)
    out: Value[Register] = result()

    def check(self) -> Iterator[str]:
        """Closing the result gives the operand."""
        try:
            back: Any = _closed_type(
                self.out.type, self.axis, Group("lane", self.step, self.extent)
            )
        except TypeError as error:
            yield str(error)
            return
        if back != self.x.type:
            yield f"closed up again it is {back}, not {self.x.type}"


class Partner(Op, name="piece.partner"):
    """Element p along ``axis`` becomes what element p XOR ``step`` is, which another lane holds."""

    x: Value[Register] = operand()
    axis: int = attribute()
    step: int = attribute()
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The same type."""
        return [self.x.type]

    def check(self) -> Iterator[str]:
        """A bit of the lane number moves by that step along that axis, and nowhere else."""
        if lane_weight(self.x.type.layout, self.axis, self.step) is None:
            yield f"no bit of the lane number moves by {self.step} along axis {self.axis}"


def lane_weight(layout: Layout, axis: int, step: int) -> int | None:
    """The bit of the lane number that moves by ``step`` along an axis."""
    for placed in layout.placed:
        digit = placed.digit
        if placed.space == "lane" and digit.is_bit and digit.steps == ((axis, step),):
            return placed.weight
    return None
