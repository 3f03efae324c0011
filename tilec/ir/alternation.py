"""Groups of a role that take the iterations of a loop in turns, and a ring's stages with them.

Law: if every iteration of a loop goes ``n`` rounds of a ring, the rounds of iteration ``t`` are the
stages ``t * n`` to ``(t + 1) * n``. So group ``g`` of ``G``, which takes every G-th iteration from
the g-th on, passes over ``g * n`` stages first and over ``(G - 1) * n`` after each of its own. Of
the groups of such a role one releases a stage, where otherwise all do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilec.ir.core import Kernel, Value
from tilec.ir.levels import cta, flow, math
from tilec.ir.levels.turns import Skip
from tilec.ir.places import linear
from tilec.ir.verify import Fault

Bounds = tuple[Value[Any], Value[Any], Value[Any]]


def groups_of(role: cta.Role) -> int:
    """The groups that run a role's body."""
    return role.warps // role.group


def skipped_rings(role: cta.Role) -> list[Value[Any]]:
    """The rings whose stages the groups of a role take in turns."""
    return list(dict.fromkeys(op.ring for op in role.body.walk() if isinstance(op, Skip)))


def releasing_groups(role: cta.Role, ring: Value[Any]) -> int:
    """How many groups of a role release each stage of a ring."""
    if not any(isinstance(op, cta.Release) and op.ring is ring for op in role.body.walk()):
        return 0
    return 1 if ring in skipped_rings(role) else groups_of(role)


def whole_loop(role: cta.Role, loop: flow.For) -> Bounds | None:
    """The bounds of the loop that the groups share out, if this is one group's part of it."""
    first, stride = loop.lower.owner, loop.step.owner
    if not isinstance(first, math.Add) or not isinstance(stride, math.Mul):
        return None
    count, ahead = stride.y.owner, first.y.owner
    if not isinstance(count, math.Constant) or count.value != groups_of(role):
        return None
    if not isinstance(ahead, math.Mul) or ahead.x is not role.body.args[0]:
        return None
    return (first.x, loop.upper, stride.x) if ahead.y is stride.x else None


def placing_faults(kernel: Kernel) -> Iterator[Fault]:
    """Stages are passed over before the loop that is shared out, and in each of its iterations."""
    for role in (op for op in kernel.body.ops if isinstance(op, cta.Role)):
        for ring in skipped_rings(role):
            skips = [op for op in role.body.walk() if isinstance(op, Skip) and op.ring is ring]
            loops = [
                op
                for op in role.body.ops
                if isinstance(op, flow.For) and whole_loop(role, op) is not None
            ]
            inside = [op for loop in loops for op in loop.body.ops if op in skips]
            before = [op for op in role.body.ops if op in skips]
            known = groups_of(role) == 2 and len(loops) == len(inside) == len(before) == 1
            if not known or len(skips) != 2:
                yield Fault(
                    skips[0],
                    f"the groups of role {role.label} pass over stages of %{ring.name}, and not "
                    "once before and once in each iteration of a loop that two of them share out",
                )
                continue
            if not _times(before[0].count, role.body.args[0], inside[0].count):
                yield Fault(
                    before[0],
                    "a group starts behind the rounds of those before it: its number times what "
                    "it passes over in each iteration",
                )


def _times(value: Value[Any], number: Value[Any], each: Value[Any]) -> bool:
    """Whether a value is a group's number times another one."""
    made = each.owner
    if isinstance(made, math.Constant):
        return linear(value) == (frozenset({(number, int(made.value))}), 0)
    product = value.owner
    return isinstance(product, math.Mul) and product.x is number and product.y is each
