"""One CTA of a run: its gangs, its shared memory, its barriers and what is in flight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.emulator.gang import WARP, Gang


@dataclass(eq=False)
class Cta:
    """One CTA."""

    index: tuple[int, int, int]
    machine: Any
    shared: npt.NDArray[np.uint8]
    shared_written: npt.NDArray[np.bool_]
    threads: int
    gangs: list[Gang] = field(default_factory=list)
    cluster: Any = None
    """The cluster that it runs in, alone or with others, and its rank there."""
    rank: int = 0
    exited: int = 0
    """Threads that have ended."""
    parts: dict[str, Any] = field(default_factory=dict)
    """State that families of instructions keep: barriers, groups of copies, products."""

    def keep(self, name: str, make: Any) -> Any:
        """The state of one family of instructions, made on first use."""
        if name not in self.parts:
            self.parts[name] = make(self)
        return self.parts[name]

    @property
    def warps(self) -> int:
        """Warps of the CTA, the last one perhaps partial."""
        return -(-self.threads // WARP)

    @property
    def finished(self) -> bool:
        """Whether all gangs have ended."""
        return not self.gangs
