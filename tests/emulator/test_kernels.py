"""Whole kernels on the emulator: what they compute, in every order, and that nothing is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.running import emulated
from tilec.emulator.schedule import ORDERS


def _bf16(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def _wide(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("sizes", [(64, 64, 64), (200, 136, 72), (128, 128, 0)])
def test_gemm(sizes: tuple[int, int, int], order: str) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(1)
    arrays = {"a": _bf16(rng.standard_normal((m, k))), "b": _bf16(rng.standard_normal((n, k)))}
    found = emulated("gemm", {**arrays, "c": np.zeros((m, n), np.uint16)}, order=order)
    exact = _wide(arrays["a"]) @ _wide(arrays["b"]).T
    assert not [f.message for f in found.findings]
    assert np.all(np.abs(_wide(found.arrays["c"]) - exact) <= np.abs(exact) * 2.0**-8 + 1e-4)


@pytest.mark.parametrize("order", ORDERS)
def test_softmax(order: str) -> None:
    x = _bf16(np.random.default_rng(2).standard_normal((17, 300)))
    found = emulated("softmax", {"x": x, "y": np.zeros_like(x)}, order=order)
    p = np.exp(_wide(x) - _wide(x).max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    assert not [f.message for f in found.findings]
    assert np.all(np.abs(_wide(found.arrays["y"]) - p) <= p * 2.0**-7)
