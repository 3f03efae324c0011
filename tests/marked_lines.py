"""Which line of a hand-written ``.tir`` text each op stands on, and what its comment expects."""

from __future__ import annotations

import re

from tilec.ir.core import Module

_EXPECTED = re.compile(r"// error: (.+)$")
_COMMENT = re.compile(r"//.*$")


def expectations(text: str) -> dict[int, str]:
    """1-based line -> the part of a message that a comment on it expects."""
    found: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _EXPECTED.search(line)
        if match:
            found[number] = match.group(1)
    return found


def op_lines(text: str, module: Module) -> dict[int, int]:
    """1-based line of each op of the module that was parsed from ``text``, by ``id(op)``."""
    code = [_COMMENT.sub("", line) for line in text.splitlines()]
    lines: dict[int, int] = {}
    at, column = 0, 0
    for kernel in module.kernels:
        for op in kernel.body.walk():
            name = re.compile(rf"(?<![\w.]){re.escape(op.name)}\(")
            while (match := name.search(code[at], column)) is None:
                at, column = at + 1, 0
            lines[id(op)] = at + 1
            column = match.end()
    return lines
