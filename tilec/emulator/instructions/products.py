"""Products of a warpgroup that run on their own: wgmma (PTX ISA 9.7.15.5).

Each warp of a warpgroup owns 16 rows of the result, so a product is the warps' own work, warp by
warp; what is shared is the memory that descriptors name. Sums are made in float32 over the products
of exact inputs, an order that the hardware does not promise either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilec.emulator.asynchrony import Groups, Work, commits, issue
from tilec.emulator.conflicts import ProductWatcher
from tilec.emulator.gang import ACCUMULATING, FULL, MULTIPLIED, WARP
from tilec.emulator.instructions.elements import decode, element_bytes
from tilec.emulator.memory import gather
from tilec.emulator.order import order_of
from tilec.emulator.program import Instruction, Number, Register, Vector
from tilec.emulator.shadow import GRANULE, Party, shadow_of, tell
from tilec.emulator.table import Bind, Step, lanes_of, row, where
from tilec.emulator.tensors import swizzled

ROWS = 64
_STEP_BYTES = 32
"""Bytes of K in one instruction, for every element type."""
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_SPANS = {0: 0, 1: 128, 2: 64, 3: 32}
_RESERVED = sum(1 << b for b in (14, 15, 30, 31, 46, 47, 48, *range(52, 62)))
_PATTERN_ROWS = {0: 0, 32: 1, 64: 3, 128: 7}
"""The address bits from bit 7 on that the swizzle mixes in; 0 where a pattern begins."""


@dataclass(frozen=True)
class Descriptor:
    """What a 64-bit matrix descriptor says (PTX ISA 9.7.15.5.1.2.2), in bytes."""

    start: int
    leading: int
    stride: int
    span: int
    base_offset: int = 0
    reserved: int = 0
    """The bits that must be 0."""

    @staticmethod
    def of(bits: int) -> Descriptor:
        """The fields."""
        bits &= (1 << 64) - 1
        start, leading, stride = (((bits >> low) & 0x3FFF) << 4 for low in (0, 16, 32))
        span = _SPANS[bits >> 62 & 3]
        return Descriptor(start, leading, stride, span, bits >> 49 & 7, bits & _RESERVED)

    def faults(self) -> list[str]:
        """What the format forbids, in words."""
        found = []
        if self.reserved:
            found.append(f"reserved bits are set: {self.reserved:#018x}")
        row = self.start >> 7 & _PATTERN_ROWS[self.span]
        if self.span and row != self.base_offset & _PATTERN_ROWS[self.span]:
            found.append(
                f"it starts at shared address {self.start}, row {row} of its swizzle's pattern, "
                f"and its base offset is {self.base_offset}; a pattern of {self.span}-byte rows "
                f"begins at multiples of {8 * self.span}"
            )
        return found


def operand_addresses(d: Descriptor, count: int, size: int, mn_major: bool) -> Any:
    """Shared address of each element [row, k] of an operand of ``count`` rows or columns."""
    k = np.arange(_STEP_BYTES // size, dtype=np.int64)[None, :]
    mn = np.arange(count, dtype=np.int64)[:, None]
    if mn_major:
        if d.span == 0:
            chunk = 16 // size
            place = mn // chunk * d.stride + mn % chunk * size + k // 8 * d.leading + k % 8 * 16
        else:
            wide = d.span // size
            inner = mn % wide * size + k % 8 * d.span
            place = mn // wide * d.leading + inner + k // 8 * d.stride
    elif d.span == 0:
        chunk = 16 // size
        place = mn // 8 * d.stride + mn % 8 * 16 + k // chunk * d.leading + k % chunk * size
    else:
        place = mn // 8 * d.stride + mn % 8 * d.span + k * size
    return swizzled(d.start + place, d.span)


@lru_cache(maxsize=256)
def _operand_places(d: Descriptor, count: int, size: int, mn_major: bool) -> Any:
    """The addresses, and the granules of memory that they lie in."""
    addresses = operand_addresses(d, count, size, mn_major)
    return addresses, np.unique(addresses.reshape(-1) // GRANULE)


@lru_cache(maxsize=1024)
def _quarter_places(d: Descriptor, size: int, mn_major: bool, quarter: int) -> Any:
    """The granules of the 16 rows of A that a warp multiplies."""
    rows = operand_addresses(d, ROWS, size, mn_major)[16 * quarter : 16 * quarter + 16]
    return np.unique(rows.reshape(-1) // GRANULE)


def fragment_a(lanes: Any, size: int) -> tuple[Any, Any]:
    """Row of the warp's 16 and place in K of each element, [lane, register, element]."""
    lane = lanes[:, None, None]
    register = np.arange(4)[None, :, None]
    each = np.arange(4 // size)[None, None, :]
    rows = lane // 4 + 8 * (register % 2) + 0 * each
    k = (lane % 4) * (4 // size) + (16 // size) * (register // 2) + each
    return rows, k


def fragment_c(lanes: Any, columns: int) -> tuple[Any, Any]:
    """Row in the warp's 16 and column of each accumulator register, [lane, register]."""
    lane = lanes[:, None]
    register = np.arange(columns // 2)[None, :]
    rows = lane // 4 + 8 * (register // 2 % 2)
    return rows, register // 4 * 8 + lane % 4 * 2 + register % 2


@dataclass
class Product:
    """One wgmma as bound: registers, types and the operands' form."""

    at: Instruction
    columns: int
    types: tuple[str, str]
    result: str
    accumulators: tuple[Register, ...]
    a_registers: tuple[Register, ...]
    a_major: bool
    b_major: bool


def groups_of(cta: Any, warp: int) -> Groups:
    """The products of a warp, in groups."""
    found: dict[int, Groups] = cta.keep("wgmma-groups", lambda _: {})
    return found.setdefault(warp, Groups())


@row("wgmma.mma_async", effect="reads", proxy="async", group="wgmma")
def _mma(bind: Bind) -> Step:
    shape = next((m for p in bind.at.parts if (m := _SHAPE.fullmatch(p))), None)
    kinds = [p for p in bind.at.parts[4:] if not _SHAPE.fullmatch(p)]
    if shape is None or len(kinds) < 3:
        raise bind.fail("a shape m64nNkK and three types are needed")
    result, of_a, of_b = kinds[:3]
    d, a, b, *rest = bind.operands
    accumulators = tuple(r for r in bind.many(d) if isinstance(r, Register))
    columns = int(shape.group(1))
    per_register = 2 if result == "f16" else 1
    if len(accumulators) * per_register != columns // 2:
        raise bind.fail(f"{len(accumulators)} accumulators for {columns} columns")
    if result == "f16":
        raise bind.fail("accumulators of f16 are beyond the emulator")
    listed = a.items if isinstance(a, Vector) else ()
    a_registers = tuple(r for r in listed if isinstance(r, Register))
    majors = [int(o.value) for o in rest[3:] if isinstance(o, Number)]
    a_major = bool(majors[0]) if not a_registers and len(majors) > 1 else False
    product = Product(
        bind.at,
        columns,
        (of_a, of_b),
        result,
        accumulators,
        a_registers,
        a_major,
        bool(majors[-1]) if majors else False,
    )
    scale = rest[0]
    adds = bind.read(scale, "pred")
    signs = [float(o.value) for o in rest[1:3] if isinstance(o, Number)] or [1.0, 1.0]
    if any(s not in (1.0, -1.0) for s in signs):
        raise bind.fail("operands are scaled by 1 or -1")
    sign = float(np.prod(signs)) if result == "f32" else 1.0
    of_a_place = None if a_registers else bind.read(a, "b64")
    of_b_place = bind.read(b, "b64")

    def run(g: Any) -> None:
        add = bool(lanes_of(adds(g), g)[int(np.argmax(g.active()))])
        first = int(np.argmax(g.active()))
        a_place = None if of_a_place is None else int(lanes_of(of_a_place(g), g)[first])
        b_place = int(lanes_of(of_b_place(g), g)[first])
        _check_registers(g, product, add)
        for group in np.unique(g.warps // 4).tolist():
            keep = g.warps // 4 == group
            warps = tuple(g.warps[keep].tolist())
            places = (
                None if a_place is None else _per_group(of_a_place, g, keep),
                b_place if of_b_place is None else _per_group(of_b_place, g, keep),
            )
            _start(bind, g, product, warps, places, add, sign)

    return run


def _per_group(read: Any, g: Any, keep: Any) -> int:
    lane = int(np.argmax(np.repeat(keep, WARP) & g.active()))
    return int(lanes_of(read(g), g)[lane])


def _check_registers(g: Any, p: Product, add: bool) -> None:
    findings = g.cta.machine.findings
    if g.mask is not None:
        findings.add(
            "divergent-aligned",
            p.at,
            "wgmma is reached by some lanes of a warp only",
            where=where(g),
        )
    unfenced = [r for r in (*p.accumulators, *p.a_registers) if g.fresh[r.row]]
    if unfenced or not g.fenced:
        name = unfenced[0].name if unfenced else ""
        findings.add(
            "missing-wgmma-fence",
            p.at,
            f"{name} was touched after the last wgmma.fence and is used by a product"
            if unfenced
            else "the first product of the warpgroup, with no wgmma.fence before it",
            where=where(g),
        )
    for r in (*(p.accumulators if add else ()), *p.a_registers):
        if g.states["b32"][r.row] not in (FULL, ACCUMULATING, MULTIPLIED):
            findings.add(
                "uninitialised-register",
                p.at,
                f"{r.name} holds nothing and a product uses it",
                missing="a value, or scale-d = 0 in the first product",
                where=where(g),
            )
            break


def _start(
    bind: Bind,
    g: Any,
    p: Product,
    warps: tuple[int, ...],
    places: tuple[int | None, int],
    add: bool,
    sign: float,
) -> None:
    cta = g.cta
    order, shadow = order_of(cta), shadow_of(cta)
    bits = [order.fresh_bit() for _ in warps]
    start = order.issue(warps[0])
    for warp in warps[1:]:  # each warp starts its own rows: what one does not know is not ordered
        other = order.issue(warp)
        np.minimum(start.clock, other.clock, out=start.clock)
        np.minimum(start.proxy, other.proxy, out=start.proxy)
        np.minimum(start.wide, other.wide, out=start.wide)
        start.known &= other.known
    party = Party(
        p.at,
        sum(bits),
        start,
        "the product",
        "a wgmma.wait_group that covers it in every warp of the warpgroup, and a barrier after it",
    )
    shadow.enter(party)
    work = Work("wgmma", p.at, cta, party, [], warps=warps)
    work.parts.append(lambda: _multiply(bind, cta, p, work, places, add, sign))
    work.after = groups_of(cta, warps[0]).last
    for r in p.accumulators:
        g.states["b32"][r.row] = ACCUMULATING
        g.owners[("b32", r.row)] = work
    for r in p.a_registers:
        g.states["b32"][r.row] = MULTIPLIED
        g.owners[("b32", r.row)] = work
    for warp in warps:
        groups_of(cta, warp).add(work)
    bits_of = cta.keep("wgmma-bits", lambda _: {})
    bits_of[work] = dict(zip(warps, bits, strict=True))
    issue(work)


def _shared_operand(
    cta: Any,
    p: Product,
    work: Work,
    bits: int,
    count: int,
    type: str,
    major: bool,
    parties: dict[int, Party] | None = None,
) -> Any:
    """An operand's elements as numbers [rows, k]; the access is watched.

    Of A each warp reads its own rows, for which its own wait is enough: ``parties`` by warp.
    """
    size = element_bytes(type)
    descriptor, machine = Descriptor.of(bits), cta.machine
    for wrong in descriptor.faults():
        machine.findings.add("descriptor", p.at, wrong, where=f"CTA {cta.index}")
    addresses, granules = _operand_places(descriptor, count, size, major)
    flat = addresses.reshape(-1)
    limit = machine.program.static_shared + machine.dynamic_shared
    if int(flat.max()) + size > limit:
        machine.findings.add(
            "descriptor",
            p.at,
            f"a descriptor reaches shared address {int(flat.max()) + size}; the CTA has {limit} "
            "bytes",
            where=f"CTA {cta.index}",
        )
        return np.zeros(addresses.shape)
    shadow = shadow_of(cta)
    readers = [(work.party, granules)]
    if parties is not None:
        readers = [(q, _quarter_places(descriptor, size, major, w % 4)) for w, q in parties.items()]
    for party, read in readers:
        found = shadow.work_reads(party, read)
        if found is not None:
            tell(cta, p.at, found, "reads", "the product", work.warps, work.party)
    for watcher in machine.watchers:
        if isinstance(watcher, ProductWatcher):
            watcher.product(p.at, cta, _core_rows(addresses, size, major))
    if not cta.shared_written[flat].all():
        machine.findings.add(
            "uninitialised-memory",
            p.at,
            "a product reads shared memory that nothing has written",
            missing="a wait for what fills it",
            where=f"CTA {cta.index}",
        )
    return decode(gather(cta.shared, flat, size), type).reshape(addresses.shape)


def _core_rows(addresses: Any, size: int, mn_major: bool) -> Any:
    """Addresses of the 16-byte rows that are read together, by 8: core matrices."""
    way = addresses.T if mn_major else addresses
    starts = way[:, :: 16 // size]
    return [starts[n : n + 8, c] for n in range(0, len(starts), 8) for c in range(starts.shape[1])]


def _multiply(
    bind: Bind,
    cta: Any,
    p: Product,
    work: Work,
    places: tuple[int | None, int],
    add: bool,
    sign: float,
) -> None:
    of_a, of_b = p.types
    b = _shared_operand(cta, p, work, places[1], p.columns, of_b, p.b_major)
    a = None
    if places[0] is not None:
        bits_of = cta.keep("wgmma-bits", lambda _: {})[work]
        start = work.party.start
        parties = {
            w: Party(p.at, bits_of[w], start, work.party.what, work.party.waits) for w in work.warps
        }
        for party in parties.values():
            party.issued = work.party.issued
        a = _shared_operand(cta, p, work, places[0], ROWS, of_a, p.a_major, parties)
    integers = p.result == "s32"
    kind = np.int64 if integers else np.float32
    right = b.T.astype(kind)
    lanes = np.arange(WARP)
    rows, columns = fragment_c(lanes, p.columns)
    size = element_bytes(of_a)
    a_rows, a_k = fragment_a(lanes, size)
    registers = [r.row for r in p.accumulators]
    for g in [g for g in cta.gangs if np.isin(g.warps, work.warps).any()]:
        bank = g.views["s32" if integers else "f32"]
        for number, warp in enumerate(g.warps.tolist()):
            if warp not in work.warps:
                continue
            mine = slice(WARP * number, WARP * number + WARP)
            if a is None:
                raw = np.stack([g.views["b32"][r.row][mine] for r in p.a_registers], axis=1)
                parts = decode(
                    np.ascontiguousarray(raw).view(np.uint8).reshape(-1, size), of_a
                ).reshape(WARP, 4, 4 // size)
                left = np.zeros((16, _STEP_BYTES // size))
                left[a_rows, a_k] = parts
            else:
                quarter = 16 * (warp % 4)
                left = a[quarter : quarter + 16]
            with np.errstate(all="ignore"):
                total = left.astype(kind) @ right
                found = (total * sign).astype(bank.dtype)[rows, columns].T
                if add:
                    found = bank[registers, mine] + found
            bank[registers, mine] = found


@row("wgmma.fence", effect="orders", group="wgmma")
def _fence(bind: Bind) -> Step:
    def run(g: Any) -> None:
        g.fresh, g.fenced = bytearray(len(g.fresh)), True

    return run


row("wgmma.commit_group", effect="orders", group="wgmma")(commits(groups_of))


@row("wgmma.wait_group", effect="orders", group="wgmma")
def _wait(bind: Bind) -> Step:
    pending = bind.whole(bind.operands[0], "the number of groups")

    def run(g: Any) -> None:
        order = order_of(g.cta)
        bits_of = g.cta.keep("wgmma-bits", lambda _: {})
        for warp in g.warps.tolist():
            for work in groups_of(g.cta, warp).wait(pending):
                work.finish()
                order.learn(warp, bits_of[work][warp])
        still = {
            work
            for warp in g.warps.tolist()
            for group in (*groups_of(g.cta, warp).closed, groups_of(g.cta, warp).open)
            for work in group
        }
        for (bank, row_), owner in list(g.owners.items()):
            if bank == "b32" and owner not in still:
                g.states[bank][row_] = FULL
                del g.owners[(bank, row_)]

    return run
