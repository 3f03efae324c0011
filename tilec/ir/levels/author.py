"""Level ``tile``: what the author says beside what is computed.

A home that a tile is to have and how it is to lie there, what instructions are said to mean, what
must hold, and what is to be shown. None of it changes a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.declare import Effects, attribute, operand, operands, result
from tilec.ir.levels import math
from tilec.ir.types import BOOL, Index, Tile, Type
from tilec.layout.linear import Layout
from tilec.layout.shared import SPANS

LANES = 32
ARRANGEMENTS = ("accumulator", "operand", "rows", "vectors")
"""Register layouts by name; which one a name means depends on the tile and the warps."""


def layout_faults(layout: Layout, rank: int) -> Iterator[str]:
    """What no tile of a rank can have as its layout in registers, whatever its size.

    Each digit moves along one axis, and each step is made once: then every element has one holder,
    up to copies in whole lanes or warps, and what is combined along an axis is combined digit by
    digit.
    """
    if layout.rank != rank:
        yield f"it has {layout.rank} axes, the tile {rank}"
    for name in layout.spaces:
        if name not in ("reg", "lane", "warp"):
            yield f"registers are told by reg, lane and warp, and not by {name}"
    steps: dict[tuple[int, int], str] = {}
    for placed in layout.placed:
        digit = placed.digit
        if len(digit.steps) > 1:
            yield f"a digit of {placed.space} moves along two axes at once"
        if digit.is_copy and placed.space == "reg":
            yield "a thread holds an element in two registers"
        if not digit.is_bit and placed.space == "lane":
            yield f"the lanes of a warp count in bits, not by {digit.extent}"
        for step in digit.steps:
            if step in steps:
                yield f"the same step is made by {steps[step]} and by {placed.space}"
            steps[step] = placed.space
    if layout.size("lane") > LANES:
        yield f"it has {layout.size('lane')} lanes, a warp {LANES}"
    held = 1
    for placed in layout.placed:
        held *= 1 if placed.digit.is_copy else placed.digit.extent
    if held < prod(layout.shape):
        yield f"it holds {held} of the {prod(layout.shape)} elements that it spans"


class Home(Op, name="author.home", effects=Effects.ORDERS):
    """The author wants this tile in ``shared`` memory, or in ``register`` memory.

    In registers, ``layout`` or the ``arrangement`` of a name says who holds what; in shared memory
    ``swizzle`` says how rows are spread over the banks (-1: whatever suits).
    """

    x: Value[Tile] = operand()
    home: str = attribute()
    layout: Layout | None = attribute(default=None)
    arrangement: str = attribute(default="")
    swizzle: int = attribute(default=-1)

    def check(self) -> Iterator[str]:
        """The home is known, and has what is said of it."""
        if self.home not in ("shared", "register"):
            yield f"a home is shared or register, not {self.home}"
        if self.arrangement and self.arrangement not in ARRANGEMENTS:
            yield f"{self.arrangement} is none of {', '.join(ARRANGEMENTS)}"
        if self.swizzle not in (-1, *SPANS):
            yield f"a swizzle spans one of {SPANS} bytes, not {self.swizzle}"
        if self.home == "shared" and (self.layout is not None or self.arrangement):
            yield "a tile in shared memory has a swizzle, not a register layout"
        if self.home == "register" and self.swizzle >= 0:
            yield "registers have no swizzle"
        if self.layout is not None:
            if self.arrangement:
                yield "a layout and an arrangement are pinned"
            yield from layout_faults(self.layout, len(self.x.type.shape))


class Meaning(Op, name="author.meaning"):
    """What the author says that ``x`` is: the interpreter takes that, compiled code ``x``."""

    x: Value[Any] = operand()
    says: Value[Any] = operand()
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """The same type."""
        return [self.x.type]

    def check(self) -> Iterator[str]:
        """Both have one type."""
        if self.x.type != self.says.type:
            yield f"{self.x.type} is said to be {self.says.type}"


class Assert(Op, name="author.assert", effects=Effects.ORDERS):
    """The author says that the condition holds, for every element that exists.

    ``axes`` says along which axes of the condition the indices run; ``text`` is the message, in
    code points.
    """

    condition: Value[Any] = operand()
    indices: tuple[Value[Index], ...] = operands()
    axes: tuple[int, ...] = attribute(default=())
    text: tuple[int, ...] = attribute(default=())

    def check(self) -> Iterator[str]:
        """The condition is bool, with one index for each axis named."""
        yield from _axes_faults(self)
        if math.element_type(self.condition.type) != BOOL:
            yield f"the condition has type {self.condition.type}, bool is needed"


class Print(Op, name="author.print", effects=Effects.ORDERS):
    """Show the elements that exist of a scalar or tile, and the index of each axis that has one.

    ``axes`` says along which axes of the value the indices run; ``text`` goes before, in code
    points.
    """

    x: Value[Any] = operand()
    indices: tuple[Value[Index], ...] = operands()
    axes: tuple[int, ...] = attribute(default=())
    text: tuple[int, ...] = attribute(default=())

    def check(self) -> Iterator[str]:
        """One index for each axis named."""
        yield from _axes_faults(self)


def _axes_faults(op: Assert | Print) -> Iterator[str]:
    """One index for each axis named, and the value has these axes."""
    value = op.condition if isinstance(op, Assert) else op.x
    rank = len(value.type.shape) if isinstance(value.type, Tile) else 0
    if len(op.axes) != len(op.indices):
        yield f"{len(op.indices)} indices for {len(op.axes)} axes"
    if any(not 0 <= axis < rank for axis in op.axes):
        yield f"axes {op.axes} of a value of type {value.type}"
