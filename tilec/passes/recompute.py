"""Compute a register tile again in another layout, instead of moving it between threads.

Law: what is computed from a thread's own coordinates, from scalars and from arrays that nobody
writes is the same whoever computes it. So an index, a coordinate made of indices, or a vector of
numbers read from an ``in`` array is had in any layout for a few instructions or a cached read.
Everything else is moved (``cta.convert``).
"""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Builder, Op, Value
from tilec.ir.levels import cta, math
from tilec.ir.types import Register
from tilec.layout.linear import Layout
from tilec.passes.frames import slice_of


def recomputed(build: Builder, value: Value[Any], layout: Layout) -> Value[Any] | None:
    """The value in a layout, computed anew; None where the law does not hold."""
    return _again(build, value, layout) if _can_be(value) else None


def _can_be(value: Value[Any]) -> bool:
    if not isinstance(value.type, Register):
        return True
    made = value.owner
    if isinstance(made, cta.Coordinates | math.Fill):
        return True
    if isinstance(made, cta.Read):
        return bool(made.array.type.mode == "in")
    if isinstance(made, math.Expand | math.Broadcast | math.Elementwise | math.Cast):
        return all(_can_be(v) for v in made.operands)
    return False


def _again(build: Builder, value: Value[Any], layout: Layout) -> Value[Any]:
    if not isinstance(value.type, Register) or value.type.layout == layout:
        return value
    made = value.owner
    assert isinstance(made, Op)
    type = Register(value.type.dtype, value.type.shape, layout)
    operands = []
    for operand in made.operands:
        inner = layout
        if isinstance(made, math.Expand):
            inner = layout.drop(made.axis)
        elif isinstance(made, math.Broadcast):
            pairs = zip(operand.type.shape, type.shape, strict=True)
            (axis,) = [n for n, (small, large) in enumerate(pairs) if small != large]
            inner = slice_of(layout, [axis]).insert(axis)
        operands.append(_again(build, operand, inner))
    fresh = build.add(made.__class__.from_parts(operands, made.attributes, [], [type]), value.name)
    return fresh.results[0]
