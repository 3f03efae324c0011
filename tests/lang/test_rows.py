"""Examples about rows, and the rules they rest on: NumPy's float64 answer at two tile sizes.

The anchors of a softmax are tried at either end of what they may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilec
from tilec.diagnostics import DiagnosticError
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.interpret import bind_dims, choose_sizes, interpret, outputs_for
from tilec.interp.memory import InterpretError
from tilec.interp.numbers import decode
from tilec.ir.core import Kernel
from tilec.ir.types import Array
from tilec.source import SourceFile

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
Arrays = dict[str, Any]


def kernel_of(text: str, name: str, bindings: Mapping[str, object]) -> Kernel:
    """One kernel at level ``tile``."""
    module = check(parse(SourceFile("m.tk", text)), dict(bindings), name)
    return lower(module, name).kernels[0]


def answers(
    text: str, name: str, inputs: Arrays, bindings: Mapping[str, object], **scalars: float
) -> list[Arrays]:
    """All arrays after the program has run, for two tile sizes and both ends of its anchors."""
    kernel = kernel_of(text, name, bindings)
    types = {a.name: a.type for a in kernel.body.args if isinstance(a.type, Array)}
    extents = {
        e: size
        for key, array in inputs.items()
        for e, size in zip(types[key].shape, array.shape, strict=True)
        if isinstance(e, str)
    }
    found = []
    for choice in (0, 1):
        for lazy in (False, True):
            arrays = {k: a.copy() for k, a in inputs.items()}
            arrays |= outputs_for(kernel, extents)
            sizes = choose_sizes(kernel, bind_dims(kernel, arrays), choice)
            interpret(kernel, arrays, scalars, sizes, lazy=lazy)
            found.append({k: decode(types[k].dtype, a) for k, a in arrays.items()})
    return found


def random(*shape: int, seed: int = 0) -> Any:
    """Float32 values that f16 holds exactly."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return values.astype(np.float16).astype(np.float32)


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.tk").read_text()


# --- attention -----------------------------------------------------------------------------------


def attention(q: Any, k: Any, v: Any, scale: float, causal: bool) -> tuple[Any, Any]:
    """The output and the logarithm of the sum of exponentials, in float64."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    m, n = q.shape[2], k.shape[2]
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    s = np.einsum("bhmd,bhnd->bhmn", q, k) * scale
    if causal:
        s = np.where(np.arange(m)[:, None] + (n - m) >= np.arange(n)[None, :], s, -np.inf)
    top = s.max(axis=-1, keepdims=True, initial=-1e300)
    weights = np.exp(s - top)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return np.where(total > 0, weights @ v / np.where(total > 0, total, 1), 0), lse


SHAPES = [(2, 4, 2, 33, 70), (1, 2, 1, 70, 33), (1, 3, 3, 1, 1), (1, 2, 2, 5, 0), (1, 6, 2, 16, 65)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention(shape: tuple[int, int, int, int, int], causal: bool) -> None:
    b, h, hk, m, n = shape
    q, k, v = random(b, h, m, 32), random(b, hk, n, 32, seed=1), random(b, hk, n, 32, seed=2)
    o, lse = attention(q, k, v, 0.25, causal)
    text = example("attention").replace("bf16", "f16")
    narrow = {"q": q, "k": k, "v": v}
    inputs = {key: x.astype(np.float16) for key, x in narrow.items()}
    for found in answers(text, "attention", inputs, {"D": 32, "CAUSAL": causal}, scale=0.25):
        np.testing.assert_allclose(found["o"], o, rtol=4e-3, atol=4e-3)
        np.testing.assert_allclose(found["lse"], lse, rtol=1e-5, atol=1e-5)


def test_rows_that_attend_to_nothing_give_zero_and_minus_infinity() -> None:
    q, k, v = (random(1, 1, n, 16, seed=n).astype(np.float16) for n in (40, 8, 8))
    text = example("attention").replace("bf16", "f16")
    inputs = {"q": q, "k": k, "v": v}
    for found in answers(text, "attention", inputs, {"D": 16, "CAUSAL": True}, scale=1.0):
        assert np.array_equal(found["o"][0, 0, :32], np.zeros((32, 16)))
        assert np.array_equal(found["lse"][0, 0, :32], np.full(32, -np.inf))
        assert np.isfinite(found["lse"][0, 0, 32:]).all()


@pytest.mark.parametrize("heads", [3, 0])
def test_heads_that_do_not_divide_are_refused_at_launch(heads: int) -> None:
    q, k = random(1, 4, 8, 128).astype(np.float16), random(1, heads, 8, 128).astype(np.float16)
    kernel = tilec.compile(example("attention").replace("bf16", "f16")).attention
    with pytest.raises(tilec.LaunchError, match=r"requires H % HK == 0; here .* HK = "):
        kernel(q, k, k, 1.0)


def test_attention_is_at_most_forty_lines() -> None:
    assert len(example("attention").splitlines()) <= 40


def test_a_result_that_depends_on_the_anchor_shows() -> None:
    text = """kernel k(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        y[i] = anchor(full[f32](i, -inf), x[i, :])
"""
    x = random(5, 9)
    found = answers(text, "k", {"x": x}, {})
    assert np.array_equal(found[0]["y"], x.max(axis=1))
    assert np.array_equal(found[1]["y"], x.max(axis=1) - 64)


WEIGHTS = """kernel k(x: f32[M, N], y: out f16[M, N]):
    for i in parallel(tiles(M)):
        s = x[i, :]
        r = anchor(full[f32](i, -inf), s{slack})
        y[i, :] = cast[f16](exp2sub(s, r[:, None]) * 1)
"""


def test_weights_of_few_bits_bear_little_slack() -> None:
    x = random(5, 9)
    for found in answers(WEIGHTS.format(slack=""), "k", {"x": x}, {})[1::2]:
        np.testing.assert_allclose(found["y"].max(axis=1), 2.0**8)
    for found in answers(WEIGHTS.format(slack=", slack=2"), "k", {"x": x}, {})[1::2]:
        np.testing.assert_allclose(found["y"].max(axis=1), 2.0**2)
    with pytest.raises(DiagnosticError, match="bear a slack of at most 8"):
        answers(WEIGHTS.format(slack=", slack=9"), "k", {"x": x}, {})


# --- norms and losses ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(33, 70), (1, 1), (5, 100), (0, 4)])
def test_layernorm(shape: tuple[int, int]) -> None:
    x, weight, bias = random(*shape), random(shape[1], seed=1), random(shape[1], seed=2)
    wide = x.astype(np.float64)
    mean = wide.mean(axis=1)
    rstd = 1 / np.sqrt(wide.var(axis=1) + 1e-5)
    y = (wide - mean[:, None]) * rstd[:, None] * weight + bias
    inputs = {"x": x, "weight": weight, "bias": bias}
    for found in answers(example("layernorm"), "layernorm", inputs, {"T": "f32"}, eps=1e-5):
        np.testing.assert_allclose(found["y"], y, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["mean"], mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found["rstd"], rstd, rtol=1e-4)


@pytest.mark.parametrize("shape", [(33, 70), (1, 1), (5, 100)])
def test_rmsnorm_forward_and_backward(shape: tuple[int, int]) -> None:
    x, weight, dy = random(*shape), random(shape[1], seed=1), random(*shape, seed=2)
    wide = x.astype(np.float64)
    rstd = 1 / np.sqrt((wide**2).mean(axis=1) + 1e-5)
    normal = wide * rstd[:, None]
    text, names = example("rmsnorm"), {"T": "f32"}
    for found in answers(text, "rmsnorm", {"x": x, "weight": weight}, names, eps=1e-5):
        np.testing.assert_allclose(found["y"], normal * weight, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["rstd"], rstd, rtol=1e-5)
    inputs = {"x": x, "weight": weight, "dy": dy, "rstd": rstd.astype(np.float32)}
    scaled = dy * weight
    dx = (scaled - normal * (scaled * normal).mean(axis=1, keepdims=True)) * rstd[:, None]
    for parts in (3, 64):
        names = {"T": "f32", "P": str(parts)}
        for found in answers(text, "rmsnorm_backward", inputs, names):
            np.testing.assert_allclose(found["dx"], dx, rtol=1e-3, atol=1e-5)
            np.testing.assert_allclose(
                found["dweight"], (dy * normal).sum(axis=0), rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize("shape", [(33, 70), (1, 1), (20, 100)])
def test_cross_entropy(shape: tuple[int, int]) -> None:
    x = random(*shape) * 3
    label = np.random.default_rng(1).integers(0, shape[1], shape[0]).astype(np.int32)
    label[-1] = -1 if shape[0] > 1 else 0
    wide = x.astype(np.float64)
    lse = np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1)) + wide.max(1)
    rows, counted = np.arange(shape[0]), label >= 0
    loss = np.where(counted, lse - wide[rows, label], 0)
    gradient = np.exp(wide - lse[:, None])
    gradient[rows, label] -= 1
    gradient[~counted] = 0
    inputs = {"logits": x, "label": label}
    for found in answers(example("cross_entropy"), "cross_entropy", inputs, {"T": "f32"}):
        np.testing.assert_allclose(found["loss"], loss, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found["gradient"], gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(33, 70, 50), (1, 1, 1)])
def test_swiglu(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x, gate, up = random(m, k), random(n, k, seed=1), random(n, k, seed=2)
    g, u = (x.astype(np.float64) @ w.astype(np.float64).T for w in (gate, up))
    inputs = {key: w.astype(np.float16) for key, w in (("x", x), ("gate", gate), ("up", up))}
    for found in answers(example("swiglu"), "swiglu", inputs, {"T": "f16"}):
        np.testing.assert_allclose(found["y"], g / (1 + np.exp(-g)) * u, rtol=5e-3, atol=5e-3)


# --- along an axis -------------------------------------------------------------------------------


REDUCTIONS = {
    "sum": (lambda x, a: x.sum(axis=a), "f32"),
    "prod": (lambda x, a: x.prod(axis=a), "f32"),
    "max": (lambda x, a: x.max(axis=a, initial=-np.inf), "f32"),
    "min": (lambda x, a: x.min(axis=a, initial=np.inf), "f32"),
    "argmax": (lambda x, a: x.argmax(axis=a) if x.shape[a] else _none(x, a), "s32"),
    "argmin": (lambda x, a: x.argmin(axis=a) if x.shape[a] else _none(x, a), "s32"),
    "any": (lambda x, a: (x > 0).any(axis=a), "bool"),
    "all": (lambda x, a: (x > 0).all(axis=a), "bool"),
}


def _none(x: Any, axis: int) -> Any:
    return np.full(np.delete(x.shape, axis), -1)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(33, 70), (1, 5), (5, 1), (0, 5), (5, 0)])
def test_reductions_over_either_axis(name: str, axis: int, shape: tuple[int, int]) -> None:
    means, dtype = REDUCTIONS[name]
    kept, taken = ("j", "N") if axis == 0 else ("i", "M")
    where = "x[:, j]" if axis == 0 else "x[i, :]"
    value = f"{where} > 0" if dtype == "bool" else where
    text = f"""kernel k(x: f32[M, N], y: out {dtype}[{taken}]):
    for {kept} in parallel(tiles({taken})):
        y[{kept}] = {name}({value}, axis={axis})
"""
    x = np.random.default_rng(3).integers(-2, 3, shape).astype(np.float32)  # many are equal
    x[:, -1:] = 0.5
    for found in answers(text, "k", {"x": x}, {}):
        np.testing.assert_array_equal(found["y"], means(x, axis))


def test_the_place_of_an_extremum_is_counted_along_the_dimension() -> None:
    text = """kernel k(x: f32[M, N], y: out s32[M]):
    for i in parallel(tiles(M)):
        top = full[f32](i, -inf)
        at = full[s32](i, -1)
        for j in tiles(N):
            here = x[i, j]
            better = max(here, axis=1) > top
            at = where(better, argmax(here, axis=1), at)
            top = max(top, rowmax(here))
        y[i] = at
"""
    x = random(20, 75)
    x[3, 70] = x[3, 7] = 50
    for found in answers(text, "k", {"x": x}, {}):
        np.testing.assert_array_equal(found["y"], x.argmax(axis=1))


def test_a_nan_is_the_largest_and_the_smallest() -> None:
    text = """kernel k(x: f32[M, 8], y: out s32[M], z: out s32[M]):
    for i in parallel(tiles(M)):
        y[i] = argmax(x[i, :], axis=1)
        z[i] = argmin(x[i, :], axis=1)
"""
    x = random(3, 8)
    x[1, 4:6] = np.nan
    for found in answers(text, "k", {"x": x}, {}):
        assert (found["y"][1], found["z"][1]) == (4, 4)
        assert (found["y"][0], found["z"][0]) == (x[0].argmax(), x[0].argmin())


def test_scans_carry_their_totals() -> None:
    text = """kernel k(x: f32[M, N], y: out f32[M, N], z: out f32[M, N]):
    for i in parallel(tiles(M)):
        total = zeros[f32](i)
        top = full[f32](i, -inf)
        for j in tiles(N):
            y[i, j] = cumsum(x[i, j], axis=1) + total[:, None]
            z[i, j] = max(cummax(x[i, j], axis=1), top[:, None])
            total += rowsum(x[i, j])
            top = max(top, rowmax(x[i, j]))
"""
    x = random(20, 75)
    for found in answers(text, "k", {"x": x}, {}):
        np.testing.assert_allclose(found["y"], x.cumsum(axis=1, dtype=np.float64), atol=1e-4)
        np.testing.assert_array_equal(found["z"], np.maximum.accumulate(x, axis=1))


# --- places, ranges, launches ---------------------------------------------------------------------


def test_places_outside_read_the_fill_and_are_not_written() -> None:
    text = """kernel k(x: f32[M, N], p: s32[M],
         y: out f32[M, N], z: inout f32[M, N], v: out f32[M]):
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = x.at(i - 1, j + 2, fill=9)
        z.at(i, j - 3, drop) = x[i, j]
    for i in parallel(tiles(M)):
        v[i] = x.at(i, p[i], fill=-1)
"""
    x, z = random(20, 35), np.full((20, 35), 7, np.float32)
    p = np.arange(20, dtype=np.int32) * 3 - 5
    y = np.full_like(x, 9)
    y[1:, :-2] = x[:-1, 2:]
    moved = z.copy()
    moved[:, :-3] = x[:, 3:]
    picked = [x[i, p[i]] if 0 <= p[i] < 35 else -1 for i in range(20)]
    for found in answers(text, "k", {"x": x, "p": p, "z": z}, {}):
        np.testing.assert_array_equal(found["y"], y)
        np.testing.assert_array_equal(found["z"], moved)
        np.testing.assert_array_equal(found["v"], picked)


def test_gathered_rows_of_a_table() -> None:
    text = """kernel k(table: f32[V, 24], ids: s32[M], y: out f32[M, 24]):
    for i in parallel(tiles(M)):
        y[i, :] = table.at(ids[i], :, fill=0)
"""
    table = random(10, 24)
    ids = np.array([3, 9, 0, 10, -1, 3], np.int32)
    y = np.where(((ids >= 0) & (ids < 10))[:, None], table[ids % 10], 0)
    for found in answers(text, "k", {"table": table, "ids": ids}, {}):
        np.testing.assert_array_equal(found["y"], y)


def test_two_elements_at_one_place_are_a_race() -> None:
    text = """kernel k(p: s32[M], y: inout f32[N]):
    for i in parallel(tiles(M)):
        y.at(p[i], drop) = 1.0
"""
    inputs = {"p": np.array([1, 5, 1], np.int32), "y": np.zeros(8, np.float32)}
    with pytest.raises(InterpretError, match=r"line 3: race: two elements .* place of y"):
        answers(text, "k", inputs, {})


GROUPED = """kernel k(off: s32[GE], a: f16[M, K], b: f16[G, N, K], c: out f32[M, N]):
    require GE == G + 1
    for g, i, j in parallel(G, tiles(off[g], off[g + 1], max=M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[g, j, k].T
        c[i, j] = acc
"""


@pytest.mark.parametrize("off", [(0, 20, 20, 55), (0, 0, 1, 55), (0, 55, 55, 55)])
def test_groups_of_rows_from_memory(off: tuple[int, ...]) -> None:
    a, b = random(55, 24).astype(np.float16), random(3, 33, 24, seed=1).astype(np.float16)
    c = np.concatenate([
        a[lo:hi].astype(np.float64) @ b[g].astype(np.float64).T
        for g, (lo, hi) in enumerate(pairwise(off))
    ])  # fmt: skip
    inputs = {"off": np.array(off, np.int32), "a": a, "b": b}
    for found in answers(GROUPED, "k", inputs, {}):
        np.testing.assert_allclose(found["c"], c, rtol=1e-5, atol=1e-5)


def test_a_range_is_cut_to_its_dimension_and_to_its_most() -> None:
    text = """kernel k(x: f32[M], lo: s32, hi: s32, y: out f32[2]):
    for t in parallel(1):
        every = 0.0
        some = 0.0
        for i in tiles(lo, hi, max=M):
            every += sum(x[i], axis=0)
        for i in tiles(lo, hi, max=10, of=M):
            some += sum(x[i], axis=0)
        y[0] = every
        y[1] = some
"""
    x = np.arange(50, dtype=np.float32)
    for lo, hi in ((0, 50), (3, 45), (40, 90), (7, 7), (9, 2)):
        for found in answers(text, "k", {"x": x}, {}, lo=lo, hi=hi):
            assert found["y"][0] == x[lo:hi].sum()
            assert found["y"][1] == x[lo : min(hi, lo + 10)].sum()


def test_launches_see_what_those_before_wrote() -> None:
    text = """kernel k(x: f32[M, N], y: out f32[M, N]):
    sums = temp[f32](N)
    for j in parallel(tiles(N)):
        total = zeros[f32](j)
        for i in tiles(M):
            total += sum(x[i, j], axis=0)
        sums[j] = total
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = x[i, j] - sums[j][None, :]
"""
    x = random(40, 33)
    for found in answers(text, "k", {"x": x}, {}):
        np.testing.assert_allclose(found["y"], x - x.sum(axis=0), rtol=1e-4, atol=1e-4)


def test_workspace_that_nobody_wrote_holds_nothing() -> None:
    text = """kernel k(y: out f32[M]):
    w = temp[f32](M)
    for i in parallel(tiles(M)):
        y[i] = w[i]
"""
    for found in answers(text.replace("(y:", "(x: f32[M], y:"), "k", {"x": random(4)}, {}):
        assert np.isnan(found["y"]).all()


def test_while_and_if_follow_what_they_carry() -> None:
    text = """kernel k(n: s32[M], y: out s32[M]):
    for i in parallel(M):
        steps = 0
        v = n[i]
        while v > 1 and steps < 50:
            if v % 2 == 0:
                v = v // 2
            else:
                v = 3 * v + 1
            steps += 1
        y[i] = steps
"""
    n = np.array([1, 2, 3, 7, 27], np.int32)
    for found in answers(text, "k", {"n": n}, {}):
        assert found["y"].tolist() == [0, 1, 7, 16, 50]
