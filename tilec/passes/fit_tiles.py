"""Fit the tiles that an author pinned to what a warpgroup, a CTA and a thread can take.

Law: along a parallel axis on which nothing is combined or counted, a launch over tiles is a launch
over tiles of any other size. So a tile of 80 rows runs as one of 128, of which the edge is never
stored, and a tile of 512 columns as two of 256. Sizes that pass judgement here are left alone; an
axis that is combined, or that runs inside a CTA, keeps its size, and the product is refused where
it is formed.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm, prod
from typing import Any

from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.facts import Schedule
from tilec.ir.levels import flow, tile
from tilec.ir.types import Extent, Index, Tile
from tilec.layout.descriptor import STEP_BYTES
from tilec.passes.axes import Axes, AxisClass, combined
from tilec.passes.base import Context
from tilec.passes.form_products import by_rings
from tilec.passes.frames import FRAGMENT_ROWS, PRODUCT_ROWS
from tilec.passes.refusal import refused

MOST_ELEMENTS = 64
"""Elements of a tile in one thread: two tiles of f32 fill half of its registers."""
MOST_COLUMNS = 256
"""N of one wgmma (PTX ISA 9.7.15.2)."""
MOST_COLUMNS_ALONE = 128
"""The same where the warps bring the operands themselves, which takes registers too."""
KNOWN_MULTIPLE = 16
"""Of columns and of K along known axes, in elements."""
MOST_GROUPS = 3
"""Warpgroups beside a producer that leave each enough registers for an accumulator."""


def fit_products(
    ctx: Context, axes: Axes, kernel: Kernel, loop: tile.Parallel, schedule: Schedule
) -> Schedule | None:
    """Change tile sizes where products need it; the schedule then, None if nothing changed."""
    dots = [op for op in kernel.body.walk() if isinstance(op, tile.Dot)]
    if not dots:
        return None
    rings = by_rings(ctx, schedule, kernel.body)
    changed: Schedule | None = None
    free = {axes.of(arg, 0) for arg in loop.body.args if isinstance(arg.type, Index)}
    for place in (0, 1):
        found = {axes.of(op.out, place) for op in dots}
        (axis,) = found if len(found) == 1 else (None,)
        if axis is None or axis not in free or _has_a_meaning(axes, kernel.body, axis):
            continue
        if not isinstance(axis.size, int):
            continue
        taken = rows_taken if place == 0 else columns_taken
        wanted = taken(axis.size, rings)
        if wanted == axis.size:
            continue
        what = "rows" if place == 0 else "columns"
        ctx.remark(
            dots[0], f"tiles of {axis.size} {what} along {axis.name} are run as tiles of {wanted}"
        )
        resize(kernel.body, axis, wanted)
        changed = changed or schedule
        if place == 0:
            changed = replace(changed, warpgroups=max(1, wanted // PRODUCT_ROWS))
    return changed


def fit_elements(
    ctx: Context, axes: Axes, kernel: Kernel, loop: tile.Parallel, threads: int
) -> bool:
    """Cut tiles of kernels without products to what threads can hold; True if anything changed."""
    free = [
        axes.of(arg, 0)
        for arg in loop.body.args
        if isinstance(arg.type, Index) and not _has_a_meaning(axes, kernel.body, axes.of(arg, 0))
    ]
    changed = False
    # A thread has its share of the register file; half of it is for the tile.
    most = min(MOST_ELEMENTS, ctx.target.registers_per_sm // threads // 2)
    while (largest := _largest(kernel.body)) is not None:
        held = prod(int(s) for s in largest.type.shape) // threads
        inside = axes.all_of(largest)
        axis = next((a for a in free if a in inside and a and int(a.size) > 1), None)
        if held <= most or axis is None:
            if held > 4 * most:
                owner = largest.owner if isinstance(largest.owner, Op) else None
                raise refused(
                    owner,
                    f"a tile {largest.type} is {held} elements for each of {threads} threads: "
                    "pin smaller tiles or more warpgroups",
                )
            return changed
        wanted = -(-int(axis.size) // 2)
        ctx.remark(loop, f"each CTA takes {wanted} of the {axis.size} positions of {axis.name}")
        resize(kernel.body, axis, wanted)
        axis.size = wanted
        changed = True
    return changed


def _has_a_meaning(axes: Axes, region: Region, axis: AxisClass | None) -> bool:
    """Whether a result depends on the size along a class: it is combined, or its tiles counted."""
    return combined(axes, region, axis) or any(
        isinstance(op, tile.ValidCount) and axes.of(op.index, 0) is axis for op in region.walk()
    )


def _largest(region: Region) -> Value[Any] | None:
    """The tile with the most elements."""
    values = [value for op in region.walk() for value in op.results if isinstance(value.type, Tile)]
    return max(values, key=lambda v: prod(int(s) for s in v.type.shape), default=None)


def rows_taken(size: int, rings: bool) -> int:
    """Rows of the tile that a CTA takes, where a tile of ``size`` rows was asked for."""
    if size < PRODUCT_ROWS:
        return -(-size // FRAGMENT_ROWS) * FRAGMENT_ROWS
    if not rings:
        return PRODUCT_ROWS
    groups = -(-size // PRODUCT_ROWS)
    return PRODUCT_ROWS * groups if groups <= MOST_GROUPS else 2 * PRODUCT_ROWS


def columns_taken(size: int, rings: bool) -> int:
    """Columns of the tile that a CTA takes, where ``size`` columns were asked for."""
    return min(size, MOST_COLUMNS if rings else MOST_COLUMNS_ALONE)


def resize(region: Region, axis: AxisClass, size: Extent) -> None:
    """Give an axis class another size, in every type that has it."""
    for value, place in axis.members:
        if isinstance(value.type, Index):
            value.type = replace(value.type, size=size)
        else:
            shape = list(value.type.shape)
            shape[place] = size
            value.type = replace(value.type, shape=tuple(shape))
    for op in region.walk():
        if isinstance(op, tile.Parallel):
            op.sizes = tuple(
                arg.type.size if isinstance(arg.type, Index) else 0 for arg in op.body.args
            )
        elif isinstance(op, tile.ForTiles):
            op.size = op.body.args[0].type.size
        elif isinstance(op, tile.Whole):
            op.size = op.out.type.size
        elif "type" in op.specs and len(op.results) == 1:
            op.type = op.results[0].type  # type: ignore[attr-defined]
        elif isinstance(op, flow.If):
            op.types = tuple(v.type for v in op.out)


def known_multiple(axes: Axes, region: Region, axis: AxisClass) -> int:
    """What the extent of an axis has to be a multiple of, for the products that run along it.

    Rows are those of a warpgroup; columns and K come in sixteens, which every N of wgmma and the
    narrowest swizzle of 16-bit elements allow, and K in steps of 32 bytes.
    """
    wanted = KNOWN_MULTIPLE
    for op in region.walk():
        if isinstance(op, tile.Dot):
            if axes.of(op.a, 1) is axis:
                wanted = lcm(wanted, STEP_BYTES // op.a.type.dtype.bytes)
            if axes.of(op.out, 0) is axis:
                wanted = lcm(wanted, PRODUCT_ROWS)
    return wanted
