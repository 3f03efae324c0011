"""How far an anchor may lie below its row's maximum, by what the row's weights are cast to.

Weights are at most 2 to the power of the slack. In f32 and bf16 the widest leaves room for any
sum; the largest e4m3 is 448, the largest f16 65504, and a sum of weights may be narrow too. Without
a word of the author the slack is what the weights bear; a slack that they do not bear is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.diagnostics import Diagnostic, DiagnosticError
from tilec.ir.core import Kernel, Op, Value
from tilec.ir.levels import math, tile
from tilec.ir.rewrite import uses
from tilec.source import Span

WIDEST = 64.0
"""Weights up to 2 to this power can be summed in f32: sums of 2^60 of them are finite."""
NARROW = 8.0
_NARROW_TYPES = frozenset({"f16", "e4m3", "e5m2"})


def settle_slack(kernel: Kernel, stated: Mapping[Op, tuple[float, Span]]) -> None:
    """Give each anchor its slack: the one stated for it, or the widest that its weights bear."""
    users = uses(kernel.body)
    for op in kernel.body.walk():
        if not isinstance(op, tile.Anchor):
            continue
        narrow = _narrow_weights(op, users)
        most = WIDEST if narrow is None else NARROW
        op.slack, span = stated.get(op, (most, None))
        if op.slack > most and narrow is not None and span is not None:
            raise DiagnosticError(
                Diagnostic(
                    "slack-too-wide",
                    f"weights that are cast to {narrow} bear a slack of at most {most:g}",
                    [(span, f"this is {op.slack:g}")],
                    notes=["weights may be as large as 2 to the power of the slack"],
                    help=f"leave it away, or write `slack={most:g}`",
                )
            )


def _narrow_weights(op: tile.Anchor, users: Mapping[Value[Any], list[Op]]) -> str | None:
    """A narrow type that weights measured from an anchor are cast to, if there is one."""
    todo: list[tuple[Value[Any], bool]] = [(op.out, False)]
    seen: set[Value[Any]] = set()
    while todo:
        value, is_weight = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        for user in users.get(value, []):
            if isinstance(user, tile.Exp2Sub):
                if value is user.y and user.x.type == op.s.type:
                    todo.append((user.out, True))
            elif isinstance(user, math.Sub) and value is user.y and op.s.type.dtype.name == "f64":
                todo.append((user.out, True))  # of f64 exp2sub is written out: it begins so
            elif isinstance(user, math.Expand | math.Broadcast | tile.Transpose):
                todo.append((user.out, is_weight))
            elif is_weight and isinstance(user, math.Cast) and user.dtype.name in _NARROW_TYPES:
                return user.dtype.name
            elif is_weight and isinstance(user, math.Elementwise | math.Cast):
                todo.append((user.results[0], True))
    return None
