"""What is wrong with a run: one record a fault, with both sides of it and what is missing.

A finding names its class (``docs/emulator.md`` lists them), the PTX line, the line of the program
it came from, the other party where there is one, and in words what would have made it right. The
same fault at the same lines is recorded once and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilec.emulator.program import Instruction, Program


@dataclass
class Finding:
    """One fault of the program that was run."""

    kind: str
    message: str
    line: int
    """The PTX line of the instruction at which it showed."""
    source: tuple[str, int] | None = None
    """File and line of the program that the PTX came from."""
    other_line: int | None = None
    other_source: tuple[str, int] | None = None
    missing: str = ""
    """What would have made it right."""
    where: str = ""
    """CTA, warps and lanes."""
    count: int = 1
    details: tuple[tuple[str, Any], ...] = ()


@dataclass
class Findings:
    """All faults of a run, each once."""

    program: Program
    found: dict[tuple[Any, ...], Finding] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        at: Instruction,
        message: str,
        *,
        other: Instruction | None = None,
        missing: str = "",
        where: str = "",
        details: tuple[tuple[str, Any], ...] = (),
    ) -> None:
        """Record a fault, or count it again."""
        key = (kind, at.line, other.line if other else None)
        if key in self.found:
            self.found[key].count += 1
            return
        self.found[key] = Finding(
            kind,
            message,
            at.line,
            self.place(at),
            other.line if other else None,
            self.place(other) if other else None,
            missing,
            where,
            details=details,
        )

    def place(self, at: Instruction) -> tuple[str, int] | None:
        """The source file and line of an instruction."""
        if at.source is None:
            return None
        return self.program.files.get(at.source.file, f"file {at.source.file}"), at.source.line

    def __iter__(self) -> Any:
        """In the order in which they showed."""
        return iter(self.found.values())

    def __len__(self) -> int:
        """How many different ones."""
        return len(self.found)
