"""What a call hands to a ``fn``: arguments meet parameters, generic ones get their values.

A parameter without a type takes anything. ``x: T`` takes a scalar or a tile of any axes with
elements ``T``; ``x: T[A, B]`` also names the axes. A compile-time parameter is written in brackets
or found from the arguments, those with an element type of their own first; only then its default
counts. Literals stay literals unless the parameter says an element type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from tilec.frontend import ast
from tilec.frontend.checked import Axis, Constant, Expr, ScalarType, TileType
from tilec.frontend.meet import axes_of, dtype_of, elements, fit_literal, is_weak, weak_const
from tilec.frontend.names import Binding, Function, Scope
from tilec.frontend.signature import KINDS, claim, convert_binding
from tilec.ir.types import DType
from tilec.source import Span

if TYPE_CHECKING:
    from tilec.frontend.statements import Checker

Known = dict[str, Constant | DType]


def fit_arguments(check: Checker, function: Function, node: ast.Call) -> Scope:
    """The scope of a function's body, with all its parameters bound."""
    fn = function.node
    given = _written(check, function, node)
    pairs = [(p, check.expression(a)) for p, a in _matched(check, function, node)]
    pairs = [(p, value if p.type is None else elements(check.report, value)) for p, value in pairs]
    for wanted in (False, True):  # literals come last
        for parameter, value in pairs:
            if parameter.type is not None and is_weak(value) == wanted:
                _infer(fn, parameter.type, value, given)
    scope = Scope(function.file)
    caller, check.scope = check.scope, scope
    try:
        for item in fn.comptime:
            _bind_comptime(check, item, given, node, fn)
        fitted = _fitted(check, fn, pairs)
    finally:
        check.scope = caller
    for parameter, value in fitted:
        held = check.hold(parameter.name.id, value, value.span)
        fixed = not isinstance(value.type, ScalarType | TileType)
        scope.bind(parameter.name.id, Binding(held, parameter.span, rebindable=not fixed))
    return scope


def usage(fn: ast.Function) -> str:
    """How a function is called."""
    brackets = f"[{', '.join(p.name.id for p in fn.comptime)}]" if fn.comptime else ""
    return f"{fn.name}{brackets}({', '.join(p.name.id for p in fn.parameters)})"


def _misuse(check: Checker, fn: ast.Function, span: Span, found: str) -> NoReturn:
    check.report.fail(
        "wrong-arguments",
        f"`{fn.name}` is called in another way",
        [(span, found), (fn.span, "defined here")],
        help=f"write `{usage(fn)}`",
    )


def _written(check: Checker, function: Function, node: ast.Call) -> Known:
    """The compile-time parameters that a call gives in brackets."""
    fn = function.node
    items = node.function.items if isinstance(node.function, ast.Subscript) else ()
    if len(items) > len(fn.comptime):
        _misuse(check, fn, items[len(fn.comptime)].span, "this is one too many")
    known: Known = {}
    for parameter, item in zip(fn.comptime, items, strict=False):
        kind = parameter.kind.id
        if kind == "dtype":
            known[parameter.name.id] = check.dtype(item, f"`{parameter.name.id}`")
            continue
        value = convert_binding(kind, check.constant(item, f"`{parameter.name.id}`"))
        if value is None:
            check.report.fail(
                "bad-parameter",
                f"`{item.span.text}` is no value for `{parameter.name.id}`",
                [(item.span, "given here"), (parameter.span, f"declared as {kind} here")],
            )
        known[parameter.name.id] = value
    return known


def _matched(
    check: Checker, function: Function, node: ast.Call
) -> list[tuple[ast.Parameter, ast.Expression]]:
    """Each parameter and its argument, by position and then by name."""
    fn = function.node
    if len(node.arguments) > len(fn.parameters):
        _misuse(check, fn, node.arguments[len(fn.parameters)].span, "this is one too many")
    found = {p.name.id: a for p, a in zip(fn.parameters, node.arguments, strict=False)}
    names = {p.name.id for p in fn.parameters}
    for key, value in node.keywords:
        if key not in names:
            _misuse(check, fn, value.span, f"there is no parameter `{key}`")
        if key in found:
            _misuse(check, fn, value.span, f"`{key}` is given twice")
        found[key] = value
    missing = [f"`{p.name.id}`" for p in fn.parameters if p.name.id not in found]
    if missing:
        _misuse(check, fn, node.span, f"{', '.join(missing)} is missing here")
    return [(p, found[p.name.id]) for p in fn.parameters]


def _infer(fn: ast.Function, kind: ast.TypeText, value: Expr, known: Known) -> None:
    """What an argument says about the generic parameters in its type."""
    kinds = {p.name.id: p.kind.id for p in fn.comptime}
    if kinds.get(kind.name.id) == "dtype":
        known.setdefault(kind.name.id, dtype_of(value))
    for dim, axis in zip(kind.dims or (), axes_of(value), strict=False):
        if isinstance(dim, ast.Name) and kinds.get(dim.id) == "int" and axis.origin == "static":
            known.setdefault(dim.id, int(axis.size))


def _bind_comptime(
    check: Checker,
    item: ast.ComptimeParameter,
    known: Mapping[str, Constant | DType],
    node: ast.Call,
    fn: ast.Function,
) -> None:
    kind, name = item.kind.id, item.name.id
    claim(check, item.name)
    if kind not in KINDS:
        check.report.fail(
            "bad-parameter",
            f"`{kind}` is no kind of compile-time parameter",
            [(item.kind.span, "declared here"), (node.span, "called here")],
            help=f"there are {', '.join(KINDS)}",
        )
    value: Constant | DType | None = known.get(name)
    if value is None and item.default is not None:
        if kind == "dtype":
            value = check.dtype(item.default, "this default")
        else:
            value = convert_binding(kind, check.constant(item.default, "a default"))
    if value is None:
        check.report.fail(
            "parameter-has-no-value",
            f"this call does not say what `{name}` is",
            [(node.span, "called here"), (item.span, "declared here")],
            help=f"write `{usage(fn)}`",
        )
    meaning = value if isinstance(value, DType) else weak_const(value, item.name.span)
    check.scope.bind(name, Binding(meaning, item.span, rebindable=False))


def _fitted(
    check: Checker, fn: ast.Function, pairs: list[tuple[ast.Parameter, Expr]]
) -> list[tuple[ast.Parameter, Expr]]:
    """The arguments as values of the parameters' types."""
    axes: dict[str, tuple[Axis, Span]] = {}
    taken: set[str] = set()
    fitted = []
    for parameter, value in pairs:
        claim(check, parameter.name)
        if parameter.name.id in taken or parameter.mode != "in":
            what = "is only read" if parameter.mode != "in" else "stands there twice"
            check.report.fail(
                "bad-parameter",
                f"`{parameter.name.id}`, a parameter of `{fn.name}`, {what}",
                [(parameter.span, "declared here"), (value.span, "given here")],
                help="a function gives its results by `return`",
            )
        taken.add(parameter.name.id)
        if parameter.type is not None:
            value = exact_value(check, value, parameter.type, f"`{parameter.name.id}`", axes)
        fitted.append((parameter, value))
    return fitted


def exact_value(
    check: Checker,
    value: Expr,
    kind: ast.TypeText,
    what: str,
    axes: dict[str, tuple[Axis, Span]] | None = None,
) -> Expr:
    """``value`` as the type that a function declares; only literals are converted."""
    dtype = check.dtype(kind.name, what)
    value = elements(check.report, value)
    if is_weak(value):
        value = fit_literal(check.report, value, dtype)
    if dtype_of(value) != dtype:
        check.report.fail(
            "element-types-differ",
            f"{what} holds {dtype}, the value is {dtype_of(value)}",
            [(value.span, f"this is {dtype_of(value)}"), (kind.span, f"this holds {dtype}")],
            help=f"convert it: `cast[{dtype}]({value.span.text})`",
        )
    if kind.dims is None:
        return value
    own = axes_of(value)
    if len(own) != len(kind.dims):
        check.report.fail(
            "wrong-rank",
            f"{what} has {len(kind.dims)} axes, the value has {len(own)}",
            [(value.span, f"this is {value.type}"), (kind.span, "declared here")],
            help=f"a type without brackets takes any axes: `{kind.name.id}`",
        )
    named = {} if axes is None else axes
    for dim, axis in zip(kind.dims, own, strict=True):
        _check_axis(check, value, dim, axis, named)
    return value


def _check_axis(
    check: Checker,
    value: Expr,
    dim: ast.Expression,
    axis: Axis,
    named: dict[str, tuple[Axis, Span]],
) -> None:
    """One axis against a number, or against the first axis of that name."""
    if isinstance(dim, ast.Name) and check.scope.find(dim.id) is None:
        first, where = named.setdefault(dim.id, (axis, value.span))
        if first != axis:
            check.report.fail(
                "axes-do-not-meet",
                f"`{dim.id}` is `{first}` and `{axis}` in one call",
                [(value.span, f"`{axis}` here"), (where, f"`{first}` here"),
                 (dim.span, "one name is one axis")],
            )  # fmt: skip
        return
    extent = check.integer(dim, "an extent")
    if axis != Axis.static(extent):
        check.report.fail(
            "axes-do-not-meet",
            f"an axis of {extent} elements is needed, this one is `{axis}`",
            [(value.span, f"this is {value.type}"), (dim.span, "asked for here")],
        )
