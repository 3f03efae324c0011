"""Between which bounds an integer of level ``cta`` lies, by what computes it.

Law: interval arithmetic. Sums and products count only where they provably stay in their type, since
integers wrap; what is not known may be anything of its type. Two facts are not arithmetic: a loop's
index starts at the lower bound and stays under the upper one where the step is positive, and
x - (x // y) * y is x mod y, wrapped or not.

Nothing here looks at what a launch promises: the answer holds for every launch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilec.ir.core import Op, Region, Value
from tilec.ir.levels import cluster, cta, flow, math
from tilec.ir.types import DType, Register, Scalar

Bounds = tuple[int, int]

_SAME = (math.Cast, math.Fill, math.Expand, math.Squeeze, math.Broadcast, cta.Slice, cta.Convert)
"""Ops whose elements are elements of their operand."""


@dataclass
class Ranges:
    """Bounds of the values of one region, found on request."""

    region: Region
    loops: dict[Value[Any], Op] = field(init=False)
    known: dict[Value[Any], Bounds | None] = field(init=False)

    def __post_init__(self) -> None:
        """Note which loop each index belongs to."""
        self.known = {}
        self.loops = {
            op.body.args[0]: op
            for op in self.region.walk()
            if isinstance(op, flow.For | cta.Role) and op.body.args
        }

    def never_negative(self, value: Value[Any]) -> bool:
        """Whether no element of an integer value can be under zero."""
        found = self.bounds(value)
        return found is not None and found[0] >= 0

    def bounds(self, value: Value[Any]) -> Bounds | None:
        """The least and the greatest that each element can be; None for what is no integer."""
        if value not in self.known:
            type = value.type
            dtype = type.dtype if isinstance(type, Scalar | Register) else None
            if dtype is None or not dtype.is_integer:
                return None
            whole = type_bounds(dtype)
            # While a value is asked about itself, by way of a loop, it may be anything.
            self.known[value] = whole
            found = self._found(value, whole)
            inside = found is not None and whole[0] <= found[0] and found[1] <= whole[1]
            self.known[value] = found if inside else whole
        return self.known[value]

    def _found(self, value: Value[Any], whole: Bounds) -> Bounds | None:
        op = value.owner
        if value in self.loops:
            return self._index(self.loops[value])
        if not isinstance(op, Op):
            return None
        if isinstance(op, math.Constant):
            return int(op.value), int(op.value)
        if isinstance(op, cta.ExtentOf | cta.CtaIndex | cluster.ClusterIndex):
            return 0, whole[1]
        if isinstance(op, cta.CtaCount | cluster.ClusterCount):
            return 1, whole[1]
        if isinstance(op, cluster.Rank):
            return 0, cluster.MOST_CTAS - 1
        if isinstance(op, cta.Coordinates):
            return 0, int(value.type.shape[op.axis]) - 1
        if isinstance(op, math.Where):
            return _either(self.bounds(op.x), self.bounds(op.y))
        if isinstance(op, _SAME):
            return self.bounds(op.operands[0])
        if isinstance(op, math.Binary):
            x, y = self.bounds(op.x), self.bounds(op.y)
            if x is not None and y is not None:
                return self._remainder(op, x) or _computed(op, x, y)
        return None

    def _index(self, op: Op) -> Bounds | None:
        if isinstance(op, cta.Role):
            return 0, op.warps // op.group - 1
        if not isinstance(op, flow.For):
            return None
        lower, upper, step = (self.bounds(v) for v in (op.lower, op.upper, op.step))
        if lower is None or upper is None or step is None or step[0] < 1:
            return None
        return lower[0], max(lower[0], upper[1] - 1)

    def _remainder(self, op: math.Binary, x: Bounds) -> Bounds | None:
        """Bounds of x - (x // y) * y; where y is zero, that is x."""
        if not isinstance(op, math.Sub) or not isinstance(op.y.owner, math.Mul):
            return None
        product = op.y.owner
        for quotient, by in ((product.x, product.y), (product.y, product.x)):
            divided = quotient.owner
            if isinstance(divided, math.FloorDiv) and divided.x is op.x and divided.y is by:
                divisor = self.bounds(by)
                if divisor is not None and divisor[0] >= 0:
                    rest = 0, max(0, divisor[1] - 1)
                    return rest if divisor[0] else _either(rest, x)
        return None


def type_bounds(dtype: DType) -> Bounds:
    """The least and the greatest value of an integer type."""
    if dtype.kind == "signed":
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def _either(x: Bounds | None, y: Bounds | None) -> Bounds | None:
    return (min(x[0], y[0]), max(x[1], y[1])) if x is not None and y is not None else None


def _computed(op: math.Binary, x: Bounds, y: Bounds) -> Bounds | None:
    """Bounds of a result in whole numbers, which the caller holds against the type."""
    if isinstance(op, math.Add):
        return x[0] + y[0], x[1] + y[1]
    if isinstance(op, math.Sub):
        return x[0] - y[1], x[1] - y[0]
    if isinstance(op, math.Mul):
        corners = [a * b for a in x for b in y]
        return min(corners), max(corners)
    if isinstance(op, math.Min):
        return min(x[0], y[0]), min(x[1], y[1])
    if isinstance(op, math.Max):
        return max(x[0], y[0]), max(x[1], y[1])
    if isinstance(op, math.Mod):
        # The remainder has the divisor's sign; by zero it is anything.
        return (0, y[1] - 1) if y[0] >= 1 else None
    if isinstance(op, math.FloorDiv | math.CeilDiv) and x[0] >= 0 and y[0] >= 1:
        up = isinstance(op, math.CeilDiv)
        return (-(-x[0] // y[1]), -(-x[1] // y[0])) if up else (x[0] // y[1], x[1] // y[0])
    return None
