"""Arrays in host memory: as NumPy sees them, whoever owns them, and their trips to a GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.backend_ptx.module import DeviceBuffer
from tilec.runtime.arrays import ArrayView, packed_strides

HostArray = npt.NDArray[Any]

_HELD_AS = {
    "f64": "f8", "f32": "f4", "tf32": "f4", "f16": "f2", "bf16": "u2", "e4m3": "u1", "e5m2": "u1",
    "s64": "i8", "s32": "i4", "s16": "i2", "s8": "i1", "u64": "u8", "u32": "u4", "u16": "u2",
    "u8": "u1", "bool": "?",
}  # fmt: skip


def host_array(view: ArrayView) -> HostArray:
    """The memory of a view on the CPU as a NumPy array; bf16, fp8 and four bits as their bits."""
    view = view.in_bytes
    held_as = np.dtype(_HELD_AS[view.dtype])
    if view.size == 0:
        return np.empty(view.shape, held_as)
    low, high = view.bounds()
    block: Any = (ctypes.c_char * (high - low)).from_address(low)
    array: HostArray = np.ndarray(
        view.shape, held_as, block, view.address - low, view.strides_bytes
    )
    return array


class OnDevice:
    """A row-major copy of a host array on the current GPU."""

    def __init__(self, view: ArrayView, ordinal: int) -> None:
        self.host = host_array(view)
        self.buffer = DeviceBuffer.of(np.ascontiguousarray(self.host))
        self.view = ArrayView(
            self.buffer.address,
            view.shape,
            packed_strides(view.shape),
            view.dtype,
            ("cuda", ordinal),
            self,
        )

    def bring_back(self) -> None:
        """Copy the elements back into the host array (waits for the device)."""
        self.host[...] = self.buffer.read(self.host.shape, self.host.dtype)

    def close(self) -> None:
        """Free the device memory."""
        self.buffer.close()
