"""Declining with a reason that the kernel's author can act on, at the line that asked for it."""

from __future__ import annotations

from tilec.ir.core import Op
from tilec.ir.declare import Refused


def refused(op: Op | None, reason: str) -> Refused:
    """Return the refusal of what ``op`` asks for; the caller raises it."""
    if op is None or op.loc is None:
        return Refused(reason)
    return Refused(f"line {op.loc.line}: {reason}")
