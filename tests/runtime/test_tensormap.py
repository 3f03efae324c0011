"""Which views TMA can address: each rule of the driver has one refusal that names it."""

from __future__ import annotations

from typing import Any

import pytest

from tilec.backend_ptx.tensormap import TensorMapError, element_bytes, encode, mappable

_GOOD: dict[str, Any] = {
    "address": 0x10000,
    "element_bytes": 2,
    "dims": (8192, 4096),
    "strides_bytes": (16384,),
    "box": (64, 128),
    "swizzle": 128,
}


def test_the_ordinary_operand_is_mappable() -> None:
    """The starting point of the refusals below."""
    assert mappable(**_GOOD) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"address": 0}, "null"),
        ({"address": 0x10008}, "multiple of 16 bytes"),
        ({"dims": (8192,) * 6, "strides_bytes": (16,) * 5, "box": (8,) * 6}, "1 to 5 dimensions"),
        ({"strides_bytes": ()}, "need 1 strides"),
        ({"strides_bytes": (16382,)}, "16382 bytes, is not a multiple of 16"),
        ({"strides_bytes": (-16384,)}, "outside 0 to 2^40"),
        ({"strides_bytes": (1 << 40,)}, "outside 0 to 2^40"),
        ({"dims": (8192, 0)}, "dimension 1 has 0 elements"),
        ({"dims": (8192, (1 << 32) + 1)}, "TMA takes 1 to 2^32"),
        ({"box": (64, 257)}, "257 elements along dimension 1"),
        ({"box": (64, 0)}, "0 elements along dimension 1"),
        ({"box": (64,)}, "must have 2 extents"),
        ({"box": (4, 8), "swizzle": 0}, "8 bytes wide, not a multiple of 16"),
        ({"box": (128, 8)}, "split it into stripes of 64 elements"),
        ({"box": (64, 8), "swizzle": 64}, "split it into stripes of 32 elements"),
        ({"swizzle": 16}, "not 16"),
        ({"element_strides": (1, 9)}, "element stride 9 of dimension 1"),
    ],
)
def test_each_broken_rule_is_named(change: dict[str, Any], words: str) -> None:
    """One change to the good view, one reason."""
    reason = mappable(**{**_GOOD, **change})
    assert reason is not None
    assert words in reason


def test_a_broadcast_stride_is_allowed() -> None:
    """Stride 0 is a multiple of 16: a broadcast operand may be loaded by TMA."""
    assert mappable(**{**_GOOD, "strides_bytes": (0,)}) is None


def test_the_extent_may_be_ragged_when_the_pitch_is_not() -> None:
    """997 bf16 columns are fine in rows of 2000 bytes."""
    assert mappable(**{**_GOOD, "dims": (997, 5), "strides_bytes": (2000,)}) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype_name": "b1"}, "no element type b1"),
        ({"l2_promotion": 32}, "not 32"),
        ({"oob": "one"}, "not 'one'"),
        ({"dtype_name": "e4m3", "oob": "nan", "box": (64, 8)}, "moved as integers"),
        ({"address": 8}, "multiple of 16 bytes"),
    ],
)
def test_encode_refuses_before_it_asks_the_driver(change: dict[str, Any], words: str) -> None:
    """The checks run without CUDA, so a refusal is the same on every machine."""
    request: dict[str, Any] = {
        "address": 0x10000,
        "dtype_name": "bf16",
        "dims": (64, 64),
        "strides_bytes": (128,),
        "box": (64, 64),
        "swizzle": 128,
    }
    with pytest.raises(TensorMapError) as caught:
        encode(**{**request, **change})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "size"), [("e4m3", 1), ("bf16", 2), ("tf32", 4), ("s64", 8), ("f64", 8)]
)
def test_element_sizes(dtype: str, size: int) -> None:
    """Sizes decide box and swizzle limits."""
    assert element_bytes(dtype) == size
