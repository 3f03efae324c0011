"""How values meet: literals take an element type, tiles are spread to common axes.

Every function returns expressions in which the conversion is a node. Element types never change
silently: only literals adapt. Axes meet by position when they are the same or one is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_letters, digits
from typing import TypeGuard

from tilec.diagnostics import Label
from tilec.frontend.checked import (
    Axis,
    Broadcast,
    Cast,
    Const,
    Constant,
    Expand,
    Expr,
    Fill,
    IndexType,
    Indices,
    ScalarType,
    TileType,
)
from tilec.frontend.fold import fits, largest, shown
from tilec.frontend.report import Report
from tilec.ir.types import BOOL, F32, S32, DType
from tilec.source import Span


def weak_const(value: Constant, span: Span) -> Const:
    """A literal: integers and floats are weak, bools are bools."""
    if isinstance(value, bool):
        return Const(ScalarType(BOOL), span, value)
    return Const(ScalarType(F32 if isinstance(value, float) else S32, weak=True), span, value)


def is_weak(expr: Expr) -> bool:
    """Whether an expression is a literal without an element type of its own."""
    return isinstance(expr.type, ScalarType) and expr.type.weak


def is_literal(expr: Expr) -> TypeGuard[Const]:
    """Whether an expression is a weak number known now."""
    return isinstance(expr, Const) and is_weak(expr)


def elements(report: Report, expr: Expr) -> Expr:
    """An expression as something to compute on: an index becomes its s32 values."""
    if isinstance(expr.type, ScalarType | TileType):
        return expr
    if isinstance(expr.type, IndexType):
        return Indices(TileType(S32, (expr.type.axis,)), expr.span, expr)
    report.fail(
        "array-without-subscript",
        "an array is computed on through subscripts",
        [(expr.span, f"this is the whole array, {expr.type}")],
        help=f"say which part: `{expr.span.text}[i, :]`",
    )


def dtype_of(expr: Expr) -> DType:
    """The element type."""
    assert isinstance(expr.type, ScalarType | TileType)
    return expr.type.dtype


def axes_of(expr: Expr) -> tuple[Axis, ...]:
    """The axes; a scalar has none."""
    return expr.type.axes if isinstance(expr.type, TileType) else ()


def with_dtype(expr: Expr, dtype: DType) -> ScalarType | TileType:
    """The type of ``expr`` with other elements."""
    assert isinstance(expr.type, ScalarType | TileType)
    if isinstance(expr.type, ScalarType):
        return ScalarType(dtype)
    return replace(expr.type, dtype=dtype)


def settle(report: Report, expr: Expr) -> Expr:
    """A literal with the element type that it has on its own: s32 or f32."""
    return fit_literal(report, expr, dtype_of(expr)) if is_weak(expr) else expr


def fit_literal(report: Report, expr: Expr, dtype: DType) -> Const:
    """A literal with element type ``dtype``."""
    assert isinstance(expr, Const)
    value = expr.value
    if dtype.is_float and fits(value, dtype):
        return Const(ScalarType(dtype), expr.span, float(value))
    if dtype.is_float:
        written = (
            "; `inf` is written as a word" if dtype.name != "e4m3" else ", and it has no infinity"
        )
        reason = f"the largest {dtype} is {largest(dtype):.8g}{written}"
    elif isinstance(value, int) and dtype.is_integer:
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
        high = low + (1 << dtype.bits) - 1
        if low <= value <= high:
            return Const(ScalarType(dtype), expr.span, value)
        reason = f"{dtype} holds {low} to {high}"
    else:
        reason = f"{dtype} holds no {'fractions' if dtype.is_integer else 'numbers'}"
    report.fail(
        "literal-does-not-fit",
        f"{shown(value)} cannot be {dtype}",
        [(expr.span, f"it meets {dtype} values")],
        notes=[reason],
        help=_fitting(dtype, value),
    )


def _fitting(dtype: DType, value: object) -> str:
    """What to write where a literal does not fit."""
    if dtype.is_integer and isinstance(value, int) and not isinstance(value, bool):
        low = -(1 << (dtype.bits - 1)) if dtype.kind == "signed" else 0
        high = low + (1 << dtype.bits) - 1
        return f"the nearest is {min(max(value, low), high)}; or convert the other side with `cast`"
    return "convert the other side, as in `cast[f32](x)`"


def cast_to(report: Report, expr: Expr, dtype: DType) -> Expr:
    """An explicit conversion."""
    if is_weak(expr) and isinstance(expr, Const):
        if dtype.is_integer and isinstance(expr.value, float):
            expr = settle(report, expr)
        else:
            return fit_literal(report, expr, dtype)
    if dtype_of(expr) == dtype:
        return expr
    return Cast(with_dtype(expr, dtype), expr.span, expr)


def same_dtype(report: Report, exprs: Sequence[Expr]) -> list[Expr]:
    """Operands of one element type; literals adapt, all else must agree."""
    strong = [e for e in exprs if not is_weak(e)]
    if not strong:
        widest = F32 if any(dtype_of(e).is_float for e in exprs) else S32
        return [fit_literal(report, e, widest) for e in exprs]
    dtype = dtype_of(strong[0])
    for other in strong[1:]:
        if dtype_of(other) != dtype:
            narrow = min(strong[0], other, key=lambda e: dtype_of(e).bits)
            wide = other if narrow is strong[0] else strong[0]
            report.fail(
                "element-types-differ",
                f"{dtype} and {dtype_of(other)} do not meet",
                [(strong[0].span, f"this is {dtype}"), (other.span, f"this is {dtype_of(other)}")],
                notes=["only literals take the element type of the other side"],
                help=f"convert one: `cast[{dtype_of(wide)}]({narrow.span.text})`",
            )
    return [fit_literal(report, e, dtype) if is_weak(e) else e for e in exprs]


def same_axes(report: Report, exprs: Sequence[Expr]) -> list[Expr]:
    """Tiles spread to their common axes; scalars stay as they are."""
    rank = max(len(axes_of(e)) for e in exprs)
    common: list[Axis] = [Axis.static(1)] * rank
    source: list[Expr | None] = [None] * rank
    for expr in exprs:
        axes = axes_of(expr)
        for place, axis in enumerate(axes, rank - len(axes)):
            known = source[place]
            if axis == common[place] or axis.is_one:
                source[place] = known or expr
            elif common[place].is_one:
                common[place], source[place] = axis, expr
            else:
                assert known is not None
                _axes_differ(report, known, common[place], expr, axis)
    return [spread(e, tuple(common)) for e in exprs]


def spread(expr: Expr, axes: tuple[Axis, ...]) -> Expr:
    """``expr``, which meets ``axes``, with exactly these axes; scalars stay."""
    if not isinstance(expr.type, TileType):
        return expr
    while len(axes_of(expr)) < len(axes):
        kind = TileType(dtype_of(expr), (Axis.static(1), *axes_of(expr)))
        expr = Expand(kind, expr.span, expr, 0)
    if axes_of(expr) != axes:
        expr = Broadcast(TileType(dtype_of(expr), axes), expr.span, expr)
    return expr


def exactly(
    report: Report, expr: Expr, dtype: DType, axes: tuple[Axis, ...], wanted: Span, what: str
) -> Expr:
    """``expr`` as a value of this very type, as a store or a carried name needs it."""
    if is_weak(expr):
        expr = fit_literal(report, expr, dtype)
    if dtype_of(expr) != dtype:
        report.fail(
            "element-types-differ",
            f"{what} holds {dtype}, the value is {dtype_of(expr)}",
            [(expr.span, f"this is {dtype_of(expr)}"), (wanted, f"this holds {dtype}")],
            help=f"convert it: `cast[{dtype}]({expr.span.text})`",
        )
    own = axes_of(expr)
    if not own:
        return Fill(TileType(dtype, axes), expr.span, expr) if axes else expr
    fits = len(own) <= len(axes) and all(
        a == b or a.is_one for a, b in zip(own, axes[len(axes) - len(own) :], strict=True)
    )
    if not fits:
        report.fail(
            "axes-do-not-meet",
            f"{what} has axes [{_list(axes)}], the value has [{_list(own)}]",
            [(expr.span, f"axes [{_list(own)}]"), (wanted, f"axes [{_list(axes)}]")],
            help=_insertion_help(expr, own, axes) or _transposed(expr, own, axes),
        )
    return spread(expr, axes)


def _list(axes: Sequence[Axis]) -> str:
    return ", ".join(map(str, axes))


def _axes_differ(report: Report, left: Expr, a: Axis, right: Expr, b: Axis) -> None:
    labels: list[Label] = [
        (left.span, f"axes [{_list(axes_of(left))}]"),
        (right.span, f"axes [{_list(axes_of(right))}]"),
    ]
    for axis in (a, b):
        if axis.span is not None:
            labels.append((axis.span, f"`{axis}` comes from this loop"))
    notes = [f"`{a}` stands where `{b}` does, counting from the right"]
    if a.origin != "static" and b.origin != "static" and a.extent == b.extent:
        notes.append("two loops may hold different parts of one dimension, so they never meet")
    short, long = sorted((left, right), key=lambda e: len(axes_of(e)))
    report.fail(
        "axes-do-not-meet",
        f"axes `{a}` and `{b}` do not meet",
        labels,
        notes,
        _insertion_help(short, axes_of(short), axes_of(long)) or _same_part(a, b),
    )


def _same_part(a: Axis, b: Axis) -> str:
    """How two axes that differ could be one."""
    if isinstance(a.extent, int) and isinstance(b.extent, int):
        return f"take parts of one extent, as in `x[:, :{min(a.extent, b.extent)}]`"
    if a.extent == b.extent:
        return "select both with one index, or both with `:`"
    return "loop over one dimension for both, or sum one of the axes away"


def _insertion_help(expr: Expr, own: Sequence[Axis], wanted: Sequence[Axis]) -> str:
    """The subscript that would make a shorter value meet, if one does."""
    if len(own) != 1 or len(wanted) != 2:
        return ""
    if own[0] == wanted[0]:
        return f"stand it upright: `{_operand_text(expr)}[:, None]`"
    return ""


def _transposed(expr: Expr, own: Sequence[Axis], wanted: Sequence[Axis]) -> str:
    if len(own) != 2 or list(own) != list(reversed(wanted)):
        return "give the value the axes of the place, or store it elsewhere"
    text = expr.span.text
    if text.endswith(".T"):
        return f"leave `.T` away: `{text.removesuffix('.T')}`"
    return f"transpose it: `{_operand_text(expr)}.T`"


def _operand_text(expr: Expr) -> str:
    text = expr.span.text
    return text if _is_one_operand(text) else f"({text})"


def _is_one_operand(text: str) -> bool:
    """Whether a text is a name, possibly with brackets that close at its very end."""
    rest = text.lstrip("_" + ascii_letters + digits)
    depth = 0
    for place, char in enumerate(rest):
        depth += (char in "([") - (char in ")]")
        if depth == 0 and place < len(rest) - 1 and rest[place + 1] not in "([":
            return False
    return depth == 0
