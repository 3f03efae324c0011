"""How many elements the loads of a program read, before anybody has chosen how large tiles are.

An estimate, good enough to ask whether work that is paid once for an array is worth it. A load
reads its tile each time the loops around it run. A loop whose tile size is open is taken in tiles
of ``TYPICAL_TILE``; an extent is its upper bound where the launch has one, else ``TYPICAL_EXTENT``;
a number that is known only while running counts as a typical extent too.

Functions only; nothing here decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from tilec.ir.core import Op, Region, Value
from tilec.ir.levels import flow, math, tile
from tilec.ir.types import Extent, Index
from tilec.passes.base import Context
from tilec.passes.costs import TYPICAL_EXTENT

TYPICAL_TILE = 128
"""Stands for a tile size that is not chosen yet: between the rows and columns of products."""


def extent_of(ctx: Context, extent: Extent) -> int:
    """An extent, or what stands for one that the launch decides."""
    if isinstance(extent, int):
        return extent
    bound = ctx.facts.extent(extent)
    return TYPICAL_EXTENT if bound is None else bound


def tile_size(ctx: Context, index: Value[Index]) -> int:
    """How many elements an index has, or what stands for that; at least 1."""
    whole = extent_of(ctx, index.type.extent)
    size = index.type.size
    if isinstance(size, str):
        pinned = dict(ctx.schedule.tiles).get(size.removeprefix("$"))
        size = whole if isinstance(index.owner, tile.Whole) else pinned or min(TYPICAL_TILE, whole)
    return max(1, size)


def elements_read(ctx: Context, region: Region) -> Iterator[tuple[tile.Load, float]]:
    """Each load in a region, and how many elements it reads in all of a launch."""
    yield from _walk(ctx, region, 1.0)


def _walk(ctx: Context, region: Region, times: float) -> Iterator[tuple[tile.Load, float]]:
    for op in region.ops:
        if isinstance(op, tile.Load):
            indices = [s for s in op.subscripts if isinstance(s.type, Index)]
            yield op, times * prod(tile_size(ctx, index) for index in indices)
        for nested in op.regions:
            yield from _walk(ctx, nested, times * _rounds(ctx, op))


def _rounds(ctx: Context, op: Op) -> float:
    """How often the regions of an op run."""
    if isinstance(op, tile.Parallel):
        pairs = zip(op.extents, op.body.args, strict=True)
        return prod(_trips(ctx, extent, head) for extent, head in pairs)
    if isinstance(op, tile.ForTiles):
        shares = op.count if isinstance(op, tile.ForShare) else 1
        return _trips(ctx, op.extent, op.body.args[0]) / shares
    if isinstance(op, flow.For):
        lower, upper, step = (_number(ctx, v) for v in (op.lower, op.upper, op.step))
        return max(0.0, upper - lower) / max(1.0, step)
    return 1.0


def _trips(ctx: Context, extent: Value[Any], head: Value[Any]) -> float:
    count = _number(ctx, extent)
    return count / tile_size(ctx, head) if isinstance(head.type, Index) else count


def _number(ctx: Context, value: Value[Any]) -> float:
    op = value.owner
    if isinstance(op, math.Constant):
        return float(op.value)
    if isinstance(op, tile.ExtentOf):
        return extent_of(ctx, op.array.type.shape[op.axis])
    if isinstance(op, math.Binary):
        x, y = _number(ctx, op.x), _number(ctx, op.y)
        if isinstance(op, math.Add | math.Sub):
            return x + y if isinstance(op, math.Add) else x - y
        if isinstance(op, math.Mul):
            return x * y
        if isinstance(op, math.FloorDiv | math.CeilDiv):
            return x / max(1.0, y)
        if isinstance(op, math.Min | math.Max):
            return min(x, y) if isinstance(op, math.Min) else max(x, y)
    return TYPICAL_EXTENT
