"""Arithmetic: elementwise ops on scalars and register tiles.

What is narrower than 32 bits is computed in f32 or 32-bit integers (``widths``), where one rounding
or wrap at the end gives what the op means; ``math.fma``, which f32 would round twice, has 16-bit
instructions of its own. Single operations carry ``.rn`` so that the assembler does not contract
them.
"""

from __future__ import annotations

import math as pymath
from typing import Any

from tilec.ir.core import Builder
from tilec.ir.declare import Refused
from tilec.ir.levels import math, ptx
from tilec.ir.types import BOOL, F32, Bits, DType, Scalar
from tilec.passes.constants import encoded, rounded
from tilec.passes.ranges import type_bounds
from tilec.passes.select.selector import (
    PtxValue,
    Selector,
    bits_of,
    is_packed,
    lowers,
    register_kind,
)
from tilec.passes.select.widths import (
    bits_suffix,
    computed,
    element_count,
    elements_as,
    narrow,
    packed_as,
    raw,
    repacked,
    rounded_to_odd,
    suffix,
    unpacked,
    widen,
    words,
)

_FLOAT = {
    math.Add: "add.rn",
    math.Sub: "sub.rn",
    math.Mul: "mul.rn",
    math.Div: "div.rn",
    math.Max: "max.NaN",
    math.Min: "min.NaN",
    math.Neg: "neg",
    math.Abs: "abs",
    math.Sqrt: "sqrt.rn",
    math.Exp2: "ex2.approx.ftz",
    math.Log2: "lg2.approx.ftz",
    math.Rsqrt: "rsqrt.approx.ftz",
    math.Rcp: "rcp.approx.ftz",
    math.Tanh: "tanh.approx",
    math.Fma: "fma.rn",
}
_F32_ONLY = (math.Exp2, math.Log2, math.Rsqrt, math.Rcp, math.Tanh)
_INTEGER = {
    math.Add: "add",
    math.Sub: "sub",
    math.Mul: "mul.lo",
    math.Max: "max",
    math.Min: "min",
    math.Abs: "abs",
    math.Fma: "mad.lo",
}
_BITWISE = {math.And: "and", math.Or: "or", math.Xor: "xor", math.Not: "not"}
_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453


def _finish(sel: Selector, op: math.Elementwise, result: PtxValue) -> None:
    """The result of an op in its computed type, as what stands for its value."""
    type = op.results[0].type
    sel.set(op.results[0], repacked(sel, result, math.element_type(type), isinstance(type, Scalar)))


@lowers(math.Elementwise)
def _elementwise(sel: Selector, op: math.Elementwise) -> None:
    dtype = math.element_type(op.operands[0].type)
    count = element_count(math.common_shape(op.operands))
    inputs = [unpacked(sel, v) for v in op.operands]
    if dtype.name == "bool":
        if type(op) not in _BITWISE:
            raise Refused("this operation is not defined on bool")
        result = sel.alu(f"{_BITWISE[type(op)]}.pred", *inputs, kind="pred", count=count)
        sel.set(op.results[0], result)
        return
    wide = computed(dtype)
    if isinstance(op, math.Max | math.Min) and wide.name == "f64":
        name = "max" if isinstance(op, math.Max) else "min"
        sel.set(op.out, wide_extreme(sel, name, *inputs, count=count))
        return
    opcode = _float_opcode(op, dtype) if dtype.is_float else _integer_opcode(op, wide)
    _finish(sel, op, sel.alu(opcode, *inputs, kind=register_kind(wide), count=count))


def _float_opcode(op: math.Elementwise, dtype: DType) -> str:
    wide = computed(dtype)
    opcode = _FLOAT.get(type(op))
    if opcode is None:
        raise Refused(f"this is not defined on {dtype}")
    if type(op) in _F32_ONLY and wide != F32:
        raise _approximate(dtype)
    return f"{opcode}.{wide.name}"


def _approximate(dtype: DType) -> Refused:
    """Why a function that GPUs approximate in f32 has no code for a type."""
    return Refused(
        f"GPUs have no instruction for this on {dtype}: "
        f"of {dtype} there are + - * /, abs, sqrt, min and max",
        "cast to f32 where that is precise enough",
    )


def _integer_opcode(op: math.Elementwise, wide: DType) -> str:
    if type(op) in _BITWISE:
        return f"{_BITWISE[type(op)]}.b{wide.bits}"
    if isinstance(op, math.Abs) and wide.kind == "unsigned":
        return f"mov.b{wide.bits}"
    if isinstance(op, math.Neg):
        return f"neg.s{wide.bits}"  # of unsigned integers too: they wrap
    if type(op) in _INTEGER:
        return f"{_INTEGER[type(op)]}.{suffix(wide)}"
    raise Refused(f"this is not defined on {math.element_type(op.operands[0].type)}")


def wide_extreme(sel: Selector, name: str, *inputs: PtxValue, count: int) -> PtxValue:
    """f64 ``max`` and ``min``, which drop a NaN in PTX: a sum has it where one operand does."""
    chosen = sel.alu(f"{name}.f64", *inputs, kind="f64", count=count)
    total = sel.alu("add.rn.f64", *inputs, kind="f64", count=count)
    unordered = sel.alu("setp.nan.f64", *inputs, kind="pred", count=count)
    return sel.alu("selp.f64", total, chosen, unordered, kind="f64", count=count)


@lowers(math.Fma)
def _fma(sel: Selector, op: math.Fma) -> None:
    dtype = math.element_type(op.x.type)
    if dtype.name not in ("f16", "bf16"):
        _elementwise(sel, op)
        return
    single = isinstance(op.out.type, Scalar)
    inputs = [sel.get(v) for v in op.operands]
    if not single:
        inputs = [
            sel.build.add(ptx.Combine(x, x, type=Bits("b32", 1))).out
            if isinstance(v.type, Scalar)
            else x
            for x, v in zip(inputs, op.operands, strict=True)
        ]
    bits = bits_of(op.out.type)
    opcode = f"fma.rn.{dtype.name}{'' if single else 'x2'}"
    sel.set(op.out, sel.alu(opcode, *inputs, kind=bits.kind, count=bits.count))


def _scaled(sel: Selector, op: math.Unary, before: float, opcode: str, after: float) -> None:
    dtype = math.element_type(op.x.type)
    if computed(dtype) != F32:
        raise _approximate(dtype)
    value = unpacked(sel, op.x)
    count = value.type.count
    if before != 1.0:
        value = sel.alu("mul.rn.f32", value, before, kind="f32", count=count)
    value = sel.alu(opcode, value, kind="f32", count=count)
    if after != 1.0:
        value = sel.alu("mul.rn.f32", value, after, kind="f32", count=count)
    _finish(sel, op, value)


@lowers(math.Exp)
def _exp(sel: Selector, op: math.Exp) -> None:
    # e^x = 2^(x log2 e)
    _scaled(sel, op, _LOG2_E, "ex2.approx.ftz.f32", 1.0)


@lowers(math.Log)
def _log(sel: Selector, op: math.Log) -> None:
    # ln x = log2 x * ln 2
    _scaled(sel, op, 1.0, "lg2.approx.ftz.f32", _LN_2)


@lowers(math.Shl, math.Shr)
def _shift(sel: Selector, op: Any) -> None:
    dtype = math.element_type(op.x.type)
    if not dtype.is_integer:
        raise Refused(f"shifts are not defined on {dtype}")
    count = element_count(math.common_shape(op.operands))
    wide = computed(dtype)
    kind = f"b{wide.bits}" if isinstance(op, math.Shl) else suffix(wide)
    amount = unpacked(sel, op.y)
    if dtype.bits == 64:
        # Counts past the width act as the width does, also those that 32 bits do not hold.
        each = amount.type.count
        amount = sel.alu("min.u64", amount, 64, kind="b64", count=each)
        amount = sel.alu("cvt.u32.u64", amount, kind="b32", count=each)
    name = "shl" if isinstance(op, math.Shl) else "shr"
    x = unpacked(sel, op.x)
    _finish(sel, op, sel.alu(f"{name}.{kind}", x, amount, kind=f"b{wide.bits}", count=count))


@lowers(math.Compare)
def _compare(sel: Selector, op: math.Compare) -> None:
    dtype = math.element_type(op.x.type)
    x, y = unpacked(sel, op.x), unpacked(sel, op.y)
    count = element_count(math.common_shape([op.x, op.y]))
    relation = "neu" if op.relation == "ne" and dtype.is_float else op.relation
    if dtype.name == "bool":
        if relation not in ("eq", "ne"):
            raise Refused("bools are compared with == and != only")
        different = sel.alu("xor.pred", x, y, kind="pred", count=count)
        result = different
        if relation == "eq":
            result = sel.alu("not.pred", different, kind="pred", count=count)
        sel.set(op.out, result)
        return
    sel.set(
        op.out,
        sel.alu(f"setp.{relation}.{suffix(computed(dtype))}", x, y, kind="pred", count=count),
    )


@lowers(math.Where)
def _where(sel: Selector, op: math.Where) -> None:
    dtype = math.element_type(op.x.type)
    condition = sel.get(op.condition)
    count = element_count(math.common_shape(op.operands))
    if dtype.name == "bool":
        x, y = sel.get(op.x), sel.get(op.y)
        yes = sel.alu("and.pred", condition, x, kind="pred", count=count)
        no = sel.alu("not.pred", condition, kind="pred", count=condition.type.count)
        no = sel.alu("and.pred", no, y, kind="pred", count=count)
        sel.set(op.out, sel.alu("or.pred", yes, no, kind="pred", count=count))
        return
    moved = raw(dtype)  # bits are chosen, not numbers
    wide = computed(moved)
    x, y = (elements_as(sel, v, moved) for v in (op.x, op.y))
    kind = register_kind(wide)
    result = sel.alu(f"selp.{bits_suffix(wide)}", x, y, condition, kind=kind, count=count)
    sel.set(op.out, packed_as(sel, result, moved, op.out.type))


@lowers(math.Cast)
def _cast(sel: Selector, op: math.Cast) -> None:
    source, target = math.element_type(op.x.type), op.dtype
    single = isinstance(op.x.type, Scalar)
    if target == source:
        sel.set(op.out, sel.get(op.x))
        return
    value, at, goal = unpacked(sel, op.x), computed(source), computed(target)
    if goal == F32 and target != F32 and at not in (F32, BOOL):
        # By way of f32 they would be rounded twice; 8 and 16 bits fit f32 as they are.
        if target.name in ("f16", "bf16") and not is_packed(source):
            sel.set(op.out, _narrowed_once(sel, value, at, target, single))
            return
        if not is_packed(source):
            value, at = rounded_to_odd(sel, value, at), F32
    value = _convert(sel, value, at, goal)
    if is_packed(target) and target.is_integer and source.is_float:
        value = _clamped(sel, value, target)
    if goal != target:
        value = narrow(sel, value, target, single, op.saturate)
    sel.set(op.out, value)


def _clamped(sel: Selector, value: PtxValue, dtype: DType) -> PtxValue:
    """32-bit integers at most at the ends of a narrower type."""
    low, high = type_bounds(dtype)
    name, count = suffix(computed(dtype)), value.type.count
    if low:
        value = sel.alu(f"max.{name}", value, low, count=count)
    return sel.alu(f"min.{name}", value, high, count=count)


def _narrowed_once(
    sel: Selector, value: PtxValue, source: DType, target: DType, single: bool
) -> PtxValue:
    """32- and 64-bit integers and f64 to 16-bit floats."""
    if target.name == "bf16" and not sel.ctx.target.has_wide_cvt:
        return narrow(sel, rounded_to_odd(sel, value, source), target, single)
    opcode = f"cvt.rn.{target.name}.{suffix(source)}"
    return words(sel, sel.alu(opcode, value, kind="b16", count=value.type.count), single)


def _convert(sel: Selector, value: PtxValue, source: DType, target: DType) -> PtxValue:
    """Between the types that are computed in."""
    count = value.type.count
    if source == target:
        return value
    kind = register_kind(target)
    if source == BOOL:
        one: int | float = 1.0 if target.is_float else 1
        name = bits_suffix(target)
        return sel.alu(f"selp.{name}", one, one * 0, value, kind=kind, count=count)
    if target == BOOL:
        zero = sel.constant(0.0 if source.is_float else 0, register_kind(source))
        ne = "neu" if source.is_float else "ne"
        return sel.alu(f"setp.{ne}.{suffix(source)}", value, zero, kind=kind, count=count)
    rounding = ""
    if source.is_float and target.is_float:
        rounding = ".rn" if target.bits < source.bits else ""
    elif source.is_float:
        rounding = ".rzi"  # truncates; out of range saturates (PTX ISA, cvt)
    elif target.is_float:
        rounding = ".rn"
    opcode = f"cvt{rounding}.{suffix(target)}.{suffix(source)}"
    if {source.kind, target.kind} == {"signed", "unsigned"} and source.bits == target.bits:
        opcode = f"mov.b{target.bits}"
    result = sel.alu(opcode, value, kind=kind, count=count)
    if source.is_float and target.is_integer and 64 in (source.bits, target.bits):
        # NaN gives 0 only from 32 bits to 32 bits; else the top bit alone (PTX ISA, cvt).
        ordered = sel.alu(f"setp.num.{suffix(source)}", value, value, kind="pred", count=count)
        result = sel.alu(f"selp.b{target.bits}", result, 0, ordered, kind=kind, count=count)
    return result


@lowers(math.Bitcast)
def _bitcast(sel: Selector, op: math.Bitcast) -> None:
    move, kind = f"mov.b{op.dtype.bits}", register_kind(op.dtype)
    sel.set(op.out, sel.alu(move, sel.get(op.x), kind=kind, count=element_count(op.out.type)))


@lowers(math.Constant)
def _constant(sel: Selector, op: math.Constant) -> None:
    if not isinstance(op.type, Scalar):
        raise Refused(f"a constant is a scalar, not {op.type}")
    sel.set(op.out, typed_constant(sel, sel.build, op.value, op.type.dtype))


def typed_constant(
    sel: Selector, build: Builder, value: int | float | bool, dtype: DType
) -> PtxValue:
    """A literal of an element type, as the register that a scalar of it has."""
    kind = register_kind(dtype)
    if dtype.name in ("f16", "bf16"):
        literal = build.add(ptx.Constant(value=rounded(value, dtype), type=Bits("f32", 1))).out
        return sel.alu_on(build, f"cvt.rn.{dtype.name}.f32", literal, kind="b16")
    if dtype.is_float and dtype.bits == 8:
        value = encoded(value, dtype)
    elif dtype.is_float:
        value = rounded(value, dtype)
    elif kind == "pred":
        value = bool(value)
    elif isinstance(value, float) and not pymath.isfinite(value):
        raise Refused(f"{value} is not a value of {dtype}")
    else:
        value = rounded(int(value), dtype)
    return build.add(ptx.Constant(value=value, type=Bits(kind, 1))).out


@lowers(math.Fill)
def _fill(sel: Selector, op: math.Fill) -> None:
    bits = bits_of(op.type)
    dtype = math.element_type(op.type)
    value = sel.get(op.x)
    if dtype.name in ("f16", "bf16"):
        wide = widen(sel, value, dtype, 1, single=True)
        value = narrow(sel, sel.join([wide, wide]), dtype, single=False)
    elif is_packed(dtype):
        wide = sel.alu("cvt.u32.u16", value)
        value = sel.alu("prmt.b32", wide, 0, 0x0000 if dtype.bits == 8 else 0x1010)
    move = "mov.pred" if bits.kind == "pred" else f"mov.{bits.kind}"
    sel.set(op.out, sel.alu(move, value, kind=bits.kind, count=bits.count))
