"""How a two-axis tile lies in shared memory, as a layout with one space, `off`, in elements.

A tile is stored as stripes: each stripe is as wide as the swizzle span (128, 64 or 32 bytes)
along the contiguous axis and holds all rows, row after row; stripes follow one another. This is
what TMA boxes of that width write, and what matrix descriptors read. Inside a stripe the swizzle
exchanges 16-byte chunks: address bits 4.. are XORed with bits 7.. (three, two or one of them;
PTX ISA 9.7.15.5.1.2.1, and the same for tensor maps), so a column of chunks meets all banks.

The layouts hold for a tile whose base is aligned to the swizzle atom (8 spans): the hardware
swizzles absolute addresses. Nothing here knows where a tile begins.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.layout.linear import Digit, Layout, LayoutError, LayoutRefusal

SPANS = (0, 32, 64, 128)
CHUNK_BYTES = 16


def swizzled(
    rows: int,
    cols: int,
    element_bits: int,
    swizzle_bytes: int,
    major: str = "row",
    *,
    stripe_bytes: int | None = None,
) -> Layout:
    """Return the layout of a rows x cols tile; major "row" has the last axis contiguous.

    With swizzle 0 the tile is dense, unless a stripe width is given (`core_matrices`).
    """
    if major not in ("row", "column"):
        raise LayoutError(f"major is row or column, not {major!r}")
    if major == "column":
        return swizzled(
            cols, rows, element_bits, swizzle_bytes, stripe_bytes=stripe_bytes
        ).transpose()
    if swizzle_bytes not in SPANS:
        raise LayoutError(f"no swizzle spans {swizzle_bytes} bytes: 0, 32, 64 or 128")
    if element_bits not in (8, 16, 32, 64):
        raise LayoutError(f"shared tiles have elements of 8 to 64 bits, not {element_bits}")
    stripe = swizzle_bytes or stripe_bytes
    if stripe_bytes is not None and stripe_bytes != stripe:
        raise LayoutError(f"a {swizzle_bytes}-byte swizzle has stripes of that width")
    width = stripe * 8 // element_bits if stripe else cols
    if width < 1 or cols % width:
        raise LayoutRefusal(
            f"rows of {cols * element_bits // 8} bytes are no multiple of the "
            f"stripe width {stripe}: use a narrower swizzle or pad the tile"
        )
    if swizzle_bytes and rows % 8 and (rows & (rows - 1) or cols > width):
        # The second stripe would begin inside an atom, and its address bits would be exchanged.
        raise LayoutRefusal(f"{rows} rows do not fill the 8 rows of a swizzle atom")
    columns = Digit(((1, 1),), width)
    row_digits = _rows(rows, element_bits, swizzle_bytes)
    return Layout.make({"off": [columns, *row_digits, Digit(((1, width),), cols // width)]}, rank=2)


def row_major(*shape: int) -> Layout:
    """Return the dense layout of a tile of any rank, the last axis contiguous, nothing swizzled."""
    axes = reversed(range(len(shape)))
    return Layout.make({"off": [Digit(((a, 1),), shape[a]) for a in axes]}, rank=len(shape))


def core_matrices(rows: int, cols: int, element_bits: int, major: str = "row") -> Layout:
    """Return wgmma's layout without swizzle: stripes of 16 bytes, so 8 rows are one 128-byte block.

    Other tile-wide orders of the 128-byte blocks exist; this is the one that TMA can write.
    """
    return swizzled(rows, cols, element_bits, 0, major, stripe_bytes=CHUNK_BYTES)


def _rows(rows: int, element_bits: int, swizzle_bytes: int) -> list[Digit]:
    """Row digits of a stripe; in a swizzled one, address bit 7+q also flips chunk bit q."""
    if not swizzle_bytes:
        return [Digit(((0, 1),), rows)]
    bits = swizzle_bytes.bit_length() - 5  # 1, 2, 3 exchanged bits for 32, 64, 128 bytes
    chunk = CHUNK_BYTES * 8 // element_bits
    digits = []
    for row_bit in range(min(3, rows.bit_length() - 1)):
        exchanged = row_bit - (3 - bits)
        flips = ((1, chunk << exchanged),) if exchanged >= 0 else ()
        digits.append(Digit(((0, 1 << row_bit), *flips)))
    return [*digits, Digit(((0, 1 << len(digits)),), rows >> len(digits))]


@dataclass(frozen=True)
class Stripes:
    """A shared tile as stripes, in elements: `count` of them, `distance` apart."""

    contiguous_axis: int
    width: int
    rows: int
    count: int

    @property
    def distance(self) -> int:
        """Elements from the start of one stripe to the next."""
        return self.width * self.rows


def stripes(layout: Layout) -> Stripes:
    """Read the stripes off a shared layout; refusal if it is not made of stripes."""
    if layout.rank == 1 and layout == Layout.make({"off": [Digit(((0, 1),), layout.shape[0])]}, 1):
        return Stripes(0, layout.shape[0], 1, 1)
    if set(layout.spaces) - {"off"} or layout.rank != 2:
        raise LayoutRefusal(f"{layout} is no two-axis tile in shared memory")
    digits = layout.spaces.get("off", ())
    axis = next(iter(digits[0].axes)) if digits and len(digits[0].axes) == 1 else 1
    width = 1
    for digit in digits:
        if digit.steps != ((axis, width),):
            break
        width *= digit.extent
    return Stripes(axis, width, layout.shape[1 - axis], layout.shape[axis] // width)


def swizzle_of(layout: Layout) -> int:
    """Return the swizzle of a shared layout in bytes, 0 for none; refusal if it is no swizzle."""
    shape = stripes(layout)
    flips = [
        (position, digit)
        for position, digit in enumerate(layout.spaces.get("off", ()))
        if len(digit.axes) > 1
    ]
    row_axis = 1 - shape.contiguous_axis
    span = 0
    element_bits = 8
    if flips:
        # The lowest exchanged chunk bit is address bit 4, which gives the size of an element.
        chunk = min(
            step
            for _, digit in flips
            for axis, step in digit.steps
            if axis == shape.contiguous_axis
        )
        element_bits = 128 // chunk
        span = shape.width * element_bits // 8
    if layout.rank == 2 and (not flips or (span in SPANS and element_bits >= 8)):
        major = "row" if row_axis == 0 else "column"
        rebuilt = _rebuild(layout, shape, element_bits, span, major)
        if rebuilt == layout:
            return span
    elif layout.rank == 1:
        return 0
    raise LayoutRefusal(f"{layout} follows none of the swizzles of 32, 64 or 128 bytes")


def _rebuild(
    layout: Layout, shape: Stripes, element_bits: int, span: int, major: str
) -> Layout | None:
    rows, cols = layout.shape
    stripe = span or shape.width * element_bits // 8
    try:
        return swizzled(rows, cols, element_bits, span, major, stripe_bytes=stripe)
    except (LayoutError, LayoutRefusal):
        return None


def unswizzle(byte_offset: int, swizzle_bytes: int) -> int:
    """Undo (or do) the exchange of chunks on a byte address: it is its own inverse."""
    return (
        byte_offset ^ (byte_offset >> 3 & swizzle_bytes - CHUNK_BYTES)
        if swizzle_bytes
        else byte_offset
    )


def atom_bytes(swizzle_bytes: int) -> int:
    """Return the alignment that a tile's base needs: 8 spans, or 128 bytes without swizzle."""
    return 8 * (swizzle_bytes or CHUNK_BYTES)
