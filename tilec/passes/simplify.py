"""Fold, merge and drop: what can be known without running the kernel.

Rules hold bit by bit for every value of their operands, NaN, signed zeros and wrap-around
included, so a simplified program is the same program:

    constants          fold by ``constants`` (exact arithmetic only)
    x + 0, 0 + x       = x       integers (for floats -0 + 0 is +0, so not)
    x - 0              = x       integers and floats
    x * 1, 1 * x, x/1  = x       integers and floats
    x * 0              = 0       integers
    where(c, x, x)     = x,      where(true, x, y) = x
    cast to own type   = x
    transpose twice    = x
    meaning of x       = x       that a person vouches for
    if known           = its branch
    load, load again   = one load       (arrays that the kernel only reads)

Transposes move to loads and stores (``move_transposes``) and parts of tiles to loads
(``move_slices``), where they cost nothing.

Then equal pure ops are merged, unused ones dropped, and pure ops that do not depend on a loop
move out of it (``tile`` level only, where nothing has a place yet and so nothing gets longer
lives in registers).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.declare import Effects
from tilec.ir.facts import Schedule
from tilec.ir.levels import author, flow, math, tile
from tilec.ir.types import Index, Scalar, Tile
from tilec.passes.base import Context, tile_pass
from tilec.passes.check_schedule import index_sizes
from tilec.passes.constants import constant_value, folded
from tilec.passes.move_slices import move_slices
from tilec.passes.move_transposes import move_transposes

Values = list[Value[Any]]


def fold_constants(op: Op, builder: Builder) -> Values | None:
    """A scalar op on constants is a constant."""
    value = folded(op)
    if value is None:
        return None
    return [builder.add(math.Constant(value, type=op.results[0].type)).out]


def identities(op: Op, builder: Builder) -> Values | None:
    """An operand that changes nothing goes."""
    if isinstance(op, math.Cast) and math.element_type(op.x.type) == op.dtype:
        return [op.x]
    if isinstance(op, math.Where):
        return _where(op)
    if isinstance(op, math.Binary):
        return _binary(op)
    if isinstance(op, tile.Transpose) and isinstance(op.x.owner, tile.Transpose):
        return [op.x.owner.x]
    return [op.x] if isinstance(op, author.Meaning) else None


def _where(op: math.Where) -> Values | None:
    known = constant_value(op.condition)
    chosen = op.x if op.x is op.y or known is True else op.y if known is False else None
    return [chosen] if chosen is not None and chosen.type == op.out.type else None


def _binary(op: math.Binary) -> Values | None:
    left, right = constant_value(op.x), constant_value(op.y)
    integer = math.element_type(op.out.type).is_integer
    kept: Value[Any] | None = None
    if right == 0 and (isinstance(op, math.Sub) or (isinstance(op, math.Add) and integer)):
        # x - (+0) is x for every x; a negative zero would turn -0 into +0.
        kept = op.x if integer or str(float(right)) == "0.0" else None
    elif left == 0 and isinstance(op, math.Add) and integer:
        kept = op.y
    elif right == 1 and isinstance(op, math.Mul | math.Div | math.FloorDiv):
        kept = op.x
    elif left == 1 and isinstance(op, math.Mul):
        kept = op.y
    elif integer and isinstance(op, math.Mul) and 0 in (left, right):
        kept = op.x if left == 0 else op.y
    return [kept] if kept is not None and kept.type == op.out.type else None


def known_branch(op: Op, builder: Builder) -> Values | None:
    """A branch whose condition is known is the region that it takes."""
    if not isinstance(op, flow.If):
        return None
    known = constant_value(op.condition)
    if known is None:
        return None
    region = op.then if known else op.otherwise
    for inner in region.ops:
        if not inner.is_terminator:
            builder.region.ops.append(inner)
    return list(flow.yielded(region))


def hoist(region: Region) -> bool:
    """Move pure ops out of loops that they do not depend on."""
    changed = False
    kept: list[Op] = []
    for op in region.ops:
        for nested in op.regions:
            changed |= hoist(nested)
        if isinstance(op, flow.For | tile.ForTiles | tile.Parallel):
            moved = _invariant(op.regions[0], scalars=isinstance(op, tile.Parallel))
            kept.extend(moved)
            changed |= bool(moved)
        kept.append(op)
    region.ops = kept
    return changed


def _invariant(body: Region, *, scalars: bool) -> list[Op]:
    """Take out what does not depend on the loop; outside a launch only scalars can live.

    A tile over the loop's own axis depends on the loop by its type: how much of it is valid is
    known only where the index is.
    """
    inside: set[Value[Any]] = set(body.args)
    symbols = {arg.type.size for arg in body.args if isinstance(arg.type, Index)}
    moved: list[Op] = []
    stay: list[Op] = []
    for op in body.ops:
        movable = op.effects is Effects.PURE and not op.regions and not op.is_terminator
        if scalars and not all(isinstance(r.type, Scalar) for r in op.results):
            movable = False
        values = [*op.operands, *op.results]
        if any(isinstance(v.type, Tile) and symbols & set(v.type.shape) for v in values):
            movable = False
        if movable and not any(v in inside for v in op.operands):
            moved.append(op)
            continue
        inside.update(op.results)
        stay.append(op)
    body.ops = stay
    return moved


def merge_loads(region: Region, known: dict[Any, Value[Any]] | None = None) -> bool:
    """Read the same tile of an ``in`` array once; nothing in a launch can change it."""
    known = dict(known or {})
    mapping: rewrite.Mapping = {}
    kept: list[Op] = []
    for op in region.ops:
        _replace(op, mapping)
        for nested in op.regions:
            merge_loads(nested, known)
        if isinstance(op, tile.Load) and op.array.type.mode == "in":
            key = (op.array, op.subscripts)
            if key in known:
                mapping[op.out] = known[key]
                continue
            known[key] = op.out
        kept.append(op)
    changed = len(kept) != len(region.ops)
    region.ops = kept
    return changed


def _replace(op: Op, mapping: rewrite.Mapping) -> None:
    if mapping:
        op.map_operands(mapping)
        for nested in op.regions:
            for inner in nested.ops:
                _replace(inner, mapping)


def tidy(region: Region) -> None:
    """Fold, merge and drop within a region, at any level."""
    while True:
        changed = rewrite.apply(region, fold_constants)
        changed |= rewrite.apply(region, identities)
        changed |= rewrite.apply(region, known_branch)
        changed |= rewrite.remove_dead(region)
        changed |= rewrite.remove_duplicates(region)
        if not changed:
            return


@tile_pass("simplify", level="tile")
def simplify(kernel: Kernel, ctx: Context) -> None:
    """Nothing is computed twice, in vain, or again in every round of a loop."""
    before = index_sizes(kernel)
    tidy(kernel.body)
    if move_slices(kernel.body) | move_transposes(kernel.body):
        tidy(kernel.body)
    if hoist(kernel.body) | merge_loads(kernel.body):
        tidy(kernel.body)
    kept = without_dropped_loops(ctx, before.keys() - index_sizes(kernel).keys())
    if kept != ctx.schedule:
        kernel.schedule = kept.as_attributes()


def without_dropped_loops(ctx: Context, gone: Set[str]) -> Schedule:
    """The schedule but for pins of loops that were dropped, because nothing uses what they give."""
    for name, size in ctx.schedule.tiles:
        if name in gone:
            text = f"tiles.{name} = {size} has no effect: nothing uses what the loop computes"
            ctx.remark(None, text)
    return replace(ctx.schedule, tiles=tuple(p for p in ctx.schedule.tiles if p[0] not in gone))
