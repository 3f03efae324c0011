"""Let products of successive loop rounds overlap: a wait moves down as far as the data allows.

Law: the settled accumulator of a round is needed only by the next round's product, which can take
it in flight. So the loop carries the flight, and the round settles only what must be over before
a stage is given back, the products of the round before. Slots are carried along, and the first
round is peeled: it has no round before it, and its product starts from zero instead of adding to
a tile of zeros.

    for k: slot = wait; acc = settle(product(slot, acc)); release slot
  = if no round: zeros, else
    slot = wait; flight = product(slot)
    for k from the second: next = wait; flight = product(next, flight);
        settle all but this round's; release slot; slot = next
    acc = settle(flight); release slot

The law holds when all operands of the loop's products lie in slots of the same round (nothing
else then reads or writes them), and each settled value is only carried on. Other loops stay
synchronous, with a remark saying why.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.levels import cta, flow, math
from tilec.ir.types import Flight, Register, Scalar
from tilec.passes.base import Context, tile_pass
from tilec.passes.constants import constant_value, evaluate
from tilec.passes.simplify import tidy


@dataclass
class Chain:
    """A product of the loop's body that accumulates on a carried value."""

    product: cta.Product
    settle: cta.Settle
    position: int


@dataclass
class Plan:
    """What the body of a loop is made of."""

    chains: list[Chain]
    releases: list[cta.Release]
    commits: int

    @property
    def positions(self) -> list[int]:
        """The carried values that become flights."""
        return [chain.position for chain in self.chains]

    @property
    def slots(self) -> list[Value[Any]]:
        """The slots that are given back one round later."""
        return [release.slot for release in self.releases]


def _slot_of(view: Value[Any]) -> Value[Any] | None:
    """The slot that a shared view lies in; None for a buffer."""
    owner = view.owner
    while isinstance(owner, cta.Window | cta.TransposeView):
        owner = owner.x.owner
    return owner.slot if isinstance(owner, cta.Part) else None


def analyse(loop: flow.For) -> Plan | str:
    """The plan of a loop's products, or why it stays synchronous."""
    body = loop.body
    products = [op for op in body.ops if isinstance(op, cta.Product)]
    settles = [op for op in body.ops if isinstance(op, cta.Settle)]
    waits = {op.out for op in body.ops if isinstance(op, cta.Wait)}
    nested = [op for inner in body.ops for r in inner.regions for op in r.walk()]
    if not products or any(isinstance(op, cta.Product | cta.Settle | cta.Wait) for op in nested):
        return "its products are in inner loops"
    uses = rewrite.uses(body)
    results = list(flow.yielded(body))
    chains = []
    for product in products:
        shared = [v for v in (product.a, product.b) if not isinstance(v.type, Register)]
        if len(shared) < 2 or not {_slot_of(v) for v in shared} <= waits:
            return "an operand is no stage of this round"
        settled = [s for s in settles if product.out in s.flights]
        if product.acc not in body.args or len(settled) != 1 or settled[0].pending:
            return "a product does not accumulate on what the loop carries"
        value = settled[0].settled[settled[0].flights.index(product.out)]
        position = body.args.index(product.acc) - 1
        only = all(op.is_terminator for op in uses[value]) and results.count(value) == 1
        if not only or results[position] is not value or len(uses[product.acc]) != 1:
            return "an accumulator is read inside the loop"
        chains.append(Chain(product, settled[0], position))
    if any(op.ring.type.stages < 2 for op in body.ops if isinstance(op, cta.Wait)):
        return "a ring of one stage cannot hold the stage of the round before"
    releases = [op for op in body.ops if isinstance(op, cta.Release) and op.slot in waits]
    if {r.slot for r in releases} != waits or any(
        isinstance(op, cta.Put) for op in (*body.ops, *nested)
    ):
        return "a stage is held beyond the round"
    commits = sum(isinstance(op, cta.Commit) for op in body.ops)
    return Plan(chains, releases, commits)


def _round(
    loop: flow.For, plan: Plan, mapping: rewrite.Mapping, into: Builder, *, first: bool
) -> tuple[list[Value[Any]], list[Value[Any]]]:
    """One round without settles and releases: the yielded values and the slots it holds."""
    by_product = {chain.product: chain for chain in plan.chains}
    dropped = {chain.settle for chain in plan.chains} | set(plan.releases)
    for op in loop.body.ops:
        if op in dropped or op.is_terminator:
            continue
        if isinstance(op, cta.Product):
            acc: Value[Any] | None = mapping[op.acc] if op.acc is not None else None
            start = loop.init[by_product[op].position]
            if first and constant_value(start) == 0 and isinstance(start.owner, math.Fill):
                acc = None
            fresh = cta.Product(mapping.get(op.a, op.a), mapping[op.b], type=op.type, acc=acc)
            fresh.loc = op.loc
            into.add(fresh, op.out.name)
            mapping[op.out] = fresh.out
            continue
        into.add(rewrite.clone(op, mapping))
    for chain in plan.chains:
        settled = chain.settle.settled[chain.settle.flights.index(chain.product.out)]
        mapping[settled] = mapping[chain.product.out]
    values = [mapping.get(v, v) for v in flow.yielded(loop.body)]
    return values, [mapping[s] for s in plan.slots]


def _flight(type: Register) -> Flight:
    return Flight(type.dtype, type.shape, type.layout)


def _steady(
    loop: flow.For, plan: Plan, lower: Value[Scalar], init: list[Value[Any]], into: Builder
) -> flow.For:
    """The loop from the second round on, carrying flights and the slots of the round before."""
    body = Region()
    mapping: rewrite.Mapping = {}
    mapping[loop.body.args[0]] = body.add_arg(loop.body.args[0].type, loop.body.args[0].name)
    for position, arg in enumerate(loop.body.args[1:]):
        kind = _flight(arg.type) if position in plan.positions else arg.type
        mapping[arg] = body.add_arg(kind, arg.name)
    held = [body.add_arg(s.type, s.name) for s in plan.slots]
    with into.inside(body):
        values, slots = _round(loop, plan, mapping, into, first=False)
        into.add(cta.Settle((), pending=plan.commits))
        for release, slot in zip(plan.releases, held, strict=True):
            into.add(cta.Release(release.ring, slot))
        into.add(flow.Yield((*values, *slots)))
    return into.add(flow.For(lower, loop.upper, loop.step, tuple(init), body=body))


def pipelined(
    loop: flow.For, plan: Plan, into: Builder, hand_on: cta.PassTurn | None = None
) -> list[Value[Any]]:
    """Build the pipelined form of a loop that runs at least once; its final values.

    A turn that ends with the loop is handed on when the last product is issued.
    """
    into.loc = loop.loc
    mapping: rewrite.Mapping = {loop.body.args[0]: loop.lower}
    mapping.update(zip(loop.body.args[1:], loop.init, strict=True))
    values, slots = _round(loop, plan, mapping, into, first=True)
    second = into.add(math.Add(loop.lower, loop.step)).out
    steady = _steady(loop, plan, second, [*values, *slots], into)
    finals = list(steady.finals)
    for old, new in zip(loop.finals, finals, strict=False):
        new.name = old.name
    flights = tuple(finals[position] for position in plan.positions)
    if hand_on is not None:
        into.add(rewrite.clone(hand_on, {}))
    settle = into.add(cta.Settle(flights, pending=0))
    for position, value in zip(plan.positions, settle.settled, strict=True):
        value.name = loop.finals[position].name
        finals[position] = value
    for release, slot in zip(plan.releases, finals[len(loop.finals) :], strict=True):
        into.add(cta.Release(release.ring, slot))
    return finals[: len(loop.finals)]


def _runs(loop: flow.For) -> bool:
    """Whether the loop provably runs at least once."""
    known = [constant_value(v) for v in (loop.lower, loop.upper)]
    return None not in known and bool(
        evaluate(math.Compare(loop.lower, loop.upper, relation="lt"), [k or 0 for k in known])
    )


def replace_loop(
    loop: flow.For, plan: Plan, into: Builder, hand_on: cta.PassTurn | None = None
) -> list[Value[Any]]:
    """The pipelined loop, behind a test if it may not run at all."""
    if _runs(loop):
        return pipelined(loop, plan, into, hand_on)
    into.loc = loop.loc
    empty = into.add(math.Compare(loop.lower, loop.upper, relation="ge"), "empty").out
    nothing, full = Region(), Region()
    with into.inside(nothing):
        if hand_on is not None:
            into.add(rewrite.clone(hand_on, {}))
        # Filled tiles are made where they are needed, which is almost never.
        fills = [v.owner for v in loop.init if isinstance(v.owner, math.Fill)]
        mapping: rewrite.Mapping = {}
        for fill in fills:
            into.add(rewrite.clone(fill, mapping))
        into.add(flow.Yield(tuple(mapping.get(v, v) for v in loop.init)))
    with into.inside(full):
        finals = pipelined(loop, plan, into, hand_on)
        into.add(flow.Yield(tuple(finals)))
    types = tuple(v.type for v in loop.finals)
    choice = into.add(flow.If(empty, types=types, then=nothing, otherwise=full, cold=True))
    return list(choice.out)


def _find_ends(region: Region, ends: dict[Op, cta.PassTurn]) -> None:
    """Loops with which a turn ends."""
    for op, following in pairwise(region.ops):
        if isinstance(following, cta.PassTurn):
            ends[op] = following
    for op in region.ops:
        for nested in op.regions:
            _find_ends(nested, ends)


@tile_pass("pipeline-products", level="cta")
def pipeline_products(kernel: Kernel, ctx: Context) -> None:
    """Products of successive rounds are in flight together; stages are released a round later."""

    ends: dict[Op, cta.PassTurn] = {}
    moved: set[Op] = set()

    def rule(op: Op, builder: Builder) -> list[Value[Any]] | None:
        if op in moved:
            return []
        if not isinstance(op, flow.For):
            return None
        if not any(isinstance(inner, cta.Product) for inner in op.body.ops):
            return None
        plan = analyse(op)
        if isinstance(plan, str):
            if any(isinstance(i, cta.Settle) and i.flights for i in op.body.ops):
                ctx.remark(op, f"the products of this loop stay synchronous: {plan}")
            return None
        ctx.remark(op, "the products of two rounds overlap; the first round is peeled")
        hand_on = ends.get(op)
        if hand_on is not None:
            moved.add(hand_on)
        return replace_loop(op, plan, builder, hand_on)

    for role in kernel.body.ops:
        if isinstance(role, cta.Role):
            _find_ends(role.body, ends)
            rewrite.apply(role.body, rule)
    tidy(kernel.body)
