"""Four-bit elements between registers, a byte each, and global memory, two to a byte.

Where a thread holds neighbours along the packed axis, the last one of the array, it moves whole
vectors of bytes, and a few 32-bit instructions take eight elements apart or put them together:
halves are masked, brought into order by ``prmt``, and a sign is spread without a carry between
bytes (8 times 30 is 0xF0). Otherwise a read takes the byte of each element by itself; such a write
does not exist, for two threads would write one byte.
"""

from __future__ import annotations

from tilec.ir.core import Builder, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import cta, ptx
from tilec.ir.types import Array, Bits, DType, Register
from tilec.passes.constants import encoded
from tilec.passes.packed import packed_axis
from tilec.passes.select.moves import NARROW, GlobalTile, cache_path, pack_elements
from tilec.passes.select.selector import PtxValue, Selector, bits_of

_LOW = 0x0F0F0F0F
_SIGNS, _SPREAD = 0x08080808, 30
_FIRST_FOUR, _LAST_FOUR = 0x5140, 0x7362  # prmt: low halves and high halves in turns
_EVEN_BYTES, _HALVES = 0x6420, 0x5410
_PAIR = 2


class NibbleTile(GlobalTile):
    """As ``GlobalTile``, of an array in which two elements share a byte along the last axis."""

    def __init__(
        self, sel: Selector, op: cta.Read | cta.Write, array: Value[Array], type: Register
    ) -> None:
        super().__init__(sel, op, array, type)
        axis = packed_axis(array.type, op.axes)
        self.packed = len(array.type.shape) - 1
        self.one_byte = axis is None
        self.registers = type.layout.size("reg")
        self.unit_tile_axis = self.type.layout.rank - 1 if axis is None else axis

    def unit_stride(self) -> bool:
        """Along the packed axis there is no other; a tile may have one place of it."""
        return not self.one_byte

    def usable(self, vector: int) -> int:
        """The most elements of an access: 1 where no thread holds both of a byte."""
        whole = not self.one_byte and self.plan(vector).elements >= _PAIR
        return vector if whole else 1

    def bytes_of(self, elements: int) -> int:
        """Half of the elements, which are in pairs here."""
        return elements // _PAIR

    def stride(self, axis: int) -> PtxValue:
        """Byte stride of another axis than the packed one, 64 bits: rows are whole bytes."""
        return stride_bytes(self.sel, self.array.name, axis)

    def base(self, coordinates: list[PtxValue]) -> PtxValue:
        """Byte address of the thread's first pair."""
        places = [self.place(coordinates, axis) for axis in range(self.packed + 1)]
        return byte_address(self.sel, self.array, places)

    def place(self, coordinates: list[PtxValue], axis: int) -> PtxValue:
        """Where the thread's first element lies along an array axis."""
        if axis in self.op.axes:
            return coordinates[self.op.axes.index(axis)]
        return self.sel.get(self.op.origin[axis])

    def singles(self, op: cta.Read) -> list[PtxValue]:
        """Each element by itself, as 32 bits."""
        sel, guards = self.sel, dict[tuple[int, int], PtxValue]()
        coordinates = [self.own_coordinate(axis) for axis in range(self.type.layout.rank)]
        rows = [self.place(coordinates, axis) for axis in range(self.packed)]
        start = byte_address(sel, self.array, rows)
        along = self.place(coordinates, self.packed)
        found = []
        for item in self.plan(1).accesses:
            own = 0 if self.one_byte else item.offset[self.unit_tile_axis]
            outer = tuple(
                0 if a == self.unit_tile_axis and not self.one_byte else o
                for a, o in enumerate(item.offset)
            )
            at = sel.alu("add.s32", along, own) if own else along
            address = plus_half(sel, self.moved(start, outer), at)
            guard = self.guard(coordinates, item.offset, guards)
            byte = _load(sel, op, address, 0, guard, 1)
            found.append(
                _filled(sel, op, _nibble(sel, byte, at, self.array.type.dtype), guard, single=True)
            )
        return found


def stride_bytes(sel: Selector, array: str, axis: int) -> PtxValue:
    """Byte stride of an axis of whole rows."""

    def make(build: Builder) -> PtxValue:
        elements = sel.parameter("stride", array, axis, bits="b64")
        return sel.alu_on(build, "shr.s64", elements, 1, kind="b64")

    return sel.at_kernel(("stride_bytes", array, axis), make)


def plus_half(sel: Selector, address: PtxValue, place: PtxValue) -> PtxValue:
    """The address of the byte that holds an element of a row."""
    wide = sel.alu("cvt.s64.s32", sel.alu("shr.s32", place, 1), kind="b64")
    return sel.alu("add.s64", address, wide, kind="b64")


def byte_address(sel: Selector, array: Value[Array], places: list[PtxValue]) -> PtxValue:
    """Where a row begins, or where an element's byte lies if there is a place along all axes."""
    address = sel.parameter("pointer", array.name, bits="b64")
    rank = len(array.type.shape)
    for axis, place in enumerate(places):
        if axis == rank - 1:
            return plus_half(sel, address, place)
        wide = sel.alu("cvt.s64.s32", place, kind="b64")
        stride = stride_bytes(sel, array.name, axis)
        address = sel.alu("mad.lo.s64", wide, stride, address, kind="b64")
    return address


# --- reading ----------------------------------------------------------------------------------


def read_nibbles(sel: Selector, op: cta.Read) -> None:
    """Elements as bytes in the registers of the tile."""
    where = NibbleTile(sel, op, op.array, op.out.type)
    if where.usable(op.vector) < _PAIR:
        each = sel.alu("and.b32", sel.join(where.singles(op)), 0xFF, count=where.registers)
        halves = sel.alu("cvt.u16.u32", each, kind="b16", count=where.registers)
        elements = [sel.pick(halves, n) for n in range(where.registers)]
        sel.set(op.out, pack_elements(sel, elements, op.out.type.dtype, op.out.type))
        return
    cut = where.partial_vectors()
    if cut <= _PAIR:  # extents are even
        sel.set(op.out, _read_pairs(sel, op, where, op.vector))
        return
    regions = []
    for vector in (op.vector, _PAIR):
        body = Region()
        with sel.build.inside(body):
            sel.build.add(ptx.Yield((_read_pairs(sel, op, where, vector),)))
        regions.append(body)
    choice = ptx.If(
        where.whole_vectors(cut), types=(bits_of(op.out.type),), then=regions[0],
        otherwise=regions[1],
    )  # fmt: skip
    sel.set(op.out, sel.build.add(choice).out[0])


def read_nibble(sel: Selector, op: cta.ReadScalar) -> PtxValue:
    """One element, as a scalar of 8 bits has it."""
    places = [sel.get(v) for v in op.origin]
    address = byte_address(sel, op.array, places)
    byte = _load(sel, op, address, 0, None, 1)
    one = _nibble(sel, byte, places[-1], op.array.type.dtype)
    return sel.alu("cvt.u16.u32", one, kind="b16")


def _load(
    sel: Selector,
    op: cta.Read | cta.ReadScalar,
    address: PtxValue,
    offset: int,
    guard: PtxValue | None,
    byte_count: int,
) -> PtxValue:
    """Some bytes, as 32-bit registers."""
    width, count = NARROW[min(byte_count, 4)], max(1, byte_count // 4)
    kind = "b32" if width == "b32" else "b16"
    load = ptx.Load(
        address,
        guard=guard,
        space="global",
        width=width,
        offset=offset,
        otherwise=0,
        modifiers=cache_path(op.array),
        type=Bits(kind, count),
    )
    found = sel.build.add(load).out
    return found if kind == "b32" else sel.alu("cvt.u32.u16", found)


def _nibble(sel: Selector, byte: PtxValue, place: PtxValue, dtype: DType) -> PtxValue:
    """The half of a byte that a place names, with its sign."""
    odd = sel.alu("and.b32", place, 1)
    first = sel.alu("shl.b32", odd, 2)
    return sel.alu(f"bfe.{dtype.kind[0]}32", byte, first, 4)


def _read_pairs(sel: Selector, op: cta.Read, where: NibbleTile, vector: int) -> PtxValue:
    dtype, words = op.array.type.dtype, bits_of(op.out.type).count
    parts: list[PtxValue] = []
    guards: list[PtxValue | None] = []
    each = 0

    def access(
        address: PtxValue, offset: int, guard: PtxValue | None, register: int, elements: int
    ) -> None:
        nonlocal each
        each = elements
        parts.append(_load(sel, op, address, offset, guard, elements // _PAIR))
        guards.append(guard)

    where.accesses(vector, access)
    value = _apart(sel, sel.join(parts), dtype, each)
    if op.fill:
        own = max(1, each // 4)
        pieces = [sel.pick(value, *range(n * own, (n + 1) * own)) for n in range(len(guards))]
        value = sel.join(
            [_filled(sel, op, p, g, single=False) for p, g in zip(pieces, guards, strict=True)]
        )
    if each >= 4:
        return value
    if len(parts) % 2:  # two elements are all that a thread has
        return value
    low, high = (sel.pick(value, *range(first, len(parts), 2)) for first in (0, 1))
    return sel.alu("prmt.b32", low, high, _HALVES, count=words)


def _apart(sel: Selector, packed: PtxValue, dtype: DType, each: int) -> PtxValue:
    """Elements a byte each, in order: one register for two or four of them, or two for eight."""
    count = packed.type.count
    even = sel.alu("and.b32", packed, _LOW, count=count)
    moved = sel.alu("shr.u32", packed, 4, count=count)
    odd = sel.alu("and.b32", moved, _LOW, count=count)
    value = sel.alu("prmt.b32", even, odd, _FIRST_FOUR, count=count)
    if each >= 8:
        upper = sel.alu("prmt.b32", even, odd, _LAST_FOUR, count=count)
        order = [n // 2 + (n % 2) * count for n in range(2 * count)]
        value, count = sel.pick(sel.join([value, upper]), *order), 2 * count
    if dtype.kind == "unsigned":
        return value
    signs = sel.alu("and.b32", value, _SIGNS, count=count)
    return sel.alu("mad.lo.u32", signs, _SPREAD, value, count=count)


def _filled(
    sel: Selector, op: cta.Read, value: PtxValue, guard: PtxValue | None, *, single: bool
) -> PtxValue:
    """What lies outside is the fill, which four bits need not hold."""
    if not op.fill or guard is None:
        return value
    bits = encoded(op.fill, op.out.type.dtype)
    word = bits if single else bits * 0x01010101
    return sel.alu("selp.b32", value, word, guard, count=value.type.count)


# --- writing ----------------------------------------------------------------------------------


def write_nibbles(sel: Selector, op: cta.Write) -> None:
    """Bytes in the registers of the tile as elements of four bits."""
    where = NibbleTile(sel, op, op.array, op.value.type)
    vector = max(_PAIR, op.vector)
    if where.usable(vector) < _PAIR:
        raise Refused(f"no thread holds whole bytes of {op.array.name}")
    cut = where.partial_vectors()
    if cut <= _PAIR:
        _write_pairs(sel, op, where, vector)
        return
    regions = []
    for each in (vector, _PAIR):
        body = Region()
        with sel.build.inside(body):
            _write_pairs(sel, op, where, each)
            sel.build.add(ptx.Yield(()))
        regions.append(body)
    choice = ptx.If(where.whole_vectors(cut), types=(), then=regions[0], otherwise=regions[1])
    sel.build.add(choice)


def _write_pairs(sel: Selector, op: cta.Write, where: NibbleTile, vector: int) -> None:
    layout = op.value.type.layout
    pieces = _together(sel, sel.get(op.value), where.plan(vector).elements)
    written: set[tuple[int, ...]] = set()

    def access(
        address: PtxValue, offset: int, guard: PtxValue | None, register: int, elements: int
    ) -> None:
        place = layout(reg=register)
        if place in written:
            return
        written.add(place)
        own = max(1, elements // 8)
        first = register // elements * own
        piece = sel.pick(pieces, *range(first, first + own))
        width = NARROW[min(elements // _PAIR, 4)]
        sel.build.add(
            ptx.Store(address, piece, guard=guard, space="global", width=width, offset=offset)
        )

    where.accesses(vector, access)


def _together(sel: Selector, value: PtxValue, each: int) -> PtxValue:
    """The bytes of each access: registers of 16 bits for two or four elements, else of 32."""
    count = value.type.count
    low = sel.alu("and.b32", value, _LOW, count=count)
    high = sel.alu("shr.u32", low, 4, count=count)
    both = sel.alu("or.b32", low, high, count=count)  # bytes 0 and 2 are whole now
    if each >= 8:
        firsts, seconds = (sel.pick(both, *range(n, count, 2)) for n in (0, 1))
        return sel.alu("prmt.b32", firsts, seconds, _EVEN_BYTES, count=count // 2)
    if each == 4:
        pairs = sel.alu("prmt.b32", both, 0, _EVEN_BYTES, count=count)
        return sel.alu("cvt.u16.u32", pairs, kind="b16", count=count)
    upper = sel.alu("shr.u32", both, 16, count=count)
    order = [n // 2 + (n % 2) * count for n in range(2 * count)]
    single = sel.pick(sel.join([both, upper]), *order)
    return sel.alu("cvt.u16.u32", single, kind="b16", count=2 * count)
