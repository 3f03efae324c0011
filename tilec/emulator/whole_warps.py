"""What only whole warps may run, and members that a warp's instructions name.

Instructions with ``.aligned`` need all lanes of a warp (PTX ISA 9.7.13, 9.7.15); those with a
member mask need the lanes that the mask names, and only those (9.7.9.6, 9.7.13.2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.emulator.gang import WARP
from tilec.emulator.program import Instruction
from tilec.emulator.table import Read, Result, Step, lanes_of, where

_MASKED = (
    ("shfl", "sync"), ("vote", "sync"), ("redux", "sync"), ("elect", "sync"), ("bar", "warp"),
)  # fmt: skip


def names_members(at: Instruction) -> bool:
    """Whether the last operand is a mask of lanes."""
    return at.parts[:2] in _MASKED


def needs_whole_warps(at: Instruction) -> bool:
    """Whether an instruction is for all lanes of a warp together."""
    return "aligned" in at.parts and at.parts[:2] != ("wgmma", "mma_async")


def with_whole_warps(step: Step, at: Instruction) -> Step:
    """The step, and a finding where only some lanes of a warp come."""

    def run(g: Any) -> Result:
        if g.mask is not None and g.cta.threads % WARP == 0:
            here = g.mask.reshape(-1, WARP)
            partly = here.any(axis=1) & ~here.all(axis=1)
            if partly.any():
                g.cta.machine.findings.add(
                    "divergent-aligned",
                    at,
                    f"{at.opcode} is reached by {int(here[partly][0].sum())} lanes of warp "
                    f"{int(g.warps[np.argmax(partly)])} only",
                    where=where(g),
                )
        return step(g)

    return run


def with_members(step: Step, at: Instruction, members: Read) -> Step:
    """The step, and a finding where the mask does not name the lanes that come."""
    bit = np.uint32(1) << np.arange(WARP, dtype=np.uint32)

    def run(g: Any) -> Result:
        named = (lanes_of(members(g), g).reshape(-1, WARP)[:, :, None] & bit) != 0
        here = g.active().reshape(-1, WARP)
        missing = (named & ~here[:, None, :]).any(axis=2) | ~np.diagonal(named, axis1=1, axis2=2)
        wrong = (missing & here).any(axis=1)
        if wrong.any() and g.cta.threads % WARP == 0:
            g.cta.machine.findings.add(
                "divergent-aligned",
                at,
                f"the members that {at.opcode} names are not the lanes of warp "
                f"{int(g.warps[np.argmax(wrong)])} that come to it",
                missing="a mask of just the lanes that run the instruction",
                where=where(g),
            )
        return step(g)

    return run
