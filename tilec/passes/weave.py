"""Run straight stretches of elementwise work element by element instead of op by op.

Law: elementwise ops on different elements do not meet, so any order that keeps each element's own
order computes the same. Element by element, an intermediate lives for a few instructions instead
of a whole tile's length: fewer registers, and instructions of several pipes mix. What a stretch
needs and is not elementwise (constants, broadcasts, slices, coordinates) moves before it where
nothing in the stretch makes it.

Short work gains nothing and is left alone: tiles of fewer than 16 elements a thread, and stretches
of fewer than two ops. Where nothing is woven, nothing moves.
"""

from __future__ import annotations

from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.levels import cta, flow, math
from tilec.ir.types import Register
from tilec.passes.base import Context, tile_pass

LEAST_ELEMENTS = 16
"""Elements a thread from which on the order of a tile's instructions matters."""
LEAST_OPS = 2
"""Ops from which on a stretch has an intermediate whose life can be shortened."""

_LEAD = (math.Constant, math.Expand, math.Squeeze, math.Broadcast, cta.Coordinates, cta.Slice)


def _elements(value: Value[Any]) -> int:
    type = value.type
    return type.layout.size("reg") if isinstance(type, Register) else 0


def _weavable(op: Op) -> bool:
    if not isinstance(op, math.Elementwise | math.Cast):
        return False
    return _elements(op.results[0]) >= LEAST_ELEMENTS


def _close(stretch: list[Op], uses: dict[Value[Any], list[Op]], into: list[Op]) -> int:
    """Append a stretch, woven behind what it needs if it is worth it; 1 if it was."""
    run = [op for op in stretch if _weavable(op)]
    if len(run) < LEAST_OPS:
        into.extend(stretch)
        return 0
    into.extend(op for op in stretch if not _weavable(op))
    inside = set(run)
    out = [
        value
        for op in run
        for value in op.results
        if any(user not in inside for user in uses.get(value, []))
    ]
    body = Region([], [*run, flow.Yield(tuple(out))])
    woven = cta.Weave(types=tuple(v.type for v in out), body=body)
    woven.loc = run[0].loc
    for old, new in zip(out, woven.out, strict=True):
        new.name = old.name
    into.append(woven)
    mapping = dict(zip(out, woven.out, strict=True))
    for value in out:
        for user in uses.get(value, []):
            if user not in inside:
                user.map_operands(mapping)
    return 1


def _weave(region: Region, uses: dict[Value[Any], list[Op]]) -> int:
    count = 0
    done: list[Op] = []
    stretch: list[Op] = []
    made: set[Value[Any]] = set()
    each = 0
    for op in region.ops:
        for nested in op.regions:
            count += _weave(nested, uses)
        weavable = _weavable(op)
        lead = isinstance(op, _LEAD) and not any(v in made for v in op.operands)
        if not lead and not (weavable and each in (0, _elements(op.results[0]))):
            count += _close(stretch, uses, done)
            stretch, made, each = [], set(), 0
        if weavable:
            stretch.append(op)
            made.update(op.results)
            each = _elements(op.results[0])
        elif lead:
            stretch.append(op)
        else:
            done.append(op)
    count += _close(stretch, uses, done)
    region.ops = done
    return count


@tile_pass("weave", level="cta")
def weave(kernel: Kernel, ctx: Context) -> None:
    """Long tiles flow through stretches of elementwise work a few elements at a time."""
    for role in kernel.body.ops:
        if isinstance(role, cta.Role):
            count = _weave(role.body, rewrite.uses(role.body))
            if count:
                ctx.remark(role, f"{count} stretches of elementwise work run element by element")
