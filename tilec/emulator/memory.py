"""Memory of a run: global buffers at addresses of their own, and the shared memory of each CTA.

Global buffers lie far apart, so that an access that misses one hits nothing. Addresses are those
of the generic space; shared addresses are offsets into a CTA's window, as ``.shared`` instructions
use them, and tensor maps are found by the address of the parameter that holds them.

Never: decides whether an access was allowed to happen now; `races` does.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Lanes = npt.NDArray[Any]

_FIRST = 0x7F00_0000_0000
WINDOW_BITS = 24
"""Bits of an offset in a CTA's shared window, as an H200 has them (docs/hardware.md)."""
GAP = 1 << 24
"""Bytes that lie between two buffers at least."""
PARAMETERS = 0x10_0000_0000
"""Where the parameter space lies in the generic one, for addresses taken of parameters."""


@dataclass
class Buffer:
    """One allocation of global memory."""

    name: str
    address: int
    data: Bytes
    written: npt.NDArray[np.bool_]
    """Which bytes hold something."""


@dataclass
class Global:
    """All global buffers, found by address."""

    buffers: list[Buffer] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)

    def add(
        self,
        name: str,
        data: Bytes,
        *,
        written: bool | npt.NDArray[np.bool_],
        misalign: int = 0,
    ) -> Buffer:
        """Place a buffer's bytes (shared with the caller); aligned to 512 and ``misalign`` more."""
        last = self.buffers[-1] if self.buffers else None
        free = last.address + len(last.data) + GAP if last else _FIRST
        address = -(-free // 512) * 512 + misalign
        buffer = Buffer(name, address, data, np.full(len(data), written))
        self.buffers.append(buffer)
        self._starts.append(address)
        return buffer

    def at(self, address: int) -> Buffer | None:
        """The buffer that holds an address, or that ends just before it."""
        buffer = self.below(address)
        if buffer is None:
            return None
        return buffer if address < buffer.address + max(len(buffer.data), 1) else None

    def below(self, address: int) -> Buffer | None:
        """The last buffer that does not begin after an address."""
        place = bisect_right(self._starts, address) - 1
        return self.buffers[place] if place >= 0 else None


def gather(data: Bytes, offsets: Lanes, width: int) -> Bytes:
    """``width`` bytes at each offset, as rows of bytes."""
    view = _words(data, offsets, width)
    if view is not None:
        words, index, _ = view
        return np.ascontiguousarray(words[index]).view(np.uint8).reshape(len(offsets), width)
    return np.asarray(data[offsets[:, None] + np.arange(width)])


def scatter(data: Bytes, offsets: Lanes, rows: Bytes) -> None:
    """Write rows of bytes at offsets; of equal offsets the last lane's bytes stay."""
    width = rows.shape[1]
    view = _words(data, offsets, width)
    if view is not None:
        words, index, kind = view
        words[index] = np.ascontiguousarray(rows).view(kind).reshape(index.shape)
        return
    data[offsets[:, None] + np.arange(width)] = rows


def _words(data: Bytes, offsets: Lanes, width: int) -> tuple[Any, Lanes, Any] | None:
    """The data as words of the access, where everything is aligned; 16 bytes are two words."""
    size = min(width, 8)
    if width & (width - 1):
        return None
    if not len(offsets) or (int(np.bitwise_or.reduce(offsets)) % size):
        return None
    if data.ctypes.data % size:
        return None
    kind = np.dtype(f"u{size}")
    words = data[: len(data) // size * size].view(kind)
    index = offsets // size
    if width > 8:
        index = index[:, None] + np.arange(width // 8)
    return words, index, kind
