"""Programs over ranges from memory, and those that go along a long axis with a state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tests.examples.products import attend
from tests.examples.spec import Data, Example, Given, Sizes, close, normal

# --- running sums --------------------------------------------------------------------------------

CUMSUM = Example(
    "cumsum",
    "cumsum_rows",
    tuple(
        {"M": m, "N": n}
        for m, n in (
            (1, 1), (0, 9), (9, 0), (15, 17), (17, 63), (64, 64), (33, 129), (3, 1000), (5, 4097),
        )
    ),
    lambda rng, n: {"x": normal(rng, "f32", n["M"], n["N"])},
    lambda x, _: {"y": np.cumsum(x["x"], axis=1)},
    {"y": close("f32", "M", "N", of_largest=2.0**-18)},
    larger=({"M": 4096, "N": 4096}, {"M": 3, "N": 200001}),
)  # fmt: skip


# --- groups of rows ------------------------------------------------------------------------------


def _cuts(rng: np.random.Generator, parts: int, rows: int) -> Data:
    """Where groups begin: some are empty, and nothing need start at 0 or end with the rows."""
    return np.sort(rng.integers(0, rows + 1, parts + 1))


def _groups(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    return {
        "off": Given("s32", _cuts(rng, n["G"], n["M"])),
        "a": normal(rng, "bf16", n["M"], n["K"]),
        "b": normal(rng, "bf16", n["G"], n["N"], n["K"]),
        "c": normal(rng, "bf16", n["M"], n["N"]),
    }


def _grouped(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    c = x["c"].copy()
    for g, (low, high) in enumerate(pairwise(x["off"])):
        c[low:high] = x["a"][low:high] @ x["b"][g].T
    return {"c": c}


GROUPED_GEMM = Example(
    "grouped_gemm",
    "grouped_gemm",
    tuple(
        {"G": g, "GE": g + 1, "M": m, "N": n, "K": k}
        for g, m, n, k in (
            (1, 1, 1, 1), (0, 8, 8, 8), (3, 0, 8, 8), (4, 130, 0, 8), (4, 130, 17, 0),
            (2, 15, 31, 63), (5, 150, 88, 72), (3, 257, 65, 129), (9, 63, 64, 16),
        )
    ),
    _groups,
    _grouped,
    {"c": close("bf16", "M", "N", of_largest=2.0**-18)},
    larger=(
        {"G": 8, "GE": 9, "M": 4096, "N": 1024, "K": 512},
        {"G": 64, "GE": 65, "M": 3001, "N": 260, "K": 136},
    ),
    fixed=frozenset({"off"}),
)  # fmt: skip


# --- sequences of many lengths -------------------------------------------------------------------


def _sequences(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    h, hk, d = n["H"], n["HK"], n["D"]
    return {
        "cu_q": Given("s32", _cuts(rng, n["E"] - 1, n["TQ"])),
        "cu_k": Given("s32", _cuts(rng, n["E"] - 1, n["TK"])),
        "q": normal(rng, "bf16", n["TQ"], h, d),
        "k": normal(rng, "bf16", n["TK"], hk, d),
        "v": normal(rng, "bf16", n["TK"], hk, d),
        "scale": float(np.float32(d**-0.5)),
        "o": normal(rng, "bf16", n["TQ"], h, d),
        "lse": normal(rng, "f32", n["TQ"], h),
    }


def _varlen(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    o, lse = x["o"].copy(), x["lse"].copy()
    for (q0, q1), (k0, k1) in zip(pairwise(x["cu_q"]), pairwise(x["cu_k"]), strict=True):
        rows, columns = np.arange(q1 - q0)[:, None], np.arange(k1 - k0)[None, :]
        seen = (rows + (k1 - k0) - (q1 - q0) >= columns) | np.bool_(not n["CAUSAL"])
        for h in range(n["H"]):
            g = h // (n["H"] // n["HK"])
            q, k, v = x["q"][q0:q1, h], x["k"][k0:k1, g], x["v"][k0:k1, g]
            found = attend(q[None], k[None], v[None], x["scale"], seen)
            o[q0:q1, h], lse[q0:q1, h] = found[0][0], found[1][0]
    return {"o": o, "lse": lse}


def _lengths(*rows: tuple[int, ...]) -> tuple[Sizes, ...]:
    names = ("E", "TQ", "TK", "H", "HK", "D", "CAUSAL")
    return tuple({**dict(zip(names, row, strict=True)), "CAUSAL": bool(row[-1])} for row in rows)


VARLEN_ATTENTION = Example(
    "varlen_attention",
    "varlen_attention",
    _lengths(
        (2, 1, 1, 1, 1, 64, 1),
        (1, 5, 5, 1, 1, 64, 1),
        (4, 0, 9, 2, 1, 64, 1),
        (4, 40, 0, 2, 1, 64, 0),
        (4, 130, 127, 2, 2, 64, 1),
        (4, 130, 127, 4, 2, 64, 0),
        (7, 63, 65, 1, 1, 128, 1),
        (3, 129, 257, 2, 1, 128, 1),
        (12, 100, 100, 1, 1, 64, 1),
    ),
    _sequences,
    _varlen,
    {
        "o": close("bf16", "TQ", "H", "D", absolute=2.0**-7),
        "lse": close("f32", "TQ", "H", absolute=2.0**-15),
    },
    choices=("D", "CAUSAL"),
    larger=_lengths((17, 4096, 4096, 8, 2, 128, 1), (5, 3001, 5003, 4, 4, 64, 0)),
    fixed=frozenset({"cu_q", "cu_k"}),
)


# --- states --------------------------------------------------------------------------------------


def _heads(*rows: tuple[int, ...]) -> tuple[Sizes, ...]:
    return tuple(dict(zip(("B", "H", "N", "D"), row, strict=True)) for row in rows)


def _retained(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    shape = (n["B"], n["H"], n["N"], n["D"])
    parts = {name: normal(rng, "bf16", *shape, scale=0.5) for name in "qkv"}
    return {**parts, "gamma": Given("f32", rng.uniform(0.8, 1, n["H"]))}


def _retention(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    apart = np.arange(n["N"])[:, None] - np.arange(n["N"])[None, :]
    decay = np.where(apart >= 0, x["gamma"][:, None, None] ** np.maximum(apart, 0), 0)
    return {"o": (x["q"] @ x["k"].swapaxes(2, 3) * decay) @ x["v"]}


RETENTION = Example(
    "retention",
    "retention",
    _heads(
        (1, 1, 1, 64), (1, 1, 0, 64), (0, 2, 9, 64), (1, 2, 63, 64), (2, 1, 65, 64),
        (1, 1, 128, 64), (1, 3, 200, 64), (1, 1, 321, 64),
    ),
    _retained,
    _retention,
    {"o": close("bf16", "B", "H", "N", "D", of_largest=2.0**-7)},
    larger=_heads((2, 8, 4096, 64), (1, 4, 3001, 64)),
    fixed=frozenset({"gamma"}),
)  # fmt: skip


def _series(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    shape = (n["B"], n["H"], n["N"])
    parts = {name: normal(rng, "bf16", *shape, n["D"]) for name in "qk"}
    return {**parts, "v": normal(rng, "bf16", *shape, 64), "scale": 0.25}


def _based(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    s = x["q"] @ x["k"].swapaxes(2, 3) * x["scale"]
    return {"o": np.tril(1 + s + s * s / 2) @ x["v"]}


BASED = Example(
    "based",
    "based",
    _heads(
        (1, 1, 1, 16), (1, 1, 0, 16), (0, 2, 9, 16), (1, 2, 63, 16), (2, 1, 65, 16),
        (1, 1, 128, 16), (1, 3, 200, 16), (1, 1, 321, 16),
    ),
    _series,
    _based,
    {"o": close("bf16", "B", "H", "N", 64, of_largest=2.0**-6)},
    larger=_heads((2, 8, 4096, 16), (1, 4, 3001, 16)),
)  # fmt: skip
