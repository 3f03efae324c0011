"""Instructions that ``ptx(...)`` may hold: their shapes, register classes, and what is checked.

A program is a tuple of steps ``(opcode, guard, written, read)``. A register is a number: results
first, then operands, then locals. Read may also be a literal ``(value,)`` or several registers
that ``mov`` packs; written may be several that it unpacks. The guard is -1, or p for a step that
happens where register p holds, or -2 - p where it does not.

Every instruction computes one register from registers: nothing here branches, waits, calls, or
touches memory. What the table does not have cannot be verified and is refused. As in PTX, a
register has a size and a sort (float, integer, or bits, which are both), and an instruction takes
registers of its own type's class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.ir.types import DType

Step = tuple[str, int, tuple[int, ...], tuple[Any, ...]]


@dataclass(frozen=True)
class Class:
    """What a register holds: its size in bits, and f, i, a 16-bit float, or b for any of these."""

    bits: int
    sort: str

    def takes(self, other: Class) -> bool:
        """Whether an instruction of this class may read or write a register of the other."""
        return self.bits == other.bits and (
            self.sort == other.sort or "b" in self.sort + other.sort
        )

    def __str__(self) -> str:
        """In words."""
        if self.bits == 1:
            return "a predicate"
        sorts = {"f": "a float", "i": "an integer", "b": "bits"}
        return f"{sorts.get(self.sort, self.sort)} of {self.bits} bits"


PREDICATE = Class(1, "p")
_AMOUNT = Class(32, "i")
_CLASSES = {
    "pred": PREDICATE,
    **{f"{k}{n}": Class(n, "b" if k == "b" else "i") for k in "bsu" for n in (16, 32, 64)},
    **{f"f{n}": Class(n, "f") for n in (32, 64)},
    "f16": Class(16, "f16"), "bf16": Class(16, "bf16"), "tf32": Class(32, "b"),
    "f16x2": Class(32, "b"), "bf16x2": Class(32, "b"),
    "e4m3x2": Class(16, "b"), "e5m2x2": Class(16, "b"),
}  # fmt: skip
LOCALS = tuple(name for name in _CLASSES if "x" not in name and name not in ("tf32", "f16", "bf16"))
"""Types of registers that a program may declare."""

# One letter a register, the written one first: T of the instruction's type, D and S of the first
# and second of two types, W twice as wide as T, I an amount of 32 bits, P a predicate.
_SHAPES = {
    "T:T": "abs brev cnot cos ex2 lg2 mov neg not rcp rsqrt sin sqrt tanh",
    "T:TT": "add and copysign div max min mul mul24 or rem sub xor",
    "T:TTT": "fma mad mad24 sad",
    "T:TI": "shl shr szext",
    "T:TII": "bfe",
    "T:II": "bmsk",
    "T:TTII": "bfi",
    "T:TTI": "prmt shf",
    "T:TTTI": "lop3",
    "T:TTP": "selp",
    "P:TT": "setp",
    "P:T": "testp",
    "I:T": "bfind clz popc",
    "D:S": "cvt",
    "D:SS": "set",
    "D:DDS": "slct",
    "I:III": "dp4a",
}
INSTRUCTIONS = {name: shape for shape, names in _SHAPES.items() for name in names.split()}
_MODIFIERS = """
    rn rz rm rp rna rni rzi rmi rpi ftz sat satfinite relu approx full lo hi wide NaN
    xorsign abs l r clamp wrap shiftamt eq ne lt le gt ge ls hs equ neu ltu leu gtu geu
    num nan b4e f4e rc8 ecl ecr rc16 finite infinite number notanumber normal subnormal
"""
MODIFIERS = frozenset(_MODIFIERS.split())


def class_of(dtype: DType) -> Class | None:
    """The register class of an element; None where elements have no register of their own."""
    if dtype.kind == "bool":
        return PREDICATE
    return _CLASSES.get(dtype.name) if dtype.bits >= 16 and dtype.name != "tf32" else None


def local_class(name: str) -> Class:
    """The class of a declared register."""
    return _CLASSES[name]


class BadStep(Exception):
    """An instruction that cannot be verified: why, the wrong word if one is, what to write."""

    def __init__(
        self, reason: str, word: str = "", known: Iterable[str] = (), help: str = ""
    ) -> None:
        super().__init__(reason)
        self.word, self.known, self.help = word, tuple(known), help


def signature(opcode: str) -> tuple[Class, tuple[Class, ...]]:
    """The class that an instruction writes, and those that it reads; raises ``BadStep``."""
    name, *parts = opcode.split(".")
    if name not in INSTRUCTIONS:
        raise BadStep(f"`{name}` is no instruction that computes on registers", name, INSTRUCTIONS)
    types = [part for part in parts if part in _CLASSES]
    for part in parts:
        if part not in _CLASSES and part not in MODIFIERS:
            raise BadStep(f"`.{part}` is not known", part, [*_CLASSES, *MODIFIERS])
    written, read = INSTRUCTIONS[name].split(":")
    if name == "cvt" and len(types) == 2 and types[0].endswith("x2") and types[1] == "f32":
        read = "SS"
    if name == "dp4a":
        types = types or ["b32"]
    elif len(types) != (2 if "D" in written else 1):
        wanted = "two types" if "D" in written else "one type"
        raise BadStep(
            f"`{name}` names {wanted}, as `.f32` is one", opcode, help=f"as in `{name}.f32`"
        )
    if "wide" in parts:
        written, read = "W", read[:-1] + "W" if name == "mad" else read
    first, last = _CLASSES[types[0]], _CLASSES[types[-1]]
    if "W" in written and (first.sort != "i" or first.bits > 32):
        raise BadStep(f"`{opcode}` widens integers of 16 or 32 bits", opcode)
    letters = {
        "T": last, "D": first, "S": last, "I": _AMOUNT, "P": PREDICATE,
        "W": Class(2 * first.bits, "i"),
    }  # fmt: skip
    return letters[written], tuple(letters[c] for c in read)


def check_step(step: Step, classes: Sequence[Class], results: int, operands: int) -> None:
    """Raise ``BadStep`` unless the registers of one step fit its instruction."""
    opcode, guard, written, read = step
    out, inputs = signature(opcode)
    if len(written) > 1 or any(isinstance(r, tuple) and len(r) > 1 for r in read):
        _check_packing(step, classes, out)
    elif len(read) != len(inputs):
        reads = ", ".join(str(want) for want in inputs)
        raise BadStep(
            f"`{opcode}` reads {len(inputs)} values, {len(read)} are given",
            opcode,
            help=f"after its result it reads {reads}",
        )
    else:
        for want, given in zip((out, *inputs), (*written, *read), strict=True):
            _check_one(opcode, want, given, classes)
    if guard != -1:
        if classes[guard if guard >= 0 else -2 - guard] != PREDICATE:
            raise BadStep("a guard is a predicate", opcode)
        if out == PREDICATE or len(written) > 1:
            raise BadStep("a guarded instruction writes one register that is no predicate", opcode)
    for place in written:
        if results <= place < results + operands:
            raise BadStep(f"an operand, {{{place}}}, is written", opcode)


def _check_one(opcode: str, want: Class, given: Any, classes: Sequence[Class]) -> None:
    if isinstance(given, tuple):
        (value,) = given
        floats = want.sort == "f"
        fits = floats or -(1 << want.bits - 1) <= value < 1 << want.bits
        if want == PREDICATE or want.sort.endswith("f16") or isinstance(value, float) != floats:
            raise BadStep(f"`{opcode}` wants {want}, which the number {value} is not", opcode)
        if not fits:
            raise BadStep(f"{value} does not fit {want.bits} bits", opcode)
    elif not want.takes(classes[given]):
        raise BadStep(
            f"`{opcode}` wants {want} and gets {classes[given]}",
            opcode,
            help="name the type that the register has, `cast` the operand, or move its bits",
        )


def _check_packing(step: Step, classes: Sequence[Class], out: Class) -> None:
    """``mov.b32 a, {x, y}`` and ``mov.b64 {x, y}, a``: two registers of half the size."""
    opcode, _, written, read = step
    several = written if len(written) > 1 else read[0] if len(read) == 1 else ()
    one = read[0] if len(written) > 1 and len(read) == 1 else written[0]
    half = Class(out.bits // 2, "b")
    if (
        opcode not in ("mov.b32", "mov.b64")
        or not isinstance(several, tuple)
        or len(several) != 2
        or isinstance(one, tuple)
        or not out.takes(classes[one])
        or not all(half.takes(classes[r]) for r in several)
    ):
        raise BadStep("two halves are packed or unpacked by `mov.b32` or `mov.b64`", opcode)


def registers_read(step: Step) -> Iterator[int]:
    """Every register that a step reads, the old value of one that a guard may keep included."""
    _, guard, written, read = step
    for item in read:
        if isinstance(item, tuple):
            yield from item if len(item) > 1 else ()
        else:
            yield item
    if guard != -1:
        yield guard if guard >= 0 else -2 - guard
        yield from written


def program_faults(
    program: Sequence[Step], classes: Sequence[Class], results: int, operands: int
) -> Iterator[tuple[int, BadStep]]:
    """What is wrong with a program: the number of the step, and why."""
    known = set(range(results, results + operands))
    for number, step in enumerate(program):
        try:
            check_step(step, classes, results, operands)
        except BadStep as fault:
            yield number, fault
            return
        unset = [r for r in registers_read(step) if r not in known]
        if unset:
            yield (
                number,
                BadStep(
                    f"`{step[0]}` reads a register that nothing has written",
                    step[0],
                    help="write it first, as with `mov.f32 t, 0.0;`",
                ),
            )
        known.update(step[2])
    if missing := [r for r in range(results) if r not in known]:
        name = f"{{{missing[0]}}}"
        help = f"make {name} the first register of an instruction"
        yield len(program) - 1, BadStep(f"the result {name} is never written", help=help)
