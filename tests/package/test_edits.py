"""Decisions edited in dumps show in the PTX, or are refused at their line with a reason."""

from __future__ import annotations

import pytest

from benchmarks.edits import EDITS, Edit, EditMissed, lift, outcome, swap


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_the_edit_shows_or_is_refused(edit: Edit) -> None:
    found = outcome(edit, gpu=False)
    assert found.good, found.says


@pytest.mark.parametrize("subject", ["gemm", "attention"])
def test_all_five_kinds_of_decision_are_edited(subject: str) -> None:
    kept = {edit.decision for edit in EDITS if edit.subject == subject and not edit.refused}
    assert kept == {"swizzle", "stages", "roles", "tile", "wait"}
    assert any(edit.refused for edit in EDITS if edit.subject == subject)


def test_an_edit_that_finds_nothing_is_a_failure() -> None:
    with pytest.raises(EditMissed, match="occurs 0 times"):
        swap("stages = 3", "stages = 4", "stages = 2")
    with pytest.raises(EditMissed, match="occurs 2 times"):
        swap("a a", "a", "b")
    with pytest.raises(EditMissed, match="below"):
        lift("wait\nrelease\n", "release", "settle")


def test_lifting_moves_one_line() -> None:
    assert lift("a\nwait\nb\nrelease\nc\n", "release", "wait") == "a\nrelease\nwait\nb\nc\n"
