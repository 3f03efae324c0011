"""Which registers of a kernel must differ, before any of them share.

Idea: programs are structured, so one backward walk is enough: what a loop reads from outside is
live throughout it. A register conflicts with all that is live where it is written; the relation is
kept in that one direction, and a set of registers is the bits of one integer.

Never: knows why two values would like to share a register.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilec.backend_ptx.steps import Registers, Step, bodies, steps_of
from tilec.ir.core import Kernel, Op, Region
from tilec.ir.levels import ptx


def bits(registers: Iterable[int]) -> int:
    """The set as an integer."""
    found = 0
    for register in registers:
        found |= 1 << register
    return found


class Program:
    """A kernel's registers and steps, expanded once, with what each step touches."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.at = Registers(kernel)
        self._steps: dict[Op, list[Step]] = {}
        self._touched: dict[Op, list[tuple[int, int, int]]] = {}

    def steps(self, op: Op) -> list[Step]:
        """The steps of a straight-line op."""
        if op not in self._steps:
            self._steps[op] = steps_of(op, self.at)
        return self._steps[op]

    def touched(self, op: Op) -> list[tuple[int, int, int]]:
        """For each step the registers read, written, and read after writing has begun."""
        if op not in self._touched:
            self._touched[op] = [
                (bits(step.reads()), bits(step.writes), bits(step.late)) for step in self.steps(op)
            ]
        return self._touched[op]

    def changed(self, op: Op) -> None:
        """Note that an op has other operands than before."""
        self._steps.pop(op, None)
        self._touched.pop(op, None)


class Liveness:
    """``conflicts[r]``: the registers that are live where ``r`` is written."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.at = program.at
        self.conflicts = [0] * len(self.at.kinds)
        self._outer: dict[Op, int] = {}
        self._find_outer(program.kernel.body)
        self._region(program.kernel.body, 0)

    def _values(self, op: Op | None, skip: int = 0) -> int:
        return bits(r for v in (op.operands[skip:] if op else ()) for r in self.at.owned(v))

    def _find_outer(self, region: Region) -> tuple[int, int]:
        """Registers read and written in a region; records what each loop reads from outside."""
        reads = writes = 0
        for op in region.ops:
            if isinstance(op, ptx.Loop | ptx.If):
                inner_reads = inner_writes = 0
                for nested in bodies(op):
                    r, w = self._find_outer(nested)
                    inner_reads |= r
                    inner_writes |= w | bits(x for a in nested.args for x in self.at.owned(a))
                self._outer[op] = inner_reads & ~inner_writes
                reads |= self._values(op) | inner_reads
                writes |= inner_writes | bits(x for v in op.results for x in self.at.owned(v))
            elif op.is_terminator:
                reads |= self._values(op)
            else:
                for read, written, _ in self.program.touched(op):
                    reads |= read
                    writes |= written
        return reads, writes

    def _define(self, registers: Iterable[int], live: int) -> None:
        for register in registers:
            self.conflicts[register] |= live

    def _enter(self, registers: list[int], live: int) -> None:
        """Values that are handed over together differ, needed or not: each is given its own."""
        self._define(registers, live | bits(registers))

    def _region(self, region: Region, live: int) -> int:
        """Walk backwards from what is live at the end to what is live at the start."""
        for op in reversed(region.ops):
            if isinstance(op, ptx.Loop):
                live = self._loop(op, live)
            elif isinstance(op, ptx.If):
                results = [r for v in op.results for r in self.at.owned(v)]
                self._enter(results, live)
                live &= ~bits(results)
                ends = [live | self._values(body.terminator) for body in bodies(op)]
                starts = [self._region(b, e) for b, e in zip(bodies(op), ends, strict=True)]
                live = starts[0] | starts[1] | bits(self.at.owned(op.condition))
            elif not op.is_terminator:
                steps, touched = self.program.steps(op), self.program.touched(op)
                for step, (read, written, late) in zip(
                    reversed(steps), reversed(touched), strict=True
                ):
                    self._define(step.writes, live | late)
                    live = (live & ~written) | read
        return live

    def _loop(self, op: ptx.Loop, live: int) -> int:
        results = [r for v in op.results for r in self.at.owned(v)]
        self._enter(results, live)
        throughout = (live & ~bits(results)) | self._outer[op]
        start = self._region(op.body, throughout | self._values(op.body.terminator))
        arguments = [r for a in op.body.args for r in self.at.owned(a)]
        self._enter(arguments, start)
        return throughout | (start & ~bits(arguments)) | self._values(op)
