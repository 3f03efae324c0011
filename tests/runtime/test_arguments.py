"""Kernel parameters become the bytes that PTX expects."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tilec.backend_ptx.arguments import Arguments, pack
from tilec.backend_ptx.tensormap import TensorMap


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("ptr", 0xFFFF_0000_1234_5678, (0xFFFF_0000_1234_5678).to_bytes(8, "little")),
        ("s32", -3, b"\xfd\xff\xff\xff"),
        ("s64", -(1 << 40), (-(1 << 40)).to_bytes(8, "little", signed=True)),
        ("f32", 0.1, struct.pack("<f", 0.1)),
        ("f16", 2.0, b"\x00\x40"),
        ("bf16", 1.0, b"\x80\x3f"),
        ("bool", True, b"\x01"),
        ("b32", 0x7FC00000, b"\x00\x00\xc0\x7f"),
    ],
)
def test_scalars(kind: str, value: Any, expected: bytes) -> None:
    """Little endian, at the width of the kind."""
    assert pack([(kind, value)]).value_bytes(0) == expected


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (1 + 2**-8, 0x3F80),  # a tie goes to the even neighbour below
        (1 + 3 * 2**-8, 0x3F82),  # and to the one above
        (1 + 2**-8 + 2**-20, 0x3F81),
        (float("inf"), 0x7F80),
        (-0.0, 0x8000),
    ],
)
def test_bfloat16_rounds_to_nearest_even(value: float, bits: int) -> None:
    """The same rounding as `cvt.rn.bf16.f32`."""
    assert int.from_bytes(pack([("bf16", value)]).value_bytes(0), "little") == bits


def test_a_bfloat16_nan_stays_one() -> None:
    """Rounding must not carry its mantissa into infinity."""
    bits = int.from_bytes(pack([("bf16", float("nan"))]).value_bytes(0), "little")
    assert bits & 0x7F80 == 0x7F80
    assert bits & 0x7F


def test_a_map_is_aligned_and_a_set_can_be_reused() -> None:
    """Setting one value leaves the others alone."""
    arguments = Arguments(["s32", "map", "ptr"])
    arguments.set(0, 7)
    arguments.set(1, TensorMap(bytes(range(128))))
    arguments.set(2, 0x1000)
    arguments.set(0, 8)
    assert arguments.value_bytes(0) == b"\x08\0\0\0"
    assert arguments.value_bytes(1) == bytes(range(128))
    assert arguments.value_bytes(2) == b"\0\x10\0\0\0\0\0\0"
    assert arguments._pointers[1] is not None
    assert arguments._pointers[1] % 64 == 0


def test_wrong_values_are_refused() -> None:
    """A short map, an unknown kind, a number that does not fit."""
    with pytest.raises(ValueError, match="128 bytes, got 4"):
        pack([("map", b"1234")])
    with pytest.raises(ValueError, match="no parameter kind 's128'"):
        Arguments(["s128"])
    with pytest.raises(struct.error):
        pack([("s32", 1 << 31)])
