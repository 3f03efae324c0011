"""Global memory at computed places, and updates in place: addresses, guards, red and atom.

Each element has an address of its own, summed in 64 bits from its coordinates, and a guard: every
coordinate, as an unsigned number, is below its extent, which a negative one is not. What elements
share (a coordinate repeated along an axis) is computed once.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Builder, Op, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import memory, ptx
from tilec.ir.types import Array, Bits, DType, Register
from tilec.layout.index_map import thread_coordinates
from tilec.layout.linear import LayoutRefusal
from tilec.layout.vectors import global_plan
from tilec.passes.select.division import constant_of
from tilec.passes.select.moves import (
    NARROW,
    GlobalTile,
    cache_path,
    first_copy,
    pack_elements,
    per_register,
    piece_of,
)
from tilec.passes.select.rings import View, view_address
from tilec.passes.select.selector import (
    PtxValue,
    Selector,
    bits_of,
    is_packed,
    lowers,
    record,
    register_kind,
)

Piece = tuple[PtxValue, int]
"""One register of a value."""


def origin_of(value: PtxValue, register: int) -> Piece:
    """The register that names and moves lead back to: equal ones hold the same number."""
    while isinstance(value.owner, Op):
        made = value.owner
        register = 0 if value.type.count == 1 else register
        if isinstance(made, ptx.Pick):
            value, register = made.x, made.picks[register]
        elif isinstance(made, ptx.Join):
            for part in made.parts:
                if register < part.type.count:
                    value = part
                    break
                register -= part.type.count
        elif isinstance(made, ptx.Alu) and made.opcode == "mov.b32" and len(made.inputs) == 1:
            value = made.inputs[0]
            register = 0 if value.type.count == 1 else register
        else:
            break
    return value, register


class Places:
    """Addresses and guards of the elements that a tile of coordinates names."""

    def __init__(self, sel: Selector, array: Value[Array], coordinates: Any) -> None:
        self.sel, self.array = sel, array
        self.type: Register = coordinates[0].type
        self.coordinates = [sel.get(v) for v in coordinates]
        self.first = first_copy(sel, self.type.layout)
        self.sums: dict[Any, PtxValue] = {}
        self.guards: dict[Any, PtxValue] = {}
        # Coordinates with the fewest different registers come first: their sums serve the most.
        count = self.type.layout.size("reg")
        pieces = [{origin_of(v, r) for r in range(count)} for v in self.coordinates]
        self.order = sorted(range(len(pieces)), key=lambda axis: len(pieces[axis]))

    def _piece(self, axis: int, register: int) -> tuple[Piece, PtxValue]:
        value, place = origin_of(self.coordinates[axis], register)
        return (value, place), self.sel.pick(value, place)

    def _stride(self, axis: int) -> PtxValue:
        sel, array = self.sel, self.array

        def make(build: Builder) -> PtxValue:
            elements = sel.parameter("stride", array.name, axis, bits="b64")
            return sel.alu_on(build, "mul.lo.s64", elements, array.type.dtype.bytes, kind="b64")

        return sel.at_kernel(("stride_bytes", array.name, axis), make)

    def address(self, register: int) -> PtxValue:
        """Byte address of the place of one register's element."""
        sel = self.sel
        facts = sel.ctx.facts.array(self.array.name)
        total = sel.parameter("pointer", self.array.name, bits="b64")
        key: tuple[Any, ...] = ()
        for axis in self.order:
            piece, at = self._piece(axis, register)
            key = (*key, piece)
            if key not in self.sums:
                if facts is not None and facts.unit_axis == axis:
                    each = self.array.type.dtype.bytes
                    wide = sel.alu("mul.wide.s32", at, each, kind="b64")
                    self.sums[key] = sel.alu("add.s64", total, wide, kind="b64")
                else:
                    wide = sel.alu("cvt.s64.s32", at, kind="b64")
                    stride = self._stride(axis)
                    self.sums[key] = sel.alu("mad.lo.s64", wide, stride, total, kind="b64")
            total = self.sums[key]
        return total

    def guard(self, register: int, *, once: bool) -> PtxValue:
        """True where the place lies inside; with ``once`` only in the element's first copy."""
        sel = self.sel
        total = self.first if once else None
        key: tuple[Any, ...] = (once,)
        for axis in self.order:
            piece, at = self._piece(axis, register)
            if (axis, piece) not in self.guards:
                extent = sel.parameter("extent", self.array.name, axis, bits="b32")
                below = sel.alu("setp.lt.u32", at, extent, kind="pred")
                self.guards[axis, piece] = below
            below = self.guards[axis, piece]
            key = (*key, piece)
            if key not in self.guards:
                self.guards[key] = (
                    below if total is None else sel.alu("and.pred", total, below, kind="pred")
                )
            total = self.guards[key]
        assert total is not None
        return total


def _elements(op: memory.Gather | memory.Scatter, dtype: DType, type: Register) -> int:
    """Elements of an access: what the op allows, as far as registers are neighbours."""
    bits = dtype.bits if dtype.name != "bool" else 8
    if op.vector == 1 or dtype.name == "bool":
        return 1
    try:
        plan = global_plan(type.layout, bits, axis=op.run, max_bytes=op.vector * bits // 8)
    except LayoutRefusal as refusal:
        raise Refused(str(refusal)) from None
    return plan.elements if plan.elements >= per_register(dtype) else 1


@lowers(memory.Gather)
def _gather(sel: Selector, op: memory.Gather) -> None:
    dtype, type = op.array.type.dtype, op.out.type
    places = Places(sel, op.array, op.coordinates)
    elements = _elements(op, dtype, type)
    count = type.layout.size("reg")
    fill, known = sel.get(op.fill), constant_of(op.fill)
    literal = known if known is not None and (known == 0 or not is_packed(dtype)) else None
    single, words = [], []
    for register in range(0, count, elements):
        address, guard = places.address(register), places.guard(register, once=False)
        if elements < per_register(dtype) or dtype.name == "bool":
            single.append(_read_element(sel, op, address, guard, fill, literal))
            continue
        kind = bits_of(type).kind
        found = sel.build.add(
            ptx.Load(
                address,
                guard=guard,
                space="global",
                width=kind,
                otherwise=literal or 0,
                modifiers=cache_path(op.array),
                type=Bits(kind, elements // per_register(dtype)),
            )
        ).out
        words.append(found if literal is not None else _filled(sel, found, fill, guard, dtype))
    sel.set(op.out, pack_elements(sel, single, dtype, type) if single else sel.join(words))


def _filled(
    sel: Selector, found: PtxValue, fill: PtxValue, guard: PtxValue, dtype: DType
) -> PtxValue:
    """A vector, all of which takes the fill where the guard is false."""
    kind = found.type.kind
    if is_packed(dtype):
        if dtype.bits == 8:
            wide = sel.alu("cvt.u32.u16", fill)
            fill = sel.alu("mul.lo.u32", sel.alu("and.b32", wide, 0xFF), 0x01010101)
        else:
            fill = sel.build.add(ptx.Combine(fill, fill, type=Bits("b32", 1))).out
    suffix = kind if kind.startswith("f") else f"b{kind[1:]}"
    return sel.alu(f"selp.{suffix}", found, fill, guard, kind=kind, count=found.type.count)


def _read_element(
    sel: Selector,
    op: memory.Gather,
    address: PtxValue,
    guard: PtxValue,
    fill: PtxValue,
    literal: Any,
) -> PtxValue:
    dtype = op.array.type.dtype
    kind = register_kind(dtype)
    boolean = kind == "pred"
    found = sel.build.add(
        ptx.Load(
            address,
            guard=guard,
            space="global",
            width="u8" if boolean else NARROW[dtype.bytes] if dtype.bits < 32 else kind,
            otherwise=int(literal or 0) if boolean or not dtype.is_float else float(literal or 0),
            modifiers=cache_path(op.array),
            type=Bits("b16" if boolean else kind, 1),
        )
    ).out
    if boolean:
        found = sel.alu("setp.ne.u32", sel.alu("cvt.u32.u16", found), 0, kind="pred")
    if literal is not None:
        return found
    if boolean:
        inside = sel.alu("and.pred", found, guard, kind="pred")
        out = sel.alu("and.pred", fill, sel.alu("not.pred", guard, kind="pred"), kind="pred")
        return sel.alu("or.pred", inside, out, kind="pred")
    suffix = kind if kind.startswith("f") else f"b{kind[1:]}"
    return sel.alu(f"selp.{suffix}", found, fill, guard, kind=kind)


@lowers(memory.Scatter)
def _scatter(sel: Selector, op: memory.Scatter) -> None:
    dtype, type = op.array.type.dtype, op.value.type
    places = Places(sel, op.array, op.coordinates)
    elements = _elements(op, dtype, type)
    if op.update:
        elements = min(elements, _red_elements(sel, op.update, dtype))
    value, written = sel.get(op.value), set()
    for register in range(0, type.layout.size("reg"), elements):
        place = type.layout(reg=register)
        if place in written:
            continue
        written.add(place)
        address, guard = places.address(register), places.guard(register, once=True)
        piece, width = piece_of(sel, value, register, elements, dtype)
        if op.update:
            red(sel, op.update, dtype, address, piece, guard, 0)
        else:
            sel.build.add(ptx.Store(address, piece, guard=guard, space="global", width=width))


# --- updates -------------------------------------------------------------------------------------


def _red_elements(sel: Selector, update: str, dtype: DType) -> int:
    """The most elements that one ``red`` updates (PTX ISA, red: vectors of f32, f16x2, bf16x2)."""
    if update != "add" or dtype.name not in ("f32", "f16", "bf16"):
        return 1
    if sel.ctx.target.has_vector_red:
        return 16 // dtype.bytes
    return 2 if dtype.name == "f16" else 1


def _check_added(sel: Selector, dtype: DType) -> None:
    """Refuse sums of bf16 in memory where no instruction makes them."""
    if dtype.name == "bf16" and not sel.ctx.target.has_vector_red:
        raise Refused(
            f"{sel.ctx.target.name} has no instruction that adds bf16 in memory",
            "keep the array as f32 or f16, or compile for sm_90",
        )


def operation_of(update: str, dtype: DType) -> tuple[str, str]:
    """Operation and type of the instruction that updates elements of 32 or 64 bits so."""
    bits = dtype.bits
    if dtype.is_integer and bits >= 32:
        letter = dtype.kind[0]
        if update in ("and", "or", "xor"):
            return update, f"b{bits}"
        # There is no add.s64, and wrapping addition is the same for both signs.
        if update == "add" and bits == 64:
            letter = "u"
        return update, f"{letter}{bits}"
    if update == "add" and dtype.name in ("f32", "f64"):
        return update, dtype.name
    if update == "add" and dtype.name in ("f16", "bf16"):
        return "add.noftz", dtype.name
    raise Refused(
        f"no instruction updates {dtype} in memory by `{update}`", "keep the array as f32 or s32"
    )


def _as_bits(sel: Selector, value: PtxValue) -> PtxValue:
    """Registers of floats as bit patterns."""
    kind = value.type.kind
    if not kind.startswith("f"):
        return value
    return sel.alu(f"mov.b{kind[1:]}", value, kind=f"b{kind[1:]}", count=value.type.count)


def _extreme(
    sel: Selector, update: str, dtype: DType, value: PtxValue, guard: PtxValue
) -> list[tuple[str, str, PtxValue, PtxValue]]:
    """Float ``max`` and ``min`` by integers: operation, type, value and guard of two updates.

    Floats that are not negative are ordered as signed integers, and above all negative bit
    patterns; negative ones are ordered the other way round as unsigned integers, and above all
    others. So which of the two it is depends on the new value alone. A NaN takes the bits that win.
    """
    bits = dtype.bits
    kind = f"b{bits}"
    pattern = _as_bits(sel, value)
    most = (1 << (bits - 1)) - 1 if update == "max" else -1
    nan = sel.alu(f"setp.nan.f{bits}", value, value, kind="pred")
    pattern = sel.alu(f"selp.{kind}", sel.constant(most, kind), pattern, nan, kind=kind)
    below = sel.alu(f"setp.lt.s{bits}", pattern, sel.constant(0, kind), kind="pred")
    above = sel.alu("and.pred", guard, sel.alu("not.pred", below, kind="pred"), kind="pred")
    below = sel.alu("and.pred", guard, below, kind="pred")
    other = "min" if update == "max" else "max"
    return [(update, f"s{bits}", pattern, above), (other, f"u{bits}", pattern, below)]


def _by_integers(update: str, dtype: DType) -> bool:
    return update in ("max", "min") and dtype.name in ("f32", "f64")


def red(
    sel: Selector,
    update: str,
    dtype: DType,
    address: PtxValue,
    piece: PtxValue,
    guard: PtxValue | None,
    offset: int,
) -> None:
    """Update the elements at an address, without asking what was there."""
    if _by_integers(update, dtype):
        guard = guard or sel.alu("mov.pred", sel.constant(1, "pred"), kind="pred")
        for operation, width, pattern, where in _extreme(sel, update, dtype, piece, guard):
            made = ptx.Red(
                address, pattern, operation=operation, width=width, guard=where, offset=offset
            )
            sel.build.add(made)
        return
    _check_added(sel, dtype)
    operation, width = operation_of(update, dtype)
    if is_packed(dtype) and piece.type.kind == "b32":
        width += "x2"
    if dtype.is_integer:
        piece = _as_bits(sel, piece)
    sel.build.add(
        ptx.Red(address, piece, operation=operation, width=width, guard=guard, offset=offset)
    )


@lowers(memory.Update)
def _update(sel: Selector, op: memory.Update) -> None:
    type = op.value.type
    dtype, value = type.dtype, sel.get(op.value)
    where = GlobalTile(sel, op, op.array, type)
    most = min(op.vector, _red_elements(sel, op.update, dtype))
    if where.partial_vectors() > 1:
        most = 1
    written: set[tuple[int, ...]] = set()

    def access(
        address: PtxValue, offset: int, guard: PtxValue | None, register: int, elements: int
    ) -> None:
        place = type.layout(reg=register)
        if place in written:
            return
        written.add(place)
        piece, _ = piece_of(sel, value, register, elements, dtype)
        red(sel, op.update, dtype, address, piece, guard, offset)

    where.accesses(most, access)


@lowers(memory.Atomic, memory.CompareExchange)
def _atomic(sel: Selector, op: memory.Atomic | memory.CompareExchange) -> None:
    dtype, type = op.array.type.dtype, op.value.type
    places = Places(sel, op.array, op.coordinates)
    value, fill = sel.get(op.value), sel.get(op.fill)
    found: dict[tuple[int, ...], PtxValue] = {}
    count = type.layout.size("reg")
    for register in range(count):
        place = type.layout(reg=register)
        if place in found:
            continue
        address = places.address(register)
        guard = places.guard(register, once=True)
        inside = places.guard(register, once=False)
        piece, _ = piece_of(sel, value, register, 1, dtype)
        if isinstance(op, memory.CompareExchange):
            expected, _ = piece_of(sel, sel.get(op.expected), register, 1, dtype)
            old = _compare_exchange(sel, dtype, address, expected, piece, guard)
        else:
            old = _atom(sel, op.update, dtype, address, piece, guard)
        kind = old.type.kind
        suffix = kind if kind.startswith("f") else f"b{kind[1:]}"
        found[place] = sel.alu(f"selp.{suffix}", old, fill, inside, kind=kind)
    elements = [found[type.layout(reg=r)] for r in range(count)]
    sel.set(op.out, pack_elements(sel, elements, dtype, type))


def _compare_exchange(
    sel: Selector,
    dtype: DType,
    address: PtxValue,
    expected: PtxValue,
    value: PtxValue,
    guard: PtxValue,
) -> PtxValue:
    if dtype.bits == 8:
        raise Refused(f"no instruction compares and exchanges {dtype} in memory: use s32")
    width = f"b{dtype.bits}"
    made = ptx.Atom(address, value, guard, operation="cas", width=width, compare=expected)
    return sel.build.add(made).out


def _atom(
    sel: Selector, update: str, dtype: DType, address: PtxValue, value: PtxValue, guard: PtxValue
) -> PtxValue:
    """Update one element and give what was there; 0 where the guard is false."""
    kind = value.type.kind
    if update == "exchange":
        if dtype.bits < 32:
            raise Refused(f"no instruction exchanges {dtype} in memory", "keep it as f32 or s32")
        made = ptx.Atom(address, value, guard, operation="exch", width=f"b{dtype.bits}")
        return sel.build.add(made).out
    if not _by_integers(update, dtype):
        _check_added(sel, dtype)
        operation, width = operation_of(update, dtype)
        made = ptx.Atom(address, value, guard, operation=operation, width=width)
        return sel.build.add(made).out
    (one, other) = [
        sel.build.add(ptx.Atom(address, pattern, where, operation=operation, width=width)).out
        for operation, width, pattern, where in _extreme(sel, update, dtype, value, guard)
    ]
    # Of two updates that exclude each other one found something, the other is 0.
    old = sel.alu(f"or.b{dtype.bits}", one, other, kind=f"b{dtype.bits}")
    return sel.alu(f"mov.b{dtype.bits}", old, kind=kind)


@lowers(memory.Share)
def _share(sel: Selector, op: memory.Share) -> None:
    view, type, role = record(sel, op.buffer, View), op.x.type, sel.need_role()
    dtype, layout = type.dtype, type.layout
    address = view_address(sel, view)
    count, pitch = layout.size("reg"), 1
    pitches: list[int] = []
    for extent in reversed(layout.shape):
        pitches.insert(0, pitch)
        pitch *= extent
    for axis, step in enumerate(pitches):
        own = sel.index_map(thread_coordinates(layout)[axis])
        address = sel.alu("mad.lo.u32", own, step * dtype.bytes, address)
    if role.groups > 1:
        address = sel.alu("mad.lo.u32", sel.group(), pitch * dtype.bytes, address)
    offsets = [
        dtype.bytes * sum(a * b for a, b in zip(layout(reg=r), pitches, strict=True))
        for r in range(count)
    ]
    value, first = sel.get(op.x), first_copy(sel, layout)
    for register in range(count):
        if offsets[register] in offsets[:register]:
            continue
        piece, width = piece_of(sel, value, register, 1, dtype)
        sel.build.add(
            ptx.Store(
                address, piece, space="shared", width=width, guard=first, offset=offsets[register]
            )
        )
    barrier = sel.constant(op.barrier)
    if role.groups > 1:
        barrier = sel.alu("add.u32", sel.group(), op.barrier)
    sel.build.add(ptx.BarrierSync(barrier, threads=32 * role.group_warps))
    kind = register_kind(dtype)
    width = NARROW[dtype.bytes] if dtype.bits < 32 else kind
    elements = [
        sel.build.add(
            ptx.Load(address, space="shared", width=width, offset=offset, type=Bits(kind, 1))
        ).out
        for offset in offsets
    ]
    sel.build.add(ptx.BarrierSync(barrier, threads=32 * role.group_warps))
    sel.set(op.out, pack_elements(sel, elements, dtype, type))
