"""The values of a kernel's parameters, packed as a launch takes them.

Idea: a launch takes an array of pointers, one to each value.  The values live in one host block
that is laid out once and refilled, so that a repeated launch allocates nothing.

Invariants: tensor maps are 64-byte aligned (PTX manual, tensor maps as kernel parameters); values
are little endian at the width of their kind; a value that does not fit raises.

Never: touches CUDA.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any

_FORMATS = {
    "ptr": "Q", "bool": "?", "s8": "b", "u8": "B", "s16": "h", "u16": "H", "s32": "i", "u32": "I",
    "s64": "q", "u64": "Q", "f16": "e", "f32": "f", "f64": "d", "b16": "H", "b32": "I", "b64": "Q",
}  # fmt: skip
#: Parameter kinds that `Arguments` packs; "map" is a 128-byte tensor map.
KINDS = ("map", "bf16", *_FORMATS)


def _bfloat16_bits(value: float) -> int:
    bits = int.from_bytes(struct.pack("<f", value), "little")
    if value != value:  # NaN stays NaN: rounding could carry its mantissa away
        return (bits >> 16) | 0x40
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


class Arguments:
    """The values of one kernel's parameters in the form that a launch takes; reusable.

    One 64-byte aligned host block holds all values, and a pointer array beside it names each.  The
    driver copies the values during the launch call, so a set may be changed right after it.  Not
    to be shared between threads.
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        """Lay out parameters of the given `KINDS`, in the kernel's order."""
        self.kinds = tuple(kinds)
        self._offsets: list[int] = []
        size = 0
        for kind in self.kinds:
            if kind not in KINDS:
                raise ValueError(f"no parameter kind {kind!r}; there are {', '.join(KINDS)}")
            width = _width(kind)
            size = -(-size // min(width, 64)) * min(width, 64)
            self._offsets.append(size)
            size += width
        self._block = ctypes.create_string_buffer(size + 64)
        self._base = -ctypes.addressof(self._block) % 64
        start = ctypes.addressof(self._block) + self._base
        count = max(len(self.kinds), 1)
        self._pointers = (ctypes.c_void_p * count)(*(start + offset for offset in self._offsets))
        self.address = ctypes.addressof(self._pointers)

    def set(self, index: int, value: Any) -> None:
        """Store one value: a number, or for "map" its 128 bytes (or an object with `.data`)."""
        kind, place = self.kinds[index], self._base + self._offsets[index]
        if kind == "map":
            data = bytes(getattr(value, "data", value))
            if len(data) != 128:
                raise ValueError(f"a tensor map has 128 bytes, got {len(data)}")
            ctypes.memmove(ctypes.addressof(self._block) + place, data, 128)
        elif kind == "bf16":
            struct.pack_into("<H", self._block, place, _bfloat16_bits(float(value)))
        else:
            struct.pack_into(f"<{_FORMATS[kind]}", self._block, place, value)

    def value_bytes(self, index: int) -> bytes:
        """The stored bytes of one parameter."""
        place = self._base + self._offsets[index]
        return ctypes.string_at(ctypes.addressof(self._block) + place, _width(self.kinds[index]))


def _width(kind: str) -> int:
    if kind == "map":
        return 128
    return 2 if kind == "bf16" else struct.calcsize(f"<{_FORMATS[kind]}")


def pack(parameters: Sequence[tuple[str, Any]]) -> Arguments:
    """Arguments from (kind, value) pairs."""
    arguments = Arguments([kind for kind, _ in parameters])
    for index, (_, value) in enumerate(parameters):
        arguments.set(index, value)
    return arguments
