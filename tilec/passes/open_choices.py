"""The choices that a schedule leaves open, while ``choose-tiles`` settles them one after the other.

What is pinned stays; ``settle`` gives a size to every symbol of an axis class at once, ``set`` a
value to a field of the schedule. Sizes that are not known at compile time come from
``Facts.extents`` as upper bounds.

Nothing here decides: ``product_tiles`` and ``row_tiles`` do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Kernel, Value
from tilec.ir.levels import math, tile
from tilec.ir.types import Extent, Index, Tile, is_symbol
from tilec.passes.axes import Axes, AxisClass, combined_axis
from tilec.passes.base import Context

WARP = 32
MULTIPLE = 16


class OpenChoices:
    """The open choices of one kernel."""

    def __init__(self, kernel: Kernel, ctx: Context) -> None:
        self.kernel, self.ctx = kernel, ctx
        self.axes = Axes(kernel.body)
        self.uses = rewrite.uses(kernel.body)
        self.sizes: dict[str, int] = {f"${n}": s for n, s in ctx.schedule.tiles}
        self.schedule = replace(ctx.schedule)
        self.rings = False

    def bound(self, axis: AxisClass | None) -> int | None:
        """The upper bound of the extent that a class runs over."""
        if axis is None:
            return 1
        if axis.index is None:
            return axis.size if isinstance(axis.size, int) else None
        extent = axis.index.type.extent
        return extent if isinstance(extent, int) else self.ctx.facts.extent(extent)

    def size(self, extent: Extent) -> int | None:
        """A size that is pinned, static or chosen already."""
        return extent if isinstance(extent, int) else self.sizes.get(extent)

    def choose(self, extent: Extent, size: int) -> None:
        """Settle a size symbol that is still open."""
        if is_symbol(extent):
            self.sizes.setdefault(str(extent), size)

    def set(self, **choices: Any) -> None:
        """Settle schedule fields that are still open."""
        open_fields = {
            key: value
            for key, value in choices.items()
            if getattr(self.schedule, key) in (None, ())
        }
        self.schedule = replace(self.schedule, **open_fields)

    def class_of(self, symbol: Extent) -> AxisClass | None:
        """The class that a size symbol belongs to."""
        for op in self.kernel.body.walk():
            values = [*op.results, *(a for r in op.regions for a in r.args)]
            for value in values:
                if isinstance(value.type, Index) and value.type.size == symbol:
                    return self.axes.of(value, 0)
        return None

    def symbols(self) -> list[str]:
        """Size symbols of the kernel, in text order."""
        found: dict[str, None] = {}
        for op in self.kernel.body.walk():
            for value in (*op.results, *(a for r in op.regions for a in r.args)):
                if isinstance(value.type, Index) and is_symbol(value.type.size):
                    found.setdefault(str(value.type.size))
                if isinstance(value.type, Tile):
                    found.update(dict.fromkeys(str(s) for s in value.type.shape if is_symbol(s)))
        return list(found)

    def combined(self, axis: AxisClass) -> bool:
        """Whether some op combines elements along a class."""
        for op in self.kernel.body.walk():
            if combined_axis(self.axes, op) is axis:
                return True
            if isinstance(op, tile.Dot) and axis in self.axes.all_of(op.a) + self.axes.all_of(op.b):
                return True
        return False

    def settle(self, axis: AxisClass, size: int) -> None:
        """Give a size to every symbol of a class."""
        for value, place in axis.members:
            extent = value.type.shape[place] if isinstance(value.type, Tile) else value.type.size
            self.choose(extent, size)

    def pinned(self, axis: AxisClass) -> int | None:
        """The size that a class already has."""
        for value, place in axis.members:
            extent = value.type.shape[place] if isinstance(value.type, Tile) else value.type.size
            size = self.size(extent)
            if size is not None:
                return size
        return None

    def resident(self) -> list[AxisClass]:
        """Classes whose whole extent a tile holds (``:`` of an axis known at launch only)."""
        found: dict[AxisClass, None] = {}
        for op in self.kernel.body.walk():
            if isinstance(op, tile.Whole):
                axis = self.axes.of(op.out, 0)
                if axis is not None:
                    found.setdefault(axis)
        return list(found)

    def offered(self) -> None:
        """Of the sizes that the author offers for a loop, take the first unless one is pinned."""
        there = self.symbols()
        for name, sizes in self.kernel.attributes.get("choices", ()):
            if f"${name}" not in there:  # the loop was dropped: nothing uses what it computes
                continue
            size = self.sizes.setdefault(f"${name}", sizes[0])
            listed = ", ".join(map(str, sizes))
            self.ctx.remark(
                None, f"tiles.{name} = {size}, where {listed} are offered: the first unless pinned"
            )

    def outer(self) -> int | None:
        """How often tiles stand beside one another, along axes of the grid that have none."""
        total: int | None = 1
        for op in self.kernel.body.ops:
            if isinstance(op, tile.Parallel):
                for extent, size in zip(op.extents, op.sizes, strict=True):
                    if size == 0:
                        many = self.count(extent)
                        total = None if many is None or total is None else total * many
        return total

    def count(self, extent: Value[Any]) -> int | None:
        """The upper bound of an axis of the grid that is not tiled."""
        op = extent.owner
        if isinstance(op, math.Constant):
            return int(op.value)
        if isinstance(op, tile.ExtentOf):
            found = op.array.type.shape[op.axis]
            return found if isinstance(found, int) else self.ctx.facts.extent(found)
        return None

    def record(self) -> None:
        """Write everything that was chosen into the kernel."""
        chosen = tuple((name[1:], size) for name, size in self.sizes.items())
        self.schedule = replace(self.schedule, tiles=chosen)
        self.kernel.schedule = self.schedule.as_attributes()
