"""The files that ship: ``std.math`` against 120-bit arithmetic, the others against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from tilec.diagnostics import DiagnosticError
from tilec.frontend.check import check
from tilec.frontend.imports import shipped_names
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.interpret import bind_dims, choose_sizes, interpret
from tilec.source import SourceFile

_COUNT = 1200
mp.mp.prec = 120

EXACT: dict[str, Callable[..., Any]] = {
    "exp": mp.exp,
    "log": mp.log,
    "sin": mp.sin,
    "cos": mp.cos,
    "tanh": mp.tanh,
    "erf": mp.erf,
    "pow": mp.power,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "silu": lambda x: x / (1 + mp.exp(-x)),
    "gelu": lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2,
}


def run(text: str, arrays: dict[str, Any]) -> None:
    """Interpret a text's kernel on arrays, in their own precision."""
    module = check(parse(SourceFile("m.tk", text)), {})
    kernel = lower(module, module.kernels[0].name).kernels[0]
    interpret(kernel, arrays, {}, choose_sizes(kernel, bind_dims(kernel, arrays), 1))


def applied(name: str, *given: Any) -> Any:
    """A function of ``std.math`` on float32 arrays."""
    inputs = "".join(f"x{n}: f32[M], " for n in range(len(given)))
    values = ", ".join(f"x{n}[i]" for n in range(len(given)))
    arrays = {f"x{n}": np.asarray(x, np.float32) for n, x in enumerate(given)}
    arrays["c"] = np.zeros_like(arrays["x0"])
    with np.errstate(all="ignore"):
        run(
            f"from std.math import {name}\n"
            f"kernel k({inputs}c: out f32[M]):\n"
            f"    for i in parallel(tiles(M)):\n"
            f"        c[i] = {name}({values})\n",
            arrays,
        )
    return arrays["c"]


def ulps(found: float, exact: Any) -> float:
    """The error in units in the last place of the exact result, subnormal ones included."""
    if np.isinf(found):
        return 0.0 if abs(exact) >= mp.mpf(2) ** 128 * (1 - mp.mpf(2) ** -25) else np.inf
    exponent = max(mp.frexp(exact)[1] - 1, -126)
    return float(abs(mp.mpf(found) - exact) / mp.mpf(2) ** (exponent - 23))


def sample(name: str) -> tuple[Any, ...]:
    """Arguments over the whole range, denser where a function changes course or is hard."""
    chance = np.random.default_rng(len(name))
    n = _COUNT
    if name == "exp":
        return (np.concatenate([chance.uniform(-104, 89, n), signed(2.0, -30, 6, n)]),)
    if name == "log":
        around = 1 + np.concatenate([chance.uniform(-0.5, 1, n), signed(2.0, -23, -3, n)])
        return (np.concatenate([2.0 ** chance.uniform(-149, 128, n), around]),)
    if name in ("sin", "cos"):
        # The nearest numbers to multiples of a quarter turn lose the most digits.
        turns = (np.unique(chance.integers(1, 667_000, n)) * (np.pi / 2)).astype(np.float32)
        near = [np.nextafter(turns, np.float32(to)) for to in (0, 2**30)]
        return (np.concatenate([signed(2.0, -40, 20, n), turns, *near]),)
    if name == "rsqrt":
        return (2.0 ** chance.uniform(-126, 128, n),)
    if name == "pow":
        base = (2.0 ** chance.uniform(-120, 120, n)).astype(np.float32).astype(float)
        near = (1 + chance.uniform(-1e-3, 1e-3, n)).astype(np.float32).astype(float)
        powers = [chance.uniform(-149, 127.9, n) / np.log2(x) for x in (base, near)]
        return np.concatenate([base, near]), np.concatenate(powers)
    limit = {"tanh": 12, "erf": 5, "sigmoid": 104, "silu": 108, "gelu": 14.9}[name]
    values = [chance.uniform(-limit, limit, n), chance.uniform(-2.5, 2.5, n)]
    return (np.concatenate([*values, signed(2.0, -120, np.log2(limit), n)]),)


def signed(base: float, low: float, high: float, count: int) -> Any:
    """Numbers of both signs, even in their logarithm."""
    chance = np.random.default_rng(count)
    return chance.choice([-1.0, 1.0], count) * base ** chance.uniform(low, high, count)


@pytest.mark.parametrize("name", EXACT)
def test_within_four_units_in_the_last_place(name: str) -> None:
    given = [np.asarray(x, np.float32) for x in sample(name)]
    found = applied(name, *given)
    errors = [
        ulps(float(y), EXACT[name](*map(mp.mpf, map(float, xs))))
        for y, *xs in zip(found, *given, strict=True)
    ]
    worst = int(np.argmax(errors))
    assert errors[worst] <= 4, (name, [float(x[worst]) for x in given], errors[worst])


INF, NAN = np.inf, np.nan
SPECIAL: dict[str, tuple[list[Any], list[float]]] = {
    "exp": ([0, INF, -INF, NAN, 1e30, -1e30, 88.9], [1, INF, 0, NAN, INF, 0, INF]),
    "log": ([1, 0, INF, -1, NAN, 2.0**-149], [0, -INF, INF, NAN, NAN, -103.2789306640625]),
    "sin": ([0, INF, NAN, 2e6], [0, NAN, NAN, NAN]),
    "cos": ([0, INF, NAN, -2e6], [1, NAN, NAN, NAN]),
    "tanh": ([0, INF, -INF, NAN], [0, 1, -1, NAN]),
    "erf": ([0, INF, -INF, NAN], [0, 1, -1, NAN]),
    "rsqrt": ([4, 0, INF, -1, NAN], [0.5, INF, 0, NAN, NAN]),
    "sigmoid": ([0, INF, -INF, NAN], [0.5, 1, 0, NAN]),
    "silu": ([0, INF, -INF, NAN], [0, INF, 0, NAN]),
    "gelu": ([0, INF, -INF, NAN, -40], [0, INF, 0, NAN, 0]),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str) -> None:
    given, expected = SPECIAL[name]
    np.testing.assert_array_equal(applied(name, given), np.float32(expected))


def test_pow_has_the_special_values_of_c() -> None:
    values = [0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 2.5, -2.5, INF, -INF, NAN, 2.0**25]
    x, y = (a.ravel().astype(np.float32) for a in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(float), y.astype(float)).astype(np.float32)
    np.testing.assert_allclose(applied("pow", x, y), expected, rtol=5e-7)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_elements_are_rounded_once(dtype: str) -> None:
    x = np.linspace(-4, 4, 161, dtype=np.float32)
    arrays = {"x": x, "c": np.zeros_like(x), "d": np.zeros_like(x)}
    run(
        "from std.math import erf\n"
        "kernel k(x: f32[M], c: out f32[M], d: out f32[M]):\n"
        "    for i in parallel(tiles(M)):\n"
        f"        narrow = cast[{dtype}](x[i])\n"
        "        c[i] = cast[f32](erf(narrow))\n"
        f"        d[i] = cast[f32](cast[{dtype}](erf(cast[f32](narrow))))\n",
        arrays,
    )
    np.testing.assert_array_equal(arrays["c"], arrays["d"])
    assert (arrays["c"] != 0).any()


def test_merging_softmaxes_in_any_grouping_gives_the_softmax_of_all() -> None:
    scores = np.random.default_rng(5).standard_normal((3, 20)).astype(np.float32) * 6
    scores[1, 3] = scores[:, 4] = -INF
    m = np.where(np.isinf(scores), -INF, scores).astype(np.float32)
    arrays = {f"m{n}": m[n] for n in range(3)}
    arrays |= {f"l{n}": np.where(np.isinf(m[n]), 0, 1.5).astype(np.float32) for n in range(3)}
    arrays |= {name: np.zeros(20, np.float32) for name in ("left", "right", "most")}
    run(
        "from std.merges import softmax\n"
        "kernel k(m0: f32[M], m1: f32[M], m2: f32[M], l0: f32[M], l1: f32[M], l2: f32[M],\n"
        "         left: out f32[M], right: out f32[M], most: out f32[M]):\n"
        "    for i in parallel(tiles(M)):\n"
        "        m, l = softmax(m0[i], l0[i], m1[i], l1[i])\n"
        "        m, l = softmax(m, l, m2[i], l2[i])\n"
        "        n, k = softmax(m1[i], l1[i], m2[i], l2[i])\n"
        "        n, k = softmax(m0[i], l0[i], n, k)\n"
        "        left[i] = l\n        right[i] = k\n        most[i] = max(m, n)\n",
        arrays,
    )
    with np.errstate(all="ignore"):
        top = m.max(axis=0)
        expected = np.where(np.isinf(m), 0, 1.5 * np.exp2(m.astype(float) - top)).sum(axis=0)
    np.testing.assert_array_equal(arrays["most"], top)
    for side in ("left", "right"):
        np.testing.assert_allclose(arrays[side], expected, rtol=1e-6)


def test_merged_rows_are_the_rows_of_all() -> None:
    chance = np.random.default_rng(7)
    s = (chance.standard_normal((2, 9, 6)) * 4).astype(np.float32)
    v = chance.standard_normal((2, 6, 5)).astype(np.float32)
    s[0, 2] = -INF
    s[:, 3] = -INF
    m = s.max(axis=2)
    with np.errstate(all="ignore"):
        p = np.where(np.isinf(s), 0, np.exp2(s - m[..., None])).astype(np.float32)
    a = np.stack([p[n] @ v[n] for n in range(2)])
    arrays = {"m": m, "l": p.sum(axis=2), "a": a, "y": np.full((9, 5), NAN, np.float32)}
    run(
        "from std.merges import softmax_rows\n"
        "kernel k(m: f32[2, M], l: f32[2, M], a: f32[2, M, 5], y: out f32[M, 5]):\n"
        "    for i in parallel(tiles(M)):\n"
        "        u, v = a[0, i, :], a[1, i, :]\n"
        "        n, s, b = softmax_rows(m[0, i], l[0, i], u, m[1, i], l[1, i], v)\n"
        "        y[i, :] = where(s[:, None] > 0, b / s[:, None], 0)\n",
        arrays,
    )
    everything = np.concatenate([s[0], s[1]], axis=1).astype(float)
    top = everything.max(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        weights = np.where(np.isinf(everything), 0, np.exp2(everything - top))
        expected = weights @ np.concatenate([v[0], v[1]]) / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(arrays["y"], np.nan_to_num(expected), rtol=2e-5, atol=1e-6)


def test_welford_merges_tiles_of_a_row() -> None:
    x = (np.random.default_rng(9).standard_normal((7, 50)) + 100).astype(np.float32)
    arrays = {"x": x, "y": np.zeros(7, np.float32)}
    run(
        "from std.merges import welford\n"
        "kernel k(x: f32[M, N], y: out f32[M]):\n"
        "    for i in parallel(tiles(M)):\n"
        "        n, mean, s = zeros[f32](i), zeros[f32](i), zeros[f32](i)\n"
        "        for j in tiles(N, 16):\n"
        "            part = x[i, j]\n"
        "            count = cast[f32](len(j))\n"
        "            at = rowsum(part) / count\n"
        "            away = rowsum((part - at[:, None]) * (part - at[:, None]))\n"
        "            n, mean, s = welford(n, mean, s, full[f32](i, count), at, away)\n"
        "        y[i] = s / n\n",
        arrays,
    )
    np.testing.assert_allclose(arrays["y"], x.astype(float).var(axis=1), rtol=1e-4)


def test_what_ships_is_what_the_page_says() -> None:
    assert shipped_names() == ["std.doubles", "std.math", "std.merges", "std.narrow", "std.random"]


# --- std.random ----------------------------------------------------------------------------------

KNOWN_ANSWERS = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
"""Counter, key and words of Philox4x32-10, as its authors publish them (Random123, kat_vectors)."""

WORDS = """from std.random import philox4x32
kernel k(c: u32[M, 4], k: u32[M, 2], w: out u32[M, 4]):
    for i in parallel(tiles(M)):
        a, b, d, e = philox4x32(c[i, 0], c[i, 1], c[i, 2], c[i, 3], k[i, 0], k[i, 1])
        w[i, 0] = a
        w[i, 1] = b
        w[i, 2] = d
        w[i, 3] = e
"""


def test_philox_gives_the_published_words() -> None:
    counters, keys, words = (np.array(part, np.uint32) for part in zip(*KNOWN_ANSWERS, strict=True))
    found = np.zeros_like(words)
    run(WORDS, {"c": counters, "k": keys, "w": found})
    np.testing.assert_array_equal(found, words)


@pytest.mark.parametrize("place", ["i", "cast[u32](i)", "cast[u64](i)", "cast[s64](i)"])
def test_random_numbers_depend_on_seed_and_place_alone(place: str) -> None:
    text = f"""from std.random import random
kernel k(u: out f32[M], v: out f32[M]):
    for i in parallel(tiles(M)):
        u[i] = random(17, {place})
        v[i] = random(18, {place})
"""
    u, v = np.zeros(4000, np.float32), np.zeros(4000, np.float32)
    run(text, {"u": u, "v": v})
    assert np.all((u >= 0) & (u < 1) & (u * 2**24 == np.floor(u * 2**24)))
    assert abs(u.mean() - 0.5) < 0.02
    assert abs(np.corrcoef(u, v)[0, 1]) < 0.06
    assert len(np.unique(u)) > 3990
    from tests.examples.memory import philox

    words = philox(np.arange(4000, dtype=np.uint64), 17)
    np.testing.assert_array_equal(u, ((words >> np.uint64(8)) * 2.0**-24).astype(np.float32))


def test_a_function_that_a_shipped_file_has_is_found_by_its_name() -> None:
    head = "kernel k(x: f32[M], y: out f32[M]):\n    for i in parallel(tiles(M)):\n"
    tree = parse(SourceFile("k.tk", head + "        y[i] = sin(x[i])\n"))
    with pytest.raises(DiagnosticError, match="there is no function `sin`") as refusal:
        check(tree, {}, "k")
    assert refusal.value.diagnostics[0].help == "write `from std.math import sin` above"
