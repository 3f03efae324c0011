"""Programs whose work is a product: gemm, swiglu, attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.examples.spec import Data, Example, Sizes, close, normal

GEMMS: tuple[Sizes, ...] = tuple(
    {"M": m, "N": n, "K": k}
    for m, n, k in (
        (1, 1, 1), (0, 8, 8), (8, 0, 8), (9, 7, 0), (15, 17, 31), (64, 64, 64),
        (65, 63, 129), (128, 200, 80), (33, 257, 16),
    )
)  # fmt: skip
LARGER: tuple[Sizes, ...] = ({"M": 1000, "N": 776, "K": 3000}, {"M": 2049, "N": 1023, "K": 513})


def _operands(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    return {"a": normal(rng, "bf16", n["M"], n["K"]), "b": normal(rng, "bf16", n["N"], n["K"])}


GEMM = Example(
    "gemm",
    "gemm",
    GEMMS,
    _operands,
    lambda x, _: {"c": x["a"] @ x["b"].T},
    {"c": close("bf16", "M", "N", of_largest=2.0**-18)},
    larger=LARGER,
)


def _gated(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    weights = {name: normal(rng, "bf16", n["N"], n["K"], scale=0.3) for name in ("gate", "up")}
    return {"x": normal(rng, "bf16", n["M"], n["K"]), **weights}


def _swiglu(x: dict[str, Any], _: Sizes) -> dict[str, Data]:
    gate, up = x["x"] @ x["gate"].T, x["x"] @ x["up"].T
    return {"y": gate / (1 + np.exp(-gate)) * up}


SWIGLU = Example(
    "swiglu",
    "swiglu",
    GEMMS,
    _gated,
    _swiglu,
    {"y": close("bf16", "M", "N", of_largest=2.0**-16)},
    larger=LARGER,
)


def heads(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    """Queries, keys and values of bf16, and the scale."""
    b, h, hk, m, k, d = (n[x] for x in ("B", "H", "HK", "M", "N", "D"))
    return {
        "q": normal(rng, "bf16", b, h, m, d),
        "k": normal(rng, "bf16", b, hk, k, d),
        "v": normal(rng, "bf16", b, hk, k, d),
        "scale": float(np.float32(d**-0.5)),
    }


def attend(q: Data, k: Data, v: Data, scale: float, keep: Data) -> tuple[Data, Data]:
    """Attention in float64 where ``keep`` holds; 0 and -inf for rows that keep nothing."""
    groups = q.shape[-3] // max(k.shape[-3], 1)
    k, v = (np.repeat(x, groups, axis=-3) for x in (k, v))
    s = np.where(keep, q @ np.swapaxes(k, -1, -2) * scale, -np.inf)
    largest = s.max(-1, keepdims=True, initial=-np.inf)
    p = np.exp(s - np.where(np.isfinite(largest), largest, 0))
    total = p.sum(-1, keepdims=True)
    o = np.where(total > 0, p @ v / np.where(total > 0, total, 1), 0)
    lse = np.where(total > 0, np.log(np.where(total > 0, total, 1)) + largest, -np.inf)
    return o, lse[..., 0]


def _attention(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    rows, columns = np.arange(n["M"])[:, None], np.arange(n["N"])[None, :]
    keep = rows + (n["N"] - n["M"]) >= columns if n["CAUSAL"] else np.bool_(True)
    o, lse = attend(x["q"], x["k"], x["v"], x["scale"], keep)
    return {"o": o, "lse": lse}


def attention_sizes(*rows: tuple[Any, ...]) -> tuple[Sizes, ...]:
    """Sizes from rows of B, H, HK, M, N, D and whether causal."""
    names = ("B", "H", "HK", "M", "N", "D", "CAUSAL")
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


ATTENTION = Example(
    "attention",
    "attention",
    attention_sizes(
        (1, 1, 1, 1, 1, 64, False),
        (1, 2, 1, 63, 65, 64, True),
        (2, 4, 2, 65, 127, 128, False),
        (1, 2, 2, 128, 64, 128, True),  # rows of which nothing is kept
        (1, 1, 1, 5, 0, 64, False),
        (1, 1, 1, 0, 5, 64, True),
        (0, 2, 1, 4, 4, 64, False),
        (1, 3, 1, 17, 200, 64, True),
        (1, 2, 2, 130, 130, 80, True),
    ),
    heads,
    _attention,
    {
        "o": close("bf16", "B", "H", "M", "D", absolute=2.0**-8),
        "lse": close("f32", "B", "H", "M", absolute=2.0**-15),
    },
    choices=("D", "CAUSAL"),
    larger=attention_sizes((2, 8, 2, 1000, 1000, 128, True), (1, 4, 4, 777, 2049, 64, False)),
)


def _window(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    return {**heads(rng, n), "window": int(n["WINDOW"])}


def _windowed(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    rows, columns = np.arange(n["M"])[:, None], np.arange(n["N"])[None, :]
    back = rows + (n["N"] - n["M"]) - columns
    keep = (back >= 0) & (back < n["WINDOW"])
    o, lse = attend(x["q"], x["k"], x["v"], x["scale"], keep)
    return {"o": o, "lse": lse}


def _windows(*rows: tuple[int, ...]) -> tuple[Sizes, ...]:
    names = ("B", "H", "HK", "M", "N", "D", "WINDOW")
    return tuple(dict(zip(names, row, strict=True)) for row in rows)


ATTENTION_WINDOW = Example(
    "attention_window",
    "attention_window",
    _windows(
        (1, 1, 1, 1, 1, 64, 1),
        (1, 2, 1, 63, 65, 64, 16),
        (2, 2, 2, 65, 127, 128, 100),
        (1, 1, 1, 128, 64, 64, 7),  # rows of which nothing is kept
        (1, 1, 1, 5, 0, 64, 3),
        (1, 1, 1, 0, 5, 64, 3),
        (1, 3, 1, 17, 200, 64, 1000),
        (1, 2, 2, 130, 130, 128, 0),  # a window of nothing
    ),
    _window,
    _windowed,
    {
        "o": close("bf16", "B", "H", "M", "D", absolute=2.0**-8),
        "lse": close("f32", "B", "H", "M", absolute=2.0**-15),
    },
    choices=("D",),
    larger=_windows((2, 8, 2, 1000, 1000, 128, 256), (1, 4, 4, 777, 2049, 64, 333)),
)
