"""``x ** n``: a power by a whole number is written as the products that it stands for.

The law is that of repeated squaring: x ** (2 n) = (x ** n) ** 2, and one factor more where the
exponent is odd; x ** -n = 1 / x ** n for floats. The base is computed once. Narrow floats are
multiplied in f32 and rounded once at the end, as all functions are. Other exponents are no
products: the message names the function that takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tilec.frontend.checked import Apply, Const, Expr, Fill, ScalarType, TileType
from tilec.frontend.meet import axes_of, cast_to, dtype_of, is_literal, settle
from tilec.ir.types import F32, DType
from tilec.source import Span

if TYPE_CHECKING:
    from tilec.frontend.expressions import Expressions

MOST = 64
"""The largest exponent; a longer chain of products is no small thing to write as one sign."""


def power(check: Expressions, base: Expr, exponent: Expr, span: Span) -> Expr:
    """``base ** exponent``, whose exponent is a literal."""
    base = settle(check.report, base)
    check.need(base, "number", "`**`")
    dtype = dtype_of(base)
    value = exponent.value if is_literal(exponent) else None
    least = -MOST if dtype.is_float else 0
    if not isinstance(value, int) or not least <= value <= MOST:
        _refuse(check, base, exponent, value)
    wide = F32 if dtype.is_float and dtype.bits < 32 else dtype
    x = check.let("", cast_to(check.report, base, wide))
    result = _chain(check, x, abs(value), span)
    if value < 0:
        result = Apply(x.type, span, "div", (_one(x, wide, span), result))
    return cast_to(check.report, result, dtype)


def _refuse(check: Expressions, base: Expr, exponent: Expr, value: object) -> NoReturn:
    if value == 0.5:
        helps = f"write `sqrt({base.span.text})`"
    elif isinstance(base, Const) and base.value == 2 and dtype_of(exponent).is_float:
        helps = f"write `exp2({exponent.span.text})`"
    elif dtype_of(base).is_float:
        helps = f"`from std.math import pow`, then `pow({base.span.text}, {exponent.span.text})`"
    else:
        helps = "cast to f32 and take `pow` from std.math, or multiply in a loop"
    check.report.fail(
        "no-such-power",
        f"`**` takes a whole number from {-MOST if dtype_of(base).is_float else 0} to {MOST}",
        [(exponent.span, "this is another exponent")],
        help=helps,
    )


def _chain(check: Expressions, x: Expr, exponent: int, span: Span) -> Expr:
    """The product of ``exponent`` factors x, by squaring."""
    if exponent == 0:
        return _one(x, dtype_of(x), span)
    if exponent == 1:
        return x
    half = _chain(check, x, exponent // 2, span)
    if half is not x:
        half = check.let("", half)
    strict = check.strict is not None and dtype_of(x).is_float
    square: Expr = Apply(x.type, span, "mul", (half, half), strict)
    return Apply(x.type, span, "mul", (square, x), strict) if exponent % 2 else square


def _one(x: Expr, dtype: DType, span: Span) -> Expr:
    one = Const(ScalarType(dtype), span, 1.0 if dtype.is_float else 1)
    return Fill(TileType(dtype, axes_of(x)), span, one) if axes_of(x) else one
