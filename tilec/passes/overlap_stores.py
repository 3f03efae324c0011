"""Let stores read shared memory while the kernel goes on.

Three laws. A wait for stores moves down to the next write of the memory that they read: nothing in
between can notice. A piece of a tile may be computed after the tile is cut instead of before, since
elementwise work and slices commute: fewer registers live at once. And a slice of a read is a read
of the slice, which may wait for as long as nothing writes what it reads.

With two halves of the staging for each group, used in turn, a piece is written while the store of
the piece before still reads; the wait then leaves as many stores pending as were started since
the half was last used. Where shared memory has no room for a second half, one is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.levels import cta, math, memory
from tilec.ir.places import Linear, linear
from tilec.ir.types import Extent, Register, Scalar, Shared
from tilec.layout.linear import LayoutError, LayoutRefusal
from tilec.layout.shared import stripes, swizzle_of, swizzled
from tilec.passes.base import Context, tile_pass
from tilec.passes.frames import slice_of
from tilec.passes.place_shared import object_bytes, total_bytes
from tilec.passes.raster import constant
from tilec.passes.simplify import tidy

HALVES = 2


@dataclass
class Passage:
    """One piece on its way out: written, published, stored, waited for."""

    put: cta.Put
    store: cta.StoreTile
    drain: cta.DrainStores
    after: cta.Sync
    region: Region


def _root(view: Value[Any]) -> Value[Any]:
    while isinstance(view.owner, cta.Window | cta.TransposeView):
        view = view.owner.x
    return view


def passages(region: Region, buffer: Value[Any]) -> list[Passage]:
    """All pieces that leave through a buffer, in text order."""
    found: list[Passage] = []
    ops = region.ops
    for at, op in enumerate(ops):
        for nested in op.regions:
            found.extend(passages(nested, buffer))
        if not isinstance(op, cta.Put) or _root(op.target) is not buffer:
            continue
        tail = [o for o in ops[at + 1 :] if o.name.startswith("cta.")]
        kinds = [type(o) for o in tail[:5]]
        if kinds == [cta.Publish, cta.Sync, cta.StoreTile, cta.DrainStores, cta.Sync]:
            _, _, store, drain, after = tail[:5]
            found.append(Passage(op, store, drain, after, region))  # type: ignore[arg-type]
    return found


def _users(kernel: Kernel, buffer: Value[Any]) -> list[Op]:
    users: list[Op] = []
    for op in kernel.body.walk():
        if isinstance(op, cta.Put | cta.Get | cta.StoreTile | cta.Product | cta.Exchange) and any(
            isinstance(v.type, Shared) and _root(v) is buffer for v in op.operands
        ):
            users.append(op)
    return users


def _pending(count: int, position: int, halves: int) -> int:
    """Stores started since the half of this passage was last used, in the endless sequence."""
    for since in range(count):
        earlier = (position - 1 - since) % count
        if earlier % halves == position % halves:
            return since
    return 0


def _overlap(kernel: Kernel, role: cta.Role, op: cta.Buffer, limit: int) -> int:
    """Overlap the stores through one buffer; the halves used, 0 if its use is another."""
    buffer = op.out
    found = passages(role.body, buffer)
    used = [u for p in found for u in (p.put, p.store)]
    if not found or set(used) != set(_users(kernel, buffer)):
        return 0
    if len({id(p.region) for p in found}) > 1 or any(p.drain.pending for p in found):
        return 0
    groups = role.warps // role.group
    rows = int(found[0].store.x.type.shape[0])
    room = total_bytes(kernel) + object_bytes(op) <= limit
    halves = HALVES if room and len(found) > 1 and double_rows(op, groups) else 1
    body = found[0].region
    kept: list[Op] = []
    dropped = {o for p in found for o in (p.drain, p.after)}
    by_put = {p.put: n for n, p in enumerate(found)}
    by_store = {p.store: n for n, p in enumerate(found)}
    blocks: dict[int, Value[Any]] = {}
    for inner in body.ops:
        if inner in dropped:
            continue
        if isinstance(inner, cta.Put) and inner in by_put:
            number = by_put[inner]
            lead = Builder(Region())
            lead.loc = inner.loc
            half = number % halves
            if halves > 1 and half not in blocks:
                blocks[half] = _block(lead, buffer, role.body.args[0], half, rows)
            pending = _pending(len(found), number, halves)
            lead.add(cta.DrainStores(pending=pending))
            after = found[number].after
            lead.add(cta.Sync(after.group, barrier=after.barrier, threads=after.threads))
            kept.extend(lead.region.ops)
            if halves > 1:
                inner.target = blocks[half]
        elif isinstance(inner, cta.StoreTile) and inner in by_store and halves > 1:
            inner.x = blocks[by_store[inner] % halves]
        kept.append(inner)
    body.ops = kept
    return halves


def double_rows(op: cta.Buffer, groups: int) -> bool:
    """Give a buffer a second block of rows for each group, if its layout allows."""
    type = op.type
    if not isinstance(type, Shared):
        return False
    try:
        shape = stripes(type.layout)
        if shape.contiguous_axis != 1 or shape.count != 1 or shape.rows % groups:
            return False
        layout = swizzled(
            shape.rows * HALVES, shape.width, type.dtype.bits, swizzle_of(type.layout)
        )
    except (LayoutError, LayoutRefusal):
        return False
    op.type = replace(type, shape=layout.shape, layout=layout)
    op.out.type = op.type
    return True


def _block(
    builder: Builder, buffer: Value[Shared], group: Value[Scalar], half: int, rows: int
) -> Value[Shared]:
    two = constant(builder, HALVES)
    block = builder.add(math.Mul(group, two)).out
    if half:
        block = builder.add(math.Add(block, constant(builder, half))).out
    return builder.add(cta.Window(buffer, block, rows=rows), buffer.name).out


def cut_early(region: Region) -> None:
    """Cut tiles before the work on them wherever nobody needs the whole."""
    while True:
        uses = rewrite.uses(region)

        def rule(
            op: Op, builder: Builder, uses: dict[Value[Any], list[Op]] = uses
        ) -> list[Value[Any]] | None:
            if not isinstance(op, cta.Slice):
                return None
            users = uses.get(op.x, [])
            # Whoever needs the whole tile would have the work done twice.
            if not users or not all(isinstance(user, cta.Slice) for user in users):
                return None
            return cut_first(op, builder)

        if not rewrite.apply(region, rule):
            return
        rewrite.remove_dead(region)
        # What has several users is cut once for all of them, before the work behind it is.
        rewrite.remove_duplicates(region)


def cut_first(op: cta.Slice, builder: Builder) -> list[Value[Any]] | None:
    """slice(f(x, ...)) = f(slice(x), ...) where f works on each element alone."""
    if not isinstance(op.type, Register):
        return None
    inner = op.x.owner
    builder.loc = inner.loc if isinstance(inner, Op) else op.loc
    if isinstance(inner, math.Elementwise | math.Cast):
        operands = [_cut(builder, v, op) for v in inner.operands]
        made = type(inner).from_parts(operands, inner.attributes, [], [op.type])
        return [builder.add(made).results[0]]
    if isinstance(inner, math.Fill):
        return [builder.add(math.Fill(inner.x, type=op.type)).out]
    if isinstance(inner, math.Broadcast):
        spread = inner.x.type.shape[op.axis] != inner.out.type.shape[op.axis]
        x = inner.x if spread else _cut(builder, inner.x, op)
        return [builder.add(math.Broadcast(x, type=op.type)).out] if x is not None else None
    if isinstance(inner, math.Expand) and inner.axis != op.axis:
        layout = op.type.layout.drop(inner.axis)
        kind = Register(op.type.dtype, layout.shape, layout)
        axis = op.axis - (inner.axis < op.axis)
        x = builder.add(cta.Slice(inner.x, axis=axis, start=op.start, type=kind)).out
        return [builder.add(math.Expand(x, axis=inner.axis, type=op.type)).out]
    if isinstance(inner, cta.Read) and _undisturbed(inner, op, builder.region):
        return [_read_piece(builder, inner, op)]
    return None


Box = list[tuple[Linear, int]]
"""Where a tile of an array starts and how far it reaches, by array axis."""


def _box(origin: Sequence[Value[Any]], axes: Sequence[int], shape: Sequence[Extent]) -> Box:
    extents = {axis: int(extent) for axis, extent in zip(axes, shape, strict=True)}
    return [(linear(start), extents.get(axis, 1)) for axis, start in enumerate(origin)]


def _undisturbed(read: cta.Read, piece: cta.Slice, region: Region) -> bool:
    """Whether a piece may be read where it is cut: nothing since the read has written to it.

    ``region`` ends where the piece is cut. Arrays that overlap are refused at the launch, so only
    writes to the same array count; they are apart where, along some axis, they start from the same
    value and do not reach each other.
    """
    if read.array.type.mode == "in":
        return True
    if read not in region.ops:
        return False
    wanted = _box(read.origin, read.axes, piece.out.type.shape)
    axis = read.axes[piece.axis]
    (terms, start), extent = wanted[axis]
    wanted[axis] = (terms, start + piece.start), extent
    for op in region.ops[region.ops.index(read) + 1 :]:
        for inner in (op, *(o for nested in op.regions for o in nested.walk())):
            if isinstance(inner, cta.Write) and inner.array is read.array:
                place = inner.origin[: len(read.origin)]
                written = _box(place, inner.axes, inner.value.type.shape)
            elif isinstance(inner, cta.StoreTile) and _stored(inner) is read.array:
                written = _box(inner.origin, inner.axes, inner.x.type.shape)
            elif isinstance(inner, memory.PLACE_WRITES) and inner.array is read.array:
                return False
            else:
                continue
            if not _apart(wanted, written):
                return False
    return True


def _stored(op: cta.StoreTile) -> Value[Any] | None:
    made = op.target.owner
    return made.array if isinstance(made, cta.TensorMapOf) else None


def _apart(one: Box, other: Box) -> bool:
    return any(
        mine[0] == theirs[0] and (mine[1] + reach <= theirs[1] or theirs[1] + far <= mine[1])
        for (mine, reach), (theirs, far) in zip(one, other, strict=True)
    )


def _cut(builder: Builder, value: Value[Any], like: cta.Slice) -> Value[Any]:
    """The piece of an operand that meets a slice; scalars meet every element."""
    if not isinstance(value.type, Register) or not isinstance(like.type, Register):
        return value
    layout = like.type.layout
    if value.type.layout.shape != like.x.type.layout.shape:
        spread = [
            a
            for a, (s, t) in enumerate(zip(value.type.shape, like.type.shape, strict=True))
            if a != like.axis and s != t
        ]
        for axis in spread:
            layout = slice_of(layout, [axis]).insert(axis)
    kind = Register(value.type.dtype, layout.shape, layout)
    piece = cta.Slice(value, axis=like.axis, start=like.start, type=kind)
    return builder.add(piece, value.name).out


def _read_piece(builder: Builder, read: cta.Read, like: cta.Slice) -> Value[Any]:
    """A slice of what is read is read alone, from further along."""
    origin = list(read.origin)
    if like.start:
        axis = read.axes[like.axis]
        ahead = constant(builder, like.start)
        origin[axis] = builder.add(math.Add(origin[axis], ahead)).out
    made = cta.Read(
        read.array,
        tuple(origin),
        axes=read.axes,
        type=like.type,
        bounded=read.bounded,
        vector=read.vector,
        fill=read.fill,
    )
    return builder.add(made, read.out.name).out


@tile_pass("overlap-stores", level="cta")
def overlap_stores(kernel: Kernel, ctx: Context) -> None:
    """Nothing waits for a store before the memory that it reads is needed again."""
    cut_early(kernel.body)
    buffers = [op for op in kernel.body.ops if isinstance(op, cta.Buffer)]
    for role in [op for op in kernel.body.ops if isinstance(op, cta.Role)]:
        done = 0
        for op in buffers:
            halves = _overlap(kernel, role, op, ctx.target.shared_per_cta)
            done += halves
            if halves:
                ctx.remark(role, f"%{op.out.name} has {halves} halves a group, used in turn")
        if done:
            role.body.ops.append(cta.DrainStores(pending=0))
    tidy(kernel.body)
