"""Products on a CTA: how operands come to shared memory, and the synchronous product itself.

Law of rings: the loads of one region that feed only products, and that TMA can do, fill one stage
each time the region runs; the stage is granted before the loads, waited for before its first use
and given back after its last one. Every other operand is computed in registers and put into a
buffer by the warps that need it, which is right for any strides, alignment and extent.

Everything is synchronous here: each product is settled at once. ``split-roles`` and
``pipeline-products`` take that apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Op, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.facts import Schedule
from tilec.ir.levels import author, cta, flow, math, tile
from tilec.ir.levels.mma import Copy
from tilec.ir.types import Flight, Register, Ring, Shared, Tile
from tilec.layout.descriptor import matrix_descriptor
from tilec.layout.fragments import blocked, turning
from tilec.layout.linear import LayoutError, LayoutRefusal
from tilec.layout.shared import swizzle_of
from tilec.passes.base import Context
from tilec.passes.check_schedule import BadChoices, impossible, nearest
from tilec.passes.form_mma import form_mma
from tilec.passes.form_tiles import in_layout
from tilec.passes.forming import Forming, users
from tilec.passes.mapping import (
    STRIPES_BYTES,
    Mapped,
    contiguous_axis,
    map_refusal,
    mapped,
    shared_layout,
    tile_axes,
)
from tilec.passes.operands import Uses, copied_vector, either_axis, ring_refusal, tma_refusal
from tilec.passes.range_starts import aligned_start
from tilec.passes.raster import constant
from tilec.passes.refusal import refused
from tilec.passes.tensor_cores import instruction_of, wgmma_refusal


@dataclass
class Stage:
    """The loads of one region that fill a stage together."""

    loads: list[tile.Load]
    plans: dict[tile.Load, Mapped]
    last_use: Op
    needs: set[Op] = field(default_factory=set)
    """Ops that compute the loads' subscripts in the same region."""


def source_of(value: Value[Any]) -> tuple[Value[Any], bool]:
    """The tile behind transposes, and whether it is seen transposed."""
    flipped = False
    while isinstance(value.owner, tile.Transpose):
        value, flipped = value.owner.x, not flipped
    return value, flipped


def feeds_only_products(value: Value[Any], uses: Uses) -> bool:
    """Whether every use of a tile, through transposes, is an operand of a product."""
    readers = [op for op in uses.get(value, []) if not isinstance(op, author.Home)]
    for op in readers:
        if isinstance(op, tile.Transpose):
            if not feeds_only_products(op.out, uses):
                return False
        elif not isinstance(op, tile.Dot) or value is op.acc:
            return False
    return bool(readers)


def ring_plan(ctx: Context, op: tile.Load, swizzle: int | None, uses: Uses) -> Mapped:
    """How TMA or threads bring an operand; ``Refused`` with the reasons if neither can."""
    shape, axes = op.out.type.shape, tile_axes(op.subscripts)
    reason = tma_refusal(ctx, op, uses)
    if reason is None:
        return mapped(ctx, op.array, axes, shape, swizzle=swizzle)
    vector = copied_vector(ctx, op, uses)
    if isinstance(vector, str):
        raise Refused(f"{reason}; {vector}")
    along = contiguous_axis(ctx, op.array, axes)
    assert along is not None
    layout = shared_layout((shape[0], shape[1]), op.array.type.dtype, along, swizzle)
    return Mapped(layout, (), (), swizzle_of(layout), vector)


def by_rings(ctx: Context, schedule: Schedule, region: Region) -> bool:
    """Whether rings bring every operand of every product."""
    uses = rewrite.uses(region)
    for op in region.walk():
        for operand in (op.a, op.b) if isinstance(op, tile.Dot) else ():
            source = source_of(operand)[0]
            load = source.owner
            if not isinstance(load, tile.Load) or not feeds_only_products(source, uses):
                return False
            try:
                ring_plan(ctx, load, dict(schedule.swizzles).get(load.array.name), uses)
            except Refused:
                return False
    return True


def check_swizzles(ctx: Context, schedule: Schedule, region: Region) -> None:
    """Refuse a pinned swizzle that an operand's tile cannot have."""
    pinned = dict(schedule.swizzles)
    uses = rewrite.uses(region)
    for op in region.walk():
        if not isinstance(op, tile.Load) or op.array.name not in pinned:
            continue
        name = op.array.name
        if ring_refusal(ctx, op, uses) is not None or not feeds_only_products(op.out, uses):
            ctx.remark(op, f"swizzles.{name} has no effect: {name} comes through no ring")
            continue
        reason = _swizzle_refusal(ctx, region, op, pinned[name])
        if reason is not None:
            good = [w for w in STRIPES_BYTES if _swizzle_refusal(ctx, region, op, w) is None]
            close = nearest(pinned[name], good) if good else 0
            instead = f"the nearest is `swizzles.{name}={close}`" if good else "pin other tiles"
            raise BadChoices([impossible(f"swizzles.{name}", pinned[name], reason, instead, op)])


def _swizzle_refusal(ctx: Context, region: Region, op: tile.Load, swizzle: int) -> str | None:
    """Why a product cannot read an operand with this swizzle; None if it can."""
    dots = [dot for dot in region.walk() if isinstance(dot, tile.Dot)]
    try:
        layout = ring_plan(ctx, op, swizzle, rewrite.uses(region)).layout
        for place, value in [(n, v) for dot in dots for n, v in enumerate((dot.a, dot.b))]:
            source, flipped = source_of(value)
            if source is op.out:
                # Both operands are asked for as b, [K, N]: rows of a are fitted to 64 later.
                upright = layout if flipped == (place == 0) else layout.transpose()
                matrix_descriptor(upright, op.array.type.dtype.bits, "b")
    except (Refused, LayoutError, LayoutRefusal) as refusal:
        return str(refusal)
    return None


def find_stage(f: Forming, region: Region, uses: Uses) -> Stage | None:
    """The loads directly in a region that go through a ring, if there are any."""
    loads: list[tile.Load] = []
    plans: dict[tile.Load, Mapped] = {}
    if f.repeating:
        return None
    for op in region.ops:
        if not isinstance(op, tile.Load) or not feeds_only_products(op.out, uses):
            continue
        try:
            plans[op] = ring_plan(f.ctx, op, dict(f.schedule.swizzles).get(op.array.name), uses)
        except Refused as refusal:
            f.ctx.remark(op, f"{op.array.name} is read by the warps themselves: {refusal}")
            continue
        loads.append(op)
    if not loads:
        return None
    tiles = {load.out for load in loads}
    for op in region.ops:
        if isinstance(op, tile.Transpose) and op.x in tiles:
            tiles.add(op.out)
    last = [op for op in region.ops if _reads(op, tiles)][-1]
    stage = Stage(loads, plans, last)
    wanted = {s for load in loads for s in load.subscripts}
    for op in reversed(region.ops):
        if wanted & set(op.results):
            stage.needs.add(op)
            wanted.update(op.operands)
    return stage


def _reads(op: Op, tiles: set[Value[Any]]) -> bool:
    inner = [v for region in op.regions for nested in region.walk() for v in nested.operands]
    return any(v in tiles for v in (*op.operands, *inner))


def fill_stage(f: Forming, stage: Stage, stages: int) -> tuple[Value[Any], Value[Any]]:
    """Acquire a stage, start its loads and wait for them; the ring and the slot."""
    parts = tuple(
        Shared(load.array.type.dtype, load.out.type.shape, stage.plans[load].layout)
        for load in stage.loads
    )
    ring = f.ring(Ring(stages, parts), tuple(stage.plans[load].vector for load in stage.loads))
    f.held.add(ring)
    maps = [
        None if stage.plans[load].vector else f.tensor_map(load.array, stage.plans[load])
        for load in stage.loads
    ]
    places = [f.place(load.subscripts, whole=True) for load in stage.loads]
    f.body.loc = stage.loads[0].loc
    outer = f.body.region
    inside = outer if f.team.groups == 1 else Region()
    with f.body.inside(inside):
        free = f.body.add(cta.Acquire(ring), "stage").out
        for number, load in enumerate(stage.loads):
            f.body.loc = load.loc
            source, axes = maps[number], tile_axes(load.subscripts)
            if source is not None:
                f.body.add(
                    cta.Load(ring, free, source, tuple(places[number]), axes=axes, part=number)
                )
                continue
            f.body.add(
                Copy(
                    ring,
                    free,
                    load.array,
                    tuple(places[number]),
                    axes=axes,
                    vector=stage.plans[load].vector,
                    part=number,
                    bounded=f.bounded(load.subscripts),
                )
            )
    if inside is not outer:
        # One group fills the stage for all.
        inside.ops.append(flow.Yield(()))
        zero = constant(f.body, 0)
        first = f.body.add(math.Compare(f.group, zero, relation="eq"), "first_group").out
        idle = Region([], [flow.Yield(())])
        f.body.add(flow.If(first, types=(), then=inside, otherwise=idle))
    slot = f.body.add(cta.Wait(ring), "slot").out
    if f.ctx.target.has_wgmma and None in maps:
        f.body.add(cta.Publish())  # what threads copied, to wgmma
    for number, load in enumerate(stage.loads):
        f.parts[load.out] = (slot, number)
        _remark(f, load, stage.plans[load], stages)
    return ring, slot


def _remark(f: Forming, load: tile.Load, plan: Mapped, stages: int) -> None:
    ring = f"into a ring of {stages} stages, swizzle {plan.swizzle} bytes"
    if plan.vector:
        width = plan.vector * load.array.type.dtype.bytes
        f.ctx.remark(
            load,
            f"{load.array.name} comes by cp.async of {width} bytes {ring}: "
            f"{map_refusal(f.ctx, load.array, tile_axes(load.subscripts))}",
            bytes=width,
            swizzle_bytes=plan.swizzle,
        )
        return
    f.ctx.remark(
        load,
        f"{load.array.name} comes by TMA {ring}",
        box_innermost_first=plan.box,
        swizzle_bytes=plan.swizzle,
    )


def form_dot(f: Forming, op: tile.Dot) -> None:
    """One product by the instruction that fits, its operands where that takes them."""
    f.body.loc = op.loc
    register = f.frames.frame(op.out)
    types = (op.a.type.dtype, op.b.type.dtype)
    depth = int(op.a.type.shape[1])
    if instruction_of(f.ctx, op, *types, depth, register, f.team) == "wgmma":
        _form_wgmma(f, op, register)
    else:
        form_mma(f, op, register, lambda value, which, used: _operand(f, op, value, which, used))
        f.over.add(op)


def _form_wgmma(f: Forming, op: tile.Dot, register: Register) -> None:
    """Operands in shared memory; the product is started and settled.

    One of operands in buffers that the next product adds to stays in flight: that one's settle
    waits for both, and only then are the buffers free.
    """
    used: list[bool] = []
    a = _operand(f, op, op.a, "a", used)
    b = _operand(f, op, op.b, "b", used)
    _check_descriptor(op, a, "a")
    _check_descriptor(op, b, "b")
    if any(used):
        f.body.add(cta.Publish())
        f.sync()
    out = Flight(register.dtype, register.shape, register.layout)
    acc = in_layout(f, f.get(op.acc), register.layout)
    flight = f.body.add(cta.Product(a, b, type=out, acc=acc), op.out.name).out
    f.body.add(cta.Commit())
    f.flying.append(op)
    if len(used) == 2 and _is_continued(f, op):
        f.values[op.out] = flight
        return
    f.over.update(f.flying)
    f.flying.clear()
    settled = f.body.add(cta.Settle((flight,), pending=0), op.out.name).settled[0]
    if used or isinstance(acc.type, Flight):
        f.sync()
    f.values[op.out] = settled


def _wgmma_refusal(f: Forming, op: tile.Dot) -> str | None:
    types, depth = (op.a.type.dtype, op.b.type.dtype), int(op.a.type.shape[1])
    return wgmma_refusal(f.ctx, *types, depth, f.frames.frame(op.out), f.team)


def _is_continued(f: Forming, op: tile.Dot) -> bool:
    """Whether a product is only added to, by another wgmma, with no control between."""
    later = users(f.kernel.body, op.out)
    if len(later) != 1 or not isinstance(later[0], tile.Dot):
        return False
    if op.out in (later[0].a, later[0].b):
        return False
    regions = (r for inner in f.kernel.body.walk() for r in inner.regions)
    ops = next((r.ops for r in regions if op in r.ops), [])
    if later[0] not in ops:
        return False
    if _wgmma_refusal(f, later[0]) is not None:
        return False
    between = ops[ops.index(op) + 1 : ops.index(later[0])]
    pure = (math.Elementwise, math.Cast, math.Constant, tile.Transpose, tile.Pad, tile.Dot)
    return all(isinstance(inner, pure) for inner in between)


def _operand(
    f: Forming, op: tile.Dot, value: Value[Any], which: str, used: list[bool]
) -> Value[Shared]:
    """The shared view of an operand: (rows of this group, K) for a, (N, K) for b.

    ``used`` gets an entry for an operand in a buffer: whether it was written just now.
    """
    source, flipped = source_of(value)
    flip = flipped if which == "a" else not flipped
    if source in f.parts:
        slot, number = f.parts[source]
        view = f.body.add(cta.Part(slot, index=number), source.name).out
        split = f.team.groups > 1 and which == "a"
    else:
        summed = 1 if flipped == (which == "b") else 0
        key = ("operand", which, source, summed)
        used.append(key not in f.memo)
        if key not in f.memo:
            f.memo[key] = _put_operand(f, source, which, summed)
            f.put_in[f.memo[key]] = f.body.region
        view = f.memo[key]
        split = False
    if flip:
        view = _turned(f, view)
    if split:
        view = f.body.add(cta.Window(view, f.group, rows=f.team.rows)).out
    return view


def _check_descriptor(op: tile.Dot, view: Value[Shared], which: str) -> None:
    layout = view.type.layout
    try:
        matrix_descriptor(
            layout if which == "a" else layout.transpose(), view.type.dtype.bits, which
        )
    except (LayoutError, LayoutRefusal) as error:
        raise refused(op, str(error)) from None


def put_early(f: Forming, op: Op, region: Region, uses: Uses) -> None:
    """Write what only wgmmas of inner loops take to its buffers where it is made, once."""
    value = op.results[0] if len(op.results) == 1 else None
    if value is None or not isinstance(value.type, Tile) or value in f.parts:
        return
    made = value in f.values or isinstance(op, tile.Load)
    if isinstance(op, tile.Transpose) or not made or not feeds_only_products(value, uses):
        return
    dots = _dots_of(region, value)
    if any(dot in region.ops or _wgmma_refusal(f, dot) is not None for dot in dots):
        return
    places = {
        (which, 1 if flipped == (which == "b") else 0)
        for dot in dots
        for which, operand in (("a", dot.a), ("b", dot.b))
        for source, flipped in (source_of(operand),)
        if source is value
    }
    f.body.loc = op.loc
    for which, summed in sorted(places):
        view = _put_operand(f, value, which, summed)
        f.memo["operand", which, value, summed], f.put_in[view] = view, f.body.region
    f.body.add(cta.Publish())
    f.sync()


def _takes(dot: tile.Dot, value: Value[Any]) -> bool:
    return value in (source_of(dot.a)[0], source_of(dot.b)[0])


def _free_buffer(f: Forming, which: str, type: Shared, name: str) -> Value[Shared]:
    """The first of an operand's buffers that holds nothing which products will read again.

    What an outer region has put is read in every round; what this one has, until its products are
    over. Regions beside one another share buffers.
    """
    held = set()
    for key, view in f.memo.items():
        if key[0] == "operand" and not (
            f.put_in.get(view) is f.body.region
            and all(dot in f.over for dot in _dots_of(f.kernel.body, key[2]))
        ):
            held.add(_behind(view))
    buffers = (f.buffer((which, number), type, name) for number in range(len(held) + 1))
    return next(buffer for buffer in buffers if buffer not in held)


def _dots_of(region: Region, source: Value[Any]) -> list[tile.Dot]:
    return [dot for dot in region.walk() if isinstance(dot, tile.Dot) and _takes(dot, source)]


def _behind(view: Value[Any]) -> Value[Any]:
    """The buffer that a view looks into."""
    while isinstance(view.owner, cta.TransposeView | cta.Window):
        view = view.owner.x
    return view


def _turned(f: Forming, view: Value[Shared]) -> Value[Shared]:
    """A view with its axes exchanged; one that was exchanged before is what it was."""
    if isinstance(view.owner, cta.TransposeView):
        return view.owner.x
    return f.body.add(cta.TransposeView(view)).out


def _put_operand(f: Forming, source: Value[Any], which: str, summed: int) -> Value[Shared]:
    """Write a computed operand to a buffer; the view of it as the source is.

    ``summed`` is the axis of the source that the product sums over. Each group has a block of the
    buffer to itself, so that no group waits for another.
    """
    type = source.type
    shape = tuple(1 if c is None else f.frames.size(c) for c in f.axes.all_of(source))
    load = source.owner if source not in f.values else None
    along: int | None = 1
    if isinstance(load, tile.Load):
        along = contiguous_axis(f.ctx, load.array, tile_axes(load.subscripts))
    # The buffer's rows run along memory; or along K, where wgmma reads nothing else or groups have
    # blocks of rows.
    free = either_axis(type.dtype) and f.team.groups == 1
    turned = along == 0 if free else summed == 0
    rows, columns = shape[::-1] if turned else shape
    swizzle = f.swizzles.get(source)
    layout = shared_layout((rows * f.team.groups, columns), type.dtype, 1, swizzle)
    shared = Shared(type.dtype, layout.shape, layout)
    buffer = _free_buffer(f, which, shared, source.name or which)
    if f.team.groups > 1:
        buffer = f.body.add(cta.Window(buffer, f.group, rows=rows)).out
    if isinstance(load, tile.Load):
        own = (rows, columns)
        value = _read_rows(f, load, own, turned, across=along == (1 if turned else 0))
        f.body.add(cta.Put(buffer, value, instruction="store"))
    else:
        view = _turned(f, buffer) if turned else buffer
        f.body.add(cta.Put(view, f.get(source), instruction="store"))
        return view
    return _turned(f, buffer) if turned else buffer


def _read_rows(
    f: Forming, load: tile.Load, shape: tuple[int, int], turned: bool, *, across: bool
) -> Value[Register]:
    """Read an operand as its buffer's rows want it, which may lie ``across`` memory."""
    dtype = load.out.type.dtype
    vector = 16 // dtype.bytes
    if across:
        layout = turning(shape[0], shape[1], f.team.threads, vector)
    else:
        layout = blocked(shape, f.team.threads, vector, dtype.bits)
    place = f.place(load.subscripts, whole=False)
    axes = tile_axes(load.subscripts)
    bounded = f.bounded(load.subscripts)
    if turned:
        axes, bounded = axes[::-1], tuple(sorted(1 - a for a in bounded))
    facts = f.ctx.facts.array(load.array.name)
    known = facts is not None and facts.unit_axis == axes[-1]
    in_memory = load.array.type.dtype.elements_in(facts.alignment) if facts else 1
    width = min(vector, max(1, in_memory)) if known else 1
    width = aligned_start(f.ctx, load.subscripts[axes[-1]], width)
    made = cta.Read(
        load.array,
        tuple(place),
        axes=axes,
        type=Register(dtype, shape, layout),
        bounded=bounded,
        vector=width,
    )
    return f.body.add(made, load.out.name).out
