"""Tiles between registers and shared memory, by plain and by matrix instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.ir.core import Builder
from tilec.ir.declare import Refused
from tilec.ir.levels import cta, ptx
from tilec.ir.types import Bits, DType, Register
from tilec.layout.linear import Layout, LayoutRefusal
from tilec.layout.matrices import matrix_plan
from tilec.layout.vectors import shared_plan
from tilec.passes.select.moves import NARROW, pack_elements, per_register, single_piece
from tilec.passes.select.rings import View, block_bytes, entry_value, fragment_layout, view_address
from tilec.passes.select.selector import PtxValue, Selector, bits_of, lowers, record


def based(sel: Selector, view: View, plan: Any, number: int) -> PtxValue:
    """Address of a plan's base: the view's start plus the thread's own offset."""
    own = sel.index_map(plan.thread, plan.bases[number])
    if view.stage is None and (view.block is None or entry_value(sel, view.block)):

        def make(build: Builder) -> PtxValue:
            base = sel.alu_on(build, "add.u32", sel.shared_base(), view.base)
            if view.block is not None:
                base = sel.alu_on(build, "mad.lo.u32", view.block, block_bytes(view), base)
            return sel.alu_on(build, "add.u32", base, own)

        key = ("based", view.base, view.block, view.block_rows, plan.thread, plan.bases[number])
        return sel.at_entry(key, make)
    return sel.alu("add.u32", view_address(sel, view), own)


def _matrix(
    sel: Selector, view: View, layout: Layout, dtype: DType, run: Callable[[Any, PtxValue], None]
) -> None:
    try:
        plan = matrix_plan(layout, fragment_layout(view), dtype.bits)
    except LayoutRefusal as refusal:
        raise Refused(str(refusal)) from None
    for instruction in plan.instructions:
        run((instruction, plan), based(sel, view, plan, instruction.base))


@lowers(cta.Put)
def _put(sel: Selector, op: cta.Put) -> None:
    view = record(sel, op.target, View)
    type = op.value.type
    value = sel.get(op.value)
    if op.target.type.shape != type.shape or op.target.type.dtype != type.dtype:
        raise Refused(f"a tile {type} does not fit {op.target.type}")
    if op.instruction == "stmatrix":

        def store(which: Any, address: PtxValue) -> None:
            instruction, plan = which
            sel.build.add(
                ptx.StoreMatrix(
                    address,
                    sel.pick(value, *instruction.registers),
                    offset=instruction.displacement,
                    transpose=plan.transposed,
                )
            )

        _matrix(sel, view, type.layout, type.dtype, store)
        return
    _plain_put(sel, view, type, value)


def _plain_plan(view: View, type: Register) -> Any:
    try:
        plan = shared_plan(type.layout, fragment_layout(view), type.dtype.bits)
    except LayoutRefusal as refusal:
        raise Refused(str(refusal)) from None
    return plan


def _plain_put(sel: Selector, view: View, type: Register, value: PtxValue) -> None:
    if type.dtype.name == "bool":
        raise Refused("bool tiles are not stored in shared memory")
    plan = _plain_plan(view, type)
    packing = per_register(type.dtype)
    for access in plan.accesses:
        address = based(sel, view, plan, access.base)

        def store(piece: PtxValue, width: str, offset: int, address: PtxValue = address) -> None:
            sel.build.add(ptx.Store(address, piece, space="shared", width=width, offset=offset))

        if plan.elements < packing:
            for number in range(plan.elements):
                piece, width = single_piece(sel, value, access.register + number, type.dtype)
                store(piece, width, access.displacement + number * type.dtype.bytes)
        else:
            first = access.register // packing
            registers = range(first, first + plan.elements // packing)
            store(sel.pick(value, *registers), value.type.kind, access.displacement)


@lowers(cta.Get)
def _get(sel: Selector, op: cta.Get) -> None:
    view = record(sel, op.x, View)
    type = op.out.type
    bits = bits_of(type)
    if type.dtype.name == "bool":
        raise Refused("bool tiles are not stored in shared memory")
    if op.x.type.shape != type.shape or op.x.type.dtype != type.dtype:
        raise Refused(f"a tile {op.x.type} does not give {type}")
    found: dict[int, PtxValue] = {}
    for _, read in fragment_reads(sel, view, type, op.instruction):
        found.update(read())
    sel.set(op.out, sel.join([found[r] for r in range(bits.count)]))


Reads = list[tuple[tuple[int, ...], Callable[[], dict[int, PtxValue]]]]
"""The registers that a read brings, and how."""


def fragment_reads(sel: Selector, view: View, type: Register, instruction: str) -> Reads:
    """Every read of a shared tile's registers, for the caller to run in its own order."""
    if instruction == "ldmatrix":
        return _matrix_reads(sel, view, type)
    plan, packing, kind = _plain_plan(view, type), per_register(type.dtype), bits_of(type).kind
    if plan.elements < packing:
        return _narrow_reads(sel, view, type, plan)

    def reader(access: Any) -> Callable[[], dict[int, PtxValue]]:
        def read() -> dict[int, PtxValue]:
            load = ptx.Load(
                based(sel, view, plan, access.base),
                space="shared",
                width=kind,
                offset=access.displacement,
                type=Bits(kind, plan.elements // packing),
            )
            return _numbered(sel, sel.build.add(load).out, registers(access))

        return read

    def registers(access: Any) -> tuple[int, ...]:
        first = access.register // packing
        return tuple(range(first, first + plan.elements // packing))

    return [(registers(access), reader(access)) for access in plan.accesses]


def _numbered(sel: Selector, value: PtxValue, registers: tuple[int, ...]) -> dict[int, PtxValue]:
    return {register: sel.pick(value, n) for n, register in enumerate(registers)}


def _matrix_reads(sel: Selector, view: View, type: Register) -> Reads:
    try:
        plan = matrix_plan(type.layout, fragment_layout(view), type.dtype.bits)
    except LayoutRefusal as refusal:
        raise Refused(str(refusal)) from None

    def reader(instruction: Any) -> Callable[[], dict[int, PtxValue]]:
        def read() -> dict[int, PtxValue]:
            load = ptx.LoadMatrix(
                based(sel, view, plan, instruction.base),
                offset=instruction.displacement,
                transpose=plan.transposed,
                type=Bits("b32", len(instruction.registers)),
            )
            out = sel.build.add(load).out
            return _numbered(sel, out, instruction.registers)

        return read

    return [(i.registers, reader(i)) for i in plan.instructions]


def _narrow_reads(sel: Selector, view: View, type: Register, plan: Any) -> Reads:
    """Elements one by one, packed afterwards: a tile whose rows run across its memory."""
    packing, each = per_register(type.dtype), plan.elements
    count = -(-type.layout.size("reg") // packing)

    def reader(register: int) -> Callable[[], dict[int, PtxValue]]:
        def read() -> dict[int, PtxValue]:
            parts: list[PtxValue] = []
            first = register * packing // each
            for access in plan.accesses[first : first + packing // each]:
                load = ptx.Load(
                    based(sel, view, plan, access.base),
                    space="shared",
                    width=NARROW[type.dtype.bytes],
                    offset=access.displacement,
                    type=Bits("b16", each),
                )
                loaded = sel.build.add(load).out
                parts += [sel.pick(loaded, n) for n in range(each)]
            return {register: pack_elements(sel, parts, type.dtype, type)}

        return read

    return [((register,), reader(register)) for register in range(count)]
