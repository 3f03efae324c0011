"""Changes to a PTX program that plant one fault each: the operators of mutation testing.

An operator goes through all its sites (each wait, fence, arrival, commit, descriptor field, byte
count, phase, stage and register line) and gives a mutant for each. Programs are changed as lists of
instructions; a dropped one becomes an instruction that does nothing, under the same guard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilec.emulator.liveness import read, written
from tilec.emulator.program import (
    Address,
    Instruction,
    Number,
    Operand,
    Program,
    Register,
    Vector,
)

Edits = dict[int, list[Instruction]]


@dataclass(frozen=True)
class Mutant:
    """One planted fault."""

    operator: str
    detail: str
    sites: tuple[int, ...]
    """The instructions that it changes."""
    program: Program


def apply(program: Program, edits: Edits) -> Program:
    """The program with instructions replaced by lists of others; labels keep their places."""
    made: list[Instruction] = []
    moved = []
    for number, at in enumerate(program.instructions):
        moved.append(len(made))
        made += edits.get(number, [at])
    moved.append(len(made))
    labels = {name: moved[place] for name, place in program.labels.items()}
    registers = {**program.registers, "b64": program.registers["b64"] + 1}
    registers["b32"] += 1
    return replace(program, instructions=tuple(made), labels=labels, registers=registers)


def mutants(program: Program) -> list[Mutant]:
    """Every operator at every site."""
    found: list[Mutant] = []
    for name, operator in OPERATORS.items():
        for detail, edits in operator(program):
            found.append(Mutant(name, detail, tuple(edits), apply(program, edits)))
    return found


def opcode_is(at: Instruction, *names: str) -> bool:
    """Whether the opcode begins with one of these, part by part."""
    return any(at.parts[: n.count(".") + 1] == tuple(n.split(".")) for n in names)


def _made(at: Instruction, opcode: str, *operands: Operand) -> Instruction:
    return replace(at, opcode=opcode, parts=tuple(opcode.split(".")), operands=operands)


def _nothing(at: Instruction) -> Instruction:
    return _made(at, "nanosleep.u32", Number(0))


def _sites(program: Program, *names: str) -> Iterator[tuple[int, Instruction]]:
    for number, at in enumerate(program.instructions):
        if opcode_is(at, *names):
            yield number, at


def waits(program: Program) -> list[list[tuple[int, Instruction]]]:
    """The waits for mbarriers: a first try and the tries of its loop are one."""
    found: list[list[tuple[int, Instruction]]] = []
    for number, at in _sites(program, "mbarrier.try_wait", "mbarrier.test_wait"):
        near = found and found[-1][0][1].operands == at.operands
        if near and number - found[-1][-1][0] < 8:
            found[-1].append((number, at))
        else:
            found.append([(number, at)])
    return found


def _line(at: Instruction, said: str = "") -> str:
    return f"line {at.line}: {at.opcode}{' ' + said if said else ''}"


Found = Iterator[tuple[str, Edits]]


def _dropping(*names: str):  # type: ignore[no-untyped-def]
    def operator(program: Program) -> Found:
        for number, at in _sites(program, *names):
            yield _line(at), {number: [_nothing(at)]}

    return operator


def _drop_wait(program: Program) -> Found:
    for group in waits(program):
        yes = {
            n: [_made(at, "setp.eq.u32", at.operands[0], Number(0), Number(0))] for n, at in group
        }
        yield _line(group[0][1]), yes


def _weaken_wait(program: Program) -> Found:
    names = ("wgmma.wait_group", "cp.async.bulk.wait_group", "cp.async.wait_group")
    for number, at in _sites(program, *names):
        pending = at.operands[0]
        assert isinstance(pending, Number)
        weaker = replace(at, operands=(Number(pending.value + 1),))
        yield _line(at, f"{pending.value} to {pending.value + 1}"), {number: [weaker]}


def _double_arrive(program: Program) -> Found:
    for number, at in _sites(program, "mbarrier.arrive"):
        if "expect_tx" not in at.parts:
            yield _line(at), {number: [at, at]}


def _changed_number(at: Instruction, place: int, by: int) -> Instruction:
    operands = list(at.operands)
    number = operands[place]
    assert isinstance(number, Number)
    operands[place] = Number(number.value + by)
    return replace(at, operands=tuple(operands))


def _numbers(names: tuple[str, ...], steps: tuple[int, ...], part: str = ""):  # type: ignore[no-untyped-def]
    """Change the immediate that an instruction ends with."""

    def operator(program: Program) -> Found:
        for number, at in _sites(program, *names):
            if (part and part not in at.parts) or not isinstance(at.operands[-1], Number):
                continue
            for by in steps:
                made = _changed_number(at, len(at.operands) - 1, by)
                yield _line(at, f"{by:+d}"), {number: [made]}

    return operator


def _flip_parity(program: Program) -> Found:
    for group in waits(program):
        edits: Edits = {}
        for number, at in group:
            parity = at.operands[2]
            temporary = Register("%flipped", "b32", "b32", program.registers["b32"])
            flip = replace(
                _made(at, "xor.b32", temporary, parity, Number(1)), guard=None, guard_negated=False
            )
            edits[number] = [flip, replace(at, operands=(*at.operands[:2], temporary))]
        yield _line(group[0][1]), edits


def _drop_flip(program: Program) -> Found:
    """The change of a phase from one use of a barrier to the next."""
    parities = {r.row for g in waits(program) for r in (g[0][1].operands[2],) if _is_register(r)}  # type: ignore[union-attr]
    for number, at in enumerate(program.instructions):
        rows = {r.row for r in written(at) if r.bank == "b32"}
        if rows & parities and rows & {r.row for r in read(at)} and at.parts[0] != "setp":
            yield _line(at), {number: [_nothing(at)]}


def _is_register(operand: Operand) -> bool:
    return isinstance(operand, Register)


def _moved(operand: Operand, by: int) -> Operand:
    assert isinstance(operand, Address)
    return replace(operand, offset=operand.offset + by)


def _other_barrier(program: Program) -> Found:
    """Each use of an mbarrier goes to the next one in memory."""
    for group in waits(program):
        edits = {
            n: [replace(at, operands=(at.operands[0], _moved(at.operands[1], 8), at.operands[2]))]
            for n, at in group
        }
        yield _line(group[0][1]), edits
    for number, at in _sites(program, "mbarrier.arrive", "cp.async.bulk.tensor"):
        place = 2 if at.parts[0] == "cp" else 1
        if place < len(at.operands) and isinstance(at.operands[place], Address):
            operands = list(at.operands)
            if isinstance(operands[place].base, Vector):  # type: ignore[union-attr]
                continue
            operands[place] = _moved(operands[place], 8)
            if at.parts[0] != "cp" or len(at.operands) > 2:
                yield _line(at), {number: [replace(at, operands=tuple(operands))]}


def _other_stage(program: Program) -> Found:
    """The shared memory that a transfer fills or empties lies 1024 bytes further."""
    for number, at in _sites(program, "cp.async.bulk.tensor"):
        operands = list(at.operands)
        place = 1 if "bulk_group" in at.parts else 0
        operands[place] = _moved(operands[place], 1024)
        yield _line(at), {number: [replace(at, operands=tuple(operands))]}


_FIELDS = {
    "start + 32 bytes": 2,
    "start + 1024 bytes": 64,
    "start + 128 bytes": 8,
    "leading + 16 bytes": 1 << 16,
    "stride + 128 bytes": 8 << 32,
    "swizzle": 1 << 62,
    "reserved bit 52": 1 << 52,
}


def _descriptor(program: Program) -> Found:
    for number, at in _sites(program, "wgmma.mma_async"):
        for place, name in ((1, "A"), (2, "B")):
            of = at.operands[place]
            if not isinstance(of, Register):
                continue
            temporary = Register("%changed", "b64", "b64", program.registers["b64"])
            for field, by in _FIELDS.items():
                added = _made(at, "add.u64", temporary, of, Number(by))
                operands = list(at.operands)
                operands[place] = temporary
                made = replace(at, operands=tuple(operands))
                yield _line(at, f"{name}: {field}"), {number: [added, made]}


OPERATORS = {
    "drop mbarrier wait": _drop_wait,
    "drop wait_group": _dropping(
        "wgmma.wait_group", "cp.async.bulk.wait_group", "cp.async.wait_group"
    ),
    "weaken wait_group": _weaken_wait,
    "drop barrier": _dropping("bar.sync", "bar.arrive", "barrier.sync"),
    "drop fence": _dropping("fence", "wgmma.fence", "membar"),
    "drop arrival": _dropping("mbarrier.arrive"),
    "arrive twice": _double_arrive,
    "drop commit": _dropping(
        "wgmma.commit_group", "cp.async.bulk.commit_group", "cp.async.commit_group"
    ),
    "drop mbarrier.init": _dropping("mbarrier.init"),
    "change arrival count": _numbers(("mbarrier.init",), (-1, 1)),
    "change byte count": _numbers(("mbarrier.arrive",), (-16, 16), "expect_tx"),
    "flip a wait's parity": _flip_parity,
    "drop change of phase": _drop_flip,
    "use the next mbarrier": _other_barrier,
    "shift a stage": _other_stage,
    "change descriptor field": _descriptor,
    "drop transfer": _dropping("cp.async.bulk.tensor"),
    "drop setmaxnreg": _dropping("setmaxnreg"),
    "change setmaxnreg": _numbers(("setmaxnreg",), (-8, 8, -128)),
    "drop store to shared": _dropping("st.shared", "stmatrix"),
}
