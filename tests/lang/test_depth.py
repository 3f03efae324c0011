"""Long programs compile; deep ones are refused where they are too deep, and overflow no stack."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilec
from tilec.compiler import compile_source
from tilec.diagnostics import Diagnostic
from tilec.source import SourceFile
from tilec.targets import by_name

_HEAD = "kernel k(x: f32[M], y: out f32[M]):\n    for i in parallel(tiles(M)):\n"


def stored(value: str) -> str:
    """A kernel that stores a value."""
    return f"{_HEAD}        y[i] = {value}\n"


def test_a_chain_of_any_length_means_what_a_short_one_does() -> None:
    x = np.arange(5, dtype=np.float32)
    y = np.empty_like(x)
    tilec.compile(stored(" + ".join(["x[i]"] * 700) + " - x[i] * 2 * 2 / 2")).k(x, y)
    assert np.array_equal(y, x * 698)


@pytest.mark.parametrize("operator", ["+", "*", "-"])
def test_a_chain_compiles(operator: str) -> None:
    text = stored(f" {operator} ".join(["x[i]"] * 400))
    assert compile_source(SourceFile("k.tk", text), "k", {}, by_name("90")).ptx


@pytest.mark.parametrize(
    "text",
    [
        stored("-" * 2000 + "x[i]"),
        stored("(" * 3000 + "x[i]" + ")" * 3000),
        stored("exp(" * 150 + "x[i]" + ")" * 150),
        stored("x[i] + (" * 150 + "x[i]" + ")" * 150),
        stored("2 ** " * 2000 + "1"),
        _HEAD
        + "".join(f"{' ' * 4 * n}if M > {n}:\n" for n in range(2, 120))
        + " " * 480
        + "pass\n",
        f"{_HEAD}        if M > 0:\n            y[i] = x[i]\n"
        + "".join(f"        elif M > {n}:\n            y[i] = x[i]\n" for n in range(1, 300)),
        "fn g0(x):\n    return x\n"
        + "".join(f"fn g{n}(x):\n    return g{n - 1}(x)\n" for n in range(1, 300))
        + stored("g299(x[i])"),
    ],
    ids=["signs", "parentheses", "calls", "sums", "powers", "blocks", "elif", "functions"],
)
def test_what_is_too_deep_is_refused_at_its_place(
    text: str, errors_of: Callable[[SourceFile], list[Diagnostic]]
) -> None:
    (error,) = errors_of(SourceFile("k.tk", text))
    assert error.code == "nested-too-deeply"
    assert error.span is not None
    assert error.span.text


def test_what_people_write_is_not_too_deep(
    errors_of: Callable[[SourceFile], list[Diagnostic]],
) -> None:
    text = stored("exp(" * 20 + "(" * 20 + "-" * 20 + "x[i]" + ")" * 40)
    assert errors_of(SourceFile("k.tk", text)) == []
