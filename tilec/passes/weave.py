"""Run straight stretches of elementwise work element by element instead of op by op.

Law: elementwise ops on different elements do not meet, so any order that keeps each element's own
order computes the same. Element by element, an intermediate lives for a few instructions instead
of a whole tile's length: fewer registers, and instructions of several pipes mix. What a stretch
needs and is not elementwise (constants, broadcasts, slices, coordinates) moves before it where
nothing in the stretch makes it.

Short tiles gain nothing and are left alone.
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

_LEAD = (math.Constant, math.Expand, math.Squeeze, math.Broadcast, cta.Coordinates, cta.Slice)


def _elements(value: Value[Any]) -> int:
    type = value.type
    return type.layout.size("reg") if isinstance(type, Register) else 0


def _weavable(op: Op) -> bool:
    if not isinstance(op, math.Elementwise | math.Cast):
        return False
    return _elements(op.results[0]) >= LEAST_ELEMENTS


def _close(run: list[Op], uses: dict[Value[Any], list[Op]], into: list[Op]) -> int:
    """Append a stretch, woven if it is worth it; 1 if it was."""
    if len(run) < LEAST_OPS:
        into.extend(run)
        return 0
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
    run: list[Op] = []
    made: set[Value[Any]] = set()
    for op in region.ops:
        for nested in op.regions:
            count += _weave(nested, uses)
        if _weavable(op) and (not run or _elements(op.results[0]) == _elements(run[0].results[0])):
            run.append(op)
            made.update(op.results)
        elif isinstance(op, _LEAD) and not any(v in made for v in op.operands):
            done.append(op)
        else:
            count += _close(run, uses, done)
            run, made = [], set()
            if _weavable(op):
                run.append(op)
                made.update(op.results)
            else:
                done.append(op)
    count += _close(run, uses, done)
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
