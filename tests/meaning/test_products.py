"""What a product of each type means, and that three products of tf32 are as good as one of f32."""

from __future__ import annotations

import numpy as np
import pytest

from tilec import pipeline
from tilec.compiler import front, prepare
from tilec.interp.interpret import interpret
from tilec.interp.numbers import decode, encode, rounded, storage
from tilec.ir.core import Module
from tilec.ir.facts import Facts, Schedule
from tilec.ir.types import DTYPES
from tilec.passes.base import Context
from tilec.source import SourceFile
from tilec.targets import by_name

TARGET = by_name("90")
DIMS = {"M": 20, "N": 18, "K": 37}


def gemm(left: str, right: str, summed: str, product: str = "a[i, k] @ b[j, k].T") -> Module:
    """A product of two arrays of given types."""
    text = f"""kernel f(a: {left}[M, K], b: {right}[N, K], c: out {summed}[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[{summed}](i, j)
        for k in tiles(K):
            acc += {product}
        c[i, j] = acc
"""
    module = front(SourceFile("f.tk", text), None, {}, TARGET)
    prepare(module, Facts((), tuple(DIMS.items())), Schedule())
    return module


def run(module: Module, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of stored arrays on the interpreter."""
    kernel = module.kernels[0]
    out = kernel.body.args[2].type.dtype
    arrays = {"a": a, "b": b, "c": np.zeros((len(a), len(b)), storage(out))}
    interpret(kernel, arrays, {}, {"$i": 16, "$j": 16, "$k": 16})
    return arrays["c"]


def random_bits(dtype: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    """All finite values of a type alike."""
    held = storage(DTYPES[dtype])
    rng = np.random.default_rng(seed)
    if held.kind == "f":
        return rng.standard_normal(shape).astype(held)
    bits = rng.integers(0, 1 << held.itemsize * 8, shape, np.uint16).astype(f"u{held.itemsize}")
    stored = bits.view(held)
    if DTYPES[dtype].is_float:
        stored = np.where(np.isfinite(decode(DTYPES[dtype], stored)), stored, 0).astype(held)
    return stored


@pytest.mark.parametrize("types", [("s8", "s8"), ("u8", "u8"), ("s8", "u8"), ("u8", "s8")])
def test_integers_are_exact(types: tuple[str, str]) -> None:
    a, b = random_bits(types[0], (20, 37), 1), random_bits(types[1], (18, 37), 2)
    expected = a.astype(np.int64) @ b.T.astype(np.int64)
    np.testing.assert_array_equal(run(gemm(*types, "s32"), a, b), expected)


@pytest.mark.parametrize("types", [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("tf32", "tf32")])
def test_narrow_floats_sum_in_f32(types: tuple[str, str]) -> None:
    a, b = random_bits(types[0], (20, 37), 1), random_bits(types[1], (18, 37), 2)
    left, right = (
        decode(DTYPES[t], x).astype(np.float64) for t, x in zip(types, (a, b), strict=True)
    )
    error = np.abs(run(gemm(*types, "f32"), a, b) - left @ right.T)
    assert np.all(error <= 37 * 2.0**-23 * (np.abs(left) @ np.abs(right).T))


def test_tf32_reads_the_first_bits_of_an_f32() -> None:
    a, b = random_bits("f32", (20, 37), 1), random_bits("f32", (18, 37), 2)
    module = gemm("f32", "f32", "f32", "dot(a[i, k], b[j, k].T, precision=tf32)")
    low = np.uint32(0xFFFFE000)
    left, right = ((x.view(np.uint32) & low).view(np.float32) for x in (a, b))
    np.testing.assert_array_equal(run(module, a, b), run(module, left, right))
    assert np.any(run(module, a, b) != run(gemm("f32", "f32", "f32"), a, b))


def split(module: Module) -> Module:
    """The module after its f32 products have been split."""
    for name in pipeline.PIPELINE[: pipeline.position("split-f32-products") + 1]:
        pipeline.step(module, pipeline.find_pass(name), Context(TARGET))
    return module


@pytest.mark.parametrize("scale", [1.0, 2.0**60, 2.0**-60])
@pytest.mark.parametrize("spread", [0, 20])
def test_split_products_are_within_twice_the_bound_of_a_loop(scale: float, spread: int) -> None:
    rng = np.random.default_rng(5)
    shapes = ((20, 37), (18, 37))
    a, b = (
        (rng.standard_normal(s) * 2.0 ** rng.integers(-spread, spread + 1, s)).astype(np.float32)
        for s in shapes
    )
    a *= np.float32(scale)
    left, right = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(run(split(gemm("f32", "f32", "f32")), a, b) - left @ right.T)
    assert np.all(error <= 2 * 37 * 2.0**-24 * (np.abs(left) @ np.abs(right).T))


def test_few_terms_lose_no_more_than_the_page_says() -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal((n, 1)).astype(np.float32) for n in (400, 300))
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    error = np.abs(run(split(gemm("f32", "f32", "f32")), a, b) - exact)
    assert np.all(error <= 2.0**-21 * np.abs(exact))


def test_split_products_keep_what_is_not_finite() -> None:
    greatest = np.finfo(np.float32).max / 2  # what rounds beyond the largest becomes infinite
    a = np.zeros((6, 37), np.float32)
    a[:6, 3] = [np.inf, -np.inf, np.nan, greatest, -greatest, 2.0**-120]
    b = np.ones((18, 37), np.float32)
    b[0, 3], b[1, 3] = np.inf, -np.inf
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float64) @ b.T.astype(np.float64)).astype(np.float32)
        found = run(split(gemm("f32", "f32", "f32")), a, b)
    np.testing.assert_allclose(found, expected, rtol=2.0**-22)


@pytest.mark.parametrize("narrow", ["bf16", "f16", "e4m3"])
def test_a_widened_operand_takes_two_products(narrow: str) -> None:
    module = split(gemm(narrow, "f32", "f32", "cast[f32](a[i, k]) @ b[j, k].T"))
    dots = [op for op in module.kernels[0].body.walk() if op.name == "tile.dot"]
    assert len(dots) == 2
    dtype, (x, b) = DTYPES[narrow], (random_bits("f32", (n, 37), n) for n in (20, 18))
    a = encode(dtype, rounded(dtype, x), storage(dtype))
    left, right = decode(dtype, a).astype(np.float64), b.astype(np.float64)
    allowed = 2 * 37 * 2.0**-24 * (np.abs(left) @ np.abs(right).T)
    assert np.all(np.abs(run(module, a, b) - left @ right.T) <= allowed)
