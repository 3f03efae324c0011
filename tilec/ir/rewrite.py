"""Changing IR: rebuild walks, clones, uses, and the two clean-ups that every pass may ask for.

A rule looks at one op and either leaves it or hands back replacement values, after adding
whatever it needs to the builder. Rules see operands already replaced. Nothing here knows an op.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.declare import Effects
from tilec.ir.types import Extent, Index, Tile, is_symbol

Mapping = dict[Value[Any], Value[Any]]
Rule = Callable[[Op, Builder], Sequence[Value[Any]] | None]


def uses(region: Region) -> dict[Value[Any], list[Op]]:
    """For each value, the ops within ``region`` that have it as an operand."""
    found: dict[Value[Any], list[Op]] = defaultdict(list)
    for op in region.walk():
        for value in op.operands:
            found[value].append(op)
    return found


def clone(op: Op, mapping: Mapping) -> Op:
    """A copy with operands (also of nested ops) replaced; results are added to ``mapping``."""
    types = [r.type for r in op.results]
    fresh = type(op).from_parts(
        [mapping.get(v, v) for v in op.operands],
        op.attributes,
        [clone_region(r, mapping) for r in op.regions],
        types,
    )
    fresh.loc = op.loc
    for old, new in zip(op.results, fresh.results, strict=True):
        new.name = old.name
        mapping[old] = new
    return fresh


def clone_region(region: Region, mapping: Mapping) -> Region:
    """A copy of a region with fresh arguments, which are added to ``mapping``."""
    fresh = Region()
    for arg in region.args:
        mapping[arg] = fresh.add_arg(arg.type, arg.name)
    for op in region.ops:
        fresh.ops.append(clone(op, mapping))
    return fresh


def clone_kernel(kernel: Kernel) -> Kernel:
    """A copy that shares nothing that can change."""
    return Kernel(
        kernel.name,
        clone_region(kernel.body, {}),
        dict(kernel.attributes),
        dict(kernel.schedule),
    )


def apply(region: Region, rule: Rule, mapping: Mapping | None = None) -> bool:
    """Rebuild ``region`` in place, asking ``rule`` about every op; True if any op was replaced.

    Nested regions are rebuilt before the op that owns them is shown to the rule.
    """
    mapping = {} if mapping is None else mapping
    old, region.ops = region.ops, []
    builder = Builder(region)
    changed = False
    for op in old:
        op.map_operands(mapping)
        for nested in op.regions:
            changed |= apply(nested, rule, mapping)
        builder.loc = op.loc
        values = rule(op, builder)
        if values is None:
            builder.add(op)
            continue
        changed = True
        if len(values) != len(op.results):
            raise ValueError(f"{op.name} has {len(op.results)} results, got {len(values)} values")
        for result, value in zip(op.results, values, strict=True):
            if not value.name:
                value.name = result.name
            mapping[result] = value
    return changed


_REMOVABLE = Effects.READS | Effects.MAKES
"""Effects that do not matter when nobody uses the results."""


def remove_dead(region: Region) -> bool:
    """Remove ops without effects whose results nobody uses; True if any went.

    A tile uses the index that its type names by a size symbol: how much of the tile exists is known
    there and nowhere else, also where no operand leads to it.
    """
    live: set[Value[Any]] = set()
    sizes: set[Extent] = set()

    def sweep(body: Region) -> bool:
        kept: list[Op] = []
        gone = False
        for op in reversed(body.ops):
            nested_effects = any(_has_effects(r) for r in op.regions)
            needed = (
                op.is_terminator
                or bool(op.effects & ~_REMOVABLE)
                or nested_effects
                or any(r in live or _size(r) in sizes for r in op.results)
            )
            if not needed:
                gone = True
                continue
            for nested in op.regions:
                gone |= sweep(nested)
            live.update(op.operands)
            made = [*op.results, *(arg for nested in op.regions for arg in nested.args)]
            sizes.update(s for v in made if isinstance(v.type, Tile) for s in v.type.shape)
            kept.append(op)
        body.ops = kept[::-1]
        return gone

    changed = False
    while sweep(region):
        changed = True
        live.clear()
        sizes.clear()
    return changed


def _size(value: Value[Any]) -> Extent | None:
    """The size symbol that an index stands for."""
    kind = value.type
    return kind.size if isinstance(kind, Index) and is_symbol(kind.size) else None


def _has_effects(region: Region) -> bool:
    return any(op.effects & ~_REMOVABLE for op in region.walk())


def remove_duplicates(region: Region) -> bool:
    """Merge pure ops that compute the same from the same operands (also from outer regions)."""

    def visit(body: Region, known: dict[Any, list[Value[Any]]], mapping: Mapping) -> bool:
        changed = False
        kept: list[Op] = []
        for op in body.ops:
            op.map_operands(mapping)
            for nested in op.regions:
                changed |= visit(nested, dict(known), mapping)
            if op.effects is Effects.PURE and not op.regions and op.results:
                key = (
                    type(op),
                    tuple(op.operands),
                    tuple((k, repr(v)) for k, v in op.attributes.items()),
                    tuple(r.type for r in op.results),
                )
                if key in known:
                    mapping.update(zip(op.results, known[key], strict=True))
                    changed = True
                    continue
                known[key] = op.results
            kept.append(op)
        body.ops = kept
        return changed

    return visit(region, {}, {})
