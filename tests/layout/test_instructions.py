"""Plans of memory instructions: every lane's address against what the instruction would move."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilec.layout import banks, fragments
from tilec.layout.index_map import IndexMap, ScaleTerm, ShiftTerm, split
from tilec.layout.linear import Layout, LayoutError, LayoutRefusal
from tilec.layout.matrices import MatrixPlan, matrix_plan
from tilec.layout.shared import swizzled
from tilec.layout.vectors import global_plan, shared_plan


def evaluate_terms(index_map: IndexMap, index: dict[str, int]) -> int:
    """What a backend computes from the terms: XOR first, then additions."""
    value = 0
    for term in index_map.terms:
        assert isinstance(term, ShiftTerm | ScaleTerm)
        part = term.value(index.get(term.space, 0))
        if isinstance(term, ScaleTerm) and not term.exclusive:
            value += part
        else:
            value ^= part
    return value


def moved(plan: MatrixPlan, warps: int, bits: int) -> Iterator[tuple[dict[str, int], int]]:
    """Every (register, lane, warp) with the byte offset that stmatrix would store it at."""
    packed = 32 // bits
    for warp in range(warps):
        for instruction in plan.instructions:
            for number, register in enumerate(instruction.registers):
                for lane in range(32):
                    group, t = divmod(lane, 4)
                    for part in range(packed):
                        row, byte = group, 4 * t + part * bits // 8
                        if plan.transposed:
                            row, byte = 2 * t + part, 2 * group
                        giver = 8 * number + row
                        address = plan.address(instruction, lane=giver, warp=warp)
                        index = {"reg": register * packed + part, "lane": lane, "warp": warp}
                        yield index, address + byte


@pytest.mark.parametrize(
    ("layout", "shared", "bits"),
    [
        (fragments.accumulator(64), swizzled(64, 64, 16, 128), 16),
        (fragments.accumulator(128), swizzled(64, 128, 16, 128), 16),
        (fragments.accumulator(64), swizzled(64, 64, 16, 64), 16),
        (fragments.accumulator(64), swizzled(64, 64, 16, 0), 16),
        (fragments.accumulator(80), swizzled(64, 80, 16, 32), 16),
        (fragments.accumulator(24), swizzled(64, 24, 16, 0), 16),
        (fragments.accumulator(8), swizzled(64, 8, 16, 0), 16),
        (fragments.accumulator(64), swizzled(64, 64, 16, 128, "column"), 16),
        (fragments.accumulator(80), swizzled(64, 80, 16, 128, "column"), 16),
        (fragments.a_fragment(8, 128), swizzled(64, 128, 8, 128), 8),
        (fragments.a_fragment(32, 32), swizzled(64, 32, 32, 128), 32),
        (fragments.mma_a(16, 16), swizzled(16, 16, 16, 32), 16),
        (fragments.mma_b(16, 16).repeat("reg", 1, 8), swizzled(16, 64, 16, 128), 16),
        (fragments.mma_b(16, 8), swizzled(8, 8, 16, 0, "column"), 16),
        (fragments.accumulator(128).repeat("warp", 0, 3), swizzled(192, 128, 16, 128), 16),
    ],
)
def test_matrix_instructions_reach_every_element(layout: Layout, shared: Layout, bits: int) -> None:
    plan = matrix_plan(layout, shared, bits)
    back = shared.inverse()
    count = 0
    for index, address in moved(plan, layout.size("warp"), bits):
        known = {space: value for space, value in index.items() if value or space in layout.spaces}
        assert address == back(*layout(**known))["off"] * bits // 8
        count += 1
    assert count == layout.size("reg") * 32 * layout.size("warp")


def test_the_epilogue_of_a_gemm_needs_four_bases() -> None:
    plan = matrix_plan(fragments.accumulator(128), swizzled(64, 128, 16, 128), 16)
    assert (plan.matrices, plan.transposed, plan.bases) == (4, False, (0, 32, 64, 96))
    assert [i.registers for i in plan.instructions[:2]] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [(i.base, i.displacement) for i in plan.instructions] == [
        (0, 0), (1, 0), (2, 0), (3, 0), (0, 8192), (1, 8192), (2, 8192), (3, 8192)
    ]  # fmt: skip


def test_stmatrix_addresses_follow_the_formula_of_the_reference_kernels() -> None:
    # Lane L addresses matrix L/8: row (L & 7) + 8*(L/8 & 1), column group j + L/16; the 16-byte
    # column index is XORed with row & 7, rows are 128 bytes apart.
    plan = matrix_plan(fragments.accumulator(64), swizzled(64, 64, 16, 128), 16)
    for number, instruction in enumerate(plan.instructions):
        for warp in range(4):
            for lane in range(32):
                row = 16 * warp + (lane & 7) + 8 * (lane // 8 & 1)
                column = 2 * number + lane // 16
                want = row * 128 + (column ^ row & 7) * 16
                assert plan.address(instruction, lane=lane, warp=warp) == want


def test_a_column_major_tile_takes_the_transposed_form() -> None:
    plan = matrix_plan(fragments.accumulator(64), swizzled(64, 64, 16, 128, "column"), 16)
    assert plan.transposed
    assert plan.bases == (0,)
    assert banks.plan_degree(plan) == 1


def test_fewer_register_bits_give_smaller_instructions() -> None:
    two = matrix_plan(fragments.accumulator(24), swizzled(64, 24, 16, 0), 16)
    assert (two.matrices, len(two.instructions)) == (2, 3)
    one = matrix_plan(fragments.mma_b(16, 8), swizzled(8, 8, 16, 0, "column"), 16)
    assert (one.matrices, len(one.instructions)) == (1, 1)


@pytest.mark.parametrize(
    ("layout", "shared", "bits", "message"),
    [
        (fragments.accumulator(64), swizzled(64, 32, 16, 64), 16, "the registers hold a tile"),
        (fragments.accumulator(64), swizzled(64, 64, 32, 128), 32, "16 contiguous bytes"),
        (fragments.blocked((64, 64), 128, 8, 16), swizzled(64, 64, 16, 128), 16, "16 contiguous"),
        (Layout.parse("(reg: j1 j2 | lane: j4 i1)"), swizzled(2, 8, 16, 0), 16, "all 32 lanes"),
        (Layout.parse("(lane: j1 j2 j4 i1 i2)"), swizzled(4, 8, 16, 0), 16, "no full 32-bit"),
        (fragments.accumulator(8), swizzled(64, 8, 64, 64), 64, "no elements of 64 bits"),
        (fragments.mma_a(16, 8), swizzled(16, 8, 16, 0, "column"), 16, None),
    ],
)
def test_matrix_instructions_refuse_with_the_condition_that_fails(
    layout: Layout, shared: Layout, bits: int, message: str | None
) -> None:
    if message is None:
        assert matrix_plan(layout, shared, bits).transposed
        return
    with pytest.raises(LayoutRefusal, match=message):
        matrix_plan(layout, shared, bits)


def test_a_tile_cut_into_other_powers_of_two_is_refused() -> None:
    # Ten rows as 2 x 5 in memory, but as a pair and three steps of four in registers.
    layout = Layout.parse("(reg: j1 i4*3 | lane: j2 j4 i1 _ _)")
    shared = Layout.parse("(off: j1 j2 j4 i1 i2*5)")
    assert layout.shape == shared.shape == (10, 8)
    with pytest.raises(LayoutRefusal, match="axis i is cut into other powers of two"):
        matrix_plan(layout, shared, 16)


# -- plain loads and stores --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "shared", "bits", "width"),
    [
        (fragments.accumulator(64), swizzled(64, 64, 16, 128), 16, 4),
        (fragments.accumulator(64), swizzled(64, 64, 32, 128), 32, 8),
        (fragments.blocked((64, 64), 128, 8, 16), swizzled(64, 64, 16, 128), 16, 16),
        (fragments.blocked((64, 64), 128, 8, 16), swizzled(64, 64, 16, 128, "column"), 16, 2),
        (fragments.accumulator(80), swizzled(64, 80, 16, 32), 16, 4),
        (fragments.blocked((6, 64), 64, 4, 32), swizzled(6, 64, 32, 0), 32, 16),
        (fragments.blocked((4, 16), 32, 1, 8), swizzled(4, 16, 8, 0), 8, 1),
    ],
)
def test_shared_accesses_reach_every_element(
    layout: Layout, shared: Layout, bits: int, width: int
) -> None:
    plan = shared_plan(layout, shared, bits)
    assert plan.bytes == width
    back = shared.inverse()
    seen = set()
    for lane in range(32):
        for warp in range(layout.size("warp")):
            for access in plan.accesses:
                address = plan.address(access, lane=lane, warp=warp)
                assert address % width == 0
                assert evaluate_terms(plan.thread, {"lane": lane, "warp": warp}) == plan.thread(
                    lane=lane, warp=warp
                )
                for element in range(plan.elements):
                    register = access.register + element
                    at = (
                        layout(reg=register, lane=lane, warp=warp)
                        if warp
                        else layout(reg=register, lane=lane)
                    )
                    assert back(*at)["off"] * bits // 8 == address + element * bits // 8
                    seen.add(register)
    assert seen == set(range(layout.size("reg")))


@pytest.mark.parametrize(
    ("layout", "bits", "axis", "most", "width"),
    [
        (fragments.rows((2, 4096), 2, 8), 16, None, 16, 16),
        (fragments.rows((2, 4096), 2, 8), 16, None, 8, 8),
        (fragments.rows((2, 4096), 2, 8), 16, 0, 16, 2),
        (fragments.accumulator(80), 32, None, 16, 8),
        (fragments.accumulator(80), 16, None, 16, 4),
        (fragments.blocked((512,), 128, 4, 32), 32, None, 16, 16),
        (Layout.parse("(reg: j1 j2*3 | lane: j8)"), 32, None, 16, 8),
    ],
)
def test_global_accesses_name_every_element(
    layout: Layout, bits: int, axis: int | None, most: int, width: int
) -> None:
    plan = global_plan(layout, bits, axis=axis, max_bytes=most)
    assert plan.bytes == width
    along = layout.rank - 1 if axis is None else axis
    for lane in range(layout.size("lane")):
        for warp in range(layout.size("warp")):
            index = {"lane": lane} | ({"warp": warp} if warp else {})
            start = [part(**index) for part in plan.thread]
            assert start == [evaluate_terms(part, index) for part in plan.thread]
            for access in plan.accesses:
                first = [a + b for a, b in zip(start, access.offset, strict=True)]
                assert first[along] % plan.elements == 0
                for element in range(plan.elements):
                    at = list(first)
                    at[along] += element
                    assert layout(reg=access.register + element, **index) == tuple(at)


def test_registers_and_threads_that_share_a_step_are_refused() -> None:
    with pytest.raises(LayoutRefusal, match="share a step along j"):
        global_plan(Layout.parse("(reg: j1 | lane: j1^i1)"), 16)


def test_single_elements_below_a_byte_are_refused() -> None:
    with pytest.raises(LayoutError, match="elements of 4 bits"):
        global_plan(Layout.parse("(reg: j1)"), 4)


def test_a_constant_that_meets_no_thread_bit_is_a_displacement() -> None:
    plan = shared_plan(fragments.accumulator(64), swizzled(64, 64, 16, 128), 16)
    assert split([(0, 0), (0x10, 0), (0x10, 24576)], plan.thread) == (
        (0, 0x10), ((0, 0), (1, 0), (1, 24576))
    )  # fmt: skip


# -- bank conflicts ----------------------------------------------------------------------------


@pytest.mark.parametrize("span", [0, 32, 64, 128])
@pytest.mark.parametrize(
    ("layout", "bits"),
    [
        (fragments.accumulator(64), 16),
        (fragments.accumulator(64), 32),
        (fragments.blocked((64, 64), 128, 8, 16), 16),
        (fragments.blocked((64, 64), 128, 4, 32), 32),
        (fragments.blocked((64, 64), 128, 2, 32), 32),
        (fragments.a_fragment(8, 64), 8),
    ],
)
def test_the_rank_and_the_count_of_conflicts_agree(layout: Layout, bits: int, span: int) -> None:
    shared = swizzled(64, 64, bits, span) if span * 8 // bits <= 64 else swizzled(64, 64, bits, 64)
    plan = shared_plan(layout, shared, bits)
    lanes = banks.lane_bits(plan.thread)
    assert lanes is not None
    for access in plan.accesses:
        addresses = [plan.address(access, lane=lane, warp=1) for lane in range(32)]
        counted = banks.counted_degree(addresses, plan.bytes)
        assert counted == banks.ranked_degree(lanes, plan.bytes) == banks.plan_degree(plan)


@pytest.mark.parametrize(("span", "want"), [(128, 1), (64, 1), (32, 1), (0, 8)])
def test_every_swizzle_frees_stmatrix_from_conflicts(span: int, want: int) -> None:
    # Without one, rows of 128 bytes lie in the same banks: 8 rows, 8 times as long.
    plan = matrix_plan(fragments.accumulator(64), swizzled(64, 64, 16, span), 16)
    assert banks.plan_degree(plan) == want
    addresses = [plan.address(plan.instructions[0], lane=lane) for lane in range(32)]
    assert banks.counted_degree(addresses, 16) == want


def test_lanes_that_read_one_word_share_it() -> None:
    assert banks.counted_degree([0] * 32, 4) == 1
    assert banks.ranked_degree([0] * 5, 4) == 1
    assert banks.counted_degree([lane * 2 for lane in range(32)], 2) == 1
    assert banks.counted_degree([lane * 128 for lane in range(32)], 4) == 32


def test_a_lane_that_adds_is_counted_instead() -> None:
    layout = Layout.parse("(lane: j1 j2 j4 i1 i2)")
    shared = Layout.parse("(off: j1 j2 j4 _*3 i1 i2)")
    plan = shared_plan(layout, shared, 32)
    assert banks.lane_bits(plan.thread) is None
    assert banks.plan_degree(plan) == 1
