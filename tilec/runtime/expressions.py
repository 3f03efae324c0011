"""Numbers that a launch computes: grid sizes and requirements, as nested tuples.

``("extent", array, axis)`` and ``("scalar", name)`` are the leaves beside plain numbers; every
other tuple is an operation and its operands. Division and remainder floor; by zero the quotient is
0 and the remainder what was divided, as in kernels.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": lambda x, y: x // y if y else 0,
    "mod": lambda x, y: x % y if y else x,
    "ceildiv": lambda x, y: -(-x // y),
    "min": min,
    "max": max,
    "neg": operator.neg,
    "abs": abs,
    "and": lambda x, y: x and y,
    "or": lambda x, y: x or y,
    "xor": operator.xor,
    "not": operator.not_,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
"""What each operation does; ``and`` and ``or`` give one of their operands, as in Python."""

_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


def evaluate(
    expression: Any, shapes: Mapping[str, tuple[int, ...]], scalars: Mapping[str, Any]
) -> Any:
    """The value of an expression for arrays of these shapes and these scalar arguments."""
    if not isinstance(expression, tuple):
        return expression
    head, *rest = expression
    if head == "extent":
        return shapes[rest[0]][rest[1]]
    if head == "scalar":
        return scalars[rest[0]]
    if head not in OPERATIONS:
        raise ValueError(f"no launch operation {head}; there are {', '.join(OPERATIONS)}")
    return OPERATIONS[head](*(evaluate(part, shapes, scalars) for part in rest))


def spell(expression: Any, dims: Mapping[tuple[str, int], str]) -> str:
    """An expression as a person writes it; ``dims`` names axes of arrays."""
    if not isinstance(expression, tuple):
        return str(expression)
    head, *rest = expression
    if head == "extent":
        return dims.get((rest[0], rest[1]), f"{rest[0]}.shape[{rest[1]}]")
    if head == "scalar":
        return str(rest[0])
    parts = [spell(part, dims) for part in rest]
    if head in ("and", "or"):
        return f" {head} ".join(parts)
    if head in _SIGNS:
        inside = [f"({t})" if " " in t and head[0] not in "lge" else t for t in parts]
        return f" {_SIGNS[head]} ".join(inside)
    return f"{head}({', '.join(parts)})"
