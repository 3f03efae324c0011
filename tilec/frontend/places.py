"""Places that are computed while running: ``x.at(...)``, and workspace that a kernel asks for.

Each subscript names a place along its axis: an index, ``:``, a number, or a tile of ``s32``. Axes
that carry the same index run together, so ``x.at(i, label[i])`` is one element a row; all others
are new axes of the result, in the order of the subscripts. Outside the array a read gives its fill
and a store with ``drop`` writes nothing; negative places are outside, never counted from the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from tilec.frontend import ast
from tilec.frontend.checked import (
    ArrayType,
    Axis,
    Const,
    Expand,
    Expr,
    Fill,
    Gathered,
    Ref,
    ScalarType,
    Scatter,
    TileType,
    Variable,
)
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import axes_of, exactly, spread
from tilec.frontend.nibbles import refuse_places
from tilec.frontend.subscripts import as_places, check_rank, whole_axis
from tilec.ir.types import S32
from tilec.source import Span


def array_of(check: Expressions, node: ast.Attribute) -> Variable:
    """The array whose ``.at`` is used."""
    base = check.expression(node.base)
    if not isinstance(base, Ref) or not isinstance(base.type, ArrayType):
        check.report.fail(
            "not-a-function",
            "`.at(...)` names places of an array",
            [(node.span, f"this is {base.type}")],
        )
    if not check.inside_parallel:
        check.outside(node.span, "an element of an array")
    return base.variable


def is_at(node: ast.Expression) -> TypeGuard[ast.Call]:
    """Whether this is ``x.at(...)``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.function, ast.Attribute)
        and node.function.name == "at"
    )


def read_at(check: Expressions, node: ast.Call, place: ast.Attribute) -> Expr:
    """``x.at(i - 1, :, fill=0)``: elements at computed places, ``fill`` outside the array."""
    array = array_of(check, place)
    assert isinstance(array.type, ArrayType)
    keywords = dict(node.keywords)
    if keywords.keys() != {"fill"}:
        check.report.fail(
            "wrong-arguments",
            "a read at computed places says what it gives outside the array",
            [(node.span, "called here")],
            help=f"write `{place.span.text}(..., fill=0)`",
        )
    check.readable(array, node.span)
    fill = check.value(keywords["fill"])
    fill = exactly(check.report, fill, array.type.dtype, (), array.span, f"`{array.name}`")
    places = places_of(check, array, node.arguments)
    check_rank(check, array, len(places), node.span)
    return gathered(check, array, places, fill, node.span)


def write_at(check: Expressions, node: ast.Call, value: Expr, span: Span) -> Scatter:
    """``y.at(i - 1, drop) = value``: elements at computed places, those outside dropped."""
    assert isinstance(node.function, ast.Attribute)
    array = array_of(check, node.function)
    *items, last = node.arguments or (None,)
    if node.keywords or not isinstance(last, ast.Name) or last.id != "drop":
        check.report.fail(
            "wrong-arguments",
            "a store at computed places says what becomes of those outside the array",
            [(node.span, "stored here")],
            help=f"write `{node.function.span.text}(..., drop) = ...`",
        )
    check.writable(array, span)
    found = places_of(check, array, [item for item in items if item is not None])
    check_rank(check, array, len(found), node.span)
    return scattered(check, array, found, value, node.span, span)


def gathered(
    check: Expressions,
    array: Variable,
    places: Sequence[Expr],
    fill: Expr | None,
    span: Span,
) -> Gathered:
    """A read of the elements at these places."""
    assert isinstance(array.type, ArrayType)
    refuse_places(check.report, array, span)
    dtype = array.type.dtype
    axes, spread_out = together(check, places, span)
    if fill is None:
        fill = Const(ScalarType(dtype), span, 0.0 if dtype.is_float else 0)
    kind = TileType(dtype, axes) if axes else ScalarType(dtype)
    return Gathered(kind, span, array, spread_out, fill)


def scattered(
    check: Expressions,
    array: Variable,
    places: Sequence[Expr],
    value: Expr,
    target: Span,
    span: Span,
) -> Scatter:
    """A store of the elements at these places."""
    assert isinstance(array.type, ArrayType)
    refuse_places(check.report, array, span)
    axes, spread_out = together(check, places, span)
    dtype = array.type.dtype
    value = exactly(check.report, value, dtype, axes, target, f"`{target.text}`")
    return Scatter(span, array, spread_out, value)


def places_of(check: Expressions, array: Variable, items: Sequence[ast.Expression]) -> list[Expr]:
    """Each subscript as the places that it names along its axis."""
    return [_place(check, array, n, item) for n, item in enumerate(items)]


def _place(check: Expressions, array: Variable, axis: int, item: ast.Expression) -> Expr:
    """One subscript as the places that it names along its axis."""
    assert isinstance(array.type, ArrayType)
    if isinstance(item, ast.Slice):
        if axis >= len(array.type.dims):
            check_rank(check, array, axis + 1, item.span)
        found: Expr = whole_axis(check, array, axis, item)
    else:
        found = check.expression(item)
    return as_places(check, array, found)


def together(
    check: Expressions, places: Sequence[Expr], span: Span
) -> tuple[tuple[Axis, ...], tuple[Expr, ...]]:
    """The axes that the places have together, and each place along all of them."""
    axes: list[Axis] = []
    for place in places:
        for axis in axes_of(place):
            if axis.origin == "static" or axis not in axes:
                axes.append(axis)
    result: list[Expr] = []
    first = 0
    for place in places:
        own = axes_of(place)
        if not own:
            result.append(Fill(TileType(S32, tuple(axes)), place.span, place) if axes else place)
            continue
        start = first if own[0].origin == "static" else 0
        where = [axes.index(axis, start) for axis in own]
        if own[0].origin == "static":
            first = where[-1] + 1
        if where != sorted(where):
            check.report.not_yet(
                "a place whose axes stand in another order", span, "transpose it: `.T`"
            )
        for at in range(len(axes)):
            if at not in where:
                grown = (*axes_of(place)[:at], Axis.static(1), *axes_of(place)[at:])
                place = Expand(TileType(S32, grown), place.span, place, at)
        result.append(spread(place, tuple(axes)))
    return tuple(axes), tuple(result)
