"""Triton peers: a matrix product and a row softmax as a Triton user would write them.

Idea: a grouped-raster product on tensor descriptors (TMA) and a one-row-a-program softmax, with
the tile sizes that suit Hopper; plain Triton, nothing tuned past what its users do.

Invariants: Triton is imported when a peer is asked for; `None` means that it is not installed.

Never: used by the compiler, or timed without the check that every contestant passes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any


@cache
def _kernels() -> SimpleNamespace | None:
    """The compiled-on-use kernels, or None without Triton."""
    try:
        from benchmarks import triton_source
    except ImportError:
        return None
    return SimpleNamespace(product=triton_source.product, softmax=triton_source.softmax)


def gemm(a: Any, b: Any, c: Any) -> Callable[[], object] | None:
    """c = a @ b.T for row-major a[M, K] and b[N, K]; None where this peer does not apply."""
    kernels = _kernels()
    packed = a.is_contiguous() and b.is_contiguous() and c.is_contiguous()
    if kernels is None or not packed or any(size % 16 for size in (*a.shape, *b.shape)):
        return None
    from triton.tools.tensor_descriptor import TensorDescriptor

    rows, columns, depth = a.shape[0], b.shape[0], a.shape[1]
    block_m, block_n, block_k = (128, 256, 64) if min(rows, columns) >= 2048 else (128, 128, 64)
    tensors = (
        TensorDescriptor.from_tensor(a, [block_m, block_k]),
        TensorDescriptor.from_tensor(b, [block_n, block_k]),
        TensorDescriptor.from_tensor(c, [block_m, block_n]),
    )
    grid = (-(-rows // block_m) * -(-columns // block_n),)

    def launch() -> None:
        kernels.product[grid](
            *tensors,
            rows,
            columns,
            depth,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            GROUP=8,
            num_warps=8,
            num_stages=3,
        )

    return launch


def softmax(x: Any, y: Any) -> Callable[[], object] | None:
    """Y = softmax of each row of x, both row-major."""
    kernels = _kernels()
    if kernels is None or x.stride(-1) != 1 or y.stride(-1) != 1 or x.numel() == 0:
        return None
    rows, columns = x.shape
    block = max(16, 1 << (columns - 1).bit_length())
    warps = min(16, max(1, block // 1024))

    def launch() -> None:
        kernels.softmax[(rows,)](
            x, y, x.stride(0), y.stride(0), columns, BLOCK=block, num_warps=warps
        )

    return launch
