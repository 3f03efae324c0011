"""setmaxnreg: registers that warpgroups give back and take (PTX ISA 9.7.19.5).

A CTA begins with all the registers that its threads may have. What a warpgroup gives back others
may take; one that asks for more than is left waits until somebody gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.emulator.liveness import entry_registers
from tilec.emulator.program import Number
from tilec.emulator.table import Bind, Block, Result, Step, row, where

_WARPGROUP = 128


def held(cta: Any) -> dict[int, int]:
    """Registers a thread of each warpgroup."""
    entry = entry_registers(cta.machine.program)
    groups = range(-(-cta.warps // 4))
    found: dict[int, int] = cta.keep("registers", lambda _: dict.fromkeys(groups, entry))
    return found


@row("setmaxnreg")
def _setmaxnreg(bind: Bind) -> Step:
    (count,) = bind.operands
    if not isinstance(count, Number):
        raise bind.fail("the number of registers is an immediate")
    wanted, takes = count.value, "inc" in bind.at.parts

    def run(g: Any) -> Result:
        have = held(g.cta)
        groups = np.unique(g.warps // 4).tolist()
        now = have[groups[0]]
        if wanted % 8 or not 24 <= wanted <= 256 or (wanted < now if takes else wanted > now):
            _tell(bind, g, wanted, now)
            return None
        pool = entry_registers(g.cta.machine.program) * len(have)

        def fits() -> bool:
            rest = sum(n for group, n in have.items() if group not in groups)
            return rest + wanted * len(groups) <= pool

        if not fits():
            left = pool - sum(have.values())
            return Block(
                f"{wanted} registers a thread: {left * _WARPGROUP} registers of the CTA are free, "
                f"{(wanted - now) * len(groups) * _WARPGROUP} are needed",
                fits,
                ("registers", 0),
            )
        for group in groups:
            have[group] = wanted
        return None

    return run


def _tell(bind: Bind, g: Any, wanted: int, now: int) -> None:
    g.cta.machine.findings.add(
        "register-count",
        bind.at,
        f"{bind.at.opcode} {wanted} in a warpgroup that has {now} registers a thread",
        missing="a multiple of 8 from 24 to 256; .dec at most, .inc at least what the warps have",
        where=where(g),
    )
