"""One view of every framework's arrays: where the elements lie, and who owns them.

Idea: a kernel needs an address, a shape, strides and a dtype name.  torch, cupy, jax and numpy all
say so, each in its own way; `view` asks without importing any of them.

Invariants: strides are exact, in elements and in bytes (they differ by the element size only), and
may be 0 or negative; `address` is that of element (0, …, 0); a view keeps its owner alive; nothing
is copied, and only a jax array is waited for.

Never: imports a framework that the caller has not imported, or changes an array.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

#: Element bytes by tilec's dtype names.
ELEMENT_BYTES: dict[str, int] = {
    "f64": 8, "f32": 4, "tf32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "e5m2": 1, "s64": 8, "s32": 4,
    "s16": 2, "s8": 1, "u64": 8, "u32": 4, "u16": 2, "u8": 1, "bool": 1,
}  # fmt: skip

NIBBLES = ("s4", "u4")
"""Types of which two elements share a byte, along the last axis, which has stride 1."""

#: Our name by the name that numpy, ml_dtypes, torch, cupy and jax use.
_NAMES: dict[str, str] = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "int64": "s64", "int32": "s32",
    "int16": "s16", "int8": "s8", "uint64": "u64", "uint32": "u32", "uint16": "u16",
    "uint8": "u8", "bool": "bool",
}  # fmt: skip
_FOREIGN = {ours: theirs for theirs, ours in _NAMES.items()} | {"tf32": "float32"}

_FRAMEWORKS = {"torch": "torch", "cupy": "cupy", "jaxlib": "jax", "jax": "jax"}

_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_HOST, _DLPACK_CUDA_MANAGED = 1, 2, 3, 13

Device = tuple[str, int]
CPU: Device = ("cpu", 0)


def place(device: Device) -> str:
    """A device in words."""
    return "the CPU" if device[0] == "cpu" else f"GPU {device[1]}"


class ArrayError(TypeError):
    """An argument is no array that tilec can read; the message says what it is instead."""


@dataclass(frozen=True)
class ArrayView:
    """Where an array's elements lie.  `device` is ("cpu", 0) or ("cuda", ordinal)."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: Device
    owner: Any
    readonly: bool = False

    @property
    def element_bytes(self) -> int:
        """Bytes of one element; those that have half a byte are counted ``in_bytes``."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def element_bits(self) -> int:
        """Bits of one element."""
        return 4 if self.dtype in NIBBLES else 8 * self.element_bytes

    @property
    def in_bytes(self) -> ArrayView:
        """The same memory, by the bytes where elements share them."""
        if self.dtype not in NIBBLES:
            return self
        shape = (*self.shape[:-1], self.shape[-1] // 2)
        strides = (*(stride // 2 for stride in self.strides[:-1]), 1)
        return replace(self, shape=shape, strides=strides, dtype="u8")

    @property
    def strides_bytes(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        return tuple(stride * self.element_bytes for stride in self.strides)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def kind(self) -> str:
        """The framework of the owner: torch, cupy, jax or numpy."""
        return framework(self.owner)

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps."""
        return self.size == 0 or all(
            extent == 1 or stride == packed
            for extent, stride, packed in zip(
                self.shape, self.strides, packed_strides(self.shape), strict=True
            )
        )

    def bounds(self) -> tuple[int, int]:
        """First byte, and one past the last byte, that the view can touch; equal when empty."""
        if self.size == 0:
            return self.address, self.address
        if self.dtype in NIBBLES:
            return self.in_bytes.bounds()
        steps = [
            (extent - 1) * stride
            for extent, stride in zip(self.shape, self.strides_bytes, strict=True)
        ]
        low = self.address + sum(step for step in steps if step < 0)
        high = self.address + sum(step for step in steps if step > 0)
        return low, high + self.element_bytes


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def framework(array: Any) -> str:
    """The name of the array's framework, judged by the modules that define its classes."""
    for base in type(array).__mro__:  # a subclass made elsewhere still is its framework's
        name = _FRAMEWORKS.get(base.__module__.split(".", 1)[0])
        if name is not None:
            return name
    return "numpy"


def is_array(value: Any) -> bool:
    """Whether `view` is likely to accept the value (a number is none)."""
    numpy = sys.modules.get("numpy")
    if isinstance(value, (int, float, complex, str, bytes)):
        return False
    if numpy is not None and isinstance(value, numpy.generic):
        return False
    marks = ("__array_interface__", "__cuda_array_interface__", "__dlpack__")
    return framework(value) == "torch" or any(hasattr(type(value), mark) for mark in marks)


def view(array: Any, dtype: str | None = None) -> ArrayView:
    """The view of an array; `dtype` reads 8- or 16-bit integers as a float of that width that
    NumPy has not.
    """
    if isinstance(array, ArrayView):
        found = array
    elif framework(array) == "torch":
        found = _torch_view(array)
    elif framework(array) == "jax":
        found = _dlpack_view(array)
    elif hasattr(type(array), "__cuda_array_interface__"):
        found = _cuda_interface_view(array)
    elif hasattr(type(array), "__array_interface__"):
        found = _numpy_view(array)
    elif hasattr(type(array), "__dlpack__"):
        found = _dlpack_view(array)
    else:
        raise ArrayError(
            f"{type(array).__module__}.{type(array).__qualname__} is no array: it has neither "
            "__cuda_array_interface__, __array_interface__ nor __dlpack__"
        )
    return found if dtype is None else reinterpret(found, dtype)


def reinterpret(found: ArrayView, dtype: str) -> ArrayView:
    """The same bytes under another dtype: bf16, fp8 and four bits from integers, tf32 from f32.

    f16 is no such case: every framework has it, and integers that were meant as numbers would pass.
    """
    if found.dtype == dtype:
        return found
    if dtype in NIBBLES:
        return _in_nibbles(found, dtype)
    same_width = ELEMENT_BYTES[dtype] == found.element_bytes
    bits = found.dtype in {"u8", "u16", "s8", "s16"} and dtype in {"bf16", "e4m3", "e5m2"}
    if not (same_width and (bits or (found.dtype, dtype) == ("f32", "tf32"))):
        raise ArrayError(f"an array of {found.dtype} cannot be read as {dtype}")
    return ArrayView(
        found.address, found.shape, found.strides, dtype, found.device, found.owner, found.readonly
    )


def _in_nibbles(found: ArrayView, dtype: str) -> ArrayView:
    """Bytes as twice as many elements along the last axis, the low half of each byte first."""
    if found.dtype not in ("u8", "s8") or not found.shape:
        raise ArrayError(f"an array of {found.dtype} cannot be read as {dtype}")
    if found.shape[-1] > 1 and found.strides[-1] != 1:
        raise ArrayError(f"the last axis has stride {found.strides[-1]}, that of {dtype} has 1")
    shape = (*found.shape[:-1], 2 * found.shape[-1])
    strides = (*(2 * stride for stride in found.strides[:-1]), 1)
    return replace(found, shape=shape, strides=strides, dtype=dtype)


def _our_dtype(name: str, owner: Any) -> str:
    if name not in _NAMES:
        raise ArrayError(f"{framework(owner)} array of {name}: tilec has {', '.join(_FOREIGN)}")
    return _NAMES[name]


def _torch_view(array: Any) -> ArrayView:
    if not hasattr(array, "data_ptr"):
        raise ArrayError(f"torch.{type(array).__name__} is no tensor")
    if array.device.type not in ("cpu", "cuda"):
        raise ArrayError(f"a torch tensor on {array.device} is neither on the CPU nor on a GPU")
    device = CPU if array.device.type == "cpu" else ("cuda", int(array.device.index or 0))
    name = str(array.dtype).removeprefix("torch.")
    shape = tuple(int(extent) for extent in array.shape)
    strides = tuple(int(stride) for stride in array.stride())
    return ArrayView(array.data_ptr(), shape, strides, _our_dtype(name, array), device, array)


def _element_strides(strides_bytes: Sequence[int], size: int, owner: Any) -> tuple[int, ...]:
    if any(stride % size for stride in strides_bytes):
        raise ArrayError(
            f"{framework(owner)} array with strides {tuple(strides_bytes)} bytes: they are no "
            f"multiples of its {size}-byte elements"
        )
    return tuple(stride // size for stride in strides_bytes)


def _interface_strides(
    interface: dict[str, Any], size: int, owner: Any
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = tuple(int(extent) for extent in interface["shape"])
    strides_bytes = interface.get("strides")
    if strides_bytes is None:
        return shape, packed_strides(shape)
    return shape, _element_strides(strides_bytes, size, owner)


def _cuda_interface_view(array: Any) -> ArrayView:
    interface = array.__cuda_array_interface__
    # The interface's typestr has no name for bfloat16 or fp8; the array's own dtype has.
    name = str(getattr(array, "dtype", "")) or _typestr_name(interface["typestr"])
    dtype = _our_dtype(name, array)
    shape, strides = _interface_strides(interface, ELEMENT_BYTES[dtype], array)
    address, readonly = interface["data"]
    device = getattr(getattr(array, "device", None), "id", 0)
    return ArrayView(
        int(address or 0), shape, strides, dtype, ("cuda", int(device)), array, bool(readonly)
    )


def _numpy_view(array: Any) -> ArrayView:
    interface = array.__array_interface__
    dtype_object = getattr(array, "dtype", None)
    if dtype_object is not None and not dtype_object.isnative:
        raise ArrayError(f"numpy array of {dtype_object}: its bytes are not in this CPU's order")
    name = str(dtype_object) if dtype_object is not None else _typestr_name(interface["typestr"])
    dtype = _our_dtype(name, array)
    shape, strides = _interface_strides(interface, ELEMENT_BYTES[dtype], array)
    address, readonly = interface["data"]
    return ArrayView(int(address or 0), shape, strides, dtype, CPU, array, bool(readonly))


def _typestr_name(typestr: str) -> str:
    kinds = {"f": "float", "i": "int", "u": "uint", "b": "bool"}
    order, kind, size = typestr[0], typestr[1], int(typestr[2:])
    if order == ">" or kind not in kinds:
        raise ArrayError(f"an array of elements {typestr!r} cannot be read")
    return "bool" if kind == "b" else f"{kinds[kind]}{8 * size}"


def _dlpack_view(array: Any) -> ArrayView:
    kind, ordinal = array.__dlpack_device__()
    name = str(array.dtype) if hasattr(array, "dtype") else ""
    if int(kind) in (_DLPACK_CPU, _DLPACK_CUDA_HOST):
        numpy = sys.modules.get("numpy")
        if numpy is None or name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            raise ArrayError(f"a {framework(array)} array of {name} on the CPU: pass it as numpy")
        found = _numpy_view(numpy.from_dlpack(array))
        return ArrayView(
            found.address, found.shape, found.strides, found.dtype, CPU, array, found.readonly
        )
    if int(kind) not in (_DLPACK_CUDA, _DLPACK_CUDA_MANAGED):
        raise ArrayError(f"a {framework(array)} array on DLPack device type {int(kind)}")
    if hasattr(type(array), "unsafe_buffer_pointer"):  # jax: packed, and read only by contract
        array.block_until_ready()  # jax has no stream that a launch could be ordered behind
        shape = tuple(int(extent) for extent in array.shape)
        address = int(array.unsafe_buffer_pointer())
        dtype = _our_dtype(name, array)
        place = ("cuda", int(ordinal))
        return ArrayView(address, shape, packed_strides(shape), dtype, place, array, True)
    for module in ("torch", "cupy"):
        loaded = sys.modules.get(module)
        if loaded is not None:
            inner = view(loaded.from_dlpack(array))
            # The converted array holds the exported memory, so it is what must stay alive.
            return inner
    raise ArrayError(
        f"a {type(array).__qualname__} speaks only DLPack on the GPU: import torch or cupy first"
    )


# --- streams and outputs -------------------------------------------------------------------------


def current_stream(array: ArrayView) -> int:
    """The stream on which the array's framework would run its next operation (0 by default)."""
    return stream_of(array.kind, array.device)


def stream_of(kind: str, device: Device) -> int:
    """The stream on which the framework `kind` would run its next operation on `device`."""
    if device[0] != "cuda":
        return 0
    ordinal = device[1]
    if kind == "torch":
        return int(sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream)
    if kind == "cupy":
        with sys.modules["cupy"].cuda.Device(ordinal):
            return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0


def empty_like_kind(
    kind: str, shape: Sequence[int], dtype: str, device: Device, given: Iterable[ArrayView] = ()
) -> Any:
    """A new, uninitialised, row-major array of the framework `kind` on `device`.

    None has s4: half as many bytes stand for it. NumPy has no bf16 and no fp8: what stands for
    them is what stands for them in `given`, arrays that the kernel takes as the same element type.
    """
    alike = next(
        (getattr(v.owner, "dtype", None) for v in given if v.kind == kind),
        None,
    )
    if dtype in NIBBLES:
        shape, dtype = (*shape[:-1], shape[-1] // 2), "u8"
    name = _FOREIGN[dtype]
    if kind == "torch":
        torch = sys.modules["torch"]
        where = "cpu" if device[0] == "cpu" else f"cuda:{device[1]}"
        return torch.empty(tuple(shape), dtype=getattr(torch, name), device=where)
    if kind == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(device[1]):
            return cupy.empty(tuple(shape), dtype=alike or _numpy_dtype(dtype))
    if kind == "numpy" and device[0] == "cpu":
        import numpy

        return numpy.empty(tuple(shape), dtype=alike or _numpy_dtype(dtype))
    raise ArrayError(f"cannot allocate a {kind} array on {device[0]}; pass the output explicitly")


def _numpy_dtype(dtype: str) -> Any:
    import numpy

    name = _FOREIGN[dtype]
    if dtype not in ("bf16", "e4m3", "e5m2"):
        return numpy.dtype(name)
    try:
        import ml_dtypes  # type: ignore[import-not-found,unused-ignore]
    except ImportError:  # the bits, in the unsigned integer of the same width
        return numpy.dtype(f"uint{8 * ELEMENT_BYTES[dtype]}")
    return numpy.dtype(getattr(ml_dtypes, name))


# --- overlap -------------------------------------------------------------------------------------


def same_elements(a: ArrayView, b: ArrayView) -> bool:
    """Whether both views are the very same elements in the same order."""
    a, b = a.in_bytes, b.in_bytes
    moving = [
        (x, y) for x, y, extent in zip(a.strides, b.strides, a.shape, strict=False) if extent > 1
    ]
    return (
        a.device == b.device
        and (a.address, a.shape, a.element_bytes) == (b.address, b.shape, b.element_bytes)
        and all(x == y for x, y in moving)
    )


def may_overlap(a: ArrayView, b: ArrayView) -> bool:
    """Whether two views can touch a common byte.

    Exact for intervals; two views interleaved in one interval are told apart when their strides
    share a pitch that keeps them in different columns (halves of one matrix, say).  Otherwise the
    answer errs towards yes.
    """
    a, b = a.in_bytes, b.in_bytes
    if a.device != b.device or a.size == 0 or b.size == 0:
        return False
    (a_low, a_high), (b_low, b_high) = a.bounds(), b.bounds()
    if a_high <= b_low or b_high <= a_low:
        return False
    return not any(_columns_apart(a, b, pitch) for pitch in _pitches(a) & _pitches(b))


def _pitches(a: ArrayView) -> set[int]:
    return {
        abs(stride)
        for stride, extent in zip(a.strides_bytes, a.shape, strict=True)
        if extent > 1 and stride
    }


def _columns_apart(a: ArrayView, b: ArrayView, pitch: int) -> bool:
    spans = []
    for array in (a, b):
        low = high = array.address
        for stride, extent in zip(array.strides_bytes, array.shape, strict=True):
            if stride % pitch:
                low += min((extent - 1) * stride, 0)
                high += max((extent - 1) * stride, 0)
        width = high - low + array.element_bytes
        if width > pitch:
            return False
        spans.append((low % pitch, width))
    (first, first_width), (second, second_width) = spans
    gap = (second - first) % pitch
    return gap >= first_width and gap + second_width <= pitch
