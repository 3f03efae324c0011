"""``reduce`` and ``scan``: elements combined along an axis by a function of the program.

``reduce(merge, x, axis=1, identity=0)`` calls ``merge`` on pairs of scalars, as often and in what
grouping the compiler likes: the author promises that it is associative and that the identity
changes nothing. Several tiles are combined as tuples: ``merge`` then takes one tuple after the
other, and returns one. Its body is checked once, on scalars, and goes into the kernel as a region.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.frontend import ast
from tilec.frontend.builtins import SEVERAL, Call, builtin
from tilec.frontend.checked import (
    Axis,
    Combined,
    Const,
    Expr,
    Fill,
    Inlined,
    Let,
    Ref,
    ScalarType,
    Statement,
    TileType,
    Variable,
)
from tilec.frontend.meet import (
    axes_of,
    dtype_of,
    exactly,
    fit_literal,
    is_weak,
    same_axes,
)
from tilec.frontend.names import Binding, Scope
from tilec.frontend.strict import refuse_loose
from tilec.ir.types import BOOL, DType

_KEYS = frozenset({"axis", "identity", "reverse"})


@builtin
def reduce(call: Call) -> Expr:
    """``reduce(merge, x, axis=1, identity=0)``: combined along an axis by a ``fn``."""
    return _only(call, combine(call))


@builtin
def scan(call: Call) -> Expr:
    """``scan(merge, x, axis=1, identity=0)``: each element combined with all before it."""
    return _only(call, combine(call))


def _only(call: Call, results: list[Expr]) -> Expr:
    if len(results) == 1:
        return results[0]
    names = ", ".join(f"x{n}" for n in range(len(results)))
    call.check.report.fail(
        "wrong-count",
        f"this call returns {len(results)} values",
        [(call.span, "one is needed here")],
        help=f"name them first: `{names} = {call.span.text}`",
    )


def combine(call: Call) -> list[Expr]:
    """The values of a call of ``reduce`` or ``scan``: one for each tile that is combined."""
    check, usage = call.check, f"{call.name}(merge, x, axis=1, identity=0)"
    wanted = _KEYS if call.name == "scan" else _KEYS - {"reverse"}
    given = call.keywords.keys()
    if (
        len(call.arguments) != 2
        or call.brackets
        or given - wanted
        or not {"axis", "identity"} <= given
    ):
        call.fail_usage(usage)
    refuse_loose(check, f"`{call.name}`", call.span, "move it out of the block")
    tiles = _tiles(call)
    axes = axes_of(tiles[0])
    axis = check.integer(call.keywords["axis"], "an axis")
    if not -len(axes) <= axis < len(axes):
        check.report.fail(
            "wrong-rank",
            f"there is no axis {axis} to combine along",
            [(call.arguments[1].span, f"this is {tiles[0].type}")],
        )
    axis %= len(axes)
    check.along(axes[axis], call.span, f"`{call.name}`")
    reverse = "reverse" in call.keywords and bool(
        check.constant(call.keywords["reverse"], "`reverse`")
    )
    identity = _identity(call, tiles)
    parameters, body, results = _merged(call, [dtype_of(t) for t in tiles])
    rest = axes if call.name == "scan" else tuple(a for n, a in enumerate(axes) if n != axis)
    out = []
    for value in tiles:
        dtype = dtype_of(value)
        kind = TileType(dtype, rest) if rest else ScalarType(dtype)
        out.append(Variable(call.name, kind, call.span))
    check.block.append(
        Combined(
            call.span, tiles, parameters, body, results, axis, identity,
            call.name == "scan", reverse, out,
        )
    )  # fmt: skip
    return [Ref(v.type, call.span, v) for v in out]


def _items(node: ast.Expression) -> tuple[ast.Expression, ...]:
    return node.items if isinstance(node, ast.Tuple) else (node,)


def _tiles(call: Call) -> list[Expr]:
    """What is combined: tiles that meet; a literal takes the elements of the first tile."""
    check = call.check
    values = [check.value(item) for item in _items(call.arguments[1])]
    firm = [v for v in values if not is_weak(v)]
    if not firm or not any(axes_of(v) for v in values):
        check.report.fail(
            "wrong-rank",
            f"`{call.name}` combines the elements of tiles",
            [(call.arguments[1].span, "no tile is among these")],
        )
    kind = firm[0].type
    assert isinstance(kind, ScalarType | TileType)
    values = [fit_literal(check.report, v, kind.dtype) if is_weak(v) else v for v in values]
    values = same_axes(check.report, values)
    axes = next(axes_of(v) for v in values if axes_of(v))
    return [v if axes_of(v) else _filled(v, axes) for v in values]


def _filled(value: Expr, axes: tuple[Axis, ...]) -> Expr:
    return Fill(TileType(dtype_of(value), axes), value.span, value)


def _identity(call: Call, tiles: list[Expr]) -> tuple[int | float | bool, ...]:
    items = _items(call.keywords["identity"])
    if len(items) != len(tiles):
        call.check.report.fail(
            "wrong-count",
            f"{len(items)} identities for {len(tiles)} values",
            [(call.keywords["identity"].span, f"{len(items)} here"),
             (call.arguments[1].span, f"{len(tiles)} here")],
        )  # fmt: skip
    return tuple(_number(call, item, dtype_of(t)) for item, t in zip(items, tiles, strict=True))


def _number(call: Call, item: ast.Expression, dtype: DType) -> int | float | bool:
    fitted = exactly(
        call.check.report, call.check.value(item), dtype, (), call.span, "the identity"
    )
    if not isinstance(fitted, Const) or isinstance(fitted.value, str):
        call.check.report.fail(
            "not-known-at-compile-time",
            "an identity is known at compile time",
            [(item.span, "this is not")],
        )
    if dtype == BOOL:
        return bool(fitted.value)
    return float(fitted.value) if dtype.is_float else int(fitted.value)


def _merged(call: Call, dtypes: list[DType]) -> tuple[list[Variable], list[Statement], list[Expr]]:
    """The parameters, statements and results of the function, on two tuples of scalars."""
    check, named = call.check, call.arguments[0]
    count = 2 * len(dtypes)
    span = named.span
    parameters = [Variable("xy"[n >= len(dtypes)], ScalarType(d), span)
                  for n, d in enumerate([*dtypes, *dtypes])]  # fmt: skip
    outer, check.scope = check.scope, Scope(check.scope)
    around, check.block = check.block, []
    try:
        names = [ast.Name(span, f"{n}. argument") for n in range(1, count + 1)]
        for name, variable in zip(names, parameters, strict=True):
            ref = Ref(variable.type, span, variable)
            check.scope.bind(name.id, Binding(ref, span, rebindable=False))
        node = ast.Call(span, named, tuple(names), ())
        function = check.function_of(node)
        if function is None:
            check.report.fail(
                "not-a-function",
                f"`{call.name}` combines by a `fn`",
                [(span, "this is none")],
                help="define `fn merge(a, b):` above the kernel, and give its name",
            )
        results = check.inline(function, node)
        if len(results) != len(dtypes):
            check.report.fail(
                "wrong-count",
                f"`{function.node.name}` returns {len(results)} values",
                [(span, f"{len(dtypes)} are combined"), (function.node.span, "defined here")],
            )
        what = f"what `{function.node.name}` returns"
        results = [
            exactly(check.report, r, d, (), span, what)
            for r, d in zip(results, dtypes, strict=True)
        ]
    finally:
        check.scope = outer
        body, check.block = check.block, around
    for other in _not_plain(body):
        check.report.fail(
            "wrong-arguments",
            f"`{function.node.name}` does more than compute a value from values",
            [
                (span, "it combines elements here"),
                (other.span, "this is a loop, a branch or a store"),
            ],
            help="choose with `where`",
        )
    return parameters, body, results


def _not_plain(body: list[Statement]) -> Iterator[Statement]:
    for node in body:
        if isinstance(node, Inlined):
            yield from _not_plain(node.body)
        elif not isinstance(node, Let):
            yield node


SEVERAL.update(reduce=combine, scan=combine)
