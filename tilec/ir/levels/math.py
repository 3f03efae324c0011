"""Arithmetic on elements: the same ops for scalars, tiles (level ``tile``) and registers (``cta``).

Elementwise operands have equal types, or are scalars of the same element type, which then stand
for every element. Axes are inserted and spread only by ``math.expand`` and ``math.broadcast``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isinf
from typing import Any

from tilec.ir import inline
from tilec.ir.core import Op, Value
from tilec.ir.declare import attribute, operand, operands, result, result_type, results
from tilec.ir.types import BOOL, DType, Register, Scalar, Tile, Type

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
BITCAST = frozenset({"f32", "f64", "s32", "s64", "u32", "u64"})
"""Element types whose bits may be read as another type's."""
REDUCTIONS = ("add", "max", "min", "mul", "and", "or")


def element_type(type: Type) -> DType:
    """Element type of a scalar, tile or register value."""
    if isinstance(type, Scalar | Tile | Register):
        return type.dtype
    raise TypeError(f"{type} has no elements to compute on")


def with_element_type(type: Type, dtype: DType) -> Type:
    """The same shape and home with another element type."""
    if isinstance(type, Scalar | Tile | Register):
        changed: Type = type if type.dtype is dtype else replace(type, dtype=dtype)
        return changed
    raise TypeError(f"{type} has no elements to compute on")


def common_shape(values: Sequence[Value[Any]]) -> Type:
    """The type that decides shape and home: the first that is not a scalar."""
    found: Type = next((v.type for v in values if not isinstance(v.type, Scalar)), values[0].type)
    return found


class Elementwise(Op):
    """Base of ops that compute each element from the elements at the same place."""

    def infer(self) -> Sequence[Type]:
        """The operands' common shape with the first operand's element type."""
        dtype = element_type(self.operands[0].type)
        return [with_element_type(common_shape(self.operands), dtype)]

    def check(self) -> Iterator[str]:
        """All operands agree in element type, and in shape unless they are scalars."""
        whole = common_shape(self.operands)
        dtype = element_type(self.operands[-1].type)
        for value in self.operands:
            # Nearly always the types are the same; to compare the rest takes two new ones.
            alike = value.type == whole or isinstance(value.type, Scalar)
            if not alike and with_element_type(value.type, BOOL) != with_element_type(whole, BOOL):
                yield f"operands differ in shape or home: {value.type} and {whole}"
            if element_type(value.type) != dtype and value is not self.operands[0]:
                yield f"operands differ in element type: {value.type} and {dtype}"


class Unary(Elementwise):
    """Base of elementwise ops with one operand."""

    x: Value[Any] = operand()
    out: Value[Any] = result()


class Binary(Elementwise):
    """Base of elementwise ops with two operands of one element type."""

    x: Value[Any] = operand()
    y: Value[Any] = operand()
    out: Value[Any] = result()

    def check(self) -> Iterator[str]:
        """As ``Elementwise``, and both element types are equal."""
        yield from super().check()
        if element_type(self.x.type) != element_type(self.y.type):
            yield f"operands differ in element type: {self.x.type} and {self.y.type}"


class Add(Binary, name="math.add"):
    """x + y; floats round to nearest even, integers wrap. A ``strict`` one is not contracted."""

    strict: bool = attribute(default=False)


class Sub(Binary, name="math.sub"):
    """x - y; floats round to nearest even, integers wrap. A ``strict`` one is not contracted."""

    strict: bool = attribute(default=False)


class Mul(Binary, name="math.mul"):
    """x * y; floats round to nearest even, integers wrap. A ``strict`` one is not contracted."""

    strict: bool = attribute(default=False)


class Div(Binary, name="math.div"):
    """x / y for floats, rounded to nearest even."""


class FloorDiv(Binary, name="math.floordiv"):
    """Quotient rounded toward minus infinity, for integers.

    Where ``total``, a quotient by zero is 0; else the divisor is known not to be zero.
    """

    total: bool = attribute(default=False)


class Mod(Binary, name="math.mod"):
    """Remainder with the sign of the divisor, for integers; by zero it is x."""


class CeilDiv(Binary, name="math.ceildiv"):
    """Quotient rounded up, for integers with y > 0."""


class Max(Binary, name="math.max"):
    """The larger; NaN if either is NaN; +0 of two zeros that differ."""


class Min(Binary, name="math.min"):
    """The smaller; NaN if either is NaN; -0 of two zeros that differ."""


class And(Binary, name="math.and"):
    """Logical and of bools, bitwise and of integers."""


class Or(Binary, name="math.or"):
    """Logical or of bools, bitwise or of integers."""


class Xor(Binary, name="math.xor"):
    """Logical exclusive or of bools, bitwise of integers."""


class Shl(Binary, name="math.shl"):
    """Shift left of integers; a count under zero or past the width leaves 0."""


class Shr(Binary, name="math.shr"):
    """Shift right of integers, arithmetic for signed ones; other counts act as the width does."""


class Neg(Unary, name="math.neg"):
    """-x."""


class Abs(Unary, name="math.abs"):
    """The absolute value."""


class Not(Unary, name="math.not"):
    """Logical not of bools, bitwise not of integers."""


class Exp2(Unary, name="math.exp2"):
    """2 to the power x, approximate within the documented bound."""


class Exp(Unary, name="math.exp"):
    """e to the power x, approximate within the documented bound."""


class Log2(Unary, name="math.log2"):
    """Logarithm to base 2, approximate within the documented bound."""


class Log(Unary, name="math.log"):
    """Natural logarithm, approximate within the documented bound."""


class Sqrt(Unary, name="math.sqrt"):
    """Square root, rounded to nearest even."""


class Rsqrt(Unary, name="math.rsqrt"):
    """1 / sqrt(x), approximate within the documented bound."""


class Rcp(Unary, name="math.rcp"):
    """1 / x, approximate within the documented bound."""


class Tanh(Unary, name="math.tanh"):
    """Hyperbolic tangent, approximate within the documented bound."""


class Fma(Elementwise, name="math.fma"):
    """x * y + z with one rounding."""

    x: Value[Any] = operand()
    y: Value[Any] = operand()
    z: Value[Any] = operand()
    out: Value[Any] = result()


class Compare(Elementwise, name="math.compare"):
    """A bool for each element: x ``relation`` y; comparisons with NaN are false except ``ne``."""

    x: Value[Any] = operand()
    y: Value[Any] = operand()
    relation: str = attribute()
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """The common shape with bool elements."""
        return [with_element_type(common_shape([self.x, self.y]), BOOL)]

    def check(self) -> Iterator[str]:
        """The relation is known."""
        yield from super().check()
        if self.relation not in COMPARISONS:
            yield f"relation {self.relation} is none of {', '.join(COMPARISONS)}"


class Where(Elementwise, name="math.where"):
    """x where the condition holds, y elsewhere."""

    condition: Value[Any] = operand()
    x: Value[Any] = operand()
    y: Value[Any] = operand()
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """The common shape with the element type of ``x``."""
        whole = common_shape([self.condition, self.x, self.y])
        return [with_element_type(whole, element_type(self.x.type))]

    def check(self) -> Iterator[str]:
        """The condition is bool."""
        yield from super().check()
        if element_type(self.condition.type) != BOOL:
            yield f"the condition has type {self.condition.type}, bool is needed"


class Ptx(Elementwise, name="math.ptx"):
    """Instructions that the author wrote, on the registers of each element (``ir.inline``).

    Each step of ``program`` has an opcode, a guard, what it writes and what it reads; registers are
    numbered: results, operands, then the ``locals`` that the author declared, by their types.
    """

    x: tuple[Value[Any], ...] = operands()
    dtypes: tuple[DType, ...] = attribute()
    program: tuple[tuple[Any, ...], ...] = attribute()
    locals: tuple[DType | str, ...] = attribute(default=())
    out: tuple[Value[Any], ...] = results()

    def infer(self) -> Sequence[Type]:
        """The common shape, with an element type for each result."""
        return [with_element_type(common_shape(self.x), dtype) for dtype in self.dtypes]

    def classes(self) -> list[inline.Class]:
        """The class of each register; ``TypeError`` where an element has none."""
        found = []
        for dtype in (*self.dtypes, *(element_type(v.type) for v in self.x)):
            known = inline.class_of(dtype)
            if known is None:
                raise TypeError(f"an element of {dtype} has no register of its own")
            found.append(known)
        return [*found, *(inline.local_class(str(name)) for name in self.locals)]

    def check(self) -> Iterator[str]:
        """Operands have one shape, and every step is one that can be verified."""
        whole = with_element_type(common_shape(self.x), BOOL)
        for value in self.x:
            if not isinstance(value.type, Scalar) and with_element_type(value.type, BOOL) != whole:
                yield f"operands differ in shape or home: {value.type} and {whole}"
        if unknown := [name for name in self.locals if str(name) not in inline.LOCALS]:
            yield f"no local register has the type {unknown[0]}"
            return
        counts = len(self.dtypes), len(self.x)
        for number, fault in inline.program_faults(self.program, self.classes(), *counts):
            yield f"step {number}: {fault}"


class Cast(Op, name="math.cast"):
    """Convert each element; narrower floats to nearest even, floats to integers truncate.

    What is too large for an 8-bit float becomes its greatest number, or where not ``saturate``
    infinity, and in e4m3, which has none, NaN.
    """

    x: Value[Any] = operand()
    dtype: DType = attribute()
    saturate: bool = attribute(default=True)
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """The same shape with the new element type."""
        return [with_element_type(self.x.type, self.dtype)]


class Bitcast(Elementwise, name="math.bitcast"):
    """The bits of each element as another type of the same width, of 32 or 64 bits."""

    x: Value[Any] = operand()
    dtype: DType = attribute()
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """The same shape with the new element type."""
        return [with_element_type(self.x.type, self.dtype)]

    def check(self) -> Iterator[str]:
        """Both types are as wide as a register, or two."""
        given = element_type(self.x.type)
        if given.bits != self.dtype.bits:
            yield f"{given} and {self.dtype} differ in width"
        if not {given.name, self.dtype.name} <= BITCAST:
            yield f"of {given} and {self.dtype} not both are among {', '.join(sorted(BITCAST))}"


class Constant(Op, name="math.constant"):
    """A scalar known at compile time."""

    value: int | float | bool = attribute()
    type: Type = result_type()
    out: Value[Scalar] = result()

    def check(self) -> Iterator[str]:
        """The value is one of the type's."""
        if fault := value_fault(self.value, self.out.type.dtype):
            yield fault


def value_fault(value: int | float | bool, dtype: DType) -> str | None:
    """Why a literal is no value of an element type; None if it is one."""
    if dtype == BOOL:
        return None if isinstance(value, bool) else f"{value} is no bool"
    if isinstance(value, bool):
        return f"{str(value).lower()} is no {dtype}"
    if dtype.is_float:
        infinite = isinstance(value, float) and isinf(value)
        return "e4m3 has no infinity" if infinite and dtype.name == "e4m3" else None
    if not isinstance(value, int):
        return f"{value} is no {dtype}"
    low = -(1 << dtype.bits - 1) if dtype.kind == "signed" else 0
    if not low <= value < low + (1 << dtype.bits):
        return f"{value} does not fit {dtype}"
    return None


class Fill(Op, name="math.fill"):
    """A tile or register value whose elements all equal one scalar."""

    x: Value[Scalar] = operand()
    type: Type = result_type()
    out: Value[Any] = result()

    def check(self) -> Iterator[str]:
        """A tile or register value of the scalar's element type."""
        made = self.out.type
        if not isinstance(made, Tile | Register) or made.dtype != self.x.type.dtype:
            yield f"{self.x.type} does not fill {made}"


class Expand(Op, name="math.expand"):
    """Insert an axis of extent 1 before ``axis``: no element moves."""

    x: Value[Any] = operand()
    axis: int = attribute()
    type: Type = result_type()
    out: Value[Any] = result()


class Squeeze(Op, name="math.squeeze"):
    """Remove an axis of extent 1: no element moves."""

    x: Value[Any] = operand()
    axis: int = attribute()
    type: Type = result_type()
    out: Value[Any] = result()


class Broadcast(Op, name="math.broadcast"):
    """Repeat along the axes in which the operand has extent 1."""

    x: Value[Any] = operand()
    type: Type = result_type()
    out: Value[Any] = result()


class Reduce(Op, name="math.reduce"):
    """Combine along one axis, which disappears; ``kind`` is one of ``REDUCTIONS``.

    The order of floating-point sums and products is free, unless ``strict``: then, for h the
    powers of two from large to small, element i takes in element i + h, where both exist.
    """

    x: Value[Any] = operand()
    axis: int = attribute()
    kind: str = attribute()
    type: Type = result_type()
    strict: bool = attribute(default=False)
    out: Value[Any] = result()

    def check(self) -> Iterator[str]:
        """The kind is known."""
        if self.kind not in REDUCTIONS:
            yield f"reduction {self.kind} is none of {', '.join(REDUCTIONS)}"
