"""The order in which CTAs take the tiles of a grid: a tile's number to its place along each axis.

Tiles are numbered so that neighbours share operands in L2: along the first of the two last tiled
axes, ``group`` tiles stand together before the number moves along the second one; all axes before
these are outermost. With tile counts (m, n) and a group of g rows, number t is
    row = t / (g n) * g + t mod (g n) mod h,  column = t mod (g n) / h,  h = min(g, rows left).
Every tile has exactly one number; the law needs no divisibility.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir.core import Builder, Value
from tilec.ir.levels import math
from tilec.ir.types import S32, Scalar


def constant(builder: Builder, value: int, name: str = "") -> Value[Scalar]:
    """An s32 constant."""
    return builder.add(math.Constant(value, type=Scalar(S32)), name).out


def product(builder: Builder, values: Sequence[Value[Scalar]], name: str) -> Value[Scalar]:
    """The product of scalars."""
    total = values[0]
    for value in values[1:]:
        total = builder.add(math.Mul(total, value), name).out
    return total


def _split(
    builder: Builder, number: Value[Scalar], by: Value[Scalar]
) -> tuple[Value[Scalar], Value[Scalar]]:
    quotient = builder.add(math.FloorDiv(number, by)).out
    back = builder.add(math.Mul(quotient, by)).out
    return quotient, builder.add(math.Sub(number, back)).out


def places(
    builder: Builder,
    number: Value[Scalar],
    counts: Sequence[Value[Scalar]],
    group: int,
) -> list[Value[Scalar]]:
    """The tile's place along each axis; the last two axes are grouped if ``group`` > 1."""
    grouped = group > 1 and len(counts) >= 2
    inner = list(counts[-2:]) if grouped else []
    outer = list(counts[: len(counts) - len(inner)])
    found: list[Value[Scalar]] = []
    rest = number
    for axis in range(len(outer)):
        following = [*outer[axis + 1 :], *inner]
        if not following:
            found.append(rest)
            break
        place, rest = _split(builder, rest, product(builder, following, "tiles"))
        found.append(place)
    return [*found, *_grouped(builder, rest, inner, group)] if grouped else found


def _grouped(
    builder: Builder, number: Value[Scalar], counts: Sequence[Value[Scalar]], group: int
) -> list[Value[Scalar]]:
    rows, columns = counts
    height = constant(builder, group)
    block = builder.add(math.Mul(height, columns), "block").out
    which, inside = _split(builder, number, block)
    first = builder.add(math.Mul(which, height), "first_row").out
    left = builder.add(math.Sub(rows, first), "rows_left").out
    # There is one at least for every number; said here, the division by it needs no sign.
    left = builder.add(math.Max(left, constant(builder, 1)), "rows_left").out
    actual = builder.add(math.Min(height, left), "rows_here").out
    column, row = _split(builder, inside, actual)
    return [builder.add(math.Add(first, row), "row").out, column]
