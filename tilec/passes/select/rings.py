"""Rings, slots and views: who may touch which shared memory when, in ``ptx`` form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilec.ir.clusters import shared_along, shares
from tilec.ir.core import Kernel, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import cta, ptx
from tilec.ir.resources import part_offsets, shared_bytes
from tilec.ir.types import Shared, TensorMap
from tilec.layout.linear import Layout, LayoutRefusal
from tilec.layout.shared import atom_bytes, row_major, stripes, swizzle_of, swizzled
from tilec.layout.tma import boxes, cut_boxes
from tilec.passes.select.peers import own_share, release_everywhere, shared_axes
from tilec.passes.select.selector import PtxValue, Selector, lowers, record


@dataclass(frozen=True)
class RingRecord:
    """Where a ring lies: bytes from the start of dynamic shared memory."""

    stages: int
    parts: tuple[Shared, ...]
    part_offsets: tuple[int, ...]
    stage_bytes: int
    full: int
    empty: int
    tma_bytes: int = 0
    """Bytes that TMA brings to a stage; threads copy the other parts."""


@dataclass(frozen=True)
class View:
    """A shared tile: its address is base + stage * stage_bytes + block * block_bytes."""

    type: Shared
    base: int
    stage: PtxValue | None = None
    stage_bytes: int = 0
    block: PtxValue | None = None
    block_rows: int = 0

    @property
    def layout(self) -> Layout:
        """Layout of the whole tile that the view looks into."""
        return self.type.layout


@dataclass(frozen=True)
class MapRecord:
    """A tensor map: its address and the array axes of its dimensions, innermost first."""

    address: PtxValue
    axes: tuple[int, ...]
    type: TensorMap


def shared_parts(types: tuple[Any, ...]) -> tuple[Shared, ...]:
    """The parts of a ring, which are shared tiles."""
    for part in types:
        if not isinstance(part, Shared):
            raise Refused(f"a stage holds shared tiles, not {part}")
    return types


@lowers(cta.MakeRing)
def _ring(sel: Selector, op: cta.MakeRing) -> None:
    if op.offset < 0 or op.barriers < 0:
        raise Refused("the ring has no place yet: run place-shared first")
    parts = shared_parts(op.out.type.parts)
    offsets, stage_bytes = part_offsets(op.out.type)
    stages = op.out.type.stages
    sel.records[op.out] = RingRecord(
        stages,
        parts,
        tuple(op.offset + o for o in offsets),
        stage_bytes,
        op.barriers,
        op.barriers + 8 * stages,
        sum(
            shared_bytes(parts[number])
            for number in sorted(filled_by(sel.kernel, op.out, cta.Load))
        ),
    )


def filled_by(kernel: Kernel, ring: Value[Any], how: type[Any]) -> set[int]:
    """The parts of a ring's stages that one kind of op fills."""
    return {op.part for op in kernel.body.walk() if isinstance(op, how) and op.ring is ring}


@lowers(cta.Buffer)
def _buffer(sel: Selector, op: cta.Buffer) -> None:
    if op.offset < 0:
        raise Refused("the buffer has no place yet: run place-shared first")
    sel.records[op.out] = View(op.out.type, op.offset)


def _stage_address(sel: Selector, stage: PtxValue, unit: int) -> PtxValue:
    return sel.alu("mad.lo.u32", stage, unit, sel.shared_base())


def _advance(sel: Selector, ring: Value[Any], stages: int) -> PtxValue:
    """Step the role's cursor; the stage it was at."""
    stage, parity = sel.cursors[ring]
    following = sel.alu("add.u32", stage, 1)
    wraps = sel.alu("setp.eq.u32", following, stages, kind="pred")
    flipped = sel.alu("xor.b32", parity, 1)
    sel.cursors[ring] = (
        sel.alu("selp.b32", 0, following, wraps),
        sel.alu("selp.b32", flipped, parity, wraps),
    )
    return stage


def _await(sel: Selector, address: PtxValue, parity: PtxValue, offset: int) -> None:
    how = "try_wait" if sel.ctx.target.has_try_wait else "test_wait"
    sel.build.add(ptx.MbarrierWait(address, parity, offset=offset, how=how))


@lowers(cta.Acquire)
def _acquire(sel: Selector, op: cta.Acquire) -> None:
    ring = record(sel, op.ring, RingRecord)
    stage, parity = sel.cursors[op.ring]
    address = _stage_address(sel, stage, 8)
    _await(sel, address, parity, ring.empty)
    if ring.tma_bytes:
        total, first = ring.tma_bytes, sel.elected()
        sel.build.add(ptx.MbarrierArrive(address, guard=first, offset=ring.full, bytes=total))
    sel.set(op.out, _advance(sel, op.ring, ring.stages))
    sel.records[op.out] = ring


@lowers(cta.Wait)
def _wait(sel: Selector, op: cta.Wait) -> None:
    ring = record(sel, op.ring, RingRecord)
    stage, parity = sel.cursors[op.ring]
    address = _stage_address(sel, stage, 8)
    _await(sel, address, parity, ring.full)
    sel.set(op.out, _advance(sel, op.ring, ring.stages))
    sel.records[op.out] = ring


@lowers(cta.Release)
def _release(sel: Selector, op: cta.Release) -> None:
    ring = record(sel, op.ring, RingRecord)
    if any(shared_axes(op.ring)):
        release_everywhere(sel, op.ring, ring.empty, sel.get(op.slot))
        return
    address = _stage_address(sel, sel.get(op.slot), 8)
    sel.build.add(ptx.MbarrierArrive(address, guard=sel.lane_zero(), offset=ring.empty))


@lowers(cta.Part)
def _part(sel: Selector, op: cta.Part) -> None:
    ring = record(sel, op.slot, RingRecord)
    sel.records[op.out] = View(
        ring.parts[op.index], ring.part_offsets[op.index], sel.get(op.slot), ring.stage_bytes
    )


@lowers(cta.Window)
def _window(sel: Selector, op: cta.Window) -> None:
    view = record(sel, op.x, View)
    if view.block is not None:
        raise Refused("a window of a window is not in this version")
    if window_step(view.layout, view.type.dtype.bits, op.rows) is None:
        raise Refused(f"windows of {op.rows} rows do not lie evenly in {view.layout}")
    sel.records[op.out] = replace(
        view, type=op.out.type, block=sel.get(op.block), block_rows=op.rows
    )


@lowers(cta.TransposeView)
def _transpose(sel: Selector, op: cta.TransposeView) -> None:
    view = record(sel, op.x, View)
    if view.block is not None:
        raise Refused("transpose the tile before taking a window of it")
    sel.records[op.out] = replace(view, type=op.out.type)


def window_layout(view: View) -> Layout:
    """The layout of the window alone; refused where its rows are not one piece of memory."""
    layout = view.layout
    rows = view.type.shape[0]
    if rows == layout.shape[0]:
        return layout
    if layout == row_major(*layout.shape):
        return row_major(int(rows), *layout.shape[1:])
    shape = stripes(layout)
    if shape.contiguous_axis != 1 or shape.count != 1:
        raise Refused("a window needs a tile of one row-major stripe here")
    return swizzled(int(rows), shape.width, view.type.dtype.bits, swizzle_of(layout))


def fragment_layout(view: View) -> Layout:
    """The layout in which the threads find the elements of a view.

    A window whose rows are no one piece of memory begins where the whole tile does: its elements
    lie as those of the first window, and ``block_bytes`` further for each window before it.
    """
    shape = stripes(view.layout)
    if shape.contiguous_axis == 1 and shape.count == 1:
        return window_layout(view)
    return view.layout


def window_step(layout: Layout, bits: int, rows: int) -> int | None:
    """Bytes from one window of ``rows`` rows to the next.

    None where the windows lie unevenly, or begin inside an atom of the swizzle.
    """
    back, rest = layout.inverse(), [0] * (layout.rank - 1)
    if layout.shape[0] % rows:
        return None
    starts = [back(row, *rest).get("off", 0) * bits // 8 for row in range(0, layout.shape[0], rows)]
    step = starts[1] if len(starts) > 1 else 0
    try:
        swizzle = swizzle_of(layout)
    except LayoutRefusal as refusal:
        raise Refused(str(refusal)) from None
    if swizzle and step % atom_bytes(swizzle):
        return None
    return step if starts == [number * step for number in range(len(starts))] else None


def block_bytes(view: View) -> int:
    """Bytes from one window to the next."""
    return window_step(view.layout, view.type.dtype.bits, view.block_rows) or 0


def view_address(sel: Selector, view: View) -> PtxValue:
    """Shared byte address of a view's first element."""

    def invariant() -> PtxValue:
        def make(build: Any) -> PtxValue:
            base = sel.alu_on(build, "add.u32", sel.shared_base(), view.base)
            if view.block is None:
                return base
            return sel.alu_on(build, "mad.lo.u32", view.block, block_bytes(view), base)

        if view.block is None:
            return sel.at_kernel(("view", view.base), make)
        if entry_value(sel, view.block):
            return sel.at_entry(("view", view.base, view.block, view.block_rows), make)
        return make(sel.build)

    base = invariant()
    if view.stage is None:
        return base
    return sel.alu("mad.lo.u32", view.stage, view.stage_bytes, base)


def entry_value(sel: Selector, value: PtxValue) -> bool:
    """Whether a value is known at the role's entry."""
    return value in sel.entry_memo.values() or value in sel.kernel_memo.values()


@lowers(cta.TensorMapOf)
def _tensor_map(sel: Selector, op: cta.TensorMapOf) -> None:
    kind = op.out.type
    address = sel.parameter(
        "map", op.array.name, op.axes, kind.box, kind.swizzle, bits="b64", name=op.out.name
    )
    sel.records[op.out] = MapRecord(address, op.axes, kind)


def _coordinates(
    sel: Selector,
    target: MapRecord,
    origin: Mapping[int, PtxValue],
    axes: tuple[int, ...],
    shift: tuple[int, ...],
) -> tuple[PtxValue, ...]:
    """Box coordinates, innermost first: the tile's origin plus the box's place in the tile."""
    along = dict(zip(axes, shift, strict=True))
    found = []
    for axis in target.axes:
        at = origin[axis]
        offset = along.get(axis, 0)
        found.append(sel.alu("add.s32", at, offset) if offset else at)
    return tuple(found)


def _check_box(target: MapRecord, box_axes: dict[int, int]) -> None:
    needed = tuple(box_axes.get(axis, 1) for axis in target.axes)
    if needed != target.type.box:
        raise Refused(f"the map's box is {target.type.box}, the tile needs {needed}")


def full_barrier(sel: Selector, ring: RingRecord, stage: PtxValue) -> PtxValue:
    """Address of the full barrier of a stage."""
    first = sel.at_kernel(
        ("barrier", ring.full),
        lambda b: sel.alu_on(b, "add.u32", sel.shared_base(), ring.full),
    )
    return sel.alu("mad.lo.u32", stage, 8, first)


@lowers(cta.Load)
def _load(sel: Selector, op: cta.Load) -> None:
    ring = record(sel, op.stage, RingRecord)
    target = record(sel, op.source, MapRecord)
    part = ring.parts[op.part]
    stage = sel.get(op.stage)
    view = View(part, ring.part_offsets[op.part], stage, ring.stage_bytes)
    address = view_address(sel, view)
    barrier = full_barrier(sel, ring, stage)
    along = shared_along(op.ring, op.part)
    cut = cut_boxes(part.layout, part.dtype.bits, shares(sel.kernel, op.ring, op.part))
    origin, mask = {axis: sel.get(at) for axis, at in enumerate(op.origin)}, None
    if along:
        share = own_share(sel, along)
        mask = share.mask
        address = sel.alu("mad.lo.u32", share.number, cut.bytes, address)
        rows = op.axes[cut.boxes[0].axes[-1]]
        origin[rows] = sel.alu("mad.lo.s32", share.number, cut.rows, origin[rows])
    for box in cut.boxes:
        _check_box(target, {op.axes[a]: e for a, e in zip(box.axes, box.extents, strict=True)})
        at = _coordinates(sel, target, origin, op.axes, box.origin)
        to, first, by = target.address, sel.elected(), box.shared_offset
        if mask is None:
            sel.build.add(ptx.TmaLoad(to, address, barrier, first, at, offset=by))
        else:
            sel.build.add(ptx.TmaMulticast(to, address, barrier, mask, first, at, offset=by))


@lowers(cta.StoreTile)
def _store(sel: Selector, op: cta.StoreTile) -> None:
    target = record(sel, op.target, MapRecord)
    view = record(sel, op.x, View)
    address = view_address(sel, view)
    origin = {axis: sel.get(at) for axis, at in enumerate(op.origin)}
    for box in boxes(window_layout(view), view.type.dtype.bits):
        _check_box(target, {op.axes[a]: e for a, e in zip(box.axes, box.extents, strict=True)})
        sel.build.add(
            ptx.TmaStore(
                target.address,
                address,
                sel.leader(),
                _coordinates(sel, target, origin, op.axes, box.origin),
                offset=box.shared_offset,
                update=op.update,
            )
        )
    sel.build.add(ptx.Fence(kind="bulk_commit", guard=sel.leader()))


@lowers(cta.DrainStores)
def _drain(sel: Selector, op: cta.DrainStores) -> None:
    sel.build.add(ptx.BulkWait(guard=sel.leader(), pending=op.pending, read=not op.visible))


@lowers(cta.Publish)
def _publish(sel: Selector, op: cta.Publish) -> None:
    sel.build.add(ptx.Fence(kind="async" if op.wide else "async_shared"))


@lowers(cta.Sync)
def _sync(sel: Selector, op: cta.Sync) -> None:
    if sel.need_role().groups == 1:
        barrier = sel.constant(op.barrier)
    else:
        barrier = sel.alu("add.u32", sel.get(op.group), op.barrier)
    sel.build.add(ptx.BarrierSync(barrier, threads=op.threads))
