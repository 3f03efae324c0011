"""Loops run in parts: tiles that take no part are left out, tiles that wholly do carry no mask.

Law: let a ``where`` of the loop's body have a condition that is a formula of indices
(``index_relations``), and let a round in which it is false (or true) everywhere leave everything
that is carried as it is (``absorb``). Then rounds whose tiles the formula excludes need not run,
and in rounds whose tiles it covers the ``where`` is its other arm. ``tile_bounds`` says which tiles
these are, as numbers computed in front of the loop; parts follow each other in the loop's order, so
what is carried meets the same rounds in the same order.

    for j: body  =  for j in mixed: body; for j in kept: body without masks; for j in mixed: body

An edge is a predicate as well: ``tile.pad`` along the loop's index does nothing in tiles without
one, so a ragged loop becomes its full tiles and a last one. A mask whose round changes something (a
``where`` between two finite values, say) stays, and its loop is not cut for it.

Nothing is dropped from a loop with effects. Bodies of parts that provably never run are not made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.declare import Effects
from tilec.ir.levels import author, math, parts, tile
from tilec.ir.types import Scalar
from tilec.passes.absorb import absorbs
from tilec.passes.base import Context, tile_pass
from tilec.passes.forming import may_be_partial
from tilec.passes.index_relations import Formula, Sum, relation, terms
from tilec.passes.simplify import tidy
from tilec.passes.tile_bounds import Number, Numbers, Span, Tiles, same

MOST_PARTS = 6
"""Copies of a body; where there would be more, spans are joined."""


@dataclass
class Predicate:
    """A ``where`` that is its arm (``x`` or ``y``) wherever ``formula`` holds."""

    where: math.Where
    formula: Formula
    arm: str


@dataclass
class Plan:
    """What of a loop's body depends on the tile's place."""

    names: dict[Value[Any], Sum]
    """The loop's index under each name, and what is added to it there."""
    predicates: list[Predicate] = field(default_factory=list)
    pads: list[tile.Pad] = field(default_factory=list)
    limits: dict[Value[Any], Number] = field(default_factory=dict)
    """How many elements there are under each name along which a tile may have an edge."""


@dataclass
class Part:
    """Tiles that run with the same body."""

    span: Span
    kept: bool


def plan_of(loop: tile.ForTiles, numbers: Numbers, ctx: Context) -> Plan:
    """The predicates and the edges of a loop's rounds."""
    inside = _made_inside(loop)
    head = loop.body.args[0]
    plan = Plan({head: Sum()})
    for op in loop.body.ops:
        if isinstance(op, tile.Within) and op.index is head and not inside & {*op.operands[1:]}:
            start = numbers.value(numbers.most(op.lower, 0))
            end = numbers.least(op.upper, op.extent)
            plan.names[op.out] = Sum({start: 1})
            plan.limits[op.out] = numbers.plus(end, start, -1)
    quiet = Effects.READS | Effects.MAKES
    silent = all(not op.effects & ~quiet or isinstance(op, author.Home) for op in loop.body.walk())
    for op in loop.body.ops:
        if isinstance(op, math.Where) and silent:
            found = _predicate(loop, plan, op, inside, ctx)
            if found is not None:
                plan.predicates.append(found)
    if may_be_partial(ctx, head, loop.size):
        plan.limits[head] = loop.extent
    plan.pads = [
        op for op in loop.body.walk() if isinstance(op, tile.Pad) and op.index in plan.limits
    ]
    return plan


def _made_inside(loop: tile.ForTiles) -> set[Value[Any]]:
    made = set(loop.body.args)
    for op in loop.body.walk():
        made.update(op.results)
        for nested in op.regions:
            made.update(nested.args)
    return made


def _predicate(
    loop: tile.ForTiles, plan: Plan, op: math.Where, inside: set[Value[Any]], ctx: Context
) -> Predicate | None:
    for holds in (True, False):
        formula = relation(op.condition, holds=holds)
        if formula is None:
            return None
        spoken = set(terms(formula))
        if not spoken & set(plan.names) or (spoken - set(plan.names)) & inside:
            return None
        if absorbs(loop, op.condition, holds=not holds):
            return Predicate(op, formula, "x" if holds else "y")
    ctx.remark(
        op,
        "tiles that this condition excludes run all the same: a round of them is not known to "
        "change nothing",
    )
    return None


# --- parts --------------------------------------------------------------------------------------


def _parts(tiles: Tiles, live: list[Span], kept: list[Span]) -> list[Part]:
    """Which tiles run, in order, and which of them without masks."""
    each = 1 if len(kept) == len(live) else len(kept)
    if len(live) * (2 * each + 1) > MOST_PARTS:
        live = [tiles.around(live)]
        kept = kept[-1:]
    n = tiles.numbers
    found: list[Part] = []
    place: Number = 0
    for number, span in enumerate(live):
        end = n.least(span.upper, tiles.count) if span.upper is not tiles.count else span.upper
        first = span.lower if same(span.lower, place) else n.most(span.lower, place)
        first = first if same(first, 0) else n.least(first, tiles.count)
        end = end if same(end, tiles.count) else n.most(end, first)
        place = first
        inner = kept if len(kept) != len(live) else [kept[number]]
        for covered in inner:
            start = place if same(covered.lower, 0) else n.most(covered.lower, place)
            start = start if same(start, place) else n.least(start, end)
            stop = end if same(covered.upper, tiles.count) else n.least(covered.upper, end)
            stop = stop if same(stop, end) else n.most(stop, start)
            found += [Part(Span(place, start), False), Part(Span(start, stop), True)]
            place = stop
        found.append(Part(Span(place, end), False))
        place = end
    return [part for part in found if not same(part.span.lower, part.span.upper)]


def _body(loop: tile.ForTiles, plan: Plan, part: Part) -> Region:
    """The loop's body for a part."""
    mapping: rewrite.Mapping = {}
    if not part.kept:
        return rewrite.clone_region(loop.body, mapping)
    fresh = rewrite.clone_region(loop.body, mapping)
    arms = {mapping[p.where.out]: p.arm for p in plan.predicates}
    arms.update({mapping[pad.out]: "x" for pad in plan.pads})

    def rule(op: Op, builder: Builder) -> list[Value[Any]] | None:
        if not op.results or op.results[0] not in arms:
            return None
        value, whole = getattr(op, arms[op.results[0]]), op.results[0].type
        if isinstance(value.type, Scalar) and not isinstance(whole, Scalar):
            value = builder.add(math.Fill(value, type=whole)).out
        return [value]

    rewrite.apply(fresh, rule)
    return fresh


_CUT = (tile.ForTiles, tile.ForJoined, tile.ForShare)
"""Loops whose rounds are known by the numbers of their tiles."""


def _rounds(loop: tile.ForTiles, tiles: Tiles) -> list[Span]:
    """The tiles that a loop runs over before anything is left out."""
    if not isinstance(loop, tile.ForShare):
        return tiles.whole()
    n = tiles.numbers
    each = n.divided_up(tiles.count, loop.count)
    first = n.value(n.product(loop.share, each))
    return [Span(first, n.least(n.plus(first, each), tiles.count))]


def split(loop: tile.ForTiles, builder: Builder, ctx: Context) -> list[Value[Any]] | None:
    """The loop in parts; None if all its rounds are alike."""
    if type(loop) not in _CUT or not isinstance(loop.size, int):
        return None
    builder.loc = loop.loc
    numbers = Numbers(builder)
    plan = plan_of(loop, numbers, ctx)
    if not plan.predicates and not plan.pads:
        return None
    tiles = Tiles(numbers, loop.extent, loop.size, plan.names)
    live = kept = _rounds(loop, tiles)
    for index in {pad.index: None for pad in plan.pads}:
        kept = tiles.common(kept, tiles.full(plan.limits[index]))
    for predicate in plan.predicates:
        live = tiles.common(live, tiles.somewhere(predicate.formula))
        kept = tiles.common(kept, tiles.everywhere(predicate.formula))
    values, head = list(loop.init), loop.body.args[0]
    made_of = _parts(tiles, live, kept)
    for part in made_of:
        lower, upper = (
            numbers.value(numbers.product(bound, loop.size))
            for bound in (part.span.lower, part.span.upper)
        )
        made = builder.add(
            parts.ForPart(
                loop.extent,
                tuple(values),
                loop.size,
                _body(loop, plan, part),
                lower,
                upper,
                full=part.kept and any(pad.index is head for pad in plan.pads),
            )
        )
        for old, new in zip(loop.finals, made.finals, strict=True):
            new.name = old.name
        values = list(made.finals)
    _explain(loop, plan, made_of, ctx)
    return values


def _explain(loop: tile.ForTiles, plan: Plan, made_of: list[Part], ctx: Context) -> None:
    name = loop.body.args[0].name
    shown = ", ".join("without masks" if part.kept else "with masks" for part in made_of)
    for predicate in plan.predicates:
        ctx.remark(
            predicate.where,
            f"tiles of {name} that the condition excludes do not run, those that it covers have "
            "no mask",
        )
    ctx.remark(loop, f"the loop runs in {len(made_of)} parts: {shown}", parts=len(made_of))


@tile_pass("split-by-predicates", level="tile")
def split_by_predicates(kernel: Kernel, ctx: Context) -> None:
    """Tiles outside a predicate do not run; tiles inside it, or without an edge, have no mask."""

    def rule(op: Op, builder: Builder) -> list[Value[Any]] | None:
        return split(op, builder, ctx) if isinstance(op, tile.ForTiles) else None

    if rewrite.apply(kernel.body, rule):
        tidy(kernel.body)
    rewrite.remove_dead(kernel.body)
