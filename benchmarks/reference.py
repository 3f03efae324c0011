"""Launch the hand-written reference kernels on torch tensors.

Idea: the folder of reference PTX (`--reference DIR`, the variable TILEC_REFERENCE, or a folder
`shared/reference` beside the checkout) holds single-purpose kernels; their grids, shared bytes and
tensor maps stand in its README and are restated here as data.  They are yardsticks: nothing of
tilec reads them.

Invariants: inputs are random normal, outputs are checked against torch in float32.

Never: used by the compiler, or timed without its check.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Case, Protocol, compare, torch_case
from tilec.backend_ptx.module import Launch, Module, pack
from tilec.backend_ptx.tensormap import TensorMap, encode

TOLERANCE = 4e-3  # bf16 results: 1.7e-3 is the rounding of the output itself


def reference_folder(given: str | None = None) -> Path:
    """The folder of reference kernels; raises FileNotFoundError with the places looked at."""
    checkout = Path(__file__).resolve().parents[1]
    places = [
        Path(given) if given else None,
        Path(os.environ["TILEC_REFERENCE"]) if "TILEC_REFERENCE" in os.environ else None,
        checkout / "shared" / "reference",
        checkout.parent / "shared" / "reference",
    ]
    tried = [place for place in places if place is not None]
    for place in tried:
        if (place / "README.md").exists():
            return place
    raise FileNotFoundError(
        f"no reference kernels in {', '.join(map(str, tried))}; pass --reference DIR"
    )


@dataclass(frozen=True)
class Workload:
    """A workload with the reference kernel for it and the peers that torch offers.

    `inputs` are the tensors that every contestant reads, `expected` the float32 answer.
    """

    title: str
    work: float
    unit: str
    inputs: tuple[Any, ...]
    expected: Any
    reference: Case
    peers: tuple[Case, ...]

    @property
    def cases(self) -> list[Case]:
        """The reference first, then the peers."""
        return [self.reference, *self.peers]


@dataclass(frozen=True)
class _Kernel:
    file: str
    entry: str
    grid: int
    threads: int
    shared_bytes: int

    def launcher(self, folder: Path, parameters: Sequence[tuple[str, Any]]) -> Callable[[], None]:
        """Load the file and return a launch on torch's current stream."""
        import torch  # type: ignore[import-not-found,unused-ignore]

        torch.cuda.init()
        module = Module.load((folder / self.file).read_text(), log=False)
        launch = Launch(
            module.function(self.entry),
            (self.grid, 1, 1),
            (self.threads, 1, 1),
            self.shared_bytes,
            pack(parameters),
        )

        def run() -> None:
            launch(torch.cuda.current_stream().cuda_stream)

        return run


_GEMM_TN = _Kernel("gemm_tn_8192.ptx", "gemm", 132, 384, 180272)
_GEMM_TT = _Kernel("gemm_tt_8192.ptx", "gemm", 132, 384, 180272)
_ATTENTION = _Kernel("attention_d128.ptx", "attn", 132, 512, 221344)
_ATTENTION_CAUSAL = _Kernel("attention_d128_causal.ptx", "attn", 1376, 512, 114816)
_SOFTMAX = _Kernel("softmax_4096.ptx", "softmax", 32768, 128, 0)


def _normal(seed: int, *shape: int) -> Any:
    import torch  # type: ignore[import-not-found,unused-ignore]

    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cuda").to(torch.bfloat16)


def _rows_map(tensor: Any, box: tuple[int, int]) -> TensorMap:
    """A row-major matrix in 64-column boxes."""
    rows, columns = tensor.shape
    return encode(tensor.data_ptr(), "bf16", (columns, rows), (2 * columns,), box, 128)


def _stripes_map(tensor: Any, tile: int) -> TensorMap:
    """A [K, MN] matrix read MN-major: 64-wide stripes as a third dimension."""
    depth, width = tensor.shape
    dims, strides = (64, depth, width // 64), (2 * width, 128)
    return encode(tensor.data_ptr(), "bf16", dims, strides, (64, 64, tile // 64), 128)


def gemm(folder: Path, transposed: bool) -> Workload:
    """C = A Bᵀ at 8192³, A as [M, K] and B as [N, K]; or both MN-major when `transposed`."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    size = 8192
    a, b = _normal(1, size, size), _normal(2, size, size)
    c, library = torch.empty_like(a), torch.empty_like(a)
    left, right = (a.T, b) if transposed else (a, b.T)
    maps = (
        [_stripes_map(a, 128), _stripes_map(b, 256)]
        if transposed
        else [_rows_map(a, (64, 128)), _rows_map(b, (64, 256))]
    )
    kernel = _GEMM_TT if transposed else _GEMM_TN
    parameters = [("map", each) for each in (*maps, _rows_map(c, (64, 64)))]
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    expected = left.float() @ right.float()
    torch.backends.cuda.matmul.allow_tf32 = allowed
    return Workload(
        f"gemm {'TT' if transposed else 'TN'} {size}",
        2e-12 * size**3,
        "TFLOP/s",
        (a, b),
        expected,
        torch_case(
            "reference",
            kernel.launcher(folder, parameters),
            lambda: c,
            expected,
            TOLERANCE,
            "reference",
        ),
        (
            torch_case(
                "cuBLAS",
                lambda: torch.matmul(left, right, out=library),
                lambda: library,
                expected,
                TOLERANCE,
                "peer",
            ),
        ),
    )


def _attention_reference(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """Float32 attention over [heads, N, D], a block of queries at a time."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    heads, length, depth = q.shape
    result = torch.empty(heads, length, depth, device="cuda")
    columns = torch.arange(length, device="cuda")
    for head in range(heads):
        keys, values = k[head].float(), v[head].float()
        for start in range(0, length, 4096):
            scores = q[head, start : start + 4096].float() @ keys.T / math.sqrt(depth)
            if causal:
                rows = torch.arange(start, start + scores.shape[0], device="cuda")
                scores.masked_fill_(columns[None, :] > rows[:, None], float("-inf"))
            result[head, start : start + 4096] = torch.softmax(scores, -1) @ values
    return result


def attention(folder: Path, causal: bool) -> Workload:
    """Forward attention, D = 128, N = 16384, 16 heads, scale 1/√D."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    heads, length, depth = 16, 16384, 128
    q, k, v = (_normal(seed, heads, length, depth) for seed in (1, 2, 3))
    output = torch.empty_like(q)
    block = 64 if causal else 80
    expected = _attention_reference(q, k, v, causal)

    def tiled(tensor: Any, rows: int) -> TensorMap:
        dims, strides = (64, length, depth // 64, heads), (2 * depth, 128, 2 * length * depth)
        return encode(tensor.data_ptr(), "bf16", dims, strides, (64, rows, depth // 64, 1), 128)

    def library() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=causal
        )

    results: list[Any] = [torch.empty_like(q)]

    def peer() -> None:
        from torch.nn.attention import (  # type: ignore[import-not-found,unused-ignore]
            SDPBackend,
            sdpa_kernel,
        )

        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            results[0] = library()[0]

    # The kernel stores O one 64-column stripe of 64 rows at a time, so its box has one stripe.
    dims, strides = (64, length, depth // 64, heads), (2 * depth, 128, 2 * length * depth)
    stored = encode(output.data_ptr(), "bf16", dims, strides, (64, 64, 1, 1), 128)
    maps = [tiled(q, 192), tiled(k, block), tiled(v, block), stored]
    kernel = _ATTENTION_CAUSAL if causal else _ATTENTION
    run = kernel.launcher(folder, [("map", each) for each in maps])
    return Workload(
        f"attention D128 N16384{' causal' if causal else ''}",
        (2e-12 if causal else 4e-12) * heads * length**2 * depth,
        "TFLOP/s",
        (q, k, v),
        expected,
        torch_case("reference", run, lambda: output, expected, TOLERANCE, "reference"),
        (torch_case("cuDNN", peer, lambda: results[0], expected, TOLERANCE, "peer"),),
    )


def softmax(folder: Path) -> Workload:
    """Softmax over rows of 4096 bf16, 32768 rows."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    rows, columns = 32768, 4096
    x = _normal(1, rows, columns)
    y, library = torch.empty_like(x), torch.empty_like(x)
    copied = torch.empty_like(x)
    expected = torch.softmax(x.float(), -1)
    parameters = [("ptr", x.data_ptr()), ("ptr", y.data_ptr())]

    def peer() -> None:
        torch.softmax(x, -1, out=library)

    return Workload(
        f"softmax {rows}x{columns}",
        1e-9 * 2 * 2 * rows * columns,
        "GB/s",
        (x,),
        expected,
        torch_case(
            "reference",
            _SOFTMAX.launcher(folder, parameters),
            lambda: y,
            expected,
            TOLERANCE,
            "reference",
        ),
        (
            torch_case("torch", peer, lambda: library, expected, TOLERANCE, "peer"),
            torch_case(
                "copy (bound)",
                lambda: copied.copy_(x),
                lambda: copied,
                x.float(),
                TOLERANCE,
                "bound",
            ),
        ),
    )


#: Workloads by name, each a function of the reference folder.
WORKLOADS: dict[str, Callable[[Path], Workload]] = {
    "gemm_tn_8192": lambda folder: gemm(folder, False),
    "gemm_tt_8192": lambda folder: gemm(folder, True),
    "attention_d128": lambda folder: attention(folder, False),
    "attention_d128_causal": lambda folder: attention(folder, True),
    "softmax_4096": softmax,
}


def main() -> None:
    """Time the reference kernels against torch's libraries."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--reference", help="folder of the reference PTX")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.6)
    parser.add_argument("--results", type=Path, default=None, help="folder for the JSON files")
    parser.add_argument("names", nargs="*", help=f"which (default all): {', '.join(WORKLOADS)}")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(WORKLOADS))
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    folder = reference_folder(options.reference)
    protocol = Protocol(rounds=options.rounds, pause_s=options.pause)
    for name in options.names or WORKLOADS:
        workload = WORKLOADS[name](folder)
        found = compare(workload.title, workload.work, workload.unit, workload.cases, protocol)
        found.save(f"reference-{name}", *([options.results] if options.results else []))


if __name__ == "__main__":
    main()
