"""Run a kernel at level ``cta`` on NumPy arrays, one CTA, or cluster of them, after another.

Groups of roles are coroutines: whoever can go on does, in the order in which the kernel lists
them; when nobody can, that is a ``Deadlock`` that says what each of them waits for. Global memory
is watched as at level ``tile``: two CTAs of one launch on one element, one of them writing, are a
race. Nothing here knows an instruction, an address, or time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilec.interp.cta import (  # noqa: F401  (register the meanings)
    memory_meanings,
    register_meanings,
    ring_meanings,
)
from tilec.interp.cta.faults import Deadlock, ProtocolFault
from tilec.interp.cta.group import Group, Pending, Shelf, Steps
from tilec.interp.cta.shared import RingState
from tilec.interp.elementwise import settle
from tilec.interp.machine import held, line_of
from tilec.interp.memory import InterpretError, Memory
from tilec.interp.numbers import Data
from tilec.ir.alternation import releasing_groups
from tilec.ir.clusters import cluster_shape, place_of
from tilec.ir.core import Kernel, Value
from tilec.ir.levels import cluster, cta
from tilec.ir.types import Scalar

_OF_A_CTA = (cta.Buffer, cta.MakeRing, cta.Turns)
_MOST_CTAS = 1 << 20


def run_cta(
    kernel: Kernel,
    arrays: Mapping[str, Data],
    scalars: Mapping[str, Any] | None = None,
    *,
    wide: bool = False,
) -> None:
    """Execute a kernel, writing into the arrays that it writes (workspace among them).

    ``wide`` computes all floats in float64 without rounding.
    """
    values: dict[Value[Any], Any] = {}
    memories = []
    for parameter in kernel.body.args:
        if isinstance(parameter.type, Scalar):
            if parameter.name not in (scalars or {}):
                raise InterpretError(f"the parameter {parameter.name} has no value")
            given = np.asarray((scalars or {})[parameter.name])
            if parameter.type.dtype.is_float:
                given = given.astype(np.float64)
            values[parameter] = held(settle(parameter.type.dtype, given, wide))
        else:
            array = arrays[parameter.name]
            memory = Memory(parameter.name, parameter.type, array, wide)
            memory.others = "another CTA"
            memory.begin_parallel()
            memories.append(memory)
            values[parameter] = memory
    with np.errstate(all="ignore"):
        _launch(kernel, values, wide)
    for memory in memories:
        memory.end_parallel()


def run_launches(
    kernels: Sequence[Kernel],
    arrays: Mapping[str, Data],
    scalars: Mapping[str, Any] | None = None,
    *,
    wide: bool = False,
) -> None:
    """Execute the launches of one kernel in order; ``arrays`` has the workspace too."""
    for kernel in kernels:
        run_cta(kernel, arrays, scalars, wide=wide)


def _launch(kernel: Kernel, values: dict[Value[Any], Any], wide: bool) -> None:
    """Compute the grid as the launcher does, and run its CTAs."""
    host = Group(None, 0, values, Shelf(), 0, wide)
    per_cta = {v for op in kernel.body.ops for v in op.results if isinstance(op, _PER_CTA)}
    count = 0
    for op in kernel.body.ops:
        if isinstance(op, cta.Grid):
            count = int(host.number_of(op.count))
        elif isinstance(op, (*_PER_CTA, cta.Role, cluster.Shape)):
            continue
        elif per_cta.isdisjoint(op.operands):
            host.now(op)
        else:
            per_cta.update(op.results)
    if count > _MOST_CTAS:
        raise InterpretError(f"{count} CTAs are more than anybody waits for here")
    shape = cluster_shape(kernel)
    together = shape[0] * shape[1]
    if count % together:
        raise InterpretError(f"a grid of {count} CTAs is no whole number of clusters of {together}")
    for first in range(0, count, together):
        shelves: list[Shelf] = []
        groups: list[Group] = []
        for rank in range(together):
            shelf = Shelf(peers=shelves, rank=rank, shape=shape)
            shelves.append(shelf)
            groups += _groups_of(kernel, dict(values), first + rank, count, shelf, wide)
        _run_groups(groups)


_PER_CTA = (
    cta.CtaIndex, cta.CtaCount, cluster.Rank, cluster.ClusterIndex, cluster.ClusterCount,
    *_OF_A_CTA,
)  # fmt: skip


def _groups_of(
    kernel: Kernel,
    values: dict[Value[Any], Any],
    number: int,
    count: int,
    shelf: Shelf,
    wide: bool,
) -> list[Group]:
    """The groups of one CTA, whose shared memory is new."""
    roles = [op for op in kernel.body.ops if isinstance(op, cta.Role)]
    together = shelf.shape[0] * shelf.shape[1]
    setup = Group(None, 0, values, shelf, number + 1, wide)
    for op in kernel.body.ops:
        if isinstance(op, cta.CtaIndex):
            values[op.out] = held(np.int32(number))
        elif isinstance(op, cta.CtaCount):
            values[op.out] = held(np.int32(count))
        elif isinstance(op, cluster.Rank):
            values[op.out] = held(np.int32(place_of(shelf.shape, shelf.rank)[op.axis]))
        elif isinstance(op, cluster.ClusterIndex):
            values[op.out] = held(np.int32(number // together))
        elif isinstance(op, cluster.ClusterCount):
            values[op.out] = held(np.int32(count // together))
        elif isinstance(op, cta.MakeRing):
            shelf.rings[op.out] = RingState(op, _consumers(roles, op.out), wide)
            values[op.out] = shelf.rings[op.out]
        elif not isinstance(op, cta.Role | cta.Grid | cluster.Shape) and any(
            v not in values for v in op.results
        ):
            setup.now(op)
    return [
        Group(role, group, dict(values), shelf, number + 1, wide)
        for role in roles
        for group in range(role.warps // role.group)
    ]


def _consumers(roles: Sequence[cta.Role], ring: Value[Any]) -> int:
    """Groups whose release a stage needs: those of every role that releases the ring."""
    return sum(releasing_groups(role, ring) for role in roles)


def _run_groups(groups: Sequence[Group]) -> None:
    """Let groups of CTAs that run together go on until all have ended."""
    left: dict[Group, tuple[Steps, Pending | None]] = {g: (g.role_steps(), None) for g in groups}
    while left:
        moved = False
        for group, (steps, pending) in list(left.items()):
            if pending is not None and not pending.ready():
                continue
            moved = True
            try:
                left[group] = (steps, _advance(steps))
            except StopIteration:
                del left[group]
            except ProtocolFault as fault:
                raise _in_cta(fault, group.cta) from None
        if not moved:
            waits = {g: p for g, (_, p) in left.items() if p is not None}
            said = [f"{_who(g, waits)} waits for {p.what()}{_at(p)}" for g, p in waits.items()]
            who, first = next(iter(waits.items()))
            raise Deadlock([f"in CTA {who.cta} {said[0]}", *said[1:]], line_of(first.op))


def _who(group: Group, waiting: Mapping[Group, Pending]) -> str:
    """A group's name, with its CTA where several wait."""
    several = len({g.cta for g in waiting}) > 1
    return f"{group.name} of CTA {group.cta}" if several else group.name


def _advance(steps: Steps) -> Pending:
    """Go on until the next wait that is not over already."""
    pending = next(steps)
    while pending.ready():
        pending = next(steps)
    return pending


def _at(pending: Pending) -> str:
    line = line_of(pending.op)
    return f" at line {line}" if line else ""


def _in_cta(fault: ProtocolFault, number: int) -> ProtocolFault:
    if isinstance(fault, Deadlock):
        return fault
    return ProtocolFault(f"{fault.message}, CTA {number}", fault.line, fault.help)
