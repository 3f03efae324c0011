"""The hardware experiments' own parts that need no GPU: their kernels, images and page."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.gpu import fact_images as images
from tests.gpu.hardware_facts import BATCHES, assemble_all, render
from tilec.backend_ptx.assemble import find_tool


@pytest.mark.skipif(find_tool("ptxas") is None, reason="needs ptxas")
@pytest.mark.parametrize("batch", BATCHES)
def test_every_kernel_assembles_without_a_complaint(batch: str) -> None:
    """A kernel that the assembler warns about would measure something else."""
    assert assemble_all([batch]) == 0


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("rows", [8, 24, 80, 256])
def test_operand_images_give_each_element_its_own_bytes(rows: int, swizzle: int) -> None:
    """No two elements share a byte, and all fit the space kept for them."""
    for operand in (images.k_major(rows, 2, swizzle), images.mn_major(rows, 2, swizzle)):
        where = images.swizzled(operand.address, swizzle)
        assert len(np.unique(where)) == where.size
        assert where.max() + 2 <= images.IMAGE_BYTES - images.B_PLACE


def test_worked_swizzle_addresses() -> None:
    """Row 5 of a bf16 tile: columns 19, 19 and 11 in the three spans."""
    for span, column, expected in ((128, 19, 758), (64, 19, 326), (32, 11, 166)):
        logical = np.array([5 * span + 2 * column])
        assert images.swizzled(logical, span).tolist() == [expected]


@pytest.mark.parametrize(
    ("operand", "descriptor"),
    [
        (images.k_major(64, 2, 128), 0x4000004000010040),
        (images.k_major(64, 2, 64), 0x8000002000010040),
        (images.k_major(64, 2, 32), 0xC000001000010040),
        (images.k_major(64, 2, 0), 0x0000000800400040),
        (images.mn_major(128, 2, 128), 0x4000004002000040),
    ],
)
def test_worked_descriptors(operand: images.Operand, descriptor: int) -> None:
    """Tiles at shared address 0x400."""
    assert operand.descriptor(0x400) == descriptor


def test_fragments_cover_their_tiles_once() -> None:
    """Accumulator and A fragment are each a permutation of the tile."""
    for rows, columns, width in (
        (*images.accumulator_places(80), 80),
        (*images.a_places(2), 16),
        (*images.a_places(1), 32),
        (*images.a_places(4), 8),
    ):
        flat = (rows + 0 * columns) * width + columns
        assert sorted(flat.reshape(-1).tolist()) == list(range(64 * width))


def _page(facts: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
    device = {
        "name": "GPU",
        "compute_capability": [9, 0],
        "sm_count": 132,
        "l2_bytes": 60 << 20,
        "shared_bytes_per_cta": 232448,
        "cuda": "13.0",
    }
    batch = {"facts": facts, "failures": {}, **extra}
    return {"taken": "2026-01-01", "device": device, "ptxas": None, "batches": {"tma": batch}}


def test_the_page_is_made_from_the_readings_alone() -> None:
    """A claim that failed stands out; a bar in a cell does not split it."""
    facts = [
        {"name": "one", "question": "a | b?", "answer": "yes", "holds": True, "readings": {}},
        {"name": "two", "question": "c?", "answer": "no", "holds": False, "readings": {}},
    ]
    page = render(json.loads(json.dumps(_page(facts))))
    assert "| one | a \\| b? | yes | holds |" in page
    assert "| two | c? | no | **does not hold** |" in page


def test_a_failed_experiment_is_reported_beside_the_facts_of_the_others() -> None:
    """Only its first line: the rest is in the readings."""
    fact: dict[str, Any] = {
        "name": "one",
        "question": "a?",
        "answer": "yes",
        "holds": None,
        "readings": {},
    }
    page = render(_page([fact], failures={"edges": "the child was killed\ntrace"}))
    assert "Not measured: edges: the child was killed" in page
    assert "| one | a? | yes |" in page
    assert "trace" not in page
