"""Values as memory holds them: what a narrow type cannot say of a value keeps its kind."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.interp.numbers import decode, encode, storage
from tilec.ir.types import DTYPES


@pytest.mark.parametrize("dtype", ["bf16", "f16", "e4m3", "e5m2"])
def test_a_nan_stays_one_whatever_its_mantissa(dtype: str) -> None:
    low = np.asarray([0x7F800001, 0xFF802000, 0x7FC00000], np.uint32).view(np.float32)
    kind = DTYPES[dtype]
    assert np.isnan(decode(kind, encode(kind, low, storage(kind)))).all()
