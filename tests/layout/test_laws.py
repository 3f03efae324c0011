"""What holds of every layout, checked at every point of small tiles."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilec.layout import fragments, shared
from tilec.layout.digits import decode, encode
from tilec.layout.linear import Digit, Layout, LayoutError, LayoutRefusal

ACC = "(reg: j1 i8 j8 j16 j32 j64 | lane: j2 j4 i1 i2 i4 | warp: i16 i32)"

SAMPLES = [
    fragments.accumulator(8),
    fragments.accumulator(48),
    fragments.a_fragment(8, 32),
    fragments.a_fragment(32, 24),
    fragments.mma_a(16, 16),
    fragments.mma_b(8, 32),
    fragments.blocked((6, 64), 64, 8, 16),
    fragments.rows((4, 256), 2, 4),
    fragments.row_vector(fragments.accumulator(16)),
    shared.swizzled(24, 128, 16, 128),
    shared.swizzled(64, 16, 16, 64, "column"),
    shared.core_matrices(16, 32, 16),
    Layout.parse("(reg: i1 _*3 i2 | lane: _ _ i4)"),
    Layout.parse("(reg: i1^j1 j2 | lane: j1 i1^j2)"),
]
EACH = pytest.mark.parametrize("layout", SAMPLES, ids=str)


@EACH
def test_the_text_form_reads_back_as_the_same_layout(layout: Layout) -> None:
    assert Layout.parse(str(layout)) == layout
    assert hash(Layout.parse(str(layout))) == hash(layout)


@EACH
def test_the_inverse_leads_back_and_gives_the_lowest_index(layout: Layout) -> None:
    first: dict[tuple[int, ...], dict[str, int]] = {}
    held: dict[tuple[int, ...], list[dict[str, int]]] = {}
    for index in layout.indices():
        at = layout(**index)
        first.setdefault(at, index)
        held.setdefault(at, []).append(index)
    for at, index in first.items():
        assert layout.inverse()(*at) == index
        assert list(layout.owners(*at)) == held[at]
    assert layout.is_injective == all(len(owners) == 1 for owners in held.values())


@EACH
def test_every_element_of_the_shape_is_held(layout: Layout) -> None:
    at = {layout(**index) for index in layout.indices()}
    assert at == set(itertools.product(*(range(extent) for extent in layout.shape)))


@EACH
def test_bits_combine_by_xor_and_repeats_by_addition(layout: Layout) -> None:
    for index in layout.indices():
        xor = add = 0
        for placed in layout.placed:
            value = index[placed.space] // placed.weight % placed.digit.extent
            unit = encode(layout(**{placed.space: placed.weight}))
            if placed.digit.is_bit:
                xor ^= unit * value
            else:
                add += unit * value
        assert layout(**index) == decode(xor + add, layout.rank)


@EACH
def test_dropping_an_axis_forgets_that_coordinate_only(layout: Layout) -> None:
    for axis in range(layout.rank):
        sliced = layout.drop(axis)
        for index in layout.indices():
            at = layout(**index)
            assert sliced(**index) == at[:axis] + at[axis + 1 :]


@EACH
def test_permuting_axes_permutes_coordinates(layout: Layout) -> None:
    for axes in itertools.permutations(range(layout.rank)):
        turned = layout.permute(*axes)
        for index in layout.indices():
            at = layout(**index)
            assert turned(**index) == tuple(at[axis] for axis in axes)


@EACH
def test_copies_count_what_one_space_holds_again(layout: Layout) -> None:
    for space in layout.spaces:
        seen = [layout(**{space: value}) for value in range(layout.size(space))]
        assert layout.copies(space) * len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("(reg: j1 j8*10)", "(reg: j1 j8 j16*5)"),
        ("(reg: j1*8)", "(reg: j1 j2 j4)"),
        ("(reg: _*6 j1)", "(reg: _*3 _ j1)"),
        ("(lane: i1 | reg: j1)", "(reg: j1 | lane: i1)"),
        ("(reg: j1^i2^j1 j1)", "(reg: i2 j1)"),
        ("(reg: i1 i2 | warp: i4*1)", "(reg: i1*4)"),
    ],
)
def test_two_spellings_of_one_map_are_equal(one: str, other: str) -> None:
    assert Layout.parse(one) == Layout.parse(other)
    assert str(Layout.parse(one)) == str(Layout.parse(other))


def test_the_example_of_the_module_head_holds() -> None:
    layout = Layout.parse(ACC)
    assert str(layout) == ACC
    assert layout.shape == (64, 128)
    assert layout(reg=6, lane=13, warp=2) == (43, 10)
    assert layout.size("reg") == 64
    assert layout.size("group") == 1


def test_a_last_axis_of_extent_one_survives_the_text() -> None:
    layout = fragments.blocked((32, 1), 32, 1, 32)
    assert layout.shape == (32, 1)
    assert str(layout) == "(lane: i1 i2 i4 i8 i16 j1*1)"
    assert Layout.parse(str(layout)) == layout
    assert layout.drop(1) != layout


def test_an_axis_can_be_put_in_and_dropped_again() -> None:
    layout = fragments.accumulator(16)
    for axis in range(3):
        assert layout.insert(axis).shape[axis] == 1
        assert layout.insert(axis).drop(axis) == layout


def test_reducing_registers_leaves_what_lanes_hold() -> None:
    kept = Layout.parse("(reg: i8 | lane: j1 j2 i1 i2 i4 | warp: i16 i32)")
    assert fragments.accumulator(80).keep_lanes(1) == kept
    rows = fragments.rows((4, 4096), 2, 8)
    assert str(rows.keep_lanes(1)) == "(reg: i2 | lane: j1 j2 j4 j8 j16 | warp: j32 i1)"


def test_a_swizzled_register_digit_cannot_be_reduced() -> None:
    with pytest.raises(LayoutRefusal, match="another one"):
        Layout.parse("(reg: i1^j1 | lane: j1)").keep_lanes(1)


def test_squeezing_removes_the_copies_of_one_space() -> None:
    layout = Layout.parse(ACC).drop(1)
    assert str(layout) == "(reg: _ i8 _ _ _ _ | lane: _ _ i1 i2 i4 | warp: i16 i32)"
    assert str(layout.squeeze("reg")) == "(reg: i8 | lane: _ _ i1 i2 i4 | warp: i16 i32)"


def test_two_warpgroups_are_one_layout_repeated() -> None:
    both = fragments.accumulator(16).repeat("warp", 0, 2)
    assert str(both) == "(reg: j1 i8 j8 | lane: j2 j4 i1 i2 i4 | warp: i16 i32 i64)"
    three = fragments.accumulator(16).repeat("warp", 0, 3)
    assert three.shape == (192, 16)
    assert three(warp=11, lane=31, reg=7) == (191, 15)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reg: j1", "parentheses"),
        ("(reg j1)", "space: digits"),
        ("(reg: j1 | reg: j2)", "given twice"),
        ("(reg: m1)", "no digit"),
        ("(reg: j3)", "no power of two"),
        ("(lane: j1*3)", "no repeat stands in"),
        ("(reg: i1^j1*3)", "only a bit"),
        ("(reg: j1*3 | lane: j2)", "reach of a repeat"),
        ("(reg: j1*0)", "0 values"),
    ],
)
def test_a_malformed_layout_is_refused_with_the_piece_that_is_wrong(
    text: str, message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        Layout.parse(text)


def test_an_index_or_coordinate_outside_is_refused() -> None:
    layout = fragments.accumulator(8)
    with pytest.raises(LayoutError, match="outside"):
        layout(lane=32)
    with pytest.raises(LayoutError, match="no space off"):
        layout(off=1)
    with pytest.raises(LayoutError, match="outside axis j"):
        layout.inverse()(0, 8)
    with pytest.raises(LayoutError, match="2 coordinates for rank 1"):
        layout.drop(1).inverse()(0, 0)
    with pytest.raises(LayoutError, match="nothing holds"):
        Layout.parse("(reg: i1^j1)").inverse()(0, 1)


steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 4, 8])), max_size=2, unique=True
)
bit_layouts = st.dictionaries(
    st.sampled_from(["reg", "lane", "off"]),
    st.lists(steps.map(lambda found: Digit(tuple(found))), max_size=4),
).map(Layout.make)


@settings(max_examples=150, deadline=None)
@given(bit_layouts)
def test_any_layout_of_bits_obeys_the_laws(layout: Layout) -> None:
    assert Layout.parse(str(layout)) == layout
    first: dict[tuple[int, ...], dict[str, int]] = {}
    for index in layout.indices():
        first.setdefault(layout(**index), index)
    for at, index in first.items():
        assert layout.inverse()(*at) == index
        assert len(layout.owners(*at)) * len(first) == sum(1 for _ in layout.indices())
