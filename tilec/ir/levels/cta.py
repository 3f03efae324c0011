"""Level ``cta``: where values live, who computes them, and when.

A kernel is scalar facts about the launch, shared-memory objects, and roles that run at the same
time. Inside a role, register values belong to one group of warps; shared stages are reached only
through slots that a wait has granted; a product's accumulator is a ``flight`` until waited for.
Nothing here names an instruction except as a choice that the passes made and the dump shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilec.ir.accesses import GETS, PUTS, access_faults, origin_faults, tile_faults
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
from tilec.ir.types import (
    BOOL,
    S32,
    Array,
    Flight,
    Free,
    Register,
    Ring,
    Scalar,
    Shared,
    Slot,
    TensorMap,
    Type,
)
from tilec.layout.linear import Layout


@dataclass(frozen=True)
class Token(Type, name="token"):
    """The right to issue, passed among the groups of a role."""

    groups: int


# --- launch facts ------------------------------------------------------------------------------


class ExtentOf(Op, name="cta.extent"):
    """The run-time extent of one axis of an array; known to the launcher."""

    array: Value[Array] = operand()
    axis: int = attribute()
    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """An s32."""
        return [Scalar(S32)]

    def check(self) -> Iterator[str]:
        """The axis exists."""
        if not 0 <= self.axis < len(self.array.type.shape):
            yield f"{self.array.type} has no axis {self.axis}"


class Grid(Op, name="cta.grid", effects=Effects.ORDERS):
    """The number of CTAs to launch; computed by the launcher from extents and constants."""

    count: Value[Scalar] = operand()


class TensorMapOf(Op, name="cta.tensor_map"):
    """A TMA descriptor of an array, encoded by the launcher.

    ``axes`` lists the array's axes innermost (unit stride) first, as the box does, without those
    along which it repeats (strides of 0).
    """

    array: Value[Array] = operand()
    axes: tuple[int, ...] = attribute()
    type: Type = result_type()
    out: Value[TensorMap] = result()

    def check(self) -> Iterator[str]:
        """As many box extents as axes, axes of the array once each, and the array's elements."""
        array = self.array.type
        if not isinstance(self.type, TensorMap) or len(self.type.box) != len(self.axes):
            yield "the box needs one extent for each axis"
        elif self.type.dtype != array.dtype:
            yield f"the map copies {self.type.dtype}, the array holds {array.dtype}"
        if len(set(self.axes)) != len(self.axes) or not {*self.axes} <= {*range(len(array.shape))}:
            yield f"axes {self.axes} do not name axes of {array}, each once"


class CtaIndex(Op, name="cta.index"):
    """This CTA's number in the grid."""

    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """An s32."""
        return [Scalar(S32)]


class CtaCount(Op, name="cta.count"):
    """The number of CTAs in the grid."""

    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """An s32."""
        return [Scalar(S32)]


# --- shared memory -----------------------------------------------------------------------------


class MakeRing(Op, name="cta.ring", effects=Effects.MAKES):
    """A ring of stages with a full and an empty mbarrier each.

    Full completes when one producer has armed it and the bytes of all parts have landed; empty
    when every warp of every releasing role has released. ``offset`` (bytes) and ``barriers``
    (byte offset of the first mbarrier) are set by the placement; ``shared_along``: ``cluster``.
    """

    type: Type = result_type()
    offset: int = attribute(default=-1)
    barriers: int = attribute(default=-1)
    shared_along: tuple[tuple[int, ...], ...] = attribute(default=())
    out: Value[Ring] = result()


class Buffer(Op, name="cta.buffer", effects=Effects.MAKES):
    """A tile in shared memory that its users order themselves; ``offset`` as for rings."""

    type: Type = result_type()
    offset: int = attribute(default=-1)
    out: Value[Shared] = result()


class Turns(Op, name="cta.turns", effects=Effects.MAKES):
    """A token that the groups of one role pass round in order; group 0 has it first.

    Uses named barriers ``barrier`` to ``barrier + groups - 1``.
    """

    groups: int = attribute()
    barrier: int = attribute()
    out: Value[Token] = result()

    def infer(self) -> Sequence[Type]:
        """A token."""
        return [Token(self.groups)]


class Part(Op, name="cta.part"):
    """One tile of a stage."""

    slot: Value[Any] = operand()
    index: int = attribute(default=0)
    out: Value[Shared] = result()

    def infer(self) -> Sequence[Type]:
        """The type that the ring declares for the part."""
        type = self.slot.type
        if not isinstance(type, Slot | Free) or not 0 <= self.index < len(type.parts):
            raise TypeError(f"{type} has no part {self.index}")
        return [type.parts[self.index]]


class Window(Op, name="cta.window"):
    """Rows ``block * rows`` to ``(block + 1) * rows`` of a shared tile, as a view.

    The layout stays the whole tile's; the shape is the window's.
    """

    x: Value[Shared] = operand()
    block: Value[Scalar] = operand()
    rows: int = attribute()
    out: Value[Shared] = result()

    def infer(self) -> Sequence[Type]:
        """The same tile with fewer rows."""
        return [replace(self.x.type, shape=(self.rows, *self.x.type.shape[1:]))]


class TransposeView(Op, name="cta.transpose"):
    """The same shared tile with its two axes exchanged: no data moves."""

    x: Value[Shared] = operand()
    out: Value[Shared] = result()

    def infer(self) -> Sequence[Type]:
        """Shape and layout transposed."""
        type = self.x.type
        return [replace(type, shape=type.shape[::-1], layout=type.layout.transpose())]


# --- roles -------------------------------------------------------------------------------------


class Role(Op, name="cta.role", effects=Effects.ORDERS):
    """What warps ``first`` to ``first + warps - 1`` of the CTA do, at the same time as others.

    The warps form groups of ``group`` warps, each running the body alone; the body's argument is
    the group's number. ``registers`` is the count after setmaxnreg (0: leave it); all roles of
    one warpgroup agree in it.
    """

    label: str = attribute()
    first: int = attribute()
    warps: int = attribute()
    group: int = attribute()
    body: Region = region()
    registers: int = attribute(default=0)

    def check(self) -> Iterator[str]:
        """Groups divide the warps."""
        if self.group < 1 or self.warps % self.group:
            yield f"{self.warps} warps cannot form groups of {self.group}"
        if self.group % 4 == 0 and self.first % 4:
            yield "a warpgroup starts at a warp divisible by 4"
        if [a.type for a in self.body.args] != [Scalar(S32)]:
            yield "the body's argument must be the group's number (s32)"


# --- rings: the producer's and the consumer's side ---------------------------------------------


class Acquire(Op, name="cta.acquire", effects=Effects.ORDERS):
    """Wait until the next stage is empty and arm its full barrier with the bytes of all parts."""

    ring: Value[Ring] = operand()
    out: Value[Free] = result()

    def infer(self) -> Sequence[Type]:
        """A stage to fill."""
        return [Free(self.ring.type.parts)]


class Load(Op, name="cta.load", effects=Effects.READS | Effects.WRITES):
    """Start the TMA load of one part of a stage; coordinates are the tile's origin by array axis.

    Elements outside the array become zero. One elected thread issues it.
    """

    ring: Value[Ring] = operand()
    stage: Value[Free] = operand()
    source: Value[TensorMap] = operand()
    origin: tuple[Value[Scalar], ...] = operands()
    axes: tuple[int, ...] = attribute()
    """The array axes that the part's tile axes run along."""
    part: int = attribute(default=0)


class Wait(Op, name="cta.wait", effects=Effects.ORDERS):
    """Wait until the next stage, in the role's order, is full."""

    ring: Value[Ring] = operand()
    out: Value[Slot] = result()

    def infer(self) -> Sequence[Type]:
        """A stage to read."""
        return [Slot(self.ring.type.parts)]


class Release(Op, name="cta.release", effects=Effects.ORDERS):
    """Give a slot back: every product and read of it has finished in this warp."""

    ring: Value[Ring] = operand()
    slot: Value[Slot] = operand()


# --- products ----------------------------------------------------------------------------------


class Product(Op, name="cta.product", effects=Effects.READS):
    """Start out = a @ b^T + acc on the tensor cores (wgmma); the group is one warpgroup.

    ``a`` is (64, K), in shared memory or in registers; ``b`` is (N, K) in shared memory. Without
    ``acc`` the product starts from zero. The result is in flight until ``cta.settle``.
    """

    a: Value[Any] = operand()
    b: Value[Shared] = operand()
    type: Type = result_type()
    acc: Value[Any] | None = operand(optional=True, default=None)
    out: Value[Flight] = result()

    def check(self) -> Iterator[str]:
        """(64, k) and (n, k) give (64, n); the accumulator has the result's shape and layout."""
        a, b, out = self.a.type, self.b.type, self.type
        if not isinstance(out, Flight):
            yield "the result of a product is a flight"
            return
        if not isinstance(a, Shared | Register) or not isinstance(b, Shared):
            yield "operand a is shared or reg, operand b is shared"
            return
        if a.shape[1:] != b.shape[1:] or out.shape != (a.shape[0], b.shape[0]):
            yield f"shapes do not fit: {a.shape} by {b.shape} transposed gives {out.shape}"
        if self.acc is not None:
            acc = self.acc.type
            if not isinstance(acc, Register | Flight) or (
                (acc.dtype, acc.shape, acc.layout) != (out.dtype, out.shape, out.layout)
            ):
                yield f"the accumulator has type {acc}, the result {out}"


class Commit(Op, name="cta.commit", effects=Effects.ORDERS):
    """Close the group of products issued since the last commit."""


class Settle(Op, name="cta.settle", effects=Effects.ORDERS):
    """Wait until at most ``pending`` of the newest groups are unfinished; hand out accumulators.

    Every flight listed belongs to a group that this wait covers.
    """

    flights: tuple[Value[Flight], ...] = operands()
    pending: int = attribute()
    settled: tuple[Value[Register], ...] = results()

    def infer(self) -> Sequence[Type]:
        """A register value for each flight."""
        return [
            Register(v.type.dtype, v.type.shape, v.type.layout)
            for v in self.flights
            if isinstance(v.type, Flight)
        ]


class WaitTurn(Op, name="cta.wait_turn", effects=Effects.ORDERS):
    """Block until this group holds the token."""

    turns: Value[Token] = operand()
    group: Value[Scalar] = operand()


class PassTurn(Op, name="cta.pass_turn", effects=Effects.ORDERS):
    """Hand the token to the next group."""

    turns: Value[Token] = operand()
    group: Value[Scalar] = operand()


# --- registers ---------------------------------------------------------------------------------


class Coordinates(Op, name="cta.coordinates"):
    """Each element's own coordinate along ``axis``, as s32."""

    axis: int = attribute()
    type: Type = result_type()
    out: Value[Register] = result()


class ReduceThread(Op, name="cta.reduce_thread"):
    """Combine along ``axis`` the elements that one thread holds, in ``chains`` independent chains.

    The axis keeps one element for each thread that shares a row: its extent becomes the number
    of lanes and warps that it is spread over (``Layout.keep_lanes``).
    """

    x: Value[Register] = operand()
    axis: int = attribute()
    kind: str = attribute()
    chains: int = attribute(default=4)
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The layout without the axis's register digits."""
        type = self.x.type
        layout = type.layout.keep_lanes(self.axis)
        return [Register(type.dtype, layout.shape, layout)]


class ReduceLanes(Op, name="cta.reduce_lanes"):
    """Combine along ``axis`` across the lanes of a warp, by shuffles; the axis disappears.

    Every lane of a row gets the result. The axis is held by lanes only.
    """

    x: Value[Register] = operand()
    axis: int = attribute()
    kind: str = attribute()
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The slice layout: the axis's lane digits become copies."""
        type = self.x.type
        shape = tuple(s for a, s in enumerate(type.shape) if a != self.axis)
        return [Register(type.dtype, shape, type.layout.drop(self.axis))]


class Exchange(Op, name="cta.exchange", effects=Effects.READS | Effects.WRITES | Effects.ORDERS):
    """Combine over the warps of the group, element by element, through a shared buffer.

    Each warp holds a partial value of the same type and all get the combined one. ``barrier``
    is the named barrier (plus the group's number) that orders the buffer's use.
    """

    x: Value[Register] = operand()
    buffer: Value[Shared] = operand()
    kind: str = attribute()
    barrier: int = attribute()
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The same type."""
        return [self.x.type]


class AnyLane(Op, name="cta.any"):
    """True for a whole warp if any element of a bool value is true in it (a vote)."""

    x: Value[Any] = operand()
    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """A bool that is uniform over the warp."""
        return [Scalar(BOOL)]


class Convert(Op, name="cta.convert"):
    """The same elements in another register layout; the price is in the dump's remarks."""

    x: Value[Register] = operand()
    layout: Layout = attribute()
    out: Value[Register] = result()

    def infer(self) -> Sequence[Type]:
        """The new layout."""
        return [replace(self.x.type, layout=self.layout)]


class Slice(Op, name="cta.slice"):
    """Elements ``start`` to ``start + extent`` along ``axis``: no data moves.

    Each thread must hold the elements that it then names, in registers of its own.
    """

    x: Value[Register] = operand()
    axis: int = attribute()
    start: int = attribute()
    type: Type = result_type()
    out: Value[Register] = result()


class Weave(Op, name="cta.weave"):
    """Run the elementwise ops of the region element by element: fewer values live between them."""

    types: tuple[Type, ...] = result_types()
    body: Region = region()
    out: tuple[Value[Any], ...] = results()

    def check(self) -> Iterator[str]:
        """The body yields the results' types."""
        last = self.body.terminator
        if last is None or tuple(v.type for v in last.operands) != self.types:
            yield "the body must yield one value of the same type for each result"


# --- moving tiles ------------------------------------------------------------------------------


class Put(Op, name="cta.put", effects=Effects.WRITES):
    """Write registers to a shared tile; ``instruction`` is ``stmatrix`` or ``store``."""

    target: Value[Shared] = operand()
    value: Value[Register] = operand()
    instruction: str = attribute()

    def check(self) -> Iterator[str]:
        """The instruction is known, and the tile takes the value."""
        if self.instruction not in PUTS:
            yield f"instruction {self.instruction} is none of {', '.join(PUTS)}"
        yield from tile_faults(self.target.type, self.value.type)


class Get(Op, name="cta.get", effects=Effects.READS):
    """Read a shared tile into registers; ``instruction`` is ``ldmatrix`` or ``load``."""

    x: Value[Shared] = operand()
    instruction: str = attribute()
    type: Type = result_type()
    out: Value[Register] = result()

    def check(self) -> Iterator[str]:
        """The instruction is known, and the value is the tile's."""
        if self.instruction not in GETS:
            yield f"instruction {self.instruction} is none of {', '.join(GETS)}"
        yield from tile_faults(self.x.type, self.out.type)


class Publish(Op, name="cta.publish", effects=Effects.ORDERS):
    """Order this thread's shared writes, or all (``wide``), before TMA's (fence.proxy.async)."""

    wide: bool = attribute(default=False)


class Sync(Op, name="cta.sync", effects=Effects.ORDERS):
    """Barrier of the ``threads`` of this group: ``barrier`` plus the group's number names it."""

    group: Value[Scalar] = operand()
    barrier: int = attribute()
    threads: int = attribute()


class StoreTile(Op, name="cta.store", effects=Effects.READS | Effects.WRITES):
    """Start the TMA store of a shared tile's elements that are inside; a group's leader does it.

    ``origin`` is by array axis. With ``update``, ``add``, each is added to, atomically.
    """

    target: Value[TensorMap] = operand()
    x: Value[Shared] = operand()
    origin: tuple[Value[Scalar], ...] = operands()
    axes: tuple[int, ...] = attribute()
    update: str = attribute(default="")


class DrainStores(Op, name="cta.drain_stores", effects=Effects.ORDERS):
    """Wait in the leading thread until at most ``pending`` of its stores still read shared memory.

    ``visible`` waits until they are also complete in global memory.
    """

    pending: int = attribute(default=0)
    visible: bool = attribute(default=False)


class Read(Op, name="cta.read", effects=Effects.READS):
    """Read a register tile from global memory, ``vector`` elements an instruction.

    ``origin`` is the tile's place by array axis, ``axes`` the array axes of the tile's axes.
    ``bounded`` lists the tile axes along which elements may lie outside: those get ``fill``.
    """

    array: Value[Array] = operand()
    origin: tuple[Value[Scalar], ...] = operands()
    axes: tuple[int, ...] = attribute()
    type: Type = result_type()
    bounded: tuple[int, ...] = attribute(default=())
    vector: int = attribute(default=1)
    fill: int | float | bool = attribute(default=0)
    out: Value[Register] = result()

    def check(self) -> Iterator[str]:
        """Places and tile fit, and the array is not write-only."""
        yield from access_faults(self, self.out.type)
        if self.array.type.mode == "out":
            yield "an out parameter is never read"


class Write(Op, name="cta.write", effects=Effects.WRITES):
    """Write a register tile to global memory; fields as for ``cta.read``.

    Elements outside are skipped. Copies of an element are written once. ``limited`` lists bounded
    tile axes that end before the array does; their ends follow the place in ``origin``.
    """

    array: Value[Array] = operand()
    value: Value[Register] = operand()
    origin: tuple[Value[Scalar], ...] = operands()
    axes: tuple[int, ...] = attribute()
    bounded: tuple[int, ...] = attribute(default=())
    vector: int = attribute(default=1)
    limited: tuple[int, ...] = attribute(default=())

    def check(self) -> Iterator[str]:
        """Places and tile fit, and the array may be written."""
        yield from access_faults(self, self.value.type)
        if self.array.type.mode == "in":
            yield "an in parameter is never written"


class ReadScalar(Op, name="cta.read_scalar", effects=Effects.READS):
    """Read one element, the same for all threads."""

    array: Value[Array] = operand()
    origin: tuple[Value[Scalar], ...] = operands()
    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """A scalar of the array's element type."""
        return [Scalar(self.array.type.dtype.held)]

    def check(self) -> Iterator[str]:
        """One coordinate an axis, and the array is not write-only."""
        yield from origin_faults(self.array.type, self.origin)
        if self.array.type.mode == "out":
            yield "an out parameter is never read"
