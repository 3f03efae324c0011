"""Products by mma.sync: fragments come from shared memory step by step of K, and are multiplied.

A fragment is read when the first step that multiplies it comes, so that no more registers are
live than two steps need; the assembler moves the reads ahead as far as it has registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.ir.core import Value
from tilec.ir.declare import Refused
from tilec.ir.levels import mma, ptx
from tilec.ir.types import Bits, Register
from tilec.layout.linear import Layout, LayoutError
from tilec.layout.teams import team_a, team_b, team_result
from tilec.passes.select.rings import View
from tilec.passes.select.selector import PtxValue, Selector, bits_of, lowers, record
from tilec.passes.select.shared_tiles import fragment_reads


class _Fragments:
    """The registers of an operand, brought when they are asked for."""

    def __init__(self, sel: Selector, value: Value[Any], layout: Layout, by: str) -> None:
        self.sel = sel
        self.type = Register(value.type.dtype, value.type.shape, layout)
        self.found: dict[int, PtxValue] = {}
        self.reads: dict[int, Callable[[], dict[int, PtxValue]]] = {}
        if isinstance(value.type, Register):
            if value.type.layout != layout:
                raise Refused(f"an operand in registers needs the layout {layout}")
            whole = sel.get(value)
            self.found = {n: sel.pick(whole, n) for n in range(whole.type.count)}
        else:
            for registers, read in fragment_reads(sel, record(sel, value, View), self.type, by):
                self.reads.update(dict.fromkeys(registers, read))

    def take(self, registers: range) -> PtxValue:
        """Some registers, read first where that has not happened."""
        for register in registers:
            if register not in self.found:
                self.found.update(self.reads[register]())
        value = self.sel.join([self.found[register] for register in registers])
        if value.type.kind == "f32":  # tf32: the instruction takes its operands as bits
            value = self.sel.alu("mov.b32", value, count=len(registers))
        return value


@lowers(mma.MmaProduct)
def _product(sel: Selector, op: mma.MmaProduct) -> None:
    a_type, b_type, out = op.a.type, op.b.type, op.out.type
    (rows, n), k_extent = out.shape, int(b_type.shape[1])
    warps = sel.need_role().group_warps
    bits = b_type.dtype.bits
    shape = sel.ctx.target.mma_of(a_type.dtype.name, b_type.dtype.name, out.dtype.name)
    if shape is None:
        raise Refused(
            f"{sel.ctx.target.name} has no mma.sync of {a_type.dtype} by {b_type.dtype} "
            f"to {out.dtype}"
        )
    try:
        whole = team_result(int(rows), int(n), warps)
        a_layout = team_a(bits, int(rows), int(n), k_extent, warps)
        b_layout = team_b(bits, int(rows), int(n), k_extent, warps)
    except LayoutError as error:
        raise Refused(str(error)) from None
    if out.layout != whole:
        raise Refused(f"mma.sync's result has the layout {whole}, not {out.layout}")
    a = _Fragments(sel, op.a, a_layout, op.a_by)
    b = _Fragments(sel, op.b, b_layout, op.b_by)
    steps = k_extent // shape.k
    wide = 4 * steps  # registers of A in one block of rows
    blocks = bits_of(a.type).count // wide
    columns = bits_of(b.type).count // (2 * steps)  # fragments of B in one step
    kind = bits_of(out).kind
    each = 4 * columns
    acc = [_start(sel, op.acc, range(each * m, each * (m + 1)), kind) for m in range(blocks)]
    for step in range(steps):
        right = b.take(range(2 * columns * step, 2 * columns * (step + 1)))
        for block in range(blocks):
            first = wide * block + 4 * step
            acc[block] = sel.build.add(
                ptx.Mma(
                    a.take(range(first, first + 4)),
                    right,
                    acc[block],
                    k=shape.k,
                    accumulate=shape.accumulate,
                    a_type=shape.a,
                    b_type=shape.b,
                    type=Bits(kind, each),
                )
            ).out
    sel.set(op.out, sel.join(acc))


def _start(sel: Selector, acc: Value[Any] | None, registers: range, kind: str) -> PtxValue:
    if acc is not None:
        return sel.pick(sel.get(acc), *registers)
    zero = sel.alu(f"mov.{kind}", 0.0 if kind == "f32" else 0, kind=kind)
    return sel.join([zero] * 4)
