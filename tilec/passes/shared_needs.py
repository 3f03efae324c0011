"""What shared memory a schedule needs, read off level ``tile`` before anything is formed.

The schedule is tried: a copy of the kernel gets its tile sizes, its fills and its loops in parts,
since both decide which operands a ring brings. Then three kinds of objects count, by the laws of
those who make them. A ring holds the loads of one region that feed only products
(``form_products``): as many stages as the schedule says in a loop, two at the top of CTAs that go
from tile to tile, else one; regions that do not hold a stage at the same time share rings of one
type. An operand that no ring brings lies in a buffer, unless mma.sync takes it from the registers
that a product left it in; a buffer is free again when all products that read it are over. Results
of products leave through a staging buffer where TMA may store them.

``place-shared`` has the last word: a test compares the two over all examples and targets. Small
buffers, such as partial results of warps, are not told apart here; ``SMALL_BYTES`` stands for them.
Nothing here chooses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.facts import Schedule
from tilec.ir.levels import flow, tile
from tilec.ir.resources import MBARRIER_BYTES, SWIZZLED_ALIGNMENT
from tilec.ir.types import Extent, Tile
from tilec.passes.apply_tiles import apply_tiles
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.base import Context
from tilec.passes.fill_padding import fill_padding
from tilec.passes.form_products import feeds_only_products, source_of
from tilec.passes.frames import FRAGMENT_ROWS, PRODUCT_ROWS, WARPGROUP_WARPS
from tilec.passes.mapping import STRIPES_BYTES, contiguous_axis, tile_axes
from tilec.passes.operands import ring_refusal
from tilec.passes.split_by_predicates import split_by_predicates

SMALL_BYTES = 1024
"""For what is small beside tiles."""


@dataclass(frozen=True)
class Needs:
    """Bytes of shared memory: beside the rings whose stages are open, and of one stage of these."""

    fixed: int
    stage: int
    staging: int
    """Of ``fixed``, what results leave through: twice as much lets stores overlap."""

    def total(self, stages: int) -> int:
        """Bytes of everything with so many stages."""
        return self.fixed + stages * self.stage

    def most_stages(self, limit: int) -> int:
        """The most stages that fit; 0 if the rest alone does not."""
        room = max(0, limit - self.fixed)
        return room // self.stage if self.stage else room


def shared_needs(kernel: Kernel, ctx: Context, schedule: Schedule) -> Needs | None:
    """What a kernel takes of shared memory by a schedule; None where that is not legal."""
    trial = rewrite.clone_kernel(kernel)
    trial.schedule = schedule.as_attributes()
    apart = Context(ctx.target, ctx.facts, schedule)
    try:
        for step in (fill_padding, apply_tiles, split_by_predicates):
            step.run(trial, apart)
        return _Account(apart, Axes(trial.body), trial.body).needs()
    except Refused:
        return None  # the pass that refuses it says so, at its place


Buffer = tuple[Any, int]
"""What distinguishes buffers of one kind, and the number of one of them."""


@dataclass
class _Account:
    ctx: Context
    axes: Axes
    region: Region
    rings: dict[Any, int] = field(default_factory=dict)
    """Rings of each kind."""
    held: list[Any] = field(default_factory=list)
    buffers: dict[Buffer, int] = field(default_factory=dict)
    memo: dict[Any, tuple[Buffer, Region]] = field(default_factory=dict)
    over: set[Op] = field(default_factory=set)

    def needs(self) -> Needs:
        """The account of the whole kernel."""
        self.uses = rewrite.uses(self.region)
        self.dots = [op for op in self.region.walk() if isinstance(op, tile.Dot)]
        self.results = {self.axes.all_of(op.out) for op in self.dots}
        split = {self.axes.of(op.out, 0) for op in self.dots}
        self.split: AxisClass | None = split.pop() if len(split) == 1 else None
        rows = _size(self.split) if self.split is not None else 1
        whole = rows % PRODUCT_ROWS == 0
        self.groups = rows // PRODUCT_ROWS if whole else 1
        self.rows = PRODUCT_ROWS if whole else rows
        for op in self.region.ops:
            if isinstance(op, tile.Parallel):
                self.visit(op.body, "top")
        fixed = self.staging() + sum(self.buffers.values()) + SMALL_BYTES
        stage = 0
        for (kind, *_, each), count in self.rings.items():
            if kind == "loop":
                stage += count * (each + 2 * MBARRIER_BYTES)
            else:
                stages = 2 if kind == "top" and self.ctx.schedule.persistent else 1
                fixed += count * stages * (each + 2 * MBARRIER_BYTES)
        return Needs(fixed, stage, self.staging())

    def shape(self, value: Value[Any]) -> tuple[int, ...]:
        """A tile's extents, all rows of a CTA in it."""
        return tuple(
            _known(value, place) if axis is None else _size(axis)
            for place, axis in enumerate(self.axes.all_of(value))
        )

    # -- regions in the order in which they are formed ------------------------------------------

    def visit(self, region: Region, kind: str) -> None:
        """Everything that a region makes; ``kind`` says how many stages a ring of it has."""
        loads = [
            op
            for op in region.ops
            if kind != "while" and isinstance(op, tile.Load) and self.by_ring(op)
        ]
        ring = self.ring(kind, loads) if loads else None
        views = {op.out for op in loads}
        for op in region.ops:
            if isinstance(op, tile.Transpose) and op.x in views:
                views.add(op.out)
        readers = [op for op in region.ops if views & _read(op)]
        for op in region.ops:
            if isinstance(op, tile.Dot):
                self.dot(op, region)
            kept = dict(self.memo)
            for nested in op.regions:
                self.visit(nested, _kind(op, kind))
                self.memo = dict(kept)
            if ring is not None and op is readers[-1]:
                self.held.remove(ring)

    def by_ring(self, op: tile.Load) -> bool:
        """Whether a ring brings a load."""
        fed = feeds_only_products(op.out, self.uses)
        return fed and ring_refusal(self.ctx, op, self.uses) is None

    def ring(self, kind: str, loads: list[Any]) -> Any:
        """A ring of which no stage is held, for the loads of one region."""
        parts = tuple(self.part(load) for load in loads)
        each = sum(_up(size) for *_, size in parts)
        ring = (kind, parts, each)
        self.held.append(ring)
        self.rings[ring] = max(self.rings.get(ring, 0), self.held.count(ring))
        return ring

    def part(self, load: tile.Load) -> tuple[Any, ...]:
        shape, dtype = self.shape(load.out), load.array.type.dtype
        along = contiguous_axis(self.ctx, load.array, tile_axes(load.subscripts))
        swizzle = dict(self.ctx.schedule.swizzles).get(load.array.name)
        return dtype, shape, along, swizzle, prod(shape) * dtype.bytes

    # -- operands and results --------------------------------------------------------------------

    def dot(self, op: tile.Dot, region: Region) -> None:
        """The operands of a product that no ring brings."""
        for value, which in ((op.a, "a"), (op.b, "b")):
            source, flipped = source_of(value)
            load = source.owner
            if isinstance(load, tile.Load) and self.by_ring(load) and not self.repeated(load):
                continue
            if which == "a" and self.in_registers(op):
                continue
            summed = 1 if flipped == (which == "b") else 0
            self.put(which, source, summed, region)
        self.over.add(op)

    def repeated(self, load: tile.Load) -> bool:
        """Whether a `while` is around, where nothing comes by a ring."""
        loops = [op for op in self.region.walk() if isinstance(op, flow.While)]
        return any(load in list(body.walk()) for loop in loops for body in loop.regions)

    def in_registers(self, op: tile.Dot) -> bool:
        """Whether mma.sync finds its left operand where another product has left it."""
        along_rows = self.rows % (FRAGMENT_ROWS * WARPGROUP_WARPS) == 0
        if self.ctx.target.has_wgmma and along_rows:
            return False
        same = self.axes.all_of(op.a) in self.results
        return along_rows and same and op.a.type.dtype.bits == 16

    def put(self, which: str, source: Value[Any], summed: int, region: Region) -> None:
        """A buffer for an operand, of those that hold nothing which is read again."""
        key = which, source, summed
        if key in self.memo:
            return
        shape, dtype = self.shape(source), source.type.dtype
        copies = 1 if self.split in self.axes.all_of(source) else self.groups
        kind = which, dtype, shape, summed
        held = {
            buffer
            for (_, other, _), (buffer, where) in self.memo.items()
            if where is not region or not all(dot in self.over for dot in self.readers(other))
        }
        number = next(n for n in range(len(held) + 1) if (kind, n) not in held)
        self.buffers[kind, number] = _up(prod(shape) * copies * dtype.bytes)
        self.memo[key] = (kind, number), region

    def readers(self, source: Value[Any]) -> list[tile.Dot]:
        return [dot for dot in self.dots if source in (source_of(dot.a)[0], source_of(dot.b)[0])]

    def staging(self) -> int:
        """What results of two bytes an element leave through, a stripe of columns at a time."""
        if not self.ctx.target.has_tma or self.rows != PRODUCT_ROWS:
            return 0
        widths = {
            min(self.shape(op.value)[1] * op.value.type.dtype.bytes, max(STRIPES_BYTES))
            for op in self.region.walk()
            if isinstance(op, tile.Store)
            and isinstance(op.value.type, Tile)
            and op.value.type.dtype.bits == 16
            and len(op.value.type.shape) == 2
        }
        groups = self.groups * (2 if self.ctx.schedule.alternate else 1)
        return sum(groups * PRODUCT_ROWS * width for width in widths)


def _kind(op: Op, outer: str) -> str:
    if outer == "while" or isinstance(op, flow.While):
        return "while"
    return "loop" if isinstance(op, tile.ForTiles | flow.For) else "branch"


def _read(op: Op) -> set[Value[Any]]:
    inner = (v for region in op.regions for nested in region.walk() for v in nested.operands)
    return {*op.operands, *inner}


def _size(axis: AxisClass) -> int:
    if not isinstance(axis.size, int):
        raise Refused(f"the size of {axis.name} is not chosen yet")
    return axis.size


def _known(value: Value[Any], place: int) -> int:
    extent: Extent = value.type.shape[place]
    return extent if isinstance(extent, int) else 1


def _up(size: int) -> int:
    return -(-size // SWIZZLED_ALIGNMENT) * SWIZZLED_ALIGNMENT
