"""Products with what networks put around them: batches, scales, a bias and an activation, tf32."""

from __future__ import annotations

from collections.abc import Callable
from math import erfc, sqrt
from typing import Any

import numpy as np

from tests.examples.products import GEMMS, LARGER
from tests.examples.spec import Close, Data, Example, Given, Sizes, close, normal

_BATCHES: tuple[Sizes, ...] = tuple(
    {"B": b, **sizes} for b, sizes in zip((3, 2, 0, 1, 2, 3, 2, 1, 5), GEMMS, strict=True)
)


def _batch(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    return {
        "a": normal(rng, "bf16", n["B"], n["M"], n["K"]),
        "b": normal(rng, "bf16", n["B"], n["N"], n["K"]),
    }


BATCHED = Example(
    "batched",
    "batched",
    _BATCHES,
    _batch,
    lambda x, _: {"c": x["a"] @ np.swapaxes(x["b"], 1, 2)},
    {"c": close("bf16", "B", "M", "N", of_largest=2.0**-18)},
    larger=tuple({"B": 5, **sizes} for sizes in LARGER),
)


def _integers(rng: np.random.Generator, *shape: int) -> Given:
    return Given("s8", rng.integers(-128, 128, shape, np.int8))


def _small(rng: np.random.Generator, *shape: int) -> Given:
    return normal(rng, "e4m3", *shape)


def _scaled(
    operand: Callable[..., Given], scales: tuple[str | int, str | int]
) -> Callable[[np.random.Generator, Sizes], dict[str, Any]]:
    """Two operands, and a positive scale for each of some axis of both."""

    def inputs(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
        lengths = [e if isinstance(e, int) else n[e] for e in scales]
        return {
            "a": operand(rng, n["M"], n["K"]),
            "b": operand(rng, n["N"], n["K"]),
            "scale_a": Given("f32", 2.0 ** rng.uniform(-4, 4, lengths[0])),
            "scale_b": Given("f32", 2.0 ** rng.uniform(-4, 4, lengths[1])),
        }

    return inputs


def _of_scales(x: dict[str, Any], _: Sizes) -> dict[str, Data]:
    product = x["a"].astype(np.float64) @ x["b"].astype(np.float64).T
    return {"c": product * x["scale_a"][:, None] * x["scale_b"][None, :]}


#: Tensor cores add products of 8-bit floats with 13 bits behind the point of the largest, and cut
#: off what is below in each step of 32 along K: at K = 776 an H200 lost up to 2^-10 of the largest.
_BY_SCALES = close("bf16", "M", "N", of_largest=2.0**-9)

SCALED_FP8 = Example(
    "scaled_fp8",
    "scaled_fp8",
    GEMMS,
    _scaled(_small, (1, 1)),
    _of_scales,
    {"c": _BY_SCALES},
    larger=LARGER,
)
SCALED_FP8_ROWS = Example(
    "scaled_fp8",
    "scaled_fp8_rows",
    GEMMS,
    _scaled(_small, ("M", "N")),
    _of_scales,
    {"c": _BY_SCALES},
    larger=LARGER,
)
PRODUCT_S8 = Example(
    "quantised",
    "product_s8",
    GEMMS,
    lambda rng, n: {"a": _integers(rng, n["M"], n["K"]), "b": _integers(rng, n["N"], n["K"])},
    lambda x, _: {"c": x["a"].astype(np.int64) @ x["b"].astype(np.int64).T},
    {"c": Close("s32", ("M", "N"))},
    larger=LARGER,
)
QUANTISED = Example(
    "quantised",
    "quantised",
    GEMMS,
    _scaled(_integers, ("M", "N")),
    _of_scales,
    {"c": close("bf16", "M", "N")},
    larger=LARGER,
)


def _layer(rng: np.random.Generator, n: Sizes) -> dict[str, Any]:
    return {
        "a": normal(rng, "bf16", n["M"], n["K"], scale=0.3),
        "b": normal(rng, "bf16", n["N"], n["K"], scale=0.3),
        "bias": normal(rng, "bf16", n["N"]),
    }


def _activated(x: dict[str, Any], _: Sizes) -> dict[str, Data]:
    before = x["a"] @ x["b"].T + x["bias"]
    return {"c": before * np.vectorize(lambda v: erfc(-v / sqrt(2)) / 2, otypes=[float])(before)}


LINEAR = Example(
    "linear",
    "linear",
    GEMMS,
    _layer,
    _activated,
    # What is activated is rounded: half a unit of it, a little more on the steep side.
    {"c": Close("bf16", ("M", "N"), relative=2.0**-7, absolute=2.0**-10, of_largest=2.0**-9)},
    larger=LARGER,
)

GEMM_TF32 = Example(
    "gemm_tf32",
    "gemm_tf32",
    GEMMS,
    lambda rng, n: {
        "a": normal(rng, "f32", n["M"], n["K"]),
        "b": normal(rng, "f32", n["N"], n["K"]),
    },
    lambda x, _: {"c": x["a"] @ x["b"].T},
    # Both operands lose what is beyond 10 bits.
    {"c": Close("f32", ("M", "N"), relative=2.0**-8, of_largest=2.0**-9)},
    larger=LARGER,
)
