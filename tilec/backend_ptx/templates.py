"""The PTX of each straight-line op, one small function an op.

Idea: an op already is an instruction, so a template only spells it. Where an op covers several
registers the template gives one step for each instruction, in order.

Never: chooses anything that the op does not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from tilec.backend_ptx.steps import Piece, Registers, Step, braced, listed, literal, template
from tilec.ir.core import Value
from tilec.ir.levels import ptx
from tilec.ir.types import Bits

DONE = "%done"
"""A predicate that only the spin of an mbarrier wait uses."""


def _guarded(guard: Value[Bits] | None, at: Registers, *text: Piece) -> tuple[Piece, ...]:
    return text if guard is None else ("@", at(guard)[0], " ", *text)


def _place(address: Value[Bits], offset: int, at: Registers) -> list[Piece]:
    return ["[", at(address)[0], f"+{offset}]" if offset else "]"]


# --- registers ---------------------------------------------------------------------------------


@template(ptx.Constant)
def _constant(op: ptx.Constant, at: Registers) -> Iterator[Step]:
    for register in at.owned(op.out):
        yield Step(("mov.pred ", register, f", {int(op.value)}"), (register,))


@template(ptx.Pick)
@template(ptx.Join)
def _renaming(op: ptx.Pick | ptx.Join, at: Registers) -> Iterator[Step]:
    return iter(())


@template(ptx.Special)
def _special(op: ptx.Special, at: Registers) -> Iterator[Step]:
    (out,) = at.owned(op.out)
    yield Step(("mov.u32 ", out, f", %{op.register}"), (out,))


@template(ptx.Parameter)
def _parameter(op: ptx.Parameter, at: Registers) -> Iterator[Step]:
    (out,), parameter = at.owned(op.out), at.parameters[op.index]
    if parameter.kind == "map":
        yield Step(("mov.b64 ", out, f", {parameter.name}"), (out,))
        yield Step(("cvta.param.u64 ", out, ", ", out), (out,), (out,))
    else:
        yield Step((f"ld.param.{parameter.kind} ", out, f", [{parameter.name}]"), (out,))


@template(ptx.SharedBase)
def _shared_base(op: ptx.SharedBase, at: Registers) -> Iterator[Step]:
    (out,) = at.owned(op.out)
    yield Step(("mov.u32 ", out, ", smem"), (out,))


@template(ptx.Elect)
def _elect(op: ptx.Elect, at: Registers) -> Iterator[Step]:
    (out,) = at.owned(op.out)
    yield Step(("elect.sync _|", out, ", 0xffffffff"), (out,))


@template(ptx.Alu)
def _alu(op: ptx.Alu, at: Registers) -> Iterator[Step]:
    inputs = [at(value) for value in op.inputs]
    for index, out in enumerate(at.owned(op.out)):
        first = index * op.per
        parts = (x if len(x) == 1 else x[first : first + op.per][::-1] for x in inputs)
        yield Step((f"{op.opcode} ", *listed([out, *chain(*parts)])), (out,))


@template(ptx.Unpack)
def _unpack(op: ptx.Unpack, at: Registers) -> Iterator[Step]:
    outs, bits = at.owned(op.out), op.x.type.kind[1:]
    for index, x in enumerate(at(op.x)):
        pair = outs[2 * index : 2 * index + 2]
        yield Step((f"mov.b{bits} ", *braced(pair), ", ", x), tuple(pair))


@template(ptx.Combine)
def _combine(op: ptx.Combine, at: Registers) -> Iterator[Step]:
    bits = op.out.type.kind[1:]
    for out, low, high in zip(at.owned(op.out), at(op.low), at(op.high), strict=True):
        yield Step((f"mov.b{bits} ", out, ", ", *braced([low, high])), (out,))


@template(ptx.Copy)
def _copy(op: ptx.Copy, at: Registers) -> Iterator[Step]:
    for out, x in zip(at.owned(op.out), at(op.x), strict=True):
        yield Step((f"mov.{op.out.type.kind} ", out, ", ", x), (out,))


@template(ptx.SetMaxRegisters)
def _set_max_registers(op: ptx.SetMaxRegisters, at: Registers) -> Iterator[Step]:
    yield Step((f"setmaxnreg.{op.direction}.sync.aligned.u32 {op.count}",))


# --- memory ------------------------------------------------------------------------------------

_MODIFIERS = {
    "no_allocate": "L1::no_allocate",
    "evict_first": "L1::evict_first",
    "evict_last": "L1::evict_last",
}


def _mnemonic(base: str, op: ptx.Load | ptx.Store) -> str:
    parts = [base, op.space, *(m for m in op.modifiers.split(".") if m)]
    return ".".join(_MODIFIERS.get(part, part) for part in parts)


def _accesses(count: int, width: str) -> Iterator[tuple[int, int, int]]:
    """First register, registers and first byte of each access: as wide as 16 bytes allow."""
    size = int("".join(c for c in width if c.isdigit())) // 8
    first = 0
    while first < count:
        vector = next(v for v in (4, 2, 1) if v <= count - first and v * size <= 16)
        yield first, vector, first * size
        first += vector


def _vector(registers: Sequence[Piece]) -> tuple[str, list[Piece]]:
    if len(registers) == 1:
        return "", list(registers)
    return f".v{len(registers)}", braced(registers)


@template(ptx.Load)
def _load(op: ptx.Load, at: Registers) -> Iterator[Step]:
    outs, kind = at.owned(op.out), op.out.type.kind
    if op.guard is not None:
        for out in outs:
            yield Step((f"mov.{kind} ", out, f", {literal(kind, op.otherwise)}"), (out,))
    for first, count, start in _accesses(len(outs), str(op.width)):
        part = outs[first : first + count]
        vector, text = _vector(part)
        head = f"{_mnemonic('ld', op)}{vector}.{op.width} "
        place = _place(op.address, op.offset + start, at)
        kept = tuple(part) if op.guard is not None else ()
        yield Step(_guarded(op.guard, at, head, *text, ", ", *place), tuple(part), kept)


@template(ptx.Store)
def _store(op: ptx.Store, at: Registers) -> Iterator[Step]:
    values = at(op.value)
    for first, count, start in _accesses(len(values), str(op.width)):
        vector, text = _vector(values[first : first + count])
        head = f"{_mnemonic('st', op)}{vector}.{op.width} "
        place = _place(op.address, op.offset + start, at)
        yield Step(_guarded(op.guard, at, head, *place, ", ", *text))


@template(ptx.Red)
def _red(op: ptx.Red, at: Registers) -> Iterator[Step]:
    vector, text = _vector(at(op.value))
    head = f"red.global.{op.operation}{vector}.{op.width} "
    yield Step(_guarded(op.guard, at, head, *_place(op.address, op.offset, at), ", ", *text))


@template(ptx.Atom)
def _atom(op: ptx.Atom, at: Registers) -> Iterator[Step]:
    (out,), kind = at.owned(op.out), op.out.type.kind
    yield Step((f"mov.{kind} ", out, f", {literal(kind, op.otherwise)}"), (out,))
    values = [*([op.compare] if op.compare is not None else []), op.value]
    text = listed([at(value)[0] for value in values])
    place = _place(op.address, 0, at)
    head = f"atom.global.{op.operation}.{op.width} "
    yield Step(_guarded(op.guard, at, head, out, ", ", *place, ", ", *text), (out,), (out,))


@template(ptx.LoadMatrix)
def _load_matrix(op: ptx.LoadMatrix, at: Registers) -> Iterator[Step]:
    outs = at.owned(op.out)
    head = f"ldmatrix.sync.aligned.m8n8.x{len(outs)}{'.trans' * op.transpose}.shared.b16 "
    yield Step((head, *braced(outs), ", ", *_place(op.address, op.offset, at)), tuple(outs))


@template(ptx.StoreMatrix)
def _store_matrix(op: ptx.StoreMatrix, at: Registers) -> Iterator[Step]:
    values = at(op.value)
    head = f"stmatrix.sync.aligned.m8n8.x{len(values)}{'.trans' * op.transpose}.shared.b16 "
    yield Step((head, *_place(op.address, op.offset, at), ", ", *braced(values)))


# --- barriers and fences -----------------------------------------------------------------------

_FENCES = {
    "async": "fence.proxy.async",
    "async_shared": "fence.proxy.async.shared::cta",
    "mbarrier_init": "fence.mbarrier_init.release.cluster",
    "wgmma": "wgmma.fence.sync.aligned",
    "wgmma_commit": "wgmma.commit_group.sync.aligned",
    "bulk_commit": "cp.async.bulk.commit_group",
    "copies_landed": "cp.async.wait_all",
}


@template(ptx.Fence)
def _fence(op: ptx.Fence, at: Registers) -> Iterator[Step]:
    yield Step(_guarded(op.guard, at, _FENCES[op.kind]))


@template(ptx.BarrierSync)
def _barrier_sync(op: ptx.BarrierSync, at: Registers) -> Iterator[Step]:
    yield Step(("bar.sync ", at(op.id)[0], f", {op.threads}"))


@template(ptx.Mapa)
def _mapa(op: ptx.Mapa, at: Registers) -> Iterator[Step]:
    (out,) = at.owned(op.out)
    head = ("mapa.shared::cluster.u32 ", out, ", ", at(op.address)[0], ", ", at(op.rank)[0])
    yield Step(head, (out,))


@template(ptx.ClusterSync)
def _cluster_sync(op: ptx.ClusterSync, at: Registers) -> Iterator[Step]:
    yield Step(("barrier.cluster.arrive.aligned",))
    yield Step(("barrier.cluster.wait.aligned",))


@template(ptx.BarrierArrive)
def _barrier_arrive(op: ptx.BarrierArrive, at: Registers) -> Iterator[Step]:
    yield Step(("bar.arrive ", at(op.id)[0], f", {op.threads}"))


@template(ptx.MbarrierInit)
def _mbarrier_init(op: ptx.MbarrierInit, at: Registers) -> Iterator[Step]:
    place = _place(op.address, op.offset, at)
    yield Step(("mbarrier.init.shared::cta.b64 ", *place, f", {op.arrivals}"))


@template(ptx.MbarrierArrive)
def _mbarrier_arrive(op: ptx.MbarrierArrive, at: Registers) -> Iterator[Step]:
    place = _place(op.address, op.offset, at)
    kind, count = (".expect_tx", f", {op.bytes}") if op.bytes else ("", "")
    head = f"mbarrier.arrive{kind}.shared::{'cluster' if op.cluster else 'cta'}.b64 _, "
    yield Step(_guarded(op.guard, at, head, *place, count))


@template(ptx.MbarrierWait)
def _mbarrier_wait(op: ptx.MbarrierWait, at: Registers) -> Iterator[Step]:
    # The first try stands before the spin, so that a phase already complete takes no taken branch
    # backwards; this is the form of the measured kernels.
    number, place = at.label("wait"), _place(op.address, op.offset, at)
    head = f"mbarrier.{op.how}.parity.shared::cta.b64 {DONE}, "
    attempt = Step((head, *place, ", ", at(op.parity)[0]))
    yield attempt
    yield Step((f"@{DONE} bra $ready_{number}",))
    yield Step((f"$spin_{number}:",))
    yield attempt
    yield Step((f"@!{DONE} bra $spin_{number}",))
    yield Step((f"$ready_{number}:",))


@template(ptx.AsyncCopy)
def _async_copy(op: ptx.AsyncCopy, at: Registers) -> Iterator[Step]:
    path = "cg" if op.bytes == 16 else "ca"
    to, source = _place(op.address, op.offset, at), _place(op.source, op.source_offset, at)
    size = [", ", at(op.size)[0]] if op.size is not None else []
    head = f"cp.async.{path}.shared.global "
    yield Step((head, *to, ", ", *source, f", {op.bytes}", *size))


@template(ptx.AsyncArrive)
def _async_arrive(op: ptx.AsyncArrive, at: Registers) -> Iterator[Step]:
    place = _place(op.address, op.offset, at)
    yield Step(("cp.async.mbarrier.arrive.noinc.shared.b64 ", *place))


# --- TMA ---------------------------------------------------------------------------------------


def _tile_of(op: ptx.TmaLoad | ptx.TmaMulticast | ptx.TmaStore, at: Registers) -> list[Piece]:
    coordinates = [at(value)[0] for value in op.coordinates]
    return ["[", at(op.map)[0], ", ", *braced(coordinates), "]"]


def _tensor_load(
    op: ptx.TmaLoad | ptx.TmaMulticast, at: Registers, more: str, *last: Piece
) -> Step:
    head = (
        f"cp.async.bulk.tensor.{len(op.coordinates)}d"
        f".shared::cluster.global.tile.mbarrier::complete_tx::bytes{more} "
    )
    to, barrier = _place(op.address, op.offset, at), _place(op.barrier, 0, at)
    return Step(_guarded(op.guard, at, head, *to, ", ", *_tile_of(op, at), ", ", *barrier, *last))


@template(ptx.TmaLoad)
def _tma_load(op: ptx.TmaLoad, at: Registers) -> Iterator[Step]:
    yield _tensor_load(op, at, "")


@template(ptx.TmaMulticast)
def _tma_multicast(op: ptx.TmaMulticast, at: Registers) -> Iterator[Step]:
    yield _tensor_load(op, at, ".multicast::cluster", ", ", at(op.mask)[0])


@template(ptx.TmaStore)
def _tma_store(op: ptx.TmaStore, at: Registers) -> Iterator[Step]:
    rank = len(op.coordinates)
    how = ("cp.reduce", f".{op.update}") if op.update else ("cp", "")
    head = f"{how[0]}.async.bulk.tensor.{rank}d.global.shared::cta{how[1]}.tile.bulk_group "
    source = _place(op.address, op.offset, at)
    yield Step(_guarded(op.guard, at, head, *_tile_of(op, at), ", ", *source))


@template(ptx.BulkWait)
def _bulk_wait(op: ptx.BulkWait, at: Registers) -> Iterator[Step]:
    head = f"cp.async.bulk.wait_group{'.read' * op.read} {op.pending}"
    yield Step(_guarded(op.guard, at, head))


# --- tensor cores ------------------------------------------------------------------------------


@template(ptx.Wgmma)
def _wgmma(op: ptx.Wgmma, at: Registers) -> Iterator[Step]:
    # Integer types take no signs, and only 16-bit ones transpositions, that of A only when A is in
    # shared memory (PTX ISA, "wgmma.mma_async").
    outs, a = at.owned(op.out), at(op.a)
    in_registers = op.a.type.kind != "b64"
    flags = [] if str(op.accumulate) == "s32" else [1, 1]
    if str(op.a_type) in ("bf16", "f16"):
        flags += [op.transpose_b] if in_registers else [op.transpose_a, op.transpose_b]
    tail = ", ".join(str(int(flag)) for flag in (op.acc is not None, *flags))
    shape = f"m64n{op.n}k{op.k}.{op.accumulate}.{op.a_type}.{op.b_type}"
    sources = [*(braced(a) if in_registers else a), ", ", at(op.b)[0]]
    text = [f"wgmma.mma_async.sync.aligned.{shape} ", *braced(outs), ", ", *sources, f", {tail}"]
    held = tuple(at.owned(op.acc)) if op.acc is not None else ()
    yield Step(tuple(text), tuple(outs), held, tuple(at.owned(op.a)) if in_registers else ())


@template(ptx.Mma)
def _mma(op: ptx.Mma, at: Registers) -> Iterator[Step]:
    outs, a, b, acc = at.owned(op.out), at(op.a), at(op.b), at(op.acc)
    types = f"{op.accumulate}.{op.a_type}.{op.b_type}.{op.accumulate}"
    head = f"mma.sync.aligned.m{op.rows}n8k{op.k}.row.col.{types} "
    _, of_b, of_c = op.fragments()
    for n in range(len(b) // of_b):
        out = outs[of_c * n : of_c * (n + 1)]
        added = acc if len(acc) == of_c else acc[of_c * n : of_c * (n + 1)]
        parts = (braced(out), braced(a), braced(b[of_b * n : of_b * (n + 1)]), braced(added))
        text = chain.from_iterable((*part, ", ") for part in parts)
        yield Step((head, *list(text)[:-1]), tuple(out))


@template(ptx.WgmmaWait)
def _wgmma_wait(op: ptx.WgmmaWait, at: Registers) -> Iterator[Step]:
    flights = [at.owned(value) for value in op.flights]
    settled = [at.owned(value) for value in op.settled]
    text = (f"wgmma.wait_group.sync.aligned {op.pending}",)
    yield Step(text, tuple(chain(*settled)), tuple(chain(*flights)))
