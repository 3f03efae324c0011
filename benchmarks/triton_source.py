"""The Triton kernels themselves; importing this module needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def product(  # type: ignore[no-untyped-def,unused-ignore]
    a,
    b,
    c,
    rows,
    columns,
    depth,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """One tile of c = a @ b.T; programs walk down GROUP tile rows before the next tile column."""
    number = tl.program_id(0)
    tile_rows = tl.cdiv(rows, BLOCK_M)
    tile_columns = tl.cdiv(columns, BLOCK_N)
    per_group = GROUP * tile_columns
    first = (number // per_group) * GROUP
    height = tl.minimum(tile_rows - first, GROUP)
    row = (first + (number % per_group) % height) * BLOCK_M
    column = ((number % per_group) // height) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, depth, BLOCK_K):
        left = a.load([row, k])
        right = b.load([column, k])
        total = tl.dot(left, right.T, total)
    c.store([row, column], total.to(c.dtype))


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def softmax(x, y, x_pitch, y_pitch, columns, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def,unused-ignore]
    """One row."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < columns
    values = tl.load(x + row * x_pitch + place, mask=inside, other=float("-inf")).to(tl.float32)
    weights = tl.exp(values - tl.max(values, axis=0))
    result = weights / tl.sum(weights, axis=0)
    tl.store(y + row * y_pitch + place, result.to(y.dtype.element_ty), mask=inside)
