"""Every case on the interpreter, its programs assembled; and the page that lists them."""

from __future__ import annotations

import pytest

from tests.cases.case import Case, Runner, all_cases
from tests.cases.page import PAGE, page
from tests.ptx.assemblers import assembled_for
from tilec.runtime import kernel as kernels


@pytest.mark.parametrize("case", all_cases(), ids=lambda c: c.id)
def test_what_went_wrong_elsewhere_is_right(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "gpu_available", lambda: False)
    case.check(Runner(assembled_for))


def test_the_page_lists_them() -> None:
    assert PAGE.read_text() == page(), "type: python -m tests.cases.page"
