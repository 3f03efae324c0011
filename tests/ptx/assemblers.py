"""The ptxas programs that this machine has: the one on the path and the one of the wheel."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

import pytest

from tilec.backend_ptx.assemble import Assembled, assemble, find_tool


@cache
def assemblers() -> list[Path]:
    """Each ptxas once; releases differ in what they accept and what they warn of."""
    found = [find_tool("ptxas")]
    found += [Path(entry) / "nvidia" / "cu13" / "bin" / "ptxas" for entry in sys.path if entry]
    return list(dict.fromkeys(p.resolve() for p in found if p and os.access(p, os.X_OK)))


def assemble_cleanly(text: str, target: str = "sm_90a") -> list[Assembled]:
    """Assemble with every ptxas there is; no advisory of lost speed and no spill is accepted."""
    if not assemblers():
        pytest.skip("ptxas is not installed")
    done = [assemble(text, target, ptxas=ptxas) for ptxas in assemblers()]
    for assembled in done:
        assert not assembled.losses, assembled.log
        assert assembled.spill_bytes == 0, assembled.log
    return done


def assembled_for(text: str, target: str) -> None:
    """Assemble with every ptxas there is, if there is one; advice about speed is left aside."""
    for ptxas in assemblers():
        assemble(text, target, ptxas=ptxas)
