"""Products by mma.sync: fragments come from shared memory step by step of K, and are multiplied.

A fragment is read when the first step that multiplies it comes, so that no more registers are
live than two steps need; the assembler moves the reads ahead as far as it has registers.

A target whose instruction is smaller than the fragments, in rows or in K, has several for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.ir.core import Value
from tilec.ir.declare import Refused
from tilec.ir.levels import mma, ptx
from tilec.ir.types import Bits, Register
from tilec.layout.fragments import WIDE_A
from tilec.layout.linear import Layout, LayoutError
from tilec.layout.teams import BLOCK_ROWS, fragment_depth, team_a, team_b, team_result
from tilec.passes.select.rings import View
from tilec.passes.select.selector import PtxValue, Selector, bits_of, lowers, record
from tilec.passes.select.shared_tiles import fragment_reads
from tilec.targets.base import Mma

WIDE_COLUMNS = 4
"""Fragments of 64-bit elements of B that are multiplied together: 32 registers of a thread."""


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

    def take(self, registers: Sequence[int]) -> PtxValue:
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
    multiply = _Multiply(sel, shape, bits)
    steps = k_extent // fragment_depth(bits)
    blocks = bits_of(a.type).count // (multiply.of_a * steps)
    columns = bits_of(b.type).count // (multiply.of_b * steps)  # fragments of B in one step
    kind = bits_of(out).kind
    together = min(columns, WIDE_COLUMNS if bits == 64 else columns)
    parts = [range(n, min(n + together, columns)) for n in range(0, columns, together)]
    acc = [
        [multiply.start(op.acc, [columns * m + n for n in part], kind) for part in parts]
        for m in range(blocks)
    ]
    for step in range(steps):
        for number, part in enumerate(parts):
            right = multiply.right(b, [columns * step + n for n in part])
            for m in range(blocks):
                multiply.step(a, multiply.of_a * (steps * m + step), right, acc[m][number])
    sel.set(op.out, sel.join([multiply.whole(part) for block in acc for part in block]))


@dataclass
class _Multiply:
    """Steps of one product by a target's instruction.

    A fragment is 16 rows of A, or 8 columns of B, and one step of K; where the instruction is
    smaller, its ``halves`` of the rows have sums of their own, and its ``parts`` of K follow.
    """

    sel: Selector
    shape: Mma
    bits: int

    def __post_init__(self) -> None:
        """Registers of a fragment of A and of B, and how many instructions take one of A."""
        self.of_a, self.of_b = (8, 4) if self.bits == 64 else (4, 2)
        self.order = WIDE_A if self.bits == 64 else range(4)
        self.halves = BLOCK_ROWS // self.shape.rows
        self.parts = fragment_depth(self.bits) // self.shape.k
        self.sums = 4 // self.halves

    def start(self, acc: Value[Any] | None, fragments: list[int], kind: str) -> list[PtxValue]:
        """What the sums of some fragments of the result begin with, for each half."""
        if acc is None:
            zero = self.sel.alu(f"mov.{kind}", 0 if kind == "b32" else 0.0, kind=kind)
            return [self.sel.join([zero] * self.sums)] * self.halves
        value = self.sel.get(acc)
        own = range(self.sums)
        return [
            self.sel.pick(value, *(4 * f + half * self.sums + n for f in fragments for n in own))
            for half in range(self.halves)
        ]

    def right(self, b: _Fragments, fragments: list[int]) -> list[PtxValue]:
        """Some fragments of B, for each part of K."""
        each = self.of_b // self.parts
        return [
            b.take([self.of_b * f + each * part + n for f in fragments for n in range(each)])
            for part in range(self.parts)
        ]

    def step(self, a: _Fragments, first: int, right: list[PtxValue], acc: list[PtxValue]) -> None:
        """Add a fragment of A, from its first register on, times those of B."""
        each = self.of_a // (self.parts * self.halves)
        columns = right[0].type.count * self.parts // self.of_b
        for number in range(self.parts * self.halves):
            part, half = divmod(number, self.halves)
            taken = [first + self.order[number * each + n] for n in range(each)]
            acc[half] = self.sel.build.add(
                ptx.Mma(
                    a.take(taken),
                    right[part],
                    acc[half],
                    k=self.shape.k,
                    accumulate=self.shape.accumulate,
                    a_type=self.shape.a,
                    b_type=self.shape.b,
                    type=Bits(acc[half].type.kind, self.sums * columns),
                    rows=self.shape.rows,
                )
            ).out

    def whole(self, acc: list[PtxValue]) -> PtxValue:
        """The sums of some fragments, in the order of their layout."""
        if self.halves == 1:
            return acc[0]
        return self.sel.join(
            [
                self.sel.pick(half, *range(first, first + self.sums))
                for first in range(0, acc[0].type.count, self.sums)
                for half in acc
            ]
        )
