"""Give the filling of rings to a producer warp of its own.

Law: program slicing. What the stages' acquires and loads need (the loops and branches around
them, and the arithmetic of their coordinates) is copied into a second role; the first keeps all
the rest. Both then run the same sequence of stages, so the ring's order keeps them together. The
slice must not depend on anything that is computed from tiles; then the split is refused.

The producer is one warp, group 0 of its role, in a warpgroup that gives its registers away.
"""

from __future__ import annotations

from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.facts import Schedule
from tilec.ir.levels import cta, flow, math, mma
from tilec.ir.types import S32, Scalar
from tilec.passes.base import Context, tile_pass
from tilec.passes.constants import folded
from tilec.passes.refusal import refused
from tilec.passes.simplify import tidy

WARPGROUP = 4
Marks = set[Op]


class Slice:
    """The ops of a region that some of its ops need, with the control around them."""

    def __init__(self, region: Region, wanted: type[Op] | tuple[type[Op], ...]) -> None:
        self.marked: Marks = set()
        self.values: set[Value[Any]] = set()
        self.around: dict[Op, Op] = {}
        self.loops: dict[Region, flow.For] = {}
        self.inside = set(region.walk())
        self._enclose(region)
        for op in region.walk():
            if isinstance(op, wanted):
                self._mark(op)

    def _enclose(self, region: Region) -> None:
        for op in region.ops:
            for nested in op.regions:
                for inner in nested.ops:
                    self.around[inner] = op
                if isinstance(op, flow.For):
                    self.loops[nested] = op
                self._enclose(nested)

    def _mark(self, op: Op) -> None:
        if op in self.marked or op not in self.inside:
            return
        self.marked.add(op)
        if op in self.around:
            self._mark(self.around[op])
        if isinstance(op, flow.For):
            for value in (op.lower, op.upper, op.step):
                self._need(value)
        elif isinstance(op, flow.If):
            self._need(op.condition)
        elif not op.is_terminator:
            for value in op.operands:
                self._need(value)

    def _need(self, value: Value[Any]) -> None:
        if value in self.values:
            return
        self.values.add(value)
        owner = value.owner
        if isinstance(owner, Region):
            loop = self.loops.get(owner)
            if loop is not None and value is not owner.args[0]:
                self._carried(loop, owner.args.index(value) - 1)
        elif isinstance(owner, flow.For) and owner in self.inside:
            self._carried(owner, owner.finals.index(value))
        elif isinstance(owner, flow.If) and owner in self.inside:
            self._mark(owner)
            for region in owner.regions:
                self._need(flow.yielded(region)[owner.out.index(value)])
        elif isinstance(owner, Op):
            self._mark(owner)

    def _carried(self, loop: flow.For, position: int) -> None:
        self._mark(loop)
        self.values.add(loop.finals[position])
        self.values.add(loop.body.args[position + 1])
        self._need(loop.init[position])
        self._need(flow.yielded(loop.body)[position])


def _copy(region: Region, cut: Slice, mapping: rewrite.Mapping, into: Region) -> None:
    """The marked ops of a region, with known branches taken."""
    for op in region.ops:
        if op not in cut.marked:
            continue
        if isinstance(op, flow.For):
            _copy_loop(op, cut, mapping, into)
        elif isinstance(op, flow.If):
            _copy_branch(op, cut, mapping, into)
        else:
            fresh = rewrite.clone(op, mapping)
            value = folded(fresh)
            if value is not None:
                constant = math.Constant(value, type=fresh.results[0].type)
                mapping[op.results[0]] = constant.out
                fresh = constant
            into.ops.append(fresh)


def _copy_loop(op: flow.For, cut: Slice, mapping: rewrite.Mapping, into: Region) -> None:
    kept = [n for n, final in enumerate(op.finals) if final in cut.values]
    body = Region()
    mapping[op.body.args[0]] = body.add_arg(op.body.args[0].type, op.body.args[0].name)
    for n in kept:
        arg = op.body.args[n + 1]
        mapping[arg] = body.add_arg(arg.type, arg.name)
    _copy(op.body, cut, mapping, body)
    results = flow.yielded(op.body)
    body.ops.append(flow.Yield(tuple(mapping.get(results[n], results[n]) for n in kept)))
    lower, upper, step = (mapping.get(v, v) for v in (op.lower, op.upper, op.step))
    init = tuple(mapping.get(op.init[n], op.init[n]) for n in kept)
    fresh = flow.For(lower, upper, step, init, body=body)
    fresh.loc = op.loc
    for n, final in zip(kept, fresh.finals, strict=True):
        final.name = op.finals[n].name
        mapping[op.finals[n]] = final
    into.ops.append(fresh)


def _copy_branch(op: flow.If, cut: Slice, mapping: rewrite.Mapping, into: Region) -> None:
    condition = mapping.get(op.condition, op.condition)
    kept = [n for n, out in enumerate(op.out) if out in cut.values]
    known = condition.owner.value if isinstance(condition.owner, math.Constant) else None
    if known is not None:
        source = op.then if known else op.otherwise
        _copy(source, cut, mapping, into)
        for n in kept:
            value = flow.yielded(source)[n]
            mapping[op.out[n]] = mapping.get(value, value)
        return
    regions = []
    for source in (op.then, op.otherwise):
        body = Region()
        _copy(source, cut, mapping, body)
        results = flow.yielded(source)
        body.ops.append(flow.Yield(tuple(mapping.get(results[n], results[n]) for n in kept)))
        regions.append(body)
    types = tuple(op.types[n] for n in kept)
    fresh = flow.If(condition, types=types, then=regions[0], otherwise=regions[1], cold=op.cold)
    fresh.loc = op.loc
    for n, out in zip(kept, fresh.out, strict=True):
        mapping[op.out[n]] = out
    into.ops.append(fresh)


def _without(region: Region, kinds: tuple[type[Op], ...]) -> None:
    region.ops = [op for op in region.ops if not isinstance(op, kinds)]
    for op in region.ops:
        for nested in op.regions:
            _without(nested, kinds)


def _check(cut: Slice) -> None:
    allowed = (
        cta.Acquire, cta.Load, mma.Copy, cta.ReadScalar, cta.ExtentOf,
        flow.For, flow.If, flow.Yield,
    )  # fmt: skip
    for op in cut.marked:
        scalar = all(isinstance(r.type, Scalar) for r in op.results)
        pure = op.name.startswith("math.") or isinstance(op, cta.CtaIndex | cta.CtaCount)
        if not isinstance(op, allowed) and not (pure and scalar):
            raise refused(
                op, f"where a ring's tiles lie depends on {op.name}, which no producer can compute"
            )


@tile_pass("split-roles", level="cta")
def split_roles(kernel: Kernel, ctx: Context) -> None:
    """Rings are filled by a producer warp, emptied by the other roles."""
    schedule = Schedule.from_attributes(kernel.schedule)
    moved = (cta.Acquire, cta.Load, mma.Copy)
    roles = [op for op in kernel.body.ops if isinstance(op, cta.Role)]
    for role in roles:
        kinds = {type(op) for op in role.body.walk()}
        if not {cta.Acquire, cta.Wait} <= kinds:
            continue
        if len(roles) > 1:
            raise refused(role, "several roles, one of which fills and empties rings")
        cut = Slice(role.body, moved)
        _check(cut)
        body = Region()
        body.add_arg(Scalar(S32), role.body.args[0].name)
        zero = math.Constant(0, type=Scalar(S32))
        body.ops.append(zero)
        _copy(role.body, cut, {role.body.args[0]: zero.out}, body)
        _without(role.body, moved)
        low, high = (*schedule.registers, 0, 0)[:2]
        producer = cta.Role(label="load", first=0, warps=1, group=1, body=body, registers=low)
        producer.loc = role.loc
        role.label, role.registers = "compute", high
        if ctx.target.has_setmaxnreg:
            role.first = WARPGROUP  # registers are set for whole warpgroups
        else:
            producer.first = role.warps
        kernel.body.ops.insert(kernel.body.ops.index(role), producer)
        kernel.attributes["threads"] = 32 * (max(role.first, 1) + role.warps)
        ctx.remark(
            role,
            "one warp fills the rings, the others compute",
            registers_of_producer=low,
            registers_of_consumers=high,
        )
    tidy(kernel.body)
