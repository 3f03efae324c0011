"""Products of tiles: ``a @ b``, and ``dot(a, b, precision=tf32)`` where less will do.

The element types decide what is summed in (``ir.products``); nothing is converted silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.frontend.builtins import Call, builtin
from tilec.frontend.checked import Expr, Product, TileType
from tilec.frontend.meet import axes_of, dtype_of
from tilec.frontend.strict import refuse_loose
from tilec.ir.products import legal_pairs, partners, product_type
from tilec.ir.types import F32, DType
from tilec.source import Span

if TYPE_CHECKING:
    from tilec.frontend.expressions import Expressions

_DOT = "dot(a, b)` or `dot(a, b, precision=tf32)"


def product(check: Expressions, left: Expr, right: Expr, span: Span, precision: str = "") -> Expr:
    """``left @ right``, summed in the type that its operands ask for."""
    for side in (left, right):
        if len(axes_of(side)) != 2:
            check.report.fail(
                "product-needs-matrices",
                "`@` multiplies two tiles with two axes each",
                [(side.span, f"this is {side.type}")],
                help="insert an axis of 1: "
                + (
                    f"`{side.span.text}[None, :]`"
                    if side is left
                    else f"`{side.span.text}[:, None]`"
                )
                if len(axes_of(side)) == 1
                else "`*` multiplies elementwise",
            )
    result = _result(check, left, right)
    if result.is_float:
        refuse_loose(check, "`@`", span, "multiply and sum: `rowsum(x * y)`")
    rows, inner = axes_of(left)
    other, columns = axes_of(right)
    if inner != other:
        swapped = columns == inner
        check.report.fail(
            "axes-do-not-meet",
            f"`@` sums over `{inner}` on the left and `{other}` on the right",
            [
                (left.span, f"axes [{rows}, {inner}]"),
                (right.span, f"axes [{other}, {columns}]"),
            ],
            notes=["the last axis of the left side is summed with the first of the right side"],
            help=f"transpose the right side: `{right.span.text}.T`" if swapped else "",
        )
    check.along(inner, span, "`@`")
    return Product(TileType(result, (rows, columns)), span, left, right, None, precision)


def _result(check: Expressions, left: Expr, right: Expr) -> DType:
    """What products of two element types are summed in."""
    types = dtype_of(left), dtype_of(right)
    found = product_type(*types)
    if found is not None:
        return found
    places = [
        (side.span, f"this is {dtype}") for side, dtype in zip((left, right), types, strict=True)
    ]
    alone = [dtype for dtype in types if not partners(dtype)]
    if alone:
        check.report.fail(
            "wrong-element-type",
            f"`@` does not multiply {alone[0]}",
            places,
            notes=[legal_pairs()],
            help="convert both sides, to `bf16`, `s8` or `f32`",
        )
    check.report.fail(
        "element-types-differ",
        f"{types[0]} and {types[1]} do not meet in a product",
        places,
        notes=[legal_pairs()],
        help=f"convert one: `cast[{types[0]}]({right.span.text})`",
    )


@builtin
def dot(call: Call) -> Expr:
    """``dot(a, b, precision=tf32)``: a @ b, where 11 bits of each f32 operand are enough."""
    if len(call.arguments) != 2 or call.brackets or call.keywords.keys() - {"precision"}:
        call.fail_usage(_DOT)
    left, right = (call.check.value(a) for a in call.arguments)
    precision = ""
    if "precision" in call.keywords:
        asked = call.check.dtype(call.keywords["precision"], "`precision`")
        if asked.name not in ("tf32", "f32"):
            call.fail_usage(_DOT)
        precision = "tf32" if asked.name == "tf32" else ""
        for side in (left, right):
            if dtype_of(side) != F32:
                call.check.report.fail(
                    "wrong-element-type",
                    f"`precision` is for products of f32, not of {dtype_of(side)}",
                    [(side.span, f"this is {dtype_of(side)}")],
                    help="leave it out: other products are as precise as their elements",
                )
    return product(call.check, left, right, call.span, precision)
