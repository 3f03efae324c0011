"""The laws that passes rest on, at every point of small domains."""

from __future__ import annotations

import itertools
import math as pymath
from typing import Any

import pytest

from tilec.ir.core import Builder, Op, Region, Value
from tilec.ir.levels import math
from tilec.ir.types import BOOL, DTYPES, F32, S32, DType, Scalar
from tilec.layout.fragments import accumulator, rows
from tilec.passes.constants import evaluate, rounded, wrapped
from tilec.passes.costs import Shape, Work, price
from tilec.passes.form_stores import sliced
from tilec.passes.frames import warps_per_row
from tilec.passes.raster import places
from tilec.targets import by_name


def _scalar(dtype: DType) -> Value[Any]:
    return Value(Scalar(dtype))


def _value(region: Region, inputs: dict[Value[Any], int]) -> dict[Value[Any], Any]:
    known: dict[Value[Any], Any] = dict(inputs)
    for op in region.ops:
        if isinstance(op, math.Constant):
            known[op.out] = op.value
        else:
            known[op.results[0]] = evaluate(op, [known[v] for v in op.operands])
    return known


@pytest.mark.parametrize("group", [1, 2, 3, 16])
@pytest.mark.parametrize(
    "shape", [(1,), (5,), (4, 3), (5, 7), (3, 1), (1, 9), (2, 3, 4), (2, 5, 3)]
)
def test_every_tile_has_exactly_one_number(shape: tuple[int, ...], group: int) -> None:
    region = Region()
    number = _scalar(S32)
    counts = [_scalar(S32) for _ in shape]
    at = places(Builder(region), number, counts, group)
    assert len(at) == len(shape)
    seen = set()
    for t in range(pymath.prod(shape)):
        known = _value(region, {number: t, **dict(zip(counts, shape, strict=True))})
        seen.add(tuple(known[v] for v in at))
    assert seen == set(itertools.product(*map(range, shape)))


def test_neighbours_share_columns_within_a_group() -> None:
    region = Region()
    number, m, n = _scalar(S32), _scalar(S32), _scalar(S32)
    at = places(Builder(region), number, [m, n], 4)
    order = []
    for t in range(8):
        known = _value(region, {number: t, m: 8, n: 8})
        order.append(tuple(known[v] for v in at))
    assert order == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize("x", range(-9, 10))
@pytest.mark.parametrize("y", [-3, -1, 1, 4])
def test_integer_division_floors(x: int, y: int) -> None:
    a, b = _scalar(S32), _scalar(S32)
    assert evaluate(math.FloorDiv(a, b), [x, y]) == pymath.floor(x / y)
    assert evaluate(math.Mod(a, b), [x, y]) == x - y * pymath.floor(x / y)


def test_division_by_zero_is_what_the_language_says() -> None:
    a, b = _scalar(S32), _scalar(S32)
    assert evaluate(math.FloorDiv(a, b), [5, 0]) == 0
    assert evaluate(math.Mod(a, b), [5, 0]) == 5


@pytest.mark.parametrize("name", ["s8", "u8", "s16", "u32", "s64"])
def test_integers_wrap_in_their_width(name: str) -> None:
    dtype = DTYPES[name]
    top = 1 << dtype.bits
    for value in (-1, 0, top - 1, top, top // 2, -top // 2 - 1):
        found = wrapped(value, dtype)
        assert (found - value) % top == 0
        low = -(top // 2) if dtype.kind == "signed" else 0
        assert low <= found < low + top


def test_floats_round_once_and_keep_their_zeros() -> None:
    a, b = _scalar(F32), _scalar(F32)
    tenth = rounded(0.1, F32)
    assert tenth != 0.1
    assert rounded(tenth or 0.0, F32) == tenth
    assert str(evaluate(math.Mul(a, b), [0.0, -1.0])) == "-0.0"
    assert evaluate(math.Mul(a, b), [3e38, 10.0]) == pymath.inf
    assert evaluate(math.Div(a, b), [1.0, -0.0]) == -pymath.inf
    assert pymath.isnan(evaluate(math.Div(a, b), [0.0, 0.0]) or 0.0)


def test_bf16_rounds_once() -> None:
    a = _scalar(DTYPES["bf16"])
    assert evaluate(math.Add(a, a), [1.0, 2.0]) == 3.0
    assert evaluate(math.Add(a, a), [256.0, 1.0]) == 256.0  # a tie, to even
    assert evaluate(math.Add(a, a), [256.0, 3.0]) == 260.0


@pytest.mark.parametrize("op", [math.Max, math.Min])
def test_max_and_min_carry_nan(op: type[Op]) -> None:
    a = _scalar(F32)
    for inputs in ([pymath.nan, 1.0], [1.0, pymath.nan]):
        assert pymath.isnan(evaluate(op(a, a), inputs) or 0.0)


def test_comparisons_with_nan_are_false_except_ne() -> None:
    a = _scalar(F32)
    for relation in ("lt", "le", "gt", "ge", "eq", "ne"):
        found = evaluate(math.Compare(a, a, relation=relation), [pymath.nan, 1.0])
        assert found is (relation == "ne")


@pytest.mark.parametrize(
    ("value", "name", "expected"),
    [
        (2.9, "s32", 2),
        (-2.9, "s32", -2),
        (1e20, "s32", 2**31 - 1),
        (-5.0, "u8", 0),
        (pymath.nan, "s16", 0),
        (-pymath.inf, "s8", -128),
    ],
)
def test_floats_become_integers_by_truncation_and_saturation(
    value: float, name: str, expected: int
) -> None:
    assert evaluate(math.Cast(_scalar(F32), dtype=DTYPES[name]), [value]) == expected


def test_a_cast_to_bool_asks_for_zero() -> None:
    assert evaluate(math.Cast(_scalar(S32), dtype=BOOL), [2]) is True
    assert evaluate(math.Cast(_scalar(S32), dtype=BOOL), [0]) is False


@pytest.mark.parametrize("columns", [64, 128, 192, 256])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_a_slice_of_an_accumulator_is_an_accumulator(columns: int, width: int) -> None:
    assert sliced(accumulator(columns), width) == accumulator(width)


def test_a_slice_keeps_every_place_of_its_columns() -> None:
    layout = rows((2, 256), 1, 4, 64)
    piece = sliced(layout, 128)
    for index in piece.indices():
        assert piece(**index)[1] < 128
    assert piece.shape == (2, 128)


@pytest.mark.parametrize(
    ("elements", "warps"), [(1, 1), (1024, 1), (1025, 2), (4096, 4), (16384, 16)]
)
def test_rows_take_the_fewest_warps_that_hold_them(elements: int, warps: int) -> None:
    assert warps_per_row(elements, 16) == warps


def test_the_cost_model_prefers_wide_tiles_when_there_are_many() -> None:
    target = by_name("90")
    wide, narrow = Shape(128, 256, 64, 2), Shape(64, 64, 64, 1)
    large, small = (8192, 8192, 8192), (512, 512, 512)
    cost = {
        (shape, size): price(target, Work(*size, 1, 2), shape).microseconds
        for shape in (wide, narrow)
        for size in (large, small)
    }
    assert cost[wide, large] < cost[narrow, large]
    assert cost[wide, small] > cost[narrow, small]


# Microseconds of examples/gemm.tk on an H200, bf16, K contiguous: M, N, K, rows, columns, measured.
TIMED = [
    (512, 512, 512, 64, 32, 6.3),
    (1024, 1024, 1024, 64, 128, 8.6),
    (1024, 1024, 1024, 64, 64, 10.1),
    (256, 4096, 4096, 128, 128, 27.0),
    (2048, 2048, 2048, 128, 256, 27.6),
    (2048, 2048, 2048, 192, 128, 37.0),
    (4096, 4096, 4096, 128, 208, 187.1),
    (4096, 4096, 4096, 128, 256, 178.5),
    (8192, 8192, 8192, 128, 256, 1374.9),
    (4096, 4096, 14336, 192, 176, 626.1),
]


@pytest.mark.parametrize("row", TIMED, ids=lambda row: "x".join(map(str, row[:5])))
def test_the_price_of_a_launch_is_what_was_measured(row: tuple[Any, ...]) -> None:
    m, n, k, rows_, columns, measured = row
    shape = Shape(rows_, columns, 64, rows_ // 64)
    found = price(by_name("sm_90"), Work(m, n, k, 1, 2), shape).microseconds
    assert found == pytest.approx(measured, rel=0.12)


def test_a_merge_is_paid_for_and_fills_the_machine_where_tiles_are_few() -> None:
    target, shape = by_name("sm_90"), Shape(64, 64, 64, 1)
    deep, broad = Work(128, 128, 131072, 1, 2), Work(4096, 4096, 512, 1, 2)
    assert price(target, deep, shape, 32).microseconds < price(target, deep, shape).microseconds / 5
    assert price(target, broad, shape, 2).microseconds > price(target, broad, shape).microseconds
