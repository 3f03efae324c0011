"""The table of small ``cta`` kernels, as tests: all of a family on a GPU."""

from __future__ import annotations

import pytest

from tests.gpu.cta_ops import CHUNK, FAMILIES, chosen, run_chunk, summary


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kernel_leaves_what_it_must(family: str) -> None:
    """An even selection of the family; the script runs all of it."""
    names = [case.name for case in chosen(family)]
    records = run_chunk(family, names[:: -(-len(names) // CHUNK)])
    assert summary([r for r in records if "failure" in r]) == "0 passed, 0 failed"
