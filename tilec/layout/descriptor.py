"""wgmma's 64-bit matrix descriptor, read off the layout of a tile in shared memory.

The descriptor describes a tile by two strides and a swizzle (PTX ISA 9.7.15.5.1.2.2). Here they
are not looked up by case but measured on the layout's inverse, with the swizzle undone, and the
layout is refused, with the reason, when the strides that the hardware assumes do not hold for
every 8-row group. Operand a is the tile [M, K] and operand b the tile [K, N].

Only the low word ever changes: `low + ((address & 0x3FFFF) >> 4) + offset`. Mask the address: in
a cluster its bits from 24 up carry the rank of the CTA (seen on an H200). The base of
the tile is aligned to the swizzle atom, so the base-offset field stays 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tilec.layout.linear import Layout, LayoutError, LayoutRefusal
from tilec.layout.shared import CHUNK_BYTES, atom_bytes, stripes, swizzle_of, unswizzle

SWIZZLE_CODE = {0: 0, 128: 1, 64: 2, 32: 3}  # not the tensor map's numbering
STEP_BYTES = 32  # of K, for one instruction
M_ROWS = 64
_FIELD = 0x3FFF

Address = Callable[[int, int], int]  # (m or n, k) -> byte offset with the swizzle undone


@dataclass(frozen=True)
class DescriptorPlan:
    """All that is constant about the descriptors of one tile; offsets count 16 bytes."""

    high: int
    low: int
    k_steps: tuple[int, ...]
    row_steps: tuple[int, ...]
    transpose: bool
    leading_bytes: int
    stride_bytes: int
    swizzle_bytes: int
    alignment: int
    layout: Layout
    element_bits: int
    operand: str

    def descriptor(self, address: int, offset: int = 0) -> int:
        """Return the whole descriptor for a tile at a shared byte address."""
        return self.high << 32 | (self.low + ((address & 0x3FFFF) >> 4) + offset)

    def offset(self, mn: int, k: int) -> int:
        """Return the offset, in 16-byte units, of an instruction that starts at (m or n, k)."""
        return _address(self.layout, self.element_bits, self.operand)(mn, k) // CHUNK_BYTES


@lru_cache(maxsize=256)
def matrix_descriptor(
    layout: Layout, element_bits: int, operand: str, major: str | None = None
) -> DescriptorPlan:
    """Plan the descriptors of operand "a" [M, K] or "b" [K, N].

    `row_steps` has one offset for each 64 rows of M or columns of N. A given `major` ("k" or
    "mn") is checked against the layout.
    """
    if operand not in ("a", "b"):
        raise LayoutError(f"operand is a or b, not {operand!r}")
    swizzle = swizzle_of(layout)
    k_axis = 1 if operand == "a" else 0
    found = "k" if stripes(layout).contiguous_axis == k_axis else "mn"
    if major not in (None, found):
        raise LayoutRefusal(f"the tile is {found}-major, not {major}-major")
    if found == "mn" and element_bits != 16:
        raise LayoutRefusal(
            f"wgmma reads operands of {element_bits} bits only with K contiguous; "
            "MN-major exists for 16-bit elements alone"
        )
    if swizzle and 128 // element_bits != _chunk(layout, swizzle):
        raise LayoutRefusal(f"the swizzle of {layout} is not one of {element_bits}-bit elements")
    extent_mn, extent_k = layout.shape[1 - k_axis], layout.shape[k_axis]
    step = STEP_BYTES * 8 // element_bits
    group = M_ROWS if operand == "a" else 8
    if extent_k % step or extent_mn % group:
        raise LayoutRefusal(
            f"wgmma takes {'M' if operand == 'a' else 'N'} in steps of {group} and "
            f"K in steps of {step}; the tile has {extent_mn} and {extent_k}"
        )
    address = _address(layout, element_bits, operand)
    measure = _k_major if found == "k" else _mn_major
    leading, stride = measure(address, extent_mn, extent_k, element_bits, swizzle)
    k_steps = tuple(address(0, k) for k in range(0, extent_k, step))
    row_steps = tuple(address(mn, 0) for mn in range(0, extent_mn, M_ROWS))
    _check_starts((*k_steps, *row_steps), swizzle, found)
    return DescriptorPlan(
        high=_field(stride) | SWIZZLE_CODE[swizzle] << 30,
        low=_field(leading) << 16,
        k_steps=tuple(a // CHUNK_BYTES for a in k_steps),
        row_steps=tuple(a // CHUNK_BYTES for a in row_steps),
        transpose=found == "mn",
        leading_bytes=leading,
        stride_bytes=stride,
        swizzle_bytes=swizzle,
        alignment=atom_bytes(swizzle),
        layout=layout,
        element_bits=element_bits,
        operand=operand,
    )


def _address(layout: Layout, element_bits: int, operand: str) -> Address:
    back = layout.inverse()
    swizzle = swizzle_of(layout)

    def address(mn: int, k: int) -> int:
        coordinates = (mn, k) if operand == "a" else (k, mn)
        return unswizzle(back(*coordinates).get("off", 0) * element_bits // 8, swizzle)

    return address


def _k_major(
    address: Address, rows: int, k: int, element_bits: int, swizzle: int
) -> tuple[int, int]:
    """Return LBO and SBO with K contiguous."""
    chunk = 128 // element_bits
    pitch = swizzle or CHUNK_BYTES
    _expect(
        address,
        (1, 0),
        pitch,
        "the rows of an 8-row group do not lie {pitch} bytes apart; "
        "without swizzle K must be stored in 16-byte stripes (core matrices)",
        pitch=pitch,
    )
    stride = address(8, 0) if rows > 8 else 0
    for row in range(rows):
        _expect(
            address,
            (row, 0),
            row % 8 * pitch + row // 8 * stride,
            "row {row} breaks the even distance of 8-row groups",
            row=row,
        )
    leading = 0 if swizzle else address(0, chunk)
    width = pitch * 8 // element_bits
    for step in range(0, k, 2 * chunk):
        start = address(0, step)
        for inner in range(2 * chunk):
            far = inner // chunk * (CHUNK_BYTES if swizzle else leading)
            _expect(
                address,
                (0, step + inner),
                start + far + inner % chunk * element_bits // 8,
                "K = {k} does not follow its 16-byte chunk",
                k=step + inner,
            )
        _expect(
            address,
            (rows - 1, step),
            start + address(rows - 1, 0),
            "the rows lie otherwise from K = {k} on",
            k=step,
        )
    if swizzle and width < 2 * chunk:
        raise LayoutRefusal("one step of K does not fit the swizzle span")
    return leading or CHUNK_BYTES, stride or CHUNK_BYTES


def _mn_major(
    address: Address, extent: int, k: int, element_bits: int, swizzle: int
) -> tuple[int, int]:
    """Return LBO and SBO with M or N contiguous; the two change roles with the swizzle."""
    width = (swizzle or CHUNK_BYTES) * 8 // element_bits
    pitch = swizzle or CHUNK_BYTES
    stripe = address(width, 0) if extent > width else 0
    group = address(0, 8)
    for mn in range(extent):
        _expect(
            address,
            (mn, 0),
            mn % width * element_bits // 8 + mn // width * stripe,
            "element {mn} along M or N breaks the even distance of stripes",
            mn=mn,
        )
    for row in range(k):
        _expect(
            address,
            (0, row),
            row % 8 * pitch + row // 8 * group,
            "row {k} of K does not lie {pitch} bytes after the one before; without swizzle "
            "M or N must be stored in 16-byte stripes (core matrices)",
            k=row,
            pitch=pitch,
        )
    _expect(
        address,
        (extent - 1, k - 1),
        address(extent - 1, 0) + address(0, k - 1),
        "the stripes do not repeat one another",
    )
    if swizzle:
        return stripe or CHUNK_BYTES, group
    return group, stripe or CHUNK_BYTES


def _expect(address: Address, at: tuple[int, int], value: int, why: str, **facts: int) -> None:
    if address(*at) != value:
        raise LayoutRefusal("wgmma cannot read the tile: " + why.format(**facts))


def _check_starts(starts: tuple[int, ...], swizzle: int, major: str) -> None:
    """Every start keeps base offset 0: whole atoms, or chunks inside the span when K-major."""
    for start in starts:
        inside = start % atom_bytes(swizzle)
        if start % CHUNK_BYTES or (swizzle and inside >= (swizzle if major == "k" else 1)):
            raise LayoutRefusal(
                f"an instruction would start {start} bytes into the tile, which is "
                f"not on the {atom_bytes(swizzle)}-byte swizzle atom"
            )


def _chunk(layout: Layout, swizzle: int) -> int:
    """Elements in a 16-byte chunk, from the width of the span."""
    return stripes(layout).width * CHUNK_BYTES // swizzle


def _field(value: int) -> int:
    if value % CHUNK_BYTES or value // CHUNK_BYTES > _FIELD:
        raise LayoutRefusal(f"a stride of {value} bytes does not fit the descriptor's field")
    return value // CHUNK_BYTES
