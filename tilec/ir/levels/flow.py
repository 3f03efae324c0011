"""Structured control for levels ``tile`` and ``cta``: loops carry values explicitly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.core import Op, Region, Value
from tilec.ir.declare import attribute, operand, operands, region, result_types, results
from tilec.ir.types import BOOL, S32, Scalar, Type


class Yield(Op, name="flow.yield", terminator=True):
    """End a region and hand its values to the op that owns it."""

    values: tuple[Value[Any], ...] = operands()


def yielded(body: Region) -> tuple[Value[Any], ...]:
    """What the region's terminator hands out; empty without a terminator."""
    last = body.terminator
    return tuple(last.operands) if last is not None else ()


class For(Op, name="flow.for"):
    """For index = lower, lower + step, ... while index < upper, in order.

    The body's arguments are the index and one carried value for each of ``init``; its yield
    gives their next values, and the results are their last ones. ``step`` is positive.
    """

    lower: Value[Scalar] = operand()
    upper: Value[Scalar] = operand()
    step: Value[Scalar] = operand()
    init: tuple[Value[Any], ...] = operands()
    body: Region = region()
    finals: tuple[Value[Any], ...] = results()

    def infer(self) -> Sequence[Type]:
        """One result a carried value."""
        return [v.type for v in self.init]

    def check(self) -> Iterator[str]:
        """Bounds are s32, the step goes up; arguments, initial values and yields agree."""
        types = [v.type for v in self.init]
        if any(v.type != Scalar(S32) for v in (self.lower, self.upper, self.step)):
            yield "lower, upper and step must be s32"
        step = getattr(self.step.owner, "value", 1)
        if isinstance(step, int) and step < 1:
            yield f"the step is {step}, so the loop never ends"
        if [a.type for a in self.body.args] != [Scalar(S32), *types]:
            yield "the body's arguments must be the index (s32) and the carried values"
        if [v.type for v in yielded(self.body)] != types:
            yield "the body must yield one value of the same type for each carried value"


class While(Op, name="flow.while"):
    """While ``test`` yields true, run ``body``; both take the carried values.

    ``body`` yields their next values, and the results are the last ones.
    """

    init: tuple[Value[Any], ...] = operands()
    test: Region = region()
    body: Region = region()
    finals: tuple[Value[Any], ...] = results()

    def infer(self) -> Sequence[Type]:
        """One result a carried value."""
        return [v.type for v in self.init]

    def check(self) -> Iterator[str]:
        """Arguments, initial values and yields agree; the test yields one condition."""
        types = [v.type for v in self.init]
        if any([a.type for a in part.args] != types for part in (self.test, self.body)):
            yield "the arguments of both regions must be the carried values"
        if [v.type for v in yielded(self.test)] != [Scalar(BOOL)]:
            yield "the test must yield one bool"
        if [v.type for v in yielded(self.body)] != types:
            yield "the body must yield one value of the same type for each carried value"


class If(Op, name="flow.if"):
    """One of two regions; both yield the results. The condition is uniform over a warp.

    ``cold`` says that the first region is rarely taken and may be placed out of line.
    """

    condition: Value[Scalar] = operand()
    types: tuple[Type, ...] = result_types()
    then: Region = region()
    otherwise: Region = region()
    cold: bool = attribute(default=False)
    out: tuple[Value[Any], ...] = results()

    def check(self) -> Iterator[str]:
        """The condition is bool, and both regions yield the results' types."""
        if self.condition.type != Scalar(BOOL):
            yield f"the condition has type {self.condition.type}, bool is needed"
        for body in (self.then, self.otherwise):
            if tuple(v.type for v in yielded(body)) != self.types:
                yield "both regions must yield one value of the same type for each result"
