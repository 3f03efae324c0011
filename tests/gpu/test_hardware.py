"""The facts in docs/hardware.md still hold on the GPU at hand."""

from __future__ import annotations

import pytest

from tests.gpu.hardware_facts import BATCHES, measure_batch


@pytest.mark.parametrize("batch", BATCHES)
def test_claims_hold_on_this_device(batch: str) -> None:
    """Every claim that the compiler relies on is measured again."""
    found = measure_batch(batch)
    assert found["failures"] == {}
    assert found["facts"]
    assert [fact["name"] for fact in found["facts"] if fact["holds"] is False] == []
