"""Integer division: quotients rounded down or up, and remainders with the divisor's sign.

Laws: for a power of two, shifting rounds down and masking gives the remainder. Of what is not
negative, signed and unsigned division are the same. Otherwise PTX truncates: truncation differs
from the floor where a remainder is left and has not the divisor's sign, and from the ceiling where
it has. x - q * 0 is x whatever q is, so the remainder by zero needs no case of its own; the
quotient by zero, which PTX leaves open, is 0 where the op says that it may be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.ir.core import Value
from tilec.ir.declare import Refused
from tilec.ir.levels import math
from tilec.ir.types import DType, Scalar
from tilec.passes.select.selector import PtxValue, Selector, lowers, register_kind
from tilec.passes.select.widths import computed, element_count, repacked, suffix, unpacked


def constant_of(value: Value[Any]) -> int | float | bool | None:
    """The literal that a value is, if it is one."""
    return value.owner.value if isinstance(value.owner, math.Constant) else None


@dataclass
class _Division:
    """One division in the registers of ``dtype``, spelt as signed or as unsigned."""

    sel: Selector
    op: Any
    dtype: DType
    count: int
    spelt: str

    def alu(self, opcode: str, *inputs: PtxValue | int, to: str = "") -> PtxValue:
        """One instruction an element."""
        kind = to or register_kind(self.dtype)
        return self.sel.alu(opcode, *inputs, kind=kind, count=self.count)

    def by_power(self, x: PtxValue, divisor: int) -> PtxValue:
        """By a power of two."""
        rest = self.alu(f"and.b{self.dtype.bits}", x, divisor - 1)
        if isinstance(self.op, math.Mod):
            return rest
        shift = self.sel.constant(divisor.bit_length() - 1)
        down = self.alu(f"shr.{self.spelt}", x, shift)
        return self.up(down, rest) if isinstance(self.op, math.CeilDiv) else down

    def up(self, quotient: PtxValue, rest: PtxValue) -> PtxValue:
        """One more where a remainder >= 0 is left; x + y - 1 could wrap."""
        return self.alu(f"add.{self.spelt}", quotient, self.alu(f"min.{self.spelt}", rest, 1))

    def by_any(self, x: PtxValue, y: PtxValue) -> PtxValue:
        """By the instruction, mended where the signs differ."""
        spelt, up = self.spelt, isinstance(self.op, math.CeilDiv)
        quotient = self.alu(f"div.{spelt}", x, y)
        remainder = self.alu(f"sub.{spelt}", x, self.alu(f"mul.lo.{spelt}", quotient, y))
        if spelt.startswith("u"):
            if isinstance(self.op, math.Mod):
                return remainder
            return self.up(quotient, remainder) if up else quotient
        fixes = self.alu(f"setp.ne.{spelt}", remainder, 0, to="pred")
        signs = self.alu(f"xor.b{self.dtype.bits}", remainder, y)
        signs = self.alu(f"setp.{'ge' if up else 'lt'}.{spelt}", signs, 0, to="pred")
        fixes = self.alu("and.pred", signs, fixes, to="pred")
        if isinstance(self.op, math.Mod):
            fixed, plain = self.alu(f"add.{spelt}", remainder, y), remainder
        else:
            fixed, plain = self.alu(f"{'add' if up else 'sub'}.{spelt}", quotient, 1), quotient
        return self.alu(f"selp.b{self.dtype.bits}", fixed, plain, fixes)

    def or_nothing(self, quotient: PtxValue, y: PtxValue) -> PtxValue:
        """0 where the divisor is."""
        by_zero = self.sel.alu(f"setp.eq.{self.spelt}", y, 0, kind="pred", count=y.type.count)
        return self.alu(f"selp.b{self.dtype.bits}", 0, quotient, by_zero)


@lowers(math.FloorDiv, math.Mod, math.CeilDiv)
def _division(sel: Selector, op: Any) -> None:
    given = math.element_type(op.x.type)
    if not given.is_integer:
        raise Refused(f"integer division is not defined on {given}")
    dtype, spelt = computed(given), suffix(computed(given))
    if sel.ranges.never_negative(op.x) and sel.ranges.never_negative(op.y):
        spelt = f"u{dtype.bits}"
    made = _Division(sel, op, dtype, element_count(math.common_shape(op.operands)), spelt)
    x, y = unpacked(sel, op.x), unpacked(sel, op.y)
    divisor = constant_of(op.y)
    if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
        result = made.by_power(x, divisor)
    else:
        result = made.by_any(x, y)
    bounds = sel.ranges.bounds(op.y)
    if (
        isinstance(op, math.FloorDiv)
        and op.total
        and (bounds is None or bounds[0] <= 0 <= bounds[1])
    ):
        result = made.or_nothing(result, y)
    sel.set(op.out, repacked(sel, result, given, isinstance(op.out.type, Scalar)))
