"""Updates of arrays in place: ``c[i, j] += x``, and ``atomic_max(y.at(p, drop), x)`` and its like.

The first argument of such a function is a place, as it would stand left of ``=`` or, where what was
there is asked for, right of it. An update is atomic: others see it whole or not at all, and their
order is free. What an expression updates happens before anything else that its line reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilec.frontend import ast
from tilec.frontend.builtins import BUILTINS, Call
from tilec.frontend.checked import (
    Apply,
    ArrayType,
    Atomic,
    Axis,
    Const,
    Expr,
    Let,
    Ref,
    ScalarType,
    Scatter,
    Statement,
    Store,
    TileType,
    Variable,
)
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import exactly
from tilec.frontend.nibbles import refuse_updates
from tilec.frontend.places import array_of, is_at, places_of, together
from tilec.frontend.subscripts import as_places, check_rank, has_places, selection
from tilec.source import Span

OPERATORS = {"+": "add", "-": "add", "&": "and", "|": "or", "^": "xor"}
"""Augmented assignments that memory knows, and what they do there."""
KINDS = {
    "atomic_add": "add",
    "atomic_max": "max",
    "atomic_min": "min",
    "atomic_and": "and",
    "atomic_or": "or",
    "atomic_xor": "xor",
    "atomic_exchange": "exchange",
    "atomic_compare_exchange": "compare",
}
"""Functions that update memory."""


@dataclass
class _Place:
    """A place in an array: its subscripts, the axes that they have, and what is outside."""

    array: Variable
    subscripts: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    span: Span
    computed: bool
    fill: ast.Expression | None = None
    drops: bool = False


def _place(check: Expressions, node: ast.Expression, usage: str) -> _Place:
    """What stands for a place: ``y[i, j]`` or ``y.at(p, drop)`` or ``y.at(p, fill=0)``."""
    if is_at(node):
        assert isinstance(node.function, ast.Attribute)
        array = array_of(check, node.function)
        items, keywords = node.arguments, dict(node.keywords)
        drops = bool(items) and isinstance(items[-1], ast.Name) and items[-1].id == "drop"
        if drops == bool(keywords) or keywords.keys() - {"fill"}:
            check.report.fail(
                "wrong-arguments",
                "an update at computed places says what becomes of those outside the array",
                [(node.span, "updated here")],
                help=f"write `{node.function.span.text}(..., drop)`, or `fill=0` in its place "
                "where what was there is asked for",
            )
        found = places_of(check, array, items[:-1] if drops else items)
        check_rank(check, array, len(found), node.span)
        axes, spread_out = together(check, found, node.span)
        return _Place(array, spread_out, axes, node.span, True, keywords.get("fill"), drops)
    if isinstance(node, ast.Subscript):
        base = check.expression(node.base)
        if isinstance(base, Ref) and isinstance(base.type, ArrayType):
            array = base.variable
            subscripts, axes = selection(check, array, node)
            if not has_places(subscripts):
                return _Place(array, subscripts, axes, node.span, False)
            axes, spread_out = together(check, subscripts, node.span)
            return _Place(array, spread_out, axes, node.span, True)
    check.report.fail(
        "wrong-arguments",
        "elements of an array are updated",
        [(node.span, "this is no place in an array")],
        help=f"write `{usage}`",
    )


def _allowed(check: Expressions, place: _Place, update: str, span: Span) -> None:
    """Refuse arrays and element types that cannot be updated so."""
    array = place.array
    assert isinstance(array.type, ArrayType)
    check.writable(array, span)
    check.readable(array, span)
    if not check.inside_parallel:
        check.outside(span, "an update of an array")
    refuse_updates(check.report, array, span)
    dtype = array.type.dtype
    bits = update in ("and", "or", "xor")
    if dtype.name == "bool" or (bits and not dtype.is_integer):
        check.report.fail(
            "wrong-element-type",
            f"elements of {dtype} are not updated by `{update}`",
            [(span, "updated here"), (array.span, f"`{array.name}` holds {dtype}")],
            help="`and`, `or` and `xor` combine integers" if bits else "use an array of s32",
        )


def _fitting(check: Expressions, place: _Place, node: ast.Expression) -> Expr:
    assert isinstance(place.array.type, ArrayType)
    value = check.value(node)
    dtype = place.array.type.dtype
    return exactly(check.report, value, dtype, place.axes, place.span, f"`{place.span.text}`")


def _statement(place: _Place, update: str, value: Expr, span: Span) -> Statement:
    made = Scatter if place.computed else Store
    return made(span, place.array, place.subscripts, value, update)


def augmented(check: Expressions, node: ast.Augmented) -> None:
    """``c[i, j] += x`` on elements of an array."""
    update = OPERATORS.get(node.op)
    place = _place(check, node.target, "c[i, j] += x")
    if update is None:
        check.report.fail(
            "not-assignable",
            f"memory is not updated by `{node.op}=`",
            [(node.span, "updated here")],
            notes=[
                "`+=`, `-=`, `&=`, `|=` and `^=` are atomic, and so are `atomic_max` and others"
            ],
            help=f"read, compute and store: `{node.target.span.text} = ...`",
        )
    if place.fill is not None:
        check.report.fail(
            "wrong-arguments",
            "this update gives no value",
            [(place.fill.span, "nothing takes this")],
            help="write `drop` in its place",
        )
    _allowed(check, place, update, node.span)
    value = _fitting(check, place, node.value)
    if node.op == "-":
        value = Apply(value.type, value.span, "neg", (value,))
    check.block.append(_statement(place, update, value, node.span))


def _usage(name: str) -> str:
    expected = "expected, " if name == "atomic_compare_exchange" else ""
    return f"{name}(y.at(p, drop), {expected}value)"


def _arguments(check: Expressions, name: str, span: Span, given: Sequence[ast.Expression]) -> None:
    wanted = 3 if name == "atomic_compare_exchange" else 2
    if len(given) != wanted:
        check.report.fail(
            "wrong-arguments",
            f"`{name}` is called in another way",
            [(span, "called here")],
            help=f"write `{_usage(name)}`",
        )


def is_update(node: ast.Expression) -> bool:
    """Whether this is a call of a function that updates memory."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.function, ast.Name)
        and node.function.id in KINDS
    )


def statement(check: Expressions, node: ast.Call) -> None:
    """A call on a line of its own: what was there is not asked for."""
    assert isinstance(node.function, ast.Name)
    name = node.function.id
    _arguments(check, name, node.span, node.arguments)
    if node.keywords:
        _arguments(check, name, node.span, ())
    update = KINDS[name]
    place = _place(check, node.arguments[0], _usage(name))
    _allowed(check, place, update, node.span)
    if update in ("exchange", "compare"):
        check.block.append(_held(check, place, update, node.arguments[1:], node.span))
        return
    value = _fitting(check, place, node.arguments[1])
    check.block.append(_statement(place, update, value, node.span))


def _held(
    check: Expressions,
    place: _Place,
    update: str,
    values: Sequence[ast.Expression],
    span: Span,
) -> Let:
    """An update whose result has a name of its own."""
    assert isinstance(place.array.type, ArrayType)
    dtype = place.array.type.dtype
    places = place.subscripts
    axes = place.axes
    if not place.computed:
        axes, places = together(check, [as_places(check, place.array, s) for s in places], span)
    if place.fill is None:
        fill: Expr = Const(ScalarType(dtype), span, 0.0 if dtype.is_float else 0)
    else:
        fill = check.value(place.fill)
        fill = exactly(check.report, fill, dtype, (), place.array.span, f"`{place.array.name}`")
    kind = TileType(dtype, axes) if axes else ScalarType(dtype)
    given = [_fitting(check, place, v) for v in values]
    expected = given[0] if update == "compare" else None
    made = Atomic(kind, span, place.array, places, expected, given[-1], fill, update)
    return Let(span, Variable("old", kind, span), made)


def _value(call: Call) -> Expr:
    """``atomic_add(y[i, j], x)`` and its like: what was there before the update."""
    check = call.check
    _arguments(check, call.name, call.span, () if call.keywords else call.arguments)
    update = KINDS[call.name]
    place = _place(check, call.arguments[0], _usage(call.name))
    _allowed(check, place, update, call.span)
    if place.drops:
        check.report.fail(
            "wrong-arguments",
            "what was there is asked for, so outside the array there is something too",
            [(place.span, "this drops what lies outside")],
            help="write `fill=0` in place of `drop`",
        )
    let = _held(check, place, update, call.arguments[1:], call.span)
    check.block.append(let)
    return Ref(let.variable.type, call.span, let.variable)


for _name in KINDS:
    BUILTINS[_name] = _value
