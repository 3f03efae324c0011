"""Let two consumer warpgroups take tiles in turns: one multiplies while the other stores.

Law: tiles of a grid are independent, so any group may take any of them. Here group 0 takes the
first, third, ... of a CTA's tiles and group 1 the others, each alone and with memory of its own
for what it stores. The producer goes on filling the ring in the order of the tiles: a group passes
over the rounds of the tiles that it does not take (``turns.skip``), which needs that all tiles go
as many rounds. A token goes round between the groups, held from before a tile's first product
until its last one was issued: products of a tile run without those of the next in between, so a
group's stores have the time of the other's whole tile.

What decides how many rounds a tile goes is moved before the loop over tiles; where it depends on
the tile, or where one role holds no such loop, turns are refused.
"""

from __future__ import annotations

from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.levels import cta, flow, math, memory
from tilec.ir.levels.turns import Skip
from tilec.ir.types import Scalar, Shared
from tilec.passes.base import Context, tile_pass
from tilec.passes.check_schedule import BadChoices, impossible
from tilec.passes.constants import constant_value
from tilec.passes.overlap_stores import double_rows
from tilec.passes.raster import constant
from tilec.passes.simplify import tidy

GROUPS = 2
"""Groups that take turns: more would share the registers that one tile's results need."""


@tile_pass("take-turns", level="cta")
def take_turns(kernel: Kernel, ctx: Context) -> None:
    """Two consumer warpgroups take tiles alternately, and the tensor cores in turns."""
    if not ctx.schedule.alternate:
        return
    roles = [op for op in kernel.body.ops if isinstance(op, cta.Role)]
    taking = [r for r in roles if any(isinstance(op, cta.Wait) for op in r.body.walk())]
    if not taking or len(roles) < 2:
        ctx.remark(None, "alternate has no effect: no producer brings operands by a ring")
        return
    (role,) = taking
    if role.warps != role.group:
        why = f"{role.warps // role.group} warpgroups share a tile"
        raise _cannot(why, "pin `warpgroups=1` with it, and tiles of 64 rows", role)
    loop = _tile_loop(role)
    rounds = _Rounds(role, loop)
    turns = cta.Turns(groups=GROUPS, barrier=_renumbered(role))
    turns.out.name, turns.loc = "turns", role.loc
    kernel.body.ops.insert(kernel.body.ops.index(roles[0]), turns)
    _single_group(role)
    _own_buffers(kernel, role)
    _take_every_other(role, loop, rounds)
    _hold_the_token(role, loop, turns.out)
    role.warps *= GROUPS
    kernel.attributes["threads"] = 32 * (role.first + role.warps)
    tidy(kernel.body)
    ctx.remark(
        loop,
        "two warpgroups take tiles in turns: one's products run while the other works on its "
        "results and stores them",
        groups=GROUPS,
    )


def _cannot(why: str, instead: str, op: Op | None) -> BadChoices:
    return BadChoices([impossible("alternate", True, why, instead, op)])


def _tile_loop(role: cta.Role) -> flow.For:
    """The loop over tiles, which holds everything that a group does with the ring."""
    loops = [op for op in role.body.ops if isinstance(op, flow.For) and not op.init]
    holding = [op for op in role.body.ops if any(_walk(op, cta.Wait | cta.Product | cta.Release))]
    if len(holding) != 1 or holding[0] not in loops:
        raise _cannot("a CTA has one tile", "pin `persistent=true` with it", role)
    (loop,) = (op for op in loops if op is holding[0])
    if not any(_walk(loop, cta.Product)):
        raise _cannot(
            "its products are not wgmma's, which run beside other work", "leave it out", role
        )
    return loop


def _walk(op: Op, kinds: Any) -> list[Op]:
    """The ops of some kinds in an op or inside it."""
    inside = (inner for region in op.regions for inner in region.walk())
    return [inner for inner in (op, *inside) if isinstance(inner, kinds)]


class _Rounds:
    """How many rounds of each ring every tile goes, computed before the loop over tiles."""

    def __init__(self, role: cta.Role, loop: flow.For) -> None:
        self.loop = loop
        self.ahead = Builder(Region())
        self.ahead.loc = loop.loc
        self.inside = {*loop.body.args, *(v for op in loop.body.walk() for v in op.results)}
        self.inside |= {a for op in loop.body.walk() for r in op.regions for a in r.args}
        self.moved: dict[Value[Any], Value[Any]] = {}
        self.counts: dict[Value[Any], Value[Scalar]] = {}
        for op in _walk(loop, cta.Wait):
            assert isinstance(op, cta.Wait)
            if op.ring not in self.counts:
                self.counts[op.ring] = self._count(op.ring)

    def _count(self, ring: Value[Any]) -> Value[Scalar]:
        total: Value[Scalar] | None = None
        for op in self.loop.body.ops:
            waits = [w for w in _walk(op, cta.Wait) if w.ring is ring]  # type: ignore[attr-defined]
            if not waits:
                continue
            each: Value[Scalar] = constant(self.ahead, len(waits))
            if isinstance(op, flow.For) and all(w in op.body.ops for w in waits):
                each = self.ahead.add(math.Mul(self._trips(op), each), "rounds").out
            elif op not in waits:
                raise _cannot(
                    "how often a tile waits for its operands depends on a branch or on loops in "
                    "loops, so no warpgroup knows how many stages the other takes",
                    "leave it out",
                    op,
                )
            total = each if total is None else self.ahead.add(math.Add(total, each), "rounds").out
        assert total is not None
        return total

    def _trips(self, op: flow.For) -> Value[Scalar]:
        lower, upper, step = (self._before(v, op) for v in (op.lower, op.upper, op.step))
        if constant_value(lower) == 0 and isinstance(upper.owner, cta.ExtentOf):
            return self.ahead.add(math.CeilDiv(upper, step), "rounds").out
        span = upper
        if constant_value(lower) != 0:
            span = self.ahead.add(math.Sub(upper, lower)).out
        trips = self.ahead.add(math.CeilDiv(span, step), "rounds").out
        return self.ahead.add(math.Max(trips, constant(self.ahead, 0)), "rounds").out

    def _before(self, value: Value[Any], user: Op) -> Value[Any]:
        """A value of the loop over tiles, computed before it."""
        if value not in self.inside:
            return value
        made = value.owner
        if not isinstance(made, Op) or not made.name.startswith("math.") or made.regions:
            raise _cannot(
                "how many rounds this loop goes depends on the tile, so no warpgroup knows how "
                "many stages the other takes",
                "leave it out",
                user,
            )
        if value not in self.moved:
            for operand in made.operands:
                self.moved[operand] = self._before(operand, user)
            self.ahead.add(rewrite.clone(made, self.moved))
        return self.moved[value]


# --- two groups instead of one --------------------------------------------------------------------


def _renumbered(role: cta.Role) -> int:
    """Named barriers for both groups; the first one that nobody uses."""
    most = 1
    for op in role.body.walk():
        if isinstance(op, cta.Exchange | memory.Share):
            raise _cannot(
                "the warps of a group exchange parts of a row through shared memory",
                "leave it out",
                op,
            )
        if isinstance(op, cta.Sync):
            op.barrier = 1 + (op.barrier - 1) * GROUPS
            most = max(most, op.barrier + GROUPS)
    return most


def _single_group(role: cta.Role) -> None:
    """What was computed from the number of the only group is the same for both."""
    number = role.body.args[0]
    zero = math.Constant(0, type=number.type)
    for op in role.body.walk():
        if number in op.operands and not isinstance(op, cta.Sync):
            op.map_operands({number: zero.out})
    role.body.ops.insert(0, zero)


def _own_buffers(kernel: Kernel, role: cta.Role) -> None:
    """Each group sees rows of its own of what one group had for itself."""
    plain = cta.Put | cta.Get | cta.StoreTile | cta.Product
    for buffer in [op for op in kernel.body.ops if isinstance(op, cta.Buffer)]:
        users = [op for op in role.body.walk() if buffer.out in op.operands]
        other = next((op for op in users if not isinstance(op, plain)), None)
        rows = buffer.type.shape[0] if isinstance(buffer.type, Shared) else 0
        if other is not None or not isinstance(rows, int) or not double_rows(buffer, 1):
            raise _cannot(
                f"%{buffer.out.name} in shared memory cannot be cut in rows for two warpgroups",
                "leave it out",
                other or (users[0] if users else role),
            )
        window = cta.Window(buffer.out, role.body.args[0], rows=rows)
        window.out.name, window.loc = buffer.out.name, role.loc
        for op in users:
            op.map_operands({buffer.out: window.out})
        role.body.ops.insert(0, window)


def _take_every_other(role: cta.Role, loop: flow.For, rounds: _Rounds) -> None:
    """Start at the group's first tile and go on by as many as there are groups."""
    ahead, number = rounds.ahead, role.body.args[0]
    first = ahead.add(math.Mul(number, loop.step)).out
    first = ahead.add(math.Add(loop.lower, first), "first_tile").out
    stride = ahead.add(math.Mul(loop.step, constant(ahead, GROUPS))).out
    for ring, count in rounds.counts.items():
        before = ahead.add(math.Mul(number, count), "ahead").out
        ahead.add(Skip(ring, before))
        skip = Skip(ring, count)
        skip.loc = loop.loc
        loop.body.ops.insert(len(loop.body.ops) - 1, skip)
    at = role.body.ops.index(loop)
    role.body.ops[at:at] = ahead.region.ops
    loop.lower, loop.step = first, stride


def _hold_the_token(role: cta.Role, loop: flow.For, turns: Value[Any]) -> None:
    """From before the first product of a tile until the last one is issued."""
    ops = loop.body.ops
    having = [n for n, op in enumerate(ops) if _walk(op, cta.Product)]
    number = role.body.args[0]
    wait, hand_on = cta.WaitTurn(turns, number), cta.PassTurn(turns, number)
    wait.loc = hand_on.loc = ops[having[0]].loc
    ops.insert(having[-1] + 1, hand_on)
    ops.insert(having[0], wait)
