"""Arithmetic on literals while checking: sizes, choices and conditions known at compile time.

It works on Python's own numbers, so ``//`` and ``%`` floor as the language says.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from tilec.frontend.checked import Constant

_BINARY: dict[str, Callable[..., Constant]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
_RELATIONS: dict[str, Callable[..., bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def fold_binary(op: str, left: Constant, right: Constant) -> Constant:
    """``left op right``; raises ``ArithmeticError`` or ``TypeError`` where there is no answer."""
    return _BINARY[op](left, right)


def fold_relation(op: str, left: Constant, right: Constant) -> bool:
    """Whether the comparison holds."""
    return _RELATIONS[op](left, right)
