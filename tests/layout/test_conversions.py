"""Conversions between register layouts, and the drawings of layouts."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tilec.layout.convert import conversion, register_moves
from tilec.layout.draw import draw_svg, draw_text
from tilec.layout.fragments import a_fragment, accumulator, blocked, mma_a, mma_b, row_vector
from tilec.layout.linear import Layout, LayoutError, LayoutRefusal
from tilec.layout.shared import swizzled


def held_by(layout: Layout, kind: str) -> dict[tuple[int, ...], set[object]]:
    """For each element, who holds it, at the grain that a kind of conversion cannot cross."""
    found: dict[tuple[int, ...], set[object]] = {}
    for index in layout.indices():
        lane, warp = index.get("lane", 0), index.get("warp", 0)
        grain: object = (lane, warp) if kind == "registers" else warp
        found.setdefault(layout(**index), set()).add(grain)
    return found


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        (accumulator(64), a_fragment(16, 64), "none"),
        (accumulator(80), a_fragment(16, 80), "none"),
        (accumulator(16), Layout.parse(
            "(reg: j8 j1 i8 | lane: j2 j4 i1 i2 i4 | warp: i16 i32)"), "registers"),
        (Layout.parse("(reg: i1 i2 | lane: j1)"),
         Layout.parse("(reg: i1 i2 | lane: j1^i1)"), "registers"),
        (accumulator(32), a_fragment(8, 32), "lanes"),
        (accumulator(16), a_fragment(32, 16), "lanes"),
        (mma_b(16, 16).transpose(), Layout.parse("(reg: j1 j2 | lane: j4 j8 i1 i2 i4)"), "lanes"),
        (Layout.parse("(lane: i1 i2 i4)"), Layout.parse("(lane: i2 i1 i4)"), "lanes"),
        (accumulator(64), blocked((64, 64), 128, 8, 16), "warps"),
        (accumulator(80), Layout.parse(
            "(reg: j1 i8 j8 | lane: j2 j4 i1 i2 i4 | warp: i16 i32 j16*5)"), "warps"),
    ],
)  # fmt: skip
def test_the_kind_is_the_nearest_place_that_holds_every_element(
    source: Layout, target: Layout, kind: str
) -> None:
    found = conversion(source, target, 16)
    assert found.kind == kind
    near = []
    for grain in ("registers", "lanes"):
        have, want = held_by(source, grain), held_by(target, grain)
        near.append(all(want[at] <= have[at] for at in want))
    assert near == [kind in ("none", "registers"), kind != "warps"]


def test_prices_grow_with_the_distance() -> None:
    acc = accumulator(64)
    costs = [
        conversion(acc, a_fragment(16, 64), 16).cost,
        conversion(acc, a_fragment(8, 64), 8).cost,
        conversion(acc, blocked((64, 64), 128, 8, 16), 16).cost,
    ]
    assert costs == sorted(costs)
    assert costs[0] == 0
    assert conversion(acc, blocked((64, 64), 128, 8, 16), 16).shared_bytes == 8192


def test_a_conversion_says_itself_in_words() -> None:
    acc = accumulator(64)
    assert str(conversion(acc, acc)) == "nothing moves"
    assert "shuffles" in str(conversion(acc, a_fragment(8, 64), 8))
    assert "8192 bytes of shared memory" in str(conversion(acc, blocked((64, 64), 128, 8, 16), 16))
    swapped = Layout.parse("(reg: i8 j1 | lane: j2 j4 i1 i2 i4 | warp: i16 i32)")
    assert "renamed, 0 selects" in str(conversion(accumulator(8), swapped))


def test_renamed_registers_are_listed() -> None:
    source = accumulator(80)
    target = Layout.parse("(reg: i8 j8*10 j1 | lane: j2 j4 i1 i2 i4 | warp: i16 i32)")
    moves = register_moves(source, target)
    assert moves is not None
    for register, origin in enumerate(moves):
        assert target(reg=register, lane=7, warp=1) == source(reg=origin, lane=7, warp=1)
    assert register_moves(source, a_fragment(16, 80)) == tuple(range(40))
    assert register_moves(accumulator(64), a_fragment(8, 64)) is None
    assert register_moves(accumulator(64), accumulator(80)) is None


def test_a_vector_spread_over_its_row_is_a_renaming() -> None:
    tile = accumulator(16)
    vector = row_vector(tile)
    assert conversion(vector, tile.drop(1)).kind == "registers"
    assert register_moves(vector, tile.drop(1)) == (0, 0, 1, 1, 0, 0, 1, 1)


def test_different_tiles_do_not_convert() -> None:
    with pytest.raises(LayoutRefusal, match="different tiles"):
        conversion(accumulator(8), accumulator(16))


def test_a_drawing_shows_thread_and_register_of_each_element() -> None:
    lines = draw_text(mma_a(16, 16)).splitlines()
    assert lines[0] == str(mma_a(16, 16))
    assert lines[3].split() == ["0", "0:0", "0:1", "1:0", "1:1", "2:0", "2:1", "3:0", "3:1",
                                "0:4", "0:5", "1:4", "1:5", "2:4", "2:5", "3:4", "3:5"]  # fmt: skip
    assert lines[3 + 9].split()[1] == "4:2"


def test_a_drawing_of_shared_memory_shows_offset_and_bank() -> None:
    lines = draw_text(swizzled(8, 64, 16, 128), 16, (8, 12)).splitlines()
    assert lines[4].split()[:3] == ["1", "72/4", "73/4"]
    assert lines[-1] == "... of 8 x 64 elements"


def test_a_drawing_marks_copies_and_takes_vectors() -> None:
    lines = draw_text(Layout.parse("(lane: _ i1)")).splitlines()
    assert lines[-1].split() == ["0", "0:0+", "2:0+"]
    with pytest.raises(LayoutError, match="nothing to draw"):
        draw_text(Layout.parse("()"))


def test_the_svg_is_well_formed_and_has_a_cell_for_each_element() -> None:
    root = ElementTree.fromstring(draw_svg(accumulator(8)))
    cells = [node for node in root if node.tag.endswith("rect")]
    assert len(cells) == 64 * 8
    assert len({cell.get("fill") for cell in cells}) == 32
