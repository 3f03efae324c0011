"""Tensor maps as the emulator holds them, and the boxes that TMA moves (PTX ISA 5.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.emulator.memory import Buffer

Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory and the box of one copy, axes innermost first."""

    address: int
    element_bytes: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes from one element to the next along every axis but the innermost."""
    box: tuple[int, ...]
    swizzle: int
    """Bytes of the swizzle's span: 0, 32, 64 or 128."""
    element: str = ""
    """The element type, for copies that compute; empty where the launch does not say."""

    @property
    def box_bytes(self) -> int:
        """Bytes of a whole box, of which any part may lie outside the tensor."""
        return int(np.prod(self.box)) * self.element_bytes


def faults(map: TensorMap) -> list[str]:
    """What the driver would refuse (CUDA driver API, cuTensorMapEncodeTiled)."""
    found = []
    if map.address % 16:
        found.append(f"the tensor lies at {map.address:#x}, no multiple of 16")
    found += [f"a stride of {s} bytes is no multiple of 16" for s in map.strides if s % 16]
    found += [f"a box of {b} elements: at most 256" for b in map.box if not 1 <= b <= 256]
    inner = map.box[0] * map.element_bytes
    if inner % 16:
        found.append(f"rows of a box take {inner} bytes, no multiple of 16")
    if map.swizzle and inner > map.swizzle:
        found.append(f"rows of a box take {inner} bytes, more than the swizzle's {map.swizzle}")
    return found


def swizzled(addresses: Any, span: int) -> Any:
    """Shared addresses after the swizzle: chunks of 16 bytes change places inside 8 spans."""
    bits = {0: 0, 32: 1, 64: 3, 128: 7}[span]
    return addresses ^ (((addresses >> 7) & bits) << 4)


def box_elements(map: TensorMap, start: tuple[int, ...]) -> tuple[Index, Any]:
    """Global byte offsets of a box's elements in the order of shared memory, and which exist."""
    offset = np.zeros((), np.int64)
    inside = np.ones((), np.bool_)
    steps = (map.element_bytes, *map.strides)
    for axis, (first, extent, count, step) in enumerate(
        zip(start, map.extents, map.box, steps, strict=True)
    ):
        places = first + np.arange(count, dtype=np.int64)
        shape = (count, *(1,) * axis)
        offset = offset + (places * step).reshape(shape)
        inside = inside & ((places >= 0) & (places < extent)).reshape(shape)
    return offset.reshape(-1), np.broadcast_to(inside, offset.shape).reshape(-1)


def box_bytes(map: TensorMap, buffer: Buffer, start: tuple[int, ...]) -> Index:
    """Offsets in the buffer of all bytes of a box that exist."""
    offsets, inside = box_elements(map, start)
    first = map.address - buffer.address + offsets[inside]
    index: Index = (first[:, None] + np.arange(map.element_bytes)).reshape(-1)
    return index


def read_box(map: TensorMap, buffer: Buffer, start: tuple[int, ...]) -> Any:
    """The box's elements as rows of bytes, zeros outside the tensor."""
    offsets, inside = box_elements(map, start)
    base = map.address - buffer.address
    found = np.zeros((len(offsets), map.element_bytes), np.uint8)
    index = (base + offsets[inside])[:, None] + np.arange(map.element_bytes)
    found[inside] = buffer.data[index]
    return found


def write_box(map: TensorMap, buffer: Buffer, start: tuple[int, ...], rows: Any) -> None:
    """Elements that exist are written."""
    offsets, inside = box_elements(map, start)
    base = map.address - buffer.address
    index = (base + offsets[inside])[:, None] + np.arange(map.element_bytes)
    buffer.data[index] = rows[inside]
    buffer.written[index] = True
