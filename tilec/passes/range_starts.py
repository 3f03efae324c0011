"""Where tiles of ranges start: what is known of the numbers that a range begins and ends with.

A tile of a whole axis starts at a multiple of its size. A tile of a range starts wherever the range
does, so an access along memory is as wide as the start is known to be aligned, and a copy by TMA,
whose innermost start is a multiple of 16 bytes (measured, docs/hardware.md, "TMA load inner
coordinate"), needs a start of which that can be shown.
"""

from __future__ import annotations

from collections.abc import Collection
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
    if not isinstance(op, tile.Within | tile.Part):
        return most
    known = op.start if isinstance(op, tile.Part) else divisor(ctx, op.lower)
    while known % most:
        most //= 2
    return most


# --- ranges of whole tiles ------------------------------------------------------------------------


def runs_over_whole_tiles(
    ctx: Context, op: tile.Within, size: int, grid: Collection[Value[Any]]
) -> bool:
    """Whether the tiles of a range are tiles of the axis that it lies in, each as full as there.

    Law: from a multiple of the tile size on, up to a multiple of it or to the end of the axis, no
    tile has an edge but where the axis ends, and beyond that loads hold zeros. ``grid`` are scalars
    that count up from 0.
    """
    return (
        divisor(ctx, op.lower) % size == 0
        and _least(op.lower, grid) >= 0
        and _ends_between(ctx, op.upper, op, size)
    )


def _ends_between(ctx: Context, value: Value[Any], op: tile.Within, size: int) -> bool:
    """Whether an end is a multiple of the size, or no less than the axis is long."""
    made = value.owner
    if divisor(ctx, value) % size == 0 or _is_extent(value, op):
        return True
    if isinstance(made, math.Min | math.Max):
        return all(_ends_between(ctx, v, op, size) for v in made.operands)
    if isinstance(made, math.Add):  # what lies so far behind the start, which is not negative
        for start, length in (made.operands, made.operands[::-1]):
            if start is op.lower:
                return _ends_between(ctx, length, op, size)
    return False


def _is_extent(value: Value[Any], op: tile.Within) -> bool:
    made = value.owner
    if isinstance(made, tile.ExtentOf):
        return bool(made.array.type.shape[made.axis] == op.of)
    return isinstance(made, math.Constant) and made.value == op.of


_UNKNOWN = -(1 << 31)


def _least(value: Value[Any], grid: Collection[Value[Any]]) -> int:
    """What an s32 is at least, as far as its operations say."""
    op = value.owner
    if value in grid or isinstance(op, tile.ExtentOf):
        return 0
    if isinstance(op, math.Constant):
        return int(op.value)
    if not isinstance(op, math.Binary):
        return _UNKNOWN
    x, y = _least(op.x, grid), _least(op.y, grid)
    if isinstance(op, math.Max):
        return max(x, y)
    if isinstance(op, math.Sub) and isinstance(op.y.owner, math.Constant):
        return x - y if x >= 0 else _UNKNOWN
    if min(x, y) < 0:
        return _UNKNOWN
    if isinstance(op, math.Add):
        return x + y
    if isinstance(op, math.Mul):
        return x * y
    if isinstance(op, math.Min):
        return min(x, y)
    return 0 if isinstance(op, math.FloorDiv | math.CeilDiv | math.Mod) and y > 0 else _UNKNOWN


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
