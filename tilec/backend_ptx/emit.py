"""PTX text of a module at level ``ptx`` whose copies are placed.

Idea: emission spells what the IR says. Straight-line ops are their steps; a loop is a label and a
branch, an ``if`` skips, and a cold body stands behind the kernel's ``ret``.

Invariants: the same module gives the same bytes; every change of source place gives a ``.loc``,
every change of source line a comment with its text.

Never: takes a decision, or reorders anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any, TypeVar

from tilec.backend_ptx.parameters import parameters
from tilec.backend_ptx.registers import PREFIXES, allocate
from tilec.backend_ptx.steps import Step, is_silent, walk
from tilec.backend_ptx.templates import DONE
from tilec.ir.core import Kernel, Loc, Module, Op, Region
from tilec.ir.levels import ptx
from tilec.source import SourceFile
from tilec.targets import by_name


def emit(module: Module) -> str:
    """The module as PTX text."""
    target = by_name(module.target)
    lines = [
        f".version {target.ptx_version}",
        f".target {target.name}",
        ".address_size 64",
        "",
        ".extern .shared .align 1024 .b8 smem[];",
    ]
    for kernel in module.kernels:
        lines += ["", *_Writer(kernel, module.source).kernel()]
    if module.source is not None:
        name = module.source.name.replace("\\", "/").replace('"', "'")
        lines += ["", f'.file 1 "{name}"']
    return "\n".join(lines) + "\n"


class _Writer:
    """Appends the lines of one kernel."""

    def __init__(self, kernel: Kernel, source: SourceFile | None) -> None:
        self.entry, self.source = kernel, source
        self.registers = allocate(kernel)
        self.at = self.registers.program.at
        self.lines: list[str] = []
        self.cold: list[Callable[[], None]] = []
        self.loc: Loc | None = None

    def kernel(self) -> list[str]:
        """The whole entry."""
        self.region(self.entry.body)
        self.put("ret")
        while self.cold:
            self.cold.pop(0)()
        return [*self._head(), *self._declarations(), *self.lines, "}"]

    def _head(self) -> list[str]:
        listed = ",\n".join(f"  {p.declaration}" for p in parameters(self.entry))
        # Without a known thread count ptxas ignores setmaxnreg (C7508), and registers a thread at
        # entry follow from one CTA an SM.
        limits = f".maxntid {self.entry.attributes['threads']},1,1"
        if any(isinstance(op, ptx.SetMaxRegisters) for op in walk(self.entry.body)):
            limits += " .minnctapersm 1"
        if "cluster" in self.entry.attributes:
            limits += f" .explicitcluster .reqnctapercluster {self.entry.attributes['cluster']},1,1"
        opening = f"(\n{listed}\n)" if listed else "()"
        return [f".visible .entry {self.entry.name}{opening} {limits}", "{"]

    def _declarations(self) -> list[str]:
        counts = self.registers.counts
        lines = [f"  .reg .{k} {PREFIXES[k]}<{n}>;" for k, n in counts.items() if n]
        if any(isinstance(op, ptx.MbarrierWait) for op in walk(self.entry.body)):
            lines.insert(0, f"  .reg .pred {DONE};")
        return lines

    def region(self, region: Region) -> None:
        """All ops of a region."""
        for op in region.ops:
            if op.is_terminator:
                continue
            structure = _STRUCTURES.get(type(op))
            if structure:
                structure(op, self)
            else:
                for step in self.registers.program.steps(op):
                    self.step(op, step)

    def step(self, op: Op, step: Step) -> None:
        """One step of an op."""
        names = self.registers.names
        self.place(op.loc)
        self.put("".join(names[p] if isinstance(p, int) else p for p in step.text))

    def put(self, text: str) -> None:
        """One line; labels stand at the margin."""
        self.lines.append(text if text.endswith(":") else f"  {text};")

    def place(self, loc: Loc | None) -> None:
        """Say where in the source the next line comes from, if that changed."""
        if loc is None or self.source is None or loc == self.loc:
            return
        if self.loc is None or loc.line != self.loc.line:
            text = f"{PurePath(self.source.name).name}:{loc.line}: {self.source.line(loc.line)}"
            clean = " ".join(text.split()).rstrip("\\").encode("ascii", "backslashreplace")
            self.lines.append(f"  // {clean.decode('ascii')}")
        self.lines.append(f"  .loc 1 {loc.line} {loc.column}")
        self.loc = loc


Structure = Callable[[Any, _Writer], None]
S = TypeVar("S", bound=Structure)
_STRUCTURES: dict[type[Op], Structure] = {}


def _structure(op: type[Op]) -> Callable[[S], S]:
    def declare(function: S) -> S:
        _STRUCTURES[op] = function
        return function

    return declare


def _branch(op: Op, condition: Any, sense: str, label: str, to: _Writer) -> None:
    (register,) = to.at(condition)
    to.step(op, Step((f"@{sense}", register, f" bra {label}")))


@_structure(ptx.Loop)
def _loop(op: ptx.Loop, to: _Writer) -> None:
    label = f"$loop_{to.at.label('loop')}"
    to.put(f"{label}:")
    # What to unroll was decided before; ptxas would undo it.
    to.put('.pragma "nounroll"')
    to.region(op.body)
    _branch(op, op.body.ops[-1].operands[0], "", label, to)


@_structure(ptx.If)
def _if(op: ptx.If, to: _Writer) -> None:
    number = to.at.label("if")
    end = f"$end_{number}"
    if op.cold:
        _cold(op, number, end, to)
    elif is_silent(op.otherwise):
        if is_silent(op.then):
            return
        _branch(op, op.condition, "!", end, to)
        to.region(op.then)
    elif is_silent(op.then):
        _branch(op, op.condition, "", end, to)
        to.region(op.otherwise)
    else:
        _branch(op, op.condition, "!", f"$else_{number}", to)
        to.region(op.then)
        to.put(f"bra {end}")
        to.put(f"$else_{number}:")
        to.region(op.otherwise)
    to.put(f"{end}:")


def _cold(op: ptx.If, number: int, end: str, to: _Writer) -> None:
    def place() -> None:
        to.put(f"$cold_{number}:")
        to.region(op.then)
        to.put(f"bra {end}")

    _branch(op, op.condition, "", f"$cold_{number}", to)
    to.region(op.otherwise)
    to.cold.append(place)
