"""Whole programs on ragged sizes: two choices of tile sizes, one answer, which is NumPy's."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.meaning.programs import ADD, GEMM, SOFTMAX, bf16_bits, bf16_values, kernel
from tilec.interp.interpret import bind_dims, choose_sizes, interpret
from tilec.interp.memory import InterpretError

SHAPES = [(1, 1, 1), (16, 16, 16), (17, 63, 65), (33, 1, 100), (64, 48, 0), (0, 5, 7)]


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def coarse(*shape: int) -> np.ndarray:
    """Values with few bits, so that every order of sums gives the same float32."""
    return np.random.default_rng(7).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("choice", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_add_is_exact(shape: tuple[int, int, int], choice: int) -> None:
    a, b = random(*shape[:2]), random(*shape[:2]) * 3
    c = np.full(a.shape, np.nan, np.float32)
    k = kernel(ADD)
    sizes = choose_sizes(k, bind_dims(k, {"a": a, "b": b, "c": c}), choice)
    interpret(k, {"a": a, "b": b, "c": c}, sizes=sizes)
    assert np.array_equal(c, a + b)


@pytest.mark.parametrize("choice", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_gemm_fills_the_summed_edge_with_zeros(shape: tuple[int, int, int], choice: int) -> None:
    m, n, k = shape
    a, b = coarse(m, k), coarse(n, k)
    c = np.full((m, n), 0x7FC0, np.uint16)
    program = kernel(GEMM)
    arrays = {"a": bf16_bits(a), "b": bf16_bits(b), "c": c}
    sizes = choose_sizes(program, bind_dims(program, arrays), choice)
    interpret(program, arrays, sizes=sizes)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    # Integers up to 256 are exact in bf16, larger ones are rounded to 8 bits.
    assert np.array_equal(bf16_values(c), exact) or np.abs(exact).max() > 256
    assert np.all(np.abs(bf16_values(c) - exact) <= np.abs(exact) * 2.0**-8)


@pytest.mark.parametrize("choice", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1), (17, 33), (40, 1000), (3, 0)])
def test_softmax_ignores_what_lies_beyond_the_row(shape: tuple[int, int], choice: int) -> None:
    x = random(*shape) - 50  # far below 0: a padding of 0 would win the maximum
    y = np.full(shape, np.nan, np.float32)
    k = kernel(SOFTMAX)
    sizes = choose_sizes(k, bind_dims(k, {"x": x, "y": y}), choice)
    interpret(k, {"x": x, "y": y}, sizes=sizes)
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True, initial=-np.inf))
    assert np.allclose(y, wide / wide.sum(1, keepdims=True), rtol=1e-6, atol=0)


def test_transposed_and_repeated_arrays_are_ordinary() -> None:
    a = random(20, 30).T
    b = np.broadcast_to(random(1, 20), (30, 20))
    c = np.zeros((60, 20), np.float32)[::2]
    interpret(kernel(ADD), {"a": a, "b": b, "c": c})
    assert np.array_equal(c, a + b)


def test_a_product_of_200_cubed_takes_less_than_a_second() -> None:
    a, b = bf16_bits(coarse(200, 200)), bf16_bits(coarse(200, 200))
    start = time.perf_counter()
    tiles = {"$i": 64, "$j": 64, "$k": 64}
    interpret(kernel(GEMM), {"a": a, "b": b, "c": np.zeros((200, 200), np.uint16)}, sizes=tiles)
    assert time.perf_counter() - start < 1


def test_shapes_that_disagree_are_refused_with_both() -> None:
    with pytest.raises(InterpretError, match=r"N is 5 in a .*\(4, 5\).* and 6 in b .*\(4, 6\)"):
        interpret(kernel(ADD), {"a": random(4, 5), "b": random(4, 6), "c": random(4, 5)})


# --- padding that the program states itself -----------------------------------------------------

PADDED = """
kernel @padded { |%x: array<f32, M x N, in>, %y: array<f32, M, out>|
  %M = tile.extent(%x) {axis = 0} : s32
  tile.parallel(%M) {sizes = (16,)} { |%i: index<16, M>|
    %j = tile.whole(%x) {axis = 1, size = 32} : index<32, N>
    %row = tile.load(%x, %i, %j) : tile<f32, 16 x 32>
    %PAD
    %m = math.reduce(%safe) {axis = 1, kind = max} : tile<f32, 16>
    tile.store(%y, %m, %i)
  }
}
"""
GOOD = "%safe = tile.pad(%row, %j) {axis = 1, value = -inf} : tile<f32, 16 x 32>"
NONE = "%safe = math.neg(%row) : tile<f32, 16 x 32>"


def test_a_stated_padding_is_what_a_consumer_gets() -> None:
    x = random(5, 20) - 50
    y = np.full(5, np.nan, np.float32)
    interpret(kernel(PADDED.replace("%PAD", GOOD)), {"x": x, "y": y}, explicit=True)
    assert np.array_equal(y, x.max(1))


def test_a_missing_padding_shows_when_padding_is_explicit() -> None:
    x = random(5, 20) + 50
    y, z = np.full(5, np.nan, np.float32), np.full(5, np.nan, np.float32)
    interpret(kernel(PADDED.replace("%PAD", NONE)), {"x": x, "y": y}, explicit=True)
    interpret(kernel(PADDED.replace("%PAD", NONE)), {"x": x, "y": z})
    assert np.array_equal(z, (-x).max(1))  # the consumer's own fill
    assert np.array_equal(y, np.zeros(5))  # the zeros of the loads took part


# --- what is reported -----------------------------------------------------------------------------

RACE = """
kernel @race { |%x: array<f32, M, in>, %y: array<f32, 64, %MODE>|
  %M = tile.extent(%x) {axis = 0} : s32
  %at = math.constant() {value = 3} : s32
  tile.parallel(%M) {sizes = (0,)} { |%i: s32|
    %v = tile.load(%x, %i) : f32
    %BODY
  }
}
"""


def race(mode: str, body: str) -> None:
    text = RACE.replace("%MODE", mode).replace("%BODY", body)
    interpret(kernel(text), {"x": random(4), "y": np.zeros(64, np.float32)})


def test_two_iterations_that_write_one_element_are_a_race() -> None:
    with pytest.raises(InterpretError, match="race: an element of y is written here and by"):
        race("out", "tile.store(%y, %v, %at)")


def test_an_iteration_that_reads_what_another_writes_is_a_race() -> None:
    with pytest.raises(InterpretError, match="race: an element of y"):
        race("inout", "%old = tile.load(%y, %at) : f32\n    tile.store(%y, %old, %i)")


def test_an_iteration_may_read_and_write_its_own_element() -> None:
    race("inout", "%old = tile.load(%y, %i) : f32\n    tile.store(%y, %old, %i)")


def test_a_subscript_past_the_end_is_reported_with_its_line() -> None:
    text = RACE.replace("%MODE", "out").replace("%BODY", "tile.store(%y, %v, %i) @12:5")
    with pytest.raises(InterpretError, match="line 12: subscript 0 of y reaches 64"):
        interpret(kernel(text), {"x": random(70), "y": np.zeros(64, np.float32)})


def test_a_broken_requirement_is_reported_with_its_line() -> None:
    text = ADD.replace(
        "  tile.parallel",
        "  %r = math.compare(%M, %N) {relation = eq} : bool\n  tile.require(%r) @3:5\n"
        "  tile.parallel",
    )
    interpret(kernel(text), dict.fromkeys("ab", random(4, 4)) | {"c": random(4, 4)})
    with pytest.raises(InterpretError, match="line 3"):
        interpret(kernel(text), dict.fromkeys("ab", random(4, 5)) | {"c": random(4, 5)})


def test_a_sum_over_an_index_that_is_not_current_is_reported() -> None:
    text = ADD.replace(
        "  tile.parallel",
        "  %one = math.constant() {value = 1.0} : f32\n"
        "  %t = math.fill(%one) : tile<f32, 16 x $j>\n"
        "  %r = math.reduce(%t) {axis = 1, kind = add} : tile<f32, 16>\n"
        "  tile.parallel",
    )
    with pytest.raises(InterpretError, match=r"\$j counts is not current"):
        interpret(kernel(text), dict.fromkeys("ab", random(4, 4)) | {"c": random(4, 4)})


# --- control ----------------------------------------------------------------------------------


def test_loops_and_branches_carry_values() -> None:
    text = """
kernel @powers { |%n: s32, %y: array<s32, 1, out>|
  %zero = math.constant() {value = 0} : s32
  %one = math.constant() {value = 1} : s32
  %two = math.constant() {value = 2} : s32
  %r = flow.for(%zero, %n, %one, %one) { |%i: s32, %p: s32|
    %even = math.mod(%i, %two) : s32
    %is = math.compare(%even, %zero) {relation = eq} : bool
    %q = flow.if(%is) {
      %d = math.add(%p, %p) : s32
      flow.yield(%d)
    } {
      %e = math.add(%p, %one) : s32
      flow.yield(%e)
    } : s32
    flow.yield(%q)
  } : s32
  tile.store(%y, %r, %zero)
}
"""
    y = np.zeros(1, np.int32)
    interpret(kernel(text), {"y": y}, {"n": 5})
    assert y[0] == ((1 * 2 + 1) * 2 + 1) * 2
