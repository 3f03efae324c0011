"""Shared tiles, matrix descriptors and TMA boxes, against the address formulas of the hardware."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilec.layout.descriptor import DescriptorPlan, matrix_descriptor
from tilec.layout.linear import Layout, LayoutError, LayoutRefusal
from tilec.layout.shared import core_matrices, stripes, swizzle_of, swizzled, unswizzle
from tilec.layout.tma import Box, boxes, folded_box

MASKS = {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}


def byte_offset(layout: Layout, bits: int, *at: int) -> int:
    return layout.inverse()(*at).get("off", 0) * bits // 8


def stored_at(rows: int, bits: int, span: int, row: int, col: int) -> int:
    """Where TMA puts an element: stripes of the span, rows packed, chunks exchanged."""
    width = span * 8 // bits
    plain = col // width * rows * span + row * span + col % width * bits // 8
    return plain ^ (plain >> 3 & MASKS[span])


def test_the_128_byte_swizzle_reads_as_in_the_style_guide() -> None:
    text = "(off: j1 j2 j4 j8 j16 j32 i1^j8 i2^j16 i4^j32 i8 i16 i32 i64)"
    assert str(swizzled(128, 64, 16, 128)) == text


@pytest.mark.parametrize(
    ("span", "row", "col", "want"), [(128, 5, 19, 758), (64, 5, 19, 326), (32, 5, 11, 166)]
)
def test_worked_swizzle_addresses(span: int, row: int, col: int, want: int) -> None:
    assert byte_offset(swizzled(8, span // 2, 16, span), 16, row, col) == want


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("span", [32, 64, 128])
@pytest.mark.parametrize("rows", [8, 24, 64])
def test_every_element_lies_where_the_hardware_puts_it(bits: int, span: int, rows: int) -> None:
    cols = 3 * span * 8 // bits if rows == 8 else 2 * span * 8 // bits
    layout = swizzled(rows, cols, bits, span)
    turned = swizzled(cols, rows, bits, span, "column")
    assert turned == layout.transpose()
    for index in layout.indices():
        row, col = layout(**index)
        assert index["off"] * bits // 8 == stored_at(rows, bits, span, row, col)
    assert swizzle_of(layout) == swizzle_of(turned) == span


def test_a_dense_tile_and_core_matrices_have_no_swizzle() -> None:
    dense = swizzled(8, 48, 16, 0)
    assert [dense.inverse()(1, 2)["off"], swizzle_of(dense), stripes(dense).width] == [50, 0, 48]
    cores = core_matrices(64, 32, 16)
    assert swizzle_of(cores) == 0
    for row in range(64):
        for col in range(32):
            assert byte_offset(cores, 16, row, col) == col // 8 * 1024 + row * 16 + col % 8 * 2


def test_stripes_are_read_off_the_layout() -> None:
    found = stripes(swizzled(80, 128, 16, 128))
    assert (found.contiguous_axis, found.width, found.rows, found.count) == (1, 64, 80, 2)
    assert found.distance == 80 * 64
    assert stripes(swizzled(128, 64, 16, 64, "column")).contiguous_axis == 0


def test_undoing_the_swizzle_twice_changes_nothing() -> None:
    for span in MASKS:
        for address in range(0, 2048, 16):
            assert unswizzle(unswizzle(address, span), span) == address


def test_a_foreign_exchange_of_bits_is_no_swizzle() -> None:
    with pytest.raises(LayoutRefusal, match="none of the swizzles"):
        swizzle_of(Layout.parse("(off: j1 j2 j4 j8 j16 j32 i1^j16 i2^j8 i4^j32)"))
    with pytest.raises(LayoutRefusal, match="no two-axis tile"):
        stripes(Layout.parse("(reg: j1 | lane: i1)"))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: swizzled(8, 96, 16, 128), LayoutRefusal, "no multiple of the stripe"),
        (lambda: swizzled(12, 64, 16, 128), LayoutRefusal, "8 rows of a swizzle atom"),
        (lambda: swizzled(4, 128, 16, 128), LayoutRefusal, "8 rows of a swizzle atom"),
        (lambda: swizzled(8, 64, 16, 16), LayoutError, "0, 32, 64 or 128"),
        (lambda: swizzled(8, 64, 4, 0), LayoutError, "8 to 64 bits"),
        (lambda: swizzled(8, 64, 16, 0, "k"), LayoutError, "row or column"),
    ],
)
def test_impossible_tiles_are_refused(
    make: Callable[[], Layout], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


# -- matrix descriptors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "bits", "operand", "want", "k_steps"),
    [
        (swizzled(64, 64, 16, 128), 16, "a", 0x4000004000010040, (0, 2, 4, 6)),
        (swizzled(64, 128, 8, 128), 8, "a", 0x4000004000010040, (0, 2, 4, 6)),
        (swizzled(64, 32, 32, 128), 32, "a", 0x4000004000010040, (0, 2, 4, 6)),
        (swizzled(64, 32, 16, 64), 16, "a", 0x8000002000010040, (0, 2)),
        (swizzled(64, 16, 16, 32), 16, "a", 0xC000001000010040, (0,)),
        (core_matrices(64, 16, 16), 16, "a", 0x0000000800400040, (0,)),
        (swizzled(64, 128, 16, 128), 16, "b", 0x4000004002000040, (0, 128, 256, 384)),
        (swizzled(16, 64, 16, 128), 16, "b", 0x4000004000010040, (0,)),
        # V of attention: 80 keys, 128 columns; the stripe distance is 80 rows of 128 bytes.
        (swizzled(80, 128, 16, 128), 16, "b", 0x4000004002800040, (0, 128, 256, 384, 512)),
        # B stored [N, K], K past one span: the next stripe is 256 rows of 128 bytes away.
        (
            swizzled(256, 128, 16, 128).transpose(),
            16,
            "b",
            0x4000004000010040,
            (0, 2, 4, 6, 2048, 2050, 2052, 2054),
        ),
    ],
)
def test_worked_descriptors(
    layout: Layout, bits: int, operand: str, want: int, k_steps: tuple[int, ...]
) -> None:
    plan = matrix_descriptor(layout, bits, operand)
    assert plan.descriptor(0x400) == want
    assert plan.k_steps == k_steps


def test_a_shared_address_with_a_cluster_rank_is_masked() -> None:
    plan = matrix_descriptor(swizzled(64, 64, 16, 128), 16, "a")
    assert plan.descriptor(0x1000400, 2) == 0x4000004000010042


def test_the_second_warpgroup_starts_64_rows_on() -> None:
    k_major = matrix_descriptor(swizzled(128, 64, 16, 128), 16, "a")
    assert (k_major.row_steps, k_major.transpose) == ((0, 512), False)
    mn_major = matrix_descriptor(swizzled(64, 128, 16, 128).transpose(), 16, "a")
    assert (mn_major.row_steps, mn_major.transpose) == ((0, 512), True)
    assert mn_major.leading_bytes == 8192
    assert mn_major.k_steps == (0, 128, 256, 384)


def read_by_wgmma(plan: DescriptorPlan, bits: int, mn: int, k: int) -> int:
    """Byte offset that the hardware reads for an element of one instruction at offset 0.

    The canonical layouts of PTX 9.7.15.5.1.2.1, swizzle applied to the whole address.
    """
    t, span = 128 // bits, plan.swizzle_bytes
    lead, stride = plan.leading_bytes, plan.stride_bytes
    width = (span or 16) * 8 // bits
    inner = k % t * bits // 8
    if not plan.transpose:
        far = k // t * (16 if span else lead)
        return mn // 8 * stride + mn % 8 * (span or 16) + far + inner
    inner = mn % width * bits // 8
    if span:
        return mn // width * lead + k // 8 * stride + k % 8 * span + inner
    return mn // t * stride + k // 8 * lead + k % 8 * 16 + inner


@pytest.mark.parametrize(
    ("layout", "bits"),
    [
        *[
            (swizzled(64, 2 * span * 8 // bits, bits, span), bits)
            for bits in (8, 16, 32)
            for span in (32, 64, 128)
        ],
        *[(core_matrices(64, 2 * 256 // bits, bits), bits) for bits in (8, 16, 32)],
        *[(swizzled(64, 32, 16, span, "column"), 16) for span in (32, 64, 128)],
        (core_matrices(64, 32, 16, "column"), 16),
    ],
)
def test_the_hardware_reads_every_element_where_the_layout_put_it(
    layout: Layout, bits: int
) -> None:
    step = 256 // bits
    for operand, tile in (("a", layout), ("b", layout.transpose())):
        plan = matrix_descriptor(tile, bits, operand)
        for number, start in enumerate(plan.k_steps):
            assert plan.offset(0, number * step) == start
            for mn in range(64):
                for k in range(step):
                    at = start * 16 + read_by_wgmma(plan, bits, mn, k)
                    at ^= at >> 3 & MASKS[plan.swizzle_bytes]
                    assert at == byte_offset(layout, bits, mn, number * step + k)


@pytest.mark.parametrize(
    ("layout", "bits", "operand", "message"),
    [
        (swizzled(64, 64, 16, 0), 16, "a", "core matrices"),
        (swizzled(64, 64, 16, 0), 16, "b", "core matrices"),
        (swizzled(64, 128, 8, 128), 8, "b", "only with K contiguous"),
        (swizzled(48, 64, 16, 128), 16, "a", "steps of 64"),
        (swizzled(64, 64, 16, 128), 32, "a", "not one of 32-bit"),
        (Layout.parse("(reg: j1 | lane: i1)"), 16, "a", "no two-axis tile"),
    ],
)
def test_unreadable_tiles_are_refused(
    layout: Layout, bits: int, operand: str, message: str
) -> None:
    with pytest.raises(LayoutRefusal, match=message):
        matrix_descriptor(layout, bits, operand)


def test_a_given_major_must_be_the_one_of_the_layout() -> None:
    layout = swizzled(64, 64, 16, 128)
    assert matrix_descriptor(layout, 16, "a", "k").transpose is False
    with pytest.raises(LayoutRefusal, match="k-major, not mn-major"):
        matrix_descriptor(layout, 16, "a", "mn")
    with pytest.raises(LayoutError, match="operand is a or b"):
        matrix_descriptor(layout, 16, "c")


# -- TMA ---------------------------------------------------------------------------------------


def written(found: list[Box], bits: int) -> dict[tuple[int, ...], int]:
    """Byte offsets as the copies write them: rows packed at the inner extent, then swizzled."""
    at: dict[tuple[int, ...], int] = {}
    for box in found:
        inner, outer = (*box.extents, 1)[:2]
        assert box.bytes == inner * outer * bits // 8
        for row in range(outer):
            for col in range(inner):
                place = list(box.origin)
                place[box.axes[0]] += col
                if len(place) > 1:
                    place[box.axes[1]] += row
                plain = box.shared_offset + (row * inner + col) * bits // 8
                at[tuple(place)] = plain ^ (plain >> 3 & MASKS[box.swizzle_bytes])
    return at


@pytest.mark.parametrize(
    ("layout", "bits"),
    [
        (swizzled(80, 128, 16, 128), 16),
        (swizzled(64, 64, 16, 64, "column"), 16),
        (swizzled(16, 64, 32, 128), 32),
        (swizzled(16, 256, 8, 128), 8),
        (swizzled(320, 32, 16, 64), 16),
        (swizzled(8, 200, 16, 0), 16),
        (core_matrices(16, 32, 16), 16),
        (Layout.parse("(off: i1*512)"), 32),
    ],
)
def test_boxes_write_the_layout(layout: Layout, bits: int) -> None:
    found = boxes(layout, bits)
    assert all(extent <= 256 for box in found for extent in box.extents)
    assert len({box.extents for box in found}) == 1
    at = written(found, bits)
    assert len(at) == layout.size("off")
    for place, offset in at.items():
        assert byte_offset(layout, bits, *place) == offset


def test_the_gemm_and_attention_tiles_take_the_known_boxes() -> None:
    a, b = boxes(swizzled(64, 256, 16, 128), 16)[:2]
    assert (a.extents, a.origin, a.shared_offset, a.swizzle_code) == ((64, 64), (0, 0), 0, 3)
    assert (b.origin, b.shared_offset, b.bytes) == ((0, 64), 8192, 8192)
    whole = folded_box(swizzled(80, 128, 16, 128), 16)
    assert whole is not None
    assert (whole.extents, whole.axes, whole.bytes) == ((64, 80, 2), (1, 0, 1), 20480)
    assert folded_box(swizzled(320, 64, 16, 128), 16) is None


@pytest.mark.parametrize(
    ("layout", "bits", "message"),
    [
        (swizzled(8, 512, 16, 0), 16, "at most 256 elements wide"),
        (swizzled(8, 12, 16, 0), 16, "no multiple of 16"),
        (swizzled(8, 64, 16, 128), 32, "do not match the 128-byte swizzle"),
        (core_matrices(4, 16, 16), 16, "no multiple of 128"),
    ],
)
def test_tiles_that_no_box_can_write_are_refused(layout: Layout, bits: int, message: str) -> None:
    with pytest.raises(LayoutRefusal, match=message):
        boxes(layout, bits)
