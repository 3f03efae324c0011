"""Arithmetic: elementwise ops on scalars and register tiles.

16-bit floats are computed in f32 and rounded once, which gives the correctly rounded 16-bit
result for + - * / and the square root (f32 has more than twice their precision); ``math.fma``,
which f32 would round twice, has 16-bit instructions of its own. Single operations carry ``.rn`` so
that the assembler does not contract them.
"""

from __future__ import annotations

import math as pymath
from typing import Any

from tilec.ir.core import Builder, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import math, ptx
from tilec.ir.types import BOOL, F32, Bits, DType, Register, Scalar, Type
from tilec.passes.select.selector import (
    PtxValue,
    Selector,
    bits_of,
    is_packed,
    lowers,
    register_kind,
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


def element_count(type: Type) -> int:
    """Elements that one thread holds."""
    return type.layout.size("reg") if isinstance(type, Register) else 1


def unpacked(sel: Selector, value: Value[Any]) -> PtxValue:
    """A value with one register an element; 16-bit floats widened to f32."""
    dtype = math.element_type(value.type)
    stand = sel.get(value)
    if not dtype.is_float or dtype.bits != 16:
        return stand
    return widen(sel, stand, dtype, element_count(value.type), isinstance(value.type, Scalar))


def widen(sel: Selector, stand: PtxValue, dtype: DType, count: int, single: bool) -> PtxValue:
    """16-bit floats to f32, one register each; ``single`` says that they are not packed."""
    if single:
        if dtype.name == "f16":
            return sel.alu("cvt.f32.f16", stand, kind="f32")
        return sel.alu("cvt.f32.bf16", stand, kind="f32")
    pairs = stand.type.count
    if dtype.name == "bf16":
        # A bf16 is the upper half of an f32, so two integer instructions widen a pair.
        low = sel.alu("shl.b32", stand, 16, kind="b32", count=pairs)
        high = sel.alu("and.b32", stand, 0xFFFF0000, kind="b32", count=pairs)
        both = sel.join([low, high])
        order = [i // 2 + (i % 2) * pairs for i in range(count)]
        return as_float(sel, sel.pick(both, *order))
    halves = sel.build.add(ptx.Unpack(stand, type=Bits("b16", 2 * pairs))).out
    return sel.alu("cvt.f32.f16", sel.pick(halves, *range(count)), kind="f32", count=count)


def as_float(sel: Selector, value: PtxValue) -> PtxValue:
    """Bit patterns as f32 registers (the assembler drops the moves)."""
    return sel.alu("mov.b32", value, kind="f32", count=value.type.count)


def narrow(sel: Selector, value: PtxValue, dtype: DType, single: bool) -> PtxValue:
    """f32 to 16-bit floats, rounded to nearest even; packed unless ``single``."""
    count = value.type.count
    if single:
        return sel.alu(f"cvt.rn.{dtype.name}.f32", value, kind="b16")
    if count % 2:
        value = sel.join([value, sel.constant(0.0, "f32")])
        count += 1
    pack = ptx.Alu(
        (value,), opcode=f"cvt.rn.{dtype.name}x2.f32", per=2, type=Bits("b32", count // 2)
    )
    return sel.build.add(pack).out


def _finish(sel: Selector, op: math.Elementwise, result: PtxValue, computed: DType) -> None:
    out = op.results[0]
    dtype = math.element_type(out.type)
    if dtype.bits == 16 and dtype.is_float and computed == F32:
        result = narrow(sel, result, dtype, isinstance(out.type, Scalar))
    sel.set(out, result)


def _suffix(dtype: DType) -> str:
    return dtype.name if dtype.is_float else f"{dtype.kind[0]}{dtype.bits}"


def _computable(dtype: DType) -> DType:
    """The type that float arithmetic on a type is done in; refused where there is none."""
    if dtype.name in ("f32", "f64"):
        return dtype
    if dtype.name in ("f16", "bf16"):
        return F32
    raise Refused(f"arithmetic on {dtype} is not in this version; cast to f32 first")


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
    if dtype.is_float:
        computed = _computable(dtype)
        opcode = _FLOAT.get(type(op))
        if opcode is None or (type(op) in _F32_ONLY and computed != F32):
            raise Refused(f"there is no instruction for this on {dtype}")
        if isinstance(op, math.Max | math.Min) and computed != F32:
            sel.set(op.out, _wide_extreme(sel, opcode.removesuffix(".NaN"), inputs, count))
            return
        result = sel.alu(
            f"{opcode}.{computed.name}", *inputs, kind=register_kind(computed), count=count
        )
        _finish(sel, op, result, computed)
        return
    if is_packed(dtype):
        raise Refused(f"arithmetic on {dtype} tiles is not in this version; cast to s32 first")
    if type(op) in _BITWISE:
        opcode = f"{_BITWISE[type(op)]}.b{dtype.bits}"
    elif isinstance(op, math.Abs) and dtype.kind == "unsigned":
        opcode = f"mov.b{dtype.bits}"
    elif isinstance(op, math.Neg):
        opcode = f"neg.s{dtype.bits}"  # of unsigned integers too: they wrap
    elif type(op) in _INTEGER:
        opcode = f"{_INTEGER[type(op)]}.{_suffix(dtype)}"
    else:
        raise Refused(f"this is not defined on {dtype}")
    result = sel.alu(opcode, *inputs, kind=register_kind(dtype), count=count)
    sel.set(op.results[0], result)


def _wide_extreme(sel: Selector, name: str, inputs: list[PtxValue], count: int) -> PtxValue:
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
    if dtype.name not in ("f32", "f16", "bf16"):
        raise Refused(f"there is no instruction for this on {dtype}")
    value = unpacked(sel, op.x)
    count = value.type.count
    if before != 1.0:
        value = sel.alu("mul.rn.f32", value, before, kind="f32", count=count)
    value = sel.alu(opcode, value, kind="f32", count=count)
    if after != 1.0:
        value = sel.alu("mul.rn.f32", value, after, kind="f32", count=count)
    _finish(sel, op, value, F32)


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
    if not dtype.is_integer or is_packed(dtype):
        raise Refused(f"shifts are not defined on {dtype}")
    count = element_count(math.common_shape(op.operands))
    kind = f"b{dtype.bits}" if isinstance(op, math.Shl) else _suffix(dtype)
    amount = sel.get(op.y)
    if dtype.bits == 64:
        # Counts past the width act as the width does, also those that 32 bits do not hold.
        each = amount.type.count
        amount = sel.alu("min.u64", amount, 64, kind="b64", count=each)
        amount = sel.alu("cvt.u32.u64", amount, kind="b32", count=each)
    name = "shl" if isinstance(op, math.Shl) else "shr"
    result = sel.alu(f"{name}.{kind}", sel.get(op.x), amount, kind=f"b{dtype.bits}", count=count)
    sel.set(op.out, result)


def constant_of(value: Value[Any]) -> int | float | bool | None:
    """The literal that a value is, if it is one."""
    return value.owner.value if isinstance(value.owner, math.Constant) else None


@lowers(math.FloorDiv, math.Mod, math.CeilDiv)
def _division(sel: Selector, op: Any) -> None:
    dtype = math.element_type(op.x.type)
    if not dtype.is_integer or is_packed(dtype):
        raise Refused(f"integer division is not defined on {dtype}")
    count = element_count(math.common_shape(op.operands))
    kind, suffix = register_kind(dtype), _suffix(dtype)
    unsigned = dtype.kind == "unsigned"
    if not unsigned and sel.ranges.never_negative(op.x) and sel.ranges.never_negative(op.y):
        # Of what is not negative both kinds of division are the same, and nothing needs a fix.
        unsigned, suffix = True, f"u{dtype.bits}"
    x, y = sel.get(op.x), sel.get(op.y)
    divisor = constant_of(op.y)

    def alu(opcode: str, *inputs: PtxValue | int, to: str = kind) -> PtxValue:
        return sel.alu(opcode, *inputs, kind=to, count=count)

    if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
        # For a power of two, shifting rounds down and masking gives the remainder >= 0.
        rest = alu(f"and.b{dtype.bits}", x, divisor - 1)
        if isinstance(op, math.Mod):
            sel.set(op.out, rest)
            return
        down = alu(f"shr.{suffix}", x, sel.constant(divisor.bit_length() - 1))
        if isinstance(op, math.CeilDiv):
            # One more where a remainder is left; x + y - 1 could wrap.
            down = alu(f"add.{suffix}", down, alu(f"min.{suffix}", rest, 1))
        sel.set(op.out, down)
        return
    quotient = alu(f"div.{suffix}", x, y)
    remainder = alu(f"sub.{suffix}", x, alu(f"mul.lo.{suffix}", quotient, y))
    if unsigned:
        if isinstance(op, math.CeilDiv):
            quotient = alu(f"add.{suffix}", quotient, alu(f"min.{suffix}", remainder, 1))
        sel.set(op.out, remainder if isinstance(op, math.Mod) else quotient)
        return
    fixes = alu(f"setp.ne.{suffix}", remainder, 0, to="pred")
    # Truncation differs from the floor where a remainder is left and has not the divisor's
    # sign, and from the ceiling where it has.
    relation = "ge" if isinstance(op, math.CeilDiv) else "lt"
    signs = alu(f"xor.b{dtype.bits}", remainder, y)
    signs = alu(f"setp.{relation}.{suffix}", signs, 0, to="pred")
    fixes = alu("and.pred", signs, fixes, to="pred")
    if isinstance(op, math.Mod):
        fixed, plain = alu(f"add.{suffix}", remainder, y), remainder
    else:
        step = "add" if isinstance(op, math.CeilDiv) else "sub"
        fixed, plain = alu(f"{step}.{suffix}", quotient, 1), quotient
    sel.set(op.out, alu(f"selp.b{dtype.bits}", fixed, plain, fixes))


@lowers(math.Compare)
def _compare(sel: Selector, op: math.Compare) -> None:
    dtype = math.element_type(op.x.type)
    if dtype.is_float:
        _computable(dtype)
    elif is_packed(dtype):
        raise Refused(f"comparisons of {dtype} tiles are not in this version; cast to s32 first")
    x, y = unpacked(sel, op.x), unpacked(sel, op.y)
    count = element_count(math.common_shape([op.x, op.y]))
    suffix = "f32" if dtype.is_float and dtype.bits == 16 else _suffix(dtype)
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
    sel.set(op.out, sel.alu(f"setp.{relation}.{suffix}", x, y, kind="pred", count=count))


@lowers(math.Where)
def _where(sel: Selector, op: math.Where) -> None:
    dtype = math.element_type(op.x.type)
    condition = sel.get(op.condition)
    x, y = unpacked(sel, op.x), unpacked(sel, op.y)
    count = element_count(math.common_shape(op.operands))
    computed = F32 if dtype.is_float and dtype.bits == 16 else dtype
    if dtype.name == "bool":
        yes = sel.alu("and.pred", condition, x, kind="pred", count=count)
        no = sel.alu("not.pred", condition, kind="pred", count=condition.type.count)
        no = sel.alu("and.pred", no, y, kind="pred", count=count)
        sel.set(op.out, sel.alu("or.pred", yes, no, kind="pred", count=count))
        return
    if is_packed(dtype) and computed == dtype:
        raise Refused(f"where on {dtype} tiles is not in this version; cast to s32 first")
    kind = register_kind(computed)
    suffix = kind if kind.startswith("f") else f"b{computed.bits}"
    result = sel.alu(f"selp.{suffix}", x, y, condition, kind=kind, count=count)
    _finish(sel, op, result, computed)


@lowers(math.Cast)
def _cast(sel: Selector, op: math.Cast) -> None:
    source, target = math.element_type(op.x.type), op.dtype
    single = isinstance(op.x.type, Scalar)
    value = unpacked(sel, op.x)
    sixteen = source.is_float and source.bits == 16
    at = F32 if sixteen else source
    if at != source and target == source:
        sel.set(op.out, sel.get(op.x))
        return
    if target.name in ("f16", "bf16") and at not in (F32, BOOL):
        sel.set(op.out, _narrowed_once(sel, value, at, target, single))
        return
    goal = F32 if target.is_float and target.bits == 16 else target
    value = _convert(sel, value, at, goal)
    if goal != target:
        value = narrow(sel, value, target, single)
    sel.set(op.out, value)


def _narrowed_once(
    sel: Selector, value: PtxValue, source: DType, target: DType, single: bool
) -> PtxValue:
    """Integers and f64 to 16-bit floats; by way of f32 they would be rounded twice."""
    if is_packed(source) or source.name == "tf32":
        raise Refused(f"the cast from {source} to {target} is not in this version")
    count = value.type.count
    opcode = f"cvt.rn.{target.name}.{_suffix(source)}"
    halves = sel.alu(opcode, value, kind="b16", count=count)
    if single:
        return halves
    if count % 2:
        halves, count = sel.join([halves, sel.constant(0, "b16")]), count + 1
    low, high = sel.pick(halves, *range(0, count, 2)), sel.pick(halves, *range(1, count, 2))
    return sel.build.add(ptx.Combine(low, high, type=Bits("b32", count // 2))).out


def _convert(sel: Selector, value: PtxValue, source: DType, target: DType) -> PtxValue:
    count = value.type.count
    if source == target:
        return value
    if is_packed(source) or is_packed(target) or "tf32" in (source.name, target.name):
        raise Refused(f"the cast from {source} to {target} is not in this version")
    kind = register_kind(target)
    if source == BOOL:
        one: int | float = 1.0 if target.is_float else 1
        suffix = kind if kind.startswith("f") else f"b{target.bits}"
        return sel.alu(f"selp.{suffix}", one, one * 0, value, kind=kind, count=count)
    if target == BOOL:
        zero = sel.constant(0.0 if source.is_float else 0, register_kind(source))
        ne = "neu" if source.is_float else "ne"
        return sel.alu(f"setp.{ne}.{_suffix(source)}", value, zero, kind=kind, count=count)
    rounding = ""
    if source.is_float and target.is_float:
        rounding = ".rn" if target.bits < source.bits else ""
    elif source.is_float:
        rounding = ".rzi"  # truncates; out of range saturates (PTX ISA, cvt)
    elif target.is_float:
        rounding = ".rn"
    opcode = f"cvt{rounding}.{_suffix(target)}.{_suffix(source)}"
    if {source.kind, target.kind} == {"signed", "unsigned"} and source.bits == target.bits:
        opcode = f"mov.b{target.bits}"
    result = sel.alu(opcode, value, kind=kind, count=count)
    if source.is_float and target.is_integer and 64 in (source.bits, target.bits):
        # NaN gives 0 only from 32 bits to 32 bits; else the top bit alone (PTX ISA, cvt).
        ordered = sel.alu(f"setp.num.{_suffix(source)}", value, value, kind="pred", count=count)
        result = sel.alu(f"selp.b{target.bits}", result, 0, ordered, kind=kind, count=count)
    return result


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
        literal = build.add(ptx.Constant(value=_nearest(value, dtype), type=Bits("f32", 1))).out
        return sel.alu_on(build, f"cvt.rn.{dtype.name}.f32", literal, kind="b16")
    if dtype.is_float:
        value = _nearest(value, dtype)
    elif kind == "pred":
        value = bool(value)
    elif isinstance(value, float) and not pymath.isfinite(value):
        raise Refused(f"{value} is not a value of {dtype}")
    else:
        value = int(value) & ((1 << dtype.bits) - 1)
        if dtype.kind == "signed" and value >> (dtype.bits - 1):
            value -= 1 << dtype.bits
    return build.add(ptx.Constant(value=value, type=Bits(kind, 1))).out


_PRECISIONS = {"f32": (24, -126), "f16": (11, -14), "bf16": (8, -126)}
"""Bits of precision and the least exponent of a normal number."""


def _nearest(value: float, dtype: DType) -> float:
    """The value rounded once to a float type, to nearest even; what is too large is infinite."""
    value = float(value)
    if dtype.name not in _PRECISIONS or not pymath.isfinite(value):
        return value
    precision, least = _PRECISIONS[dtype.name]
    last = max(pymath.frexp(value)[1] - precision, least - precision + 1)
    near = pymath.ldexp(float(round(pymath.ldexp(value, -last))), last)
    beyond = pymath.ldexp(1.0, 16 if dtype.name == "f16" else 128)
    return pymath.copysign(near if abs(near) < beyond else pymath.inf, value)


@lowers(math.Fill)
def _fill(sel: Selector, op: math.Fill) -> None:
    bits = bits_of(op.type)
    dtype = math.element_type(op.type)
    value = sel.get(op.x)
    if is_packed(dtype):
        if not (dtype.is_float and dtype.bits == 16):
            raise Refused(f"filling {dtype} tiles is not in this version")
        wide = widen(sel, value, dtype, 1, single=True)
        pair = sel.join([wide, wide])
        value = narrow(sel, pair, dtype, single=False)
    move = "mov.pred" if bits.kind == "pred" else f"mov.{bits.kind}"
    sel.set(op.out, sel.alu(move, value, kind=bits.kind, count=bits.count))
