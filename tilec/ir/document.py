"""The op reference: a table an op family, made from the declarations and their docstrings.

    python -m tilec.ir.document > docs/ops.md

An op needs nothing but its class to appear in it. Reads declarations only; writes to standard
output.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

from tilec.ir.core import Op
from tilec.ir.declare import Effects, FieldSpec
from tilec.ir.levels import (
    LEVELS,
    along,
    author,
    cluster,
    cta,
    flow,
    fold,
    math,
    memory,
    mma,
    parts,
    piece,
    ptx,
    tile,
    turns,
)
from tilec.ir.types import Type

FAMILIES: dict[str, ModuleType] = {
    "tile": tile,
    "along": along,
    "author": author,
    "parts": parts,
    "math": math,
    "flow": flow,
    "cta": cta,
    "cluster": cluster,
    "turns": turns,
    "fold": fold,
    "memory": memory,
    "mma": mma,
    "piece": piece,
    "ptx": ptx,
}
"""Op families in the order in which a program meets them."""


def page() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Ops and types of the IR",
        "",
        "Made by `python -m tilec.ir.document`; the text form is explained in [ir.md](ir.md).",
        "In the column *form*, `*` marks any number, `?` what may be absent (with its default);",
        "operands stand in parentheses, attributes in braces, regions are named after `+`.",
        "",
        "| level | op families | types |",
        "| --- | --- | --- |",
    ]
    for level, (families, types) in LEVELS.items():
        names = ", ".join(f"`{t.text_name}`" for t in types)
        lines.append(f"| {level} | {', '.join(families)} | {names} |")
    lines += ["", "## Types", "", "| type | fields | meaning |", "| --- | --- | --- |"]
    lines += [_type_row(cls) for _, cls in sorted(Type.registry.items())]
    for family, module in FAMILIES.items():
        lines += ["", f"## {family}", "", *_paragraphs(inspect.getdoc(module) or ""), ""]
        lines += ["| op | form | effects | meaning |", "| --- | --- | --- | --- |"]
        ops = [c for c in Op.registry.values() if c.name.split(".")[0] == family]
        lines += [_op_row(cls) for cls in ops]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> list[str]:
    first, _, rest = text.partition("\n\n")
    head = first.split(": ", 1)[-1]
    return [head[0].upper() + head[1:], *(["", rest] if rest else [])]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _type_row(cls: type[Type]) -> str:
    fields = ", ".join(name for name, _ in cls.field_kinds())
    return f"| `{cls.text_name}` | {fields} | {_cell(inspect.getdoc(cls) or '')} |"


def _op_row(cls: type[Op]) -> str:
    meaning = _cell(inspect.getdoc(cls) or "")
    return f"| `{cls.name}` | {_form(cls)} | {_effects(cls)} | {meaning} |"


def _form(cls: type[Op]) -> str:
    """How an op is written, from its fields."""
    parts: dict[str, list[str]] = {"operand": [], "attribute": [], "region": [], "result": []}
    for key, spec in cls.specs.items():
        if spec.role in parts:
            parts[spec.role].append(_field(key, spec))
    text = f"({', '.join(parts['operand'])})"
    if parts["attribute"]:
        text += " {" + ", ".join(parts["attribute"]) + "}"
    if parts["region"]:
        text += " + " + ", ".join(parts["region"])
    if parts["result"]:
        text += " : " + ", ".join(parts["result"])
    return f"`{text}`"


def _field(key: str, spec: FieldSpec) -> str:
    if spec.variadic:
        return f"{key}*"
    if spec.role == "attribute" and spec.has_default:
        default = str(spec.default).lower() if isinstance(spec.default, bool) else spec.default
        return f"{key}? = {default}" if default not in ("", ()) else f"{key}?"
    return f"{key}?" if spec.optional else key


def _effects(cls: type[Op]) -> str:
    if cls.is_terminator:
        return "ends its region"
    return ", ".join(e.name.lower() for e in Effects if e in cls.effects and e.name) or "none"


if __name__ == "__main__":
    sys.stdout.write(page())
