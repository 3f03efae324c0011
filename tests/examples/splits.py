"""Programs whose long loop runs in shares side by side: split_k, flash_decode."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.examples.products import attend
from tests.examples.spec import Data, Example, Sizes, close, normal

_SPLITS: tuple[Sizes, ...] = tuple(
    {"M": m, "N": n, "K": k, "S": s}
    for m, n, k, s in (
        (1, 1, 1, 4), (0, 8, 8, 2), (8, 0, 8, 2), (9, 7, 0, 3), (15, 17, 31, 4), (64, 64, 64, 1),
        (65, 63, 255, 4), (33, 40, 600, 3), (16, 16, 257, 2),
    )
)  # fmt: skip


def _operands(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    return {"a": normal(rng, "bf16", n["M"], n["K"]), "b": normal(rng, "bf16", n["N"], n["K"])}


SPLIT_K = Example(
    "split_k",
    "split_k",
    _SPLITS,
    _operands,
    lambda x, _: {"c": x["a"] @ x["b"].T},
    {"c": close("bf16", "M", "N", of_largest=2.0**-18)},
    choices=("S",),
    larger=(
        {"M": 256, "N": 384, "K": 8192, "S": 4},
        {"M": 129, "N": 127, "K": 20001, "S": 16},
    ),
)


def _cache(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    b, hk, g, k, d = (n[x] for x in ("B", "HK", "G", "N", "D"))
    return {
        "q": normal(rng, "bf16", b, hk, g, d),
        "k": normal(rng, "bf16", b, hk, k, d),
        "v": normal(rng, "bf16", b, hk, k, d),
        "scale": float(np.float32(d**-0.5)),
    }


def _flash_decode(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    o, lse = attend(x["q"], x["k"], x["v"], x["scale"], np.bool_(True))
    return {"o": o, "lse": lse}


def _sizes(*rows: tuple[int, ...]) -> tuple[Sizes, ...]:
    return tuple(dict(zip(("B", "HK", "G", "N", "D"), row, strict=True)) for row in rows)


FLASH_DECODE = Example(
    "flash_decode",
    "flash_decode",
    _sizes(
        (1, 1, 1, 1, 64),
        (1, 2, 4, 65, 64),
        (2, 1, 8, 257, 128),
        (1, 1, 5, 0, 64),
        (0, 2, 4, 16, 64),
        (1, 1, 65, 63, 64),
        (1, 2, 0, 63, 64),
        (2, 2, 3, 127, 128),
    ),
    _cache,
    _flash_decode,
    {
        "o": close("bf16", "B", "HK", "G", "D", absolute=2.0**-8),
        "lse": close("f32", "B", "HK", "G", absolute=2.0**-15),
    },
    choices=("D",),
    larger=_sizes((2, 8, 8, 8192, 128), (1, 2, 16, 40001, 64)),
)
