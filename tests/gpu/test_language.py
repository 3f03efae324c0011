"""Strict sums, instructions of the author's own, parts of axes, homes: the interpreter's bits.

    python -m tests.gpu.test_language

Idea: the programs of ``tests/select`` run on the GPU as they are, and their results are compared
with the interpreter bit for bit; a last bit that differs is a failure.  All run in one supervised
child; a line is printed for each.

Never: allows an error, but in the sums of the pinned homes, whose order is free.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.select import test_inline, test_parts, test_strict
from tilec.compiler import front
from tilec.interp.interpret import interpret
from tilec.runtime.supervise import run
from tilec.source import SourceFile
from tilec.targets import by_name

LIMIT_S = 240.0
HOMES = """\
kernel homes(x: f32[M, N], y: out f32[M, N]):
    for i in parallel(tiles(M)):
        shared row = x[i, :] * 2
        shared mean = rowsum(row) / cast[f32](N)
        register top = rowmax(row)
        y[i, :] = (row - mean[:, None]) * top[:, None]
"""
HALF = """\
kernel half(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        total = full[f32](i, -inf)
        for j in tiles(N // 2, 32):
            total = max(total, rowmax(x[i, j]))
        y[i] = total
"""
Arrays = dict[str, np.ndarray]


def cases() -> Iterator[tuple[str, str, Arrays, tuple[str, ...]]]:
    """Name, program, arrays and the names of those that are written."""
    texts = {
        "rows": test_strict.ROWS, "tiles": test_strict.TILES, "columns": test_strict.COLUMNS,
    }  # fmt: skip
    for shape in (*test_strict.SHAPES, (1, 1000), (257, 4096), (130, 1)):
        for name, text in texts.items():
            out = shape[1] if name == "columns" else shape[0]
            arrays = {
                "x": test_strict.values(shape, 1),
                "w": test_strict.values(shape[1:], 2),
                "y": np.zeros(out, np.float32),
            }
            yield f"strict {name} {shape}", text, arrays, ("y",)
    for name, (x_type, y_type, steps, meaning) in test_inline.CASES.items():
        if "bf16" in (x_type, y_type) or y_type == "bool":
            continue  # NumPy has no such elements; the assembled text is tested without a GPU
        text = test_inline.TEXT.replace("{text}", steps).replace("{meaning}", meaning)
        text = text.replace("{x}", x_type).replace("{y}", y_type)
        kinds = {"f32": np.float32, "s32": np.int32, "s64": np.int64}
        arrays = {
            "x": test_inline.data(x_type),
            "n": test_inline.data("s32") // 65537,
            "y": np.zeros(test_inline.SHAPE, kinds[y_type]),
        }
        yield f"ptx {name}", text, arrays, ("y",)
    for rows in (1, 37, 200):
        x = test_strict.values((rows, 64), rows)
        for name, text in test_parts.PROGRAMS.items():
            yield f"parts {name} {rows}", text, {"x": x, "y": np.zeros_like(x)}, ("y",)
        yield f"half {rows}", HALF, {"x": x, "y": np.zeros(rows, np.float32)}, ("y",)
        yield f"homes {rows}", HOMES, {"x": x, "y": np.zeros_like(x)}, ("y",)


def expected(text: str, arrays: Arrays) -> tuple[str, Arrays]:
    """The kernel's name, and the arrays as the interpreter leaves them."""
    kernel = front(SourceFile("k.tk", text), None, {}, by_name("90")).kernels[0]
    want = {key: data.copy() for key, data in arrays.items()}
    interpret(kernel, want)
    return kernel.name, want


def on_gpu() -> list[tuple[str, str]]:
    """The name of each case, and what is wrong with it."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    import tilec

    found: list[tuple[str, str]] = []
    for name, text, arrays, written in cases():
        entry, want = expected(text, arrays)
        given: dict[str, Any] = {k: torch.from_numpy(v).cuda() for k, v in arrays.items()}
        getattr(tilec.compile(text), entry)(**given)
        torch.cuda.synchronize()
        wrong = ""
        for key in written:
            got = given[key].cpu().numpy()
            same = same_bits(got, want[key])
            if name.startswith("homes"):
                same = np.allclose(got, want[key], 1e-4, 1e-4 * np.abs(want[key]).max())
            if not same:
                wrong += f"{key}: {int((got != want[key]).sum())} of {got.size} elements differ "
        found.append((name, wrong))
    return found


def same_bits(got: np.ndarray, want: np.ndarray) -> bool:
    """Bit for bit, but that any NaN is as good as another."""
    if got.dtype.kind != "f":
        return got.tobytes() == want.tobytes()
    return np.array_equal(got, want, equal_nan=True) and np.array_equal(
        np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(want)])
    )


def main() -> int:
    """All cases; 1 if one is wrong."""
    results = run(on_gpu, limit_s=LIMIT_S)
    for name, wrong in results:
        sys.stdout.write(f"{'wrong' if wrong else 'ok':6}{name} {wrong}\n")
    bad = sum(bool(wrong) for _, wrong in results)
    sys.stdout.write(f"{len(results)} cases, {bad} wrong\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
