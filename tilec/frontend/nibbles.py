"""Elements of four bits, ``s4`` and ``u4``: what an array of them may be, and casts to them.

They are types of memory. What is read of such an array is carried as an ``s8`` or ``u8`` whose
value the narrow type holds; the language lets it be moved, chosen and converted, never computed on.
So everything behind ``lower`` knows of them where memory is read or written, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilec.frontend.checked import ArrayType, Variable
from tilec.frontend.report import Report
from tilec.ir.core import Op, Value
from tilec.ir.levels import math
from tilec.ir.types import BOOL, DType, Extent, Scalar, Tile
from tilec.source import Span

Add = Callable[[Op], Any]
_BITS = 4


def check_array(report: Report, dtype: DType, dims: Sequence[Extent], span: Span) -> None:
    """Refuse an array of nibbles whose last axis is known to be odd."""
    last = dims[-1] if dims else 0
    if not dtype.is_nibble or not isinstance(last, int) or last % 2 == 0:
        return
    report.fail(
        "packed-axis",
        f"two elements of {dtype} share a byte, so the last axis has an even extent",
        [(span, f"the last axis has {last}")],
        help=f"declare {last + 1}, and leave the last element of each row unused",
    )


def refuse_places(report: Report, array: Variable, span: Span) -> None:
    """Refuse reads and writes of nibbles at places that are computed while running."""
    assert isinstance(array.type, ArrayType)
    if array.type.dtype.is_nibble:
        report.not_yet(
            f"a place that is computed while running, in an array of {array.type.dtype},",
            span,
            f"use an array of {array.type.dtype.held}, or the index of a loop over the very axis",
        )


def refuse_updates(report: Report, array: Variable, span: Span) -> None:
    """Refuse updates of nibbles in place."""
    assert isinstance(array.type, ArrayType)
    if array.type.dtype.is_nibble:
        report.fail(
            "wrong-element-type",
            f"elements of {array.type.dtype} are not updated in place: two share a byte",
            [(span, "updated here"), (array.span, f"`{array.name}` is declared here")],
            help="use an array of s32",
        )


def refuse_alone(report: Report, dtype: DType, span: Span, what: str) -> None:
    """Refuse nibbles where they are no elements of an array that the caller has."""
    if dtype.is_nibble:
        report.fail(
            "wrong-element-type",
            f"{dtype} is for arrays that are parameters, not for {what}",
            [(span, "declared here")],
            help=f"write `{dtype.held}`",
        )


def cast(add: Add, operand: Value[Any], source: DType, target: DType) -> Op:
    """The last op of a conversion to a type of four bits; those before it are added.

    From floats: towards zero, and out of range to the nearest that fits. Integers wrap.
    """
    kind = math.with_element_type(operand.type, target.held)
    if math.element_type(operand.type) != target.held:
        made: Op = math.Cast(operand, target.held)
        if source == BOOL:
            return made
        operand = add(made).out
    low, high = (-8, 7) if target.kind == "signed" else (0, 15)
    if source.is_float:
        if low:
            operand = add(math.Max(operand, _repeated(add, low, kind))).out
        return math.Min(operand, _repeated(add, high, kind))
    if target.kind == "unsigned":
        return math.And(operand, _repeated(add, high, kind))
    count = _repeated(add, _BITS, kind)
    return math.Shr(add(math.Shl(operand, count)).out, count)


def _repeated(add: Add, value: int, kind: Any) -> Value[Any]:
    """A number as a scalar or a tile."""
    one: Value[Any] = add(math.Constant(value, Scalar(math.element_type(kind)))).out
    if not isinstance(kind, Tile):
        return one
    filled: Value[Any] = add(math.Fill(one, kind)).out
    return filled
