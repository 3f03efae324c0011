"""Every ptx op as steps: one step is one PTX line and the registers that it writes.

Idea: text and liveness have one source. A template turns an op into steps whose text mixes strings
with registers; the registers that a step reads are those in its text that it does not write. So
what is emitted and what the register assignment believes cannot disagree.

Invariants: a register is a small integer, numbered in the order of the kernel's text; ``Pick``,
``Join``, ``Weave`` results and constants have no registers of their own.

Never: decides which values share a register (``registers``), or writes control flow (``emit``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from tilec.backend_ptx.parameters import parameters
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.levels import ptx
from tilec.ir.types import Bits

Piece = int | str
"""A register by number, or text as it stands."""


class Step(NamedTuple):
    """One line of PTX without its semicolon (a label keeps its colon).

    ``holds`` are registers that the step reads without naming them; ``late`` are registers that it
    still reads after it has begun to write.
    """

    text: tuple[Piece, ...]
    writes: tuple[int, ...] = ()
    holds: tuple[int, ...] = ()
    late: tuple[int, ...] = ()

    def reads(self) -> set[int]:
        """The registers read."""
        named = {piece for piece in self.text if isinstance(piece, int)}
        return named.difference(self.writes).union(self.holds)


_BODIES: dict[type[Op], Callable[[Any], tuple[Region, ...]]] = {
    ptx.Loop: lambda op: (op.body,),
    ptx.If: lambda op: (op.then, op.otherwise),
    ptx.Weave: lambda op: (op.body,),
}


def bodies(op: Op) -> tuple[Region, ...]:
    """The regions of an op."""
    found = _BODIES.get(type(op))
    return found(op) if found else ()


def walk(region: Region) -> Iterator[Op]:
    """All ops in text order."""
    for op in region.ops:
        yield op
        for nested in bodies(op):
            yield from walk(nested)


def literal(kind: str, value: float | int | bool) -> str:
    """A constant as PTX writes it: floats by their bits, integers in decimal."""
    if kind == "f32":
        return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"
    if kind == "f64":
        return f"0d{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(int(value))


class Registers:
    """The registers of a kernel before any of them share: ``at(value)`` gives a value's pieces."""

    def __init__(self, kernel: Kernel) -> None:
        self.kinds: list[str] = []
        """The kind of each register."""
        self.pieces: dict[Value[Any], list[Piece]] = {}
        self.parameters = parameters(kernel)
        self._labels: dict[str, int] = {}
        self._number(kernel.body)

    def __call__(self, value: Value[Any]) -> list[Piece]:
        """The registers (or literals) of a value, in order."""
        return self.pieces[value]

    def owned(self, value: Value[Any]) -> list[int]:
        """The registers of a value without the literals in it."""
        return [piece for piece in self.pieces[value] if isinstance(piece, int)]

    def label(self, stem: str) -> int:
        """A number that no label of this kind has had."""
        number = self._labels.get(stem, 0)
        self._labels[stem] = number + 1
        return number

    def fresh(self, values: Iterable[Value[Any]]) -> None:
        """Give values registers of their own."""
        for value in values:
            if isinstance(value.type, Bits):
                first = len(self.kinds)
                self.kinds.extend([value.type.kind] * value.type.count)
                self.pieces[value] = list(range(first, len(self.kinds)))

    def _number(self, region: Region) -> None:
        self.fresh(region.args)
        for op in region.ops:
            for nested in bodies(op):
                self._number(nested)
            rename = _RENAMES.get(type(op))
            named = rename(op, self.pieces) if rename else None
            if named is None:
                self.fresh(op.results)
            else:
                self.pieces.update(zip(op.results, named, strict=True))


Pieces = dict[Value[Any], list[Piece]]


def _constant(op: ptx.Constant, pieces: Pieces) -> list[list[Piece]] | None:
    # PTX has no predicate literals, so a constant predicate is a register like any other.
    kind = op.out.type.kind
    return None if kind == "pred" else [[literal(kind, op.value)] * op.out.type.count]


def _weave_results(op: ptx.Weave, pieces: Pieces) -> list[list[Piece]]:
    last = op.body.terminator
    return [pieces[value] for value in last.operands] if last is not None else []


_RENAMES: dict[type[Op], Callable[[Any, Pieces], list[list[Piece]] | None]] = {
    ptx.Constant: _constant,
    ptx.Pick: lambda op, pieces: [[pieces[op.x][pick] for pick in op.picks]],
    ptx.Join: lambda op, pieces: [[piece for part in op.parts for piece in pieces[part]]],
    ptx.Weave: _weave_results,
}

Template = Callable[[Any, Registers], Iterable[Step]]
TEMPLATES: dict[type[Op], Template] = {}
"""What each straight-line op is written as."""

T = TypeVar("T", bound=Template)


def template(op: type[Op]) -> Callable[[T], T]:
    """Register a function as the template of an op."""

    def declare(function: T) -> T:
        TEMPLATES[op] = function
        return function

    return declare


def steps_of(op: Op, at: Registers) -> list[Step]:
    """The steps of a straight-line op."""
    return list(TEMPLATES[type(op)](op, at))


def is_silent(region: Region) -> bool:
    """Whether a region is written as nothing at all."""
    return all(
        op.is_terminator
        or isinstance(op, ptx.Pick | ptx.Join)
        or (isinstance(op, ptx.Constant) and op.out.type.kind != "pred")
        for op in region.ops
    )


def listed(pieces: Sequence[Piece]) -> list[Piece]:
    """``a, b, c``."""
    text: list[Piece] = []
    for piece in pieces:
        text += [", ", piece] if text else [piece]
    return text


def braced(pieces: Sequence[Piece]) -> list[Piece]:
    """``{a, b, c}``."""
    return ["{", *listed(pieces), "}"]


@template(ptx.Weave)
def _weave(op: ptx.Weave, at: Registers) -> Iterable[Step]:
    """The order of the ranks; see ``ptx.Weave``."""
    bodies = [steps_of(inner, at) for inner in op.body.ops if not inner.is_terminator]
    counts = [sum(len(step.writes) for step in body) for body in bodies]
    largest = max(counts, default=0)
    rank: dict[int, float] = {}
    ordered: list[tuple[float, int, int, Step]] = []
    for index, body in enumerate(bodies):
        for number, step in enumerate(body):
            made = [rank[r] for r in step.reads() if r in rank]
            at_rank = max(made) if made else number * largest / len(body)
            rank.update(dict.fromkeys(step.writes, at_rank))
            ordered.append((at_rank, index, number, step))
    return [step for *_, step in sorted(ordered, key=lambda entry: entry[:3])]
