"""Products on the tensor cores: wgmma with operands read through descriptors or from registers."""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Builder
from tilec.ir.declare import Refused
from tilec.ir.levels import cta, ptx
from tilec.ir.types import Bits, DType, Register, Shared
from tilec.layout.descriptor import DescriptorPlan, matrix_descriptor
from tilec.layout.fragments import a_fragment, accumulator
from tilec.layout.linear import Layout, LayoutRefusal
from tilec.passes.select.rings import View, block_bytes, entry_value
from tilec.passes.select.selector import PtxValue, Selector, bits_of, lowers, record

_PLANS: dict[tuple[Layout, int, str], DescriptorPlan] = {}


def descriptor_plan(layout: Layout, bits: int, operand: str) -> DescriptorPlan:
    """The plan of an operand tile, computed once for each layout."""
    key = (layout, bits, operand)
    if key not in _PLANS:
        try:
            _PLANS[key] = matrix_descriptor(layout, bits, operand)
        except LayoutRefusal as refusal:
            raise Refused(str(refusal)) from None
    return _PLANS[key]


def _low_word(sel: Selector, view: View, plan: DescriptorPlan) -> PtxValue:
    """The descriptor's low word for the view's first element.

    What does not depend on the stage is computed at the role's entry.
    """
    blocks = 0
    if view.block is not None:
        blocks = block_bytes(view) // 16

    def make(build: Builder) -> PtxValue:
        # Bits 24 and up of a shared address can carry the CTA's rank; the mask drops them.
        address = sel.alu_on(build, "add.u32", sel.shared_base(), view.base)
        field = sel.alu_on(build, "shr.u32", address, 4)
        field = sel.alu_on(build, "and.b32", field, 0x3FFF)
        low = sel.alu_on(build, "or.b32", field, plan.low) if plan.low else field
        if view.block is not None:
            low = sel.alu_on(build, "mad.lo.u32", view.block, blocks, low)
        low.name = "descriptor"
        return low

    if view.block is None or entry_value(sel, view.block):
        low = sel.at_entry(("descriptor", view.base, plan.low, view.block, blocks), make)
    else:
        low = make(sel.build)
    if view.stage is None:
        return low
    return sel.alu("mad.lo.u32", view.stage, view.stage_bytes // 16, low)


def _descriptor(sel: Selector, low: PtxValue, offset: int, plan: DescriptorPlan) -> PtxValue:
    at = sel.alu("add.u32", low, offset) if offset else low
    high = sel.constant(plan.high)
    return sel.build.add(ptx.Combine(at, high, type=Bits("b64", 1))).out


@lowers(cta.Product)
def _product(sel: Selector, op: cta.Product) -> None:
    a_type, b_type, out = op.a.type, op.b.type, op.out.type
    rows, n = out.shape
    k_extent = int(b_type.shape[1])
    if rows != 64 or out.layout != accumulator(int(n)):
        raise Refused(f"wgmma's result is 64 x N in its own layout, not {out}")
    target = sel.ctx.target
    legal = target.wgmma_n if out.dtype.is_float else target.wgmma_n_integer
    if int(n) not in legal:
        raise Refused(
            f"wgmma into {out.dtype} has no N = {n}; the nearest is "
            f"{min(legal, key=lambda size: abs(size - int(n)))}"
        )
    step = 256 // b_type.dtype.bits
    if k_extent % step:
        raise Refused(f"K = {k_extent} is no multiple of {step}, one wgmma step of {b_type.dtype}")
    b_view = record(sel, op.b, View)
    b_plan = descriptor_plan(b_view.layout.transpose(), b_type.dtype.bits, "b")
    b_low = _low_word(sel, b_view, b_plan)
    a_plan: DescriptorPlan | None = None
    a_low = a_registers = None
    if isinstance(a_type, Shared):
        a_view = record(sel, op.a, View)
        a_plan = descriptor_plan(a_view.layout, a_type.dtype.bits, "a")
        a_low = _low_word(sel, a_view, a_plan)
    elif isinstance(a_type, Register):
        if a_type.layout != a_fragment(a_type.dtype.bits, k_extent):
            raise Refused(
                f"A in registers needs the layout {a_fragment(a_type.dtype.bits, k_extent)}"
            )
        a_registers = sel.get(op.a)
    acc = sel.get(op.acc) if op.acc is not None else None
    sel.build.add(ptx.Fence(kind="wgmma"))
    for number in range(k_extent // step):
        b = _descriptor(sel, b_low, b_plan.k_steps[number], b_plan)
        if a_plan is not None and a_low is not None:
            a = _descriptor(sel, a_low, a_plan.k_steps[number], a_plan)
        elif a_registers is not None:
            a = sel.pick(a_registers, *range(4 * number, 4 * number + 4))
        acc = sel.build.add(
            ptx.Wgmma(
                a,
                b,
                acc=acc,
                n=int(n),
                k=step,
                accumulate=out.dtype.name,
                a_type=_read_as(a_type.dtype),
                b_type=_read_as(b_type.dtype),
                transpose_a=a_plan is not None and a_plan.transpose,
                transpose_b=b_plan.transpose,
                type=_accumulator_bits(out),
            ),
        ).out
    if acc is None:
        raise Refused("a product needs K > 0")
    kept = sel.keeps.get(op.acc, ()) if op.acc is not None else ()
    sel.keeps[op.out] = kept if a_registers is None else (*kept, a_registers)
    sel.set(op.out, acc)


def _read_as(dtype: DType) -> str:
    """The operand type of the instruction: of an f32 it reads what a tf32 has."""
    return "tf32" if dtype.name == "f32" else dtype.name


def _accumulator_bits(out: Any) -> Any:
    return bits_of(Register(out.dtype, out.shape, out.layout))


@lowers(cta.Commit)
def _commit(sel: Selector, op: cta.Commit) -> None:
    sel.build.add(ptx.Fence(kind="wgmma_commit"))


@lowers(cta.Settle)
def _settle(sel: Selector, op: cta.Settle) -> None:
    keeps: dict[PtxValue, None] = {}
    for flight in op.flights:
        keeps.update(dict.fromkeys(sel.keeps.get(flight, ())))
    flights = [sel.get(f) for f in op.flights]
    wait = ptx.WgmmaWait((*flights, *keeps), pending=op.pending, kept=len(keeps))
    for result, value in zip(op.settled, sel.build.add(wait).settled, strict=True):
        sel.set(result, value)
