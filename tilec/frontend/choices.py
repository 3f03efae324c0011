"""``schedule`` lines: what the author pins is checked against what a ``Schedule`` can hold.

Which choices there are, and of what kind, is read off the fields of ``Schedule``; tile sizes are
pinned at their loops and not here.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

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


_NAMED = {
    "repacks": "1 to copy an operand before products read it, as in `repacks.a=1`, or 0 not to",
    "splits": "an integer for a loop, as in `splits.j=8`",
    "swizzles": "the bytes of an operand's swizzle, as in `swizzles.a=128`, or 0 for none",
}
"""Choices for one loop or array each; tile sizes are pinned where the loop stands."""

Chosen = Constant | tuple[Constant, ...] | tuple[tuple[str, int], ...]


def chosen(check: Expressions, node: ast.Schedule) -> dict[str, Chosen]:
    """The choices of one line by name."""
    hints = get_type_hints(Schedule)
    known = {f.name: _KINDS[hints[f.name]] for f in fields(Schedule) if hints[f.name] in _KINDS}
    known |= _NAMED
    choices: dict[str, Chosen] = {}
    for setting in node.settings:
        name, value = setting.name, setting.value
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
        named = name.id in _NAMED
        if (
            (setting.of is not None) != named
            or several != (hints[name.id] == tuple[int, ...])
            or not all(
                type(v) is bool
                if hints[name.id] == bool | None
                else type(v) is int and v >= (name.id not in ("swizzles", "repacks"))
                for v in found
            )
        ):
            check.report.fail(
                "wrong-arguments",
                f"`{name.id}` is {known[name.id]}",
                [(setting.span, "this is not")],
            )
        if setting.of is not None:
            before: Any = choices.get(name.id, ())
            choices[name.id] = (*before, (setting.of.id, found[0]))
        else:
            choices[name.id] = found if several else found[0]
    return choices
