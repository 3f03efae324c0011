"""A failing program with lines taken out while it goes on to fail in the same way."""

from __future__ import annotations

import re
import time
from dataclasses import replace

from tests.fuzz.programs import Program
from tests.fuzz.trials import attempt

_LIMIT_S = 20.0


def kind(failure: str) -> str:
    """What two failures of one cause have in common: the words, without names and numbers."""
    return re.sub(r"`[^`]*`|\w*\d[\w.]*|[\[\](), #-]+", "#", failure.split(" (line")[0])


def shrunk(program: Program) -> Program:
    """The program with as few lines as a while of deleting leaves."""
    wanted = kind(attempt(program).failure)
    lines, until = program.text.splitlines(), time.monotonic() + _LIMIT_S
    size = max(1, len(lines) // 2)
    while wanted and size and time.monotonic() < until:
        at = 0
        while at < len(lines) and time.monotonic() < until:
            fewer = lines[:at] + lines[at + size :]
            tried = replace(program, text="\n".join(fewer) + "\n")
            if kind(attempt(tried).failure) == wanted:
                lines = fewer
            else:
                at += size
        size //= 2
    return replace(program, text="\n".join(lines) + "\n")
