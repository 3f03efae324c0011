"""Family ``mma``: what threads do at level ``cta`` where wgmma and TMA do not.

Products on operands in registers (mma.sync): nothing is in flight, a result is there when the op
has run, and so is everything that it read; which warp holds which part follows from the layouts
(``tilec/layout/teams.py``). Copies of operands into the stages of a ring (cp.async): the threads
that issue them do not wait, the stage's full barrier counts each thread once its copies have
landed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilec.ir.accesses import GETS, origin_faults
from tilec.ir.core import Op, Value
from tilec.ir.declare import Effects, attribute, operand, operands, result, result_type
from tilec.ir.types import Array, Free, Register, Ring, Scalar, Shared, Type


class MmaProduct(Op, name="mma.product", effects=Effects.READS):
    """Compute out = a @ b^T + acc on the tensor cores of the group's warps (mma.sync).

    ``a`` is (rows, K) and ``b`` is (N, K), each in registers or in shared memory, from where
    ``a_by`` and ``b_by`` (``ldmatrix`` or ``load``) bring its fragments step by step of K.
    Without ``acc`` the product starts from zero.
    """

    a: Value[Any] = operand()
    b: Value[Any] = operand()
    type: Type = result_type()
    acc: Value[Register] | None = operand(optional=True, default=None)
    a_by: str = attribute(default="ldmatrix")
    b_by: str = attribute(default="ldmatrix")
    out: Value[Register] = result()

    def check(self) -> Iterator[str]:
        """(rows, k) and (n, k) give (rows, n); the accumulator has the result's type."""
        a, b, out = self.a.type, self.b.type, self.type
        if not isinstance(a, Shared | Register) or not isinstance(b, Shared | Register):
            yield "the operands a and b are shared or reg"
            return
        if not isinstance(out, Register):
            yield "the result is reg"
            return
        if a.shape[1:] != b.shape[1:] or out.shape != (a.shape[0], b.shape[0]):
            yield f"shapes do not fit: {a.shape} by {b.shape} transposed gives {out.shape}"
        if self.acc is not None and self.acc.type != out:
            yield f"the accumulator has type {self.acc.type}, the result {out}"
        for by in (self.a_by, self.b_by):
            if by not in GETS:
                yield f"instruction {by} is none of {', '.join(GETS)}"


COPIED_BYTES = (4, 8, 16)
"""Bytes of one cp.async (PTX ISA, cp.async)."""


class Copy(Op, name="mma.copy", effects=Effects.READS | Effects.WRITES):
    """Start copying one part of a stage, ``vector`` elements an instruction (cp.async).

    All threads of the group share the tile and arrive at the stage's full barrier when their own
    copies have landed. ``origin`` is the tile's place by array axis, ``axes`` the array axes of
    the part's tile axes; along the tile axes ``bounded`` what lies outside the array becomes zero.
    """

    ring: Value[Ring] = operand()
    stage: Value[Free] = operand()
    array: Value[Array] = operand()
    origin: tuple[Value[Scalar], ...] = operands()
    axes: tuple[int, ...] = attribute()
    vector: int = attribute()
    part: int = attribute(default=0)
    bounded: tuple[int, ...] = attribute(default=())

    def check(self) -> Iterator[str]:
        """The place has an s32 for each axis, the array is read, and a copy has a legal width."""
        yield from origin_faults(self.array.type, self.origin)
        if self.array.type.mode == "out":
            yield "an out parameter is never read"
        width = self.vector * self.array.type.dtype.bytes
        if width not in COPIED_BYTES:
            yield f"a copy of {width} bytes: cp.async takes {', '.join(map(str, COPIED_BYTES))}"
        parts = self.ring.type.parts
        part = parts[self.part] if 0 <= self.part < len(parts) else None
        if not isinstance(part, Shared):
            yield f"the ring has no part {self.part}"
        elif part.dtype != self.array.type.dtype or len(self.axes) != len(part.shape):
            yield f"the part {part} cannot hold a tile of {self.array.type} along {self.axes}"
