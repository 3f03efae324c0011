"""What shared memory and registers must hold, in plain numpy.

Idea: the hardware experiments compare bytes.  This file states, independently of the compiler's
layout algebra, where each element of an operand lies in shared memory (matrix descriptors,
swizzles) and which thread's register holds it (fragments), so that an error in either place shows.

Invariants: every function is a direct transcription of a formula in the PTX manual, chapter
"Asynchronous Warpgroup Level Matrix Instructions" (shared memory layout, register fragments).

Never: imports tilec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

A_PLACE = 0
B_PLACE = 16384
IMAGE_BYTES = 49152
K_BYTES = 128  # every product runs over 128 bytes of K: four instructions
STEPS = 4

SWIZZLE_MASK = {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}
DESCRIPTOR_SWIZZLE = {0: 0, 128: 1, 64: 2, 32: 3}


def swizzled(address: Array, swizzle: int) -> Array:
    """The physical byte of a logical byte address: XOR of 16-byte chunks by 128-byte rows."""
    physical: Array = address ^ ((address >> 3) & SWIZZLE_MASK[swizzle])
    return physical


@dataclass(frozen=True)
class Operand:
    """One operand in shared memory: its descriptor fields and the offset of each k step (bytes)."""

    address: Array  # [rows, K elements] logical byte addresses relative to the operand's place
    leading_bytes: int
    stride_bytes: int
    steps_bytes: tuple[int, ...]
    swizzle: int

    def descriptor(self, place: int) -> int:
        """The 64-bit descriptor, for an operand at byte `place` of a base address of zero."""
        return (
            (place >> 4)
            | (self.leading_bytes >> 4) << 16
            | (self.stride_bytes >> 4) << 32
            | DESCRIPTOR_SWIZZLE[self.swizzle] << 62
        )

    def exchanged(self) -> Operand:
        """The same bytes read with the two distances exchanged."""
        return Operand(
            self.address, self.stride_bytes, self.leading_bytes, self.steps_bytes, self.swizzle
        )


def k_major(rows: int, element_bytes: int, swizzle: int) -> Operand:
    """Rows of contiguous K: stripes of one swizzle width, or 8-row x 16-byte cores without one."""
    row = np.arange(rows)[:, None]
    byte = (np.arange(K_BYTES // element_bytes) * element_bytes)[None, :]
    if swizzle == 0:
        column = (rows // 8) * 128
        address = byte // 16 * column + row // 8 * 128 + row % 8 * 16 + byte % 16
        return Operand(address, column, 128, tuple(2 * column * s for s in range(STEPS)), 0)
    stripe = rows * swizzle
    address = byte // swizzle * stripe + row * swizzle + byte % swizzle
    starts = [32 * s for s in range(STEPS)]
    steps = tuple(start // swizzle * stripe + start % swizzle for start in starts)
    return Operand(address, 16, 8 * swizzle, steps, swizzle)


def mn_major(rows: int, element_bytes: int, swizzle: int) -> Operand:
    """Rows of contiguous M or N: stripes of one swizzle width, each holding all of K."""
    depth = K_BYTES // element_bytes
    byte = (np.arange(rows) * element_bytes)[:, None]
    k = np.arange(depth)[None, :]
    per_step = 32 // element_bytes
    if swizzle == 0:
        chunk = 128 * (depth // 8)
        address = byte // 16 * chunk + k // 8 * 128 + k % 8 * 16 + byte % 16
        return Operand(address, 128, chunk, tuple(128 * per_step // 8 * s for s in range(4)), 0)
    stripe = depth * swizzle
    address = byte // swizzle * stripe + k * swizzle + byte % swizzle
    steps = tuple(per_step * swizzle * s for s in range(STEPS))
    return Operand(address, stripe, 8 * swizzle, steps, swizzle)


def place(image: Array, at: int, operand: Operand, bits: Array) -> None:
    """Write an operand's element bits into a byte image, swizzled by absolute address."""
    size = bits.dtype.itemsize
    where = swizzled(operand.address + at, operand.swizzle)
    raw = np.ascontiguousarray(bits).view(np.uint8).reshape(*bits.shape, size)
    for byte in range(size):
        image[where + byte] = raw[..., byte]


# --- registers -----------------------------------------------------------------------------------

_THREAD = np.arange(128)
_WARP, _G, _T = _THREAD // 32, _THREAD % 32 // 4, _THREAD % 4


def accumulator_places(n: int) -> tuple[Array, Array]:
    """Row and column of register i (axis 0) of each thread (axis 1) of m64nN, 32-bit."""
    i = np.arange(n // 2)[:, None]
    return 16 * _WARP + _G + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * _T + (i & 1)


def read_accumulator(registers: Array, n: int) -> Array:
    """The 64 x n matrix in registers[i, thread]."""
    result = np.empty((64, n), registers.dtype)
    result[accumulator_places(n)] = registers
    return result


def a_places(element_bytes: int) -> tuple[Array, Array]:
    """Row and K column of element j (axis 0) of each thread (axis 1) of one k step."""
    j = np.arange(16 // element_bytes)[:, None]
    if element_bytes == 2:
        return 16 * _WARP + _G + 8 * (j >> 1 & 1), 2 * _T + (j & 1) + 8 * (j >> 2)
    if element_bytes == 1:
        return 16 * _WARP + _G + 8 * (j >> 2 & 1), 4 * _T + (j & 3) + 16 * (j >> 3)
    return 16 * _WARP + _G + 8 * (j & 1), _T + 4 * (j >> 1)


def a_registers(bits: Array) -> Array:
    """A's element bits [64, K] as 32-bit registers [step, register, thread]."""
    size = bits.dtype.itemsize
    per_step = 32 // size
    rows, columns = a_places(size)
    words = []
    for step in range(STEPS):
        elements = bits[rows, columns + per_step * step]  # [j, thread]
        by_thread = np.ascontiguousarray(elements.T).view(np.uint32)  # [thread, register]
        words.append(by_thread.T)
    return np.ascontiguousarray(np.stack(words))


# --- numbers -------------------------------------------------------------------------------------

_E4M3 = {0: 0x00, 1: 0x38, 2: 0x40, 3: 0x44}
_E5M2 = {0: 0x00, 1: 0x3C, 2: 0x40, 3: 0x42}


def bits_of(values: Array, dtype: str) -> Array:
    """Element bits of whole numbers from -3 to 3 (0 to 3 for u8)."""
    if dtype == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    if dtype == "tf32":
        return values.astype(np.float32).view(np.uint32)
    if dtype in ("s8", "u8"):
        return values.astype(np.int8).view(np.uint8)
    codes = _E4M3 if dtype == "e4m3" else _E5M2
    table = np.array([codes[abs(v)] | (0x80 if v < 0 else 0) for v in range(-3, 4)], np.uint8)
    chosen: Array = table[values + 3]
    return chosen


ELEMENT_BYTES = {"bf16": 2, "f16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}


def small_integers(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> Array:
    """Whole numbers that every dtype holds and whose products sum exactly."""
    return rng.integers(0 if dtype == "u8" else -3, 4, shape)
