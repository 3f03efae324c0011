"""Sums inside ``strict:`` on the machine of this folder: the interpreter's bits, on any layout.

Data are spread over forty powers of two, so that another order of a sum shows in its last bits.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.select.simt import Array, Machine
from tilec import pipeline
from tilec.compiler import default_facts, front, prepare
from tilec.interp.interpret import interpret
from tilec.ir.facts import Facts, Schedule
from tilec.ir.levels import fold
from tilec.passes.base import Context
from tilec.source import SourceFile
from tilec.targets import by_name

ROWS = """\
kernel rows(x: f32[M, N], w: f32[N], y: out f32[M]):
    for i in parallel(tiles(M, 16)):
        strict:
            row = x[i, :] * w[:][None, :] + 1.5
            y[i] = rowsum(row)
"""
TILES = """\
kernel tiles_of_rows(x: f32[M, N], w: f32[N], y: out f32[M]):
    for i in parallel(tiles(M, 16)):
        total = zeros[f32](i)
        for j in tiles(N, 48):
            strict:
                total += rowsum(x[i, j]) * prod(0.75 + min(abs(w[j]), 0.5), axis=0)
        y[i] = total
"""
COLUMNS = """\
kernel columns(x: f32[M, N], w: f32[N], y: out f32[N]):
    for j in parallel(tiles(N, 32)):
        total = zeros[f32](j)
        for i in tiles(M, 64):
            strict:
                total += sum(x[i, j] * w[j][None, :], axis=0)
        y[j] = total
"""
DTYPES = {"f32": np.float32, "f64": np.float64}
SHAPES = [(16, 64), (17, 48), (5, 1), (33, 130), (70, 200), (3, 513)]


def values(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Numbers of both signs whose sums round."""
    generator = np.random.default_rng(seed)
    data = generator.standard_normal(shape) * 2.0 ** generator.integers(-20, 20, shape)
    return data.astype(np.float32)


def on_machine(text: str, arrays: dict[str, np.ndarray], extents: dict[str, int]) -> None:
    """Run the selected instructions; arrays are written in place."""
    target = by_name("90")
    module = front(SourceFile("k.tk", text), None, {}, target)
    facts = Facts(default_facts(module.kernels[0]).arrays, tuple(extents.items()))
    facts = Facts(tuple((n, type(f)(f.unit_axis, 4)) for n, f in facts.arrays), facts.extents)
    prepare(module, facts, Schedule())
    pipeline.run(module, Context(target), stop_after="select-instructions")
    stored = {}
    for name, data in arrays.items():
        steps = tuple(s // data.itemsize for s in data.strides)
        stored[name] = Array(data.reshape(-1).view(np.uint8).copy(), 0, data.shape, steps)
    found = Machine(module.kernels[0], stored).run()
    for name, data in arrays.items():
        data[...] = found[name].view(data.dtype).reshape(data.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("text", [ROWS, TILES, COLUMNS], ids=["rows", "tiles", "columns"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_strict_sums_agree_with_the_interpreter_bit_for_bit(
    text: str, shape: tuple[int, int], dtype: str
) -> None:
    out, kind = shape[1] if text is COLUMNS else shape[0], DTYPES[dtype]
    text = text.replace("f32", dtype)
    x, w = values(shape, 1).astype(kind) / 3, values(shape[1:], 2).astype(kind)
    got, want = np.zeros(out, kind), np.zeros(out, kind)
    on_machine(text, {"x": x, "w": w, "y": got}, {"N": 1024})
    kernel = front(SourceFile("k.tk", text), None, {}, by_name("90")).kernels[0]
    interpret(kernel, {"x": x, "w": w, "y": want})
    assert np.isfinite(want).all()  # of a NaN or an infinity the order does not show
    np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


def test_another_order_has_other_bits() -> None:
    x, w = values((64, 513), 1), np.ones(513, np.float32)
    strict, free = np.zeros(64, np.float32), np.zeros(64, np.float32)
    on_machine(ROWS, {"x": x, "w": w, "y": strict}, {"N": 1024})
    loose = ROWS.replace("strict:", "if true:")
    on_machine(loose, {"x": x, "w": w, "y": free}, {"N": 1024})
    assert (strict != free).any()
    np.testing.assert_allclose(strict, free, rtol=1e-3, atol=1)


def test_all_three_kinds_of_folds_are_run() -> None:
    module = front(SourceFile("k.tk", ROWS), None, {}, by_name("90"))
    facts = default_facts(module.kernels[0])
    prepare(module, facts, Schedule())
    pipeline.run(module, Context(by_name("90")), stop_after="form-ctas")
    made = [op for op in module.kernels[0].body.walk() if isinstance(op, fold.Fold)]
    spaces = {fold.outermost(op.x.type.layout, op.axis).space for op in made}
    assert spaces == {"reg", "lane"}
    assert any(isinstance(op, fold.FoldWarps) for op in module.kernels[0].body.walk())
