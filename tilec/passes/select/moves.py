"""Tiles between registers and global memory, by plain loads and stores."""

from __future__ import annotations

from collections.abc import Callable

from tilec.ir.core import Builder, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import cta, memory, ptx
from tilec.ir.types import Array, Bits, DType, Register
from tilec.layout.copies import first_copies
from tilec.layout.linear import Layout, LayoutRefusal
from tilec.layout.vectors import GlobalPlan, global_plan
from tilec.passes.constants import encoded
from tilec.passes.select.selector import (
    PtxValue,
    Selector,
    bits_of,
    is_packed,
    lowers,
    register_kind,
)
from tilec.passes.select.widths import as_predicates


def _memory_width(byte_count: int, kind: str) -> tuple[str, int]:
    """PTX type and vector length of one access of that many bytes of registers of ``kind``."""
    unit = {"b64": 8, "f64": 8, "b32": 4, "f32": 4, "b16": 2}[kind]
    return kind, max(1, byte_count // unit)


def per_register(dtype: DType) -> int:
    """Elements in one register of a tile."""
    return 32 // dtype.bits if is_packed(dtype) else 1


def single_piece(
    sel: Selector, value: PtxValue, register: int, dtype: DType
) -> tuple[PtxValue, str]:
    """One element of a packed tile in a 16-bit register, and the width of an access to it."""
    if dtype.bits == 8:
        word = sel.pick(value, register // 4)
        moved = sel.alu("shr.u32", word, 8 * (register % 4))
        return sel.alu("cvt.u16.u32", moved, kind="b16"), "u8"
    pair = sel.pick(value, register // 2)
    both = sel.build.add(ptx.Unpack(pair, type=Bits("b16", 2))).out
    return sel.pick(both, register % 2), "b16"


class GlobalTile:
    """Addresses and bounds of a register tile in an array with run-time strides."""

    def __init__(
        self,
        sel: Selector,
        op: cta.Read | cta.Write | memory.Update,
        array: Value[Array],
        type: Register,
    ) -> None:
        self.sel, self.op, self.array, self.type = sel, op, array, type
        self.element_bytes = array.type.dtype.bytes
        self.unit_tile_axis = type.layout.rank - 1

    def plan(self, vector: int) -> GlobalPlan:
        """Accesses of at most ``vector`` elements."""
        bits = self.type.dtype.bits
        try:
            return global_plan(
                self.type.layout,
                bits,
                axis=self.unit_tile_axis,
                max_bytes=max(1, vector * bits // 8),
            )
        except LayoutRefusal as refusal:
            raise Refused(str(refusal)) from None

    def usable(self, vector: int) -> int:
        """The most elements of an access: 1 where wider ones would split a register or a bool."""
        dtype = self.array.type.dtype
        if not self.unit_stride() or dtype.name == "bool":
            return 1
        return vector if self.plan(vector).elements >= per_register(dtype) else 1

    def extent(self, axis: int) -> PtxValue:
        """Run-time extent of an array axis."""
        return self.sel.parameter("extent", self.array.name, axis, bits="b32")

    def limit(self, tile_axis: int) -> PtxValue:
        """Where elements end along a bounded tile axis: with its range, or with the array."""
        limited = () if isinstance(self.op, cta.Read) else self.op.limited
        if tile_axis in limited:
            ends = self.op.origin[len(self.array.type.shape) :]
            return self.sel.get(ends[limited.index(tile_axis)])
        return self.extent(self.op.axes[tile_axis])

    def stride(self, axis: int) -> PtxValue:
        """Byte stride of an array axis, 64 bits."""
        sel = self.sel

        def make(build: Builder) -> PtxValue:
            elements = sel.parameter("stride", self.array.name, axis, bits="b64")
            return sel.alu_on(build, "mul.lo.s64", elements, self.element_bytes, kind="b64")

        return sel.at_kernel(("stride_bytes", self.array.name, axis), make)

    def unit_stride(self) -> bool:
        """Whether the last tile axis is promised to have stride one."""
        facts = self.sel.ctx.facts.array(self.array.name)
        axis = self.op.axes[self.unit_tile_axis] if self.op.axes else -1
        return facts is not None and facts.unit_axis == axis

    def own_coordinate(self, tile_axis: int) -> PtxValue:
        """Tile origin plus the thread's own place along a tile axis."""
        sel = self.sel
        own = sel.index_map(self.plan(1).thread[tile_axis])
        origin = sel.get(self.op.origin[self.op.axes[tile_axis]])
        return sel.alu("add.s32", origin, own)

    def base(self, coordinates: list[PtxValue]) -> PtxValue:
        """Byte address of the thread's first element."""
        sel = self.sel
        address = sel.parameter("pointer", self.array.name, bits="b64")
        for axis in range(len(self.array.type.shape)):
            if axis in self.op.axes:
                at = coordinates[self.op.axes.index(axis)]
            else:
                at = sel.get(self.op.origin[axis])
            if self.unit_stride() and axis == self.op.axes[self.unit_tile_axis]:
                wide = sel.alu("mul.wide.s32", at, self.element_bytes, kind="b64")
                address = sel.alu("add.s64", address, wide, kind="b64")
                continue
            wide = sel.alu("cvt.s64.s32", at, kind="b64")
            address = sel.alu("mad.lo.s64", wide, self.stride(axis), address, kind="b64")
        return address

    def partial_vectors(self) -> int:
        """Elements of a vector that may be cut by the array's end; 1 where none is."""
        elements = self.plan(self.usable(self.op.vector)).elements
        if self.unit_tile_axis not in self.op.bounded:
            return 1
        extent = self.array.type.shape[self.op.axes[self.unit_tile_axis]]
        known = extent if isinstance(extent, int) else self.sel.ctx.facts.multiple(extent)
        limited = () if isinstance(self.op, cta.Read) else self.op.limited
        if self.unit_tile_axis in limited and elements > 1:
            raise Refused("a range ends anywhere, so its elements are written one by one")
        return 1 if known % elements == 0 else elements

    def whole_vectors(self, elements: int) -> PtxValue:
        """True when the bounded unit axis has a multiple of ``elements``."""
        extent = self.extent(self.op.axes[self.unit_tile_axis])
        rest = self.sel.alu("and.b32", extent, elements - 1)
        return self.sel.alu("setp.eq.u32", rest, 0, kind="pred")

    def accesses(
        self, vector: int, access: Callable[[PtxValue, int, PtxValue | None, int, int], None]
    ) -> None:
        """Call ``access(address, offset, guard, first register, elements)`` for each access."""
        self._accesses(self.plan(self.usable(vector)), access)

    def _accesses(
        self,
        plan: GlobalPlan,
        access: Callable[[PtxValue, int, PtxValue | None, int, int], None],
    ) -> None:
        coordinates = [self.own_coordinate(axis) for axis in range(self.type.layout.rank)]
        base = self.base(coordinates)
        addresses: dict[tuple[int, ...], PtxValue] = {}
        guards: dict[tuple[int, int], PtxValue] = {}
        unit = self.unit_tile_axis if self.unit_stride() else -1
        for item in plan.accesses:
            outer = tuple(0 if a == unit else o for a, o in enumerate(item.offset))
            if outer not in addresses:
                addresses[outer] = self.moved(base, outer)
            guard = self.guard(coordinates, item.offset, guards)
            shift = self.bytes_of(item.offset[unit]) if unit >= 0 else 0
            access(addresses[outer], shift, guard, item.register, plan.elements)

    def guard(
        self,
        coordinates: list[PtxValue],
        offset: tuple[int, ...],
        known: dict[tuple[int, int], PtxValue],
    ) -> PtxValue | None:
        """Whether an access takes place; ``known`` keeps what its axes say."""
        sel, guard = self.sel, self._writer()
        for axis in self.op.bounded:
            key = (axis, offset[axis])
            if key not in known:
                at = sel.alu("add.s32", coordinates[axis], offset[axis])
                limit = self.limit(axis)
                known[key] = sel.alu("setp.lt.s32", at, limit, kind="pred")
            guard = (
                known[key] if guard is None else sel.alu("and.pred", guard, known[key], kind="pred")
            )
        return guard

    def bytes_of(self, elements: int) -> int:
        """How far apart in memory elements are along the axis of stride one."""
        return elements * self.element_bytes

    def moved(self, base: PtxValue, outer: tuple[int, ...]) -> PtxValue:
        """An address some elements further along each axis, by the array's strides."""
        sel = self.sel
        address = base
        for axis, offset in enumerate(outer):
            if offset:
                wide = sel.constant(offset, "b64")
                stride = self.stride(self.op.axes[axis])
                address = sel.alu("mad.lo.s64", stride, wide, address, kind="b64")
        return address

    def _writer(self) -> PtxValue | None:
        """For writes, true in the one thread that holds the first copy of its elements."""
        if isinstance(self.op, cta.Read):
            return None
        return first_copy(self.sel, self.type.layout)


def first_copy(sel: Selector, layout: Layout) -> PtxValue | None:
    """True in the one thread that holds the first copy of its elements; None if it is in all."""
    guard: PtxValue | None = None
    masks = first_copies(layout, sel.need_role().group_warps)
    spaces = (("lane", sel.lane), ("warp", sel.warp_in_group))
    for (space, source), mask in zip(spaces, masks, strict=True):
        if not mask:
            continue

        def make(
            build: Builder, mask: int = mask, source: Callable[[], PtxValue] = source
        ) -> PtxValue:
            kept = sel.alu_on(build, "and.b32", source(), mask)
            return sel.alu_on(build, "setp.eq.u32", kept, 0, kind="pred")

        first = sel.at_entry(("first_copy", space, mask), make)
        guard = first if guard is None else sel.alu("and.pred", guard, first, kind="pred")
    return guard


NARROW = {1: "u8", 2: "b16", 4: "b32", 8: "b64"}


@lowers(cta.Read)
def _read(sel: Selector, op: cta.Read) -> None:
    type = op.out.type
    if op.array.type.dtype.is_nibble:
        from tilec.passes.select.nibbles import read_nibbles

        read_nibbles(sel, op)
        return
    where = GlobalTile(sel, op, op.array, type)
    cut = where.partial_vectors()
    if cut == 1:
        sel.set(op.out, _read_all(sel, op, where, op.vector))
        return
    condition = where.whole_vectors(cut)
    bits = bits_of(type)
    regions = []
    for vector in (op.vector, 1):
        body = Region()
        with sel.build.inside(body):
            sel.build.add(ptx.Yield((_read_all(sel, op, where, vector),)))
        regions.append(body)
    choice = ptx.If(condition, types=(bits,), then=regions[0], otherwise=regions[1])
    sel.set(op.out, sel.build.add(choice).out[0])


def _read_all(sel: Selector, op: cta.Read, where: GlobalTile, vector: int) -> PtxValue:
    type = op.out.type
    dtype = type.dtype
    kind, packing = bits_of(type).kind, per_register(dtype)
    found: dict[int, PtxValue] = {}
    single: dict[int, PtxValue] = {}

    def access(
        address: PtxValue, offset: int, guard: PtxValue | None, register: int, elements: int
    ) -> None:
        if elements < packing or kind == "pred":
            single[register] = _read_one(sel, op, address, offset, guard, dtype)
            return
        width, count = _memory_width(elements * dtype.bytes, kind)
        load = ptx.Load(
            address,
            guard=guard,
            space="global",
            width=width,
            offset=offset,
            otherwise=_fill_bits(op.fill, dtype, single=False),
            modifiers=cache_path(op.array),
            type=Bits(kind, count),
        )
        out = sel.build.add(load).out
        for position in range(count):
            found[register // packing + position] = sel.pick(out, position)

    where.accesses(vector, access)
    if single:
        return pack_elements(sel, [single[r] for r in sorted(single)], dtype, type)
    return sel.join([found[r] for r in range(bits_of(type).count)])


def cache_path(array: Value[Array]) -> str:
    """An ``in`` array is written by nobody during the launch: the read-only path may serve it."""
    return "nc" if array.type.mode == "in" else ""


def _fill_bits(fill: int | float | bool, dtype: DType, *, single: bool) -> int | float:
    """The fill as the literal of a whole register, or of one with a single element."""
    if not is_packed(dtype):
        return fill
    bits = encoded(fill, dtype)
    return bits if single else sum(bits << n for n in range(0, 32, dtype.bits))


def _read_one(
    sel: Selector,
    op: cta.Read,
    address: PtxValue,
    offset: int,
    guard: PtxValue | None,
    dtype: DType,
) -> PtxValue:
    kind = register_kind(dtype)
    if kind == "pred":
        load = ptx.Load(
            address,
            guard=guard,
            space="global",
            width="u8",
            offset=offset,
            otherwise=int(bool(op.fill)),
            modifiers=cache_path(op.array),
            type=Bits("b16", 1),
        )
        byte = sel.build.add(load).out
        wide = sel.alu("cvt.u32.u16", byte)
        return sel.alu("setp.ne.u32", wide, 0, kind="pred")
    width = NARROW[dtype.bytes] if dtype.bits < 32 else kind
    load = ptx.Load(
        address,
        guard=guard,
        space="global",
        width=width,
        offset=offset,
        otherwise=_fill_bits(op.fill, dtype, single=True),
        modifiers=cache_path(op.array),
        type=Bits(kind, 1),
    )
    return sel.build.add(load).out


def pack_elements(
    sel: Selector, elements: list[PtxValue], dtype: DType, type: Register
) -> PtxValue:
    """Single elements as the registers of a tile."""
    if not is_packed(dtype):
        return sel.join(elements)
    if dtype.bits == 8:
        return _pack_bytes(sel, elements)
    if len(elements) % 2:
        elements = [*elements, sel.constant(0, "b16")]
    packed = [
        sel.build.add(ptx.Combine(low, high, type=Bits("b32", 1))).out
        for low, high in zip(elements[::2], elements[1::2], strict=True)
    ]
    return sel.join(packed)


def _pack_bytes(sel: Selector, elements: list[PtxValue]) -> PtxValue:
    words = []
    for start in range(0, len(elements), 4):
        word: PtxValue | None = None
        for position, element in enumerate(elements[start : start + 4]):
            wide = sel.alu("cvt.u32.u16", element)
            if position:
                wide = sel.alu("shl.b32", wide, 8 * position)
            word = wide if word is None else sel.alu("or.b32", word, wide)
        if word is not None:
            words.append(word)
    return sel.join(words)


@lowers(cta.Write)
def _write(sel: Selector, op: cta.Write) -> None:
    if op.array.type.dtype.is_nibble:
        from tilec.passes.select.nibbles import write_nibbles

        write_nibbles(sel, op)
        return
    where = GlobalTile(sel, op, op.array, op.value.type)
    cut = where.partial_vectors()
    if cut == 1:
        _write_all(sel, op, where, op.vector)
        return
    condition = where.whole_vectors(cut)
    regions = []
    for vector in (op.vector, 1):
        body = Region()
        with sel.build.inside(body):
            _write_all(sel, op, where, vector)
            sel.build.add(ptx.Yield(()))
        regions.append(body)
    sel.build.add(ptx.If(condition, types=(), then=regions[0], otherwise=regions[1]))


def piece_of(
    sel: Selector, value: PtxValue, register: int, elements: int, dtype: DType
) -> tuple[PtxValue, str]:
    """Some neighbouring elements of a tile, as one access writes them, and its PTX type."""
    packing = per_register(dtype)
    if value.type.kind == "pred":
        piece = sel.alu("selp.b32", 1, 0, sel.pick(value, register))
        return sel.alu("cvt.u16.u32", piece, kind="b16"), "u8"
    if elements >= packing:
        first = register // packing
        return sel.pick(value, *range(first, first + elements // packing)), value.type.kind
    return single_piece(sel, value, register, dtype)


def _write_all(sel: Selector, op: cta.Write, where: GlobalTile, vector: int) -> None:
    type = op.value.type
    dtype = type.dtype
    value = sel.get(op.value)
    written: set[tuple[int, ...]] = set()

    def access(
        address: PtxValue, offset: int, guard: PtxValue | None, register: int, elements: int
    ) -> None:
        place = type.layout(reg=register)
        if place in written:
            return
        written.add(place)
        piece, width = piece_of(sel, value, register, elements, dtype)
        sel.build.add(
            ptx.Store(address, piece, guard=guard, space="global", width=width, offset=offset)
        )

    where.accesses(vector, access)


@lowers(cta.ReadScalar)
def _read_scalar(sel: Selector, op: cta.ReadScalar) -> None:
    dtype = op.array.type.dtype
    if dtype.is_nibble:
        from tilec.passes.select.nibbles import read_nibble

        sel.set(op.out, read_nibble(sel, op))
        return
    address = sel.parameter("pointer", op.array.name, bits="b64")
    for axis, value in enumerate(op.origin):

        def make(build: Builder, axis: int = axis) -> PtxValue:
            elements = sel.parameter("stride", op.array.name, axis, bits="b64")
            return sel.alu_on(build, "mul.lo.s64", elements, dtype.bytes, kind="b64")

        stride = sel.at_kernel(("stride_bytes", op.array.name, axis), make)
        wide = sel.alu("cvt.s64.s32", sel.get(value), kind="b64")
        address = sel.alu("mad.lo.s64", wide, stride, address, kind="b64")
    kind = register_kind(dtype)
    held = "b16" if kind == "pred" else kind
    width = NARROW[dtype.bytes] if dtype.bits < 32 else kind
    load = ptx.Load(address, space="global", width=width, type=Bits(held, 1))
    found = sel.build.add(load).out
    sel.set(op.out, as_predicates(sel, sel.alu("cvt.u32.u16", found)) if kind == "pred" else found)
