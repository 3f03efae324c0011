"""Family ``mma``: products of level ``cta`` that warps compute on operands in registers (mma.sync).

Nothing here is in flight: a result is there when the op has run, and so is everything that it
read. Which warp holds which part follows from the layouts (see ``tilec/layout/teams.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilec.ir.accesses import GETS
from tilec.ir.core import Op, Value
from tilec.ir.declare import Effects, attribute, operand, result, result_type
from tilec.ir.types import Register, Shared, Type


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
