"""Products on sm_80 down to single instructions: copies, swizzles, fragments and edges.

The kernels run in one role, before a producer takes the copies: who waits for whom is left to the
GPU, where everything lies is checked here.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.select.simt import Array, Machine
from tilec import pipeline
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.numbers import encode, storage
from tilec.ir.facts import ArrayFacts, Facts, Schedule
from tilec.ir.types import DTYPES
from tilec.passes.base import Context
from tilec.source import SourceFile
from tilec.targets import by_name

GEMM = """kernel f(a: {a}, b: {b}, c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += {product}
        c[i, j] = acc
"""
FORMS = {
    "nt": ("bf16[M, K]", "bf16[N, K]", "a[i, k] @ b[j, k].T"),
    "nn": ("bf16[M, K]", "bf16[K, N]", "a[i, k] @ b[k, j]"),
    "tn": ("bf16[K, M]", "bf16[K, N]", "a[k, i].T @ b[k, j]"),
    "tt": ("bf16[K, M]", "bf16[N, K]", "a[k, i].T @ b[j, k].T"),
}
ONE_ROLE = ("split-roles", "pipeline-products")


def placed(values: np.ndarray, dtype: str, pitch: int) -> Array:
    """Rows ``pitch`` elements apart, poison between them."""
    rows, columns = values.shape
    bits = encode(DTYPES[dtype], values, storage(DTYPES[dtype]))
    whole = np.full((rows, pitch), 0x7FFF if bits.itemsize == 2 else 0x7FC00000, bits.dtype)
    whole[:, :columns] = bits.view(whole.dtype)
    return Array(whole.reshape(-1).view(np.uint8), 0, values.shape, (pitch, 1))


CASES = (
    ("nt", (64, 64, 64), (70, 72, 130), 16),
    ("nn", (16, 64, 32), (20, 61, 40), 16),
    ("tn", (32, 32, 32), (33, 40, 31), 16),
    ("tt", (128, 32, 32), (129, 35, 33), 8),
    ("nt", (48, 48, 16), (50, 50, 18), 4),
    ("nn", (64, 32, 32), (65, 33, 35), 2),
)
BY_WGMMA_OR_TMA = [("sm_90a", c) for c in CASES if c[1][0] % 64 == 0 or c[3] == 16]
"""What this machine has no meaning for; the emulator runs such programs."""


@pytest.mark.parametrize(
    ("form", "tiles", "sizes", "alignment", "target"),
    [
        (*case, target)
        for target in ("sm_80", "sm_90a")
        for case in CASES
        if (target, case) not in BY_WGMMA_OR_TMA
    ],
)
def test_gemm(
    form: str, tiles: tuple[int, ...], sizes: tuple[int, ...], alignment: int, target: str
) -> None:
    a_text, b_text, product = FORMS[form]
    text = GEMM.format(a=a_text, b=b_text, product=product)
    m, n, k = sizes
    rng = np.random.default_rng(3)
    left = rng.integers(-3, 4, (m, k)).astype(np.float32)
    right = rng.integers(-3, 4, (n, k)).astype(np.float32)
    stored = {
        "a": left if form[0] == "n" else left.T,
        "b": right if form[1] == "t" else right.T,
    }
    arrays = {
        name: placed(values, "bf16", -(-values.shape[1] // 16) * 16 + alignment // 2)
        for name, values in stored.items()
    }
    arrays["c"] = placed(np.full((m, n), np.nan, np.float32), "f32", n + 3)
    facts = Facts(tuple((name, ArrayFacts(1, min(alignment, 4 if name == "c" else 16)))
                        for name in arrays))  # fmt: skip
    module = lower(check(parse(SourceFile("f.tk", text)), {}), "f", target)
    kernel = module.kernels[0]
    pipeline.record_facts(kernel, facts)
    pins = Schedule(
        tiles=tuple(zip("ijk", tiles, strict=True)),
        persistent=False,
        stages=1,
        repacks=(("a", False), ("b", False)),  # the machine runs one launch
    )
    kernel.schedule = pins.as_attributes()
    names = [name for name in pipeline.PIPELINE if name not in (*ONE_ROLE, "place-copies")]
    pipeline.run(module, Context(by_name(target)), only=names)
    found = Machine(module.kernels[0], arrays).run()["c"]
    pitch = arrays["c"].strides[0]
    result = found.view(np.float32).reshape(m, pitch)[:, :n]
    np.testing.assert_array_equal(result, left @ right.T)
