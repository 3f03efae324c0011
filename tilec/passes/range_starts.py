"""Where tiles of ranges start: what is known of the numbers that a range begins and ends with.

A tile of a whole axis starts at a multiple of its size. A tile of a range starts wherever the range
does, so an access along memory is as wide as the start is known to be aligned, and a copy by TMA,
whose innermost start is a multiple of 16 bytes (measured, docs/hardware.md, "TMA load inner
coordinate"), needs a start of which that can be shown.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from tilec.ir.core import Value
from tilec.ir.levels import math, tile
from tilec.passes.base import Context

COPY_BYTES = 16
"""What the innermost start of a copy by TMA is a multiple of."""


def divisor(ctx: Context, value: Value[Any]) -> int:
    """A number that divides an integer in every launch; 0 for what is always 0."""
    op = value.owner
    if isinstance(op, math.Constant):
        return abs(int(op.value))
    if isinstance(op, tile.ExtentOf):
        extent = op.array.type.shape[op.axis]
        return extent if isinstance(extent, int) else ctx.facts.multiple(extent)
    if isinstance(op, math.Mul):
        return divisor(ctx, op.x) * divisor(ctx, op.y)
    if isinstance(op, math.Add | math.Sub | math.Min | math.Max):
        return gcd(divisor(ctx, op.x), divisor(ctx, op.y))
    return 1


def aligned_start(ctx: Context, subscript: Value[Any], most: int) -> int:
    """Elements, a power of two up to ``most``, that the start of a tile is a multiple of."""
    op = subscript.owner
    if not isinstance(op, tile.Within):
        return most
    known = divisor(ctx, op.lower)
    while known % most:
        most //= 2
    return most


def start_refusal(ctx: Context, op: tile.Load | tile.Store) -> str | None:
    """Why no copy by TMA can start where a tile does; None if one can."""
    facts = ctx.facts.array(op.array.name)
    if facts is None or not 0 <= facts.unit_axis < len(op.subscripts):
        return None
    subscript = op.subscripts[facts.unit_axis]
    elements = max(1, COPY_BYTES // op.array.type.dtype.bytes)
    if aligned_start(ctx, subscript, elements) == elements:
        return None
    return (
        f"{subscript.name} is a range that may start anywhere along the axis of stride 1, and a "
        f"copy by TMA starts at a multiple of {COPY_BYTES} bytes"
    )
