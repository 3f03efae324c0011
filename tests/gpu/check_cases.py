"""Programs that assert and print, and their inputs: what a GPU says is what the interpreter says.

All numbers are small and whole, so that sums are exact in any order and texts can be compared
letter by letter. Where a case fails, it does so in the last tile of the parallel loop alone: the
interpreter stops there, a GPU goes on, and both must name the same element and number of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray[Any, Any], ...]
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a")


@dataclass(frozen=True)
class CheckCase:
    """One program on one target, with inputs for which its assertions hold or not."""

    program: str
    target: str
    fails: bool

    @property
    def name(self) -> str:
        """What records call it."""
        return f"{self.program} {self.target} {'fails' if self.fails else 'holds'}"


@dataclass(frozen=True)
class CheckProgram:
    """A kernel `k`, and its inputs for a case that fails, or not."""

    text: str
    inputs: Callable[[bool], Arrays]


def _counted(rows: int, columns: int, bad: int = 0) -> np.ndarray[Any, Any]:
    """Numbers from 0 to 4, and so many 9s at the end of the last row."""
    made = (np.arange(rows * columns, dtype=np.float32) % 5).reshape(rows, columns)
    if bad:
        made[-1, -bad:] = 9
    return made


def _factors(fails: bool) -> Arrays:
    """Factors of a product whose last element alone is large where it fails."""
    generator = np.random.default_rng(3)
    a = generator.integers(-1, 2, (300, 136)).astype(np.float16)
    b = generator.integers(-1, 2, (200, 136)).astype(np.float16)
    if fails:
        a[-1], b[-1] = 2, 2
    return a, b


_TILES = """
kernel k(x: f32[M, N], y: out f32[M, N]):
    for i, j in parallel(tiles(M, 32), tiles(N, 16)):
        print("row sums", rowsum(x[i, j]), len(j), "all of", x[i, j])
        assert x[i, j] < 5, "x stays below five"
        y[i, j] = x[i, j] + 1
"""
_ROWS = """
kernel k(x: f32[M, N], y: out f32[M, N]):
    for i in parallel(tiles(M, 16)):
        top = rowmax(x[i, :])
        print("largest", top)
        assert top < 5
        y[i, :] = x[i, :] - top[:, None]
"""
_PRODUCT = """
kernel k(a: f16[M, K], b: f16[N, K], c: out f32[M, N]):
    for i, j in parallel(tiles(M, ROWS), tiles(N, 64)):
        acc = zeros[f32](i, j)
        for k in tiles(K, 64):
            acc += a[i, k] @ b[j, k].T
            print("so far", rowmax(acc))
        print("in all", acc)
        assert acc < 400, "an element is large"
        c[i, j] = acc
"""
_LOOPS = """
kernel k(x: s32[B, M], y: out s32[B]):
    for b in parallel(B):
        total = 0
        for n in range(M):
            total += x[b, n]
            v = total
            while v > 1:
                v = v // 2
                print("v", v)
        assert total < 20, "a sum is large"
        y[b] = total
"""
_LAUNCHES = """
kernel k(x: f32[M], y: out f32[M]):
    t = temp[f32](M)
    for i in parallel(tiles(M, 32)):
        print("first", x[i])
        t[i] = x[i] + 1
    for i in parallel(tiles(M, 64)):
        print("second", t[i])
        assert t[i] < 9, "t is large"
        y[i] = t[i]
"""
_TYPES = """
kernel k(h: f16[M], d: f64[M], s: s64[M], u: u8[M], y: out f32[M]):
    for i in parallel(tiles(M, 16)):
        print("h", h[i], "d", d[i], "s", s[i], "u", u[i], "large", u[i] > 3)
        assert u[i] < 200, "a byte is large"
        y[i] = cast[f32](h[i])
"""


def _line(fails: bool) -> Arrays:
    made = _counted(1, 90)[0]
    if fails:
        made[80:82] = 9
    return (made,)


def _loops(fails: bool) -> Arrays:
    made = (np.arange(9 * 5, dtype=np.int32) % 4).reshape(9, 5)
    if fails:
        made[-1, 0] = 30
    return (made,)


def _types(fails: bool) -> Arrays:
    numbers = np.arange(40)
    return (
        (numbers / 8).astype(np.float16),
        numbers / 3,
        numbers - 2**62,
        np.where(fails & (numbers == 39), 255, numbers).astype(np.uint8),
    )


PROGRAMS: dict[str, CheckProgram] = {
    "tiles": CheckProgram(_TILES, lambda fails: (_counted(96, 64, 3 * fails),)),
    "ragged tiles": CheckProgram(_TILES, lambda fails: (_counted(101, 67, 2 * fails),)),
    "rows": CheckProgram(_ROWS, lambda fails: (_counted(44, 300, fails),)),
    "product": CheckProgram(_PRODUCT.replace("ROWS", "64"), _factors),
    "two groups": CheckProgram(_PRODUCT.replace("ROWS", "128"), _factors),
    "loops": CheckProgram(_LOOPS, _loops),
    "launches": CheckProgram(_LAUNCHES, _line),
    "element types": CheckProgram(_TYPES, _types),
}


def all_cases() -> list[CheckCase]:
    """Every program on every target, holding and failing."""
    return [
        CheckCase(program, target, fails)
        for program in PROGRAMS
        for target in TARGETS
        for fails in (False, True)
    ]
