"""``assert condition, "text"`` and ``print("text", x)``: asked of a run, not of its result."""

from __future__ import annotations

from tilec.frontend import ast
from tilec.frontend.checked import (
    Assertion,
    Axis,
    Expr,
    IndexType,
    Printed,
    Ref,
    WholeAxis,
)
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import axes_of, settle
from tilec.source import Span


def is_print(call: ast.Call) -> bool:
    """Whether a call is of ``print``."""
    return isinstance(call.function, ast.Name) and call.function.id == "print"


def assertion(check: Expressions, node: ast.Assert) -> None:
    """``assert``: of a condition, or of one for each element."""
    if not check.inside_parallel:
        check.outside(node.span, "an `assert`")
    condition = check.value(node.condition)
    check.need(condition, "bool", "`assert`")
    indices = _indices_of(check, condition, node.span)
    check.block.append(Assertion(node.span, condition, node.text, indices))


def printed(check: Expressions, call: ast.Call) -> None:
    """``print``: texts and values in turn; a text stands before the value that follows it."""
    if not check.inside_parallel:
        check.outside(call.span, "a `print`")
    text: str | None = None
    count = 0
    for item in call.arguments:
        if isinstance(item, ast.Literal) and isinstance(item.value, str):
            text = item.value if text is None else f"{text} {item.value}"
            continue
        value = settle(check.report, check.value(item))
        indices = _indices_of(check, value, call.span)
        label = item.span.text if text is None else text
        check.block.append(Printed(call.span, label, value, indices))
        text, count = None, count + 1
    if text is not None or not count or call.keywords:
        check.report.fail(
            "wrong-arguments",
            "`print` shows values, each with the text before it",
            [(call.span, "no value follows the last text" if count else "no value is given")],
            help='write `print("x is", x)`',
        )


def _indices_of(check: Expressions, value: Expr, span: Span) -> list[tuple[int, Expr]]:
    """Axes of a value that carry an index, and which."""
    return [
        (number, index)
        for number, axis in enumerate(axes_of(value))
        if (index := _index_of(check, axis, span)) is not None
    ]


def _index_of(check: Expressions, axis: Axis, span: Span) -> Expr | None:
    """The index that an axis carries; None for one of known extent."""
    if axis.origin == "static":
        return None
    if axis.origin == "whole":
        array, place = check.dims[str(axis.extent)]
        return WholeAxis(IndexType(axis), span, array, place)
    variable = check.indices[axis.origin]
    return Ref(variable.type, span, variable)
