"""Every framework's arrays become the same view."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilec.runtime.arrays import (
    CPU,
    ArrayError,
    ArrayView,
    current_stream,
    empty_like_kind,
    is_array,
    may_overlap,
    same_elements,
    view,
)


def _element_addresses(array: ArrayView) -> set[int]:
    """Every byte that the view touches, by brute force."""
    found: set[int] = set()
    for index in np.ndindex(*array.shape):
        start = array.address + sum(
            i * stride for i, stride in zip(index, array.strides_bytes, strict=True)
        )
        found.update(range(start, start + array.element_bytes))
    return found


def test_a_numpy_array_says_where_its_elements_lie() -> None:
    """Address, strides in elements, dtype."""
    array = np.zeros((3, 4), np.float32)
    found = view(array)
    assert (found.shape, found.strides, found.strides_bytes) == ((3, 4), (4, 1), (16, 4))
    assert (found.dtype, found.device, found.readonly) == ("f32", CPU, False)
    assert found.address == array.ctypes.data
    assert found.owner is array
    assert found.is_contiguous


@pytest.mark.parametrize(
    ("make", "strides"),
    [
        (lambda a: a.T, (1, 6)),
        (lambda a: a[:, ::2], (6, 2)),
        (lambda a: a[::-1, ::-1], (-6, -1)),
        (lambda a: np.broadcast_to(a[0], (4, 6)), (0, 1)),
    ],
)
def test_strides_are_exact(make: Any, strides: tuple[int, ...]) -> None:
    """Transposed, stepped, reversed, broadcast."""
    array = make(np.arange(24, dtype=np.int16).reshape(4, 6))
    found = view(array)
    assert found.strides == strides
    low, high = found.bounds()
    assert _element_addresses(found) <= set(range(low, high))
    assert {low, high - 1} <= _element_addresses(found)


def test_a_readonly_array_says_so() -> None:
    """A launch refuses to write to it."""
    array = np.zeros(4)
    array.flags.writeable = False
    assert view(array).readonly


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5)])
def test_empty_arrays_touch_nothing(shape: tuple[int, ...]) -> None:
    """Their address is never used."""
    found = view(np.zeros(shape, np.float16))
    low, high = found.bounds()
    assert low == high
    assert found.is_contiguous
    assert not may_overlap(found, found)


def test_sixteen_bits_can_be_read_as_bfloat16() -> None:
    """numpy has no bf16 of its own; unsigned bits carry it."""
    assert view(np.zeros(4, np.uint16), "bf16").dtype == "bf16"
    assert view(np.zeros(4, np.uint8), "e4m3").dtype == "e4m3"
    with pytest.raises(ArrayError, match="array of u16 cannot be read as f16"):
        view(np.zeros(4, np.uint16), "f16")
    with pytest.raises(ArrayError, match="array of s16 cannot be read as u16"):
        view(np.zeros(4, np.int16), "u16")
    with pytest.raises(ArrayError, match="array of f16 cannot be read as bf16"):
        view(np.zeros(4, np.float16), "bf16")
    with pytest.raises(ArrayError, match="array of u8 cannot be read as bf16"):
        view(np.zeros(4, np.uint8), "bf16")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros(3, np.complex64), "complex64"),
        (np.zeros(3, ">f4"), "order"),
        (np.zeros(3, dtype=[("a", "f4"), ("b", "u1")])["a"], "multiples of its 4-byte"),
        ([1, 2], "builtins.list is no array"),
    ],
)
def test_what_cannot_be_read_is_named(value: Any, words: str) -> None:
    """Unknown elements, foreign byte order, ragged strides, no array at all."""
    with pytest.raises(ArrayError) as caught:
        view(value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(np.zeros(2), True), (np.zeros(()), True), (1.5, False), (np.float32(1), False), ("x", False)],
)
def test_numbers_are_no_arrays(value: Any, expected: bool) -> None:
    """A numpy scalar is a number, a rank-0 array is an array."""
    assert is_array(value) is expected


class _Device:
    def __init__(self, kind: str, index: int | None) -> None:
        self.type, self.index = kind, index


class _Tensor:
    """Answers as a torch tensor does."""

    def __init__(self, dtype: str = "torch.bfloat16", device: _Device | None = None) -> None:
        self.dtype, self.device, self.shape = dtype, device or _Device("cuda", 1), (2, 8)

    def data_ptr(self) -> int:
        return 0x7000

    def stride(self) -> tuple[int, ...]:
        return (16, 1)


_Tensor.__module__ = "torch"


class _Sub(_Tensor):
    """A subclass defined elsewhere."""


def test_a_torch_tensor_is_read_without_importing_torch() -> None:
    """Duck typing by the module of the class, subclasses included."""
    for tensor in (_Tensor(), _Sub()):
        found = view(tensor)
        assert (found.address, found.strides, found.dtype) == (0x7000, (16, 1), "bf16")
        assert (found.device, found.kind) == (("cuda", 1), "torch")
    assert view(_Tensor(device=_Device("cpu", None))).device == CPU
    with pytest.raises(ArrayError, match="neither on the CPU nor on a GPU"):
        view(_Tensor(device=_Device("meta", None)))
    with pytest.raises(ArrayError, match="complex64"):
        view(_Tensor("torch.complex64"))


class _CudaArray:
    """Answers as any array with the CUDA array interface does."""

    __cuda_array_interface__ = {  # noqa: RUF012
        "shape": (4, 4),
        "typestr": "<f2",
        "data": (0x9000, True),
        "strides": (2, 8),
        "version": 3,
    }


def test_the_cuda_array_interface_is_read() -> None:
    """Byte strides become element strides; read-only is kept."""
    found = view(_CudaArray())
    assert (found.address, found.strides, found.dtype) == (0x9000, (1, 4), "f16")
    assert (found.device, found.readonly) == (("cuda", 0), True)
    assert current_stream(found) == 0


class _Exporter:
    """Speaks DLPack only, as a small array library would."""

    def __init__(self) -> None:
        self.inner = np.arange(6, dtype=np.int32).reshape(2, 3)

    def __dlpack__(self, **options: Any) -> Any:
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_dlpack_is_the_last_resort() -> None:
    """The memory is shared, and the exporter stays alive with the view."""
    exporter = _Exporter()
    found = view(exporter)
    assert (found.address, found.shape) == (exporter.inner.ctypes.data, (2, 3))
    assert found.owner is exporter


def test_outputs_are_allocated_in_the_callers_framework() -> None:
    """numpy for numpy; a refusal elsewhere."""
    made = empty_like_kind("numpy", (2, 3), "f32", CPU)
    assert (made.shape, made.dtype) == ((2, 3), np.float32)
    assert view(empty_like_kind("numpy", (4,), "bf16", CPU)).element_bytes == 2
    with pytest.raises(ArrayError, match="pass the output explicitly"):
        empty_like_kind("jax", (2,), "f32", ("cuda", 0))


def test_halves_of_a_matrix_do_not_overlap() -> None:
    """Interleaved in memory, yet in different columns."""
    array = np.zeros((8, 8), np.float32)
    left, right, shifted = view(array[:, :4]), view(array[:, 4:]), view(array[:, 3:7])
    assert not may_overlap(left, right)
    assert may_overlap(left, shifted)
    assert same_elements(left, view(array[:, :4]))
    assert not same_elements(left, right)


_SLICES = st.tuples(st.integers(0, 5), st.integers(1, 6), st.sampled_from([-2, -1, 1, 2, 3])).map(
    lambda t: slice(t[0], t[0] + t[1], t[2]) if t[2] > 0 else slice(t[0] + t[1], t[0], t[2])
)


@settings(deadline=None)
@given(st.tuples(_SLICES, _SLICES), st.tuples(_SLICES, _SLICES))
def test_overlap_is_never_missed(first: tuple[slice, slice], second: tuple[slice, slice]) -> None:
    """Against brute force: a common byte is always reported."""
    array = np.zeros((9, 9), np.int16)
    a, b = view(array[first]), view(array[second])
    if _element_addresses(a) & _element_addresses(b):
        assert may_overlap(a, b)


def test_importing_the_module_loads_no_framework() -> None:
    """Neither numpy nor CUDA: an import of tilec stays cheap."""
    code = (
        "import sys, tilec.runtime.arrays; "
        "sys.exit(bool({'numpy', 'torch', 'cupy', 'jax', 'cuda.bindings'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
