"""What the assembler said, as diagnostics on the lines of the program.

ptxas and the driver's JIT speak about lines of PTX, and often about none; a PTX line is taken back
to the ``.tk`` line whose ``.loc`` stands before it. Only losses are findings: spilled registers,
serialised products, an ignored register count.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

from tilec.backend_ptx.assembler_log import AssemblerNote
from tilec.compiler import Compiled, at_line
from tilec.diagnostics import Diagnostic, render

_LOC = re.compile(r"^\s*\.loc\s+\d+\s+(\d+)\s+\d+")


class AssemblerWarning(UserWarning):
    """A compiled kernel is right, and slower than it should be."""


def source_line(ptx: str, line: int) -> int:
    """The ``.tk`` line of a PTX line; 0 when unknown."""
    for text in reversed(ptx.splitlines()[:line]):
        found = _LOC.match(text)
        if found:
            return int(found[1])
    return 0


def findings(compiled: Compiled, notes: Sequence[AssemblerNote]) -> list[Diagnostic]:
    """One warning a loss."""
    made = []
    for note in notes:
        if note.kind == "spills" and note.value:
            help_text = "pin fewer warpgroups' worth of tile: --schedule tiles.NAME=..."
            message = (
                f"{note.kernel or compiled.name} spills {note.value} bytes of registers a thread"
            )
            made.append(Diagnostic("spills", message, help=help_text, severity="warning"))
        elif note.is_loss:
            labels, place = [], []
            if note.line is not None:
                place = [f"at line {note.line} of the PTX"]
                labels = at_line(compiled.module, source_line(compiled.ptx, note.line), "made here")
            code = f" ({note.code})" if note.code else ""
            message = f"the assembler gives up speed: {note.text}{code}"
            made.append(Diagnostic("assembler-loss", message, labels, place, severity="warning"))
    return made


def warn(compiled: Compiled, notes: Sequence[AssemblerNote]) -> None:
    """Report losses as a Python warning."""
    found = findings(compiled, notes)
    if found:
        warnings.warn(AssemblerWarning(render(found)), stacklevel=4)
