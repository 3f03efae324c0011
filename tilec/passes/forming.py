"""Shared state of ``form-ctas`` while it rebuilds one kernel, and the values that it looks up.

``Forming`` owns two builders, one for the kernel's top (launch facts, tensor maps, shared objects)
and one for the role's body, and knows what stands for each value of the tile level: a scalar, a
register tile, or for an index the global index of its first element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.facts import Schedule
from tilec.ir.levels import author, cta, flow, math, tile
from tilec.ir.types import Array, Extent, Index, Register, Ring, Scalar, Shared, TensorMap
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.base import Context
from tilec.passes.frames import Frames, Team
from tilec.passes.mapping import Mapped, divides, tile_axes
from tilec.passes.raster import constant

GROUP_BARRIER = 1
"""First named barrier of the groups; barrier 0 orders the set-up (protocol)."""


@dataclass
class Forming:
    """What is known while the tiles of a kernel are given to warps."""

    ctx: Context
    kernel: Kernel
    schedule: Schedule
    axes: Axes
    team: Team
    frames: Frames
    top: Builder
    body: Builder
    group: Value[Scalar]
    values: dict[Value[Any], Value[Any]] = field(default_factory=dict)
    origins: dict[Value[Any], Value[Any]] = field(default_factory=dict)
    parts: dict[Value[Any], tuple[Value[Any], int]] = field(default_factory=dict)
    """Tiles that wait in a stage of a ring: the slot and the part."""
    rings: dict[Value[Ring], Any] = field(default_factory=dict)
    """All rings, with what distinguishes those of one type: how their parts are filled."""
    held: set[Value[Ring]] = field(default_factory=set)
    """Rings of which the code at hand holds a stage."""
    buffers: dict[Any, Value[Shared]] = field(default_factory=dict)
    memo: dict[Any, Value[Any]] = field(default_factory=dict)
    repeating: bool = False
    """Whether a `while` is around: how often it runs no producer can know."""
    limits: dict[Value[Any], Value[Scalar]] = field(default_factory=dict)
    """Where the range ends that an index is part of, if it is not the end of an array."""
    crossed: frozenset[Value[Any]] = frozenset()
    """Arrays whose accesses wait for one another (``crossings``)."""
    late: frozenset[Op] = frozenset()
    """Accesses of tiles that wait for others of the same array (``crossings``)."""
    homes: dict[Value[Any], author.Home] = field(default_factory=dict)
    """What the author pinned."""
    swizzles: dict[Value[Any], int] = field(default_factory=dict)
    """Swizzles that the author pinned, of operands that products alone read from buffers."""
    stored: dict[Value[Any], tuple[Value[Any], Register]] = field(default_factory=dict)
    """Tiles that lie in shared memory as values: where, and what reading one gives."""
    put_in: dict[Value[Any], Region] = field(default_factory=dict)
    """Where the operands in buffers were put there."""
    flying: list[Op] = field(default_factory=list)
    over: set[Op] = field(default_factory=set)
    """Products that are not settled yet, and those that have read their operands."""
    sites: dict[Op, int] = field(default_factory=dict)
    """Assertions and prints, by their places in what the kernel lists (``form_checks``)."""
    full: frozenset[AxisClass] = frozenset()
    """Axes along which the tile at hand is known to have no edge."""
    cluster: tuple[int, int] = (1, 1)
    """CTAs of a cluster along the last two axes of the grid (``clusters``)."""
    ranks: dict[int, Value[Scalar]] = field(default_factory=dict)
    """This CTA's place in its cluster, by axis."""
    padded: frozenset[AxisClass] = frozenset()
    """Axes along which a cluster may have tiles beyond the end."""
    without_edge: set[Value[Any]] = field(default_factory=set)
    """Indices of loops none of whose tiles has an edge inside."""

    def get(self, value: Value[Any]) -> Value[Any]:
        """What stands for a tile-level scalar or tile, read again if it lies in shared memory."""
        if value in self.stored:
            from tilec.passes.homes import fetch

            return fetch(self, value)
        return self.values[value]

    def extent(self, array: Value[Array], axis: int) -> Value[Scalar]:
        """The run-time extent of an array's axis, read once."""
        key = ("extent", array, axis)
        if key not in self.memo:
            name = str(array.type.shape[axis])
            self.memo[key] = self.top.add(cta.ExtentOf(array, axis), name).out
        return self.memo[key]

    def limit(self, index: Value[Index]) -> Value[Scalar]:
        """Where an index ends: where its range does, or an array."""
        if index in self.limits:
            return self.limits[index]
        name = index.type.extent
        for array in self.kernel.body.args:
            if isinstance(array.type, Array) and name in array.type.shape:
                return self.extent(array, array.type.shape.index(name))
        raise Refused(f"no array has the extent {name} of the loop {index.name}")

    def tensor_map(self, array: Value[Array], plan: Mapped) -> Value[TensorMap]:
        """The tensor map for copies of one kind, made once."""
        type = TensorMap(array.type.dtype, plan.box, plan.swizzle)
        key = ("map", array, plan.axes, type)
        if key not in self.memo:
            made = cta.TensorMapOf(array, axes=plan.axes, type=type)
            self.memo[key] = self.top.add(made, f"map_{array.name}").out
        return self.memo[key]

    def ring(self, type: Ring, filled: Any) -> Value[Ring]:
        """A ring of which nobody here holds a stage: loops that follow each other share one.

        Who fills it and who empties it go through it in the order of the program, so both take
        their places along from loop to loop.
        """
        for ring, how in self.rings.items():
            if ring.type == type and how == filled and ring not in self.held:
                return ring
        made = self.top.add(cta.MakeRing(type=type), "ring").out
        self.rings[made] = filled
        return made

    def buffer(self, key: Any, type: Shared, name: str) -> Value[Shared]:
        """A buffer in shared memory, shared by all that ask with the same key and type."""
        if (key, type) not in self.buffers:
            self.buffers[key, type] = self.top.add(cta.Buffer(type=type), name).out
        return self.buffers[key, type]

    def start(self, index: Value[Index]) -> Value[Scalar]:
        """The global index of this group's first element along an index."""
        origin = self.origins[index]
        team = self.team
        if team.split is None or self.axes.of(index, 0) is not team.split:
            return origin
        key = ("start", index)
        if key not in self.memo:
            rows = constant(self.body, team.rows)
            ahead = self.body.add(math.Mul(self.group, rows)).out
            self.memo[key] = self.body.add(math.Add(origin, ahead), index.name).out
        return self.memo[key]

    def place(self, subscripts: Sequence[Value[Any]], *, whole: bool) -> list[Value[Scalar]]:
        """The origin by array axis: of the CTA's ``whole`` tile, or of this group's part."""
        found = []
        for subscript in subscripts:
            if not isinstance(subscript.type, Index):
                found.append(self.get(subscript))
            else:
                found.append(self.origins[subscript] if whole else self.start(subscript))
        return found

    def bounded(self, subscripts: Sequence[Value[Any]]) -> tuple[int, ...]:
        """The tile axes along which elements may lie outside the array."""
        indices = [s for s in subscripts if isinstance(s.type, Index)]
        return tuple(axis for axis, index in enumerate(indices) if self.ragged(index))

    def limited(self, subscripts: Sequence[Value[Any]]) -> tuple[int, ...]:
        """The bounded tile axes that end with a range, where the array may go on."""
        indices = [s for s in subscripts if isinstance(s.type, Index)]
        return tuple(axis for axis in self.bounded(subscripts) if indices[axis] in self.limits)

    def ragged(self, index: Value[Index]) -> bool:
        """Whether a tile along the index may be partial."""
        if index in self.without_edge or self.axes.of(index, 0) in self.full:
            return False
        if self.padded and self.axes.of(index, 0) in self.padded:
            return True
        return may_be_partial(self.ctx, index, index.type.size)

    def sync(self) -> None:
        """Barrier among the warps of the group."""
        self.body.add(cta.Sync(self.group, barrier=GROUP_BARRIER, threads=self.team.threads))

    def once(self, value: Value[Any], made: Op) -> None:
        """Add an op that counts how often it runs: of the groups that hold the same tile, one."""
        split = self.team.split
        if self.team.groups == 1 or (split is not None and split in self.axes.all_of(value)):
            self.body.add(made)
            return
        made.loc = self.body.loc
        inside = Region([], [made, flow.Yield(())])
        zero = constant(self.body, 0)
        first = self.body.add(math.Compare(self.group, zero, relation="eq"), "first_group").out
        idle = Region([], [flow.Yield(())])
        self.body.add(flow.If(first, types=(), then=inside, otherwise=idle))

    def read(self, op: tile.Load, type: Register, fill: Any = 0) -> Value[Register]:
        """Read a tile into registers, without shared memory."""
        axes = tile_axes(op.subscripts)
        widest = aligned_vector(self.ctx, op, self.schedule)
        made = cta.Read(
            op.array,
            tuple(self.place(op.subscripts, whole=False)),
            axes=axes,
            type=type,
            bounded=self.bounded(op.subscripts),
            vector=widest,
            fill=fill,
        )
        return self.body.add(made, op.out.name).out


def may_be_partial(ctx: Context, index: Value[Index], size: Extent) -> bool:
    """Whether a tile of ``size`` along an index may have an edge inside.

    A loop over an empty axis has no tile, so there a size that divides is enough. The whole of an
    axis is one tile even if the axis is empty: it is full only where its extent is static.
    """
    extent = index.type.extent
    if isinstance(index.owner, tile.Within):
        return True
    if size == extent or isinstance(index.owner, tile.Part):
        return False
    if isinstance(index.owner, tile.Whole) or not isinstance(size, int):
        return True
    return not divides(ctx, extent, size)


def aligned_vector(ctx: Context, op: tile.Load | tile.Store, schedule: Schedule) -> int:
    """Elements of one access along the tile's last axis, as alignment and schedule allow."""
    from tilec.passes.frames import vector_of

    last = len(tile_axes(op.subscripts)) - 1
    most = 16 // op.array.type.dtype.bytes
    allowed = vector_of(ctx, op, last, max(1, most))
    return min(allowed, schedule.vector) if schedule.vector else allowed


def outliving(before: dict[Any, Any], after: dict[Any, Any]) -> dict[Any, Any]:
    """What is still known after a region: what was before, and what stands at the kernel's top."""
    return {**before, **{k: v for k, v in after.items() if k[0] in ("extent", "map")}}


def users(kernel_body: Any, value: Value[Any]) -> list[Op]:
    """Ops that take a value as an operand."""
    return [op for op in kernel_body.walk() if value in op.operands]
