"""One box moved by TMA, and what its bytes must then be.

Idea: load a box into poisoned shared memory and take all of it back; store a box over a poisoned
buffer and take all of that back. Where the tensor ends inside the box, the result is compared with
what two rules would give: nothing beyond the tensor's end, or whole 16-byte chunks.

Invariants: comparisons are of whole buffers, margins and padding included, so a stray byte shows.

Never: says what the hardware ought to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.gpu.fact_images import IMAGE_BYTES, swizzled
from tests.gpu.fact_kernels import DUMP_BYTES, Kernel, tma_load_kernel, tma_store_kernel
from tests.gpu.fact_record import Bench, words
from tilec.backend_ptx.module import DeviceBuffer
from tilec.backend_ptx.tensormap import encode

Array = npt.NDArray[Any]

ROWS = 64  # rows of every box of two extents
WIDTH = 128  # its bytes across
CHUNK = 16
SIZES = {"u8": 1, "bf16": 2, "f32": 4}
EXACT = "exact"
WHOLE_CHUNKS = "up to the next multiple of 16 bytes"
OTHER = "other bytes"

_SHARED_POISON = 0xEE
_GLOBAL_POISON = 0x5A
#: What lies beyond the end of each row of a loaded tensor: NaN where the type has one.
_PADDING = {"u8": b"\x5a", "bf16": b"\xff\x7f", "f32": b"\xff\xff\xff\x7f"}
_TENSOR_ROWS = 40
_FIRST_ROW = 3
_MARGIN = 1024


def copy_kernels() -> list[Kernel]:
    """The kernels that move one box."""
    return [tma_load_kernel(2), tma_load_kernel(3), tma_store_kernel()]


def load(bench: Bench, rank: int, tensor_map: Any, start: tuple[int, ...], count: int) -> Array:
    """Shared memory after one box of `count` bytes was loaded into it."""
    with words(DUMP_BYTES // 4) as target:
        values = [tensor_map, target.address, *start, count]
        bench.run(f"tma_load_{rank}d", values, threads=128, shared_bytes=IMAGE_BYTES)
        return target.read((DUMP_BYTES,), np.uint8)


def box_image(box: Array, pitch: int, swizzle: int) -> Array:
    """Poisoned shared memory after the bytes `box` [rows, bytes] landed at its base."""
    image = np.full(DUMP_BYTES, _SHARED_POISON, np.uint8)
    rows, width = box.shape
    address = np.arange(rows)[:, None] * pitch + np.arange(width)[None, :]
    image[swizzled(address, swizzle)] = box
    return image


def window(data: Array, row: int, byte: int, rows: int, width: int) -> Array:
    """Bytes of a window of a byte matrix, with zeros outside."""
    result = np.zeros((rows, width), np.uint8)
    for i in range(rows):
        if 0 <= row + i < data.shape[0]:
            low, high = max(byte, 0), min(byte + width, data.shape[1])
            if low < high:
                result[i, low - byte : high - byte] = data[row + i, low:high]
    return result


@dataclass(frozen=True)
class Edge:
    """A box that starts at (`column`, 3) of a tensor of `inner` columns and 40 rows.

    Rows lie 32 bytes further apart than their whole 16-byte chunks need; the first starts `shift`
    bytes after a multiple of 1024.
    """

    dtype: str
    swizzle: int
    inner: int
    column: int
    shift: int = 0

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return SIZES[self.dtype]

    @property
    def pitch(self) -> int:
        """Bytes from one row to the next."""
        return -(-self.inner * self.size // CHUNK) * CHUNK + 32

    def ends(self) -> dict[str, int]:
        """The byte of a row at which the tensor ends by each of the two rules."""
        exact = self.inner * self.size
        return {EXACT: exact, WHOLE_CHUNKS: -(-exact // CHUNK) * CHUNK}

    def map_of(self, address: int) -> Any:
        """The tensor map; `address` is that of a buffer with margins."""
        start = address + _MARGIN + self.shift
        dims, box = (self.inner, _TENSOR_ROWS), (WIDTH // self.size, ROWS)
        return encode(start, self.dtype, dims, (self.pitch,), box, self.swizzle)

    def rows_of(self, buffer: Array) -> Array:
        """The tensor's rows, padding included, within a buffer with margins."""
        first = _MARGIN + self.shift
        return buffer[first : first + _TENSOR_ROWS * self.pitch].reshape(_TENSOR_ROWS, self.pitch)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of a buffer with margins that the whole box would fit."""
        return _MARGIN + self.shift + self.pitch * (_FIRST_ROW + ROWS + 1) + _MARGIN


def loaded(bench: Bench, case: Edge, rng: np.random.Generator) -> str:
    """By which rule a load from a tensor with poisoned padding ends; beyond it must be zeros."""
    poison = np.frombuffer(_PADDING[case.dtype], np.uint8)
    buffer = np.tile(poison, case.buffer_bytes // len(poison) + 1)
    used = case.inner * case.size
    case.rows_of(buffer)[:, :used] = rng.integers(0, 256, (_TENSOR_ROWS, used), np.uint8)
    with DeviceBuffer.of(buffer) as source:
        start = (case.column, _FIRST_ROW)
        got = load(bench, 2, case.map_of(source.address), start, WIDTH * ROWS)
    rows, first = case.rows_of(buffer), case.column * case.size
    for rule, end in case.ends().items():
        box = window(rows[:, :end], _FIRST_ROW, first, ROWS, WIDTH)
        if np.array_equal(got, box_image(box, WIDTH, case.swizzle)):
            return rule
    return OTHER


def stored(bench: Bench, source: DeviceBuffer, image: Array, case: Edge) -> str:
    """By which rule a store of the shared memory `image` (at `source`) ends."""
    before = np.full(case.buffer_bytes, _GLOBAL_POISON, np.uint8)
    with DeviceBuffer.of(before) as target:
        values = [case.map_of(target.address), source.address, case.column, _FIRST_ROW]
        bench.run("tma_store_2d", values, threads=128, shared_bytes=IMAGE_BYTES)
        after = target.read(before.shape, np.uint8)
    address = np.arange(ROWS)[:, None] * WIDTH + np.arange(WIDTH)[None, :]
    box = image[swizzled(address, case.swizzle)]
    first = case.column * case.size
    for rule, end in case.ends().items():
        expected = before.copy()
        low, high = max(first, 0), min(first + WIDTH, end)
        if low < high:
            inside = case.rows_of(expected)[_FIRST_ROW:]
            inside[:, low:high] = box[: len(inside), low - first : high - first]
        if np.array_equal(after, expected):
            return rule
    return OTHER
