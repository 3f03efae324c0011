"""Declining with a reason that the kernel's author can act on, at the line that asked for it."""

from __future__ import annotations

from tilec.ir.core import Op
from tilec.ir.declare import Refused


class NotInThisVersion(Refused):
    """A refusal of what the language has and this version does not compile."""


def place_of(op: Op | None) -> str:
    """The start of a reason: the line of the op, where it has one."""
    return f"line {op.loc.line}: " if op is not None and op.loc is not None else ""


def refused(op: Op | None, reason: str) -> Refused:
    """Return the refusal of what ``op`` asks for; the caller raises it."""
    return Refused(f"{place_of(op)}{reason}")
