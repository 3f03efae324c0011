"""Products along known axes of any extent: padded for the instructions, unseen by the program."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.passes.programs import Program
from tests.passes.test_meaning import check_everywhere, promised, unpromised
from tilec import pipeline
from tilec.compiler import front, prepare
from tilec.interp.interpret import choose_sizes, interpret
from tilec.ir.facts import Facts, Schedule
from tilec.passes.base import Context
from tilec.runtime import trial
from tilec.source import SourceFile
from tilec.targets import by_name


def weighted(d: int, e: int) -> Program:
    """Two products in a row, of which one has its known axis inside and the other outside."""

    def means(x: Any) -> dict[str, np.ndarray]:
        total = (x.q @ x.k.T) @ x.v
        return {"o": total + x.b + x.w[:, None] * x.b, "s": total.sum(1) + e}

    text = f"""
kernel f(q: bf16[M, {d}], k: bf16[N, {d}], v: bf16[N, {e}], b: f32[{e}], w: f32[M],
         o: out f32[M, {e}], s: out f32[M]):
    for i in parallel(tiles(M)):
        acc = zeros[f32](i, {e})
        for j in tiles(N):
            p = q[i, :] @ k[j, :].T
            acc = acc + cast[bf16](p) @ v[j, :]
        s[i] = rowsum(acc + 1.0)
        o[i, :] = acc + b[:][None, :] + w[i][:, None] * b[:][None, :]
"""
    sizes = {"M": 70, "N": 50, "D": d, "E": e}
    shapes = {"q": "MD", "k": "ND", "v": "NE", "b": "E", "w": "M", "o": "ME", "s": "M"}
    return Program(text, shapes, means, sizes=sizes)


def known(types: tuple[str, str, str], m: int, n: int, k: int, form: str) -> Program:
    """One product of which every axis is known."""
    a, b, c = types
    left = f"{k}, {m}" if form[0] == "N" else f"{m}, {k}"
    right = f"{k}, {n}" if form[1] == "T" else f"{n}, {k}"
    x = "a[:, :].T" if form[0] == "N" else "a[:, :]"
    y = "b[:, :]" if form[1] == "T" else "b[:, :].T"
    text = f"""
kernel f(a: {a}[{left}], b: {b}[{right}], c: out {c}[B, {m}, {n}]):
    for h in parallel(B):
        c[h, :, :] = {x} @ {y}
"""
    sizes = {"B": 2, "M": m, "N": n, "K": k}
    shapes = {
        "a": "KM" if form[0] == "N" else "MK",
        "b": "KN" if form[1] == "T" else "NK",
        "c": "BMN",
    }

    def means(x: Any) -> dict[str, np.ndarray]:
        one = (x.a.T if form[0] == "N" else x.a) @ (x.b if form[1] == "T" else x.b.T)
        return {"c": np.stack([one, one])}

    return Program(text, shapes, means, sizes=sizes)


@pytest.mark.parametrize(("d", "e"), [(1, 1), (7, 20), (72, 72), (40, 8), (80, 1), (64, 33)])
@pytest.mark.parametrize("alignment", [1, 16])
def test_a_chain_of_products(d: int, e: int, alignment: int) -> None:
    program = weighted(d, e)
    check_everywhere(program, promised(program, program.sizes, alignment), Schedule())


TYPES = (("bf16", "bf16", "f32"), ("s8", "u8", "s32"), ("tf32", "tf32", "f32"))


@pytest.mark.parametrize(
    ("types", "sizes", "form"),
    list(product(TYPES, [(64, 16, 32), (20, 20, 7), (1, 40, 1), (65, 72, 100)], ["TN", "NT"])),
)
def test_every_axis_may_be_known(types: Any, sizes: tuple[int, int, int], form: str) -> None:
    program = known(types, *sizes, form)
    check_everywhere(program, promised(program, program.sizes, 16), Schedule())
    check_everywhere(program, unpromised(program.sizes), Schedule())


@pytest.mark.parametrize(("d", "e"), [(1, 20), (72, 40)])
def test_every_pass_keeps_the_meaning_of_padding(d: int, e: int) -> None:
    source = SourceFile("f.tk", weighted(d, e).text.lstrip())
    target = by_name("90")
    module = front(source, None, {}, target)
    dims = {"M": 70, "N": 50}
    prepare(module, Facts((), tuple(dims.items())), Schedule())
    inputs = trial.make_inputs(module.kernels[0], dims, {}, seed=3)
    reference = trial.on_interpreter(module.kernels[0], inputs, choice=1, wide=True)
    explicit = False
    for name in pipeline.PIPELINE[: pipeline.position("apply-tiles") + 1]:
        pipeline.step(module, pipeline.find_pass(name), Context(target))
        explicit = explicit or name == "fill-padding"
        kernel = module.kernels[0]
        arrays = {k: v.copy() for k, v in inputs.arrays.items()}
        sizes = choose_sizes(kernel, inputs.dims)
        interpret(kernel, arrays, inputs.scalars, sizes, explicit=explicit, wide=True)
        written = {
            k: arrays[k] for k, t in trial.array_parameters(kernel).items() if t.mode != "in"
        }
        for row in trial.compare(kernel, trial.Trial(written, 0.0, name), reference):
            assert row.ok, (name, row)
