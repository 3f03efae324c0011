"""``join``: how the states that parts of a loop arrive at make the state of the whole loop.

``for j in tiles(N) join merge(m, l):`` promises that the loop may be run in parts, each from the
initial state, and that ``merge(m1, l1, m2, l2)`` of two neighbouring parts' states is the state
that running both in order arrives at. So ``merge`` is associative, and the initial state changes
nothing. What can be seen is checked here: the names are all that the loop carries, and the types
that go in come out. The rest is the author's promise, and the interpreter tries it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilec.frontend import ast
from tilec.frontend.checked import Carried, Expr, Joining, Ref, ScalarType, TileType, Variable
from tilec.frontend.meet import axes_of, exactly
from tilec.frontend.names import Binding, Scope

if TYPE_CHECKING:
    from tilec.frontend.statements import Checker


def joining(check: Checker, node: ast.Join, carried: Sequence[Carried]) -> Joining:
    """The checked ``join`` of a loop that carries these values."""
    changed = [item for item in carried if not item.unchanged]
    by_name = {item.current.name: item for item in changed}
    names = [name.id for name in node.names]
    if sorted(names) != sorted(by_name):
        there = ", ".join(by_name) or "nothing"
        check.report.fail(
            "join-names",
            "`join` names all that the loop carries, each once",
            [(node.span, f"here it names {', '.join(names)}")],
            notes=[f"the loop carries {there}"],
            help=f"write `join {node.function.id}({there})`, as the function takes them",
        )
    items = [by_name[name] for name in names]
    sides = [[Variable(f"{n} of part {side}", by_name[n].current.type, node.span) for n in names]
             for side in (1, 2)]  # fmt: skip
    call = ast.Call(
        node.span, node.function, tuple(_name(node, v) for side in sides for v in side), ()
    )
    function = check.function_of(call)
    if function is None:
        check.report.fail(
            "not-a-function",
            f"`{node.function.id}` is no function of this file",
            [(node.function.span, "called here")],
            help="write a `fn` that merges two states, or import one from `std.merges`",
        )
    outer, check.scope = check.scope, Scope(check.scope)
    around, check.block = check.block, []
    try:
        for variable in (*sides[0], *sides[1]):
            ref = Ref(variable.type, node.span, variable)
            check.scope.bind(variable.name, Binding(ref, node.span))
        results = check.inline(function, call)
    finally:
        check.scope = outer
        body, check.block = check.block, around
    if len(results) != len(items):
        check.report.fail(
            "wrong-count",
            f"`{node.function.id}` returns {len(results)} values, the loop carries {len(items)}",
            [(node.span, "merged here")],
        )
    merged = [_same(check, node, value, item) for value, item in zip(results, items, strict=True)]
    order = [names.index(item.current.name) for item in changed]
    return Joining(
        [sides[0][n] for n in order],
        [sides[1][n] for n in order],
        body,
        [merged[n] for n in order],
    )


def _name(node: ast.Join, variable: Variable) -> ast.Name:
    return ast.Name(node.span, variable.name)


def _same(check: Checker, node: ast.Join, value: Expr, item: Carried) -> Expr:
    """A merged value, of the type that the loop carries."""
    kind = item.current.type
    assert isinstance(kind, ScalarType | TileType)
    axes = axes_of(Ref(kind, node.span, item.current))
    return exactly(check.report, value, kind.dtype, axes, node.span, f"`{item.current.name}`")
