"""Narrow element types in registers: taken apart to compute on, and put together again.

A tile of elements narrower than 32 bits keeps several in one 32-bit register, the first lowest; a
scalar of them has a 16-bit register, of which an 8-bit type reads the low byte alone. There is no
arithmetic on them but what 32-bit registers do, one an element (``computed`` says which type):
``widen`` is exact, ``narrow`` rounds once to nearest even, or wraps. So 16-bit floats are computed
in f32 and rounded once, which gives the correctly rounded result of + - * / and the square root
(f32 has more than twice their precision), and integers wrap as if in their own width.

Values wider than f32 reach the 8-bit floats and tf32 by way of f32 rounded to odd: such a value
lies on no tie of a narrower type unless the exact one does, so the second rounding decides as if
it were the only one. Nothing here depends on the op that computes.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Value
from tilec.ir.declare import Refused
from tilec.ir.levels import math, ptx
from tilec.ir.types import BOOL, DTYPES, F32, S32, Bits, DType, Register, Scalar, Type
from tilec.passes.select.selector import PtxValue, Selector, is_packed, register_kind

U32 = DTYPES["u32"]
_SIXTEEN = ("f16", "bf16")
_EIGHT = ("e4m3", "e5m2")
_SIGN, _ZERO = 8, 4  # prmt: a byte's sign bit eight times; a byte of the second source, zero here


def element_count(type: Type) -> int:
    """Elements that one thread holds."""
    return type.layout.size("reg") if isinstance(type, Register) else 1


def computed(dtype: DType) -> DType:
    """The type in whose registers elements of a type are computed on."""
    if dtype.is_float:
        return dtype if dtype.bits == 64 else F32
    if is_packed(dtype):
        return S32 if dtype.kind == "signed" else U32
    return dtype


def suffix(dtype: DType) -> str:
    """How instructions spell a type that they compute in."""
    return dtype.name if dtype.is_float else f"{dtype.kind[0]}{dtype.bits}"


def bits_suffix(dtype: DType) -> str:
    """How ``selp`` spells a type: integers as plain bits."""
    kind = register_kind(dtype)
    return kind if kind.startswith("f") else f"b{dtype.bits}"


def unpacked(sel: Selector, value: Value[Any]) -> PtxValue:
    """A value with one register an element, in its ``computed`` type."""
    dtype = math.element_type(value.type)
    stand = sel.get(value)
    if dtype == computed(dtype):
        return stand
    return widen(sel, stand, dtype, element_count(value.type), isinstance(value.type, Scalar))


def repacked(sel: Selector, value: PtxValue, dtype: DType, single: bool) -> PtxValue:
    """The other way: values of the ``computed`` type as elements of ``dtype``."""
    return value if dtype == computed(dtype) else narrow(sel, value, dtype, single)


def raw(dtype: DType) -> DType:
    """The type as which elements are moved about where their meaning does not matter.

    Packed ones are unsigned integers then; 16-bit floats are moved as the f32 that equal them.
    """
    if dtype.name == "tf32":
        return F32
    return DTYPES[f"u{dtype.bits}"] if is_packed(dtype) and dtype.name not in _SIXTEEN else dtype


def widen(sel: Selector, stand: PtxValue, dtype: DType, count: int, single: bool) -> PtxValue:
    """Elements in the ``computed`` type, one register each; ``single`` says: not packed."""
    if dtype.name == "tf32":
        # An array may hold more digits than the type has; what is read is rounded.
        return to_tf32(sel, stand)
    if dtype.is_integer:
        return _widen_integers(sel, stand, dtype, count, single)
    if dtype.name in _EIGHT:
        return _widen_eight(sel, stand, dtype, count, single)
    if single and dtype.name == "bf16" and not sel.ctx.target.has_wide_cvt:
        upper = ptx.Combine(sel.constant(0, "b16"), stand, type=Bits("b32", 1))
        return as_float(sel, sel.build.add(upper).out)
    if single:
        return sel.alu(f"cvt.f32.{dtype}", stand, kind="f32")
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


def _widen_integers(
    sel: Selector, stand: PtxValue, dtype: DType, count: int, single: bool
) -> PtxValue:
    wide = computed(dtype)
    if single:
        return sel.alu(f"cvt.{suffix(wide)}.{suffix(dtype)}", stand)
    # One prmt an element picks its bytes and fills up with its sign, or with zeros.
    words, each = stand.type.count, 32 // dtype.bits
    parts = []
    for place in range(each):
        picked = [place * dtype.bytes + n for n in range(dtype.bytes)]
        above = picked[-1] | _SIGN if dtype.kind == "signed" else _ZERO
        selector = sum((picked[n] if n < dtype.bytes else above) << (4 * n) for n in range(4))
        parts.append(sel.alu("prmt.b32", stand, 0, selector, count=words))
    order = [(n % each) * words + n // each for n in range(count)]
    return sel.pick(sel.join(parts), *order)


def _need_eight(sel: Selector, dtype: DType) -> None:
    if not sel.ctx.target.has_fp8_casts:
        raise Refused(f"{sel.ctx.target.name} has no casts of {dtype}", "compile for --sm 89 or 90")


def _widen_eight(
    sel: Selector, stand: PtxValue, dtype: DType, count: int, single: bool
) -> PtxValue:
    """8-bit floats come in pairs, by way of f16, which holds them all (PTX ISA, cvt)."""
    _need_eight(sel, dtype)
    pairs = stand
    if not single:
        pairs = sel.build.add(ptx.Unpack(stand, type=Bits("b16", 2 * stand.type.count))).out
    number = pairs.type.count
    halves = sel.alu(f"cvt.rn.f16x2.{dtype}x2", pairs, count=number)
    each = sel.build.add(ptx.Unpack(halves, type=Bits("b16", 2 * number))).out
    return sel.alu("cvt.f32.f16", sel.pick(each, *range(count)), kind="f32", count=count)


def as_float(sel: Selector, value: PtxValue) -> PtxValue:
    """Bit patterns as f32 registers (the assembler drops the moves)."""
    return sel.alu("mov.b32", value, kind="f32", count=value.type.count)


def _as_bits(sel: Selector, value: PtxValue) -> PtxValue:
    return sel.alu("mov.b32", value, count=value.type.count)


def _filled_up(sel: Selector, value: PtxValue, each: int) -> PtxValue:
    """The value with zeros behind it, a multiple of ``each`` registers."""
    missing = -value.type.count % each
    zero = 0.0 if value.type.kind == "f32" else 0
    return sel.join([value, *(sel.constant(zero, value.type.kind) for _ in range(missing))])


def _pairwise(sel: Selector, opcode: str, value: PtxValue, kind: str, *more: PtxValue) -> PtxValue:
    """One instruction for each two registers, the second of them written first."""
    count = value.type.count // 2
    return sel.build.add(ptx.Alu((value, *more), opcode=opcode, per=2, type=Bits(kind, count))).out


def narrow(
    sel: Selector, value: PtxValue, dtype: DType, single: bool, saturate: bool = True
) -> PtxValue:
    """From the ``computed`` type: rounded to nearest even, or wrapped; packed unless ``single``."""
    if dtype.name == "tf32":
        return to_tf32(sel, value)
    if dtype.is_integer:
        return _narrow_integers(sel, value, dtype, single)
    if dtype.name in _EIGHT:
        return _narrow_eight(sel, value, dtype, single, saturate)
    if single:
        return sel.alu(f"cvt.rn.{dtype.name}.f32", value, kind="b16")
    return _pairwise(sel, f"cvt.rn.{dtype.name}x2.f32", _filled_up(sel, value, 2), "b32")


def _narrow_integers(sel: Selector, value: PtxValue, dtype: DType, single: bool) -> PtxValue:
    if single:
        return sel.alu("cvt.u16.u32", value, kind="b16")
    # prmt with the second register first: its bytes are 0 to 3, those of the first 4 to 7.
    value = _filled_up(sel, value, 32 // dtype.bits)
    if dtype.bits == 8:
        value = _pairwise(sel, "prmt.b32", value, "b32", sel.constant(0x0004))
    return _pairwise(sel, "prmt.b32", value, "b32", sel.constant(0x1054))


def _narrow_eight(
    sel: Selector, value: PtxValue, dtype: DType, single: bool, saturate: bool
) -> PtxValue:
    """Pairs to 16 bits; the instruction saturates, always (PTX ISA, cvt: satfinite)."""
    _need_eight(sel, dtype)
    given, count = value, value.type.count
    value = _filled_up(sel, value, 2)
    pairs = _pairwise(sel, f"cvt.rn.satfinite.{dtype}x2.f32", value, "b16")
    if saturate:
        return pairs if single else _words(sel, pairs)
    # Beyond the last value that rounds down to the greatest lies infinity, or NaN without one.
    relation, edge, beyond = ("gt", 464.0, 0x7F) if dtype.name == "e4m3" else ("ge", 61440.0, 0x7C)
    size = sel.alu("abs.f32", given, kind="f32", count=count)
    outside = sel.alu(f"setp.{relation}.f32", size, edge, kind="pred", count=count)
    bits = sel.alu("cvt.u32.u16", pairs, count=pairs.type.count)
    low = sel.alu("prmt.b32", bits, 0, 0x4440, count=pairs.type.count)
    high = sel.alu("prmt.b32", bits, 0, 0x4441, count=pairs.type.count)
    order = [n // 2 + (n % 2) * pairs.type.count for n in range(count)]
    each = sel.pick(sel.join([low, high]), *order)
    signs = sel.alu("and.b32", each, 0x80, count=count)
    special = sel.alu("or.b32", signs, beyond, count=count)
    each = sel.alu("selp.b32", special, each, outside, count=count)
    return _narrow_integers(sel, each, DTYPES["u8"], single)


def _words(sel: Selector, pairs: PtxValue) -> PtxValue:
    """16-bit registers two by two as 32-bit ones."""
    pairs = _filled_up(sel, pairs, 2)
    count = pairs.type.count
    low, high = sel.pick(pairs, *range(0, count, 2)), sel.pick(pairs, *range(1, count, 2))
    return sel.build.add(ptx.Combine(low, high, type=Bits("b32", count // 2))).out


def words(sel: Selector, halves: PtxValue, single: bool) -> PtxValue:
    """16-bit elements, one a register, as a tile or a scalar has them."""
    return halves if single else _words(sel, halves)


def to_tf32(sel: Selector, value: PtxValue) -> PtxValue:
    """f32 rounded to nearest even to the eleven digits of tf32, still as f32 (PTX ISA, cvt)."""
    count = value.type.count
    if sel.ctx.target.has_wide_cvt:
        return as_float(sel, sel.alu("cvt.rn.tf32.f32", value, count=count))
    # Older targets round ties away alone: half of the last digit less one, one more if that is odd.
    bits = _as_bits(sel, value)
    odd = sel.alu("and.b32", sel.alu("shr.u32", bits, 13, count=count), 1, count=count)
    raised = sel.alu("add.u32", sel.alu("add.u32", bits, 0xFFF, count=count), odd, count=count)
    near = as_float(sel, sel.alu("and.b32", raised, 0xFFFFE000, count=count))
    number = sel.alu("setp.num.f32", value, value, kind="pred", count=count)
    return sel.alu("selp.f32", near, value, number, kind="f32", count=count)


def rounded_to_odd(sel: Selector, value: PtxValue, source: DType) -> PtxValue:
    """A wider type as f32: truncated, the last bit set where that lost something."""
    name, count = suffix(source), value.type.count
    kind = register_kind(source)
    cut = sel.alu(f"cvt.rz.f32.{name}", value, kind="f32", count=count)
    back = "cvt.f64.f32" if source.is_float else f"cvt.rzi.{name}.f32"
    again = sel.alu(back, cut, kind=kind, count=count)
    ne = "neu" if source.is_float else "ne"
    lost = sel.alu(f"setp.{ne}.{name}", again, value, kind="pred", count=count)
    bits = _as_bits(sel, cut)
    odd = sel.alu("or.b32", bits, 1, count=count)
    return as_float(sel, sel.alu("selp.b32", odd, bits, lost, count=count))


def as_words(sel: Selector, value: PtxValue) -> PtxValue:
    """Predicates as 32-bit registers of 0 and 1; what is no predicate stays."""
    if value.type.kind != "pred":
        return value
    return sel.alu("selp.b32", 1, 0, value, count=value.type.count)


def as_predicates(sel: Selector, value: PtxValue) -> PtxValue:
    """32-bit registers as predicates: whether they are not zero."""
    return sel.alu("setp.ne.u32", value, 0, kind="pred", count=value.type.count)


def carried_as(dtype: DType) -> DType:
    """The type of the registers in which partial results travel between threads."""
    return U32 if dtype == BOOL else computed(dtype)


def elements_as(sel: Selector, value: Value[Any], moved: DType) -> PtxValue:
    """A value's elements one a register, read as ``moved``: its own type or its ``raw`` one."""
    if moved == computed(moved):
        return sel.get(value)
    single = isinstance(value.type, Scalar)
    return widen(sel, sel.get(value), moved, element_count(value.type), single)


def packed_as(sel: Selector, value: PtxValue, moved: DType, type: Type) -> PtxValue:
    """The other way: what stands for a value of ``type``."""
    if moved == computed(moved):
        return value
    return narrow(sel, value, moved, isinstance(type, Scalar))
