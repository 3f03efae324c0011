"""Programs that work on rows: sums of two, softmax, the normalisations, and the loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.examples.spec import Data, Example, Given, Sizes, close, normal

TABLES: tuple[Sizes, ...] = tuple(
    {"M": m, "N": n}
    for m, n in ((1, 1), (0, 5), (7, 0), (15, 17), (33, 64), (16, 255), (17, 1000), (3, 4097))
)
LARGER: tuple[Sizes, ...] = ({"M": 1000, "N": 4096}, {"M": 4097, "N": 1023})


def _two(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    return {name: normal(rng, "bf16", n["M"], n["N"]) for name in "ab"}


ADD = Example(
    "add",
    "add",
    TABLES,
    _two,
    lambda x, _: {"c": x["a"] + x["b"]},
    {"c": close("bf16", "M", "N")},
    larger=LARGER,
)


def _softmax(x: Data) -> Data:
    if x.shape[-1] == 0:
        return x
    p = np.exp(x - x.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


SOFTMAX = Example(
    "softmax",
    "softmax",
    TABLES,
    lambda rng, n: {"x": normal(rng, "bf16", n["M"], n["N"], scale=3)},
    lambda x, _: {"y": _softmax(x["x"])},
    {"y": close("bf16", "M", "N")},
    larger=LARGER,
)


def _norm(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    return {
        "x": normal(rng, "bf16", n["M"], n["N"]),
        "weight": normal(rng, "bf16", n["N"]),
        "bias": normal(rng, "bf16", n["N"]),
        "eps": 1e-5,
    }


def _layernorm(x: dict[str, Any], _: Sizes) -> dict[str, Data]:
    mean = x["x"].mean(-1) if x["x"].shape[1] else np.full(len(x["x"]), np.nan)
    centred = x["x"] - mean[:, None]
    rstd = 1 / np.sqrt((centred**2).mean(-1) + x["eps"])
    y = centred * rstd[:, None] * x["weight"] + x["bias"]
    return {"y": y, "mean": mean, "rstd": rstd}


LAYERNORM = Example(
    "layernorm",
    "layernorm",
    TABLES,
    _norm,
    _layernorm,
    {
        "y": close("bf16", "M", "N", of_largest=2.0**-18),
        "mean": close("f32", "M", absolute=2.0**-20),
        "rstd": close("f32", "M", of_largest=2.0**-19),
    },
    larger=LARGER,
)


def _rmsnorm(x: dict[str, Any], _: Sizes) -> dict[str, Data]:
    rstd = 1 / np.sqrt((x["x"] ** 2).mean(-1) + x["eps"])
    return {"y": x["x"] * rstd[:, None] * x["weight"], "rstd": rstd}


def _without_bias(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    found = _norm(rng, n)
    del found["bias"]
    return found


RMSNORM = Example(
    "rmsnorm",
    "rmsnorm",
    TABLES,
    _without_bias,
    _rmsnorm,
    {"y": close("bf16", "M", "N"), "rstd": close("f32", "M", of_largest=2.0**-19)},
    larger=LARGER,
)


def _backward(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    return {
        "x": normal(rng, "bf16", n["M"], n["N"]),
        "weight": normal(rng, "bf16", n["N"]),
        "rstd": Given("f32", rng.uniform(0.5, 2, n["M"])),
        "dy": normal(rng, "bf16", n["M"], n["N"]),
    }


def _rmsnorm_backward(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    normed = x["x"] * x["rstd"][:, None]
    scaled = x["dy"] * x["weight"]
    along = (scaled * normed).sum(-1, keepdims=True) / n["N"] if n["N"] else np.zeros((n["M"], 1))
    dx = (scaled - normed * along) * x["rstd"][:, None]
    return {"dx": dx, "dweight": (x["dy"] * normed).sum(0)}


RMSNORM_BACKWARD = Example(
    "rmsnorm",
    "rmsnorm_backward",
    TABLES,
    _backward,
    _rmsnorm_backward,
    {
        "dx": close("bf16", "M", "N", of_largest=2.0**-18),
        "dweight": close("f32", "N", absolute=2.0**-12, of_largest=2.0**-18),
    },
    larger=LARGER,
)


def _logits(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    labels = rng.integers(-1, n["N"] + 1, n["M"])
    return {
        "logits": normal(rng, "bf16", n["M"], n["N"], scale=2),
        "label": Given("s32", labels),
    }


def _cross_entropy(x: dict[str, Any], n: Sizes) -> dict[str, Data]:
    logits, label = x["logits"], x["label"]
    counted = (label >= 0) & (label < n["N"])
    if n["N"] == 0:
        return {"loss": np.zeros(n["M"]), "gradient": logits}
    largest = logits.max(-1, keepdims=True)
    total = largest[:, 0] + np.log(np.exp(logits - largest).sum(-1))
    picked = np.take_along_axis(logits, np.clip(label, 0, n["N"] - 1)[:, None], 1)[:, 0]
    hit = label[:, None] == np.arange(n["N"])
    gradient = np.where(counted[:, None], np.exp(logits - total[:, None]) - hit, 0)
    return {"loss": np.where(counted, total - picked, 0), "gradient": gradient}


CROSS_ENTROPY = Example(
    "cross_entropy",
    "cross_entropy",
    TABLES,
    _logits,
    _cross_entropy,
    {
        "loss": close("f32", "M", absolute=2.0**-18),
        "gradient": close("bf16", "M", "N", of_largest=2.0**-18),
    },
    larger=LARGER,
)
