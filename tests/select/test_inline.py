"""Instructions that an author wrote, on the machine of this folder: what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest

from tests.select.test_strict import on_machine
from tilec.compiler import compile_source, front
from tilec.interp.interpret import interpret
from tilec.interp.memory import InterpretError
from tilec.source import SourceFile
from tilec.targets import by_name

SHAPE = (5, 70)
TEXT = """\
fn said(x, n):
    {meaning}

kernel k(x: {x}[M, N], n: s32[M, N], y: out {y}[M, N]):
    for i in parallel(tiles(M)):
        y[i, :] = ptx[{y}]("{text}", x[i, :], n[i, :], meaning=said)
"""
CASES = {
    "fused": ("f32", "f32", "fma.rn.f32 {0}, {1}, 2.0, {1};", "return x * 3"),
    "chosen by a guard": (
        "f32", "f32",
        ".reg .pred p; setp.lt.f32 p, {1}, 0.0; mov.f32 {0}, 1.5; @p mov.f32 {0}, {1};",
        "return where(x < 0, x, 1.5)",
    ),
    "chosen where a guard fails": (
        "f32", "f32",
        ".reg .pred p; setp.lt.f32 p, {1}, 0.0; mov.f32 {0}, {1}; @!p add.f32 {0}, {0}, 1.0;",
        "return where(x < 0, x, x + 1)",
    ),
    "bits of a float": ("f32", "f32", "and.b32 {0}, {1}, 0x7FFFFFFF;", "return abs(x)"),
    "a local of bits": (
        "f32", "f32",
        ".reg .b32 t; mov.b32 t, {1}; add.s32 t, t, 0x00800000; mov.b32 {0}, t;",
        "return x * 2",
    ),
    "halves": (
        "s32", "s32",
        ".reg .b16 low, high; mov.b32 {low, high}, {1}; mov.b32 {0}, {high, low};",
        "return (x << 16) | ((x >> 16) & 65535)",
    ),
    "narrow floats": ("bf16", "bf16", "neg.bf16 {0}, {1};", "return -x"),
    "a predicate": ("f32", "bool", "setp.gt.f32 {0}, {1}, 0.25;", "return x > 0.25"),
    "wide": ("s32", "s64", "mul.wide.s32 {0}, {1}, {2};", "return cast[s64](x) * cast[s64](n)"),
    "shifted": ("s32", "s32", "shl.b32 {0}, {1}, 3;", "return x * 8"),
    "converted": ("f32", "s32", "cvt.rzi.s32.f32 {0}, {1};", "return cast[s32](x)"),
}  # fmt: skip


def data(dtype: str) -> np.ndarray:
    """Nonzero numbers of both signs, as they are stored."""
    generator = np.random.default_rng(3)
    numbers = generator.integers(1, 1000, SHAPE) * generator.choice([-1, 1], SHAPE)
    if dtype == "s32":
        return numbers.astype(np.int32) * 65537
    wide = (numbers / 8).astype(np.float32)
    return wide if dtype == "f32" else (wide.view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("name", CASES)
def test_instructions_compute_what_they_are_said_to(name: str) -> None:
    x_type, y_type, text, meaning = CASES[name]
    source = TEXT.replace("{text}", text).replace("{meaning}", meaning)
    source = source.replace("{x}", x_type).replace("{y}", y_type)
    x, n = data(x_type), data("s32") // 65537
    kinds = {
        "f32": np.float32,
        "s32": np.int32,
        "s64": np.int64,
        "bf16": np.uint16,
        "bool": np.uint8,
    }
    got, want = np.zeros(SHAPE, kinds[y_type]), np.zeros(SHAPE, kinds[y_type])
    on_machine(source, {"x": x, "n": n, "y": got}, {"N": 128})
    kernel = front(SourceFile("k.tk", source), None, {}, by_name("90")).kernels[0]
    interpret(kernel, {"x": x, "n": n, "y": want})
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", CASES)
def test_the_text_assembles(name: str) -> None:
    from tilec.backend_ptx.assemble import assemble, find_tool

    if find_tool("ptxas") is None:
        pytest.skip("no ptxas here")
    x_type, y_type, text, meaning = CASES[name]
    source = TEXT.replace("{text}", text).replace("{meaning}", meaning)
    source = source.replace("{x}", x_type).replace("{y}", y_type)
    compiled = compile_source(SourceFile("k.tk", source), None, {}, by_name("90"))
    assert assemble(compiled.ptx, "sm_90a")


def test_the_interpreter_says_that_it_runs_no_ptx() -> None:
    source = """\
kernel k(x: f32[M], y: out f32[M]):
    for i in parallel(tiles(M)):
        z = ptx[f32]("mov.f32 {0}, {1};", x[i])
        y[i] = z
"""
    kernel = front(SourceFile("k.tk", source), None, {}, by_name("90")).kernels[0]
    x = np.zeros(4, np.float32)
    with pytest.raises(InterpretError, match="meaning=fn") as raised:
        interpret(kernel, {"x": x, "y": x.copy()})
    assert raised.value.line == 3
