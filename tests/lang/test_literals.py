"""Literals: what is too large is refused at once, what rounds to a finite number is taken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilec.diagnostics import Diagnostic
from tilec.frontend.fold import fits, largest
from tilec.ir.types import DTYPES
from tilec.source import SourceFile

_KERNEL = "kernel k(x: f32[M], y: out f32[M]):\n    for i in parallel(tiles(M)):\n        y[i] = "


@pytest.mark.parametrize("literal", ["9" * 5000, "1e999", "0x" + "f" * 5000, "1" * 400])
def test_a_number_beyond_every_type_is_refused_where_it_stands(
    literal: str, errors_of: Callable[[SourceFile], list[Diagnostic]]
) -> None:
    (error,) = errors_of(SourceFile("k.tk", f"{_KERNEL}x[i] + {literal}\n"))
    assert error.code == "literal-does-not-fit"
    assert error.span is not None
    assert error.span.text == literal


@pytest.mark.parametrize(("name", "kind"), [("f16", np.float16), ("f32", np.float32)])
def test_the_border_is_where_rounding_gives_infinity(name: str, kind: type) -> None:
    top = float(np.finfo(kind).max)
    assert largest(DTYPES[name]) == top
    step = top - float(np.nextafter(kind(top), kind(0)))
    for value in (top, top + step * 0.49, top + step * 0.5, top + step):
        with np.errstate(over="ignore"):
            assert fits(value, DTYPES[name]) == bool(np.isfinite(kind(value)))
