"""Which instruction multiplies: wgmma where a warpgroup's tile allows it, mma.sync otherwise.

Both leave a result of 64 rows a warpgroup in the same registers, so the choice is one of a single
product and changes no layout. wgmma reads its operands from shared memory by itself and runs
while the warps do other work; mma.sync takes fragments from registers, in any multiple of 16
rows. Each candidate says why it is none; a product that has no candidate is refused with all
reasons.
"""

from __future__ import annotations

from tilec.ir.core import Op, Region
from tilec.ir.levels import tile
from tilec.ir.types import DType, Index, Register
from tilec.layout.teams import (
    BLOCK_COLUMNS,
    BLOCK_ROWS,
    fragment_depth,
    warps_along_rows,
    warps_with_columns,
)
from tilec.passes.axes import Axes, AxisClass, combined_axis
from tilec.passes.base import Context
from tilec.passes.frames import FRAGMENT_ROWS, PRODUCT_ROWS, WARPGROUP_WARPS, Team
from tilec.passes.refusal import refused


def instruction_of(
    ctx: Context, op: Op, a: DType, b: DType, depth: int, out: Register, team: Team
) -> str:
    """``wgmma`` or ``mma.sync`` for one product; refused with each one's reason."""
    reason = wgmma_refusal(ctx, a, b, depth, out, team)
    if reason is None:
        return "wgmma"
    other = mma_refusal(ctx, a, b, depth, out)
    if other is not None:
        raise refused(
            op,
            f"no tensor core instruction gives this: wgmma: {reason}; {other}",
            "convert the operands first, as with `cast[f16](x)`, or compile for a later GPU",
        )
    if ctx.target.has_wgmma:
        ctx.remark(op, f"computed by mma.sync, not wgmma: {reason}")
    return "mma.sync"


def wgmma_refusal(
    ctx: Context, a: DType, b: DType, depth: int, out: Register, team: Team
) -> str | None:
    """Why wgmma does not give a product; None if it does."""
    rows, columns = (int(e) for e in out.shape)
    step = fragment_depth(a.bits)
    if not ctx.target.has_wgmma:
        return f"{ctx.target.name} has none"
    if a.bits == 64:
        return f"it does not multiply {a}"
    if team.warps != WARPGROUP_WARPS or rows != PRODUCT_ROWS:
        return f"it gives {PRODUCT_ROWS} rows a warpgroup, the tile has {rows}"
    legal = ctx.target.wgmma_n if out.dtype.is_float else ctx.target.wgmma_n_integer
    if columns not in legal:
        return f"it has no N = {columns} into {out.dtype}"
    if depth % step:
        return f"K = {depth} is no multiple of {step}"
    if a != b and a.bits == 16:
        return f"it does not mix {a} and {b}"
    return None


def mma_refusal(ctx: Context, a: DType, b: DType, depth: int, out: Register) -> str | None:
    """Why mma.sync does not give a product; None if it does."""
    rows, columns = (int(e) for e in out.shape)
    shape = ctx.target.mma_of(a.name, b.name, out.dtype.name)
    if shape is None:
        return f"mma.sync: {ctx.target.name} has none of {a} by {b} to {out.dtype}"
    if rows % BLOCK_ROWS or columns % BLOCK_COLUMNS:
        return (
            f"mma.sync: it gives multiples of {BLOCK_ROWS} rows and {BLOCK_COLUMNS} columns, "
            f"the tile has {rows} x {columns}"
        )
    if depth % fragment_depth(a.bits):
        return f"mma.sync: K = {depth} is no multiple of {fragment_depth(a.bits)}"
    return None


def shared_rows(axes: Axes, region: Region) -> AxisClass | None:
    """The rows that warpgroups may share: those of every product, which nothing brings together.

    None where products have different rows, a loop steps over them (its parts have each their own),
    they are combined, or an update gives all of them what it found.
    """
    rows = {axes.of(op.out, 0) for op in region.walk() if isinstance(op, tile.Dot)}
    shared = rows.pop() if len(rows) == 1 else None
    for op in region.walk():
        stepped = () if isinstance(op, tile.Parallel) else (a for r in op.regions for a in r.args)
        found = isinstance(op, tile.Atomic | tile.CompareExchange)
        if (
            combined_axis(axes, op) is shared
            or any(isinstance(a.type, Index) and axes.of(a, 0) is shared for a in stepped)
            or (found and shared not in axes.all_of(op.results[0]))
        ):
            return None
    return shared


def product_team(
    axes: Axes, dots: list[tile.Dot], warpgroups: int | None, shared: AxisClass | None
) -> Team:
    """How warps share products: groups of 64 rows each, or one group that has all rows.

    ``shared`` are the rows that groups may share (``shared_rows``).

    One group also takes products of different rows, each spread over its warps as its rows and
    columns allow.
    """
    for op in dots:
        rows = axes.of(op.out, 0)
        if rows is None or not isinstance(rows.size, int) or rows.size % FRAGMENT_ROWS:
            name, size = (rows.name, rows.size) if rows is not None else ("its rows", 1)
            raise refused(
                op,
                f"the tile of {name} has {size} rows; a product needs a multiple of "
                f"{FRAGMENT_ROWS}: pin tiles.{name}={PRODUCT_ROWS}",
            )
    first = axes.of(dots[0].out, 0)
    assert first is not None
    assert isinstance(first.size, int)
    alike = all(axes.of(op.out, 0) is first for op in dots)
    # The rows of one warpgroup are its own, whatever becomes of them.
    whole = alike and (
        first.size == PRODUCT_ROWS or (shared is first and first.size % PRODUCT_ROWS == 0)
    )
    groups = first.size // PRODUCT_ROWS if whole else 1
    if warpgroups is not None and warpgroups != groups:
        reason = (
            f"each takes {PRODUCT_ROWS}: pin tiles.{first.name}={PRODUCT_ROWS * warpgroups}"
            if shared is first
            else "rows that products, loops or sums bring together are one warpgroup's: pin "
            "warpgroups=1"
        )
        raise refused(
            dots[0],
            f"warpgroups = {warpgroups} share a tile of {first.size} rows, but {reason}",
        )
    if whole:
        return Team(WARPGROUP_WARPS, groups, first, PRODUCT_ROWS, True)
    return Team(_sharing_warps(axes, dots), 1, None, 0, True)


def _sharing_warps(axes: Axes, dots: list[tile.Dot]) -> int:
    """The most warps of a warpgroup that all find work in every product."""
    warps = WARPGROUP_WARPS
    for op in dots:
        rows, columns = (int(axis.size) if axis else 1 for axis in axes.all_of(op.out))
        while not warps_along_rows(rows, warps) and warps_with_columns(columns, warps) < warps:
            warps //= 2
    return warps
