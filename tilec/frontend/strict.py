"""What ``strict:`` refuses: whatever is not the same to the last bit in every executor.

Inside, sums and products of floats are combined in one order (``math.reduce``), and nothing is
contracted. Approximate functions, products of matrices and scans have no such order or last bit,
and are refused with what to write instead. How long an axis is must be the program's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.frontend.checked import Axis, Cast, Expr
from tilec.frontend.meet import axes_of, dtype_of
from tilec.source import Span

if TYPE_CHECKING:
    from tilec.frontend.expressions import Expressions

_IN_STD = ("exp", "tanh")
"""Functions of ``std.math`` that are built from what is exact."""
_INSTEAD = {"rsqrt": "write `1 / sqrt(x)`"}


def refuse_loose(check: Expressions, what: str, span: Span, help: str) -> None:
    """Refuse inside ``strict:`` what has no fixed last bit."""
    if check.strict is not None:
        check.report.fail(
            "not-strict",
            f"{what} is not fixed to the last bit",
            [(span, "used here"), (check.strict, "this block asks for that")],
            help=help,
        )


def refuse_approximate(check: Expressions, name: str, operand: Expr, span: Span) -> None:
    """Refuse an approximate function; 2 to an integer power is exact and may stay."""
    if name == "exp2" and isinstance(operand, Cast) and dtype_of(operand.operand).is_integer:
        return
    if name in _IN_STD:
        help = f"take the one that is made of exact steps: `from std.math import {name}`"
    else:
        help = _INSTEAD.get(name, "move it out of the block")
    refuse_loose(check, f"`{name}`", span, help)


def refuse_chosen_axis(check: Expressions, operand: Expr, axis: Axis, span: Span) -> None:
    """Refuse a sum along tiles whose size the compiler chooses: it says which terms meet."""
    loop = check.chosen.get(axis.origin)
    if check.strict is None or loop is None or not dtype_of(operand).is_float:
        return
    if axis.origin in check.parts:  # refused already, with more reason
        return
    check.report.fail(
        "not-strict",
        f"the order of this sum depends on how long the tiles of `{axis}` are",
        [
            (span, f"along `{axis}`"),
            (loop, "the compiler chooses their size"),
            (check.strict, "this block asks for one order"),
        ],
        help=f"pin the size: `tiles({axis.extent}, 128)`",
    )


def is_ordered(check: Expressions, operand: Expr, kind: str) -> bool:
    """Whether a reduction must keep the order: sums and products of floats do inside."""
    return (
        check.strict is not None
        and kind in ("add", "mul")
        and dtype_of(operand).is_float
        and bool(axes_of(operand))
    )
