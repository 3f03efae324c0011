"""What goes wrong on the machine of level ``cta``: breaches of the protocol, and standing still."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.interp.memory import InterpretError


class ProtocolFault(InterpretError):
    """A role does what the level's order does not allow it, at this point of this run."""


class Deadlock(ProtocolFault):
    """Nobody can go on; ``waits`` says for each group that is left what it waits for."""

    def __init__(self, waits: Sequence[str], line: int = 0) -> None:
        self.waits = tuple(waits)
        super().__init__(f"deadlock: {'; '.join(self.waits)}", line)
