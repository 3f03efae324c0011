"""Why a change of a program is no fault: rules that look at the program, not at what was found.

Each rule has its operators and decides from the text and from which fields a product reads; none
asks the race detection or the order of a run, which are what the mutants test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.emulator.operators import Mutant, opcode_is
from tests.emulator.subjects import Subject
from tilec.emulator.instructions import mbarriers, products
from tilec.emulator.launch import start
from tilec.emulator.liveness import read, roles, successors, written
from tilec.emulator.program import Instruction, Program


@dataclass
class Probe:
    """What the unchanged program does."""

    executed: Any
    """How often each instruction runs."""
    operands: dict[tuple[int, int], set[tuple[int, int, bool]]] = field(default_factory=dict)
    """By a product's line and the number of its rows: swizzle, rows of a span, MN-major or not."""
    arrivals: dict[int, list[tuple[Any, int]]] = field(default_factory=dict)
    """By line, the mbarriers at which it arrived, and the phases."""


def probe(subject: Subject) -> Probe:
    """Run a subject and look at the operands of its products."""
    seen: dict[tuple[int, int], set[tuple[int, int, bool]]] = {}
    real = products._shared_operand

    def looked(
        cta: Any, p: Any, work: Any, bits: int, count: int, type: str, major: bool, *more: Any
    ) -> Any:
        span = products.Descriptor.of(bits).span
        wide = span // products.element_bytes(type)
        seen.setdefault((p.at.line, count), set()).add((span, wide, major))
        return real(cta, p, work, bits, count, type, major, *more)

    arrivals: dict[int, list[tuple[Any, int]]] = {}
    count = mbarriers.arrive

    def counted(bind: Any, g: Any, barrier: Any, number: int) -> None:
        arrivals.setdefault(bind.at.line, []).append((barrier, barrier.phase))
        count(bind, g, barrier, number)

    products._shared_operand, mbarriers.arrive = looked, counted
    try:
        launch, _ = subject.fresh()
        _, machine = start(subject.program, subject.text, launch)
    finally:
        products._shared_operand, mbarriers.arrive = real, count
    return Probe(machine.executed, seen, arrivals)


def reason(subject: Subject, mutant: Mutant, seen: Probe) -> str:
    """Why the mutant is equivalent; empty if no rule says so."""
    return next((why for rule in RULES if (why := rule(subject, mutant, seen))), "")


def _leading_is_not_read(subject: Subject, mutant: Mutant, seen: Probe) -> str:
    if "leading" not in mutant.detail:
        return ""
    at = subject.program.instructions[mutant.sites[0]]
    columns = next(int(p[4:].partition("k")[0]) for p in at.parts if p.startswith("m64n"))
    count = products.ROWS if " A: " in mutant.detail else columns
    found = seen.operands.get((at.line, count), set())
    if found and all(span and (not major or count <= wide) for span, wide, major in found):
        return (
            "the leading offset is read only where an operand is wider than its swizzle "
            "(PTX ISA 9.7.15.5.1)"
        )
    return ""


def _registers_fit(subject: Subject, mutant: Mutant, seen: Probe) -> str:
    if "setmaxnreg" not in mutant.operator:
        return ""
    at = subject.program.instructions[mutant.sites[0]]
    if "inc" in at.parts and all(r.needed <= r.allowed for r in roles(mutant.program)):
        return "the role's values fit into the registers that are left to it"
    return ""


def _nobody_waits(subject: Subject, mutant: Mutant, seen: Probe) -> str:
    at = subject.program.instructions[mutant.sites[0]]
    if mutant.operator not in ("drop arrival", "arrive twice") or "expect_tx" in at.parts:
        return ""
    for barrier, phase in seen.arrivals.get(at.line, [(None, 0)]):
        waited = max((p for p, _ in barrier.passed.values()), default=-1) if barrier else phase
        if waited >= phase:
            return ""
    return "no warp waits for the phase that the arrival belongs to: its ring is at an end"


def _back(program: Program, begin: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """The instructions before one, on every way; calling the second item goes on behind it."""
    before: list[list[int]] = [[] for _ in program.instructions]
    for number, ways in enumerate(successors(program)):
        for way in ways:
            before[way].append(number)
    yield from _walk(before, begin)


def _walk(ways: Any, begin: int) -> Iterator[tuple[int, Callable[[], None]]]:
    seen: set[int] = set()
    work = list(ways[begin])
    if not work:
        yield -1, lambda: None
    while work:
        n = work.pop()
        if n in seen:
            continue
        seen.add(n)
        more: list[int] = []
        yield n, lambda n=n, more=more: more.extend(ways[n] or [-1])  # type: ignore[misc]
        if -1 in more:
            yield -1, lambda: None
            more.remove(-1)
        work += more


def _only_products_between(subject: Subject, mutant: Mutant, seen: Probe) -> str:
    program = subject.program
    at = program.instructions[mutant.sites[0]]
    if mutant.operator != "drop fence" or not opcode_is(at, "wgmma.fence"):
        return ""
    used = {r.name for i in program.instructions if _product(i) for r in (*read(i), *written(i))}
    for number, go_on in _back(program, mutant.sites[0]):
        if number < 0:
            return ""
        other = program.instructions[number]
        touched = {r.name for r in (*read(other), *written(other)) if r.bank == "b32"}
        if not _product(other) and touched & used:
            return ""
        if not opcode_is(other, "wgmma.fence"):
            go_on()
    return "since the last wgmma.fence only products touch their registers (PTX ISA 9.7.15.7.1)"


def _product(at: Instruction) -> bool:
    return opcode_is(at, "wgmma.mma_async")


_TOUCHES = (
    "ld.shared", "st", "ldmatrix", "stmatrix", "cp", "mbarrier", "wgmma", "bar", "barrier", "fence",
    "atom", "red", "ld.global",
)  # fmt: skip


def _nothing_to_order(subject: Subject, mutant: Mutant, seen: Probe) -> str:
    """From the barrier to the next one of the same threads, or to the end, no memory is touched."""
    program = subject.program
    at = program.instructions[mutant.sites[0]]
    if mutant.operator != "drop barrier" or not opcode_is(at, "bar.sync"):
        return ""
    following = successors(program)
    if _quiet(program, _walk(following, mutant.sites[0]), at):
        return "between this barrier and the next one, or the end, no shared memory is touched"
    if _quiet(program, _back(program, mutant.sites[0]), at, ends=False):
        return "between this barrier and the one before no shared memory is touched"
    return ""


def _quiet(program: Program, walk: Any, at: Instruction, *, ends: bool = True) -> bool:
    for number, go_on in walk:
        if number < 0:
            if not ends:
                return False
            continue
        other = program.instructions[number]
        if other.opcode == at.opcode and other.operands == at.operands:
            continue
        if opcode_is(other, *_TOUCHES) and not ("global" in other.parts and other.parts[0] == "st"):
            return False
        go_on()
    return True


RULES = (
    _leading_is_not_read,
    _registers_fit,
    _only_products_between,
    _nothing_to_order,
    _nobody_waits,
)
