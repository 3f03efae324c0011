"""Arrays of which one thread sees what another one wrote: where the warps have to wait.

Within an iteration, effects on an array happen in the program's order. Where all accesses are tiles
of subscripts, a thread writes its own elements only; but warps that hold copies of them read them
too, so a write waits for the reads before it, and a read for the writes. At computed places a
thread meets elements of others; so where such an access comes together with a write, each access of
the array waits for the one before. Updates of one kind whose results nobody asks for may go on side
by side.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Op, Region, Value
from tilec.ir.levels import flow, tile
from tilec.passes.runs import PLACE_OPS

Arrays = frozenset[Value[Any]]


def array_of(op: Op) -> Value[Any] | None:
    """The array that an op accesses."""
    if isinstance(op, (tile.Load, tile.Store, *PLACE_OPS)):
        found: Value[Any] = op.array
        return found
    return None


def crossed_arrays(region: Region) -> Arrays:
    """The arrays whose accesses wait for one another."""
    accesses: dict[Value[Any], list[Op]] = {}
    for op in region.walk():
        array = array_of(op)
        if array is not None and array.type.mode != "in":
            accesses.setdefault(array, []).append(op)
    repeated = set(_in_loops(region, inside=False))
    return frozenset(array for array, ops in accesses.items() if _crossed(ops, repeated))


def _crossed(ops: list[Op], repeated: set[Op]) -> bool:
    placed = any(isinstance(op, PLACE_OPS) for op in ops)
    updates = {getattr(op, "update", "") for op in ops}
    if not placed and updates == {""}:
        return False
    if all(isinstance(op, tile.Gather | tile.Load) for op in ops):
        return False
    if len(updates) == 1 and "" not in updates:
        return any(op.results for op in ops) and len(ops) > 1
    return len(ops) > 1 or ops[0] in repeated


def late_accesses(region: Region) -> frozenset[Op]:
    """Reads of tiles that come after a write of the array, and writes that come after a read."""
    repeated = set(_in_loops(region, inside=False))
    accesses: dict[Value[Any], list[Op]] = {}
    late: list[Op] = []
    for op in region.walk():
        array = array_of(op)
        if array is None or array.type.mode == "in" or getattr(op, "update", ""):
            continue
        before = accesses.setdefault(array, [])
        if any(type(other) is not type(op) for other in before):
            late.append(op)
        before.append(op)
    for ops in accesses.values():
        if len({type(op) for op in ops}) > 1:
            late += [op for op in ops if op in repeated]
    return frozenset(late)


def _in_loops(region: Region, *, inside: bool) -> list[Op]:
    """Ops that one iteration may run several times."""
    found: list[Op] = []
    for op in region.ops:
        if inside:
            found.append(op)
        loops = isinstance(op, tile.ForTiles | flow.For | flow.While)
        for nested in op.regions:
            found += _in_loops(nested, inside=inside or loops)
    return found
