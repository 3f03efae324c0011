"""Copies of operands into a ring's stages by threads: cp.async, counted by the full barrier.

The lanes of the group stand along memory, ``vector`` elements each, then across it. What lies
outside the array is not read: the instruction writes zeros for the bytes beyond its size.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Kernel, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import cta, mma, ptx
from tilec.ir.types import Register
from tilec.layout.fragments import blocked
from tilec.layout.linear import LayoutError, LayoutRefusal
from tilec.layout.shared import stripes
from tilec.layout.vectors import shared_plan
from tilec.passes.select.moves import GlobalTile
from tilec.passes.select.rings import RingRecord, View, filled_by, full_barrier
from tilec.passes.select.selector import PtxValue, Selector, lowers, record
from tilec.passes.select.shared_tiles import based


def arrivals_of_copies(kernel: Kernel, ring: Value[Any], roles: list[cta.Role]) -> int:
    """Arrivals at a full barrier by the threads that copy: each once for every part."""
    for role in roles:
        if any(isinstance(op, mma.Copy) and op.ring is ring for op in role.body.walk()):
            return 32 * role.group * len(filled_by(kernel, ring, mma.Copy))
    return 0


@lowers(mma.Copy)
def _copy(sel: Selector, op: mma.Copy) -> None:
    ring, stage = record(sel, op.stage, RingRecord), sel.get(op.stage)
    part = ring.parts[op.part]
    # The plan is made for rows that run along memory.
    turned = stripes(part.layout).contiguous_axis == 0
    order = (1, 0) if turned else (0, 1)
    axes = tuple(op.axes[a] for a in order)
    bounded = tuple(order.index(a) for a in op.bounded)
    shape = tuple(int(part.shape[a]) for a in order)
    shared = part.layout.transpose() if turned else part.layout
    bits = part.dtype.bits
    try:
        layout = blocked(shape, 32 * sel.need_role().group_warps, op.vector, bits)
        plan = shared_plan(layout, shared, bits, max_bytes=op.vector * bits // 8)
    except (LayoutError, LayoutRefusal) as error:
        raise Refused(str(error)) from None
    if plan.elements != op.vector:
        raise Refused(f"{op.vector} elements are no neighbours in {part.layout}")
    read = cta.Read(
        op.array, op.origin, axes=axes, type=Register(part.dtype, shape, layout), vector=op.vector
    )
    where = GlobalTile(sel, read, op.array, read.out.type)
    if not where.unit_stride():
        raise Refused(f"no axis of the tile is known to have stride 1 in {op.array.name}")
    view = View(part, ring.part_offsets[op.part], stage, ring.stage_bytes)
    coordinates = [where.own_coordinate(axis) for axis in range(2)]
    base, sizes = where.base(coordinates), _Sizes(sel, op, where, coordinates, bounded)
    rows: dict[int, PtxValue] = {}
    for access in plan.accesses:
        down, along = layout(reg=access.register)
        if down not in rows:
            rows[down] = where.moved(base, (down, 0))
        sel.build.add(
            ptx.AsyncCopy(
                based(sel, view, plan, access.base),
                rows[down],
                size=sizes.of(down, along),
                bytes=op.vector * bits // 8,
                offset=access.displacement,
                source_offset=along * part.dtype.bytes,
            )
        )
    sel.build.add(ptx.AsyncArrive(full_barrier(sel, ring, stage)))


class _Sizes:
    """How many bytes of each copy lie inside the array; None where all do."""

    def __init__(
        self,
        sel: Selector,
        op: mma.Copy,
        where: GlobalTile,
        coordinates: list[PtxValue],
        bounded: tuple[int, ...],
    ) -> None:
        self.sel, self.op, self.where = sel, op, where
        self.coordinates, self.bounded = coordinates, bounded
        self.known: dict[tuple[int, int], PtxValue] = {}

    def of(self, down: int, along: int) -> PtxValue | None:
        """Of the copy that many rows and elements behind the thread's first."""
        size = self._along(along) if 1 in self.bounded else None
        if 0 not in self.bounded:
            return size
        whole = self.op.vector * self.op.array.type.dtype.bytes
        inside = self._known(0, down, self._inside)
        return self.sel.alu("selp.b32", whole if size is None else size, 0, inside)

    def _along(self, along: int) -> PtxValue:
        return self._known(1, along, self._bytes)

    def _known(self, axis: int, offset: int, make: Any) -> PtxValue:
        if (axis, offset) not in self.known:
            at = self.coordinates[axis]
            at = self.sel.alu("add.s32", at, offset) if offset else at
            limit = self.where.extent(self.where.op.axes[axis])
            self.known[axis, offset] = make(at, limit)
        return self.known[axis, offset]

    def _inside(self, at: PtxValue, limit: PtxValue) -> PtxValue:
        return self.sel.alu("setp.lt.s32", at, limit, kind="pred")

    def _bytes(self, at: PtxValue, limit: PtxValue) -> PtxValue:
        each = self.op.array.type.dtype.bytes
        left = self.sel.alu("sub.s32", limit, at)
        left = self.sel.alu("min.s32", left, self.op.vector)
        left = self.sel.alu("max.s32", left, 0)
        return self.sel.alu("mul.lo.u32", left, each) if each > 1 else left
