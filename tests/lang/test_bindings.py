"""Compile-time parameters from outside: command line texts and Python values."""

from __future__ import annotations

import pytest

from tilec.diagnostics import DiagnosticError
from tilec.frontend.check import check
from tilec.frontend.checked import ArrayType, CheckedKernel
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.ir.types import DTYPES
from tilec.source import SourceFile

TEXT = """\
kernel one[T: dtype = bf16, D: int = 64, FAST: bool = false, EPS: float = 1e-5](
        a: T[M, D], c: out f32[M, D]):
    for i in parallel(tiles(M)):
        x = cast[f32](a[i, :]) + EPS
        if FAST:
            x = exp2(x)
        c[i, :] = x

kernel two(a: f32[M], c: out f32[M]):
    for i in parallel(tiles(M)):
        c[i] = a[i]
"""


def checked(kernel: str | None = "one", **bindings: object) -> CheckedKernel:
    """The first kernel with these bindings."""
    return check(parse(SourceFile("b.tk", TEXT)), bindings, kernel).kernels[0]


def codes(kernel: str | None = "one", **bindings: object) -> list[str]:
    """Codes of the errors that these bindings give."""
    with pytest.raises(DiagnosticError) as raised:
        checked(kernel, **bindings)
    return [e.code for e in raised.value.diagnostics]


def test_defaults_serve_when_nothing_is_bound() -> None:
    assert checked().bindings == {"T": DTYPES["bf16"], "D": 64, "FAST": False, "EPS": 1e-5}


@pytest.mark.parametrize(("dtype", "d", "fast"), [("f16", "80", "true"), (DTYPES["f16"], 80, True)])
def test_texts_and_values_bind_alike(dtype: object, d: object, fast: object) -> None:
    kernel = checked(T=dtype, D=d, FAST=fast)
    assert kernel.bindings == {"T": DTYPES["f16"], "D": 80, "FAST": True, "EPS": 1e-5}
    assert kernel.parameters[0].type == ArrayType(DTYPES["f16"], ("M", 80), "in")


@pytest.mark.parametrize(
    "bindings", [{"T": "f31"}, {"D": "x"}, {"D": 1.5}, {"D": True}, {"FAST": "maybe"}, {"EPS": "a"}]
)
def test_values_of_another_kind_are_refused(bindings: dict[str, object]) -> None:
    assert codes(**bindings) == ["bad-parameter"]


def test_a_parameter_that_no_kernel_has_is_refused() -> None:
    assert codes(N=3) == ["unknown-parameter"]
    assert codes("two", D=3) == ["unknown-parameter"]


def test_a_zero_extent_is_no_dimension() -> None:
    assert set(codes(D=0)) == {"bad-dimension"}


def test_a_kernel_that_is_not_there_is_refused_by_check_and_by_lower() -> None:
    assert codes("tow") == ["no-such-kernel"]
    module = check(parse(SourceFile("b.tk", TEXT)), {})
    assert [k.name for k in module.kernels] == ["one", "two"]
    with pytest.raises(DiagnosticError, match="did you mean `two`"):
        lower(module, "tow")


def test_a_file_without_kernels_has_none_to_check() -> None:
    with pytest.raises(DiagnosticError, match="has no kernel"):
        check(parse(SourceFile("empty.tk", "# nothing\n")), {})


def test_only_the_chosen_branch_is_compiled() -> None:
    from tilec.ir.printer import module_text

    source = parse(SourceFile("b.tk", TEXT))
    texts = [module_text(lower(check(source, {"FAST": f}), "one")) for f in (False, True)]
    assert ["math.exp2" in text for text in texts] == [False, True]
