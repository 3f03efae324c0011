"""The functions of the language on f64, where no GPU has an instruction: those of ``std.doubles``.

A call of ``exp`` on f64 is a call of the shipped function of that name, as if the program had
imported it: what it computes becomes part of the kernel there, and is the same in every executor.

Never: knows what such a function computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.frontend import ast
from tilec.frontend.checked import Expr
from tilec.frontend.meet import dtype_of
from tilec.frontend.names import Binding, Function, Scope
from tilec.source import Span

if TYPE_CHECKING:
    from tilec.frontend.expressions import Expressions

MODULE = "std.doubles"


def is_wide(*values: Expr) -> bool:
    """Whether values have elements that the functions' instructions do not take."""
    return any(dtype_of(value).name == "f64" for value in values)


def wide_function(check: Expressions, name: str, values: list[Expr], span: Span) -> Expr:
    """The shipped function of a name, applied to values of f64."""
    from tilec.frontend.imports import shipped_scope

    function = shipped_scope(MODULE).own[name].meaning
    assert isinstance(function, Function)
    caller = check.scope
    check.scope = Scope(caller)
    arguments = []
    for number, value in enumerate(values):
        place = ast.Name(value.span, f"{number}")  # no program can write this name
        held = check.let("", value)
        check.scope.bind(place.id, Binding(held, value.span, rebindable=False))
        arguments.append(place)
    try:
        call = ast.Call(span, ast.Name(span, name), tuple(arguments), ())
        (result,) = check.inline(function, call)
    finally:
        check.scope = caller
    return result
