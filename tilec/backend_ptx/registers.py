"""Which values share registers, the copies that this needs, and the registers' names.

Idea: an instruction that updates in place ties two values: a product its accumulator, a wait its
flights, a loop its initial values, arguments, next values and results, an ``if`` its results. Tied
values share registers unless they would overwrite something still needed; there ``place_copies``
adds a ``ptx.copy``, until every tie holds. Nothing else shares: ptxas allocates.

Invariants: ``assign`` adds nothing and fails if a tie does not hold; the same kernel gives the
same names. A copy stands at the end of its region, before its loop, or before the fence of its
product, never between a product that uses the registers and the wait that covers it (ptxas would
run the products one by one, C7513 to C7515).

Never: spills, or splits a value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tilec.backend_ptx import templates  # noqa: F401  (registers the templates)
from tilec.backend_ptx.flights import check_flights
from tilec.backend_ptx.liveness import Liveness, Program
from tilec.backend_ptx.steps import Piece, Registers, bodies, walk
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.levels import ptx

PREFIXES = {"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%d", "f32": "%f", "f64": "%fd"}
"""The names of registers by kind."""


class PlacementError(Exception):
    """Tied values cannot share registers, and no place is legal for a copy."""


@dataclass(frozen=True)
class Tie:
    """``target`` must be in the registers of operand ``position`` of ``user``.

    A copy of the operand is to stand before ``anchor`` in ``region``. ``order`` says which ties
    are satisfied first; those of products come first, since copies there are least welcome.
    """

    user: Op
    position: int
    target: Value[Any]
    region: Region
    anchor: Op
    order: int

    @property
    def source(self) -> Value[Any]:
        """The operand."""
        return self.user.operands[self.position]


def ties(region: Region) -> Iterator[Tie]:
    """All ties within a region."""
    for op in region.ops:
        if isinstance(op, ptx.Wgmma) and op.acc is not None:
            yield Tie(op, len(op.operands) - 1, op.out, region, op, 0)
        elif isinstance(op, ptx.WgmmaWait):
            for index, settled in enumerate(op.settled):
                yield Tie(op, index, settled, region, op, 0)
        elif isinstance(op, ptx.Loop):
            for index, argument in enumerate(op.body.args):
                last = op.body.ops[-1]
                yield Tie(last, index + 1, argument, op.body, last, 1)
                yield Tie(op, index, argument, region, op, 2)
        elif isinstance(op, ptx.If):
            for body in bodies(op):
                for index, result in enumerate(op.out):
                    yield Tie(body.ops[-1], index, result, body, body.ops[-1], 3)
        for nested in bodies(op):
            yield from ties(nested)


def flights(region: Region) -> set[Value[Any]]:
    """The accumulators of products that nobody has waited for where the value stands."""
    found = {op.out for op in walk(region) if isinstance(op, ptx.Wgmma)}
    passed = [tie for tie in ties(region) if not isinstance(tie.user, ptx.WgmmaWait)]
    finals = {
        argument: final
        for op in walk(region)
        if isinstance(op, ptx.Loop)
        for argument, final in zip(op.body.args, op.finals, strict=True)
    }
    before = 0
    while before < len(found):
        before = len(found)
        found |= {tie.target for tie in passed if tie.source in found}
        found |= {final for argument, final in finals.items() if argument in found}
    return found


class Sharing:
    """Classes of registers that share, grown tie by tie."""

    def __init__(self, program: Program) -> None:
        self.program, body = program, program.kernel.body
        self.at = self.program.at
        self.parent = list(range(len(self.at.kinds)))
        self.members = [1 << register for register in self.parent]
        self.conflicts = Liveness(self.program).conflicts
        for op in walk(body):
            if isinstance(op, ptx.Loop):
                for argument, final in zip(op.body.args, op.finals, strict=True):
                    self._unite_all(self.at(final), self.at(argument))
        flying = flights(body)
        # What is in flight is never copied, so it shares before a branch ties what is settled.
        ordered = sorted(ties(body), key=lambda t: (t.order, t.source not in flying))
        self.failing = [tie for tie in ordered if not self._satisfy(tie)]

    def find(self, register: int) -> int:
        """The register that stands for the class."""
        while self.parent[register] != register:
            self.parent[register] = self.parent[self.parent[register]]
            register = self.parent[register]
        return register

    def shared(self, registers: Iterable[int]) -> int:
        """All registers that share with one of these."""
        found = 0
        for register in registers:
            found |= self.members[self.find(register)]
        return found

    def _unite_all(self, first: list[Piece], second: list[Piece]) -> bool:
        return all(self._unite(a, b) for a, b in zip(first, second, strict=True))

    def _unite(self, first: Piece, second: Piece) -> bool:
        if isinstance(first, str) or isinstance(second, str):
            return False
        a, b = sorted((self.find(first), self.find(second)))
        if a == b:
            return True
        if self.conflicts[a] & self.members[b] or self.conflicts[b] & self.members[a]:
            return False
        self.parent[b] = a
        self.members[a] |= self.members[b]
        self.conflicts[a] |= self.conflicts[b]
        return True

    def _satisfy(self, tie: Tie) -> bool:
        # An argument handed on to another argument's place is overwritten at the end of the body
        # together with that place, so it needs its copy whatever the liveness says.
        if tie.order == 1 and self.reads_arguments(tie, but=tie.target):
            return False
        return self._unite_all(self.at(tie.target), self.at(tie.source))

    def reads_arguments(self, tie: Tie, but: Value[Any] | None = None) -> bool:
        """Whether the operand is made of arguments of its region (other than ``but``)."""
        # A kernel's own arguments are arrays, which have no registers.
        others = {
            register
            for argument in tie.region.args
            if argument is not but and argument in self.at.pieces
            for register in self.at.owned(argument)
        }
        return not others.isdisjoint(self.at.owned(tie.source))


def place_copies(kernel: Kernel) -> None:
    """Add the copies after which all tied values can share registers.

    Raises ``PlacementError`` where only a copy of registers in flight would do.
    """
    _free_conditions(kernel.body, Registers(kernel))
    program = Program(kernel)
    # A value exchanged with another needs a second copy, and each round may meet ties that an
    # earlier one hid; the depth of nested loops bounds them.
    for _ in range(16):
        sharing = Sharing(program)
        if not sharing.failing:
            check_flights(program, sharing.shared, PlacementError)
            return
        _insert(sharing)
    raise PlacementError(f"{kernel.name}: copies do not settle at {sharing.failing[0].user!r}")


def _free_conditions(region: Region, at: Registers) -> None:
    """A loop that goes on while one of its own arguments holds tests a copy of it."""
    for op in region.ops:
        for nested in bodies(op):
            _free_conditions(nested, at)
        if isinstance(op, ptx.Loop):
            last = op.body.ops[-1]
            own = {r for argument in op.body.args for r in at.owned(argument)}
            if not own.isdisjoint(at.owned(last.operands[0])):
                copy = ptx.Copy(last.operands[0])
                op.body.ops.insert(-1, copy)
                set_operand(last, 0, copy.out)


def _insert(sharing: Sharing) -> None:
    places: dict[Op, list[Tie]] = defaultdict(list)
    for tie in sharing.failing:
        places[tie.anchor].append(tie)
    for anchor, failing in places.items():
        region = failing[0].region
        # Arguments are read before anything that is to replace them is written.
        failing.sort(key=lambda tie: not sharing.reads_arguments(tie))
        copies = [ptx.Copy(tie.source) for tie in failing]
        for tie, copy in zip(failing, copies, strict=True):
            copy.loc, copy.out.name = anchor.loc, tie.source.name
            set_operand(tie.user, tie.position, copy.out)
            sharing.at.fresh([copy.out])
            sharing.program.changed(tie.user)
        place = region.ops.index(anchor)
        if isinstance(anchor, ptx.WgmmaWait):
            raise PlacementError(f"registers in flight are needed apart from their wait: {anchor}")
        if isinstance(anchor, ptx.Wgmma):
            place = _before_fence(region, place, copies)
        region.ops[place:place] = copies


def _before_fence(region: Region, place: int, copies: list[ptx.Copy]) -> int:
    """Where copies for the product at ``place`` go: before its fence, else behind a new one."""
    sources = {copy.x for copy in copies}
    for index in range(place - 1, -1, -1):
        op = region.ops[index]
        if isinstance(op, ptx.Fence) and op.kind == "wgmma":
            return index
        if isinstance(op, ptx.WgmmaWait) or not sources.isdisjoint(op.results):
            break
    region.ops.insert(place, ptx.Fence(kind="wgmma"))
    return place


def set_operand(op: Op, position: int, value: Value[Any]) -> None:
    """Replace one operand by its position among all."""
    for key, spec in op.specs.items():
        if spec.role != "operand":
            continue
        held = getattr(op, key)
        group = list(held) if spec.variadic else [held] if held is not None else []
        if position < len(group):
            group[position] = value
            setattr(op, key, tuple(group) if spec.variadic else value)
            return
        position -= len(group)
    raise IndexError(position)


@dataclass(frozen=True)
class Assignment:
    """The registers of a kernel with their names; ``counts`` says how many of each kind."""

    program: Program
    names: list[str]
    counts: dict[str, int]


def allocate(kernel: Kernel) -> Assignment:
    """Name the registers, numbered by kind in order of first appearance."""
    sharing = Sharing(Program(kernel))
    if sharing.failing:
        tie = sharing.failing[0]
        raise PlacementError(f"{tie.target!r} cannot share registers with {tie.source!r}")
    counts = dict.fromkeys(PREFIXES, 0)
    names: list[str] = []
    for register, kind in enumerate(sharing.at.kinds):
        first = sharing.find(register)
        if first == register:
            names.append(f"{PREFIXES[kind]}{counts[kind]}")
            counts[kind] += 1
        else:
            names.append(names[first])
    return Assignment(sharing.program, names, counts)


def assign(kernel: Kernel) -> dict[Value[Any], list[str]]:
    """The register names (or literals) of every value of a kernel whose copies are placed."""
    found = allocate(kernel)
    return {
        value: [found.names[p] if isinstance(p, int) else p for p in pieces]
        for value, pieces in found.program.at.pieces.items()
    }
