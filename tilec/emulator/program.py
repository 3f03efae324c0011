"""A PTX kernel as the emulator runs it: instructions with resolved registers, labels and places.

Registers live in banks by width; a register is a bank and a row in it. ``.f32`` and ``.b32``
registers share the 32-bit bank and differ in how instructions read them, as the hardware has it.

Invariants: every label leads to an instruction or to the end; every register that an instruction
names is declared; nothing here knows what an opcode does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BANKS = ("pred", "b16", "b32", "b64", "b128")
_BANK_OF = {
    "pred": "pred",
    **dict.fromkeys(("b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16"), "b16"),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2"), "b32"),
    **dict.fromkeys(("b64", "u64", "s64", "f64"), "b64"),
    "b128": "b128",
}
WIDTH = {"b8": 1, "u8": 1, "s8": 1, "pred": 1}
WIDTH |= dict.fromkeys(("b16", "u16", "s16", "f16", "bf16"), 2)
WIDTH |= dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2"), 4)
WIDTH |= dict.fromkeys(("b64", "u64", "s64", "f64"), 8)
WIDTH["b128"] = 16
"""Bytes of each PTX type (PTX ISA 5.2.1)."""


def bank_of(type: str) -> str:
    """The bank that holds registers of a PTX type (without the dot); ``KeyError`` for others."""
    return _BANK_OF[type]


@dataclass(frozen=True, slots=True)
class Register:
    """A declared register: its bank and its row there."""

    name: str
    type: str
    bank: str
    row: int


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only special register such as ``%tid.x``."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """An immediate: an integer, or the bits of a float with its width in bits (0 for integers)."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or a parameter, or a label."""

    name: str


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that nobody wants."""


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a predicate."""

    of: Register


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``d|p``: two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``, or ``[map, {coordinates}]`` of a tensor."""

    base: Operand
    offset: int = 0
    coordinates: Vector | None = None


Operand = Register | Special | Number | Symbol | Sink | Not | Vector | Pair | Address


@dataclass(frozen=True, slots=True)
class Source:
    """A place in the program that the PTX came from."""

    file: int
    line: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; ``parts`` is the opcode split at its dots."""

    opcode: str
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    guard_negated: bool
    line: int
    source: Source | None

    def __str__(self) -> str:
        """The opcode and its line."""
        return f"{self.opcode} (line {self.line})"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter: ``count`` elements of ``type`` at ``offset`` of the parameter space."""

    name: str
    type: str
    count: int
    align: int
    offset: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return WIDTH[self.type] * self.count


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in shared memory; a dynamic one has no size of its own."""

    name: str
    align: int
    offset: int
    bytes: int
    dynamic: bool


@dataclass
class Program:
    """One kernel."""

    name: str
    target: str
    parameters: tuple[Parameter, ...]
    variables: dict[str, Variable]
    registers: dict[str, int]
    """Rows of each bank."""
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    """A label's instruction; the number of instructions for the end."""
    max_threads: tuple[int, int, int]
    min_ctas: int
    files: dict[int, str] = field(default_factory=dict)
    cluster: tuple[int, int, int] = (1, 1, 1)
    """CTAs of a cluster along each axis of the grid."""

    @property
    def static_shared(self) -> int:
        """Bytes of shared memory that are declared; dynamic memory begins after them."""
        return max((v.offset + v.bytes for v in self.variables.values()), default=0)
