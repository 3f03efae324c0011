"""Declining with a reason that the kernel's author can act on, at the line that asked for it."""

from __future__ import annotations

from tilec.ir.core import Op
from tilec.ir.declare import Refused


def place_of(op: Op | None) -> str:
    """The start of a reason: the line of the op, where it has one."""
    return f"line {op.loc.line}: " if op is not None and op.loc is not None else ""


def refused(op: Op | None, reason: str, help: str = "") -> Refused:
    """Return the refusal of what ``op`` asks for; the caller raises it."""
    return Refused(f"{place_of(op)}{reason}", help)


class InnerRefusal(Refused):
    """A refusal deep inside nested ops: the reason at the innermost source line, and the way in."""

    def __init__(
        self, reason: str, line: int | None, path: tuple[str, ...], help: str = ""
    ) -> None:
        self.reason, self.line, self.path = reason, line, path
        place = f"line {line}: " if line is not None else ""
        super().__init__(f"{place}{path[-1]}: {reason}", help)


def within(op: Op, refusal: Refused) -> InnerRefusal:
    """Add the op around what declined; the line of the innermost op that has one stays."""
    line = op.loc.line if op.loc is not None else None
    shown = op.name if line is None else f"{op.name} of line {line}"
    if isinstance(refusal, InnerRefusal):
        inner = line if refusal.line is None else refusal.line
        return InnerRefusal(refusal.reason, inner, (shown, *refusal.path), refusal.help)
    return InnerRefusal(str(refusal), line, (op.name,), refusal.help)
