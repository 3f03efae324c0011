"""Fragments of mma.sync over a team of warps, against the formulas of the PTX manual."""

from __future__ import annotations

from itertools import product

import pytest

from tilec.layout import fragments, teams
from tilec.layout.linear import LayoutError

SHAPES = (
    (16, 8),
    (16, 64),
    (16, 24),
    (48, 48),
    (32, 40),
    (48, 64),
    (64, 80),
    (128, 16),
    (192, 256),
)
TEAMS = [(*shape, warps) for shape, warps in product(SHAPES, (1, 2, 4))]


def place(rows: int, n: int, warps: int, warp: int) -> tuple[int, int, int, int]:
    """A warp's first row, the step of its row blocks, its first column, and their step."""
    if rows % (16 * warps) == 0:
        return 16 * warp, 16 * warps, 0, 8
    used = max(w for w in (1, 2, 4) if w <= warps and n % (8 * w) == 0)
    return 0, 16, warp % used * 8, 8 * used


@pytest.mark.parametrize(("rows", "n", "warps"), TEAMS)
def test_results_follow_their_formula(rows: int, n: int, warps: int) -> None:
    layout = teams.team_result(rows, n, warps)
    for index in layout.indices():
        group, t = divmod(index["lane"], 4)
        row, step, column, apart = place(rows, n, warps, index.get("warp", 0))
        block, c = divmod(index["reg"], 4)
        down, along = divmod(block, n // apart)
        wanted = (
            row + step * down + group + 8 * (c // 2),
            column + apart * along + 2 * t + c % 2,
        )
        assert layout(**index) == wanted


@pytest.mark.parametrize(("rows", "n", "warps"), TEAMS)
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_operands_follow_their_formulas(rows: int, n: int, warps: int, bits: int) -> None:
    each, k = 32 // bits, 3 * 256 // bits
    a = teams.team_a(bits, rows, n, k, warps)
    b = teams.team_b(bits, rows, n, k, warps)
    for index in a.indices():
        group, t = divmod(index["lane"], 4)
        row, step, _, _ = place(rows, n, warps, index.get("warp", 0))
        register, e = divmod(index["reg"], each)
        rest, register = divmod(register, 4)
        down, deep = divmod(rest, 3)
        wanted = (
            row + step * down + group + 8 * (register % 2),
            8 * each * deep + t * each + e + 4 * each * (register // 2),
        )
        assert a(**index) == wanted
    for index in b.indices():
        group, t = divmod(index["lane"], 4)
        _, _, column, apart = place(rows, n, warps, index.get("warp", 0))
        register, e = divmod(index["reg"], each)
        rest, register = divmod(register, 2)
        deep, along = divmod(rest, n // apart)
        wanted = (
            column + apart * along + group,
            8 * each * deep + t * each + e + 4 * each * register,
        )
        assert b(**index) == wanted


@pytest.mark.parametrize(("rows", "n", "warps"), TEAMS)
def test_operands_of_64_bits_stand_where_others_do(rows: int, n: int, warps: int) -> None:
    b = teams.team_b(64, rows, n, 48, warps)
    for index in b.indices():
        group, t = divmod(index["lane"], 4)
        _, _, column, apart = place(rows, n, warps, index.get("warp", 0))
        rest, register = divmod(index["reg"], 4)
        deep, along = divmod(rest, n // apart)
        assert b(**index) == (column + apart * along + group, 16 * deep + 4 * t + register)


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_four_warps_with_64_rows_hold_the_accumulator_of_wgmma(n: int) -> None:
    assert teams.team_result(64, n, 4) == fragments.accumulator(n)
    assert teams.team_a(16, 64, n, 48, 4) == fragments.a_fragment(16, 48)


@pytest.mark.parametrize(("rows", "warps"), [(16, 1), (32, 1), (32, 2), (64, 4), (128, 4)])
def test_a_16_bit_result_along_rows_is_the_next_a_operand(rows: int, warps: int) -> None:
    assert teams.team_result(rows, 48, warps) == teams.team_a(16, rows, 64, 48, warps)


def test_warps_along_columns_hold_no_a_operand() -> None:
    assert teams.team_result(16, 64, 4) != teams.team_a(16, 16, 64, 64, 4)


@pytest.mark.parametrize("shape", [(8, 8, 4), (16, 12, 4), (16, 8, 3), (0, 8, 1)])
def test_what_no_fragment_covers_is_an_error(shape: tuple[int, int, int]) -> None:
    with pytest.raises(LayoutError):
        teams.team_result(*shape)
