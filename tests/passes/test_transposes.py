"""Transposes of what is computed: they rise to loads or sink to stores, and mean the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.passes.programs import Program
from tests.passes.test_meaning import check_everywhere, promised, unpromised
from tilec.compiler import compile_source
from tilec.diagnostics import DiagnosticError
from tilec.ir.facts import Schedule
from tilec.source import SourceFile
from tilec.targets import by_name

TILES = "    for i, j in parallel(tiles(M), tiles(N)):\n"
PRODUCT = (
    TILES
    + """        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[k, j]
"""
)
SIZES = {"M": 150, "N": 88, "K": 72}
FLAT = {"x": "MN", "y": "NM"}
PRODUCTS = {"a": "MK", "b": "KN", "w": "NM", "c": "NM"}

PROGRAMS = {
    "elementwise": Program(
        "kernel f(x: f32[M, N], y: out f32[N, M]):\n"
        + TILES
        + "        y[j, i] = (x[i, j] * 2).T\n",
        FLAT,
        lambda x: {"y": 2 * x.x.T},
        sizes=SIZES,
    ),
    "with spread vectors": Program(
        "kernel f(x: f32[M, N], v: f32[N], y: out f32[N, M]):\n"
        + TILES
        + "        y[j, i] = (x[i, j] * v[j][None, :] + 1).T * v[j][:, None]\n",
        {**FLAT, "v": "N"},
        lambda x: {"y": (x.x.T * x.v[:, None] + 1) * x.v[:, None]},
        sizes=SIZES,
    ),
    "summed": Program(
        """kernel f(x: f32[M, N], r: out f32[M]):
    for i in parallel(tiles(M)):
        s = zeros[f32](i)
        for j in tiles(N):
            s += sum(exp(x[i, j]).T, axis=0)
        r[i] = s
""",
        {"x": "MN", "r": "M"},
        lambda x: {"r": np.exp(x.x).sum(axis=1)},
        sizes=SIZES,
    ),
    "of a product": Program(
        "kernel f(a: bf16[M, K], b: bf16[K, N], c: out bf16[N, M]):\n"
        + PRODUCT
        + "        c[j, i] = cast[bf16](acc.T)\n",
        {k: v for k, v in PRODUCTS.items() if k != "w"},
        lambda x: {"c": (x.a @ x.b).T},
        sizes=SIZES,
    ),
    "of a product, and what follows": Program(
        "kernel f(a: bf16[M, K], b: bf16[K, N], w: f32[N, M], c: out f32[N, M]):\n"
        + PRODUCT
        + "        c[j, i] = max(acc.T * 2 + w[j, i], 0)\n",
        PRODUCTS,
        lambda x: {"c": np.maximum((x.a @ x.b).T * 2 + x.w, 0)},
        sizes=SIZES,
    ),
    "of what is written later": Program(
        "kernel f(x: inout f32[M, N], y: out f32[N, M]):\n"
        + TILES
        + """        v = x[i, j]
        x[i, j] = v * 3
        y[j, i] = v.T * 2
""",
        FLAT,
        lambda x: {"y": 2 * x.x.T, "x": 3 * x.x},
        sizes=SIZES,
    ),
    "of what a branch gives": Program(
        "kernel f(x: f32[M, N], y: out f32[N, M]):\n"
        + TILES
        + """        s = x[i, j]
        if M > 4:
            s = s * 2
        y[j, i] = s.T
""",
        FLAT,
        lambda x: {"y": 2 * x.x.T},
        sizes=SIZES,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_transpose_of_what_is_computed(name: str) -> None:
    program = PROGRAMS[name]
    check_everywhere(program, promised(program, program.sizes, 16), Schedule())
    check_everywhere(program, unpromised(program.sizes), Schedule())
    even = replace(program, sizes={"M": 256, "N": 256, "K": 64})
    check_everywhere(even, promised(even, even.sizes, 16), Schedule())
    compile_source(SourceFile("f.tk", program.text), None, {}, by_name("90"))


def test_a_transpose_that_a_loop_takes_on_is_refused_at_its_line() -> None:
    text = (
        "kernel f(x: f32[M, N], y: out f32[N, M]):\n"
        + TILES
        + """        s = zeros[f32](i, j)
        for n in range(3):
            s = s + x[i, j]
        t = zeros[f32](j, i)
        for n in range(3):
            t = t + s.T
        y[j, i] = t
"""
    )
    with pytest.raises(DiagnosticError) as caught:
        compile_source(SourceFile("f.tk", text), None, {}, by_name("90"))
    (found,) = caught.value.diagnostics
    assert found.span is not None
    assert "s.T" in text[found.span.start : found.span.end]
