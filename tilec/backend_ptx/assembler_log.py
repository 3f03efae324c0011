"""What ptxas says, read into records.

Idea: ptxas on the command line and the driver's JIT are one assembler and write one kind of log, so
one reader serves both.  The wording was recorded from ptxas 13.0.88 and 13.5.37.

Invariants: notes keep the log's order; a line that says nothing about a kernel gives no note.

Never: judges a note beyond `AssemblerNote.is_loss`, or touches CUDA.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class AssemblerNote:
    """One thing that ptxas (or the driver's JIT, which is the same program) said.

    `kind` is registers, spills, advisory, warning or error.  `value` is the register count, or the
    bytes of spill stores plus loads a thread.  `line` is a line of the PTX text.
    """

    kind: str
    text: str
    kernel: str | None = None
    line: int | None = None
    code: str | None = None
    value: int = 0

    @property
    def is_loss(self) -> bool:
        """An advisory that means slower code: serialised wgmma or an ignored setmaxnreg."""
        # C7517 and C7519 (an inserted wait or fence) cost one instruction and change nothing.
        return self.kind == "advisory" and "Potential Performance Loss" in self.text


_COMPILING = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?([^'\s]+)'?")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_CODE = re.compile(r"\((C\d+)\)\s*(.*)")
_FUNCTION = re.compile(r"(?:in|in the|for) (?:entry )?function '([^']+)'")
_AROUND = re.compile(r"(?:around|at|near) line (\d+)")
_PLACE = re.compile(r"line (\d+)(?:,[^;]*)?; (error|warning|fatal)\s*:\s*(.*)")
_SEVERITY = re.compile(r"^(?:ptxas|nvlink)?\s*\b(error|fatal|warning)\b\s*:\s*(.*)")


def parse_assembler_log(text: str) -> list[AssemblerNote]:
    """The notes in a ptxas stderr or in a driver JIT log, in the order they were written."""
    notes: list[AssemblerNote] = []
    kernel: str | None = None
    for raw in text.replace("\0", "").splitlines():
        line = raw.strip()
        if found := _PLACE.search(line):
            kind = "warning" if found[2] == "warning" else "error"
            code, words = _split_code(found[3])
            notes.append(AssemblerNote(kind, words, _named(line), int(found[1]), code))
        elif found := _CODE.search(line):
            around = _AROUND.search(line)
            kind = "error" if re.search(r"\b(error|fatal)\b\s*:", line) else "advisory"
            notes.append(
                AssemblerNote(
                    kind, found[2], _named(line), int(around[1]) if around else None, found[1]
                )
            )
        elif found := _SEVERITY.search(line):
            kind = "warning" if found[1] == "warning" else "error"
            notes.append(AssemblerNote(kind, found[2], _named(line)))
        elif (found := _COMPILING.search(line)) or (found := _PROPERTIES.search(line)):
            kernel = found[1]
        elif found := _SPILLS.search(line):
            spilled = int(found[2]) + int(found[3])
            notes.append(AssemblerNote("spills", line, kernel, value=spilled))
        elif found := _REGISTERS.search(line):
            words = line.split(":", 1)[-1].strip()
            notes.append(AssemblerNote("registers", words, kernel, value=int(found[1])))
    return notes


def _split_code(words: str) -> tuple[str | None, str]:
    found = _CODE.match(words)
    return (found[1], found[2]) if found else (None, words)


def _named(line: str) -> str | None:
    found = _FUNCTION.search(line)
    return found[1] if found else None
