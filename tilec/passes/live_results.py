"""How many tiles as large as a product's result live at once where products run.

A product adds to its accumulator in place. Whatever else runs along a result's axes and is needed
afterwards has registers of its own, such as the sum that a product is subtracted from. A tile of
one repeated value, of a spread vector, or computed from such tiles alone, can as well be made where
it is needed and counts nothing, so the count does not depend on the order of independent lines.

Nothing here chooses; the count bounds the tiles that ``choose-tiles`` ranks.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Region, Value
from tilec.ir.levels import flow, math, tile
from tilec.ir.types import Tile
from tilec.passes.axes import Axes

ACCUMULATOR_BITS = 32
"""Bits of an element of a product's result."""


def live_results(axes: Axes, region: Region, dots: list[tile.Dot]) -> int:
    """The most results' worth of registers that are live at one product, at least one."""
    shapes = {axes.all_of(op.out) for op in dots}
    most = ACCUMULATOR_BITS
    cheap: dict[Value[Any], bool] = {}

    def bits(value: Value[Any]) -> int:
        if not isinstance(value.type, Tile) or axes.all_of(value) not in shapes:
            return 0
        if value.type.dtype.bits < 8 or made_anywhere(value):
            return 0
        return value.type.dtype.bits

    def made_anywhere(value: Value[Any]) -> bool:
        if value not in cheap:
            op = value.owner
            cheap[value] = isinstance(op, math.Fill | math.Broadcast) or (
                isinstance(op, math.Elementwise | math.Cast)
                and all(map(made_anywhere, op.operands))
            )
        return cheap[value]

    def visit(body: Region, after: set[Value[Any]]) -> None:
        """Note what is live at each product of a region, where ``after`` is live behind it."""
        nonlocal most
        live = set(after)
        for op in reversed(body.ops):
            if isinstance(op, tile.Dot):
                most = max(most, sum(map(bits, live | {op.out})))
            live -= set(op.results)
            inside = {v for nested in op.regions for v in _outer(nested)}
            again = inside if isinstance(op, flow.For | tile.ForTiles) else set()
            for nested in op.regions:
                visit(nested, live | again)
            live |= {*op.operands, *inside}

    visit(region, set())
    return -(-most // ACCUMULATOR_BITS)


def _outer(region: Region) -> list[Value[Any]]:
    """What a region reads of what is made outside it."""
    made = set(region.args)
    read: dict[Value[Any], None] = {}
    for op in region.walk():
        made.update(op.results, *(nested.args for nested in op.regions))
        read.update(dict.fromkeys(op.operands))
    return [value for value in read if value not in made]
