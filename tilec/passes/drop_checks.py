"""Compile ``assert`` and ``print`` away where the schedule says ``checks = false``.

Neither changes a result, so a kernel without them computes the same; what was computed for them
alone goes too.
"""

from __future__ import annotations

from tilec.ir import rewrite
from tilec.ir.core import Kernel, Region
from tilec.ir.levels import author
from tilec.passes.base import Context, tile_pass


def _without(region: Region) -> int:
    """Take them out of a region and all within it; how many there were."""
    kept = [op for op in region.ops if not isinstance(op, author.Assert | author.Print)]
    count, region.ops = len(region.ops) - len(kept), kept
    return count + sum(_without(nested) for op in kept for nested in op.regions)


@tile_pass("drop-checks", level="tile")
def drop_checks(kernel: Kernel, ctx: Context) -> None:
    """Nothing is asserted or printed where the schedule says so."""
    if ctx.schedule.checks is not False:
        return
    count = _without(kernel.body)
    if count:
        rewrite.remove_dead(kernel.body)
        ctx.remark(None, f"checks = false: {count} assertions and prints are compiled away")
