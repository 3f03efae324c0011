"""A loop that the schedule splits becomes two launches: its shares side by side, then their merge.

With ``splits.j = S`` the first launch has S times as many CTAs; each runs its share of the tiles of
``j`` from a neutral state, and stores the state that it comes to into workspace, one slice a share.
The second launch takes the place of the loop: it merges the slices in order, from the loop's
initial state, and goes on with what stands after the loop. The order is fixed, so the same schedule
gives the same bits.

    parallel(i): ..., x = for j(x0), rest
    =  parallel(s, i): ..., part[s] = for_share j(neutral)
       parallel(i):    ..., x = merge of part[0..S] from x0, rest

Law: it is the same loop if each carried value is a sum, a maximum or a minimum of terms that depend
on nothing carried (neutral: 0, -inf, inf), or if the author promises by ``join`` that states of
parts merge (neutral: the initial values). Any other loop is refused, at its line.

Loops with ``join`` that nobody splits run in order, and become plain loops here. What stands before
a split loop is computed in both launches, as far as each uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.declare import Effects, Refused
from tilec.ir.levels import author, flow, math, tile
from tilec.ir.levels.flow import yielded
from tilec.ir.types import S32, Array, DType, Index, Scalar, Tile, is_symbol
from tilec.passes.axes import Axes
from tilec.passes.base import Context, tile_pass
from tilec.passes.check_schedule import BadChoices, impossible, index_sizes, refuse_unknown_loops
from tilec.passes.choose_shares import worthwhile_shares
from tilec.passes.fit_tiles import resize
from tilec.passes.refusal import refused

MOST_SHARES = 1024
"""More partial states than this are slower to merge than any loop is to run."""
AHEAD = 16
"""States that a merge asks for before it waits for the first: memory answers late."""

_SAYS = (author.Assert, author.Print)

Neutral = float | int | None
Merge = Callable[[Builder, list[Value[Any]], list[Value[Any]]], list[Value[Any]]]
"""Appends what makes one state of two, the earlier one first."""


@tile_pass("split-loops", level="tile")
def split_loops(kernel: Kernel, ctx: Context) -> None:
    """Loops that the schedule splits are launches over their shares; no loop says ``join``."""
    splits = ctx.schedule.splits
    refuse_unknown_loops(kernel, splits, "splits")
    wrong = [
        impossible(f"splits.{name}", count, f"there are 1 to {MOST_SHARES} shares",
                   f"the nearest is `splits.{name}={min(max(count, 1), MOST_SHARES)}`")
        for name, count in splits
        if not 1 <= count <= MOST_SHARES
    ]  # fmt: skip
    if wrong:
        raise BadChoices(wrong)
    for name, count in splits:
        if count > 1:
            _split(kernel, name, count, ctx)
    if not splits:
        _split_where_it_pays(kernel, ctx)
    ctx.rewrite(kernel.body, _in_order)
    if splits:
        rewrite.remove_dead(kernel.body)


def _split_where_it_pays(kernel: Kernel, ctx: Context) -> None:
    """Split a loop over K that the price of products would have in shares, if a law allows it."""
    chosen = worthwhile_shares(kernel, ctx)
    if chosen is None:
        return
    name, count, why = chosen
    _, loop = index_sizes(kernel)[name]
    try:
        _split(kernel, name, count, ctx)
    except Refused as refusal:
        ctx.remark(loop, f"the loop over {name} runs in order, though {why}: {refusal}")
        return
    ctx.remark(loop, why, shares=count)
    kernel.schedule = replace(ctx.schedule, splits=((name, count),)).as_attributes()
    rewrite.remove_dead(kernel.body)


def _in_order(op: Op, build: Builder) -> Sequence[Value[Any]] | None:
    """A loop with ``join`` that is not split is a loop."""
    if not isinstance(op, tile.ForJoined):
        return None
    return build.add(tile.ForTiles(op.extent, op.init, op.size, op.body)).finals


# --- what can be split ----------------------------------------------------------------------------


@dataclass
class _Found:
    """A loop to be split, the launch in which it stands, and how states merge."""

    launch: tile.Parallel
    loop: tile.ForTiles
    neutral: list[Neutral]
    """What each carried value starts a share with; None: its initial value."""
    merge: Merge


def _split(kernel: Kernel, name: str, count: int, ctx: Context) -> None:
    _, loop = index_sizes(kernel)[name]
    launch = next(
        (
            op
            for op in kernel.body.ops
            if isinstance(op, tile.Parallel) and any(inner is loop for inner in op.body.ops)
        ),
        None,
    )
    if not isinstance(loop, tile.ForTiles) or launch is None:
        raise refused(
            loop,
            f"splits.{name}: only a loop over tiles that stands directly in `parallel` is split",
        )
    at = launch.body.ops.index(loop)
    for op in launch.body.ops[:at]:
        if _writes(op):
            done = "said" if isinstance(op, _SAYS) else "stored"
            raise refused(op, f"splits.{name}: this is {done} before the loop, by each share again")
    for op in loop.body.walk():
        if isinstance(op, _SAYS):
            raise refused(
                op,
                f"splits.{name}: shares of the loop would not say this in the loop's order",
                "leave assertions and prints out: `checks=false`",
            )
        if _writes(op):
            raise refused(loop, f"splits.{name}: the loop stores into memory, in its own order")
    found = _Found(launch, loop, *_law(loop, name))
    made = _launches(kernel, found, count)
    place = kernel.body.ops.index(launch)
    kernel.body.ops[place : place + 1] = made
    how = "by its `join`" if isinstance(loop, tile.ForJoined) else "as sums and extrema"
    ctx.remark(
        loop,
        f"the loop over {name} runs in {count} shares side by side; a launch after it merges "
        f"them in order, {how}",
        shares=count,
    )


def _writes(op: Op) -> bool:
    return bool(op.effects & ~Effects.READS) or any(
        _writes(inner) for region in op.regions for inner in region.walk()
    )


def _law(loop: tile.ForTiles, name: str) -> tuple[list[Neutral], Merge]:
    """What shares start with, and how their states merge; refused if there is no law."""
    if isinstance(loop, tile.ForJoined):
        return [None] * len(loop.init), _by_join(loop)
    carried = loop.body.args[1:]
    inside = _depending(loop.body, set(carried))
    kinds: list[type[math.Binary]] = []
    for arg, last in zip(carried, yielded(loop.body), strict=True):
        kind = _combined(arg, last, inside)
        if kind is None:
            raise refused(
                loop,
                f"splits.{name}: the loop carries {arg.name or 'a value'} in another way than as a "
                "sum, max or min of what depends on nothing carried; say how states of two parts "
                "merge: `for ... join merge(...):`",
            )
        kinds.append(kind)
    neutral: list[Neutral] = [_neutral(k, _dtype(v)) for k, v in zip(kinds, carried, strict=True)]

    def merge(build: Builder, left: list[Value[Any]], right: list[Value[Any]]) -> list[Value[Any]]:
        pairs = zip(kinds, left, right, strict=True)
        return [build.add(kind(x, y)).results[0] for kind, x, y in pairs]

    return neutral, merge


def _by_join(loop: tile.ForJoined) -> Merge:
    def merge(build: Builder, left: list[Value[Any]], right: list[Value[Any]]) -> list[Value[Any]]:
        mapping: rewrite.Mapping = dict(zip(loop.join.args, (*left, *right), strict=True))
        for op in loop.join.ops:
            if not op.is_terminator:
                build.region.ops.append(rewrite.clone(op, mapping))
        return [mapping.get(v, v) for v in yielded(loop.join)]

    return merge


def _depending(body: Region, carried: set[Value[Any]]) -> set[Value[Any]]:
    """Everything in a loop's body that depends on what it carries."""
    found = set(carried)
    for op in body.walk():
        nested = {v for region in op.regions for inner in region.walk() for v in inner.operands}
        if found & {*op.operands, *nested}:
            found.update(op.results)
            found.update(a for region in op.regions for a in region.args)
    return found


def _combined(
    arg: Value[Any], last: Value[Any], inside: set[Value[Any]]
) -> type[math.Binary] | None:
    """The one operation by which terms are added to a carried value; None if there is none."""
    kind: type[math.Binary] | None = None
    while last is not arg:
        op = last.owner
        if isinstance(op, tile.Dot):
            step: type[math.Binary] = math.Add
            onward, others = op.acc, [op.a, op.b]
        elif isinstance(op, math.Add) and op.strict:
            return None  # its order is the author's
        elif isinstance(op, math.Add | math.Max | math.Min):
            deep = [v for v in op.operands if v in inside]
            if len(deep) != 1:
                return None
            step, onward = type(op), deep[0]
            others = [v for v in op.operands if v is not onward]
        else:
            return None
        if (kind or step) is not step or any(v in inside for v in others):
            return None
        kind, last = step, onward
    return kind or math.Add


def _neutral(kind: type[math.Binary], dtype: DType) -> float | int:
    if kind is math.Add:
        return 0.0 if dtype.is_float else 0
    least = kind is math.Max
    if dtype.is_float:
        return float("-inf") if least else float("inf")
    signed = dtype.kind == "signed"
    low, high = (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if signed else (
        0, (1 << dtype.bits) - 1,
    )  # fmt: skip
    return low if least else high


def _dtype(value: Value[Any]) -> DType:
    found = math.element_type(value.type)
    assert found is not None
    return found


# --- two launches ---------------------------------------------------------------------------------


def _launches(kernel: Kernel, found: _Found, count: int) -> list[Op]:
    """Workspace for the states of shares, the launch that makes them, and the one that merges."""
    launch, loop = found.launch, found.loop
    before = Builder(Region())
    before.loc = loop.loc
    shares = before.add(math.Constant(count, Scalar(S32))).out
    places = [_axes(kernel, found, value) for value in loop.body.args[1:]]
    parts = []
    for value, place in zip(loop.body.args[1:], places, strict=True):
        extents, shape = [shares], [count]
        for axis in place:
            extents.append(_extent(kernel, before, axis))
            shape.append(axis.extent)
        type_ = Array(_dtype(value), tuple(shape), "inout")
        name = f"{value.name or 'state'}_parts"
        parts.append(before.add(tile.Temp(tuple(extents), type=type_), name).out)
    first = _first(found, count, parts, places, shares)
    second = _second(found, count, parts, places)
    for made in (first, second):
        made.loc = launch.loc
    return [*before.region.ops, first, second]


@dataclass(frozen=True)
class _Place:
    """One axis of workspace after the share: the value that selects along it, or a whole axis."""

    extent: Any
    subscript: Value[Any] | None
    size: Any = 0


def _axes(kernel: Kernel, found: _Found, value: Value[Any]) -> list[_Place]:
    """The axes of a carried value's workspace: the launch's own, then what is not among them."""
    launch, loop = found.launch, found.loop
    shape = list(value.type.shape) if isinstance(value.type, Tile) else []
    here = {a.type.size: a for a in launch.body.args if isinstance(a.type, Index)}
    for op in launch.body.ops[: launch.body.ops.index(loop)]:
        here.update((r.type.size, r) for r in op.results if isinstance(r.type, Index))
    made: list[_Place] = []
    for extent, size, arg in zip(launch.extents, launch.sizes, launch.body.args, strict=True):
        if size == 0:
            made.append(_Place(_known(extent, found), arg))
        elif size not in shape:
            raise refused(
                loop,
                f"{value.name or 'a value'} is carried for each tile of {arg.name}, and has no "
                f"axis along {arg.name}: its parts would have no place of their own",
            )
    for length in shape:
        index = here.get(length)
        if index is not None:
            made.append(_Place(index.type.extent, index))
        elif isinstance(length, int):
            made.append(_Place(length, None, length))
        else:
            raise refused(loop, f"nothing here says how long {length} is")
    return made


def _known(extent: Value[Any], found: _Found) -> Any:
    """The extent of an axis of the grid as an array's type says it."""
    op = extent.owner
    if isinstance(op, tile.ExtentOf):
        return op.array.type.shape[op.axis]
    if isinstance(op, math.Constant):
        return op.value
    raise refused(
        found.loop,
        "the grid has an axis of computed length: only dimensions and numbers can be an axis of "
        "the workspace in which parts are kept",
    )


def _extent(kernel: Kernel, build: Builder, place: _Place) -> Value[Scalar]:
    """The number of elements along an axis of workspace."""
    if isinstance(place.extent, int):
        return build.add(math.Constant(place.extent, Scalar(S32))).out
    for arg in kernel.body.args:
        if isinstance(arg.type, Array) and place.extent in arg.type.shape:
            axis = arg.type.shape.index(place.extent)
            return build.add(tile.ExtentOf(arg, axis), str(place.extent)).out
    raise AssertionError(f"no array has the extent {place.extent}")


def _subscripts(
    build: Builder, part: Value[Array], place: Sequence[_Place], share: Value[Any],
    mapping: rewrite.Mapping,
) -> tuple[Value[Any], ...]:  # fmt: skip
    found: list[Value[Any]] = [share]
    for axis, item in enumerate(place, 1):
        if item.subscript is not None:
            found.append(mapping.get(item.subscript, item.subscript))
        else:
            found.append(build.add(tile.Whole(part, axis, item.size)).out)
    return tuple(found)


def _copied(ops: Sequence[Op], region: Region, mapping: rewrite.Mapping) -> None:
    region.ops.extend(rewrite.clone(op, mapping) for op in ops)


def _first(
    found: _Found, count: int, parts: Sequence[Value[Array]], places: Sequence[list[_Place]],
    shares: Value[Scalar],
) -> tile.Parallel:  # fmt: skip
    """Each share of the loop, for each tile of the launch, into its slice of workspace."""
    launch, loop = found.launch, found.loop
    body, mapping = Region(), dict[Value[Any], Value[Any]]()
    share = body.add_arg(Scalar(S32), "share")
    for arg in launch.body.args:
        mapping[arg] = body.add_arg(arg.type, arg.name)
    _copied(launch.body.ops[: launch.body.ops.index(loop)], body, mapping)
    build = Builder(body)
    build.loc = loop.loc
    starts = [
        mapping.get(value, value) if neutral is None else _filled(build, value, neutral)
        for value, neutral in zip(loop.init, found.neutral, strict=True)
    ]
    extent = mapping.get(loop.extent, loop.extent)
    rounds = rewrite.clone_region(loop.body, mapping)
    ran = build.add(
        tile.ForShare(extent, tuple(starts), loop.size, rounds, share=share, count=count)
    )
    for value, last, part, place in zip(loop.finals, ran.finals, parts, places, strict=True):
        last.name = value.name
        where = _subscripts(build, part, place, share, mapping)
        build.add(tile.Store(part, last, where))
    extents, sizes = (shares, *launch.extents), (0, *launch.sizes)
    return tile.Parallel(extents, sizes, body)


def _filled(build: Builder, value: Value[Any], neutral: float | int) -> Value[Any]:
    one = build.add(math.Constant(neutral, Scalar(_dtype(value))), value.name).out
    if not isinstance(value.type, Tile):
        return one
    return build.add(math.Fill(one, type=value.type), value.name).out


def _second(
    found: _Found, count: int, parts: Sequence[Value[Array]], places: Sequence[list[_Place]]
) -> tile.Parallel:
    """The merge of the shares where the loop was, and what stood after the loop."""
    launch, loop = found.launch, found.loop
    at = launch.body.ops.index(loop)
    body, mapping = Region(), dict[Value[Any], Value[Any]]()
    for arg in launch.body.args:
        mapping[arg] = body.add_arg(arg.type, arg.name)
    _copied(launch.body.ops[:at], body, mapping)
    build = Builder(body)
    build.loc = loop.loc

    def merged(
        build: Builder, first: Value[Any], count: int, state: list[Value[Any]]
    ) -> list[Value[Any]]:
        """Shares from ``first`` on: all are asked for before the first is waited for."""
        loads = []
        for step in range(count):
            share = first
            if step:
                ahead = build.add(math.Constant(step, Scalar(S32))).out
                share = build.add(math.Add(first, ahead), "share").out
            asked = []
            for value, part, place in zip(state, parts, places, strict=True):
                where = _subscripts(build, part, place, share, mapping)
                asked.append(build.add(tile.Load(part, where), value.name).out)
            loads.append(asked)
        for asked in loads:
            state = found.merge(build, state, asked)
        return state

    state = [mapping.get(v, v) for v in loop.init]
    together, rest = count // AHEAD * AHEAD, count % AHEAD
    zero = build.add(math.Constant(0, Scalar(S32))).out
    if together > AHEAD:
        step = build.add(math.Constant(AHEAD, Scalar(S32))).out
        end = build.add(math.Constant(together, Scalar(S32))).out
        rounds = Region()
        share = rounds.add_arg(Scalar(S32), "share")
        inner = [rounds.add_arg(v.type, v.name) for v in loop.body.args[1:]]
        with build.inside(rounds):
            build.add(flow.Yield(tuple(merged(build, share, AHEAD, inner))))
        state = list(build.add(flow.For(zero, end, step, tuple(state), body=rounds)).finals)
    elif together:
        state = merged(build, zero, together, state)
    if rest:
        first = build.add(math.Constant(together, Scalar(S32))).out
        state = merged(build, first, rest, state)
    for old, new in zip(loop.finals, state, strict=True):
        new.name = old.name
        mapping[old] = new
    _copied(launch.body.ops[at + 1 :], body, mapping)
    made = tile.Parallel(launch.extents, launch.sizes, body)
    _own_sizes(made)
    return made


def _own_sizes(launch: tile.Parallel) -> None:
    """Give the axes of a launch size symbols of its own: what suits products suits no merge."""
    region = Region()
    region.ops.append(launch)
    axes = Axes(region)
    for arg in launch.body.args:
        if isinstance(arg.type, Index) and is_symbol(arg.type.size):
            axis = axes.of(arg, 0)
            assert axis is not None
            resize(region, axis, f"{arg.type.size}_merged")
