"""Advice on accesses: bank conflicts in shared memory, and sectors of global memory.

Shared memory has 32 banks of 4 bytes. A warp's access runs in as many turns as its lanes have
bytes for (128 a turn: 8 lanes of 16 bytes, 16 of 8, 32 of up to 4); in one turn a bank gives one
word, to any number of lanes (measured, docs/hardware.md). wgmma reads 8 rows of 16 bytes at once.
Global memory moves in sectors of 32 bytes.

TMA writes 16-byte pieces of one row after another, which its swizzles keep free of conflicts; it
is not looked at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from tilec.emulator.gang import WARP
from tilec.emulator.program import Instruction

_TURN_BYTES = 128
_SECTOR = 32
_WASTE = 2
"""Sectors for each that the bytes would fill, from which on an access is told of."""


def turns(offsets: Any, width: int) -> list[int]:
    """For each turn of lanes in order, the most words that one bank has to give."""
    a_turn = min(WARP, _TURN_BYTES // max(width, 4))
    found = []
    for first in range(0, len(offsets), a_turn):
        step = np.arange(0, width, 4)
        words = np.unique((offsets[first : first + a_turn, None] + step) // 4)
        found.append(int(np.bincount(words % 32).max()))
    return found


def ways(offsets: Any, width: int) -> int:
    """The most words that one bank has to give in any turn."""
    return max(turns(offsets, width), default=1)


def sectors_of(first: Any, width: int) -> tuple[int, int]:
    """Sectors that accesses at addresses touch, and how many their bytes would fill."""
    touched = len(np.unique(np.concatenate((first, first + width - 1)) // _SECTOR))
    return touched, -(-len(np.unique(first)) * width // _SECTOR)


class ProductWatcher(ABC):
    """Watches what products read of shared memory."""

    @abstractmethod
    def product(self, at: Instruction, cta: Any, rows: Any) -> None:
        """A product reads an operand; ``rows`` are the addresses of its rows of 16 bytes, by 8."""


class Advice(ProductWatcher):
    """Watches accesses and tells of slow ones."""

    def accessed(
        self,
        at: Instruction,
        g: Any,
        space: str,
        buffer: Any,
        offsets: Any,
        width: int,
        lanes: Any,
        writes: bool,
        rows: Any = None,
    ) -> None:
        """Look at each warp's part of an access."""
        for number, warp in enumerate(g.warps.tolist()):
            mine = slice(WARP * number, WARP * number + WARP)
            picked = offsets[mine][lanes[mine]]
            if not len(picked):
                continue
            if space == "shared":
                self._shared(at, g, warp, picked, width)
            elif space == "global":
                self._global(at, g, warp, buffer, picked, width)

    def product(self, at: Instruction, cta: Any, rows: Any) -> None:
        """Look at a product's operand."""
        found = max(ways(group, 16) for group in rows)
        if found > 1:
            _tell(at, cta, f"a product's 8 rows of 16 bytes ask {found} times for the same banks")

    def _shared(self, at: Instruction, g: Any, warp: int, picked: Any, width: int) -> None:
        found = ways(picked, width)
        if found > 1:
            _tell(at, g.cta, f"warp {warp} asks {found} times for the same banks")

    def _global(
        self, at: Instruction, g: Any, warp: int, buffer: Any, picked: Any, width: int
    ) -> None:
        first = picked + buffer.address
        sectors, needed = sectors_of(first, width)
        words = len(np.unique(first)) * width
        if sectors > _WASTE * needed:
            g.cta.machine.findings.add(
                "uncoalesced",
                at,
                f"warp {warp} touches {sectors} sectors of {buffer.name} for {words} bytes, which "
                f"would fit into {needed}",
                where=f"CTA {g.cta.index}",
            )


def _tell(at: Instruction, cta: Any, message: str) -> None:
    cta.machine.findings.add("bank-conflict", at, message, where=f"CTA {cta.index}")
