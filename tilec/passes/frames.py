"""The register layout of each tile: one frame for each pair of directions, and slices of frames.

A frame is the layout of the tiles that run along given axis classes. A product fixes its result's
frame (the tensor cores' accumulator); everything that meets the result elementwise has the same
classes and so the same layout, and nothing needs to move. Other frames are free: ``rows`` where
rows are reduced, ``blocked`` otherwise, with the contiguous axis along the lanes. A vector along
one class is the slice of a frame: each thread keeps what its own elements meet.

Invariant: two tiles with the same axis classes have the same layout, unless the author pinned one
of them to another (``pinned_layouts``). Nothing here adds ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Op, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import tile
from tilec.ir.types import Register, Tile
from tilec.layout.fragments import blocked, rows, turning
from tilec.layout.linear import Layout, LayoutError, LayoutRefusal
from tilec.layout.teams import team_result
from tilec.passes.axes import Axes, AxisClass, combined_tiles
from tilec.passes.base import Context
from tilec.passes.mapping import aligned_elements, contiguous_axis, tile_axes
from tilec.passes.operands import either_axis, summed_axes
from tilec.passes.range_starts import aligned_start
from tilec.passes.refusal import refused

PRODUCT_ROWS = 64
"""Rows of one wgmma, and so of one warpgroup (PTX ISA 9.7.15.5)."""

FRAGMENT_ROWS = 16
"""Rows of one mma.sync (PTX ISA, mma.m16n8)."""

WARPGROUP_WARPS = 4
ELEMENTS_PER_THREAD = 32
"""Elements of a row that one thread holds before more warps share the row."""

Classes = tuple[AxisClass | None, ...]


@dataclass(frozen=True)
class Team:
    """How the warps of a CTA share a tile: ``groups`` groups of ``warps`` warps.

    Each group has ``rows`` of the positions along ``split``, and all of every other axis.
    """

    warps: int
    groups: int
    split: AxisClass | None
    rows: int
    multiplies: bool = False
    """Whether the groups are warpgroups that share products."""

    @property
    def threads(self) -> int:
        """Threads of one group."""
        return 32 * self.warps


def warps_per_row(elements: int, most: int) -> int:
    """The fewest warps, a power of two, that hold a row of so many elements comfortably."""
    warps = 1
    while warps * 2 <= most and elements > 32 * ELEMENTS_PER_THREAD * warps:
        warps *= 2
    return warps


def access_vector(ctx: Context, axes: Axes, region: Region, along: AxisClass) -> int:
    """Elements an access may take along a class: what every array with it contiguous allows."""
    widest = 0
    for op in region.walk():
        if not isinstance(op, tile.Load | tile.Store):
            continue
        places = tile_axes(op.subscripts)
        contiguous = contiguous_axis(ctx, op.array, places)
        value = op.value if isinstance(op, tile.Store) else op.out
        if contiguous is None or axes.of(value, contiguous) is not along:
            continue
        allowed = vector_of(ctx, op, contiguous, 16)
        widest = min(widest, allowed) if widest else allowed
    return widest or 1


def vector_of(ctx: Context, op: tile.Load | tile.Store, along: int, most: int) -> int:
    """Elements that one access of a load or store takes along a tile axis, at most ``most``."""
    places = tile_axes(op.subscripts)
    if contiguous_axis(ctx, op.array, places) != along:
        return 1
    allowed = min(most, aligned_elements(ctx, op.array, places))
    return aligned_start(ctx, op.subscripts[places[along]], allowed)


@dataclass(frozen=True)
class Turn:
    """Tiles that memory holds along one class where they are read, along another where written.

    Lanes stand along the class of reads, threads hold ``vector`` neighbours along that of writes:
    so neither goes through memory in strides.
    """

    read: AxisClass
    written: AxisClass
    vector: int


def turn_of(ctx: Context, axes: Axes, region: Region) -> Turn | None:
    """The turn that the loads and stores of a region make; None where there is none, or several."""
    read, written = set[AxisClass](), set[AxisClass]()
    vectors: list[int] = []
    for op in region.walk():
        if not isinstance(op, tile.Load | tile.Store):
            continue
        places = tile_axes(op.subscripts)
        along = contiguous_axis(ctx, op.array, places) if len(places) == 2 else None
        if along is None:
            continue
        found = axes.of(op.value if isinstance(op, tile.Store) else op.out, along)
        if found is not None:
            (written if isinstance(op, tile.Store) else read).add(found)
        if isinstance(op, tile.Store):
            vectors.append(vector_of(ctx, op, along, max(1, 16 // op.array.type.dtype.bytes)))
    if len(read) != 1 or len(written) != 1 or read == written or min(vectors) == 1:
        return None
    return Turn(read.pop(), written.pop(), min(vectors))


class Frames:
    """Layouts of the tiles of one region, whose tile sizes are integers."""

    def __init__(
        self, ctx: Context, region: Region, axes: Axes, team: Team, vector: int | None
    ) -> None:
        self.ctx, self.region, self.axes, self.team, self.vector = ctx, region, axes, team, vector
        self.frames: dict[Classes, Layout] = {}
        self.pinned: dict[Value[Any], Layout] = {}
        values, uses = _tiles(region), rewrite.uses(region)
        # Axes along which computed operands are summed, where shared memory has to have those last.
        self.summed = {
            axes.all_of(v): axis
            for v in values
            if not either_axis(v.type.dtype) and not isinstance(v.owner, tile.Load)
            for axis in summed_axes(v, uses)
        }
        for op in region.walk():
            if isinstance(op, tile.Dot):
                self._accumulator_frame(op)
        self.fixed = set(self.frames)
        reduced = {
            (axes.all_of(tiles[0]), axis)
            for op in region.walk()
            for tiles, axis in [combined_tiles(op)]
            if tiles
        }
        for value in sorted(values, key=lambda v: -len(v.type.shape)):
            classes = axes.all_of(value)
            if isinstance(value.owner, tile.Transpose) and not isinstance(
                value.owner.x.owner, tile.Load
            ):
                continue  # a view of the tile, which a product or a store takes so
            if only_transposed(uses.get(value, [])):
                continue
            if len(classes) > 1 and None not in classes and classes not in self.frames:
                rowwise = (classes, len(classes) - 1) in reduced
                try:
                    self.frames[classes] = self.free(classes, rowwise)
                except Refused as refusal:
                    raise refused(_maker(value), str(refusal)) from None

    def register(self, value: Value[Any]) -> Register:
        """The register type of a tile in one group: as the author pinned it, or as its frame."""
        if value not in self.pinned:
            return self.frame(value)
        layout = self.pinned[value]
        return Register(value.type.dtype, layout.shape, layout)

    def frame(self, value: Value[Any]) -> Register:
        """The register type that a tile has unless it is pinned to another."""
        layout = self.layout(self.axes.all_of(value))
        return Register(value.type.dtype, layout.shape, layout)

    def adopt(self, value: Value[Any], layout: Layout) -> bool:
        """Make a tile's layout that of all tiles along its axes, where nothing else fixes that."""
        classes = self.axes.all_of(value)
        met = len(classes) == 1 and any(classes[0] in others for others in self.frames)
        known = classes in self.frames or (len(classes) == 1 and not met)
        if not known or classes in self.fixed or None in classes:
            return False
        self.frames[classes] = layout
        self.fixed.add(classes)
        return True

    def size(self, axis: AxisClass) -> int:
        """Extent of a class in one group."""
        if axis is self.team.split:
            return self.team.rows
        if not isinstance(axis.size, int):
            raise Refused(f"the size of {axis.name} is not chosen yet")
        return axis.size

    def layout(self, classes: Classes) -> Layout:
        """The layout of a tile that runs along these classes (None: an axis of extent one)."""
        if classes in self.frames:
            return self.frames[classes]
        present = [c for c in classes if c is not None]
        if len(present) == 1:
            vector = self._vector_layout(present[0])
            for axis, kind in enumerate(classes):
                if kind is None:
                    vector = vector.insert(axis)
            return vector
        names = ", ".join("1" if c is None else c.name for c in classes)
        raise Refused(f"no register layout is known for a tile along ({names})")

    def _vector_layout(self, axis: AxisClass) -> Layout:
        for classes, layout in self.frames.items():
            if axis in classes:
                return slice_of(layout, [a for a, c in enumerate(classes) if c is not axis])
        width = self.vector or access_vector(self.ctx, self.axes, self.region, axis)
        return _fitting_blocked((self.size(axis),), self.team.threads, width)

    def _accumulator_frame(self, op: tile.Dot) -> None:
        classes = self.axes.all_of(op.out)
        try:
            layout = team_result(*self._product_shape(op), self.team.warps)
        except LayoutError as error:
            raise refused(op, str(error)) from None
        self.frames.setdefault(classes, layout)

    def _product_shape(self, op: tile.Dot) -> tuple[int, int]:
        rows, columns = self.axes.of(op.out, 0), self.axes.of(op.out, 1)
        if rows is None or columns is None:
            raise refused(op, f"a product of one {'row' if rows is None else 'column'}")
        return self.size(rows), self.size(columns)

    def free(self, classes: Classes, rowwise: bool) -> Layout:
        """The layout of tiles that no product fixes, for work along rows or on each element."""
        shape = tuple(self.size(c) for c in classes if c is not None)
        contiguous = self._contiguous(classes)
        along = classes[contiguous]
        assert along is not None
        width = self.vector or access_vector(self.ctx, self.axes, self.region, along)
        if rowwise and len(shape) == 2:
            last = width if contiguous == 1 else 1
            while shape[1] % last:
                last //= 2
            try:
                whole = rows(shape, self.team.warps, last, self.team.threads)
            except (LayoutError, LayoutRefusal) as error:
                raise Refused(str(error)) from None
            # Lanes that a short row has no use for hold other rows rather than copies of it.
            shared = _fitting_blocked(shape, self.team.threads, last)
            fewer = shared.size("reg") < whole.size("reg")
            return shared if fewer and not _copied_over_warps(shared) else whole
        summed = self.summed.get(classes, contiguous)
        if summed != contiguous and len(shape) == 2:
            return self._turning_frame(shape, summed, 4)
        turn = turn_of(self.ctx, self.axes, self.region) if len(shape) == 2 else None
        if turn is not None and {turn.read, turn.written} == set(classes):
            each = min(self.vector or turn.vector, turn.vector)
            return self._turning_frame(shape, classes.index(turn.written), each)
        order = [a for a in range(len(shape)) if a != contiguous] + [contiguous]
        layout = _fitting_blocked(tuple(shape[a] for a in order), self.team.threads, width)
        return layout.permute(*(order.index(a) for a in range(len(shape))))

    def _turning_frame(self, shape: tuple[int, ...], last: int, each: int) -> Layout:
        """The layout of a tile that is read along one axis, and put elsewhere along the other."""
        while shape[last] % each:
            each //= 2
        layout = turning(shape[1 - last], shape[last], self.team.threads, each)
        return layout if last == 1 else layout.transpose()

    def _contiguous(self, classes: Classes) -> int:
        """The axis along which the arrays of these tiles are contiguous; the last if unknown."""
        for op in self.region.walk():
            if isinstance(op, tile.Load | tile.Store):
                value = op.value if isinstance(op, tile.Store) else op.out
                found = contiguous_axis(self.ctx, op.array, tile_axes(op.subscripts))
                if found is not None and self.axes.all_of(value) == classes:
                    return found
        return len(classes) - 1


def only_transposed(users: list[Op]) -> bool:
    """Whether a tile is wanted with its axes exchanged alone: no register holds it as it is."""
    return bool(users) and all(isinstance(user, tile.Transpose) for user in users)


def slice_of(layout: Layout, axes: list[int]) -> Layout:
    """The layout of a vector that a tile's threads keep, without the tile axes listed."""
    for axis in sorted(axes, reverse=True):
        layout = layout.drop(axis)
    return layout.squeeze("reg")


def _fitting_blocked(shape: tuple[int, ...], threads: int, vector: int) -> Layout:
    while vector > 1 and (shape[-1] % vector or prod(shape) < vector * threads):
        vector //= 2
    try:
        return blocked(shape, threads, vector, 8)
    except (LayoutError, LayoutRefusal) as error:
        raise Refused(str(error)) from None


def _copied_over_warps(layout: Layout) -> bool:
    return any(placed.space == "warp" and placed.digit.is_copy for placed in layout.placed)


def _maker(value: Value[Any]) -> Op | None:
    return value.owner if isinstance(value.owner, Op) else None


def _tiles(region: Region) -> list[Value[Any]]:
    found: dict[Value[Any], None] = {}

    def note(op: Op) -> None:
        for value in (*op.results, *(a for r in op.regions for a in r.args)):
            if isinstance(value.type, Tile):
                found.setdefault(value)

    for op in region.walk():
        note(op)
    return list(found)
