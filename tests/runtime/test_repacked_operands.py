"""Calls whose operands are copied first: any strides, on the cta interpreter and on the emulator.

Whole numbers are small, so every sum is exact and is compared so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tilec
from tilec import Schedule
from tilec.diagnostics import DiagnosticError
from tilec.runtime.arrays import view
from tilec.runtime.specialise import array_facts

Arrays = dict[str, Any]
RNG = np.random.default_rng(11)


def whole(*shape: int, dtype: Any = np.float16) -> Any:
    """Small whole numbers."""
    return RNG.integers(0, 4, shape).astype(dtype)


def odd(*shape: int, dtype: Any = np.float16) -> Any:
    """The same in rows of an odd pitch."""
    return whole(*shape[:-1], shape[-1] + 3, dtype=dtype)[..., : shape[-1]]


@dataclass(frozen=True)
class Case:
    """A program, what it is called with, what it means, and how many launches that takes."""

    text: str
    arrays: Arrays
    means: Callable[..., Any]
    launches: int
    schedule: Schedule = field(default_factory=Schedule)


def product(left: str, right: str, dtype: str = "f16", total: str = "f32", extra: str = "") -> str:
    """c[i, j] as a sum of products of two subscripted operands."""
    return f"""
kernel f({extra}c: out {total}[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[{total}](i, j)
        for k in tiles(K):
            acc += {left} @ {right}
        c[i, j] = acc
"""


TN = product("a[i, k]", "b[j, k].T", extra="a: f16[M, K], b: f16[N, K], ")
S8 = product("a[i, k]", "b[k, j]", "s8", "s32", "a: s8[M, K], b: s8[K, N], ")
BATCHED = """
kernel f(x: f16[B, M, K], w: f16[B, N, K], c: out f32[B, M, N]):
    for n, i, j in parallel(B, tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += x[n, i, k] @ w[n, j, k].T
        c[n, i, j] = acc
"""
WHOLE = """
kernel f(a: f16[M, 24], b: f16[N, 24], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        c[i, j] = a[i, :] @ b[j, :].T
"""
PARTS = """
kernel f(a: f16[M, 72], b: f16[N, 72], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        c[i, j] = a[i, 16:64] @ b[j, 8:56].T
"""
SQUARE = (
    product("x[i, k]", "x[k, j]", "s8", "s32", "x: s8[N, N], ")
    .replace("K", "N")
    .replace("[M", "[N")
    .replace("(M", "(N")
)
BOTH_LAUNCHES = """
kernel f(a: f16[M, K], b: f16[N, K], c: out f32[M, N], d: out f32[N, M]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = acc
    for j, i in parallel(tiles(N), tiles(M)):
        acc = zeros[f32](j, i)
        for k in tiles(K):
            acc += b[j, k] @ a[i, k].T
        d[j, i] = acc
"""
ATTENTION = """
kernel f(q: f16[M, 24], k: f16[N, 24], v: f16[N, 24], o: out f32[M, 24]):
    for i in parallel(tiles(M)):
        acc = zeros[f32](i, 24)
        for j in tiles(N):
            s = q[i, :] @ k[j, :].T
            acc += cast[f16](min(s, 3)) @ v[j, :]
        o[i, :] = acc
"""

A, B = Schedule(repacks=(("a", 1),)), Schedule(repacks=(("a", 1), ("b", 1)))


def tn(a: Any, b: Any) -> Any:
    """a @ b.T of wide numbers."""
    return a.astype(np.float64) @ b.astype(np.float64).swapaxes(-1, -2)


CASES = {
    "odd rows": Case(TN, {"a": odd(70, 40), "b": odd(90, 40)}, tn, 3, B),
    "one operand of two": Case(TN, {"a": odd(70, 40), "b": whole(90, 40)}, tn, 2, A),
    "columns": Case(TN, {"a": odd(40, 70).T, "b": odd(90, 40)}, tn, 3, B),
    "rows backwards": Case(TN, {"a": odd(70, 40)[::-1], "b": whole(90, 40)}, tn, 2, A),
    "every second column": Case(TN, {"a": whole(70, 80)[:, ::2], "b": whole(90, 40)}, tn, 2, A),
    "no rows": Case(TN, {"a": odd(0, 40), "b": whole(90, 40)}, tn, 2, A),
    "nothing to sum": Case(TN, {"a": whole(70, 0), "b": whole(90, 0)}, tn, 3, B),
    "one of each": Case(TN, {"a": odd(1, 1), "b": odd(1, 1)}, tn, 1),
    "bytes along N": Case(
        S8, {"a": whole(70, 48, dtype=np.int8), "b": whole(48, 96, dtype=np.int8)},
        lambda a, b: tn(a, b.T), 2, Schedule(repacks=(("b", 1),)),
    ),
    "bytes along M, in odd rows": Case(
        S8, {"a": odd(37, 70, dtype=np.int8).T, "b": odd(37, 90, dtype=np.int8)},
        lambda a, b: tn(a, b.T), 3, B,
    ),
    "bytes read both ways": Case(
        SQUARE, {"x": whole(80, 80, dtype=np.int8)}, lambda x: tn(x, x.T), 2,
        Schedule(repacks=(("x", 1),)),
    ),
    "one weight for all": Case(
        BATCHED, {"x": whole(3, 40, 48), "w": np.broadcast_to(odd(70, 48), (3, 70, 48))}, tn, 2,
        Schedule(repacks=(("w", 1),)),
    ),
    "batches of odd rows": Case(
        BATCHED, {"x": odd(3, 40, 38), "w": odd(3, 70, 38)}, tn, 3,
        Schedule(repacks=(("x", 1), ("w", 1))),
    ),
    "batches last": Case(
        BATCHED, {"x": whole(40, 48, 3).transpose(2, 0, 1), "w": whole(3, 70, 48)}, tn, 2,
        Schedule(repacks=(("x", 1),)),
    ),
    "whole rows": Case(WHOLE, {"a": odd(70, 24), "b": odd(90, 24)}, tn, 3, B),
    "parts of rows": Case(
        PARTS, {"a": odd(70, 72), "b": odd(90, 72)},
        lambda a, b: tn(a[:, 16:64], b[:, 8:56]), 3, B,
    ),
    "shares of the sum": Case(
        TN, {"a": odd(70, 100), "b": odd(90, 100)}, tn, 4,
        Schedule(tiles=(("k", 16),), splits=(("k", 3),)).merged(B),
    ),
    "two launches": Case(
        BOTH_LAUNCHES, {"a": odd(70, 40), "b": odd(90, 40)},
        lambda a, b: (tn(a, b), tn(b, a)), 4, B,
    ),
    "weights of rows": Case(
        ATTENTION, {"q": odd(70, 24), "k": odd(90, 24), "v": odd(90, 24)},
        lambda q, k, v: np.minimum(tn(q, k), 3) @ v.astype(np.float64), 3,
        Schedule(repacks=(("k", 1), ("v", 1))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("on", ["cta", "emulator"])
@pytest.mark.parametrize("name", CASES)
def test_copied_operands_give_the_same_product(name: str, on: str) -> None:
    case = CASES[name]
    kernel = tilec.compile(case.text.lstrip("\n"), "f.tk").f.using(case.schedule, on=on)
    found = kernel(**case.arrays)
    expected = case.means(*case.arrays.values())
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for got, wanted in pairs:
        np.testing.assert_array_equal(np.asarray(got, np.float64), wanted)
    made = [compiled for compiled in kernel._compiled.values() if on == "emulator"]
    assert all(len(compiled.launches) == case.launches for compiled in made)


def test_a_repeated_axis_is_no_axis_of_the_copy() -> None:
    case = CASES["one weight for all"]
    kernel = tilec.compile(case.text.lstrip("\n"), "f.tk").f.using(case.schedule, on="emulator")
    kernel(**case.arrays)
    (compiled,) = kernel._compiled.values()
    (made,) = compiled.workspace
    assert (made.name, len(made.extents)) == ("w_packed", 2)
    assert array_facts(view(case.arrays["w"])).repeats == (0,)


def test_tma_reads_a_repeated_axis_without_a_copy() -> None:
    """The tensor map has no such axis, so aligned rows that stand for all batches need nothing."""
    shared = np.broadcast_to(whole(70, 48), (3, 70, 48))
    kernel = tilec.compile(BATCHED.lstrip("\n"), "f.tk").f.using(on="emulator")
    x = whole(3, 40, 48)
    np.testing.assert_array_equal(kernel(x, shared), tn(x, shared))
    (compiled,) = kernel._compiled.values()
    maps = {p[1]: p[2] for p in compiled.parameters if p[0] == "map"}
    assert maps == {"x": (2, 1, 0), "w": (2, 1)}
    assert not compiled.workspace


@pytest.mark.parametrize(
    ("text", "arrays", "why"),
    [
        (
            PARTS.replace("16:64", "3:51"),
            {"a": odd(70, 72), "b": odd(90, 72)},
            "may start anywhere",
        ),
        (TN, {"a": np.broadcast_to(whole(1, 40), (70, 40)), "b": whole(90, 40)}, "stride 0"),
        (
            TN.replace("a: f16", "a: inout f16"),
            {"a": odd(70, 40), "b": whole(90, 40)},
            "is written",
        ),
    ],
)
def test_what_cannot_be_copied_is_refused_if_it_is_asked_for(
    text: str, arrays: Arrays, why: str
) -> None:
    kernel = tilec.compile(text.lstrip("\n"), "f.tk").f.using(A, on="emulator")
    with pytest.raises(DiagnosticError, match=why):
        kernel(**arrays)
