"""The facts in docs/hardware.md still hold on the GPU at hand."""

from __future__ import annotations

import pytest

from tests.gpu.hardware_facts import BATCHES, LIMIT_S, measure_batch
from tilec.runtime.supervise import run


@pytest.mark.parametrize("batch", BATCHES)
def test_claims_hold_on_this_device(batch: str) -> None:
    """Every claim that the compiler relies on is measured again."""
    facts = run(measure_batch, batch, limit_s=LIMIT_S)
    assert facts
    assert [fact["name"] for fact in facts if fact["holds"] is False] == []
