"""Names and attributes that mean nothing: what may have been meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tilec.diagnostics import did_you_mean
from tilec.frontend import ast

if TYPE_CHECKING:
    from tilec.frontend.expressions import Expressions

_OF_OTHER_LANGUAGES = {
    "break": "a loop runs to its end; `while` with a condition ends when you say",
    "continue": "put the rest of the block into an `if`",
    "True": "write `true`",
    "False": "write `false`",
}
"""What to write instead of words that others have."""


def unknown(check: Expressions, name: ast.Name) -> NoReturn:
    """Refuse a name that has no value, saying what may be meant."""
    from tilec.frontend.builtins import BUILTINS

    ended = check.scope.ended_at(name.id)
    if ended is not None:
        check.report.fail(
            "unknown-name",
            f"`{name.id}` has no value here",
            [(name.span, "used here"), (ended, "its value ends with this block")],
            help=f"give `{name.id}` a first value before the block",
        )
    if name.id in BUILTINS or name.id in ("tiles", "parallel", "range"):
        check.report.fail(
            "not-a-value",
            f"`{name.id}` is a function",
            [(name.span, "used as a value here")],
            help=f"call it: `{name.id}(...)`",
        )
    if name.id in _OF_OTHER_LANGUAGES:
        check.report.fail(
            "unknown-name",
            f"`{name.id}` is not in the language",
            [(name.span, "used here")],
            help=_OF_OTHER_LANGUAGES[name.id],
        )
    check.report.fail(
        "unknown-name",
        f"`{name.id}` is not known here",
        [(name.span, "used here")],
        help=did_you_mean(name.id, [*check.scope.known(), *BUILTINS])
        or "give it a value above, or name it in the kernel's head: as a parameter, or as a "
        "dimension of one",
    )


def as_function(check: Expressions, node: ast.Attribute) -> str:
    """What to write for a method or a module's function of other languages."""
    from tilec.frontend.builtins import BUILTINS

    if node.name not in BUILTINS:
        return "`.T` transposes a tile; everything else is a function of values"
    known = isinstance(node.base, ast.Name) and check.scope.find(node.base.id) is None
    first = "..." if known else f"{node.base.span.text}, ..."
    return f"it is a function: `{node.name}({first})`"
