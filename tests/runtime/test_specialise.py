"""What a launch promises the compiler, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.ir.facts import ArrayFacts
from tilec.ir.types import DTYPES, Array
from tilec.runtime.arrays import ArrayView
from tilec.runtime.expressions import evaluate, spell
from tilec.runtime.specialise import (
    LaunchError,
    array_facts,
    bind_dims,
    effective_strides,
    facts_for,
    multiple_class,
    size_class,
)


def bf16(shape: tuple[int, ...], strides: tuple[int, ...], address: int = 1 << 20) -> ArrayView:
    return ArrayView(address, shape, strides, "bf16", ("cuda", 0), None)


@pytest.mark.parametrize(
    ("shape", "strides", "address", "wanted"),
    [
        ((64, 128), (128, 1), 1 << 20, ArrayFacts(1, 16)),
        ((64, 128), (1, 64), 1 << 20, ArrayFacts(0, 16)),  # a transposed view
        ((64, 100), (100, 1), 1 << 20, ArrayFacts(1, 8)),  # rows of 200 bytes
        ((64, 128), (128, 1), (1 << 20) + 2, ArrayFacts(1, 2)),
        ((64, 128), (256, 2), 1 << 20, ArrayFacts(-1, 4)),  # every second element
        ((64, 128), (0, 1), 1 << 20, ArrayFacts(1, 16, (0,))),  # one row repeated
        ((64, 128), (-128, 1), 1 << 20, ArrayFacts(1, 8)),
        ((1, 128), (7, 1), 1 << 20, ArrayFacts(1, 16)),  # the stride of one row means nothing
        ((128, 1), (1, 1), 1 << 20, ArrayFacts(0, 16)),  # one column of stride 1
        ((128, 1), (3, 1), 1 << 20, ArrayFacts(1, 2)),
        ((0, 128), (128, 1), 0, ArrayFacts(-1, 2)),  # nothing: no promise, and no map
    ],
)
def test_array_facts(
    shape: tuple[int, ...], strides: tuple[int, ...], address: int, wanted: ArrayFacts
) -> None:
    assert array_facts(bf16(shape, strides, address)) == wanted


def test_a_promised_unit_axis_has_stride_one_in_what_is_passed() -> None:
    for shape, strides in [((128, 1), (3, 1)), ((1, 1), (5, 9)), ((1, 128), (7, 1))]:
        view = bf16(shape, strides)
        facts = array_facts(view)
        passed = effective_strides(view)
        assert passed[facts.unit_axis] == 1
        others = [s * 2 for axis, s in enumerate(passed) if axis != facts.unit_axis]
        assert all(step % facts.alignment == 0 for step in others)


def test_classes_are_few_and_true() -> None:
    for extent in [0, 1, 15, 16, 17, 1000, 4096, 5000]:
        assert extent <= size_class(extent) <= max(2 * extent, 1)
        assert size_class(extent) <= extent * (1 + 1 / 64) + 15
        assert extent % multiple_class(extent) == 0
    assert len({size_class(n) for n in range(4096, 8192)}) == 64 + 1
    assert {size_class(n) for n in range(33)} == {1, 2, 4, 8, 16, 32}
    assert [multiple_class(n) for n in (1, 8, 200, 128, 4096, 1000)] == [1, 8, 8, 128, 4096, 8]


def test_equal_classes_give_equal_facts() -> None:
    first = facts_for({"a": bf16((4100, 72), (72, 1))}, {"M": 4100, "K": 72})
    second = facts_for({"a": bf16((4124, 72), (72, 1), 1 << 21)}, {"M": 4124, "K": 72})
    assert first == second


TYPES = {
    "a": Array(DTYPES["bf16"], ("M", "K"), "in"),
    "b": Array(DTYPES["bf16"], ("N", "K"), "in"),
    "d": Array(DTYPES["bf16"], (128,), "in"),
}


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"a": (2, 3), "b": (4, 5)}, r"K is 3 in a \(shape \(2, 3\)\) and 5 in b \(shape \(4, 5\)"),
        ({"a": (2, 3, 4)}, r"a has 3 axes .* a\[M, K\] has 2"),
        ({"d": (64,)}, "axis 0 of d has 64 elements .* compiled for 128"),
        ({"a": (1 << 31, 1)}, "the most are 2"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, tuple[int, ...]], said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        bind_dims(TYPES, shapes)


def test_dimensions_are_bound_by_name() -> None:
    assert bind_dims(TYPES, {"a": (2, 3), "b": (4, 3)}) == {"M": 2, "K": 3, "N": 4}


def test_expressions_are_evaluated_and_spelled() -> None:
    grid = ("min", ("mul", ("ceildiv", ("extent", "a", 0), 128), 3), 132)
    assert evaluate(grid, {"a": (1000, 1)}, {}) == 24
    assert evaluate(grid, {"a": (0, 1)}, {}) == 0
    condition = ("and", ("eq", ("mod", ("extent", "a", 1), 16), 0), ("gt", ("scalar", "s"), 0.0))
    assert evaluate(condition, {"a": (1, 32)}, {"s": 1.0}) is True
    assert spell(condition, {("a", 1): "K"}) == "K % 16 == 0 and s > 0.0"
    with pytest.raises(ValueError, match="no launch operation frob"):
        evaluate(("frob", 1), {}, {})


def test_a_numpy_view_has_its_strides_in_elements() -> None:
    from tilec.runtime.arrays import view

    array = np.zeros((8, 16), np.float16)
    assert effective_strides(view(array.T)) == (1, 16)
