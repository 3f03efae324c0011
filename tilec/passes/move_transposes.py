"""Move transposes to where memory is read or written, which exchanges axes for nothing.

Laws: elementwise work on transposes is the transpose of elementwise work; a sum along one axis of
a transpose is the sum along the other axis of the tile; a repeated value or a spread vector is its
own transpose, spread the other way. So a transpose rises to the loads that its tile is computed
from. Where that ends at a value of a loop, a branch or a product, it sinks instead to the stores of
what is computed from it.

Transposed operands of products are views already, and stay. What is left in between (a transpose
that a loop carries on) is refused where CTAs are formed.
"""

from __future__ import annotations

from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Op, Region, Value
from tilec.ir.levels import math, tile
from tilec.ir.types import Tile
from tilec.passes.form_products import feeds_only_products


def move_transposes(region: Region) -> bool:
    """Apply the laws until none does; True if anything changed."""
    changed = False
    while _once(region):
        rewrite.remove_dead(region)
        rewrite.remove_duplicates(region)
        changed = True
    return changed


def _once(region: Region) -> bool:
    uses, rising = rewrite.uses(region), _rising(region)

    def rule(op: Op, builder: Builder) -> list[Value[Any]] | None:
        if isinstance(op, math.Reduce) and isinstance(op.x.owner, tile.Transpose):
            flat = op.x.owner.x
            sums = math.Reduce(
                flat, axis=1 - op.axis, kind=op.kind, type=op.out.type, strict=op.strict
            )
            return [builder.add(sums).out]
        if isinstance(op, tile.Transpose):
            if isinstance(op.x.owner, tile.Transpose):
                return [op.x.owner.x]
            summed = all(isinstance(user, math.Reduce) for user in uses.get(op.out, []))
            if summed or op.x not in rising or isinstance(op.x.owner, tile.Load):
                return None
            return None if feeds_only_products(op.out, uses) else [_risen(op.x, builder)]
        if isinstance(op, math.Elementwise | math.Cast) and _sinks(op, rising):
            below = [_turned(v, builder) for v in op.operands]
            made = type(op).from_parts(below, op.attributes, [], [_flipped(op.results[0].type)])
            return [builder.add(tile.Transpose(builder.add(made).results[0])).out]
        return None

    return rewrite.apply(region, rule)


def _rising(region: Region) -> set[Value[Any]]:
    """The tiles whose transposes are computed from transposed loads alone."""
    found: set[Value[Any]] = set()
    for op in region.walk():
        if isinstance(op, tile.Load | math.Fill | math.Expand | tile.Transpose) or (
            isinstance(op, math.Elementwise | math.Cast | math.Broadcast | tile.Pad)
            and all(v in found for v in op.operands if isinstance(v.type, Tile))
        ):
            found.update(v for v in op.results if _is_flat(v))
    return found


def _is_flat(value: Value[Any]) -> bool:
    return isinstance(value.type, Tile) and len(value.type.shape) == 2


def _risen(value: Value[Any], builder: Builder) -> Value[Any]:
    """The transpose of a tile, built from its loads on; each op of its work is done once."""
    made: dict[Value[Any], Value[Any]] = {}
    waiting = [value]
    while waiting:
        here = waiting[-1]
        op = here.owner
        assert isinstance(op, Op)
        flat = isinstance(op, tile.Load | tile.Transpose | math.Fill | math.Expand)
        first = [] if flat else [v for v in op.operands if _is_flat(v) and v not in made]
        if first:
            waiting.extend(first)
            continue
        waiting.pop()
        if here not in made:
            made[here] = _law(op, here, made, builder)
    return made[value]


def _law(
    op: Op, value: Value[Any], made: dict[Value[Any], Value[Any]], builder: Builder
) -> Value[Any]:
    """The transpose of what one op gives, from the transposes of its operands."""
    if isinstance(op, tile.Load | tile.Transpose):
        return _turned(value, builder)
    type_ = _flipped(value.type)
    if isinstance(op, math.Expand):
        return builder.add(math.Expand(op.x, axis=1 - op.axis, type=type_)).out
    if isinstance(op, tile.Pad):
        return builder.add(tile.Pad(made[op.x], op.index, axis=1 - op.axis, value=op.value)).out
    operands = [made.get(v, v) for v in op.operands]
    return builder.add(type(op).from_parts(operands, op.attributes, op.regions, [type_])).results[0]


def _sinks(op: Op, rising: set[Value[Any]]) -> bool:
    """Whether transposes of what cannot rise meet only transposes, and what can rise."""
    turned = [v.owner.x for v in op.operands if isinstance(v.owner, tile.Transpose)]
    if all(x in rising for x in turned):
        return False
    return all(
        v in rising or isinstance(v.owner, tile.Transpose)
        for v in op.operands
        if isinstance(v.type, Tile)
    )


def _turned(value: Value[Any], builder: Builder) -> Value[Any]:
    if not isinstance(value.type, Tile):
        return value
    if isinstance(value.owner, tile.Transpose):
        return value.owner.x
    return builder.add(tile.Transpose(value)).out


def _flipped(type: Any) -> Tile:
    return Tile(type.dtype, type.shape[::-1])
