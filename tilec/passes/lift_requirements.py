"""Move what the program requires of a launch out of the code, to where the launcher reads it.

A requirement is a condition over extents, scalar parameters and constants; it becomes a nested
tuple in the kernel's ``requirements`` attribute, beside its source line. The launcher evaluates it
before anything runs, so no instruction is spent on it.
"""

from __future__ import annotations

from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Kernel, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import math, tile
from tilec.ir.types import Scalar
from tilec.passes.base import Context, tile_pass
from tilec.passes.refusal import refused


def launch_expression(value: Value[Any]) -> Any:
    """A scalar as a nested tuple that the launcher can evaluate; ``Refused`` if it cannot."""
    op = value.owner
    match op:
        case tile.ExtentOf():
            return ("extent", op.array.name, op.axis)
        case math.Constant():
            return op.value
        case math.Compare():
            return (op.relation, launch_expression(op.x), launch_expression(op.y))
        case math.Cast():
            return launch_expression(op.x)
        case math.Binary() | math.Not() | math.Neg() | math.Abs():
            word = op.name.removeprefix("math.")
            return (word, *(launch_expression(v) for v in op.operands))
    if isinstance(op, Region) and isinstance(value.type, Scalar):
        return ("scalar", value.name)
    raise Refused("a requirement may only speak of sizes, scalar parameters and numbers")


def requirements_of(kernel: Kernel) -> list[tuple[int, Any]]:
    """Source line and condition of each requirement, whether lifted already or still an op."""
    found: list[tuple[int, Any]] = list(kernel.attributes.get("requirements", ()))
    for op in kernel.body.walk():
        if isinstance(op, tile.Require):
            if op not in kernel.body.ops:
                raise refused(op, "a requirement stands before the loops, not in one")
            found.append((op.loc.line if op.loc else 0, launch_expression(op.condition)))
    return found


@tile_pass("lift-requirements", level="tile")
def lift_requirements(kernel: Kernel, ctx: Context) -> None:
    """Requirements on the launch are an attribute of the kernel, and no op states one."""
    found = requirements_of(kernel)
    if found:
        kernel.attributes["requirements"] = tuple(found)
        kernel.body.ops = [op for op in kernel.body.ops if not isinstance(op, tile.Require)]
        rewrite.remove_dead(kernel.body)
