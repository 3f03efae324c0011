"""A kernel of several launches becomes several kernels, and workspace a parameter of those in need.

Each parallel loop at a kernel's top level is a launch: it becomes a kernel with all of the
parameters, a copy of the scalars before it that it uses, and an ``inout`` array for each workspace
that it touches. They stand in the module in the order in which the launcher runs them, and each
says which one it is (``launch``) and what the launcher makes for it (``workspace``: name, element
type, and extents as the launcher computes them). A kernel of one launch keeps its name and has no
``launch``. From here on a pass sees one kernel of one launch at a time.

What a schedule pins goes where it has a meaning: a loop's tile size to the kernels that have a loop
of that name, a swizzle to those that multiply with the array, what speaks of products to the
kernels with products if there are any. What has a meaning nowhere stays, and is refused where it
would have been.

Nothing here looks into a loop, or makes one launch of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.declare import Effects
from tilec.ir.facts import Schedule
from tilec.ir.levels import tile
from tilec.ir.types import Array
from tilec.passes.base import Context, tile_pass
from tilec.passes.check_schedule import index_sizes, refuse_unknown_loops
from tilec.passes.lift_requirements import launch_expression
from tilec.passes.refusal import refused
from tilec.passes.simplify import without_dropped_loops

_OF_PRODUCTS = ("stages", "warpgroups", "group", "persistent", "registers", "alternate")
"""Choices that the kernels with products take for themselves."""


@tile_pass("split-launches", level="tile")
def split_launches(kernel: Kernel, ctx: Context) -> list[Kernel]:
    """A kernel is one launch, and workspace is a parameter that the launcher provides."""
    loops = [op for op in kernel.body.ops if isinstance(op, tile.Parallel)]
    temps = [op for op in kernel.body.ops if isinstance(op, tile.Temp)]
    if len(loops) <= 1 and not temps:
        return [kernel]
    refuse_unknown_loops(kernel, ctx.schedule.tiles, "tiles")
    names = _workspace_names(kernel, temps)
    made = []
    for number, loop in enumerate(loops, 1):
        part = _one_launch(kernel, loop, names)
        if len(loops) > 1:
            part.name = f"{kernel.name}_{number}"
            part.attributes["launch"] = (kernel.name, number, len(loops))
        made.append(part)
    there = {name for part in made for name in index_sizes(part)}
    schedule = without_dropped_loops(ctx, index_sizes(kernel).keys() - there)
    for part, choices in zip(made, handed_out(made, schedule), strict=True):
        part.schedule = choices.as_attributes()
        _check_order(part)
    what = f"{len(loops)} launches in order" if len(loops) > 1 else "one launch"
    ctx.remark(
        loops[0] if loops else None,
        what + (f", with workspace {', '.join(names.values())}" if names else ""),
        launches=len(loops),
        workspace=[str(op.out.type) for op in names],
    )
    return made


def _workspace_names(kernel: Kernel, temps: Sequence[tile.Temp]) -> dict[tile.Temp, str]:
    """A name for each workspace, apart from the parameters' and each other's."""
    taken = {arg.name for arg in kernel.body.args}
    found: dict[tile.Temp, str] = {}
    for op in temps:
        base = name = op.out.name or "workspace"
        count = 1
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        found[op] = name
    return found


def _one_launch(kernel: Kernel, loop: tile.Parallel, names: dict[tile.Temp, str]) -> Kernel:
    """A kernel of one parallel loop, and of what it needs of what stands around it."""
    used = {value for op in _within(loop) for value in op.operands}
    mapping: rewrite.Mapping = {}
    body = Region()
    for arg in kernel.body.args:
        mapping[arg] = body.add_arg(arg.type, arg.name)
    workspace = []
    for made, name in names.items():
        if made.out in used:
            mapping[made.out] = body.add_arg(made.out.type, name)
            extents = tuple(launch_expression(extent) for extent in made.extents)
            workspace.append((name, made.out.type.dtype, extents))
    for op in kernel.body.ops:
        if op is loop or not isinstance(op, tile.Parallel | tile.Temp):
            body.ops.append(rewrite.clone(op, mapping))
    rewrite.remove_dead(body)
    part = Kernel(kernel.name, body, dict(kernel.attributes))
    if workspace:
        part.attributes["workspace"] = tuple(workspace)
    return part


def _within(loop: Op) -> Iterator[Op]:
    yield loop
    for region in loop.regions:
        yield from region.walk()


# --- choices --------------------------------------------------------------------------------------


def handed_out(parts: Sequence[Kernel], schedule: Schedule) -> list[Schedule]:
    """What each launch takes of the choices made for all of them."""
    if len(parts) == 1:
        return [schedule]
    loops = [set(index_sizes(part)) for part in parts]
    multiplies = [any(isinstance(op, tile.Dot) for op in part.body.walk()) for part in parts]
    takers = multiplies if any(multiplies) else [True] * len(parts)
    arrays = [
        _arrays_in(p) if taker else set[str]() for p, taker in zip(parts, takers, strict=True)
    ]
    strays = {name for name, _ in schedule.swizzles if not any(name in a for a in arrays)}
    found = []
    for number, taker in enumerate(takers):
        tiles = [
            pin
            for pin in schedule.tiles
            if pin[0] in loops[number] or (number == 0 and not any(pin[0] in one for one in loops))
        ]
        here = arrays[number] | (strays if number == takers.index(True) else set())
        swizzles = [pin for pin in schedule.swizzles if pin[0] in here]
        own = replace(schedule, tiles=tuple(tiles), swizzles=tuple(swizzles))
        if not taker:
            own = replace(own, **{name: getattr(Schedule(), name) for name in _OF_PRODUCTS})
        found.append(own)
    return found


def _arrays_in(part: Kernel) -> set[str]:
    return {op.array.name for op in part.body.walk() if isinstance(op, tile.Load | tile.Store)}


# --- what one launch cannot do --------------------------------------------------------------------


def _check_order(part: Kernel) -> None:
    """Refuse workspace that is read after it was written in one launch.

    The threads of a CTA share no order of accesses to global memory, so one would read what another
    has not yet written.
    """
    made = {name for name, *_ in part.attributes.get("workspace", ())}
    written: set[Value[Any]] = set()
    for op in _twice(part.body):
        arrays = [v for v in op.operands if isinstance(v.type, Array) and v.name in made]
        if op.effects & Effects.WRITES:  # an update in memory reads what it finds there: any order
            written.update(arrays)
        elif op.effects & Effects.READS and written.intersection(arrays):
            raise refused(
                op,
                f"{arrays[0].name} is read in the launch that writes it: let a `parallel` loop end "
                "between the two, or keep the value in a name",
            )


def _twice(region: Region) -> Iterator[Op]:
    """The ops of a region in the order of running, loops two rounds long."""
    for op in region.ops:
        yield op
        rounds = 1 if isinstance(op, tile.Parallel) else 2
        for nested in op.regions:
            for _ in range(rounds):
                yield from _twice(nested)
