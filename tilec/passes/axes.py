"""Which axes of which values run along the same index.

The language lets axes meet only when they carry the same index (or are equal static extents), so
the axes of a kernel's tiles fall into classes, found here by union-find: a load ties an axis to
its subscript, elementwise work ties operands to results, loops tie what they carry, and as long as
a size is a symbol, its name alone ties a tile of one repeated value to its loop. An axis of extent
one that is spread later belongs to no class (``None``).

Nothing here chooses anything; the classes are read by the choice of tiles, of padding and of
layouts. A value built after the analysis is unknown to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilec.ir.core import Op, Region, Value
from tilec.ir.levels import along, author, flow, math, tile
from tilec.ir.types import Extent, Index, Tile, is_symbol

Node = tuple[Value[Any], int]


@dataclass(eq=False)
class AxisClass:
    """One direction that tiles of a kernel run along."""

    size: Extent
    index: Value[Index] | None = None
    members: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What messages call it: the loop's name, or the extent."""
        return (self.index.name if self.index is not None else "") or str(self.size)


class Axes:
    """The axis classes of one region."""

    def __init__(self, region: Region) -> None:
        self._parent: dict[Node, Node] = {}
        self._order: list[Node] = []
        for op in region.walk():
            for body in op.regions:
                for arg in body.args:
                    self._declare(arg)
            for value in (*op.operands, *op.results):
                self._declare(value)
        indices: dict[Extent, Value[Index]] = {}
        for value, _ in self._order:
            if isinstance(value.type, Index) and is_symbol(value.type.size):
                indices.setdefault(value.type.size, value)
        for op in region.walk():
            self._tie(op, indices)
        self._classes: dict[Node, AxisClass] = {}
        for node in self._order:
            root = self._find(node)
            value, axis = node
            found = self._classes.setdefault(root, AxisClass(_extent(value, axis)))
            found.members.append(node)
            if isinstance(value.type, Index) and found.index is None:
                found.index = value

    def of(self, value: Value[Any], axis: int) -> AxisClass | None:
        """The class of one axis of a tile or of an index; None for an extent of one."""
        if _extent(value, axis) == 1 and not isinstance(value.type, Index):
            tied = self._classes[self._find((value, axis))]
            return tied if tied.index is not None else None
        return self._classes[self._find((value, axis))]

    def all_of(self, value: Value[Any]) -> tuple[AxisClass | None, ...]:
        """The classes of all axes of a value."""
        return tuple(self.of(value, axis) for axis in range(_rank(value)))

    # -- the union-find ------------------------------------------------------------------------

    def _declare(self, value: Value[Any]) -> None:
        for axis in range(_rank(value)):
            if (value, axis) not in self._parent:
                self._parent[value, axis] = (value, axis)
                self._order.append((value, axis))

    def _find(self, node: Node) -> Node:
        while self._parent[node] != node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node

    def _join(self, first: Node, second: Node) -> None:
        self._declare(first[0])
        self._declare(second[0])
        a, b = self._find(first), self._find(second)
        if a != b:
            self._parent[b] = a

    def _same(self, values: Sequence[Value[Any]]) -> None:
        tiles = [v for v in values if isinstance(v.type, Tile)]
        for other in tiles[1:]:
            for axis in range(min(_rank(tiles[0]), _rank(other))):
                self._join((tiles[0], axis), (other, axis))

    def _tie(self, op: Op, indices: dict[Extent, Value[Index]]) -> None:
        if isinstance(op, tile.Load | tile.Store):
            value = op.value if isinstance(op, tile.Store) else op.out
            chosen = [s for s in op.subscripts if isinstance(s.type, Index)]
            for axis, index in enumerate(chosen):
                self._join((index, 0), (value, axis))
        elif isinstance(op, tile.Gather | tile.Scatter | tile.Atomic | tile.CompareExchange):
            self._same([v for v in op.operands if isinstance(v.type, Tile)] + [*op.results])
        elif isinstance(op, tile.IndexValues | tile.Within):
            self._join((op.index, 0), (op.out, 0))
        elif isinstance(op, author.Assert | author.Print):
            for axis, index in zip(op.axes, op.indices, strict=True):
                self._join((index, 0), (op.operands[0], axis))
        elif isinstance(op, tile.Pad):
            self._join((op.index, 0), (op.x, op.axis))
            self._same([op.x, op.out])
        elif isinstance(op, tile.Transpose):
            self._join((op.x, 0), (op.out, 1))
            self._join((op.x, 1), (op.out, 0))
        elif isinstance(op, tile.Dot):
            self._join((op.a, 0), (op.out, 0))
            self._join((op.b, 1), (op.out, 1))
            self._join((op.a, 1), (op.b, 0))
            self._same([op.acc, op.out])
        elif isinstance(op, math.Expand):
            self._shifted(op.x, op.out, op.axis)
        elif isinstance(op, math.Squeeze | math.Reduce):
            self._shifted(op.out, op.x, op.axis)
        elif isinstance(op, math.Broadcast):
            for axis in range(_rank(op.x)):
                if _extent(op.x, axis) == _extent(op.out, axis):
                    self._join((op.x, axis), (op.out, axis))
        elif isinstance(op, math.Fill):
            for axis, extent in enumerate(op.out.type.shape):
                if extent in indices:
                    self._join((indices[extent], 0), (op.out, axis))
        elif isinstance(op, along.Scan):
            self._same([op.x, op.out])
        elif isinstance(op, along.Combine):
            self._same(op.xs)
            for result in op.out if not op.scan else ():
                self._shifted(result, op.xs[0], op.axis)
            self._same([*op.xs, *op.out] if op.scan else op.out)
        elif isinstance(op, math.Elementwise | math.Cast):
            self._same([*op.operands, *op.results])
        elif isinstance(op, tile.ForTiles | flow.For):
            carried = op.body.args[1:]
            for values in zip(op.init, carried, flow.yielded(op.body), op.finals, strict=True):
                self._same(values)
        elif isinstance(op, flow.While):
            both = zip(op.test.args, op.body.args, strict=True)
            ends = zip(op.init, both, flow.yielded(op.body), op.finals, strict=True)
            for init, args, last, final in ends:
                self._same((init, *args, last, final))
        elif isinstance(op, flow.If):
            branches = (flow.yielded(op.then), flow.yielded(op.otherwise))
            for result, *yielded in zip(op.out, *branches, strict=True):
                self._same([result, *yielded])

    def _shifted(self, small: Value[Any], large: Value[Any], axis: int) -> None:
        for place in range(_rank(small)):
            self._join((small, place), (large, place + (place >= axis)))


def combined_tiles(op: Op) -> tuple[tuple[Value[Any], ...], int]:
    """The tiles whose own elements an op combines, and along which axis; none if it does not."""
    if isinstance(op, math.Reduce | along.Scan):
        return (op.x,), op.axis
    return (op.xs, op.axis) if isinstance(op, along.Combine) else ((), 0)


def combined_axis(axes: Axes, op: Op) -> AxisClass | None:
    """The class along which an op combines the elements of one tile, if it does."""
    tiles, axis = combined_tiles(op)
    return axes.of(tiles[0], axis) if tiles else None


def combined(axes: Axes, region: Region, axis: AxisClass | None) -> bool:
    """Whether some op combines elements along a class."""
    for op in region.walk():
        if combined_axis(axes, op) is axis and axis is not None:
            return True
        if isinstance(op, tile.Dot) and axis in (axes.of(op.a, 1), axes.of(op.b, 0)):
            return True
    return False


def _rank(value: Value[Any]) -> int:
    if isinstance(value.type, Tile):
        return len(value.type.shape)
    return 1 if isinstance(value.type, Index) else 0


def _extent(value: Value[Any], axis: int) -> Extent:
    return value.type.shape[axis] if isinstance(value.type, Tile) else value.type.size
