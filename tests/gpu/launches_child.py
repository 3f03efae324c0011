"""Several launches and their workspace on a GPU: graphs, streams, threads, frameworks, shares.

Idea: each check computes with a kernel of three launches, or a product in shares, in a setting
where workspace that is shared or lent too long would show as wrong numbers.  Prints one line a
check and ends with 1 if one failed.

Never: runs without a time limit (`test_launches` starts it).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

import tilec

TEXT = """
kernel centred(x: f32[M, N], y: out f32[M, N]):
    sums = temp[f32](N)
    rows = temp[f32](3, M, N)
    for j in parallel(tiles(N)):
        total = zeros[f32](j)
        for i in tiles(M):
            total += sum(x[i, j], axis=0)
        sums[j] = total
    for i, j in parallel(tiles(M), tiles(N)):
        rows[1, i, j] = x[i, j] * cast[f32](M) - sums[j][None, :]
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = rows[1, i, j] / cast[f32](M)
"""
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_ROUNDS = 40


def close(found: torch.Tensor, x: torch.Tensor) -> None:
    """The result is x without the mean of its columns."""
    wide = x.double()
    torch.testing.assert_close(found.double(), wide - wide.mean(0), rtol=1e-4, atol=1e-4)


def graphs() -> None:
    """A captured call is replayed on new inputs, while other calls use the allocator."""
    k = tilec.compile(TEXT).centred
    x, y = torch.randn(300, 517, device="cuda"), torch.empty(300, 517, device="cuda")
    k(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        k(x, y)
        k(x, y)
    for _ in range(_ROUNDS):
        x.copy_(torch.randn_like(x))
        other = k(torch.randn(300, 517, device="cuda") * 1e3)
        y.fill_(float("nan"))
        graph.replay()
        close(y, x)
        assert torch.isfinite(other).all()


def streams() -> None:
    """Threads on streams of their own, and on one stream, do not disturb each other."""
    k = tilec.compile(TEXT).centred
    k(torch.randn(260, 260, device="cuda"))
    shared = torch.cuda.Stream()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            stream = shared if number % 2 else torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(_ROUNDS):
                    x = torch.randn(260, 260 + 8 * (number % 3), device="cuda")
                    found = k(x)
                    stream.synchronize()
                    close(found, x)
        except BaseException as error:  # handed to the main thread, which raises it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def other_arrays() -> None:
    """NumPy arrays, and arrays that only have the CUDA array interface, borrow from the pool."""
    k = tilec.compile(TEXT).centred

    host = np.random.default_rng(0).standard_normal((100, 77)).astype(np.float32)
    close(torch.from_numpy(k(host)), torch.from_numpy(host))
    x = torch.randn(200, 130, device="cuda")
    for _ in range(_ROUNDS):
        y = torch.full_like(x, float("nan"))
        torch.cuda.synchronize()
        k(_View(x), _View(y))
        torch.cuda.synchronize()
        close(y, x)


class _View:
    """An array of which nothing is known but the CUDA array interface."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """The tensor's own."""
        found: dict[str, object] = self._tensor.__cuda_array_interface__
        return found


def cupy_graphs() -> None:
    """A call of cupy arrays is captured too: its workspace is a node of the graph."""
    try:
        import cupy  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        print("cupy is not installed: not run")
        return
    k = tilec.compile(TEXT).centred
    x, y = cupy.random.standard_normal((90, 333)).astype("f"), cupy.empty((90, 333), "f")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        k(x, y)
        stream.synchronize()
        stream.begin_capture()
        k(x, y)
        graph = stream.end_capture()
        for _ in range(_ROUNDS):
            x[...] = cupy.random.standard_normal(x.shape).astype("f")
            y.fill(cupy.nan)
            graph.launch(stream)
            stream.synchronize()
            close(torch.as_tensor(cupy.asnumpy(y)), torch.as_tensor(cupy.asnumpy(x)))


def shares() -> None:
    """A product in shares is the product, and the same bits twice."""
    gemm = tilec.load(str(EXAMPLES / "gemm.tk")).gemm
    for m, n, k in ((128, 256, 4096), (100, 300, 8200), (64, 64, 64), (65, 1, 1000)):
        a, b = (torch.randn(r, k, device="cuda").bfloat16() for r in (m, n))
        wide = a.double() @ b.double().T
        for count in (2, 5, 16):
            split = gemm.using(tilec.Schedule(splits=(("k", count),)))
            found, again = split(a, b), split(a, b)
            assert torch.equal(found, again)
            bound = 2.0**-8 * wide.abs().max().item()
            torch.testing.assert_close(found.double(), wide, rtol=2.0**-8, atol=bound * 2.0**-8)


BATCHED = """
kernel f(x: bf16[B, M, K], w: bf16[B, N, K], c: out f32[B, M, N]):
    for n, i, j in parallel(B, tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += x[n, i, k] @ w[n, j, k].T
        c[n, i, j] = acc
"""


def copied_operands() -> None:
    """Operands in odd rows, in every majorness, are copied; a captured call copies them again."""
    gemm = tilec.load(str(EXAMPLES / "gemm.tk")).gemm
    for turned in ((False, False), (True, False), (False, True), (True, True)):
        pair = [
            _whole(1027, rows).t() if turn else _whole(rows, 1027)
            for rows, turn in zip((1025, 1031), turned, strict=True)
        ]
        c = torch.empty(1025, 1031, dtype=torch.bfloat16, device="cuda")
        gemm(*pair, c)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            gemm(*pair, c)
        for _ in range(3):
            for operand in pair:
                operand.copy_(_whole(*operand.shape))
            graph.replay()
            wide = pair[0].double() @ pair[1].double().T
            assert torch.equal(c, wide.bfloat16())
    x = _whole(24, 300, 515)
    for row in (515, 520):  # copied once for all batches; read by TMA as they lie
        shared = _whole(1, 700, row)[:, :, :512].expand(24, 700, 512)
        found = tilec.compile(BATCHED).f(x[:, :, :512], shared)
        wide = x[:, :, :512].double() @ shared.double().transpose(1, 2)
        assert torch.equal(found.double(), wide)


def _whole(*shape: int) -> torch.Tensor:
    """Whole numbers that are small enough for exact sums."""
    return torch.randint(-2, 3, shape, device="cuda").bfloat16()


CHECKS: tuple[Callable[[], None], ...] = (
    graphs,
    streams,
    other_arrays,
    cupy_graphs,
    shares,
    copied_operands,
)


def main() -> int:
    """Run every check."""
    failed = 0
    for check in CHECKS:
        try:
            check()
        except (AssertionError, RuntimeError, ValueError, TypeError) as error:
            failed += 1
            print(f"{check.__name__}: {type(error).__name__}: {error}", flush=True)
        else:
            print(f"{check.__name__}: ok", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
