"""Text of the IR: one generic printer for all levels, the inverse of ``parser``.

The same module gives the same bytes: value names come from hints made unique in text order, and
layouts are named in order of first appearance. Printing changes nothing in the module.
"""

from __future__ import annotations

import math
from typing import Any

from tilec.ir.core import Kernel, Module, Op, Region, Value
from tilec.ir.types import DType, Scalar, Type
from tilec.layout.linear import Layout

VERSION = 1


def plain_hint(name: str) -> str:
    """A name without the numbers that printing adds: ``acc`` of ``acc.1``, nothing of ``7``."""
    base, dot, suffix = name.rpartition(".")
    while dot and suffix.isdigit():
        name = base
        base, dot, suffix = name.rpartition(".")
    return "" if name.isdigit() else name


class _Names:
    """Unique names of values, and of layouts when they are to be abbreviated."""

    def __init__(self, layouts: dict[Layout, str] | None) -> None:
        self.layouts = layouts
        self.values: dict[Value[Any], str] = {}
        self.taken: set[str] = set()
        self.next_suffix: dict[str, int] = {}

    def value(self, value: Value[Any]) -> str:
        if value not in self.values:
            base = name = plain_hint(value.name)
            if not base or name in self.taken:
                suffix = self.next_suffix.get(base, 0)
                joint = "." if base else ""
                while f"{base}{joint}{suffix}" in self.taken:
                    suffix += 1
                name = f"{base}{joint}{suffix}"
                self.next_suffix[base] = suffix + 1
            self.taken.add(name)
            self.values[value] = name
        return "%" + self.values[value]

    def layout(self, layout: Layout) -> str:
        if self.layouts is None:
            return str(layout)
        return "#" + self.layouts.setdefault(layout, f"l{len(self.layouts)}")


def _number_text(value: float | int) -> str:
    if isinstance(value, int):
        return str(value)
    if math.isnan(value) or math.isinf(value):
        return repr(value)
    text = repr(value)
    return text if "." in text or "e" in text else text + ".0"


def _attribute_text(value: Any, names: _Names) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number_text(value)
    if value is None:
        return "none"
    if isinstance(value, str | DType):
        return str(value)
    if isinstance(value, Layout):
        return names.layout(value)
    if isinstance(value, Type):
        return "!" + _type_text(value, names)
    if isinstance(value, tuple):
        inner = ", ".join(_attribute_text(v, names) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    raise TypeError(f"{value!r} cannot be an attribute")


def _type_field_text(value: Any, names: _Names) -> str:
    if isinstance(value, Type):
        return _type_text(value, names)
    if isinstance(value, Layout):
        return names.layout(value)
    if isinstance(value, tuple):
        if value and isinstance(value[0], Type):
            return "[" + ", ".join(_type_text(v, names) for v in value) + "]"
        return " x ".join(str(v) for v in value) if value else "()"
    return str(value)


def _type_text(type: Type, names: _Names) -> str:
    if isinstance(type, Scalar):
        return str(type.dtype)
    inner = ", ".join(
        _type_field_text(getattr(type, field), names) for field, _ in type.field_kinds()
    )
    return f"{type.text_name}<{inner}>" if inner else type.text_name


def _attributes_text(attributes: dict[str, Any], names: _Names) -> str:
    inner = ", ".join(f"{k} = {_attribute_text(v, names)}" for k, v in attributes.items())
    return "{" + inner + "}"


def _op_lines(op: Op, names: _Names, indent: str) -> list[str]:
    text = indent
    operand_text = ", ".join(names.value(v) for v in op.operands)
    if op.results:
        text += ", ".join(names.value(r) for r in op.results) + " = "
    text += f"{op.name}({operand_text})"
    if op.attributes:
        text += " " + _attributes_text(op.attributes, names)
    lines: list[str] = []
    for region in op.regions:
        body = _region_lines(region, names, indent)
        lines.append(text + " " + body[0])
        lines.extend(body[1:-1])
        text = body[-1]
    if op.results:
        text += " : " + ", ".join(_type_text(r.type, names) for r in op.results)
    if op.loc:
        text += f" @{op.loc.line}:{op.loc.column}"
    lines.append(text)
    return lines


def _region_lines(region: Region, names: _Names, indent: str) -> list[str]:
    head = "{"
    if region.args:
        args = (f"{names.value(a)}: {_type_text(a.type, names)}" for a in region.args)
        head += " |" + ", ".join(args) + "|"
    lines = [head]
    for op in region.ops:
        lines.extend(_op_lines(op, names, indent + "  "))
    lines.append(indent + "}")
    return lines


def _kernel_lines(kernel: Kernel, names: _Names) -> list[str]:
    head = f"kernel @{kernel.name}"
    if kernel.attributes:
        head += " " + _attributes_text(kernel.attributes, names)
    if kernel.schedule:
        head += "\nschedule " + _attributes_text(kernel.schedule, names)
    body = _region_lines(kernel.body, names, "")
    return [head + ("\n" if kernel.schedule else " ") + body[0], *body[1:]]


def module_text(module: Module) -> str:
    """The whole module; the parser gives back an equal one."""
    layouts: dict[Layout, str] = {}
    kernel_lines: list[str] = []
    for kernel in module.kernels:
        kernel_lines.append("")
        kernel_lines.extend(_kernel_lines(kernel, _Names(layouts)))
    lines = [f"tir {VERSION} level {module.level} target {module.target}"]
    if module.source is not None:
        lines.append(f'source "{module.source.name}"')
        lines.extend(f"//: {line}".rstrip() for line in module.source.text.splitlines())
    lines.extend(f"#{name} = {layout}" for layout, name in layouts.items())
    return "\n".join(lines + kernel_lines) + "\n"


def op_text(op: Op) -> str:
    """One op with layouts spelled out, for messages."""
    return "\n".join(_op_lines(op, _Names(None), ""))


def attribute_text(value: Any) -> str:
    """An attribute's value with its layout spelled out, for messages."""
    return _attribute_text(value, _Names(None))


def type_text(type: Type) -> str:
    """One type with its layout spelled out, for messages."""
    return _type_text(type, _Names(None))


def value_lines(module: Module) -> dict[int, int]:
    """1-based line in ``module_text(module)`` of each op, keyed by ``id(op)``."""
    text = module_text(module).splitlines()
    ops: list[Op] = [op for kernel in module.kernels for op in kernel.body.walk()]
    lines: dict[int, int] = {}
    at = 0
    for op in ops:
        needle = f"{op.name}("
        while needle not in text[at]:
            at += 1
        lines[id(op)] = at + 1
        at += 1
    return lines
