"""Global memory at places known while running, and updates in place, at level ``cta``.

Every element of a register tile names its own place by one s32 coordinate for each axis of the
array. A place outside the array is not touched: a read gives the fill there, a write nothing;
negative places are outside. An update is atomic, its order with others is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from tilec.ir.accesses import access_faults
from tilec.ir.core import Op, Value
from tilec.ir.declare import Effects, attribute, operand, operands, result
from tilec.ir.levels.math import with_element_type
from tilec.ir.types import S32, Array, DType, Register, Scalar, Shared, Type

UPDATES = ("add", "max", "min", "and", "or", "xor")
"""What an update does with an element and a value; ``""`` replaces the element, not atomically."""
ATOMICS = (*UPDATES, "exchange")
"""The same for an update that gives back what was there."""


def update_fault(kind: str, dtype: DType, kinds: Sequence[str] = UPDATES) -> str | None:
    """Why elements of a type cannot be updated so; None if they can."""
    if kind not in kinds:
        return f"update {kind} is none of {', '.join(kinds)}"
    if dtype.name == "bool" or dtype.is_nibble:
        return f"{dtype} elements have no atomic update"
    if kind in ("and", "or", "xor") and not dtype.is_integer:
        return f"`{kind}` combines integers, not {dtype}"
    return None


def place_faults(op: Any, shape: Type) -> Iterator[str]:
    """What all accesses at computed places ask of their fields; ``shape`` is the value's type."""
    array: Array = op.array.type
    if len(op.coordinates) != len(array.shape):
        yield f"{len(op.coordinates)} coordinates for an array of rank {len(array.shape)}"
    if not isinstance(shape, Register) or shape.dtype != array.dtype:
        yield f"the tile has type {shape}, the array holds {array.dtype}"
        return
    for value in op.coordinates:
        if value.type != with_element_type(shape, S32):
            yield f"a coordinate has type {value.type}, the tile {shape}"


def run_faults(op: Any, shape: Type) -> Iterator[str]:
    """``run`` names an axis of the tile where accesses are wider than one element."""
    rank = len(shape.shape) if isinstance(shape, Register) else 0
    if not (-1 <= op.run < rank) or (op.vector > 1 and op.run < 0):
        yield f"vectors of {op.vector} along axis {op.run} of {shape}"


class Gather(Op, name="memory.gather", effects=Effects.READS):
    """Read the element at each place; ``fill`` where there is none.

    Along tile axis ``run`` the places are neighbours: the array's last coordinate rises by one, the
    others stay, and ``vector`` elements from a multiple of ``vector`` on are all inside or all out.
    """

    array: Value[Array] = operand()
    fill: Value[Scalar] = operand()
    coordinates: tuple[Value[Register], ...] = operands()
    run: int = attribute(default=-1)
    vector: int = attribute(default=1)
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The coordinates' shape and layout with the array's elements."""
        return [with_element_type(self.coordinates[0].type, self.array.type.dtype)]

    def check(self) -> Iterator[str]:
        """One coordinate an axis, and the array is not write-only."""
        yield from place_faults(self, self.out.type)
        yield from run_faults(self, self.out.type)
        if self.array.type.mode == "out":
            yield "an out parameter is never read"
        if self.fill.type != Scalar(self.array.type.dtype):
            yield f"the fill has type {self.fill.type}, elements are {self.array.type.dtype}"


class Scatter(Op, name="memory.scatter", effects=Effects.WRITES):
    """Write each element to its place, or ``update`` what is there; copies do it once.

    ``run`` and ``vector`` as for ``memory.gather``.
    """

    array: Value[Array] = operand()
    value: Value[Register] = operand()
    coordinates: tuple[Value[Register], ...] = operands()
    update: str = attribute(default="")
    run: int = attribute(default=-1)
    vector: int = attribute(default=1)

    def check(self) -> Iterator[str]:
        """One coordinate an axis, and the array may be written so."""
        yield from place_faults(self, self.value.type)
        yield from run_faults(self, self.value.type)
        if self.array.type.mode == "in":
            yield "an in parameter is never written"
        if self.update and (fault := update_fault(self.update, self.array.type.dtype)):
            yield fault


class Update(Op, name="memory.update", effects=Effects.WRITES):
    """Update a tile of an array in place, element by element; fields as for ``cta.write``."""

    array: Value[Array] = operand()
    value: Value[Register] = operand()
    origin: tuple[Value[Scalar], ...] = operands()
    update: str = attribute()
    axes: tuple[int, ...] = attribute()
    bounded: tuple[int, ...] = attribute(default=())
    vector: int = attribute(default=1)
    limited: tuple[int, ...] = attribute(default=())

    def check(self) -> Iterator[str]:
        """Places and tile fit, and the array may be updated so."""
        yield from access_faults(self, self.value.type)
        if self.array.type.mode == "in":
            yield "an in parameter is never written"
        if fault := update_fault(self.update, self.array.type.dtype):
            yield fault


class Atomic(Op, name="memory.atomic", effects=Effects.READS | Effects.WRITES):
    """Update the element at each place and give what was there; ``fill`` where there is none.

    The first copy of an element updates it, and alone knows the result until ``memory.share``.
    """

    array: Value[Array] = operand()
    value: Value[Register] = operand()
    fill: Value[Scalar] = operand()
    coordinates: tuple[Value[Register], ...] = operands()
    update: str = attribute()
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The value's type."""
        return [self.value.type]

    def check(self) -> Iterator[str]:
        """Places and value fit, and the array may be updated so."""
        yield from place_faults(self, self.value.type)
        if self.array.type.mode != "inout":
            yield "an atomic update reads and writes an inout array"
        if fault := update_fault(self.update, self.array.type.dtype, ATOMICS):
            yield fault


class CompareExchange(Op, name="memory.compare_exchange", effects=Effects.READS | Effects.WRITES):
    """Write ``value`` where ``expected`` stands, bit by bit, and give what was there.

    Otherwise as ``memory.atomic``.
    """

    array: Value[Array] = operand()
    expected: Value[Register] = operand()
    value: Value[Register] = operand()
    fill: Value[Scalar] = operand()
    coordinates: tuple[Value[Register], ...] = operands()
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The value's type."""
        return [self.value.type]

    def check(self) -> Iterator[str]:
        """Places and values fit, and the array may be updated."""
        yield from place_faults(self, self.value.type)
        if self.expected.type != self.value.type:
            yield f"{self.expected.type} is compared, {self.value.type} is written"
        if self.array.type.mode != "inout":
            yield "an atomic update reads and writes an inout array"
        if self.array.type.dtype.name == "bool":
            yield "bool elements have no atomic update"


class Share(Op, name="memory.share", effects=Effects.READS | Effects.WRITES | Effects.ORDERS):
    """Hand what the first copy of each element holds to all its copies, through shared memory.

    ``barrier`` is the named barrier (plus the group's number) that orders the buffer's use.
    """

    x: Value[Register] = operand()
    buffer: Value[Shared] = operand()
    barrier: int = attribute()
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The same type."""
        return [self.x.type]

    def check(self) -> Iterator[str]:
        """The buffer has a place for each element."""
        buffer, x = self.buffer.type, self.x.type
        if buffer.dtype != x.dtype or prod(map(int, buffer.shape)) % prod(map(int, x.shape)):
            yield f"{x} is shared through {buffer}"


PLACE_WRITES = (Scatter, Update, Atomic, CompareExchange)
"""What may change any element of its array."""
