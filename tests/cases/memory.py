"""Offsets that leave 32 bits, indices that leave arrays, and what may not move past what."""

from __future__ import annotations

import numpy as np

from tests.cases.case import Runner, case, normal
from tilec.ir.types import DTYPES
from tilec.runtime.arrays import ArrayView
from tilec.runtime.specialise import array_facts, effective_strides
from tilec.targets import by_name

ROWS = """
kernel rows(x: f32[M, 16], ids: s32[N], y: out f32[N, 16]):
    for i in parallel(tiles(N)):
        y[i, :] = x.at(ids[i], :, fill=0)
"""


def _offsets_are_wide(ptx: str) -> bool:
    """Whether something is multiplied in 64 bits, and no address is made of a 32-bit product."""
    return "mul.lo.s64" in ptx or "mad.lo.s64" in ptx or "mul.wide" in ptx or "mad.wide" in ptx


@case("SO-01", "strides-offsets", "microsoft/dion PR#102")
def far_batches(run: Runner) -> None:
    """Offsets of a batch beyond 2^31 elements are computed in 64 bits without a cast."""
    text = """
kernel batches(x: f32[B, M, N], y: out f32[B, M, N]):
    for b, i in parallel(B, tiles(M)):
        y[b, i, :] = x[b, i, :] * 2
"""
    kernel = run.kernel(text)
    shape, strides = (320, 1920, 4096), (7_864_320, 4096, 1)
    views = {n: ArrayView(1 << 40, shape, strides, "f32", ("cuda", 0), None) for n in ("x",)}
    views["y"] = ArrayView(1 << 44, shape, strides, "f32", ("cuda", 0), None)
    target = by_name("90")
    ptx = kernel.compile(kernel.sort_out(views, {}, target), target).ptx
    assert _offsets_are_wide(ptx)
    x = normal(1, 3, 5, 16)
    np.testing.assert_array_equal(run(text, x=x), x * 2)


@case("SO-03", "strides-offsets", "databricks/megablocks PR#185")
def far_rows(run: Runner) -> None:
    """Row numbers from memory are widened before they are multiplied by the width of a row."""
    kernel = run.kernel(ROWS)
    views = {
        "x": ArrayView(1 << 40, (700_000, 16), (4096, 1), "f32", ("cuda", 0), None),
        "ids": ArrayView(1 << 30, (8,), (1,), "s32", ("cuda", 0), None),
        "y": ArrayView(1 << 31, (8, 16), (16, 1), "f32", ("cuda", 0), None),
    }
    target = by_name("90")
    assert _offsets_are_wide(kernel.compile(kernel.sort_out(views, {}, target), target).ptx)
    x = normal(1, 9, 16)
    ids = np.array([8, 0, 3], np.int32)
    np.testing.assert_array_equal(run(ROWS, x=x, ids=ids), x[ids])


@case("SO-07", "strides-offsets", "NVIDIA/warp#1653")
def rows_before_a_view(run: Runner) -> None:
    """Negative rows are outside: they neither wrap around nor read what lies before a view."""
    memory = np.full((6, 16), 999, np.float32)
    src = memory[1:5]
    src[:] = np.arange(64).reshape(4, 16)
    out = run(ROWS, x=src, ids=np.array([-1, 0, 3, 4], np.int32))
    expected = np.stack([np.zeros(16), src[0], src[3], np.zeros(16)])
    np.testing.assert_array_equal(out, expected)


@case("SO-09", "strides-offsets", "NVIDIA/cutlass#2715")
def strides_of_33_bits(run: Runner) -> None:
    """A stride of 2^32 elements reaches the launch whole."""
    for extent in (65536, 32768):
        shape, strides = (2, extent, extent), (extent * extent, extent, 1)
        view = ArrayView(1 << 40, shape, strides, "bf16", ("cuda", 0), None)
        assert effective_strides(view)[0] == extent * extent
        assert view.strides_bytes[0] == 2 * extent * extent
        assert array_facts(view).alignment == 16
    assert DTYPES["bf16"].bits == 16


@case("SO-11", "strides-offsets", "jax-ml/jax#21143")
def window_past_the_end(run: Runner) -> None:
    """A window that reaches over the end is filled there, and not moved; stores drop there."""
    text = """
kernel window(x: f32[N], first: s32, y: out f32[W], z: inout f32[N]):
    for i in parallel(tiles(W)):
        y[i] = x.at(i + first, fill=-1)
        z.at(i + first, drop) = full[f32](i, 5)
"""
    x = np.arange(8, dtype=np.float32)
    y, z = run(text, x=x, first=3, y=np.empty(8, np.float32), z=np.zeros(8, np.float32))
    np.testing.assert_array_equal(y, [3, 4, 5, 6, 7, -1, -1, -1])
    np.testing.assert_array_equal(z, [0, 0, 0, 5, 5, 5, 5, 5])


@case("IN-03", "integration", "numpy/numpy#20337", refusal="array-is-read-only")
def read_only_arrays(run: Runner) -> None:
    """A read-only array may be read; written it is refused, and stays as it was."""
    text = """
kernel twice(x: f32[N], y: out f32[N]):
    for i in parallel(tiles(N)):
        y[i] = x[i] * 2
"""
    frozen = np.ones(8, np.float32)
    frozen.flags.writeable = False
    assert (run(text, x=frozen) == 2).all()
    run.refused(text, "array-is-read-only", "leave y out", x=np.ones(8, np.float32), y=frozen)
    assert (frozen == 1).all()


@case("IN-05", "integration", "pytorch/pytorch#147828")
def padded_pitch(run: Runner) -> None:
    """Sums of arrays with padded rows, and an update of some columns of a larger workspace."""
    text = """
kernel add(x: f32[M, N], y: f32[M, N], z: inout f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        z[i, j] = z[i, j] + x[i, j] + y[i, j]
"""
    x, y = normal(1, 64, 104)[:, :100], normal(2, 64, 104)[:, :100]
    memory = np.full((64, 200), 7, np.float32)
    memory[:, :100] = 0
    run(text, x=x, y=y, z=memory[:, :100])
    np.testing.assert_array_equal(memory[:, :100], x + y)
    assert (memory[:, 100:] == 7).all()
