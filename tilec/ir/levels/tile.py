"""Level ``tile``: what is computed, on values that have no home and loops that have no owner.

Before the tiling pass, extents may be size symbols (``$i``); after it all are integers, ragged
tiles are recognised by their ``index`` values, and padding has been made explicit by
``tile.pad``. A tile's invalid elements hold an unspecified value unless ``tile.pad`` said which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.core import Op, Region, Value
from tilec.ir.declare import (
    Effects,
    attribute,
    operand,
    operands,
    region,
    result,
    result_type,
    results,
)
from tilec.ir.levels import math
from tilec.ir.levels.flow import yielded
from tilec.ir.levels.memory import ATOMICS, update_fault
from tilec.ir.products import PRECISIONS, product_type
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

    def check(self) -> Iterator[str]:
        """The axis exists."""
        if not 0 <= self.axis < len(self.array.type.shape):
            yield f"{self.array.type} has no axis {self.axis}"


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
        if not 0 <= self.axis < len(self.array.type.shape):
            raise TypeError(f"{self.array.type} has no axis {self.axis}")
        return [Index(self.size, self.array.type.shape[self.axis])]


class Part(Op, name="tile.part"):
    """Consecutive indices of one axis of an array, the subscript ``start:start + size``."""

    array: Value[Array] = operand()
    axis: int = attribute()
    start: int = attribute()
    size: int = attribute()
    out: Value[Index] = result()

    def infer(self) -> Sequence[Type]:
        """An index, all of which exists."""
        if not 0 <= self.axis < len(self.array.type.shape):
            raise TypeError(f"{self.array.type} has no axis {self.axis}")
        return [Index(self.size, self.array.type.shape[self.axis])]

    def check(self) -> Iterator[str]:
        """The axis has these indices, where its extent is known."""
        extent = self.array.type.shape[self.axis]
        end = self.start + self.size
        if self.start < 0 or self.size < 1 or (isinstance(extent, int) and end > extent):
            yield f"{self.start} to {end} is no part of 0 to {extent}"


def _extent_faults(extent: Value[Any], index: Type) -> Iterator[str]:
    """An index runs over the axis that its loop's extent is the length of, where that shows."""
    made = extent.owner
    runs: Extent | None = None
    if isinstance(made, ExtentOf) and 0 <= made.axis < len(made.array.type.shape):
        runs = made.array.type.shape[made.axis]
    elif isinstance(made, math.Constant) and isinstance(made.value, int):
        runs = made.value
    if isinstance(index, Index) and runs is not None and index.extent != runs:
        yield f"the loop runs over {runs}, its index over {index.extent}"


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
        for extent, arg in zip(self.extents, self.body.args, strict=True):
            yield from _extent_faults(extent, arg.type)


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
        else:
            yield from _extent_faults(self.extent, head)
        if [a.type for a in self.body.args[1:]] != types:
            yield "the body's other arguments must be the carried values"
        if [v.type for v in yielded(self.body)] != types:
            yield "the body must yield one value of the same type for each carried value"


class ForJoined(ForTiles, name="tile.for_joined"):
    """``tile.for`` whose parts may be run apart, each from the initial values, and then merged.

    ``join`` takes the values that two neighbouring parts arrive at, those of the first one first,
    and yields those of both. The author promises that this is associative, and that initial values
    change nothing.
    """

    join: Region = region()

    def check(self) -> Iterator[str]:
        """As ``tile.for``; two sets of carried values go into ``join``, one comes out."""
        yield from super().check()
        types = [v.type for v in self.init]
        if [a.type for a in self.join.args] != types * 2:
            yield "the arguments of join must be the carried values twice"
        if [v.type for v in yielded(self.join)] != types:
            yield "join must yield one value of the same type for each carried value"


class ForShare(ForTiles, name="tile.for_share"):
    """The ``share``-th of ``count`` contiguous shares of the rounds of ``tile.for``.

    With t tiles, each share has ceil(t / count) of them, the last ones fewer or none. A pass that
    cuts loops by where their tiles lie must know of the share, or leave the loop as it is.
    """

    share: Value[Scalar] = operand()
    count: int = attribute()

    def check(self) -> Iterator[str]:
        """As ``tile.for``; the share is an s32, and there is at least one."""
        yield from super().check()
        if self.share.type != Scalar(S32):
            yield "the share must be s32"
        if self.count < 1:
            yield f"there is at least one share, not {self.count}"


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


def _update_faults(array: Array, update: str) -> Iterator[str]:
    if not update:
        return
    if array.mode == "out":
        yield "an out parameter is never read, so not updated"
    if fault := update_fault(update, array.dtype):
        yield fault


class Load(Op, name="tile.load", effects=Effects.READS):
    """Read the selected elements; all-scalar subscripts read one scalar."""

    array: Value[Array] = operand()
    subscripts: tuple[Value[Any], ...] = operands()
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """A tile with one axis for each index, or a scalar."""
        shape = subscript_shape(self.subscripts)
        dtype = self.array.type.dtype.held
        return [Tile(dtype, shape) if shape else Scalar(dtype)]

    def check(self) -> Iterator[str]:
        """Subscripts fit, and the array is not write-only."""
        yield from _subscript_faults(self.array.type, self.subscripts)
        if self.array.type.mode == "out":
            yield "an out parameter is never read"


class Store(Op, name="tile.store", effects=Effects.WRITES):
    """Write the valid elements of a tile (or a scalar) to the selected elements.

    With ``update``, one of ``UPDATES``, it combines them with what is there, atomically.
    """

    array: Value[Array] = operand()
    value: Value[Any] = operand()
    subscripts: tuple[Value[Any], ...] = operands()
    update: str = attribute(default="")

    def check(self) -> Iterator[str]:
        """Subscripts and value fit, and the array may be written."""
        array = self.array.type
        yield from _subscript_faults(array, self.subscripts)
        shape = subscript_shape(self.subscripts)
        dtype = array.dtype.held
        needed: Type = Tile(dtype, shape) if shape else Scalar(dtype)
        if self.value.type != needed:
            yield f"the value has type {self.value.type}, the selection needs {needed}"
        if array.mode == "in":
            yield "an in parameter is never written"
        yield from _update_faults(array, self.update)


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
    """Multiply two tiles and add to a third: out = a @ b + acc.

    With ``precision`` tf32, the low 13 bits of each f32 operand count as zero.
    """

    a: Value[Tile] = operand()
    b: Value[Tile] = operand()
    acc: Value[Tile] = operand()
    precision: str = attribute(default="")
    out: Value[Tile] = result()

    def infer(self) -> Sequence[Type]:
        """The accumulator's type."""
        return [self.acc.type]

    def check(self) -> Iterator[str]:
        """(i, k) @ (k, j) + (i, j), of element types that multiply."""
        types = self.a.type.dtype, self.b.type.dtype
        summed = product_type(*types)
        if summed != self.acc.type.dtype:
            yield f"{types[0]} @ {types[1]} sums in {summed}, not in {self.acc.type.dtype}"
        if self.precision not in PRECISIONS or (
            self.precision and {t.name for t in types} != {"f32"}
        ):
            yield f"precision {self.precision!r} is not for a product of {types[0]}"
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


# --- running maxima ------------------------------------------------------------------------------


class Anchor(Op, name="tile.anchor"):
    """A value for each row that exponents may be measured from, and so the row's weights.

    Any r with m <= r <= max(m, rowmax(s)) and r >= rowmax(s) - slack will do. The author promises
    that results do not depend on which, so a lowering may follow the maximum always or seldom.
    """

    m: Value[Tile] = operand()
    s: Value[Tile] = operand()
    slack: float = attribute(default=64.0)
    out: Value[Tile] = result()

    def infer(self) -> Sequence[Type]:
        """One value a row, as ``m`` has."""
        return [self.m.type]

    def check(self) -> Iterator[str]:
        """``s`` is ``m`` with one more axis, the last."""
        m, s = self.m.type, self.s.type
        if s.dtype != m.dtype or s.shape[:-1] != m.shape or not m.dtype.is_float:
            yield f"{self.s.type} has no rows of {self.m.type}"


class Exp2Sub(math.Binary, name="tile.exp2sub"):
    """2 to the power x - y, and 0 where x is -inf, whatever y is."""


# --- along an axis -------------------------------------------------------------------------------


class Positions(Op, name="tile.positions"):
    """0, 1, 2, ... along an axis of known extent."""

    type: Type = result_type()
    out: Value[Tile] = result()

    def check(self) -> Iterator[str]:
        """One axis of s32."""
        if not (isinstance(self.type, Tile) and self.type.dtype == S32) or (
            len(self.type.shape) != 1 or not isinstance(self.type.shape[0], int)
        ):
            yield f"positions are s32 along one axis of known extent, not {self.type}"


# --- places known while running ------------------------------------------------------------------


class Within(Op, name="tile.within"):
    """The index moved up by ``lower`` and cut at ``upper``: a tile of a range from memory.

    What reaches beyond 0 and ``extent``, the dimension that the range lies in, is cut as well. A
    tile of which nothing is left is a tile without elements.
    """

    index: Value[Index] = operand()
    lower: Value[Scalar] = operand()
    upper: Value[Scalar] = operand()
    extent: Value[Scalar] = operand()
    of: Extent = attribute()
    out: Value[Index] = result()

    def infer(self) -> Sequence[Type]:
        """As long as the index, over another extent."""
        return [Index(self.index.type.size, self.of)]


def _coordinate_faults(array: Array, coordinates: Sequence[Value[Any]]) -> Iterator[str]:
    if len(coordinates) != len(array.shape):
        yield f"{len(coordinates)} coordinates for an array of rank {len(array.shape)}"
    shapes = {v.type.shape if isinstance(v.type, Tile) else () for v in coordinates}
    if len(shapes) > 1 or any(math.element_type(v.type) != S32 for v in coordinates):
        yield "coordinates are s32 tiles of one shape, or s32 scalars"


class Gather(Op, name="tile.gather", effects=Effects.READS):
    """Read the element at each place that the coordinates name; ``fill`` where there is none."""

    array: Value[Array] = operand()
    fill: Value[Scalar] = operand()
    coordinates: tuple[Value[Any], ...] = operands()
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """The coordinates' shape with the array's elements."""
        return [math.with_element_type(self.coordinates[0].type, self.array.type.dtype)]

    def check(self) -> Iterator[str]:
        """One coordinate an axis, and the array is not write-only."""
        yield from _coordinate_faults(self.array.type, self.coordinates)
        if self.array.type.mode == "out":
            yield "an out parameter is never read"
        if self.fill.type != Scalar(self.array.type.dtype):
            yield f"the fill has type {self.fill.type}, elements are {self.array.type.dtype}"


class Scatter(Op, name="tile.scatter", effects=Effects.WRITES):
    """Write each valid element to the place that the coordinates name; nothing where none is.

    With ``update`` as for ``tile.store``, which several elements may do at one place.
    """

    array: Value[Array] = operand()
    value: Value[Any] = operand()
    coordinates: tuple[Value[Any], ...] = operands()
    update: str = attribute(default="")

    def check(self) -> Iterator[str]:
        """One coordinate an axis, one value a place, and the array may be written."""
        yield from _coordinate_faults(self.array.type, self.coordinates)
        needed = math.with_element_type(self.coordinates[0].type, self.array.type.dtype)
        if self.value.type != needed:
            yield f"the value has type {self.value.type}, the places need {needed}"
        if self.array.type.mode == "in":
            yield "an in parameter is never written"
        yield from _update_faults(self.array.type, self.update)


class Atomic(Op, name="tile.atomic", effects=Effects.READS | Effects.WRITES):
    """Update the element at each place and give what was there; ``fill`` where there is none.

    ``update`` is one of ``ATOMICS``. The order of updates of one element is free.
    """

    array: Value[Array] = operand()
    value: Value[Any] = operand()
    fill: Value[Scalar] = operand()
    coordinates: tuple[Value[Any], ...] = operands()
    update: str = attribute()
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """The value's type."""
        return [self.value.type]

    def check(self) -> Iterator[str]:
        """One coordinate an axis, one value a place, and the array may be updated."""
        yield from _atomic_faults(self)
        if fault := update_fault(self.update, self.array.type.dtype, ATOMICS):
            yield fault


class CompareExchange(Op, name="tile.compare_exchange", effects=Effects.READS | Effects.WRITES):
    """Write ``value`` where ``expected`` stands, bit by bit, and give what was there.

    Where a place lies outside the array it gives ``fill``.
    """

    array: Value[Array] = operand()
    expected: Value[Any] = operand()
    value: Value[Any] = operand()
    fill: Value[Scalar] = operand()
    coordinates: tuple[Value[Any], ...] = operands()
    out: Value[Any] = result()

    def infer(self) -> Sequence[Type]:
        """The value's type."""
        return [self.value.type]

    def check(self) -> Iterator[str]:
        """One coordinate an axis, one value a place, and the array may be updated."""
        yield from _atomic_faults(self)
        if self.expected.type != self.value.type:
            yield f"{self.expected.type} is compared, {self.value.type} is written"


def _atomic_faults(op: Any) -> Iterator[str]:
    yield from _coordinate_faults(op.array.type, op.coordinates)
    dtype = op.array.type.dtype
    needed = math.with_element_type(op.coordinates[0].type, dtype)
    if op.value.type != needed:
        yield f"the value has type {op.value.type}, the places need {needed}"
    if op.array.type.mode != "inout":
        yield "an atomic update reads and writes an inout array"
    if op.fill.type != Scalar(dtype):
        yield f"the fill has type {op.fill.type}, elements are {dtype}"
    if dtype.name == "bool":
        yield "bool elements have no atomic update"


class Slice(Op, name="tile.slice"):
    """Elements ``start`` to ``start + size`` along an axis of known extent."""

    x: Value[Tile] = operand()
    axis: int = attribute()
    start: int = attribute()
    size: int = attribute()
    out: Value[Tile] = result()

    def infer(self) -> Sequence[Type]:
        """The tile with that axis shorter."""
        shape, axis = self.x.type.shape, self.axis
        return [Tile(self.x.type.dtype, (*shape[:axis], self.size, *shape[axis + 1 :]))]

    def check(self) -> Iterator[str]:
        """The elements are there."""
        extent = self.x.type.shape[self.axis] if 0 <= self.axis < len(self.x.type.shape) else 0
        if not isinstance(extent, int) or not 0 <= self.start < self.start + self.size <= extent:
            yield f"{self.x.type} has no part {self.start} to {self.start + self.size}"


class Temp(Op, name="tile.temp", effects=Effects.MAKES):
    """Workspace in global memory for the launches of one call; it holds nothing at first."""

    extents: tuple[Value[Scalar], ...] = operands()
    type: Type = result_type()
    out: Value[Array] = result()

    def check(self) -> Iterator[str]:
        """One extent an axis of an inout array."""
        if not isinstance(self.type, Array) or self.type.mode != "inout":
            yield f"workspace is an inout array, not {self.type}"
        elif len(self.extents) != len(self.type.shape):
            yield f"{len(self.extents)} extents for {self.type}"
