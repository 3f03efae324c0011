"""A small machine for level ``cta``: what a kernel computes, one CTA after another.

Logical tiles only: layouts are not looked at, element types do not round. What it is strict about
is order. Every group of a role is a coroutine; a stage is poisoned with NaN when it is granted for
refilling; products and TMA stores read their operands as late as a wait still allows. So a slot
released too early, a staging half written too soon or a missing edge shows up as NaN or as a
wrong number, and a wait for what never comes as a deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.levels import cta, flow, fold, math, mma
from tilec.ir.types import Ring, Scalar

Steps = Generator[None, None, None]


class Deadlock(AssertionError):
    """Nobody can go on."""


@dataclass
class RingState:
    """Stages of one ring in one CTA."""

    op: cta.MakeRing
    consumers: int
    stages: list[list[np.ndarray]] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        type = self.op.type
        assert isinstance(type, Ring)
        for _ in range(type.stages):
            self.stages.append([np.full(p.shape, np.nan) for p in type.parts])
            self.filled.append(0)
            self.released.append(0)


@dataclass
class Stage:
    """The n-th stage of a ring, granted or waited for."""

    ring: RingState
    number: int
    loaded: int = 0

    @property
    def place(self) -> int:
        """Which of the ring's stages it is."""
        return self.number % len(self.ring.stages)


@dataclass
class Flight:
    """A product whose operands are read when it must be done."""

    a: np.ndarray
    b: np.ndarray
    acc: Any
    result: np.ndarray | None = None

    def finish(self) -> None:
        """Read the operands now."""
        acc: Any = 0.0 if self.acc is None else self.acc
        if isinstance(acc, Flight):
            assert acc.result is not None, "a product accumulates on one that is not done"
            acc = acc.result
        self.result = self.a @ self.b.T + acc


_MEANING: dict[type[Op], Callable[..., Any]] = {
    math.Add: np.add,
    math.Sub: np.subtract,
    math.Mul: np.multiply,
    math.Div: np.divide,
    math.FloorDiv: np.floor_divide,
    math.Mod: np.mod,
    math.CeilDiv: lambda x, y: -(-x // y),
    math.Max: np.maximum,
    math.Min: np.minimum,
    math.And: np.bitwise_and,
    math.Or: np.bitwise_or,
    math.Not: np.logical_not,
    math.Neg: np.negative,
    math.Abs: np.abs,
    math.Exp2: np.exp2,
    math.Exp: np.exp,
    math.Log2: np.log2,
    math.Sqrt: np.sqrt,
    math.Rsqrt: lambda x: 1 / np.sqrt(x),
    math.Tanh: np.tanh,
    math.Fma: lambda x, y, z: x * y + z,
    math.Where: np.where,
}
_RELATION = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_REDUCE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
_IDENTITY = {"add": 0.0, "max": -np.inf, "min": np.inf}


def run(kernel: Kernel, arrays: dict[str, np.ndarray], scalars: dict[str, float]) -> None:
    """Run all CTAs; arrays are written in place."""
    top: dict[Value[Any], Any] = {}
    for arg in kernel.body.args:
        top[arg] = scalars[arg.name] if isinstance(arg.type, Scalar) else arrays[arg.name]
    plain = Group(None, 0, top, {})
    grid = 0
    for op in kernel.body.ops:
        if isinstance(op, cta.Grid):
            grid = int(top[op.count])
        elif not isinstance(op, cta.Role | cta.CtaIndex | cta.CtaCount):
            plain.simple(op)
    for number in range(grid):
        _run_cta(kernel, dict(top), number, grid)


def _run_cta(kernel: Kernel, values: dict[Value[Any], Any], number: int, grid: int) -> None:
    roles = [op for op in kernel.body.ops if isinstance(op, cta.Role)]
    rings: dict[Value[Any], RingState] = {}
    for op in kernel.body.ops:
        if isinstance(op, cta.CtaIndex):
            values[op.out] = number
        elif isinstance(op, cta.CtaCount):
            values[op.out] = grid
        elif isinstance(op, cta.Buffer):
            values[op.out] = np.full(op.out.type.shape, np.nan)
        elif isinstance(op, cta.MakeRing):
            consumers = sum(
                role.warps // role.group
                for role in roles
                if any(isinstance(o, cta.Release) and o.ring is op.out for o in role.body.walk())
            )
            rings[op.out] = RingState(op, consumers)
    waiting: list[Steps] = []
    for role in roles:
        for group in range(role.warps // role.group):
            waiting.append(Group(role, group, dict(values), rings).role_steps())
    idle = 0
    while waiting:
        turn = waiting.pop(0)
        before = _progress(rings)
        try:
            next(turn)
        except StopIteration:
            idle = 0
            continue
        waiting.append(turn)
        idle = 0 if _progress(rings) != before else idle + 1
        if idle > 2 * len(waiting) + 2:
            raise Deadlock(f"{len(waiting)} groups wait for one another")


def _progress(rings: dict[Value[Any], RingState]) -> tuple[int, ...]:
    return tuple(sum(r.filled) * 1000 + sum(r.released) for r in rings.values())


class Group:
    """One group of a role: its values, cursors, and what it has in flight."""

    def __init__(
        self,
        role: cta.Role | None,
        number: int,
        values: dict[Value[Any], Any],
        rings: dict[Value[Any], RingState],
    ) -> None:
        self.role, self.number, self.values, self.rings = role, number, values, rings
        self.acquired: dict[Value[Any], int] = {}
        self.waited: dict[Value[Any], int] = {}
        self.open: list[Flight] = []
        self.groups: list[list[Flight]] = []
        self.stores: list[Callable[[], None]] = []

    def role_steps(self) -> Steps:
        """The whole role; what is still in flight at its end happens then."""
        assert self.role is not None
        self.values[self.role.body.args[0]] = self.number
        yield from self.region(self.role.body)
        assert not self.stores, "the role ends before its stores have read shared memory"

    def region(self, region: Region) -> Steps:
        """All ops of a region."""
        for op in region.ops:
            if op.is_terminator:
                return
            yield from self.op(op)

    def yielded(self, region: Region) -> list[Any]:
        """What a region has handed out."""
        return [self.values[v] for v in flow.yielded(region)]

    def op(self, op: Op) -> Steps:
        """One op; waits give the turn away."""
        if isinstance(op, flow.For):
            carried = [self.values[v] for v in op.init]
            lower, upper, step = (int(self.values[v]) for v in (op.lower, op.upper, op.step))
            for index in range(lower, upper, step):
                self.values[op.body.args[0]] = index
                self.values.update(zip(op.body.args[1:], carried, strict=True))
                yield from self.region(op.body)
                carried = self.yielded(op.body)
            self.values.update(zip(op.finals, carried, strict=True))
        elif isinstance(op, flow.While):
            carried = [self.values[v] for v in op.init]
            while True:
                self.values.update(zip(op.test.args, carried, strict=True))
                yield from self.region(op.test)
                if not self.yielded(op.test)[0]:
                    break
                self.values.update(zip(op.body.args, carried, strict=True))
                yield from self.region(op.body)
                carried = self.yielded(op.body)
            self.values.update(zip(op.finals, carried, strict=True))
        elif isinstance(op, flow.If):
            body = op.then if self.values[op.condition] else op.otherwise
            yield from self.region(body)
            self.values.update(zip(op.out, self.yielded(body), strict=True))
        elif isinstance(op, cta.Weave):
            yield from self.region(op.body)
            self.values.update(zip(op.out, self.yielded(op.body), strict=True))
        elif isinstance(op, cta.Acquire):
            yield from self.acquire(op)
        elif isinstance(op, cta.Wait):
            yield from self.wait(op)
        else:
            self.simple(op)

    def acquire(self, op: cta.Acquire) -> Steps:
        """Wait until all consumers have released the stage's last filling; poison it."""
        ring = self.rings[op.ring]
        number = self.acquired.get(op.ring, 0)
        self.acquired[op.ring] = number + 1
        stage = Stage(ring, number)
        rounds = number // len(ring.stages)
        while ring.released[stage.place] < rounds * ring.consumers:
            yield
        for part in ring.stages[stage.place]:
            part[...] = np.nan
        self.values[op.out] = stage

    def wait(self, op: cta.Wait) -> Steps:
        """Wait until the stage is full."""
        ring = self.rings[op.ring]
        number = self.waited.get(op.ring, 0)
        self.waited[op.ring] = number + 1
        stage = Stage(ring, number)
        while ring.filled[stage.place] <= number // len(ring.stages):
            yield
        self.values[op.out] = stage

    def simple(self, op: Op) -> None:
        """An op that never waits for others."""
        rule = _RULES.get(type(op)) or next(
            (r for cls, r in _RULES.items() if isinstance(op, cls)), None
        )
        assert rule is not None, f"{op.name} has no meaning here"
        rule(self, op)


Rule = Callable[[Group, Any], None]
_RULES: dict[type[Op], Rule] = {}


def means(*ops: type[Op]) -> Callable[[Rule], Rule]:
    """Register what op classes do."""

    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(ops, rule))
        return rule

    return register


@means(cta.ExtentOf)
def _extent(g: Group, op: cta.ExtentOf) -> None:
    g.values[op.out] = g.values[op.array].shape[op.axis]


@means(cta.TensorMapOf)
def _map(g: Group, op: cta.TensorMapOf) -> None:
    assert len(op.axes) == len(op.array.type.shape), "a map names every axis of its array"
    g.values[op.out] = g.values[op.array]


@means(cta.MakeRing, cta.Buffer, cta.Sync, cta.Publish)
def _nothing(g: Group, op: Op) -> None:
    pass


@means(math.Constant)
def _constant(g: Group, op: math.Constant) -> None:
    g.values[op.out] = op.value


@means(math.Cast)
def _cast(g: Group, op: math.Cast) -> None:
    g.values[op.out] = g.values[op.x]


@means(math.Fill)
def _fill(g: Group, op: math.Fill) -> None:
    g.values[op.out] = np.full(op.out.type.shape, g.values[op.x])


@means(math.Expand)
def _expand(g: Group, op: math.Expand) -> None:
    g.values[op.out] = np.expand_dims(g.values[op.x], op.axis)


@means(math.Squeeze)
def _squeeze(g: Group, op: math.Squeeze) -> None:
    g.values[op.out] = np.squeeze(g.values[op.x], op.axis)


@means(math.Broadcast)
def _broadcast(g: Group, op: math.Broadcast) -> None:
    g.values[op.out] = np.broadcast_to(g.values[op.x], op.out.type.shape)


@means(math.Compare)
def _compare(g: Group, op: math.Compare) -> None:
    g.values[op.out] = _RELATION[op.relation](g.values[op.x], g.values[op.y])


@means(math.Elementwise)
def _math(g: Group, op: math.Elementwise) -> None:
    with np.errstate(all="ignore"):
        g.values[op.results[0]] = _MEANING[type(op)](*(g.values[v] for v in op.operands))


@means(cta.Convert)
def _convert(g: Group, op: cta.Convert) -> None:
    g.values[op.out] = g.values[op.x]


@means(cta.Exchange)
def _exchange(g: Group, op: cta.Exchange) -> None:
    g.values[op.out] = g.values[op.x]


@means(fold.Fold, fold.FoldWarps)
def _fold(g: Group, op: fold.Fold | fold.FoldWarps) -> None:
    parts = np.moveaxis(g.values[op.x], op.axis, 0)
    step = op.out.type.shape[op.axis]
    half = 1 << (len(parts) // step - 1).bit_length() - 1
    while half:
        both = _REDUCE[op.kind](parts[: len(parts) - half * step], parts[half * step :])
        parts, half = np.concatenate([both, parts[len(both) : half * step]]), half // 2
    g.values[op.out] = np.moveaxis(parts, 0, op.axis)


@means(cta.Slice)
def _slice(g: Group, op: cta.Slice) -> None:
    x = g.values[op.x]
    index = [slice(None)] * x.ndim
    index[op.axis] = slice(op.start, op.start + op.out.type.shape[op.axis])
    g.values[op.out] = x[tuple(index)]


@means(cta.Coordinates)
def _coordinates(g: Group, op: cta.Coordinates) -> None:
    g.values[op.out] = np.indices(op.out.type.shape)[op.axis]


@means(cta.ReduceThread)
def _reduce_thread(g: Group, op: cta.ReduceThread) -> None:
    """All parts in the first place of the axis, the identity elsewhere."""
    x = g.values[op.x]
    total = _REDUCE[op.kind].reduce(x, axis=op.axis, keepdims=True)
    out = np.full(op.out.type.shape, _IDENTITY[op.kind])
    index = [slice(None)] * out.ndim
    index[op.axis] = slice(0, 1)
    out[tuple(index)] = total
    g.values[op.out] = out


@means(cta.ReduceLanes)
def _reduce_lanes(g: Group, op: cta.ReduceLanes) -> None:
    g.values[op.out] = _REDUCE[op.kind].reduce(g.values[op.x], axis=op.axis)


# --- moving tiles ------------------------------------------------------------------------------


def overlap(
    array: np.ndarray,
    origin: list[int],
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    bounded: tuple[int, ...] | None,
) -> tuple[tuple[Any, ...], tuple[slice, ...]]:
    """Where the tile lies in the array, and which part of the tile that is."""
    there: list[Any] = list(origin)
    here = []
    for tile_axis, (axis, extent) in enumerate(zip(axes, shape, strict=True)):
        low = min(max(origin[axis], 0), array.shape[axis])
        high = min(max(origin[axis] + extent, low), array.shape[axis])
        if bounded is not None and high - low < extent:
            assert tile_axis in bounded, f"axis {axis} runs from {origin[axis]} over the edge"
        there[axis] = slice(low, high)
        here.append(slice(low - origin[axis], high - origin[axis]))
    return tuple(there), tuple(here)


def ordered(axes: tuple[int, ...]) -> tuple[int, ...]:
    """The tile axes in the order of the array axes that they run along."""
    return tuple(int(a) for a in np.argsort(axes))


def _gather(
    array: np.ndarray,
    origin: list[int],
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    bounded: tuple[int, ...] | None,
    fill: float,
) -> np.ndarray:
    out = np.full(shape, float(fill))
    there, here = overlap(array, origin, axes, shape, bounded)
    if all(part.stop > part.start for part in here):
        out.transpose(ordered(axes))[tuple(here[a] for a in ordered(axes))] = array[there]
    return out


def _scatter(
    array: np.ndarray,
    value: np.ndarray,
    origin: list[int],
    axes: tuple[int, ...],
    bounded: tuple[int, ...] | None,
) -> None:
    there, here = overlap(array, origin, axes, value.shape, bounded)
    if all(part.stop > part.start for part in here):
        array[there] = value[here].transpose(ordered(axes))


def origin_of(g: Group, origin: tuple[Value[Any], ...]) -> list[int]:
    """The numbers of a place in an array."""
    return [int(g.values[v]) for v in origin]


@means(cta.Read)
def _read(g: Group, op: cta.Read) -> None:
    where = origin_of(g, op.origin)
    array = g.values[op.array]
    g.values[op.out] = _gather(array, where, op.axes, op.out.type.shape, op.bounded, op.fill)


@means(cta.ReadScalar)
def _read_scalar(g: Group, op: cta.ReadScalar) -> None:
    g.values[op.out] = g.values[op.array][tuple(origin_of(g, op.origin))]


def before_ends(op: Any, value: np.ndarray, where: list[int], rank: int) -> np.ndarray:
    """What lies beyond the end of a range is not looked at, whatever it holds."""
    for axis, end in zip(op.limited, where[rank:], strict=True):
        left = max(end - where[op.axes[axis]], 0)
        value = value[tuple(slice(left) if a == axis else slice(None) for a in range(value.ndim))]
    return value


@means(cta.Write)
def _write(g: Group, op: cta.Write) -> None:
    where = origin_of(g, op.origin)
    value = np.asarray(g.values[op.value])
    array = g.values[op.array]
    value = before_ends(op, value, where, array.ndim)
    _scatter(array, value, where[: array.ndim], op.axes, op.bounded)


@means(cta.Load)
def _load(g: Group, op: cta.Load) -> None:
    stage = g.values[op.stage]
    part = stage.ring.stages[stage.place][op.part]
    where = origin_of(g, op.origin)
    part[...] = _gather(g.values[op.source], where, op.axes, part.shape, None, 0.0)
    stage.loaded += 1
    if stage.loaded == len(stage.ring.stages[stage.place]):
        stage.ring.filled[stage.place] += 1


@means(mma.Copy)
def _copy(g: Group, op: mma.Copy) -> None:
    stage = g.values[op.stage]
    part = stage.ring.stages[stage.place][op.part]
    array = g.values[op.array]
    part[...] = _gather(array, origin_of(g, op.origin), op.axes, part.shape, op.bounded, 0.0)
    stage.loaded += 1
    if stage.loaded == len(stage.ring.stages[stage.place]):
        stage.ring.filled[stage.place] += 1


@means(cta.Release)
def _release(g: Group, op: cta.Release) -> None:
    stage = g.values[op.slot]
    stage.ring.released[stage.place] += 1


@means(cta.Part)
def _part(g: Group, op: cta.Part) -> None:
    stage = g.values[op.slot]
    g.values[op.out] = stage.ring.stages[stage.place][op.index]


@means(cta.Window)
def _window(g: Group, op: cta.Window) -> None:
    block = int(g.values[op.block])
    view = g.values[op.x][block * op.rows : (block + 1) * op.rows]
    assert view.shape[0] == op.rows, "a window lies outside its tile"
    g.values[op.out] = view


@means(cta.TransposeView)
def _transpose(g: Group, op: cta.TransposeView) -> None:
    g.values[op.out] = g.values[op.x].T


@means(cta.Put)
def _put(g: Group, op: cta.Put) -> None:
    g.values[op.target][...] = g.values[op.value]


@means(cta.Get)
def _get(g: Group, op: cta.Get) -> None:
    g.values[op.out] = g.values[op.x].copy()


@means(cta.StoreTile)
def _store(g: Group, op: cta.StoreTile) -> None:
    array, view = g.values[op.target], g.values[op.x]
    where = origin_of(g, op.origin)
    g.stores.append(lambda: _scatter(array, view.copy(), where, op.axes, None))


@means(cta.DrainStores)
def _drain(g: Group, op: cta.DrainStores) -> None:
    while len(g.stores) > op.pending:
        g.stores.pop(0)()


@means(cta.Product)
def _product(g: Group, op: cta.Product) -> None:
    acc = None if op.acc is None else g.values[op.acc]
    flight = Flight(g.values[op.a], g.values[op.b], acc)
    g.open.append(flight)
    g.values[op.out] = flight


@means(mma.MmaProduct)
def _mma(g: Group, op: mma.MmaProduct) -> None:
    acc: Any = 0.0 if op.acc is None else g.values[op.acc]
    g.values[op.out] = g.values[op.a] @ g.values[op.b].T + acc


@means(cta.Commit)
def _commit(g: Group, op: cta.Commit) -> None:
    g.groups.append(g.open)
    g.open = []


@means(cta.Settle)
def _settle(g: Group, op: cta.Settle) -> None:
    while len(g.groups) > op.pending:
        for flight in g.groups.pop(0):
            flight.finish()
    for flight, value in zip(op.flights, op.settled, strict=True):
        result = g.values[flight].result
        assert result is not None, "a flight is handed out before it is done"
        g.values[value] = result


# The ops of families ``piece`` and ``memory`` have files of their own, which register them here.
import_module("tests.passes.cta_pieces")
import_module("tests.passes.cta_places")
