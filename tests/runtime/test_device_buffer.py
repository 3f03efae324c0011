"""Which error shows when device memory cannot be freed any more; needs no GPU."""

from __future__ import annotations

import pytest

from tilec.backend_ptx import module as cuda


@pytest.fixture(autouse=True)
def _poisoned_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context in which a kernel faulted: every later call fails."""

    def refuse(address: int) -> None:
        raise cuda.CudaError("cuMemFree", "CUDA_ERROR_ILLEGAL_INSTRUCTION", f"at {address}")

    monkeypatch.setattr(cuda, "allocate", lambda size_bytes: 256 + size_bytes)
    monkeypatch.setattr(cuda, "free", refuse)


def test_the_first_error_is_not_hidden_by_freeing() -> None:
    """Two nested buffers, as in most experiments."""
    with (
        pytest.raises(cuda.CudaError) as caught,
        cuda.DeviceBuffer(4),
        cuda.DeviceBuffer(8),
    ):
        raise cuda.CudaError("cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_INSTRUCTION", "the kernel")
    assert caught.value.function == "cuCtxSynchronize"


def test_a_failure_to_free_alone_is_an_error() -> None:
    """Nothing else would report it."""
    with pytest.raises(cuda.CudaError) as caught, cuda.DeviceBuffer(4):
        pass
    assert caught.value.function == "cuMemFree"
