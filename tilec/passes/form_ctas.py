"""Give the tiles of the grid to CTAs, and the values of a tile to the warps of a CTA.

One parallel loop becomes a grid: tiles are numbered by ``raster``, and a CTA takes one tile or,
when persistent, every n-th. One role holds everything, in the order of the program and waiting for
everything at once; later passes split and overlap it. Register layouts come from ``frames``,
products from ``form_products``, and elementwise work stays what it is, op by op.

An edge costs only where it can occur: an axis whose extent provably divides is not bounded, and a
kernel without products asks once whether its tile lies inside the arrays and then has no masks
(law: what a branch has decided need not be asked again inside it). Tiles
loaded from outside the array hold zeros (``loads fill with zero``), which ``fill-padding`` relies
on. What cannot be formed is refused at its source line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

from tilec.ir import rewrite
from tilec.ir.clusters import ALONE
from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.facts import Schedule
from tilec.ir.levels import cta, flow, math, parts, tile
from tilec.ir.types import BOOL, S32, Index, Register, Scalar, Tile
from tilec.passes import clusters, form_checks, form_places, form_scans  # noqa: F401  (forms)
from tilec.passes.axes import Axes, AxisClass, combined_axis, combined_tiles
from tilec.passes.base import Context, tile_pass
from tilec.passes.check_schedule import check_schedule
from tilec.passes.crossings import array_of, crossed_arrays, late_accesses
from tilec.passes.fit_tiles import fit_elements, fit_products
from tilec.passes.form_products import (
    check_swizzles,
    fill_stage,
    find_stage,
    form_dot,
    put_early,
)
from tilec.passes.form_stores import form_store
from tilec.passes.form_tiles import FORMS, elementwise, in_layout, read_turned
from tilec.passes.forming import Forming, outliving
from tilec.passes.frames import (
    WARPGROUP_WARPS,
    Frames,
    Team,
    access_vector,
    only_transposed,
    warps_per_row,
)
from tilec.passes.homes import check_homes, keep_homes, operand_swizzles, take_homes
from tilec.passes.pinned_layouts import pin_layouts, team_of_pins
from tilec.passes.raster import constant, places, product
from tilec.passes.refusal import refused
from tilec.passes.simplify import tidy
from tilec.passes.tensor_cores import product_team, shared_rows

Uses = dict[Value[Any], list[Op]]


def choose_team(ctx: Context, axes: Axes, region: Region, schedule: Schedule) -> Team:
    """How warps share the tiles: by rows of products, by whole rows, or all together."""
    dots = [op for op in region.walk() if isinstance(op, tile.Dot)]
    if dots:
        return product_team(axes, dots, schedule.warpgroups, shared_rows(axes, region))
    warps = WARPGROUP_WARPS * (schedule.warpgroups or 1)
    if crossed_arrays(region) or any(_is_update(op) for op in region.walk()):
        return Team(warps, 1, None, 0)
    for op in region.walk():
        tiles, axis = combined_tiles(op)
        if axis == 1 and len(tiles[0].type.shape) == 2:
            across, along = axes.of(tiles[0], 0), axes.of(tiles[0], 1)
            if across is not None and along is not None:
                return _row_team(ctx, axes, region, warps, across, along)
    return Team(warps, 1, None, 0)


def _is_update(op: Op) -> bool:
    return isinstance(op, tile.Atomic | tile.CompareExchange)


def _row_team(
    ctx: Context, axes: Axes, region: Region, warps: int, across: AxisClass, along: AxisClass
) -> Team:
    """Groups of the fewest warps that hold a row; each group takes its share of the rows."""
    if not isinstance(across.size, int) or not isinstance(along.size, int):
        raise Refused(f"the sizes of {across.name} and {along.name} are not chosen yet")
    combined = any(combined_axis(axes, op) is across for op in region.walk())
    each = warps_per_row(along.size, warps)
    vector = access_vector(ctx, axes, region, along)
    while each > 1 and along.size % (32 * each * vector):
        each //= 2
    groups = gcd(warps // each, across.size)
    if combined or groups == 1:
        return Team(warps, 1, None, 0)
    return Team(warps // groups, groups, across, across.size // groups)


# --- ops ----------------------------------------------------------------------------------------


def _region(
    f: Forming, region: Region, uses: Uses, stages: int, formed: set[Op] | None = None
) -> None:
    """All ops of a region that are not formed yet, the loads of its stage first."""
    stage = find_stage(f, region, uses)
    ring = slot = None
    done: set[Op] = set(formed or ())
    if stage is not None:
        for op in region.ops:
            if op in stage.needs and op not in done:
                _op(f, op, uses)
                done.add(op)
        ring, slot = fill_stage(f, stage, stages)
        done.update(stage.loads)
    for op in region.ops:
        if op in done or op.is_terminator:
            continue
        _op(f, op, uses)
        put_early(f, op, region, uses)
        if stage is not None and op is stage.last_use:
            f.body.add(cta.Release(ring, slot))  # type: ignore[arg-type]
            f.held.discard(ring)


def _op(f: Forming, op: Op, uses: Uses) -> None:
    f.body.loc = op.loc
    try:
        if array_of(op) in f.crossed:
            _wait_for_others(f)
        elif op in f.late and not _waited_since(f, op.array):  # type: ignore[attr-defined]
            f.sync()
        if isinstance(op, tile.ForTiles):
            _for_tiles(f, op, uses)
        elif isinstance(op, flow.For):
            _for(f, op, uses)
        elif isinstance(op, flow.While):
            _while(f, op, uses)
        elif isinstance(op, flow.If):
            _if(f, op, uses)
        elif isinstance(op, tile.Dot):
            form_dot(f, op)
        elif isinstance(op, tile.Store):
            form_store(f, op)
        elif isinstance(op, tile.Load) and isinstance(op.out.type, Tile):
            if not _only_products(op, uses):
                _load(f, op, uses.get(op.out, []))
        elif type(op) in FORMS:
            FORMS[type(op)](f, op)
        elif isinstance(op, math.Elementwise | math.Cast | math.Constant):
            elementwise(f, op)
        else:
            raise Refused(f"{op.name} is not formed in this version")
        _lay(f, op)
        keep_homes(f, op)
    except Refused as refusal:
        if str(refusal).startswith("line ") or op.loc is None:
            raise
        raise refused(op, str(refusal)) from None


def _lay(f: Forming, op: Op) -> None:
    """Results whose layout the op fixes lie as the author pinned them all the same."""
    for value in op.results:
        if value in f.frames.pinned and value in f.values:
            f.values[value] = in_layout(f, f.values[value], f.frames.pinned[value])


def _wait_for_others(f: Forming) -> None:
    """What other threads did to an array in this iteration comes before what is done now."""
    if f.team.groups > 1:
        raise Refused(
            "an array that is written, and accessed at computed places too, needs its warps in "
            "one group: pin warpgroups = 1"
        )
    f.sync()


def _waited_since(f: Forming, array: Value[Any]) -> bool:
    """Whether all warps have met since the last access of an array."""
    for op in reversed(f.body.region.ops):
        if isinstance(op, cta.Sync):
            return True
        if op.regions or array in op.operands:
            return False
    return False


def _load(f: Forming, op: tile.Load, users: list[Op]) -> None:
    """Read a tile as its users want it, before anything that comes later writes there."""
    for user in users:
        if isinstance(user, tile.Transpose):
            read_turned(f, user, op)
    if not only_transposed(users):
        f.values[op.out] = f.read(op, f.frames.register(op.out))


def _only_products(op: tile.Load, uses: Uses) -> bool:
    from tilec.passes.form_products import feeds_only_products

    return feeds_only_products(op.out, uses)


def _carried(f: Forming, value: Value[Any]) -> Any:
    return f.frames.register(value) if isinstance(value.type, Tile) else value.type


def _as_carried(
    f: Forming, values: Sequence[Value[Any]], types: Sequence[Any]
) -> tuple[Value[Any], ...]:
    """Values in the layouts that they are handed on in."""
    return tuple(
        in_layout(f, f.get(v), t.layout) if isinstance(t, Register) else f.get(v)
        for v, t in zip(values, types, strict=True)
    )


def _loop(
    f: Forming,
    op: tile.ForTiles | flow.For,
    bounds: tuple[Value[Scalar], Value[Scalar], Value[Scalar]],
    uses: Uses,
) -> None:
    """A loop with the same carried values; both kinds differ in their bounds only."""
    head = op.body.args[0]
    body = Region()
    index = body.add_arg(Scalar(S32), head.name)
    for arg in op.body.args[1:]:
        f.values[arg] = body.add_arg(_carried(f, arg), arg.name)
    if isinstance(head.type, Index):
        f.origins[head] = index
    else:
        f.values[head] = index
    types = [arg.type for arg in body.args[1:]]
    init = _as_carried(f, op.init, types)
    memo, f.memo = f.memo, dict(f.memo)
    with f.body.inside(body):
        _region(f, op.body, uses, f.schedule.stages or 2)
        f.body.loc = op.loc
        f.body.add(flow.Yield(_as_carried(f, flow.yielded(op.body), types)))
    f.memo = outliving(memo, f.memo)
    made = f.body.add(flow.For(*bounds, init, body=body))
    for old, new in zip(op.finals, made.finals, strict=True):
        new.name = old.name
        f.values[old] = new


def _for_tiles(f: Forming, op: tile.ForTiles, uses: Uses) -> None:
    if not isinstance(op.size, int):
        raise Refused(f"no size was chosen for {op.size}")
    step = constant(f.body, op.size)
    upper = f.get(op.extent)
    lower = constant(f.body, 0)
    if isinstance(op, tile.ForShare):
        lower, upper = _share(f, op, upper, step)
    elif isinstance(op, parts.ForPart):
        lower, upper = f.get(op.lower), f.get(op.upper)
        if op.full:
            f.without_edge.add(op.body.args[0])
    _loop(f, op, (lower, upper, step), uses)


def _share(
    f: Forming, op: tile.ForShare, extent: Value[Scalar], step: Value[Scalar]
) -> tuple[Value[Scalar], Value[Scalar]]:
    """Where a share of a loop's tiles begins and ends."""
    count = f.body.add(math.CeilDiv(extent, step), "tiles").out
    each = f.body.add(math.CeilDiv(count, constant(f.body, op.count))).out
    length = f.body.add(math.Mul(each, step), "length").out
    lower = f.body.add(math.Mul(f.get(op.share), length), "begin").out
    end = f.body.add(math.Add(lower, length)).out
    return lower, f.body.add(math.Min(end, extent), "end").out


def _for(f: Forming, op: flow.For, uses: Uses) -> None:
    _loop(f, op, (f.get(op.lower), f.get(op.upper), f.get(op.step)), uses)


def _while(f: Forming, op: flow.While, uses: Uses) -> None:
    """A loop whose condition all threads compute alike."""
    types = [_carried(f, v) for v in op.test.args]
    init = _as_carried(f, op.init, types)
    regions = []
    outer, f.repeating = f.repeating, True
    for source in (op.test, op.body):
        body = Region()
        for arg in source.args:
            f.values[arg] = body.add_arg(_carried(f, arg), arg.name)
        memo, f.memo = f.memo, dict(f.memo)
        with f.body.inside(body):
            _region(f, source, uses, 1)
            f.body.loc = op.loc
            ends = [Scalar(BOOL)] if source is op.test else types
            f.body.add(flow.Yield(_as_carried(f, flow.yielded(source), ends)))
        f.memo = outliving(memo, f.memo)
        regions.append(body)
    f.repeating = outer
    made = f.body.add(flow.While(init, test=regions[0], body=regions[1]))
    for old, new in zip(op.finals, made.finals, strict=True):
        new.name = old.name
        f.values[old] = new


def _if(f: Forming, op: flow.If, uses: Uses) -> None:
    regions = []
    types = tuple(_carried(f, v) for v in op.out)
    for source in (op.then, op.otherwise):
        body = Region()
        memo, f.memo = f.memo, dict(f.memo)
        with f.body.inside(body):
            _region(f, source, uses, 1)
            f.body.add(flow.Yield(_as_carried(f, flow.yielded(source), types)))
        f.memo = outliving(memo, f.memo)
        regions.append(body)
    made = f.body.add(
        flow.If(
            f.get(op.condition), types=types, then=regions[0], otherwise=regions[1], cold=op.cold
        )
    )
    for old, new in zip(op.out, made.out, strict=True):
        new.name = old.name
        f.values[old] = new


# --- the kernel ---------------------------------------------------------------------------------


def _grid(f: Forming, loop: tile.Parallel) -> tuple[list[Value[Scalar]], Value[Scalar]]:
    """Tiles along each axis and in all; the number of CTAs is left in the kernel."""
    f.top.loc = loop.loc
    counts = []
    for extent, size, arg in zip(loop.extents, loop.sizes, loop.body.args, strict=True):
        whole = f.get(extent)
        if size == 0:
            counts.append(whole)
            continue
        if not isinstance(size, int):
            raise refused(loop, f"no size was chosen for {size}")
        by = constant(f.top, size)
        counts.append(f.top.add(math.CeilDiv(whole, by), f"tiles_{arg.name}").out)
    if not counts:
        raise refused(loop, "a parallel loop needs an axis")
    counts = clusters.blocks(f, counts)
    total = product(f.top, counts, "total")
    ctas = total
    if f.schedule.persistent:
        sms = constant(f.top, f.ctx.target.sms // (f.cluster[0] * f.cluster[1]), "sms")
        ctas = f.top.add(math.Min(total, sms), "ctas").out
    if f.cluster != ALONE:
        ctas = clusters.ctas_of(f, ctas)
    f.top.add(cta.Grid(ctas))
    return counts, total


def _one_tile(
    f: Forming, loop: tile.Parallel, number: Value[Scalar], counts: list[Value[Scalar]], uses: Uses
) -> None:
    f.body.loc = loop.loc
    both = len(loop.sizes) >= 2 and all(loop.sizes[-2:])
    group = max(1, (f.schedule.group or 1) // f.cluster[0]) if both else 1
    found = clusters.own_places(f, places(f.body, number, counts, group))
    for arg, size, place in zip(loop.body.args, loop.sizes, found, strict=True):
        if size == 0:
            f.values[arg] = place
            continue
        step = constant(f.body, int(size))
        f.origins[arg] = f.body.add(math.Mul(place, step), arg.name).out
    stages = 2 if f.schedule.persistent else 1
    done = _ranges(f, loop, uses)
    if not done:
        _paths(f, loop, uses, stages, done)
        return
    body = Region()
    condition = _any_left(f, loop)
    memo, f.memo = f.memo, dict(f.memo)
    with f.body.inside(body):
        _paths(f, loop, uses, stages, done)
        f.body.loc = loop.loc
        f.body.add(flow.Yield(()))
    f.memo = outliving(memo, f.memo)
    idle = Region([], [flow.Yield(())])
    f.body.add(flow.If(condition, types=(), then=body, otherwise=idle))


def _ranges(f: Forming, loop: tile.Parallel, uses: Uses) -> set[Op]:
    """Form what cuts the grid's tiles to ranges, and what that needs: it is done by then."""
    args = set(loop.body.args)
    heads = [op for op in loop.body.ops if isinstance(op, tile.Within) and op.index in args]
    cuts: set[Op] = set(heads)
    wanted = {v for op in heads for v in op.operands}
    for op in reversed(loop.body.ops):
        if wanted & set(op.results):
            cuts.add(op)
            wanted.update(op.operands)
    for op in loop.body.ops:
        if op in cuts:
            _op(f, op, uses)
    return cuts


def _any_left(f: Forming, loop: tile.Parallel) -> Value[Scalar]:
    """Whether ranges leave anything of the tile at hand."""
    f.body.loc = loop.loc
    total: Value[Scalar] | None = None
    for index, end in list(f.limits.items()):
        start = f.origins[index]
        left = f.body.add(math.Compare(start, end, relation="lt"), "any").out
        total = left if total is None else f.body.add(math.And(total, left), "any").out
    assert total is not None
    return total


def _paths(f: Forming, loop: tile.Parallel, uses: Uses, stages: int, done: set[Op]) -> None:
    """The body, twice where a tile that is full needs no masks."""
    ragged = [] if f.team.multiplies else _ragged(f, loop)
    if not ragged:
        _region(f, loop.body, uses, stages, done)
        return
    condition = _all_inside(f, loop, ragged)
    names = ", ".join(index.name or str(index.type.extent) for _, index in ragged)
    f.ctx.remark(
        loop,
        f"two paths: a tile that is full along {names} runs without masks, one at an edge with "
        "them; one comparison a tile chooses",
    )
    regions = []
    for full in (frozenset(a for a, _ in ragged), frozenset[AxisClass]()):
        body = Region()
        memo, f.memo, f.full = f.memo, dict(f.memo), full
        with f.body.inside(body):
            _region(f, loop.body, uses, stages, done)
            f.body.loc = loop.loc
            f.body.add(flow.Yield(()))
        f.memo, f.full = outliving(memo, f.memo), frozenset()
        regions.append(body)
    f.body.add(flow.If(condition, types=(), then=regions[0], otherwise=regions[1]))


def _ragged(f: Forming, loop: tile.Parallel) -> list[tuple[AxisClass, Value[Index]]]:
    """The axes that one CTA's tile has and along which it may be partial."""
    wholes = [op.out for op in loop.body.ops if isinstance(op, tile.Whole)]
    found: dict[AxisClass, Value[Index]] = {}
    # A range goes first: that its tile is full says it of the loop's tile as well.
    for index in (*f.limits, *loop.body.args, *wholes):
        if isinstance(index.type, Index) and f.ragged(index):
            axis = f.axes.of(index, 0)
            if axis is not None:
                found.setdefault(axis, index)
    return list(found.items())


def _all_inside(
    f: Forming, loop: tile.Parallel, ragged: list[tuple[AxisClass, Value[Index]]]
) -> Value[Scalar]:
    """Whether the whole tile lies inside the arrays: then it needs no masks at all."""
    f.body.loc = loop.loc
    total: Value[Scalar] | None = None
    for _, index in ragged:
        end: Value[Scalar] = constant(f.body, int(index.type.size))
        if index in f.origins:
            end = f.body.add(math.Add(f.origins[index], end)).out
        inside = f.body.add(math.Compare(end, f.limit(index), relation="le"), "inside").out
        total = inside if total is None else f.body.add(math.And(total, inside), "full").out
    assert total is not None
    return total


def _role(f: Forming, loop: tile.Parallel, uses: Uses) -> None:
    counts, total = _grid(f, loop)
    index, stride = clusters.numbering(f)
    if not f.schedule.persistent:
        _one_tile(f, loop, index, counts, uses)
        return
    body = Region()
    number = body.add_arg(Scalar(S32), "tile")
    with f.body.inside(body):
        _one_tile(f, loop, number, counts, uses)
        f.body.add(flow.Yield(()))
    f.body.loc = loop.loc
    f.body.add(flow.For(index, total, stride, (), body=body))


@tile_pass("form-ctas", level="tile", produces="cta")
def form_ctas(kernel: Kernel, ctx: Context) -> None:
    """CTAs own tiles, warps own registers; one role does everything in order."""
    loops = [op for op in kernel.body.ops if isinstance(op, tile.Parallel)]
    if len(loops) != 1:
        second = loops[1] if loops else None
        raise refused(second, "one parallel loop a kernel is formed in this version")
    (loop,) = loops
    schedule = Schedule.from_attributes(kernel.schedule)
    homes = take_homes(kernel)
    schedule = operand_swizzles(ctx, schedule, rewrite.uses(kernel.body), homes)
    ctx.schedule, kernel.schedule = schedule, schedule.as_attributes()
    axes = Axes(kernel.body)
    check_schedule(kernel, ctx)
    check_swizzles(ctx, schedule, kernel.body)
    threads = 32 * WARPGROUP_WARPS * (schedule.warpgroups or 1)
    fitted = fit_products(ctx, axes, kernel, loop, schedule)
    if fitted is not None:
        axes, schedule = Axes(kernel.body), fitted
        kernel.schedule = schedule.as_attributes()
    elif not any(isinstance(op, tile.Dot) for op in kernel.body.walk()) and fit_elements(
        ctx, axes, kernel, loop, threads
    ):
        axes = Axes(kernel.body)
    team = team_of_pins(choose_team(ctx, axes, kernel.body, schedule), axes, homes)
    frames = Frames(ctx, kernel.body, axes, team, schedule.vector)
    pin_layouts(ctx, frames, kernel.body, homes)
    role = Region()
    group = role.add_arg(Scalar(S32), "group")
    top = Region(kernel.body.args)
    f = Forming(ctx, kernel, schedule, axes, team, frames, Builder(top), Builder(role), group)
    f.cluster = clusters.asked_shape(ctx, kernel, schedule)
    if f.cluster != ALONE:
        clusters.check_cluster(ctx, axes, loop, f.cluster)
        f.padded = frozenset(clusters.padded_axes(ctx, axes, loop, f.cluster))
    f.crossed = crossed_arrays(kernel.body)
    f.late = late_accesses(kernel.body)
    for arg in kernel.body.args:
        f.values[arg] = arg
    uses = rewrite.uses(kernel.body)
    f.homes = homes
    check_homes(f, uses)
    outer: Callable[[Op], None] = _outer(f)
    for op in kernel.body.ops:
        if op is not loop:
            outer(op)
    _role(f, loop, uses)
    whole = cta.Role(
        label="all", first=0, warps=team.warps * team.groups, group=team.warps, body=role
    )
    whole.loc = loop.loc
    top.ops.append(whole)
    kernel.body = top
    kernel.attributes["threads"] = team.threads * team.groups
    tidy(top)


def _outer(f: Forming) -> Callable[[Op], None]:
    """Scalars computed before the loop; constraints are the launcher's to check."""

    def form(op: Op) -> None:
        f.top.loc = op.loc
        if isinstance(op, tile.ExtentOf):
            f.values[op.out] = f.extent(op.array, op.axis)
        elif isinstance(op, tile.Require):
            return
        elif isinstance(op, math.Elementwise | math.Cast | math.Constant) and all(
            isinstance(r.type, Scalar) for r in op.results
        ):
            fresh = rewrite.clone(op, dict(f.values))
            f.top.add(fresh)
            f.values.update(zip(op.results, fresh.results, strict=True))
        else:
            raise refused(op, f"{op.name} outside the parallel loop is not formed in this version")

    return form
