"""Products of every element type and majorness mean the same after every pass of level ``cta``."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tests.passes.programs import Program
from tests.passes.test_meaning import check_everywhere, promised, unpromised
from tilec.ir.facts import Schedule

FORMS = {
    "TN": ("a[i, k] @ b[j, k].T", {"a": "MK", "b": "NK"}, {}),
    "NN": ("a[i, k] @ b[j, k].T", {"a": "MK", "b": "NK"}, {"a": 0}),
    "TT": ("a[i, k] @ b[j, k].T", {"a": "MK", "b": "NK"}, {"b": 0}),
    "NT": ("a[k, i].T @ b[k, j]", {"a": "KM", "b": "KN"}, {}),
}
"""BLAS letters: the operands of the program, their axes, and axes contiguous that are not last."""

TYPES = {
    "f16": ("f16", "f16", "f32", ""),
    "e4m3": ("e4m3", "e5m2", "f32", ""),
    "s8": ("s8", "u8", "s32", ""),
    "tf32": ("tf32", "tf32", "f32", ""),
    "f32": ("f32", "f32", "f32", ""),
    "f32 as tf32": ("f32", "f32", "f32", "tf32"),
}


def gemm(types: str, form: str) -> Program:
    """A product of two arrays, in one of the forms."""
    left, right, summed, precision = TYPES[types]
    operands, shapes, units = FORMS[form]
    if precision:
        operands = f"dot({operands.replace(' @ ', ', ')}, precision={precision})"
    a, b = (", ".join(shapes[name]) for name in "ab")
    text = f"""
kernel f(a: {left}[{a}], b: {right}[{b}], c: out {summed}[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[{summed}](i, j)
        for k in tiles(K):
            acc += {operands}
        c[i, j] = acc
"""
    means = {"NT": lambda x: {"c": x.a.T @ x.b}}.get(form, lambda x: {"c": x.a @ x.b.T})
    sizes = {"M": 150, "N": 88, "K": 80}
    return Program(text, {**shapes, "c": "MN"}, means, sizes=sizes, units=units)


@pytest.mark.parametrize(("types", "form"), list(product(TYPES, FORMS)))
def test_every_type_and_form_is_a_product(types: str, form: str) -> None:
    program = gemm(types, form)
    check_everywhere(program, promised(program, program.sizes, 16), Schedule())


@pytest.mark.parametrize("types", TYPES)
def test_nothing_need_be_known_of_the_arrays(types: str) -> None:
    program = gemm(types, "TN")
    check_everywhere(program, unpromised(program.sizes), Schedule())


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (17, 200, 0), (65, 20, 33)])
def test_edges_of_every_type(types: str, sizes: tuple[int, int, int]) -> None:
    named = dict(zip("MNK", sizes, strict=True))
    program = replace(gemm(types, "NT"), sizes=named)
    check_everywhere(program, promised(program, named, 1), Schedule())
