"""What the page lists as refused where it is compiled: it means something, and is refused in words.

When a pass learns one of these, this test fails, and the page has to be changed with it.
"""

from __future__ import annotations

import pytest

from tilec.compiler import compile_source
from tilec.diagnostics import DiagnosticError
from tilec.frontend.check import check
from tilec.frontend.parse import parse
from tilec.source import SourceFile
from tilec.targets import by_name

_NARROW = ("s8", "s16", "u8", "u16")
_STORED = ("e4m3", "e5m2", "tf32")


def kernel(head: str, line: str) -> SourceFile:
    """A kernel of one line over rows."""
    text = f"kernel k({head}):\n    for i in parallel(tiles(M)):\n        {line}\n"
    return SourceFile("k.tk", text)


def cast(source: str, target: str) -> SourceFile:
    """A kernel that converts."""
    return kernel(f"x: {source}[M, N], y: out {target}[M, N]", f"y[i, :] = cast[{target}](x[i, :])")


REFUSED = [
    kernel("x: u8[M], y: inout u8[M]", "y[i] += x[i]"),
]
COMPILED = [
    kernel("x: f64[M, 64], y: out f64[M]", "strict:\n            y[i] = rowsum(x[i, :])"),
    *(
        kernel("x: f32[M, N], y: out f32[M]", f"y[i] = where({f}(x[i, :] > 0, axis=1), 1.0, 0.0)")
        for f in ("any", "all")
    ),
    *(
        kernel(f"a: {t}[M, 16], b: {t}[64, 16], y: out {t}[M, 64]", "y[i, :] = a[i, :] @ b[:, :].T")
        for t in ("f32", "f64")
    ),
    kernel("a: bf16[M, 64], b: bf16[7, 64], y: out f32[M, 7]", "y[i, :] = a[i, :] @ b[:, :].T"),
    kernel("a: bf16[M, 1], b: bf16[64, 1], y: out f32[M, 64]", "y[i, :] = a[i, :] @ b[:, :].T"),
    *(
        kernel(f"a: {a}[M, 64], b: {b}[64, 64], y: out {y}[M, 64]", "y[i, :] = a[i, :] @ b[:, :]")
        for a, b, y in (("e4m3", "e5m2", "f32"), ("u8", "s8", "s32"), ("tf32", "tf32", "f32"))
    ),
    *(
        kernel("x: f32[M, N], y: out f32[M]", f"y[i] = where({f}(x[i, :] > 0, axis=1), 1.0, 0.0)")
        for f in ("any", "all")
    ),
    *(
        kernel(f"x: {t}[M, N], y: out {t}[M]", "y[i] = rowmax(x[i, :])")
        for t in ("f32", "f64", "f16", "bf16", "s32", "u32", "s64", "u64", *_NARROW)
    ),
    *(kernel(f"x: {t}[M, N], y: out {t}[M, N]", "y[i, :] = x[i, :] + 1") for t in _NARROW),
    *(cast(t, "f32") for t in (*_NARROW, *_STORED)),
    *(cast("f32", t) for t in (*_NARROW, *_STORED)),
    *(
        kernel("x: f64[M, N], y: out f64[M, N]", f"y[i, :] = {f}(x[i, :])")
        for f in ("abs", "sqrt", "2 *", "exp", "exp2", "log", "log2", "rsqrt", "tanh")
    ),
    kernel("a: bf16[M, 80], b: bf16[48, 80], y: out f32[M, 48]", "y[i, :] = a[i, :] @ b[:, :].T"),
]


@pytest.mark.parametrize("source", REFUSED, ids=lambda s: s.text.splitlines()[2].strip())
def test_it_is_understood_and_refused(source: SourceFile) -> None:
    assert check(parse(source), {}).kernels
    with pytest.raises(DiagnosticError):
        compile_source(source, "k", {}, by_name("90"))


@pytest.mark.parametrize("source", COMPILED, ids=lambda s: s.text.splitlines()[2].strip())
def test_what_is_next_to_it_compiles(source: SourceFile) -> None:
    assert compile_source(source, "k", {}, by_name("90")).ptx
