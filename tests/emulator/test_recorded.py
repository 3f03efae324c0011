"""The emulator against a GPU: what single instructions made there, from a recorded file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from tests.emulator.vectors import Vector, all_vectors, differs, same
from tilec.emulator.launch import emulate
from tilec.source import SourceFile

VECTORS = {v.name: v for v in all_vectors()}
LEAST = 300


@cache
def _recorded() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(
        (Path(__file__).parent / "recorded.json").read_text()
    )
    return found


@pytest.mark.parametrize("vector", VECTORS.values(), ids=lambda v: v.name)
def test_the_emulator_gives_what_the_gpu_gave(vector: Vector) -> None:
    launch, out = vector.launch()
    findings, _ = emulate(SourceFile("vector.ptx", vector.text()), launch)
    assert [f.message for f in findings] == []
    assert differs(vector, out, _recorded()[vector.name]) == ""


def test_enough_is_recorded_and_nothing_else() -> None:
    assert set(_recorded()) == set(VECTORS)
    assert len(VECTORS) >= LEAST


def test_a_difference_is_noticed() -> None:
    vector = VECTORS["add.s32"]
    _, out = vector.launch()
    changed = out.copy()
    changed[5] ^= 1
    assert same(vector, changed, out)
