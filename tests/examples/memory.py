"""Programs that go to places they compute, update arrays in memory, or draw random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.examples.spec import Data, Example, Given, Sizes, close, normal

# --- sums in memory ------------------------------------------------------------------------------

_WORDS: tuple[Sizes, ...] = tuple(
    {"M": m, "D": d, "V": v}
    for m, d, v in (
        (1, 1, 1), (0, 64, 10), (7, 0, 5), (15, 17, 3), (17, 64, 33), (64, 127, 100),
        (100, 129, 7), (33, 256, 1), (5, 8, 0),
    )
)  # fmt: skip


def _words(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    """Tokens repeat, and some are outside the table on either side."""
    return {
        "g": normal(rng, "bf16", n["M"], n["D"]),
        "ids": Given("s32", rng.integers(-2, n["V"] + 2, n["M"])),
        "dw": normal(rng, "f32", n["V"], n["D"]),
    }


def _added_rows(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    sums, known = x["dw"].copy(), (x["ids"] >= 0) & (x["ids"] < n["V"])
    np.add.at(sums, x["ids"][known], x["g"][known])
    return {"dw": sums}


EMBEDDING_GRAD = Example(
    "embedding_grad",
    "embedding_grad",
    _WORDS,
    _words,
    _added_rows,
    {"dw": close("f32", "V", "D", of_largest=2.0**-20)},
    larger=({"M": 4096, "D": 1024, "V": 500}, {"M": 3001, "D": 1000, "V": 32000}),
    fixed=frozenset({"ids"}),
    unordered=True,
)

_BINS: tuple[Sizes, ...] = tuple(
    {"M": m, "N": n}
    for m, n in (
        (1, 1), (0, 5), (15, 16), (17, 7), (127, 100), (129, 1), (1000, 64), (4097, 255),
    )
)  # fmt: skip


def _samples(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    """Multiples of 1/8 between -4 and 4 that bins of any number tell apart alike in f32 and f64."""
    x = rng.integers(-40, 40, n["M"]) / 8 + 1 / 64
    x[::7] = np.nan
    return {
        "x": Given("f32", x),
        "low": -4.0,
        "high": 4.0,
        "count": Given("s32", rng.integers(0, 9, n["N"])),
    }


def _counted(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    inside = (x["x"] >= x["low"]) & (x["x"] < x["high"])
    bins = (x["x"][inside] - x["low"]) / (x["high"] - x["low"]) * n["N"]
    return {"count": x["count"] + np.bincount(bins.astype(int), minlength=n["N"])}


HISTOGRAM = Example(
    "histogram",
    "histogram",
    _BINS,
    _samples,
    _counted,
    {"count": close("s32", "N")},
    larger=({"M": 1 << 20, "N": 128}, {"M": 999_999, "N": 1}),
)

# --- random numbers ------------------------------------------------------------------------------


def philox(place: Data, seed: int) -> Data:
    """The first word of Philox4x32-10 for counters of 64 bits under a key of 64, by the paper."""
    low = np.uint64(0xFFFFFFFF)
    c = [place & low, place >> np.uint64(32), np.zeros_like(place), np.zeros_like(place)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (second >> np.uint64(32)) ^ c[1] ^ np.uint64(k0),
            second & low,
            (first >> np.uint64(32)) ^ c[3] ^ np.uint64(k1),
            first & low,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c[0]


def _dropout(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    places = np.arange(n["M"] * n["N"], dtype=np.uint64).reshape(n["M"], n["N"])
    word = philox(places + np.uint64(x["offset"]), x["seed"])
    stays = (word >> np.uint64(8)).astype(np.float64) * 2.0**-24 < np.float32(x["keep"])
    return {"y": np.where(stays, x["x"] / np.float32(x["keep"]), 0)}


DROPOUT = Example(
    "dropout",
    "dropout",
    tuple(
        {"M": m, "N": n}
        for m, n in ((1, 1), (0, 5), (7, 0), (15, 17), (33, 64), (16, 255), (17, 1000), (3, 4097))
    ),
    lambda rng, n: {
        "x": normal(rng, "bf16", n["M"], n["N"]),
        "seed": 0x9E3779B97F4A7C15 - n["M"],
        "offset": (1 << 33) + n["N"],
        "keep": 0.9,
    },
    _dropout,
    {"y": close("bf16", "M", "N")},
    larger=({"M": 1000, "N": 4096}, {"M": 4097, "N": 1023}),
)

# --- halves and patches --------------------------------------------------------------------------


def _turned(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    first, second = x["x"][..., : n["C"]], x["x"][..., n["C"] :]
    cos, sin = x["cos"][None, :, None, :], x["sin"][None, :, None, :]
    return {"y": np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)}


ROTARY = Example(
    "rotary",
    "rotary",
    tuple(
        {"B": b, "M": m, "H": h, "D": 2 * c, "C": c}
        for b, m, h, c in (
            (1, 1, 1, 1), (2, 0, 3, 8), (0, 5, 1, 16), (1, 15, 2, 32), (2, 17, 1, 15),
            (1, 64, 2, 64), (1, 65, 3, 17), (2, 33, 2, 48),
        )
    ),
    lambda rng, n: {
        "x": normal(rng, "bf16", n["B"], n["M"], n["H"], n["D"]),
        "cos": normal(rng, "f32", n["M"], n["C"]),
        "sin": normal(rng, "f32", n["M"], n["C"]),
    },
    _turned,
    {"y": close("bf16", "B", "M", "H", "D", of_largest=2.0**-20)},
    larger=(
        {"B": 2, "M": 2048, "H": 16, "D": 128, "C": 64},
        {"B": 1, "M": 1023, "H": 5, "D": 80, "C": 40},
    ),
)  # fmt: skip


def _image(b: int, hw: int, c: int, n: int, rs: int, stride: int, pad: int) -> Sizes:
    out = (hw + 2 * pad - rs) // stride + 1
    return {
        "B": b, "H": hw, "W": hw + 1, "C": c, "N": n, "R": rs, "S": rs,
        "P": out, "Q": (hw + 1 + 2 * pad - rs) // stride + 1, "STRIDE": stride, "PAD": pad,
    }  # fmt: skip


def _convolved(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    pad, stride = n["PAD"], n["STRIDE"]
    wide = np.pad(x["x"], ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    y = np.zeros((n["B"], n["P"], n["Q"], n["N"]))
    for r in range(n["R"]):
        for s in range(n["S"]):
            rows = wide[:, r : r + stride * (n["P"] - 1) + 1 : stride]
            seen = rows[:, :, s : s + stride * (n["Q"] - 1) + 1 : stride]
            y += seen @ x["w"][:, r, s].T
    return {"y": y}


CONV2D = Example(
    "conv2d",
    "conv2d",
    (
        _image(1, 1, 1, 1, 3, 1, 1),
        _image(0, 5, 8, 8, 3, 1, 1),
        _image(1, 5, 0, 4, 3, 1, 1),
        _image(2, 7, 16, 15, 3, 1, 1),
        _image(1, 15, 17, 33, 3, 1, 0),
        _image(1, 16, 8, 16, 3, 2, 1),
        _image(1, 9, 64, 8, 1, 1, 0),
        _image(1, 17, 3, 5, 5, 2, 2),
        _image(1, 65, 8, 8, 3, 1, 1),
    ),
    lambda rng, n: {
        "x": normal(rng, "bf16", n["B"], n["H"], n["W"], n["C"]),
        "w": normal(rng, "bf16", n["N"], n["R"], n["S"], n["C"]),
    },
    _convolved,
    {"y": close("bf16", "B", "P", "Q", "N", of_largest=2.0**-16)},
    choices=("STRIDE", "PAD"),
    larger=(_image(4, 56, 64, 128, 3, 1, 1), _image(2, 28, 256, 256, 3, 2, 1)),
)

# --- in place ------------------------------------------------------------------------------------


def _state(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    return {
        "g": normal(rng, "f32", n["N"]),
        "p": normal(rng, "f32", n["N"]),
        "m": normal(rng, "f32", n["N"]),
        "v": Given("f32", rng.uniform(0, 2, n["N"])),
        "rate": 0.125, "beta1": 0.875, "beta2": 0.984375, "eps": 2.0**-20, "decay": 0.0625,
        "scale1": 1.5, "scale2": 1.25,
    }  # fmt: skip


def _stepped(x: dict[str, Any], _: Sizes) -> dict[str, Data]:
    m = x["m"] * x["beta1"] + x["g"] * (1 - x["beta1"])
    v = x["v"] * x["beta2"] + x["g"] ** 2 * (1 - x["beta2"])
    step = m * x["scale1"] / (np.sqrt(v * x["scale2"]) + x["eps"])
    return {"p": x["p"] - x["rate"] * (step + x["decay"] * x["p"]), "m": m, "v": v}


ADAMW = Example(
    "adamw",
    "adamw",
    tuple({"N": n} for n in (0, 1, 15, 16, 17, 127, 129, 1000, 4097)),
    _state,
    _stepped,
    {name: close("f32", "N", of_largest=2.0**-21) for name in "pmv"},
    larger=({"N": 1 << 20}, {"N": 999_999}),
)
