"""Roles, loops, branches: the structured control of level ``cta`` in ``ptx`` form.

A ring's cursor, the stage and parity that a role comes to next, is state of the role; loops and
branches carry it along with the values that the program carries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilec.ir.core import Builder, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import cta, flow, mma, ptx
from tilec.ir.levels.turns import Skip
from tilec.passes.select.division import constant_of
from tilec.passes.select.selector import PtxValue, RoleState, Selector, lowers


def advanced_rings(regions: Iterable[Region]) -> list[Value[Any]]:
    """Rings whose cursor moves within the regions, in order of first use."""
    rings: dict[Value[Any], None] = {}
    for region in regions:
        for op in region.walk():
            if isinstance(op, cta.Acquire | cta.Wait | Skip):
                rings[op.ring] = None
    return list(rings)


def _flat_cursors(sel: Selector, rings: list[Value[Any]]) -> list[PtxValue]:
    return [part for ring in rings for part in sel.cursors[ring]]


def _take_cursors(sel: Selector, rings: list[Value[Any]], flat: list[PtxValue]) -> None:
    for position, ring in enumerate(rings):
        sel.cursors[ring] = (flat[2 * position], flat[2 * position + 1])


def _spread(
    sel: Selector, values: Iterable[Value[Any]], stands: Iterable[PtxValue]
) -> list[PtxValue]:
    """Bind values to as many of ``stands`` as their widths say; give back what is left."""
    rest = list(stands)
    for value in values:
        width = len(sel.values[value])
        sel.set(value, *rest[:width])
        rest = rest[width:]
    return rest


def _flat(sel: Selector, values: Iterable[Value[Any]]) -> list[PtxValue]:
    flat: list[PtxValue] = []
    for value in values:
        if value not in sel.values:
            raise Refused(f"{value!r} is a view or a ring, and those cannot be carried")
        flat.extend(sel.values[value])
    return flat


@lowers(flow.For)
def _for(sel: Selector, op: flow.For) -> None:
    lower, upper, step = sel.get(op.lower), sel.get(op.upper), sel.get(op.step)
    rings = advanced_rings([op.body])
    init = [*_flat(sel, op.init), *_flat_cursors(sel, rings)]
    known = [constant_of(v) for v in (op.lower, op.upper)]
    runs = all(isinstance(k, int) for k in known) and known[0] < known[1]  # type: ignore[operator]
    outer = sel.build.region
    inside = outer if runs else Region()
    with sel.build.inside(inside):
        loop = _loop(sel, op, [lower, upper, step], init, rings)
    finals = list(loop.finals[1:])
    if not runs:
        skipped = Region()
        for region, values in ((inside, finals), (skipped, init)):
            with sel.build.inside(region):
                sel.build.add(ptx.Yield(tuple(values)))
        enters = sel.alu("setp.lt.s32", lower, upper, kind="pred")
        choice = ptx.If(
            enters,
            types=tuple(v.type for v in init),
            then=inside,
            otherwise=skipped,
        )
        finals = list(sel.build.add(choice).out)
    for final, start in zip(op.finals, op.init, strict=True):
        sel.stand_alike(final, start)
    rest = _spread(sel, op.finals, finals)
    _take_cursors(sel, rings, rest)


def _loop(
    sel: Selector,
    op: flow.For,
    bounds: list[PtxValue],
    init: list[PtxValue],
    rings: list[Value[Any]],
) -> ptx.Loop:
    lower, upper, step = bounds
    body = Region()
    start = sel.alu("mov.b32", lower)
    index = body.add_arg(start.type, op.body.args[0].name)
    args = [body.add_arg(v.type, v.name) for v in init]
    sel.set(op.body.args[0], index)
    for arg, value in zip(op.body.args[1:], op.init, strict=True):
        sel.stand_alike(arg, value)
    rest = _spread(sel, op.body.args[1:], args)
    _take_cursors(sel, rings, rest)
    with sel.build.inside(body):
        sel.region(op.body)
        following = sel.alu("add.s32", index, step)
        again = sel.alu("setp.lt.s32", following, upper, kind="pred")
        nexts = [*_flat(sel, flow.yielded(op.body)), *_flat_cursors(sel, rings)]
        sel.build.add(ptx.Yield((again, following, *nexts)))
    return sel.build.add(ptx.Loop((start, *init), body=body))


@lowers(flow.While)
def _while(sel: Selector, op: flow.While) -> None:
    """Test, then a loop that tests at its end: the test's ops stand in both places."""
    rings = advanced_rings([op.test, op.body])
    for arg, value in zip(op.test.args, op.init, strict=True):
        sel.stand_alike(arg, value)
    sel.region(op.test)
    enters = sel.get(flow.yielded(op.test)[0])
    init = [*_flat(sel, op.init), *_flat_cursors(sel, rings)]
    inside, skipped, body = Region(), Region(), Region()
    with sel.build.inside(inside):
        args = [body.add_arg(v.type, v.name) for v in init]
        for arg, value in zip(op.body.args, op.init, strict=True):
            sel.stand_alike(arg, value)
        _take_cursors(sel, rings, _spread(sel, op.body.args, args))
        with sel.build.inside(body):
            sel.region(op.body)
            lasts = flow.yielded(op.body)
            for arg, value in zip(op.test.args, lasts, strict=True):
                sel.stand_alike(arg, value)
            sel.region(op.test)
            again = sel.get(flow.yielded(op.test)[0])
            sel.build.add(ptx.Yield((again, *_flat(sel, lasts), *_flat_cursors(sel, rings))))
        loop = sel.build.add(ptx.Loop(tuple(init), body=body))
        sel.build.add(ptx.Yield(tuple(loop.finals)))
    with sel.build.inside(skipped):
        sel.build.add(ptx.Yield(tuple(init)))
    types = tuple(v.type for v in init)
    choice = ptx.If(enters, uniform=True, types=types, then=inside, otherwise=skipped)
    finals = list(sel.build.add(choice).out)
    for final, start in zip(op.finals, op.init, strict=True):
        sel.stand_alike(final, start)
    _take_cursors(sel, rings, _spread(sel, op.finals, finals))


@lowers(flow.If)
def _if(sel: Selector, op: flow.If) -> None:
    rings = advanced_rings([op.then, op.otherwise])
    before = _flat_cursors(sel, rings)
    regions: list[Region] = []
    given: list[tuple[Value[Any], ...]] = []
    for source in (op.then, op.otherwise):
        _take_cursors(sel, rings, before)
        body = Region()
        with sel.build.inside(body):
            sel.region(source)
            given.append(flow.yielded(source))
            flat = [*_flat(sel, given[-1]), *_flat_cursors(sel, rings)]
            sel.build.add(ptx.Yield(tuple(flat)))
        regions.append(body)
    last = regions[1].terminator
    types = tuple(v.type for v in last.operands) if last is not None else ()
    choice = ptx.If(
        sel.get(op.condition),
        cold=op.cold,
        uniform=True,
        types=types,
        then=regions[0],
        otherwise=regions[1],
    )
    out = list(sel.build.add(choice).out)
    for value, first, second in zip(op.out, *given, strict=True):
        if sel.records.get(first) is not sel.records.get(second):
            raise Refused(f"the branches give {value!r} from two rings")
        sel.stand_alike(value, second)
    _take_cursors(sel, rings, _spread(sel, op.out, out))


@lowers(cta.Weave)
def _weave(sel: Selector, op: cta.Weave) -> None:
    body = Region()
    with sel.build.inside(body):
        sel.region(op.body)
        inner = flow.yielded(op.body)
        flat = _flat(sel, inner)
        sel.build.add(ptx.Yield(tuple(flat)))
    woven = sel.build.add(ptx.Weave(types=tuple(v.type for v in flat), body=body))
    for value, source in zip(op.out, inner, strict=True):
        sel.stand_alike(value, source)
    _spread(sel, op.out, woven.out)


def lower_roles(sel: Selector, roles: list[cta.Role]) -> None:
    """Part the warps into their roles: first by warpgroup, where register counts change.

    Set-up belongs to the loop that a role runs, and carries its place.
    """
    clusters = _clusters(roles)
    _dispatch(sel, clusters, 0)


def _clusters(roles: list[cta.Role]) -> list[list[cta.Role]]:
    """Roles that share a warpgroup stay together."""
    clusters: list[list[cta.Role]] = []
    for role in sorted(roles, key=lambda r: r.first):
        last = clusters[-1][-1] if clusters else None
        if last is not None and (last.first + last.warps - 1) // 4 >= role.first // 4:
            clusters[-1].append(role)
        else:
            clusters.append([role])
    return clusters


def _dispatch(sel: Selector, clusters: list[list[cta.Role]], begin: int) -> None:
    """Part the warpgroups from ``begin`` on; those between two clusters have nothing to do."""
    cluster, *rest = clusters
    first_warpgroup = cluster[0].first // 4
    last = cluster[-1]
    end_warpgroup = -(-(last.first + last.warps) // 4)
    if not rest and first_warpgroup == begin:
        _cluster(sel, cluster)
        return
    warpgroup = sel.at_kernel("warpgroup", lambda b: sel.alu_on(b, "shr.u32", sel.warp(), 2))
    then, otherwise = Region(), Region()
    if first_warpgroup > begin:
        inside = sel.alu("setp.ge.u32", warpgroup, first_warpgroup, kind="pred")
        with sel.build.inside(then):
            _dispatch(sel, clusters, first_warpgroup)
            sel.build.add(ptx.Yield(()))
        otherwise = Region([], [ptx.Yield(())])
        sel.build.add(ptx.If(inside, uniform=True, types=(), then=then, otherwise=otherwise))
        return
    inside = sel.alu("setp.lt.u32", warpgroup, end_warpgroup, kind="pred")
    with sel.build.inside(then):
        _cluster(sel, cluster)
        sel.build.add(ptx.Yield(()))
    with sel.build.inside(otherwise):
        _dispatch(sel, rest, end_warpgroup)
        sel.build.add(ptx.Yield(()))
    sel.build.add(ptx.If(inside, uniform=True, types=(), then=then, otherwise=otherwise))


def _cluster(sel: Selector, roles: list[cta.Role]) -> None:
    threads = sel.kernel.attributes["threads"]
    entry_registers = 65536 // threads // 8 * 8
    registers = max(role.registers for role in roles)
    if registers and registers != entry_registers:
        direction = "dec" if registers < entry_registers else "inc"
        sel.build.add(ptx.SetMaxRegisters(direction=direction, count=registers))
    warps = 4 * (-(-(roles[-1].first + roles[-1].warps) // 4) - roles[0].first // 4)
    for role in roles:
        if role.warps == warps or role.warps * 32 == threads:
            _role(sel, role)
            continue
        offset = sel.alu("sub.u32", sel.warp(), role.first)
        mine = sel.alu("setp.lt.u32", offset, role.warps, kind="pred")
        body = Region()
        with sel.build.inside(body):
            _role(sel, role)
            sel.build.add(ptx.Yield(()))
        empty = Region([], [ptx.Yield(())])
        sel.build.add(ptx.If(mine, uniform=True, types=(), then=body, otherwise=empty))


def _role(sel: Selector, role: cta.Role) -> None:
    """Lower one role's body, its entry facts first."""
    entry, body = Region(), Region()
    outer_entry, outer_memo = sel.entry, sel.entry_memo
    sel.entry, sel.entry_memo, sel.cursors = Builder(entry), {}, {}
    sel.entry.loc = role.loc
    producer = any(isinstance(op, cta.Acquire) for op in role.body.walk())
    sel.role = RoleState(role.label, role.first, role.group, role.warps // role.group, producer)
    with sel.build.inside(body), sel.build.at(role.loc):
        sel.set(role.body.args[0], sel.group())
        _start_cursors(sel, role)
        _open_turns(sel, role)
        sel.region(role.body)
        if any(isinstance(op, mma.Copy) for op in role.body.walk()):
            # The threads stay until what they copy has landed and been counted.
            sel.build.add(ptx.Fence(kind="copies_landed"))
    sel.build.region.ops.extend([*entry.ops, *body.ops])
    sel.entry, sel.entry_memo, sel.role = outer_entry, outer_memo, None


def _start_cursors(sel: Selector, role: cta.Role) -> None:
    for op in role.body.walk():
        if isinstance(op, cta.Acquire | cta.Wait | Skip) and op.ring not in sel.cursors:
            # A fresh barrier is in phase 0: waiting for parity 1 passes at once, so the
            # producer's first round finds every stage empty (PTX ISA, mbarrier.try_wait).
            parity = 1 if isinstance(op, cta.Acquire) else 0
            sel.cursors[op.ring] = (sel.alu("mov.b32", 0), sel.alu("mov.b32", parity))


def _open_turns(sel: Selector, role: cta.Role) -> None:
    seen: set[Value[Any]] = set()
    for op in role.body.walk():
        if isinstance(op, cta.WaitTurn) and op.turns not in seen:
            seen.add(op.turns)
            turns = op.turns.owner
            if not isinstance(turns, cta.Turns):
                raise Refused("the turns must be made by cta.turns in the kernel's body")
            # The last group arrives for the first one's turn, which so finds the token waiting.
            last = sel.alu("setp.eq.u32", sel.group(), turns.groups - 1, kind="pred")
            body = Region()
            with sel.build.inside(body):
                threads = 2 * 32 * role.group
                sel.build.add(ptx.BarrierArrive(sel.constant(turns.barrier), threads=threads))
                sel.build.add(ptx.Yield(()))
            empty = Region([], [ptx.Yield(())])
            sel.build.add(ptx.If(last, uniform=True, types=(), then=body, otherwise=empty))
