"""Level ``ptx``: an op is an instruction over a range of registers, or a fixed template.

A value of type ``bits<f32, 40>`` is 40 virtual registers, one a register of the thread. Two ops
only rename registers and emit nothing: ``ptx.pick`` and ``ptx.join``. ``ptx.copy`` emits moves.
Constants are written where they are used. Values that an instruction updates in place (a loop's
carried values, accumulators) share registers; the backend's ``place-copies`` pass makes the
copies that this needs visible before emission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.core import Op, Region, Value
from tilec.ir.declare import (
    Effects,
    attribute,
    operand,
    operands,
    region,
    result,
    result_type,
    result_types,
    results,
)
from tilec.ir.types import DTYPES, Bits, Type

KINDS = ("pred", "b16", "b32", "b64", "f32", "f64")


def _types(values: Sequence[Value[Any]]) -> list[Type]:
    return [v.type for v in values]


# --- registers ---------------------------------------------------------------------------------


class Constant(Op, name="ptx.constant"):
    """A literal, inlined at its uses; ``type`` is ``bits<kind, 1>``."""

    value: int | float | bool = attribute()
    type: Type = result_type()
    out: Value[Bits] = result()


class Special(Op, name="ptx.special"):
    """Read a special register, such as ``tid.x`` (mov.u32)."""

    register: str = attribute()
    out: Value[Bits] = result()

    def infer(self) -> Sequence[Type]:
        """One 32-bit register."""
        return [Bits("b32", 1)]


class Parameter(Op, name="ptx.parameter"):
    """Read a kernel parameter: its value, or for a tensor map its generic address.

    ``index`` counts the kernel's ``parameters`` attribute.
    """

    index: int = attribute()
    type: Type = result_type()
    out: Value[Bits] = result()


class SharedBase(Op, name="ptx.shared_base"):
    """The shared-memory address of the kernel's dynamic window."""

    out: Value[Bits] = result()

    def infer(self) -> Sequence[Type]:
        """One 32-bit register."""
        return [Bits("b32", 1)]


class Elect(Op, name="ptx.elect"):
    """``elect.sync _|p, 0xffffffff``: true in one lane of a converged warp."""

    out: Value[Bits] = result()

    def infer(self) -> Sequence[Type]:
        """One predicate."""
        return [Bits("pred", 1)]


class Alu(Op, name="ptx.alu"):
    """``opcode d, a, b, ...`` for each register of the result.

    An operand with one register serves all; otherwise it has as many as the result, or with
    ``per`` = n, n consecutive ones for each result register (``cvt.rn.bf16x2.f32`` takes 2,
    highest first in PTX order is the opcode's business: they are written last to first).
    ``vote``, ``shfl`` and ``elect`` forms that fit this shape are written with it too.
    """

    inputs: tuple[Value[Bits], ...] = operands()
    opcode: str = attribute()
    type: Type = result_type()
    per: int = attribute(default=1)
    out: Value[Bits] = result()

    def check(self) -> Iterator[str]:
        """Counts fit."""
        count = self.type.count if isinstance(self.type, Bits) else 0
        for value in self.inputs:
            if value.type.count not in (1, count * self.per):
                yield f"an operand has {value.type.count} registers for {count} results"


class Unpack(Op, name="ptx.unpack"):
    """``mov.b32 {lo, hi}, x`` for each register: two results of half the width, interleaved.

    Also ``mov.b64 {lo, hi}``. The result has twice as many registers.
    """

    x: Value[Bits] = operand()
    type: Type = result_type()
    out: Value[Bits] = result()


class Combine(Op, name="ptx.combine"):
    """``mov.b64 d, {lo, hi}``: one register of twice the width from two."""

    low: Value[Bits] = operand()
    high: Value[Bits] = operand()
    type: Type = result_type()
    out: Value[Bits] = result()

    def check(self) -> Iterator[str]:
        """As many registers as each half has."""
        counts = [v.type.count for v in (self.low, self.high, self.out)]
        if len(set(counts)) != 1:
            yield f"halves of {counts[0]} and {counts[1]} registers for {counts[2]} results"


class Pick(Op, name="ptx.pick"):
    """Name some registers of a value again, in the given order; emits nothing.

    ``type`` may differ from the source's kind only between kinds of one width (b32 and f32).
    """

    x: Value[Bits] = operand()
    picks: tuple[int, ...] = attribute()
    out: Value[Bits] = result()

    def infer(self) -> Sequence[Type]:
        """As many registers as picks."""
        return [Bits(self.x.type.kind, len(self.picks))]

    def check(self) -> Iterator[str]:
        """Every pick exists."""
        if any(not 0 <= p < self.x.type.count for p in self.picks):
            yield f"a pick lies outside the {self.x.type.count} registers"


class Join(Op, name="ptx.join"):
    """Name the registers of several values together; emits nothing."""

    parts: tuple[Value[Bits], ...] = operands()
    out: Value[Bits] = result()

    def infer(self) -> Sequence[Type]:
        """All registers in order."""
        return [Bits(self.parts[0].type.kind, sum(p.type.count for p in self.parts))]


class Copy(Op, name="ptx.copy"):
    """Move to fresh registers (mov), register by register."""

    x: Value[Bits] = operand()
    out: Value[Bits] = result()

    def infer(self) -> Sequence[Type]:
        """The same type."""
        return [self.x.type]


class Weave(Op, name="ptx.weave"):
    """Emit the straight-line ops of the region element by element.

    The instruction for register r of an op has rank r * R / count when it reads nothing made in
    the region (R is the largest count), else the largest rank of what it reads. Instructions are
    written by rank, then by op, then by register. Values made inside are visible after it.
    """

    types: tuple[Type, ...] = result_types()
    body: Region = region()
    out: tuple[Value[Any], ...] = results()


# --- control -----------------------------------------------------------------------------------


class Yield(Op, name="ptx.yield", terminator=True):
    """End a region and hand its values to the op that owns it."""

    values: tuple[Value[Bits], ...] = operands()


class Loop(Op, name="ptx.loop", effects=Effects.ORDERS):
    """Run the body at least once, and again while the first yielded value (a predicate) holds.

    The body's arguments are the carried values; its yield is the predicate and their next values.
    """

    init: tuple[Value[Bits], ...] = operands()
    body: Region = region()
    finals: tuple[Value[Bits], ...] = results()

    def infer(self) -> Sequence[Type]:
        """One result a carried value."""
        return _types(self.init)

    def check(self) -> Iterator[str]:
        """Arguments and yields agree with the initial values."""
        types = _types(self.init)
        last = self.body.terminator
        given = _types(last.operands) if last is not None else []
        if _types(self.body.args) != types or given != [Bits("pred", 1), *types]:
            yield "the body must take the carried values and yield a predicate and their next ones"


class If(Op, name="ptx.if", effects=Effects.ORDERS):
    """Branch on a predicate; both regions yield the results. ``cold`` places the first away.

    ``uniform`` states that all threads of the warp agree.
    """

    condition: Value[Bits] = operand()
    types: tuple[Type, ...] = result_types()
    then: Region = region()
    otherwise: Region = region()
    cold: bool = attribute(default=False)
    uniform: bool = attribute(default=False)
    out: tuple[Value[Bits], ...] = results()

    def check(self) -> Iterator[str]:
        """Both regions yield the results' types."""
        for body in (self.then, self.otherwise):
            last = body.terminator
            if (_types(last.operands) if last is not None else []) != list(self.types):
                yield "both regions must yield one value of the same type for each result"


class SetMaxRegisters(Op, name="ptx.setmaxnreg", effects=Effects.ORDERS):
    """``setmaxnreg.{inc,dec}.sync.aligned.u32 count``."""

    direction: str = attribute()
    count: int = attribute()


# --- memory ------------------------------------------------------------------------------------


class Load(Op, name="ptx.load", effects=Effects.READS):
    """``ld.{space}{modifiers}.v{vector}.{kind}`` from an address register plus ``offset`` bytes.

    ``width`` is the PTX type loaded (b16, b32, b64, u8 ...). With a guard that is false the
    registers take ``otherwise`` (a constant of one register), set before the load.
    """

    address: Value[Bits] = operand()
    space: str = attribute()
    width: str = attribute()
    type: Type = result_type()
    guard: Value[Bits] | None = operand(optional=True, default=None)
    offset: int = attribute(default=0)
    modifiers: str = attribute(default="")
    otherwise: int | float = attribute(default=0)
    out: Value[Bits] = result()


class Store(Op, name="ptx.store", effects=Effects.WRITES):
    """``st.{space}{modifiers}.v{n}.{width}`` of all registers of the value."""

    address: Value[Bits] = operand()
    value: Value[Bits] = operand()
    space: str = attribute()
    width: str = attribute()
    guard: Value[Bits] | None = operand(optional=True, default=None)
    offset: int = attribute(default=0)
    modifiers: str = attribute(default="")


class Red(Op, name="ptx.red", effects=Effects.WRITES):
    """``red.global.{operation}.v{n}.{width}`` of all registers of the value: an atomic update."""

    address: Value[Bits] = operand()
    value: Value[Bits] = operand()
    operation: str = attribute()
    width: str = attribute()
    guard: Value[Bits] | None = operand(optional=True, default=None)
    offset: int = attribute(default=0)


class Atom(Op, name="ptx.atom", effects=Effects.READS | Effects.WRITES):
    """``atom.global.{operation}.{width}``: an atomic update, and what was there before.

    With a guard that is false the register takes ``otherwise``, set before. ``compare`` is what
    ``cas`` looks for.
    """

    address: Value[Bits] = operand()
    value: Value[Bits] = operand()
    guard: Value[Bits] = operand()
    operation: str = attribute()
    width: str = attribute()
    otherwise: int | float = attribute(default=0)
    compare: Value[Bits] | None = operand(optional=True, default=None)
    out: Value[Bits] = result()

    def infer(self) -> Sequence[Type]:
        """The value's register."""
        return [self.value.type]


class LoadMatrix(Op, name="ptx.ldmatrix", effects=Effects.READS):
    """``ldmatrix.sync.aligned.m8n8.x{count}{.trans}.shared.b16``."""

    address: Value[Bits] = operand()
    type: Type = result_type()
    offset: int = attribute(default=0)
    transpose: bool = attribute(default=False)
    out: Value[Bits] = result()


class StoreMatrix(Op, name="ptx.stmatrix", effects=Effects.WRITES):
    """``stmatrix.sync.aligned.m8n8.x{count}{.trans}.shared.b16``."""

    address: Value[Bits] = operand()
    value: Value[Bits] = operand()
    offset: int = attribute(default=0)
    transpose: bool = attribute(default=False)


# --- barriers and fences -----------------------------------------------------------------------


class Fence(Op, name="ptx.fence", effects=Effects.ORDERS):
    """A fence with no operands: ``fence.proxy.async.shared::cta`` and its like, by short name.

    Known kinds: ``async``, ``async_shared``, ``mbarrier_init``, ``wgmma``, ``wgmma_commit``,
    ``bulk_commit``, ``copies_landed``.
    """

    kind: str = attribute()
    guard: Value[Bits] | None = operand(optional=True, default=None)


class BarrierSync(Op, name="ptx.bar_sync", effects=Effects.ORDERS):
    """``bar.sync id, threads``."""

    id: Value[Bits] = operand()
    threads: int = attribute()


class Mapa(Op, name="ptx.mapa"):
    """``mapa.shared::cluster.u32``: where a shared address lies in the CTA of a rank."""

    address: Value[Bits] = operand()
    rank: Value[Bits] = operand()
    out: Value[Bits] = result()

    def infer(self) -> Sequence[Type]:
        """One 32-bit register."""
        return [Bits("b32", 1)]


class ClusterSync(Op, name="ptx.cluster_sync", effects=Effects.ORDERS):
    """``barrier.cluster.arrive.aligned`` and ``barrier.cluster.wait.aligned`` by all threads."""


class BarrierArrive(Op, name="ptx.bar_arrive", effects=Effects.ORDERS):
    """``bar.arrive id, threads``."""

    id: Value[Bits] = operand()
    threads: int = attribute()


class MbarrierInit(Op, name="ptx.mbarrier_init", effects=Effects.ORDERS):
    """``mbarrier.init.shared::cta.b64 [address + offset], arrivals``."""

    address: Value[Bits] = operand()
    arrivals: int = attribute()
    offset: int = attribute(default=0)


class MbarrierArrive(Op, name="ptx.mbarrier_arrive", effects=Effects.ORDERS):
    """``mbarrier.arrive``; with ``bytes`` > 0, ``mbarrier.arrive.expect_tx``.

    With ``cluster`` the address is one of the cluster's (``mapa``), maybe of another CTA.
    """

    address: Value[Bits] = operand()
    guard: Value[Bits] | None = operand(optional=True, default=None)
    offset: int = attribute(default=0)
    bytes: int = attribute(default=0)
    cluster: bool = attribute(default=False)


class MbarrierWait(Op, name="ptx.mbarrier_wait", effects=Effects.ORDERS):
    """Spin on ``mbarrier.try_wait.parity`` until the phase with this parity has completed.

    ``how`` is ``try_wait``, which may sleep, or ``test_wait`` (sm_80).
    """

    address: Value[Bits] = operand()
    parity: Value[Bits] = operand()
    offset: int = attribute(default=0)
    how: str = attribute(default="try_wait")


class AsyncCopy(Op, name="ptx.cp_async", effects=Effects.READS | Effects.WRITES):
    """``cp.async.{cg|ca}.shared.global [address], [source], bytes, size``: all but ``size`` zero.

    Without ``size`` all bytes are copied. The L1 cache is passed by where that is possible.
    """

    address: Value[Bits] = operand()
    source: Value[Bits] = operand()
    bytes: int = attribute()
    size: Value[Bits] | None = operand(optional=True, default=None)
    offset: int = attribute(default=0)
    source_offset: int = attribute(default=0)


class AsyncArrive(Op, name="ptx.cp_async_arrive", effects=Effects.ORDERS):
    """``cp.async.mbarrier.arrive.noinc``: arrive once this thread's copies so far have landed."""

    address: Value[Bits] = operand()
    offset: int = attribute(default=0)


# --- TMA ---------------------------------------------------------------------------------------


class TmaLoad(Op, name="ptx.tma_load", effects=Effects.READS | Effects.WRITES):
    """``cp.async.bulk.tensor.Nd.shared::cluster.global...complete_tx::bytes``.

    Coordinates are innermost first; ``offset`` is added to the shared address.
    """

    map: Value[Bits] = operand()
    address: Value[Bits] = operand()
    barrier: Value[Bits] = operand()
    guard: Value[Bits] = operand()
    coordinates: tuple[Value[Bits], ...] = operands()
    offset: int = attribute(default=0)


class TmaMulticast(Op, name="ptx.tma_multicast", effects=Effects.READS | Effects.WRITES):
    """The load of ``ptx.tma_load`` with ``.multicast::cluster``.

    Bytes and signal go to the same places in the shared memory of each CTA of ``mask`` (b16).
    """

    map: Value[Bits] = operand()
    address: Value[Bits] = operand()
    barrier: Value[Bits] = operand()
    mask: Value[Bits] = operand()
    guard: Value[Bits] = operand()
    coordinates: tuple[Value[Bits], ...] = operands()
    offset: int = attribute(default=0)


class TmaStore(Op, name="ptx.tma_store", effects=Effects.READS | Effects.WRITES):
    """``cp.async.bulk.tensor.Nd.global.shared::cta.tile.bulk_group``.

    With ``update`` ``cp.reduce.async.bulk.tensor.Nd.global.shared::cta.add.tile.bulk_group``.
    """

    map: Value[Bits] = operand()
    address: Value[Bits] = operand()
    guard: Value[Bits] = operand()
    coordinates: tuple[Value[Bits], ...] = operands()
    offset: int = attribute(default=0)
    update: str = attribute(default="")


class BulkWait(Op, name="ptx.bulk_wait", effects=Effects.ORDERS):
    """``cp.async.bulk.wait_group{.read} pending`` by the guarded thread."""

    pending: int = attribute()
    guard: Value[Bits] | None = operand(optional=True, default=None)
    read: bool = attribute(default=True)


# --- tensor cores ------------------------------------------------------------------------------


class Wgmma(Op, name="ptx.wgmma", effects=Effects.READS):
    """``wgmma.mma_async.sync.aligned.m64nNkK``; the result is the accumulator in place.

    ``a`` is a descriptor (one b64) or A's registers, ``b`` a descriptor. Without ``acc`` scale-d
    is 0. ``a`` and ``b`` element types and K decide the instruction.
    """

    a: Value[Bits] = operand()
    b: Value[Bits] = operand()
    n: int = attribute()
    k: int = attribute()
    accumulate: str = attribute()
    a_type: str = attribute()
    b_type: str = attribute()
    type: Type = result_type()
    acc: Value[Bits] | None = operand(optional=True, default=None)
    transpose_a: bool = attribute(default=False)
    transpose_b: bool = attribute(default=False)
    out: Value[Bits] = result()


class Mma(Op, name="ptx.mma"):
    """``mma.sync.aligned.mMn8kK.row.col`` for each 8 columns, M being ``rows``.

    ``a`` is one fragment of A. ``b`` has the fragments of all columns, ``acc`` their accumulators
    each, or one fragment that serves all. How many registers a fragment is follows from the shape.
    """

    a: Value[Bits] = operand()
    b: Value[Bits] = operand()
    acc: Value[Bits] = operand()
    k: int = attribute()
    accumulate: str = attribute()
    a_type: str = attribute()
    b_type: str = attribute()
    type: Type = result_type()
    rows: int = attribute(default=16)
    out: Value[Bits] = result()

    def fragments(self) -> tuple[int, int, int]:
        """Registers of one fragment of A, of B, and of C and D."""
        bits = DTYPES[str(self.a_type)].bits
        a, b = (size * self.k * bits // (32 * max(32, bits)) for size in (self.rows, 8))
        return a, b, self.rows * 8 // 32

    def check(self) -> Iterator[str]:
        """Counts fit."""
        a, b, c = self.fragments()
        blocks = self.b.type.count // b
        if self.a.type.count != a or self.b.type.count != b * blocks or not blocks:
            yield f"a fragment of A is {a} registers, one of B {b}"
        if self.out.type.count != c * blocks or self.acc.type.count not in (c, c * blocks):
            yield f"{blocks} fragments of B give {c * blocks} registers"


class WgmmaWait(Op, name="ptx.wgmma_wait", effects=Effects.ORDERS):
    """``wgmma.wait_group.sync.aligned pending``; results are ``flights`` in place.

    ``keeps`` (the last ``kept`` operands) are A registers that stay unwritten until here.
    """

    flights: tuple[Value[Bits], ...] = operands()
    pending: int = attribute()
    kept: int = attribute(default=0)
    settled: tuple[Value[Bits], ...] = results()

    def infer(self) -> Sequence[Type]:
        """A result for each operand that is not merely kept."""
        values = list(self.flights)
        return _types(values[: len(values) - self.kept])
