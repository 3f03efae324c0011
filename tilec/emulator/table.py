"""The instruction table: one row an instruction, found by opcode.

A row says which opcodes it stands for, how to make a step for an instruction, and what an analysis
may ask of it: its memory effect, its proxy and the group that its work joins. A step is a function
of a gang; it returns None to go on with the next instruction, or the instruction to go on with, or
a `Block` that says what the gang waits for.

Rows are declared where their meaning is, in the modules of ``instructions``; adding an instruction
is adding a row. What no row stands for is an error with its line.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from tilec.emulator.gang import ACCUMULATING, EMPTY, FULL, MULTIPLIED, PARTIAL, VIEWS, Gang, Lanes
from tilec.emulator.parse import ptx_error
from tilec.emulator.program import (
    WIDTH,
    Instruction,
    Not,
    Number,
    Operand,
    Program,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from tilec.source import SourceFile

if TYPE_CHECKING:
    from tilec.emulator.machine import Machine


@dataclass
class Block:
    """Why a gang cannot go on, and when it can."""

    what: str
    """In words, for reports of deadlocks."""
    ready: Callable[[], bool]
    key: Any = None
    """The barrier that it waits for."""


EXIT = -1
Result = int | Block | None
Step = Callable[[Gang], Result]
Read = Callable[[Gang], Any]
Write = Callable[[Gang, Any], None]


@dataclass(frozen=True)
class Row:
    """One instruction: an opcode without the parts that its ``build`` reads itself."""

    opcode: str
    build: Callable[[Bind], Step]
    effect: str = "none"
    """none, reads, writes, orders."""
    proxy: str = "generic"
    group: str = ""
    """The asynchronous group that its work joins: wgmma, bulk, cp.async, mbarrier."""


ROWS: dict[str, Row] = {}


def row(
    *opcodes: str, effect: str = "none", proxy: str = "generic", group: str = ""
) -> Callable[[Callable[[Bind], Step]], Callable[[Bind], Step]]:
    """Declare rows; an opcode is the leading parts of a mnemonic, the longest match counts."""

    def declare(build: Callable[[Bind], Step]) -> Callable[[Bind], Step]:
        for opcode in opcodes:
            if opcode in ROWS:
                raise ValueError(f"two rows for {opcode}")
            ROWS[opcode] = Row(opcode, build, effect, proxy, group)
        return build

    return declare


def load_rows() -> None:
    """Import every family of ``instructions``; each declares its rows."""
    from tilec.emulator import instructions

    for family in pkgutil.iter_modules(instructions.__path__):
        import_module(f"{instructions.__name__}.{family.name}")


def find(instruction: Instruction) -> Row | None:
    """The row with the longest opcode that the instruction begins with."""
    parts = instruction.parts
    for length in range(len(parts), 0, -1):
        found = ROWS.get(".".join(parts[:length]))
        if found is not None:
            return found
    return None


@dataclass
class Bind:
    """An instruction being bound: readers and writers of its operands, and what it says of itself.

    Readers give arrays of one element a lane (or a NumPy scalar for immediates); writers store
    for active lanes only. Both keep the registers' states.
    """

    machine: Machine
    program: Program
    source: SourceFile
    at: Instruction
    row: Row
    number: int = 0
    """The instruction's place in the program."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The instruction's operands."""
        return self.at.operands

    @property
    def modifiers(self) -> frozenset[str]:
        """The parts of the opcode behind the row's own."""
        return frozenset(self.at.parts[self.row.opcode.count(".") + 1 :])

    def types(self) -> list[str]:
        """The parts of the opcode that are types, in order."""
        return [part for part in self.at.parts if part in WIDTH]

    def fail(self, message: str) -> Exception:
        """The instruction is beyond the emulator, or no PTX."""
        return ptx_error(self.source, self.at.line, f"{self.at.opcode}: {message}")

    # --- operands ----------------------------------------------------------------------------

    def read(self, operand: Operand, type: str) -> Read:
        """A reader of an operand as a PTX type."""
        bank, kind = VIEWS[type]
        match operand:
            case Register():
                if operand.bank != bank:
                    raise self.fail(f"{operand.name} is .{operand.type}, .{type} is needed")
                return self._register(operand, type)
            case Not(of=inner):
                of = self._register(inner, "pred")
                return lambda g: ~of(g)
            case Number():
                value = self.immediate(operand, type)
                return lambda g: value
            case Special():
                return self.machine.special(operand.name, kind)
            case Symbol():
                address = self.machine.address_of(self, operand.name)
                constant = np.asarray(address).astype(kind)[()]
                return lambda g: constant
        raise self.fail(f"an operand of this form is beyond the emulator: {operand}")

    def _register(self, register: Register, type: str) -> Read:
        row, bank, at = register.row, register.bank, self.at

        def read(g: Gang) -> Any:
            if g.states[bank][row] != FULL:
                check_read(g, at, register)
            return g.views[type][row]

        def read_of_product(g: Gang) -> Any:
            g.fresh[row] = 1
            return read(g)

        return read_of_product if self._of_product(register) else read

    def _of_product(self, register: Register) -> bool:
        """Whether wgmma uses the register: a fence orders other accesses with it."""
        return register.bank == "b32" and register.row in self.machine.product_rows

    def write(self, operand: Operand, type: str) -> Write:
        """A writer of an operand as a PTX type."""
        if isinstance(operand, Sink):
            return lambda g, value: None
        if not isinstance(operand, Register):
            raise self.fail(f"a result needs a register, not {operand}")
        row, bank, at = operand.row, operand.bank, self.at
        fresh = self._of_product(operand)
        if VIEWS[type][0] != bank:
            raise self.fail(f"{operand.name} is .{operand.type}, .{type} is written")

        def write(g: Gang, value: Any) -> None:
            states = g.states[bank]
            if states[row] >= ACCUMULATING:
                check_write(g, at, operand)
            if fresh:
                g.fresh[row] = 1
            if g.mask is None:
                g.views[type][row] = value
                states[row] = FULL
                return
            np.copyto(g.views[type][row], value, where=g.mask, casting="unsafe")
            if states[row] != FULL:
                mark_partial(g, operand)

        return write

    def many(self, operand: Operand) -> tuple[Operand, ...]:
        """The parts of a vector operand, or the operand alone."""
        return operand.items if isinstance(operand, Vector) else (operand,)

    def whole(self, operand: Operand, what: str) -> int:
        """The integer that an immediate operand is; ``what`` it stands for, for the error."""
        if not isinstance(operand, Number):
            raise self.fail(f"{what} is an immediate")
        return operand.value

    def immediate(self, operand: Number, type: str) -> Any:
        """An immediate as a NumPy scalar of a PTX type."""
        kind = np.dtype(VIEWS[type][1])
        if operand.float_bits:
            wide = np.array(operand.value, f"u{operand.float_bits // 8}").view(
                f"f{operand.float_bits // 8}"
            )
            return np.asarray(wide if kind.kind == "f" else operand.value).astype(kind)[()]
        if kind.kind == "f":
            return np.asarray(operand.value, kind)[()]
        if kind.kind == "b":
            return np.bool_(operand.value)
        bits = operand.value & ((1 << 8 * kind.itemsize) - 1)
        return np.array(bits, f"u{kind.itemsize}").view(kind)[()]


def check_read(g: Gang, at: Instruction, register: Register) -> None:
    """A register that is not full is read: whether that is a fault."""
    state = g.states[register.bank][register.row]
    findings = g.cta.machine.findings
    if state == MULTIPLIED:
        return
    if state == ACCUMULATING:
        owner = g.owners.get((register.bank, register.row))
        findings.add(
            "accumulator-in-flight",
            at,
            f"{register.name} is read while a product that accumulates in it is in flight",
            other=owner.at if owner is not None else None,
            missing="a wgmma.wait_group that covers the product, before this",
            where=where(g),
        )
        return
    valid = g.valid.get((register.bank, register.row))
    unset = g.active() if state == EMPTY or valid is None else g.active() & ~valid
    if state == PARTIAL and not unset.any():
        return
    findings.add(
        "uninitialised-register",
        at,
        f"{register.name} is read in {int(unset.sum())} lanes that never wrote it",
        missing="a write on every way to this instruction",
        where=where(g),
    )
    if state == EMPTY:
        g.states[register.bank][register.row] = FULL  # said once


def check_write(g: Gang, at: Instruction, register: Register) -> None:
    """A register that a product owns is written."""
    owner = g.owners.get((register.bank, register.row))
    g.cta.machine.findings.add(
        "operand-in-flight",
        at,
        f"{register.name} is written while a product that uses it is in flight",
        other=owner.at if owner is not None else None,
        missing="a wgmma.wait_group that covers the product, before this",
        where=where(g),
    )


def mark_partial(g: Gang, register: Register) -> None:
    """Some lanes of a register have a value now."""
    key = (register.bank, register.row)
    valid = g.valid.get(key)
    valid = g.active().copy() if valid is None else valid | g.active()
    g.valid[key] = valid
    g.states[register.bank][register.row] = FULL if valid.all() else PARTIAL


def where(g: Gang) -> str:
    """Which warps of which CTA."""
    first, last = int(g.warps.min()), int(g.warps.max())
    warps = f"warp {first}" if first == last else f"warps {first}-{last}"
    return f"CTA {g.cta.index}, {warps}"


def lanes_of(value: Any, g: Gang) -> Lanes:
    """A reader's value as one element a lane."""
    return np.broadcast_to(value, (g.lanes,))
