"""TMA tensor maps: which views can have one, and its 128 bytes.

Idea: every rule of ``cuTensorMapEncodeTiled`` is checked here first (CUDA driver API, Tensor Map
Object Management), because the driver answers each mistake with the same "invalid argument".

Invariants: dims, boxes and coordinates are innermost first; `strides_bytes` leaves out the
innermost dimension, whose stride is the element; equal requests share one cached map.

Never: imports CUDA before a map is really encoded, or chooses a box or a swizzle.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from tilec.backend_ptx.module import CudaError, call, driver

#: Element bytes and CUtensorMapDataType by dtype name.  fp8 and 8-bit integers travel as bytes;
#: tf32 is mapped as such and is rounded on the way in.
_DTYPES: dict[str, tuple[int, int]] = {
    "s8": (1, 0), "u8": (1, 0), "bool": (1, 0), "e4m3": (1, 0), "e5m2": (1, 0),
    "s16": (2, 1), "u16": (2, 1), "u32": (4, 2), "s32": (4, 3), "u64": (8, 4), "s64": (8, 5),
    "f16": (2, 6), "f32": (4, 7), "f64": (8, 8), "bf16": (2, 9), "tf32": (4, 11),
}  # fmt: skip
_FLOATS = {"f16", "f32", "f64", "bf16", "tf32"}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}
_FILLS = {"zero": 0, "nan": 1}
_CACHED_MAPS = 4096

_MAX_RANK = 5
_MAX_BOX = 256
_MAX_DIM = 1 << 32
_MAX_STRIDE_BYTES = 1 << 40


class TensorMapError(ValueError):
    """A view, box or swizzle that TMA cannot address; the message says which rule and why."""


@dataclass(frozen=True)
class TensorMap:
    """An encoded map: the 128 bytes that a kernel takes as a `.param .align 64 .b8 name[128]`."""

    data: bytes


def element_bytes(dtype_name: str) -> int:
    """Bytes of one element of a mappable dtype."""
    if dtype_name not in _DTYPES:
        raise TensorMapError(f"TMA has no element type {dtype_name}; it has {', '.join(_DTYPES)}")
    return _DTYPES[dtype_name][0]


def mappable(
    address: int,
    element_bytes: int,
    dims: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle: int = 0,
    element_strides: Sequence[int] | None = None,
) -> str | None:
    """None when such a map can be encoded, else the reason why not.  Needs no CUDA."""
    rank = len(dims)
    steps = [1] * rank if element_strides is None else list(element_strides)
    if not 1 <= rank <= _MAX_RANK:
        return f"a tensor map has 1 to {_MAX_RANK} dimensions, not {rank}"
    if len(strides_bytes) != rank - 1:
        return (
            f"{rank} dimensions need {rank - 1} strides (the innermost is the element itself), "
            f"got {len(strides_bytes)}"
        )
    if len(box) != rank or len(steps) != rank:
        return f"the box and the element strides must have {rank} extents like the tensor"
    if swizzle not in _SWIZZLES:
        return f"a swizzle spans 0, 32, 64 or 128 bytes, not {swizzle}"
    return (
        _address_reason(address, dims, strides_bytes)
        or _box_reason(element_bytes, box, swizzle)
        or _step_reason(steps)
    )


def _address_reason(address: int, dims: Sequence[int], strides: Sequence[int]) -> str | None:
    if address == 0:
        return "the address is null"
    if address % 16:
        return f"the address {address:#x} is not a multiple of 16 bytes (it is {address % 16} off)"
    for axis, extent in enumerate(dims):
        if not 1 <= extent <= _MAX_DIM:
            return f"dimension {axis} has {extent} elements; TMA takes 1 to 2^32"
    for axis, stride in enumerate(strides, start=1):
        if stride % 16:
            return (
                f"the stride of dimension {axis}, {stride} bytes, is not a multiple of 16: pad "
                "the rows, or copy without TMA"
            )
        if not 0 <= stride < _MAX_STRIDE_BYTES:
            return f"the stride of dimension {axis}, {stride} bytes, is outside 0 to 2^40 - 1"
    return None


def _box_reason(element_bytes: int, box: Sequence[int], swizzle: int) -> str | None:
    for axis, extent in enumerate(box):
        if not 1 <= extent <= _MAX_BOX:
            return f"the box has {extent} elements along dimension {axis}; TMA takes 1 to 256"
    inner = box[0] * element_bytes
    if inner % 16:
        return f"the box is {inner} bytes wide, not a multiple of 16"
    if swizzle and inner > swizzle:
        return (
            f"the box is {inner} bytes wide, more than its {swizzle}-byte swizzle: split it into "
            f"stripes of {swizzle // element_bytes} elements"
        )
    return None


def _step_reason(steps: Sequence[int]) -> str | None:
    for axis, step in enumerate(steps):
        if not 1 <= step <= 8:
            return f"the element stride {step} of dimension {axis} is outside 1 to 8"
    return None


def encode(
    address: int,
    dtype_name: str,
    dims: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle: int = 0,
    element_strides: Sequence[int] | None = None,
    l2_promotion: int = 128,
    oob: str = "zero",
) -> TensorMap:
    """The map of a strided view; the same request returns the same cached map.

    `swizzle` and `l2_promotion` are in bytes (0 for none); `oob` is what a load puts in place of
    elements outside the tensor, "zero" or "nan".
    """
    return _encode(
        address,
        dtype_name,
        tuple(dims),
        tuple(strides_bytes),
        tuple(box),
        swizzle,
        (1,) * len(dims) if element_strides is None else tuple(element_strides),
        l2_promotion,
        oob,
    )


@lru_cache(maxsize=_CACHED_MAPS)
def _encode(
    address: int,
    dtype_name: str,
    dims: tuple[int, ...],
    strides_bytes: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
    element_strides: tuple[int, ...],
    l2_promotion: int,
    oob: str,
) -> TensorMap:
    size = element_bytes(dtype_name)
    reason = mappable(address, size, dims, strides_bytes, box, swizzle, element_strides)
    if reason is None and l2_promotion not in _PROMOTIONS:
        reason = f"L2 promotion is 0, 64, 128 or 256 bytes, not {l2_promotion}"
    if reason is None and oob not in _FILLS:
        reason = f"elements outside read as zero or nan, not {oob!r}"
    if reason is None and oob == "nan" and dtype_name not in _FLOATS:
        reason = f"a map of {dtype_name} cannot fill with nan: it is moved as integers"
    if reason is not None:
        raise TensorMapError(reason)
    rank = len(dims)
    # The driver demands a 64-byte aligned target, and the CUtensorMap object of cuda.bindings is
    # not always one; so the driver's entry point is called directly on aligned memory.
    block = ctypes.create_string_buffer(128 + 64)
    target = ctypes.addressof(block) + (-ctypes.addressof(block) % 64)
    status = _entry_point()(
        target,
        _DTYPES[dtype_name][1],
        rank,
        address,
        (ctypes.c_uint64 * rank)(*dims),
        (ctypes.c_uint64 * rank)(*strides_bytes),
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*element_strides),
        0,  # no interleave
        _SWIZZLES[swizzle],
        _PROMOTIONS[l2_promotion],
        _FILLS[oob],
    )
    if status:
        name = driver().CUresult(status).name
        raise CudaError(
            "cuTensorMapEncodeTiled",
            name,
            f"{dtype_name} dims {dims} strides {strides_bytes} box {box} swizzle {swizzle} "
            f"at {address:#x}",
        )
    return TensorMap(ctypes.string_at(target, 128))


@cache
def _entry_point() -> Any:
    found = call("cuGetProcAddress", b"cuTensorMapEncodeTiled", 12000, 0)
    address = int(found[0] if isinstance(found, tuple) else found)
    integer, pointer = ctypes.c_int, ctypes.c_void_p
    signature = ctypes.CFUNCTYPE(
        integer, pointer, integer, ctypes.c_uint32, pointer, pointer, pointer, pointer, pointer,
        integer, integer, integer, integer,
    )  # fmt: skip
    return signature(address)
