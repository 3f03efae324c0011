"""The layouts that instructions fix, against the formulas of the PTX manual, element by element."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilec.layout import fragments, teams
from tilec.layout.linear import Layout, LayoutError, LayoutRefusal
from tilec.layout.shared import swizzled
from tilec.layout.vectors import shared_plan

At = tuple[int, int]


@pytest.mark.parametrize("n", [8, 24, 64, 80, 256])
def test_the_accumulator_follows_its_formula(n: int) -> None:
    layout = fragments.accumulator(n)
    assert layout.size("reg") == n // 2
    for warp in range(4):
        for lane in range(32):
            for i in range(n // 2):
                row = 16 * warp + lane // 4 + 8 * (i >> 1 & 1)
                col = 8 * (i >> 2) + 2 * (lane % 4) + (i & 1)
                assert layout(reg=i, lane=lane, warp=warp) == (row, col)


# A operands in registers: (row, col) of element e of lane 4g + t, one K step (PTX 9.7.15.5.1)
A_FORMULAS: dict[int, Callable[[int, int, int], At]] = {
    16: lambda g, t, e: (g + 8 * (e >> 1 & 1), 2 * t + (e & 1) + 8 * (e >> 2)),
    8: lambda g, t, e: (g + 8 * (e >> 2 & 1), 4 * t + (e & 3) + 16 * (e >> 3)),
    32: lambda g, t, e: (g + 8 * (e & 1), t + 4 * (e >> 1)),
}


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_a_operand_follows_its_formula(bits: int, steps: int) -> None:
    step = 256 // bits
    layout = fragments.a_fragment(bits, step * steps)
    each = layout.size("reg") // steps
    assert fragments.packed_registers(layout, bits) == 4 * steps
    for index in layout.indices():
        s, e = divmod(index["reg"], each)
        row, col = A_FORMULAS[bits](index["lane"] // 4, index["lane"] % 4, e)
        assert layout(**index) == (row + 16 * index["warp"], col + s * step)


@pytest.mark.parametrize("n", range(16, 257, 16))
def test_a_16_bit_accumulator_is_already_the_next_a_operand(n: int) -> None:
    assert fragments.accumulator(n) == fragments.a_fragment(16, n)


def test_an_8_bit_a_operand_is_not_the_accumulator() -> None:
    assert fragments.accumulator(32) != fragments.a_fragment(8, 32)


@pytest.mark.parametrize(("bits", "k"), [(16, 8), (16, 16), (8, 16), (8, 32), (32, 4), (32, 8)])
def test_mma_sync_operands_follow_their_formulas(bits: int, k: int) -> None:
    each = 32 // bits
    a, b = fragments.mma_a(bits, k), fragments.mma_b(bits, k)
    assert (a.shape, b.shape) == ((16, k), (k, 8))
    for index in a.indices():
        g, t = divmod(index["lane"], 4)
        register, e = divmod(index["reg"], each)
        at = (g + 8 * (register & 1), each * t + e + 4 * each * (register >> 1))
        assert a(**index) == at
    for index in b.indices():
        g, t = divmod(index["lane"], 4)
        register, e = divmod(index.get("reg", 0), each)
        assert b(**index) == (each * t + e + 4 * each * register, g)


def test_operands_of_64_bits_follow_their_formulas() -> None:
    a, b = fragments.mma_a(64, 16), fragments.mma_b(64, 16)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for r in range(4):
            # K = 4t + r of the tile is K = t + 4r of the instruction, in both operands.
            assert b(lane=lane, reg=r) == (4 * t + r, g)
        for number, register in enumerate(fragments.WIDE_A):
            down, along = number % 2, number // 2
            assert a(lane=lane, reg=register) == (g + 8 * down, 4 * t + along)


def test_reads_of_64_bits_meet_all_banks() -> None:
    tile = swizzled(64, 16, 64, 128)
    for layout in (teams.team_a(64, 64, 64, 16, 4), teams.team_b(64, 64, 64, 16, 4)):
        plan = shared_plan(layout, tile, 64)
        assert plan.bytes == 16
        for access in plan.accesses:
            for quarter in range(4):
                lanes = range(8 * quarter, 8 * quarter + 8)
                banks = {plan.address(access, lane=lane) // 16 % 8 for lane in lanes}
                assert len(banks) == 8


def test_mma_sync_results_follow_their_formula() -> None:
    layout = fragments.mma_c()
    for index in layout.indices():
        g, t = divmod(index["lane"], 4)
        i = index["reg"]
        assert layout(**index) == (g + 8 * (i >> 1), 2 * t + (i & 1))


def test_a_warpgroup_a_operand_is_four_warps_of_mma_sync() -> None:
    for bits, k in [(16, 16), (8, 32), (32, 8)]:
        stacked = fragments.mma_a(bits, k).repeat("warp", 0, 4)
        assert stacked == fragments.a_fragment(bits, k)


def test_row_vectors_keep_two_rows_in_each_thread() -> None:
    tile = fragments.accumulator(80)
    vector = fragments.row_vector(tile)
    assert str(vector) == "(reg: i8 | lane: _ _ i1 i2 i4 | warp: i16 i32)"
    registers = fragments.vector_registers(tile, vector, 1)
    for register in range(tile.size("reg")):
        for lane in (0, 13, 31):
            row, _ = tile(reg=register, lane=lane, warp=3)
            assert vector(reg=registers[register], lane=lane, warp=3) == (row,)


def test_column_vectors_meet_their_columns() -> None:
    tile = fragments.accumulator(24)
    vector = fragments.column_vector(tile)
    registers = fragments.vector_registers(tile, vector, 0)
    for index in tile.indices():
        _, col = tile(**index)
        assert vector(**{**index, "reg": registers[index["reg"]]}) == (col,)


def test_a_vector_held_by_other_threads_is_refused() -> None:
    tile = fragments.accumulator(16)
    with pytest.raises(LayoutRefusal, match="other threads"):
        fragments.vector_registers(tile, Layout.parse("(lane: i1 i2 i4 i8 i16 | warp: i32)"), 1)


@pytest.mark.parametrize(
    ("shape", "threads", "vector", "bits"),
    [((64, 128), 128, 8, 16), ((3, 80), 64, 8, 16), ((4096,), 256, 4, 32), ((2, 4, 8), 32, 2, 16)],
)
def test_blocked_gives_each_lane_neighbouring_elements(
    shape: tuple[int, ...], threads: int, vector: int, bits: int
) -> None:
    layout = fragments.blocked(shape, threads, vector, bits)
    assert layout.shape == shape
    assert layout.size("lane") * layout.size("warp") == threads
    for register in range(vector):
        assert layout(reg=register) == (*(0,) * (len(shape) - 1), register)
    held = {layout(**index) for index in layout.indices()}
    assert len(held) * layout.copies("lane") * layout.copies("warp") == len(list(layout.indices()))


@pytest.mark.parametrize(("rows", "depth", "each"), [(64, 32, 4), (16, 128, 16), (48, 24, 8)])
def test_turning_gives_lanes_rows_and_threads_neighbours_along_them(
    rows: int, depth: int, each: int
) -> None:
    layout = fragments.turning(rows, depth, 128, each)
    assert layout.shape == (rows, depth)
    places = {
        layout(reg=reg, lane=lane, warp=warp)
        for reg in range(layout.size("reg"))
        for lane in range(layout.size("lane"))
        for warp in range(layout.size("warp"))
    }
    assert places == {(i, j) for i in range(rows) for j in range(depth)}
    assert [layout(reg=reg, lane=0, warp=0) for reg in range(each)] == [(0, j) for j in range(each)]
    together = min(rows & -rows, 32)
    assert [layout(reg=0, lane=lane)[0] for lane in range(together)] == list(range(together))


def test_rows_keep_a_row_in_whole_warps() -> None:
    long = fragments.rows((1, 4096), 4, 8)
    assert str(long) == (
        "(reg: j1 j2 j4 j1024 j2048 | lane: j8 j16 j32 j64 j128 | warp: j256 j512)"
    )
    short = fragments.rows((8, 256), 1, 8)
    assert str(short) == "(reg: j1 j2 j4 i4 | lane: j8 j16 j32 j64 j128 | warp: i1 i2)"
    assert {short(lane=lane, warp=1)[0] for lane in range(32)} == {1}


def test_more_warps_than_rows_hold_copies() -> None:
    layout = fragments.rows((1, 256), 1, 8)
    assert layout.copies("warp") == 4
    assert layout.shape == (1, 256)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fragments.accumulator(12), "no result of 12 columns"),
        (lambda: fragments.accumulator(264), "no result of 264 columns"),
        (lambda: fragments.a_fragment(16, 8), "no multiple of 16"),
        (lambda: fragments.a_fragment(64, 8), "elements of 64 bits"),
        (lambda: fragments.mma_a(16, 32), "no K of 32"),
        (lambda: fragments.mma_b(64, 8), "no K of 8 for 64-bit elements"),
        (lambda: fragments.blocked((8, 8), 32, 8, 32), "16-byte access"),
        (lambda: fragments.blocked((8, 12), 32, 8, 16), "no multiple of the vector"),
        (lambda: fragments.blocked((8, 8), 96, 1, 16), "3 warps"),
        (lambda: fragments.rows((8, 256), 8, 8), "8 warps for each row, but 128 threads"),
    ],
)
def test_impossible_fragments_are_refused(make: Callable[[], Layout], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        make()
