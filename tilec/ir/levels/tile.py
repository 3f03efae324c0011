"""Level ``tile``: what is computed, on values that have no home and loops that have no owner.

Before the tiling pass, extents may be size symbols (``$i``); after it all are integers, ragged
tiles are recognised by their ``index`` values, and padding has been made explicit by
``tile.pad``. A tile's invalid elements hold an unspecified value unless ``tile.pad`` said which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.core import Op, Region, Value
from tilec.ir.declare import Effects, attribute, operand, operands, region, result, results
from tilec.ir.levels.flow import yielded
from tilec.ir.types import S32, Array, Extent, Index, Scalar, Tile, Type


def subscript_shape(subscripts: Sequence[Value[Any]]) -> tuple[Extent, ...]:
    """Shape that the subscripts select: one extent for each ``index``, none for a scalar."""
    return tuple(v.type.size for v in subscripts if isinstance(v.type, Index))


class ExtentOf(Op, name="tile.extent"):
    """The run-time extent of one axis of an array."""

    array: Value[Array] = operand()
    axis: int = attribute()
    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """Extents are s32: arrays with a longer axis are refused at launch."""
        return [Scalar(S32)]


class Whole(Op, name="tile.whole"):
    """All indices of one axis of an array, the subscript ``:``.

    ``size`` is the axis's static extent, or a size symbol when it is known at launch only.
    """

    array: Value[Array] = operand()
    axis: int = attribute()
    size: Extent = attribute()
    out: Value[Index] = result()

    def infer(self) -> Sequence[Type]:
        """An index over the axis."""
        return [Index(self.size, self.array.type.shape[self.axis])]


class Parallel(Op, name="tile.parallel"):
    """Independent iterations over a grid, one axis an extent.

    ``sizes`` has for each axis the tile size (symbol or integer), or 0 for a loop over single
    scalar indices. The body's arguments are an ``index`` or an s32 for each axis. One launch.
    """

    extents: tuple[Value[Scalar], ...] = operands()
    sizes: tuple[Extent, ...] = attribute()
    body: Region = region()

    def check(self) -> Iterator[str]:
        """One size and one argument an axis."""
        if not len(self.extents) == len(self.sizes) == len(self.body.args):
            yield "there must be one extent, one size and one argument for each axis"
            return
        for size, arg in zip(self.sizes, self.body.args, strict=True):
            ok = isinstance(arg.type, Scalar) if size == 0 else isinstance(arg.type, Index)
            if not ok or (isinstance(arg.type, Index) and arg.type.size != size):
                yield f"argument {arg!r} does not fit the tile size {size}"


class ForTiles(Op, name="tile.for"):
    """In-order loop over the tiles of an axis, carrying values; the last tile may be partial."""

    extent: Value[Scalar] = operand()
    init: tuple[Value[Any], ...] = operands()
    size: Extent = attribute()
    body: Region = region()
    finals: tuple[Value[Any], ...] = results()

    def infer(self) -> Sequence[Type]:
        """One result a carried value."""
        return [v.type for v in self.init]

    def check(self) -> Iterator[str]:
        """Arguments, initial values and yields agree."""
        types = [v.type for v in self.init]
        head = self.body.args[0].type if self.body.args else None
        if not isinstance(head, Index) or head.size != self.size:
            yield "the body's first argument must be the index with the loop's tile size"
        if [a.type for a in self.body.args[1:]] != types:
            yield "the body's other arguments must be the carried values"
        if [v.type for v in yielded(self.body)] != types:
            yield "the body must yield one value of the same type for each carried value"


class IndexValues(Op, name="tile.indices"):
    """The global indices of an ``index`` as an s32 tile of rank 1."""

    index: Value[Index] = operand()
    out: Value[Tile] = result()

    def infer(self) -> Sequence[Type]:
        """As long as the index."""
        return [Tile(S32, (self.index.type.size,))]


class ValidCount(Op, name="tile.length"):
    """How many elements of an ``index`` are valid: ``len(i)``."""

    index: Value[Index] = operand()
    out: Value[Scalar] = result()

    def infer(self) -> Sequence[Type]:
        """An s32."""
        return [Scalar(S32)]


def _subscript_faults(array: Array, subscripts: Sequence[Value[Any]]) -> Iterator[str]:
    if len(subscripts) != len(array.shape):
        yield f"{len(subscripts)} subscripts for an array of rank {len(array.shape)}"
        return
    for axis, value in enumerate(subscripts):
        if not isinstance(value.type, Index) and value.type != Scalar(S32):
            yield f"subscript {axis} has type {value.type}; an index or s32 is needed"
        elif isinstance(value.type, Index) and value.type.extent != array.shape[axis]:
            yield (
                f"subscript {axis} runs over {value.type.extent}, "
                f"the axis has extent {array.shape[axis]}"
            )


class Load(Op, name="tile.load", effects=Effects.READS):
    """Read the selected elements; all-scalar subscripts read one scalar."""

    array: Value[Array] = operand()
    subscripts: tuple[Value[Any], ...] = operands()
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """A tile with one axis for each index, or a scalar."""
        shape = subscript_shape(self.subscripts)
        dtype = self.array.type.dtype
        return [Tile(dtype, shape) if shape else Scalar(dtype)]

    def check(self) -> Iterator[str]:
        """Subscripts fit, and the array is not write-only."""
        yield from _subscript_faults(self.array.type, self.subscripts)
        if self.array.type.mode == "out":
            yield "an out parameter is never read"


class Store(Op, name="tile.store", effects=Effects.WRITES):
    """Write the valid elements of a tile (or a scalar) to the selected elements."""

    array: Value[Array] = operand()
    value: Value[Any] = operand()
    subscripts: tuple[Value[Any], ...] = operands()

    def check(self) -> Iterator[str]:
        """Subscripts and value fit, and the array may be written."""
        array = self.array.type
        yield from _subscript_faults(array, self.subscripts)
        shape = subscript_shape(self.subscripts)
        needed: Type = Tile(array.dtype, shape) if shape else Scalar(array.dtype)
        if self.value.type != needed:
            yield f"the value has type {self.value.type}, the selection needs {needed}"
        if array.mode == "in":
            yield "an in parameter is never written"


class Transpose(Op, name="tile.transpose"):
    """Exchange the two axes of a tile."""

    x: Value[Tile] = operand()
    out: Value[Tile] = result()

    def infer(self) -> Sequence[Type]:
        """The shape reversed."""
        return [Tile(self.x.type.dtype, self.x.type.shape[::-1])]

    def check(self) -> Iterator[str]:
        """Two axes are needed."""
        if len(self.x.type.shape) != 2:
            yield f"a tile with two axes is needed, not {self.x.type}"


class Dot(Op, name="tile.dot"):
    """Multiply two tiles and add to a third: out = a @ b + acc."""

    a: Value[Tile] = operand()
    b: Value[Tile] = operand()
    acc: Value[Tile] = operand()
    out: Value[Tile] = result()

    def infer(self) -> Sequence[Type]:
        """The accumulator's type."""
        return [self.acc.type]

    def check(self) -> Iterator[str]:
        """(i, k) @ (k, j) + (i, j)."""
        a, b, acc = self.a.type.shape, self.b.type.shape, self.acc.type.shape
        if not len(a) == len(b) == len(acc) == 2:
            yield "all three tiles need two axes"
        elif a[1] != b[0] or acc != (a[0], b[1]):
            yield f"shapes do not fit: {self.a.type} @ {self.b.type} + {self.acc.type}"


class Pad(Op, name="tile.pad"):
    """Set the invalid elements along ``axis`` to a value; valid ones stay.

    Made by the tiling pass where a consumer asks for a fill and an edge can occur.
    """

    x: Value[Tile] = operand()
    index: Value[Index] = operand()
    axis: int = attribute()
    value: int | float | bool = attribute()
    out: Value[Tile] = result()

    def infer(self) -> Sequence[Type]:
        """The tile's own type."""
        return [self.x.type]

    def check(self) -> Iterator[str]:
        """The index belongs to that axis."""
        shape = self.x.type.shape
        if not 0 <= self.axis < len(shape) or shape[self.axis] != self.index.type.size:
            yield f"axis {self.axis} of {self.x.type} does not fit {self.index.type}"


class Require(Op, name="tile.require", effects=Effects.ORDERS):
    """A launch-time constraint; a launch that breaks it is refused, naming the source line."""

    condition: Value[Scalar] = operand()
