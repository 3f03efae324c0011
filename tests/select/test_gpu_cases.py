"""What the cases of ``tests.gpu.test_language`` expect shows what they are about.

A sum that comes to an infinity or a NaN has the same value in many orders, and which NaN it is, is
open: such a case tests nothing, or fails without a fault.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.test_language import Arrays, cases, expected, same_bits

CASES = list(cases())


@pytest.mark.parametrize(
    ("text", "arrays", "written"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_what_a_case_expects_is_finite(text: str, arrays: Arrays, written: tuple[str, ...]) -> None:
    _, want = expected(text, arrays)
    assert all(np.isfinite(want[name]).all() for name in written)


def test_any_nan_is_as_good_as_another_and_nothing_else_is() -> None:
    ours = np.asarray([0x7FFFFFFF, 0x3F800000, 0x80000000], np.uint32).view(np.float32)
    theirs = np.asarray([0xFFC00000, 0x3F800000, 0x80000000], np.uint32).view(np.float32)
    assert same_bits(ours, theirs)
    for place, bits in enumerate((0x7F800000, 0x3F800001, 0x00000000)):
        other = theirs.copy()
        other.view(np.uint32)[place] = bits
        assert not same_bits(ours, other)
