"""TMA boxes that fill a shared tile, and the tensor map's swizzle code, read off the layout.

A box is written to shared memory row after row with the innermost extent contiguous, so a tile
made of stripes takes one box for each stripe (and for each 256 rows of it), or a single box of
three extents when the tensor's contiguous axis is viewed as [count, width] (`folded_box`).

Limits (CUDA driver API, cuTensorMapEncodeTiled): each box extent 1 to 256, the innermost one no
wider than the swizzle span and a multiple of 16 bytes, the shared destination aligned to 128
bytes or to the swizzle atom. Whether the global tensor can be mapped is not asked here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.layout.linear import Layout, LayoutRefusal
from tilec.layout.shared import CHUNK_BYTES, Stripes, atom_bytes, stripes, swizzle_of

SWIZZLE_CODE = {0: 0, 32: 1, 64: 2, 128: 3}  # of the tensor map, not the matrix descriptor's
MAX_EXTENT = 256


@dataclass(frozen=True)
class Box:
    """One copy: `origin` by tile axis; `extents` innermost (contiguous) first, like the map's.

    `axes` names the tile axis of each extent, innermost first.
    """

    origin: tuple[int, ...]
    extents: tuple[int, ...]
    axes: tuple[int, ...]
    shared_offset: int
    bytes: int
    swizzle_bytes: int

    @property
    def swizzle_code(self) -> int:
        """The swizzle in the tensor map's numbering."""
        return SWIZZLE_CODE[self.swizzle_bytes]


def boxes(layout: Layout, element_bits: int) -> list[Box]:
    """List the boxes that write the tile exactly as the layout says, all of one shape.

    Refuses when no box can: the reason names the limit.
    """
    shape, swizzle = _read(layout, element_bits)
    if shape.width > MAX_EXTENT and layout.rank > 1:
        raise LayoutRefusal(
            f"a box is at most {MAX_EXTENT} elements wide, the rows of the tile "
            f"are {shape.width}: use a swizzled (striped) layout"
        )
    across = _piece(shape.rows, 8 if swizzle else 1)
    along = shape.width if layout.rank > 1 else _piece(shape.width, 1)
    size = along * across * element_bits // 8
    out = []
    for stripe in range(shape.count):
        for row in range(0, shape.rows, across):
            for start in range(0, shape.width, along):
                where = stripe * shape.distance + row * shape.width + start
                out.append(
                    _box(
                        layout,
                        shape,
                        swizzle,
                        (stripe * shape.width + start, row),
                        (along, across),
                        where * element_bits // 8,
                        size,
                    )
                )
    for box in out:
        align = max(128, atom_bytes(swizzle))
        if box.shared_offset % align:
            raise LayoutRefusal(
                f"a box would land {box.shared_offset} bytes into the tile, which "
                f"is no multiple of {align}"
            )
    return out


@dataclass(frozen=True)
class Cut:
    """Boxes that are loaded in equal shares: those of the first one, and the way to the next."""

    boxes: tuple[Box, ...]
    rows: int
    """Along the last axis of each box, from one share to the next."""
    bytes: int
    """Of shared memory, from one share of a box to the next."""


def cut_boxes(layout: Layout, element_bits: int, shares: int) -> Cut:
    """Cut each box of a tile into ``shares`` along its rows; refuses what does not cut evenly."""
    whole = boxes(layout, element_bits)
    if shares == 1:
        return Cut(tuple(whole), 0, 0)
    if layout.rank != 2:
        raise LayoutRefusal(f"a row of {layout.shape[0]} elements is not cut into shares")
    width, height = whole[0].extents
    rows, size = height // shares, whole[0].bytes // shares
    align = max(128, atom_bytes(swizzle_of(layout)))
    if height % shares or size % align:
        raise LayoutRefusal(
            f"a box of {width} x {height} does not cut into {shares} shares of whole {align} bytes"
        )
    first = (replace(box, extents=(width, rows), bytes=size) for box in whole)
    return Cut(tuple(first), rows, size)


def folded_box(layout: Layout, element_bits: int) -> Box | None:
    """Return the single box of three extents (width, rows, stripes), or None if it is too large.

    It suits a map whose contiguous axis of C elements is given as two, [C / width, width]; edges
    are then exact only if C is a multiple of the width.
    """
    shape, swizzle = _read(layout, element_bits)
    if layout.rank != 2 or max(shape.width, shape.rows, shape.count) > MAX_EXTENT:
        return None
    contiguous = shape.contiguous_axis
    extents = (shape.width, shape.rows, shape.count)
    return Box(
        (0, 0),
        extents,
        (contiguous, 1 - contiguous, contiguous),
        0,
        shape.width * shape.rows * shape.count * element_bits // 8,
        swizzle,
    )


def _read(layout: Layout, element_bits: int) -> tuple[Stripes, int]:
    shape = stripes(layout)
    swizzle = swizzle_of(layout)
    span = shape.width * element_bits // 8
    if swizzle and span != swizzle:
        raise LayoutRefusal(
            f"stripes of {span} bytes do not match the {swizzle}-byte swizzle of "
            f"{element_bits}-bit elements"
        )
    if span % CHUNK_BYTES:
        raise LayoutRefusal(f"the innermost box extent, {span} bytes, is no multiple of 16")
    return shape, swizzle


def _box(
    layout: Layout,
    shape: Stripes,
    swizzle: int,
    origin: tuple[int, int],
    extents: tuple[int, int],
    offset: int,
    size: int,
) -> Box:
    if layout.rank == 1:
        return Box(origin[:1], extents[:1], (0,), offset, size, swizzle)
    axis = shape.contiguous_axis
    by_axis = origin if axis == 0 else origin[::-1]
    return Box(by_axis, extents, (axis, 1 - axis), offset, size, swizzle)


def _piece(extent: int, multiple: int) -> int:
    """Return the largest even share of an extent that a box can take."""
    for count in range(1, extent + 1):
        piece = extent // count
        if extent % count == 0 and piece <= MAX_EXTENT and (count == 1 or piece % multiple == 0):
            return piece
    raise LayoutRefusal(f"an extent of {extent} has no even share of at most {MAX_EXTENT}")
