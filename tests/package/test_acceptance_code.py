"""The code of every acceptance case assembles, spills nothing, and multiplies on tensor cores."""

from __future__ import annotations

import pytest

from tests.gpu.assemble_cases import examine_all
from tests.gpu.cases import all_cases, matching


@pytest.mark.long
@pytest.mark.parametrize("program", ["gemm bf16", "gemm f16", "add", "softmax"])
def test_every_case_leads_to_clean_code(program: str) -> None:
    count, findings = examine_all(matching(all_cases(seed=0), program), jobs=1)
    assert count > 10
    assert findings == []


@pytest.mark.parametrize("program", ["gemm bf16", "gemm f16", "add", "softmax"])
def test_a_selection_of_cases_leads_to_clean_code(program: str) -> None:
    cases = matching(all_cases(seed=0), program)
    _, findings = examine_all(cases[:: len(cases) // 12], jobs=1)
    assert findings == []
