"""Parts of axes and of tiles, stored and loaded, on the machine of this folder."""

from __future__ import annotations

import numpy as np
import pytest

from tests.select.test_strict import on_machine
from tilec.compiler import compile_source, front
from tilec.diagnostics import DiagnosticError
from tilec.interp.interpret import interpret
from tilec.source import SourceFile
from tilec.targets import by_name

PROGRAMS = {
    "halves": """\
kernel k(x: f32[M, 64], y: out f32[M, 64]):
    for i in parallel(tiles(M)):
        a, b = x[i, 0:32], x[i, 32:]
        y[i, 0:32], y[i, 32:] = a - b, a + b
""",
    "parts of what is computed": """\
kernel k(x: f32[M, 64], y: out f32[M, 64]):
    for i in parallel(tiles(M)):
        row = where(x[i, :] > 0, x[i, :], 2) * x[i, 5:6] - rowmax(x[i, :])[:, None]
        y[i, :16] = row[:, 48:]
        y[i, 16:64] = row[:, 3:51][:, 0:48]
""",
    "odd places": """\
kernel k(x: f32[M, 64], y: out f32[M, 64]):
    for i in parallel(tiles(M)):
        y[i, 1:8] = x[i, 56:63] + x[i, 3:10]
        y[i, 0:1], y[i, 8:] = x[i, 9:10], x[i, 7:63]
""",
    "parts of columns": """\
kernel k(x: f32[M, 64], y: out f32[M, 64]):
    for i in parallel(tiles(M)):
        y[i, 0:24] = x[i, 40:].T.T
        flipped = (x[i, :] * 2).T
        y[i, 24:] = flipped[24:, :].T
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("rows", [1, 37, 64])
def test_parts_are_the_elements_that_they_name(name: str, rows: int) -> None:
    text = PROGRAMS[name]
    x = np.random.default_rng(5).standard_normal((rows, 64)).astype(np.float32)
    got, want = np.zeros_like(x), np.zeros_like(x)
    on_machine(text, {"x": x, "y": got}, {"M": 64})
    kernel = front(SourceFile("k.tk", text), None, {}, by_name("90")).kernels[0]
    interpret(kernel, {"x": x, "y": want})
    np.testing.assert_array_equal(got, want)
    if name == "halves":
        np.testing.assert_array_equal(want[:, 32:], x[:, :32] + x[:, 32:])


def test_a_part_of_what_a_loop_gives_is_refused_in_words() -> None:
    text = """\
kernel k(x: f32[M, 64], y: out f32[M, 32]):
    for i in parallel(tiles(M)):
        t = x[i, :]
        for n in range(3):
            t += x[i, :]
        y[i, :] = t[:, 0:32]
"""
    with pytest.raises(DiagnosticError, match="a loop or a branch gives") as raised:
        compile_source(SourceFile("k.tk", text), None, {}, by_name("90"))
    (error,) = raised.value.diagnostics
    assert error.span is not None
    assert error.span.line == 6
