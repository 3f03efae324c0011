"""Random texts end in a module or in diagnostics with places: never a traceback, never a wait."""

from __future__ import annotations

import pytest

from tests.fuzz import grammar

SHORT, LONG = 60, 4000


def faults(seeds: range) -> dict[int, str]:
    """What is wrong, by seed."""
    found = ((seed, grammar.fault(grammar.text_of(seed))) for seed in seeds)
    return {seed: said for seed, said in found if said}


def test_random_texts_end_in_a_module_or_in_diagnostics() -> None:
    assert faults(range(SHORT)) == {}


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_many_random_texts_end_in_a_module_or_in_diagnostics(part: int) -> None:
    each = LONG // 4
    assert faults(range(SHORT + part * each, SHORT + (part + 1) * each)) == {}


def test_some_texts_are_programs_and_most_are_not() -> None:
    texts = [grammar.text_of(seed) for seed in range(40)]
    assert len(set(texts)) == len(texts)
    assert any("kernel" in text for text in texts)
