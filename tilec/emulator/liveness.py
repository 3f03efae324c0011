"""How many registers a role of a kernel needs at once, from its PTX.

A role is what runs between a setmaxnreg and the next one or the end; what runs before any is the
entry. Of each instruction the values that live across it are counted: written on some way to it
and read on some way from it, 32 bits a register, 64 two, predicates none.

What is left out, so that the count stays below what any assembler needs: values that can be made
again from constants, parameters and special registers (PTX texts hold such addresses long before
they use them), and registers for the assembler's own purposes. It is a bound from below: a role
that passes may spill all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tilec.emulator.program import (
    Address,
    Instruction,
    Not,
    Operand,
    Pair,
    Program,
    Register,
    Vector,
)

_WITHOUT_RESULT = frozenset(
    ("st", "red", "bar", "barrier", "cp", "bra", "fence", "membar", "setmaxnreg", "stmatrix", "ret",
     "exit", "trap", "prefetch", "nanosleep", "griddepcontrol")
)  # fmt: skip
_CHEAP = frozenset(
    ("mov", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "cvta", "cvt", "not",
     "neg", "lop3", "bfe", "prmt", "shfl", "div", "rem", "min", "max", "selp")
)  # fmt: skip
_SIZE = {"b32": 1, "b64": 2, "b128": 4}


def registers_of(operand: Operand) -> tuple[Register, ...]:
    """The registers that an operand names."""
    match operand:
        case Register():
            return (operand,)
        case Not():
            return (operand.of,)
        case Vector():
            items = operand.items
            if all(isinstance(item, Register) for item in items):
                return items  # type: ignore[return-value]
            return tuple(r for item in items for r in registers_of(item))
        case Pair():
            return registers_of(operand.first) + registers_of(operand.second)
        case Address():
            places = () if operand.coordinates is None else registers_of(operand.coordinates)
            return registers_of(operand.base) + places
    return ()


def written(at: Instruction) -> tuple[Register, ...]:
    """The registers that an instruction writes."""
    if at.parts[0] in _WITHOUT_RESULT or not at.operands or isinstance(at.operands[0], Address):
        return ()
    return registers_of(at.operands[0])


def read(at: Instruction) -> tuple[Register, ...]:
    """The registers that an instruction reads; a product reads its accumulators."""
    first = 1 if written(at) else 0
    found = [r for operand in at.operands[first:] for r in registers_of(operand)]
    if at.parts[:2] == ("wgmma", "mma_async"):
        found += written(at)
    return (*found, *((at.guard,) if at.guard is not None else ()))


@dataclass(frozen=True)
class _Touched:
    """What each instruction of a program writes and reads, by numbers of registers."""

    places: dict[tuple[str, int], int]
    gives: list[list[int]]
    takes: list[list[int]]

    @staticmethod
    def of(program: Program) -> _Touched:
        places: dict[tuple[str, int], int] = {}

        def numbers(registers: tuple[Register, ...]) -> list[int]:
            return [places.setdefault((r.bank, r.row), len(places)) for r in registers]

        gives = [numbers(written(at)) for at in program.instructions]
        takes = [numbers(read(at)) for at in program.instructions]
        return _Touched(places, gives, takes)


@dataclass(frozen=True)
class Role:
    """One role: where it begins, the registers it has, what it needs at most, and where."""

    begin: Instruction | None
    allowed: int
    needed: int
    peak: Instruction


def entry_registers(program: Program) -> int:
    """Registers a thread at launch: all that a CTA may have, in units of 8 (PTX ISA 9.7.19.5)."""
    threads = program.max_threads[0] * program.max_threads[1] * program.max_threads[2]
    return int(min(256, 65536 // (threads * program.min_ctas) // 8 * 8))


def roles(program: Program) -> list[Role]:
    """The roles of a program that sets registers; none for one that does not."""
    changes = [n for n, at in enumerate(program.instructions) if at.parts[0] == "setmaxnreg"]
    if not changes:
        return []
    following = successors(program)
    touched = _Touched.of(program)
    live, weigh = _live(program, following, touched), _weigher(program, touched)
    found = []
    for begin in (None, *changes):
        reached = _region(0 if begin is None else begin + 1, following, set(changes))
        counted = {n: weigh(live[n]) for n in reached}
        if not counted:
            continue
        peak = max(counted, key=lambda n: counted[n])
        at = None if begin is None else program.instructions[begin]
        allowed = entry_registers(program) if at is None else int(at.operands[0].value)  # type: ignore[union-attr]
        found.append(Role(at, allowed, counted[peak], program.instructions[peak]))
    return found


def successors(program: Program) -> list[tuple[int, ...]]:
    """The instructions that may come after each."""
    found: list[tuple[int, ...]] = []
    count = len(program.instructions)
    for number, at in enumerate(program.instructions):
        after = number + 1
        if at.parts[0] == "bra":
            target = program.labels[at.operands[0].name]  # type: ignore[union-attr]
            way: tuple[int, ...] = (target,) if at.guard is None else (target, after)
        elif at.parts[0] in ("ret", "exit", "trap") and at.guard is None:
            way = ()
        else:
            way = (after,)
        found.append(tuple(n for n in way if n < count))
    return found


def _bits(numbers: list[int]) -> int:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def _live(program: Program, following: list[tuple[int, ...]], touched: _Touched) -> list[int]:
    """Of each instruction the values that live before or after it, as bits."""
    gives = [_bits(numbers) for numbers in touched.gives]
    takes = [_bits(numbers) for numbers in touched.takes]
    kills = [
        g if at.guard is None else 0 for g, at in zip(gives, program.instructions, strict=True)
    ]
    count = len(gives)
    before: list[list[int]] = [[] for _ in range(count)]
    for number, ways in enumerate(following):
        for way in ways:
            before[way].append(number)

    def united(sets: list[int], numbers: Iterable[int]) -> int:
        found = 0
        for number in numbers:
            found |= sets[number]
        return found

    needed, holds = [0] * count, [0] * count
    work = list(range(count))
    while work:
        n = work.pop()
        found = takes[n] | (united(needed, following[n]) & ~kills[n])
        if found != needed[n]:
            needed[n] = found
            work += before[n]
    work = list(range(count))[::-1]
    while work:
        n = work.pop()
        found = gives[n] | united(holds, before[n])
        if found != holds[n]:
            holds[n] = found
            work += following[n]
    return [(needed[n] | united(needed, following[n])) & holds[n] for n in range(count)]


def _weigher(program: Program, touched: _Touched) -> Callable[[int], int]:
    """How many registers a set of values takes."""
    cheap = _cheap(program, touched)
    masks = dict.fromkeys(_SIZE, 0)
    for (bank, _), place in touched.places.items():
        if bank in masks and place not in cheap:
            masks[bank] |= 1 << place
    return lambda live: sum(_SIZE[bank] * (live & mask).bit_count() for bank, mask in masks.items())


def _cheap(program: Program, touched: _Touched) -> set[int]:
    """Registers written once, by arithmetic on what can be made again."""
    times = Counter(number for numbers in touched.gives for number in numbers)
    found = {place for (bank, _), place in touched.places.items() if bank == "pred"}
    for at, gives, takes in zip(program.instructions, touched.gives, touched.takes, strict=True):
        # In order: sources come before their uses.
        if at.parts[0] not in _CHEAP and at.parts[:2] != ("ld", "param"):
            continue
        for number in gives:
            if times[number] == 1 and found.issuperset(takes):
                found.add(number)
    return found


def _region(begin: int, following: list[tuple[int, ...]], changes: set[int]) -> set[int]:
    """The instructions from a place to the next changes of registers."""
    found: set[int] = set()
    work = [begin] if begin < len(following) else []
    while work:
        n = work.pop()
        if n not in found and n not in changes:
            found.add(n)
            work += following[n]
    return found
