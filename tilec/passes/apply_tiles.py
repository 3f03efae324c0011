"""Substitute the chosen tile sizes for the size symbols.

Afterwards no type of the kernel mentions a symbol: shapes are integers, and what is ragged is
known from the index values alone. Extents of arrays (``M``) stay names, since they are known at
launch only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilec.ir.core import Kernel, Op, Region
from tilec.ir.types import Index, Tile, Type, is_symbol
from tilec.passes.base import Context, tile_pass
from tilec.passes.check_schedule import check_schedule
from tilec.passes.refusal import refused


def _sized(type: Type, sizes: dict[str, int]) -> Type:
    if isinstance(type, Tile):
        return replace(type, shape=tuple(sizes.get(str(s), s) for s in type.shape))
    if isinstance(type, Index):
        return replace(type, size=sizes.get(str(type.size), type.size))
    return type


def _substitute(region: Region, sizes: dict[str, int]) -> None:
    for arg in region.args:
        arg.type = _sized(arg.type, sizes)
    for op in region.ops:
        _substitute_op(op, sizes)
        for nested in op.regions:
            _substitute(nested, sizes)


def _substitute_op(op: Op, sizes: dict[str, int]) -> None:
    for key, spec in op.specs.items():
        value: Any = getattr(op, key)
        if spec.role == "attribute" and is_symbol(value):
            setattr(op, key, sizes.get(value, value))
        elif spec.role == "attribute" and isinstance(value, tuple):
            setattr(op, key, tuple(sizes.get(v, v) if is_symbol(v) else v for v in value))
        elif spec.role == "result_type" and isinstance(value, Type):
            setattr(op, key, _sized(value, sizes))
        elif spec.role == "result_type":
            setattr(op, key, tuple(_sized(t, sizes) for t in value))
    for result in op.results:
        result.type = _sized(result.type, sizes)
        if isinstance(result.type, Tile | Index):
            extents = result.type.shape if isinstance(result.type, Tile) else (result.type.size,)
            left = [e for e in extents if is_symbol(e)]
            if left:
                raise refused(op, f"no size was chosen for {', '.join(map(str, left))}")


@tile_pass("apply-tiles", level="tile")
def apply_tiles(kernel: Kernel, ctx: Context) -> None:
    """Every extent of a tile is an integer."""
    check_schedule(kernel, ctx)
    chosen: dict[str, int] = dict(kernel.schedule.get("tiles", ()))
    _substitute(kernel.body, {f"${name}": size for name, size in chosen.items()})
