"""What the language makes of programs that others misread, and what it says where it refuses."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Runner, case, whole


@case("FE-01", "frontend", "triton-lang/triton#2939, #9547, PR#6767")
def arguments_that_are_one(run: Runner) -> None:
    """A number keeps its declared type whatever its value is."""
    text = """
kernel scaled(x: s64[N], factor: s32, y: out s64[N]):
    for i in parallel(tiles(N)):
        y[i] = x[i] * cast[s64](factor)
"""
    x = np.arange(8, dtype=np.int64)
    for factor in (42, 1, 0, 16, -1):
        np.testing.assert_array_equal(run(text, x=x, factor=factor), x * factor)
    run.refused(text, "number-does-not-fit", "the nearest is 2147483647", x=x, factor=1 << 31)


@case("FE-03", "frontend", "triton-lang/triton PR#10257")
def what_is_not_compiled(run: Runner) -> None:
    """What stands behind a return that is chosen while compiling is not looked at."""
    text = """
fn pick[QUICK: bool](x):
    if QUICK:
        return x
    else:
        static_assert(false, "only the quick way is there")
        return x

kernel picked[QUICK: bool = true](x: f32[N], y: out f32[N]):
    for i in parallel(tiles(N)):
        y[i] = pick[QUICK](x[i])
"""
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(run(text, x=x), x)


@case("FE-05", "frontend", "triton-lang/triton#1621, #6034, #6035")
def several_results(run: Runner) -> None:
    """Functions return several values, and a loop exchanges two names."""
    text = """
fn ends(a, b):
    return min(a, b), max(a, b)

kernel swapped(x: f32[N], z: f32[N], times: s32, y: out f32[N], w: out f32[N]):
    for i in parallel(tiles(N)):
        a, b = ends(x[i], z[i])
        for t in range(times):
            a, b = b, a
        y[i], w[i] = a, b
"""
    x, z = np.arange(8, dtype=np.float32), np.full(8, 3.5, np.float32)
    for times in (0, 1, 2, 5):
        y, w = run(text, x=x, z=z, times=times)
        ends = (np.minimum(x, z), np.maximum(x, z))
        np.testing.assert_array_equal(y, ends[times % 2])
        np.testing.assert_array_equal(w, ends[1 - times % 2])


@case("FE-07", "frontend", "triton-lang/triton#2151, #646, #3307", refusal="carried-type-changes")
def drifting_types(run: Runner) -> None:
    """A name that a loop or a branch carries keeps its type; both places are shown."""
    head = "kernel k(a: f32[N], n: s32, c: out f32[N]):\n    for i in parallel(tiles(N)):\n"
    run.refused(
        head + "        s = zeros[f16](i)\n        for t in range(n):\n"
        "            s = cast[f32](s) + a[i]\n        c[i] = cast[f32](s)\n",
        "carried-type-changes",
        "cast[f16]",
    )
    run.refused(
        head + "        s = cast[s32](a[i])\n        if n > 0:\n            s = a[i]\n"
        "        c[i] = cast[f32](s)\n",
        "carried-type-changes",
        "s32[i] before",
    )


@case("FE-09", "frontend", "triton-lang/triton#2779")
def product_in_a_while_loop(run: Runner) -> None:
    """A product inside a `while` is a product."""
    text = """
kernel queue(a: f16[M, K], b: f16[N, K], rounds: s32, c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        t = 0
        while t < rounds:
            for k in tiles(K):
                acc += a[i, k] @ b[j, k].T
            t += 1
        c[i, j] = acc
"""
    a, b = whole(1, 64, 64), whole(2, 64, 64)
    exact = 3 * (a.astype("f4") @ b.astype("f4").T)
    np.testing.assert_array_equal(run(text, a=a, b=b, rounds=3, targets=()), exact)


@case(
    "EM-02",
    "error-messages",
    "tile-ai/tilelang#3010 and #3035",
    refusal="not-known-at-compile-time",
)
def sizes_known_too_late(run: Runner) -> None:
    """A tile as long as a number of the launch, and a choice outside its range, are refused."""
    run.refused(
        "kernel k(a: f32[N], n: s32, c: out f32[N]):\n    for i in parallel(tiles(N, n)):\n"
        "        c[i] = a[i]\n",
        "not-known-at-compile-time",
        "a parameter in `[]`",
    )
    run.refused(
        "kernel k(a: f32[N], c: out f32[N]):\n    schedule warpgroups=77\n"
        "    for i in parallel(tiles(N)):\n        c[i] = a[i]\n",
        "impossible-choice",
        "the nearest is",
    )


@case("EM-04", "error-messages", "tile-ai/tilelang#2979", refusal="may-be-out-of-range")
def part_beyond_its_axis(run: Runner) -> None:
    """A part or an element beyond a known extent is refused with the numbers."""
    run.refused(
        "kernel k(a: f32[M, 8], c: out f32[M, 6]):\n    for i in parallel(tiles(M)):\n"
        "        c[i, :] = a[i, 6:12]\n",
        "may-be-out-of-range",
        "`6:12` is no part of 0:8",
    )
    run.refused(
        "kernel k(a: f32[8], c: out f32[M]):\n    for i in parallel(tiles(M)):\n"
        "        c[i] = a[8]\n",
        "may-be-out-of-range",
        "the last index is 7",
    )
