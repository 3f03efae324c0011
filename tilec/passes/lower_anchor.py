"""Say what rows' exponents are measured from: of all legal values the true running maximum.

Laws:

    anchor(m, s)   = max(m, rowmax(s))                      the greatest value that it may have
    exp2sub(x, r)  = where(x == -inf, 0, exp2(x - r))       by its definition

The author promises that results do not depend on the value, so nothing need be known of what
follows. A row of which everything so far is -inf keeps -inf, and its weights are 0.
"""

from __future__ import annotations

import math as pymath
from typing import Any

from tilec.ir.core import Builder, Kernel, Op, Value
from tilec.ir.levels import math, tile
from tilec.ir.types import Scalar
from tilec.passes.base import Context, tile_pass


def _anchor(op: Op, builder: Builder) -> list[Value[Any]] | None:
    if not isinstance(op, tile.Anchor):
        return None
    last = len(op.s.type.shape) - 1
    top = builder.add(math.Reduce(op.s, axis=last, kind="max", type=op.m.type)).out
    return [builder.add(math.Max(op.m, top)).out]


def _exp2_sub(op: Op, builder: Builder) -> list[Value[Any]] | None:
    if not isinstance(op, tile.Exp2Sub):
        return None
    scalar = Scalar(math.element_type(op.x.type))
    below = builder.add(math.Constant(-pymath.inf, type=scalar)).out
    nothing = builder.add(math.Constant(0.0, type=scalar)).out
    gone = builder.add(math.Compare(op.x, below, relation="eq")).out
    power = builder.add(math.Exp2(builder.add(math.Sub(op.x, op.y)).out)).out
    return [builder.add(math.Where(gone, nothing, power)).out]


@tile_pass("lower-anchor", level="tile")
def lower_anchor(kernel: Kernel, ctx: Context) -> None:
    """Anchors follow the running maximum in every round."""
    first = next((op for op in kernel.body.walk() if isinstance(op, tile.Anchor)), None)
    if first is not None:
        ctx.remark(first, "the anchor is the running maximum, renewed in every round")
    ctx.rewrite(kernel.body, _anchor, _exp2_sub)
