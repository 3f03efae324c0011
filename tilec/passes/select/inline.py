"""The author's own instructions: each step is one instruction a register, or a fixed pair.

A guarded step is the step and a ``selp`` that keeps the old value. Where an instruction is typed
otherwise than the register that it reads, a ``mov`` of bits stands between them.
"""

from __future__ import annotations

from typing import Any

from tilec.ir import inline
from tilec.ir.declare import Refused
from tilec.ir.levels import math, ptx
from tilec.ir.types import Bits, Register, Scalar
from tilec.passes.select.selector import PtxValue, Selector, is_packed, lowers
from tilec.passes.select.widths import element_count


def _kind(wanted: inline.Class) -> str:
    """The kind of register that an instruction of a class writes."""
    if wanted == inline.PREDICATE:
        return "pred"
    return f"{'f' if wanted.sort == 'f' else 'b'}{wanted.bits}"


def _elements(sel: Selector, value: Any, count: int) -> PtxValue:
    """One register an element."""
    stand = sel.get(value)
    if not isinstance(value.type, Register) or not is_packed(value.type.dtype):
        return stand
    if value.type.dtype.bits != 16:
        raise Refused(f"elements of {value.type.dtype} have no register of their own")
    halves = ptx.Unpack(stand, type=Bits("b16", 2 * stand.type.count))
    return sel.pick(sel.build.add(halves).out, *range(count))


def _read(sel: Selector, registers: dict[int, PtxValue], what: Any, wanted: inline.Class) -> Any:
    kind = _kind(wanted)
    if isinstance(what, tuple):
        return sel.constant(what[0], kind)
    found = registers[what]
    if found.type.kind == kind or wanted.sort == "b":
        return found
    return sel.alu(f"mov.b{wanted.bits}", found, kind=kind, count=found.type.count)


def _step(sel: Selector, registers: dict[int, PtxValue], step: inline.Step) -> None:
    opcode, guard, written, read = step
    out, inputs = inline.signature(opcode)
    if len(written) > 1:
        source = _read(sel, registers, read[0], out)
        unpacked = ptx.Unpack(source, type=Bits(f"b{out.bits // 2}", 2 * source.type.count))
        halves = sel.build.add(unpacked).out
        for place, register in enumerate(written):
            picks = range(place, 2 * source.type.count, 2)
            registers[register] = sel.pick(halves, *picks)
        return
    if isinstance(read[0], tuple) and len(read[0]) == 2:
        parts = [_read(sel, registers, r, inline.Class(out.bits // 2, "b")) for r in read[0]]
        parts = [_spread(sel, p, max(q.type.count for q in parts)) for p in parts]
        packed = ptx.Combine(parts[0], parts[1], type=Bits(f"b{out.bits}", parts[0].type.count))
        result = sel.build.add(packed).out
    else:
        values = [_read(sel, registers, r, c) for r, c in zip(read, inputs, strict=True)]
        made = max((v.type.count for v in values), default=1)
        result = sel.alu(opcode, *values, kind=_kind(out), count=made)
    if guard != -1:
        result = _kept(sel, registers, written[0], guard, result, out)
    registers[written[0]] = result


def _kept(
    sel: Selector,
    registers: dict[int, PtxValue],
    register: int,
    guard: int,
    result: PtxValue,
    out: inline.Class,
) -> PtxValue:
    kind = result.type.kind
    old = _read(sel, registers, register, inline.Class(out.bits, "f" if kind[0] == "f" else "i"))
    holds = registers[guard if guard >= 0 else -2 - guard]
    pair = (result, old) if guard >= 0 else (old, result)
    count = max(v.type.count for v in (*pair, holds))
    opcode = f"selp.{kind if kind[0] == 'f' else 'b' + str(out.bits)}"
    return sel.alu(opcode, *pair, holds, kind=kind, count=count)


def _spread(sel: Selector, value: PtxValue, count: int) -> PtxValue:
    return value if value.type.count == count else sel.pick(value, *([0] * count))


@lowers(math.Ptx)
def _ptx(sel: Selector, op: math.Ptx) -> None:
    count = element_count(math.common_shape(op.x))
    results = len(op.out)
    registers = {results + n: _elements(sel, v, count) for n, v in enumerate(op.x)}
    for step in op.program:
        _step(sel, registers, step)
    classes = op.classes()
    for number, out in enumerate(op.out):
        found = _spread(sel, _read(sel, registers, number, classes[number]), count)
        kind = _kind(classes[number])
        if found.type.kind != kind:
            found = sel.alu(f"mov.b{classes[number].bits}", found, kind=kind, count=count)
        if not isinstance(out.type, Scalar) and is_packed(out.type.dtype):
            if count % 2:
                found, count_in = sel.join([found, sel.constant(0, "b16")]), count + 1
            else:
                count_in = count
            low = sel.pick(found, *range(0, count_in, 2))
            high = sel.pick(found, *range(1, count_in, 2))
            packed = ptx.Combine(low, high, type=Bits("b32", count_in // 2))
            found = sel.build.add(packed).out
        sel.set(out, found)
