"""Every pass of the pipeline is found by its name and says in a sentence what it ensures."""

from __future__ import annotations

import pytest

from tilec.ir.levels import LEVELS
from tilec.pipeline import PIPELINE, find_pass


@pytest.mark.parametrize("name", PIPELINE)
def test_a_pass_has_its_name_and_a_sentence(name: str) -> None:
    found = find_pass(name)
    assert found.name == name
    assert found.doc
    assert found.doc.split("\n\n")[0].rstrip().endswith(".")
    assert {found.level, found.produces} <= set(LEVELS)


def test_levels_follow_one_another() -> None:
    level = "tile"
    for name in PIPELINE:
        found = find_pass(name)
        assert found.level == level, name
        level = found.produces
    assert level == "ptx"
