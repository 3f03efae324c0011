"""``schedule`` lines: what the author pins is checked against what a ``Schedule`` can hold.

Which choices there are, and of what kind, is read off the fields of ``Schedule``; tile sizes are
pinned at their loops and not here.
"""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

from tilec.diagnostics import did_you_mean
from tilec.frontend import ast
from tilec.frontend.checked import Constant
from tilec.frontend.expressions import Expressions
from tilec.ir.facts import Schedule

_KINDS: dict[object, str] = {
    int | None: "an integer, 1 or more",
    bool | None: "`true` or `false`",
    tuple[int, ...]: "integers in parentheses, each 1 or more",
}


def chosen(check: Expressions, node: ast.Schedule) -> dict[str, Constant | tuple[Constant, ...]]:
    """The choices of one line by name."""
    hints = get_type_hints(Schedule)
    known = {f.name: _KINDS[hints[f.name]] for f in fields(Schedule) if hints[f.name] in _KINDS}
    choices: dict[str, Constant | tuple[Constant, ...]] = {}
    for name, value in node.settings:
        if name.id not in known:
            check.report.fail(
                "unknown-choice",
                f"a schedule has no `{name.id}`",
                [(name.span, "chosen here")],
                help=did_you_mean(name.id, known) or f"there are {', '.join(known)}",
            )
        several = isinstance(value, ast.List | ast.Tuple)
        items = value.items if isinstance(value, ast.List | ast.Tuple) else (value,)
        found = tuple(check.constant(item, "a choice") for item in items)
        if several != (hints[name.id] == tuple[int, ...]) or not all(
            type(v) is bool if hints[name.id] == bool | None else type(v) is int and v >= 1
            for v in found
        ):
            check.report.fail(
                "wrong-arguments",
                f"`{name.id}` is {known[name.id]}",
                [(value.span, "this is not")],
            )
        choices[name.id] = found if several else found[0]
    return choices
