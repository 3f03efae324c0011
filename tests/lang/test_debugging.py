"""``print`` and ``assert``, as the interpreter runs them."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.compiler import front
from tilec.interp.interpret import interpret
from tilec.interp.memory import InterpretError
from tilec.source import SourceFile
from tilec.targets import by_name

TEXT = """\
kernel k(x: f32[M, N], y: out f32[M, N]):
    for i, j in parallel(tiles(M, 32), tiles(N, 16)):
        print("row sums", rowsum(x[i, j]), len(j), "all of", x[i, j])
        assert x[i, j] < 5, "x stays below five"
        y[i, j] = x[i, j]
"""


def run(x: np.ndarray) -> None:
    """The kernel on an array."""
    kernel = front(SourceFile("k.tk", TEXT), None, {}, by_name("90")).kernels[0]
    interpret(kernel, {"x": x, "y": np.zeros_like(x)})


def test_what_exists_is_printed_with_its_indices(capsys: pytest.CaptureFixture[str]) -> None:
    run(np.ones((2, 17), np.float32))
    first, count, whole, _, *rest = capsys.readouterr().out.splitlines()
    assert first == "row sums[0:2]: [16. 16.]"
    assert count == "len(j): 16"
    assert whole == "all of[0:2, 0:16]:"
    assert rest[1:] == [
        "row sums[0:2]: [1. 1.]",
        "len(j): 1",
        "all of[0:2, 16:17]:",
        "[[1.]",
        " [1.]]",
    ]


def test_an_assertion_that_fails_names_its_line_and_an_element() -> None:
    x = np.ones((3, 18), np.float32)
    x[1, 17] = 7
    with pytest.raises(InterpretError, match=r"x stays below five \(element \[1, 17\]") as raised:
        run(x)
    assert raised.value.line == 4


def test_what_does_not_exist_is_not_asserted() -> None:
    run(np.ones((1, 1), np.float32))
