"""Meaning of the ops that compute on elements and of structured control."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.interp import elementwise
from tilec.interp.machine import Held, Machine, Unmeant, held, line_of, meaning
from tilec.interp.memory import InterpretError
from tilec.interp.numbers import carrier, rounded, unsaturated
from tilec.ir.core import Value
from tilec.ir.levels import flow, math
from tilec.ir.types import Scalar


def _common_valid(machine: Machine, operands: list[Value[Any]]) -> tuple[int | None, ...]:
    """Axes meet only when they carry the same index, so any operand that knows it is right."""
    known = [machine.values[v].valid for v in operands if not isinstance(v.type, Scalar)]
    each_axis = zip(*known, strict=True)
    return tuple(min((n for n in axis if n is not None), default=None) for axis in each_axis)


def _elementwise(machine: Machine, op: math.Elementwise, raw: Any) -> Held:
    data = elementwise.settle(op.results[0].type.dtype, raw, machine.wide)
    return held(data, _common_valid(machine, op.operands))


@meaning(*elementwise.BINARY)
def _binary(machine: Machine, op: math.Binary) -> Held:
    function = elementwise.BINARY[type(op)]
    return _elementwise(machine, op, function(machine.data(op.x), machine.data(op.y)))


@meaning(*elementwise.UNARY)
def _unary(machine: Machine, op: math.Unary) -> Held:
    return _elementwise(machine, op, elementwise.UNARY[type(op)](machine.data(op.x)))


@meaning(math.Fma)
def _fma(machine: Machine, op: math.Fma) -> Held:
    x, y, z = (machine.data(v) for v in op.operands)
    dtype = op.out.type.dtype
    return _elementwise(machine, op, elementwise.fused(dtype, x, y, z, machine.wide))


@meaning(math.Compare)
def _compare(machine: Machine, op: math.Compare) -> Held:
    function = elementwise.RELATIONS[op.relation]
    return _elementwise(machine, op, function(machine.data(op.x), machine.data(op.y)))


@meaning(math.Where)
def _where(machine: Machine, op: math.Where) -> Held:
    condition, x, y = (machine.data(v) for v in op.operands)
    if condition.ndim:
        machine.count("masks", op)
    return _elementwise(machine, op, np.where(condition, x, y))


@meaning(math.Ptx)
def _ptx(machine: Machine, op: math.Ptx) -> list[Unmeant]:
    line = line_of(op)
    return [Unmeant(line)] * len(op.out)


@meaning(math.Cast)
def _cast(machine: Machine, op: math.Cast) -> Held:
    source = op.x.type.dtype
    given = machine.data(op.x)
    data = elementwise.cast(source, op.dtype, given, machine.wide, op.saturate)
    return held(data, machine.values[op.x].valid)


@meaning(math.Bitcast)
def _bitcast(machine: Machine, op: math.Bitcast) -> Held:
    given = machine.data(op.x)
    bits = np.ascontiguousarray(given.astype(carrier(op.x.type.dtype))).view(carrier(op.dtype))
    return _elementwise(machine, op, bits.reshape(given.shape))


@meaning(math.Constant)
def _constant(machine: Machine, op: math.Constant) -> Held:
    dtype = op.out.type.dtype
    if dtype.is_float:
        exact = np.asarray(op.value, np.float64)
        value = rounded(dtype, exact, machine.wide)
        # An infinity that is written is one, also of a type that saturates.
        return held(unsaturated(dtype, exact, value) if np.isinf(exact) else value)
    # Through a Python integer: a constant beyond the type wraps as arithmetic on it does.
    bits = int(op.value) & ((1 << dtype.bits) - 1)
    if dtype.kind == "signed" and bits >> (dtype.bits - 1):
        bits -= 1 << dtype.bits
    return held(np.asarray(bits != 0 if dtype.kind == "bool" else bits, carrier(dtype)))


@meaning(math.Fill)
def _fill(machine: Machine, op: math.Fill) -> Held:
    return held(np.full(machine.shape(op.type), machine.data(op.x)))


@meaning(math.Expand)
def _expand(machine: Machine, op: math.Expand) -> Held:
    source = machine.values[op.x]
    valid = (*source.valid[: op.axis], None, *source.valid[op.axis :])
    return held(np.expand_dims(source.data, op.axis), valid)


@meaning(math.Squeeze)
def _squeeze(machine: Machine, op: math.Squeeze) -> Held:
    source = machine.values[op.x]
    valid = (*source.valid[: op.axis], *source.valid[op.axis + 1 :])
    return held(np.squeeze(source.data, op.axis), valid)


@meaning(math.Broadcast)
def _broadcast(machine: Machine, op: math.Broadcast) -> Held:
    source = machine.values[op.x]
    repeated = [extent == 1 for extent in op.x.type.shape]
    valid = tuple(None if r else n for r, n in zip(repeated, source.valid, strict=True))
    return held(np.broadcast_to(source.data, machine.shape(op.type)), valid)


@meaning(math.Reduce)
def _reduce(machine: Machine, op: math.Reduce) -> Held:
    dtype = op.out.type.dtype
    fill = elementwise.identity(op.kind, op.x.type.dtype, machine.wide)
    in_order = op.strict and dtype.is_float and op.kind in elementwise.FREE_ORDER
    if in_order and op.kind == "add":
        fill = -fill  # 0 + -0 is 0: this alone changes nothing
    data = machine.filled(op.x, op.axis, fill)
    source = machine.values[op.x].valid
    valid = (*source[: op.axis], *source[op.axis + 1 :])
    if in_order:
        return held(elementwise.halved(op.kind, dtype, data, op.axis, machine.wide), valid)
    return held(elementwise.reduce(op.kind, dtype, data, op.axis, machine.wide), valid)


# --- control -------------------------------------------------------------------------------------


@meaning(flow.For)
def _for(machine: Machine, op: flow.For) -> list[Any]:
    lower, upper, step = (machine.scalar(v) for v in (op.lower, op.upper, op.step))
    if step <= 0:
        raise InterpretError(f"the loop's step is {step}; it must be positive")
    carried = [machine.values[v] for v in op.init]
    for number in range(lower, upper, step):
        machine.count("rounds", op)
        machine.values.update(zip(op.body.args, [held(np.int32(number)), *carried], strict=True))
        carried = machine.run(op.body)
    return carried


@meaning(flow.While)
def _while(machine: Machine, op: flow.While) -> list[Any]:
    carried = [machine.values[v] for v in op.init]
    while True:
        machine.values.update(zip(op.test.args, carried, strict=True))
        (go_on,) = machine.run(op.test)
        if not go_on.data[()]:
            return carried
        machine.values.update(zip(op.body.args, carried, strict=True))
        carried = machine.run(op.body)


@meaning(flow.If)
def _if(machine: Machine, op: flow.If) -> list[Any]:
    return machine.run(op.then if machine.scalar(op.condition) else op.otherwise)
