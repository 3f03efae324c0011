"""What the passes say about their choices: once, at a place, in names that explain themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command

SHAPES = {"add": "M=1000,N=1000", "gemm": "M=4096,N=4096,K=4096", "softmax": "M=1000,N=4000"}


@pytest.fixture
def remarks(tilec: Command, examples: Path, tmp_path: Path) -> Any:
    """The remarks of a compilation, as the dump has them."""

    def of(program: str, *words: str, shape: str = "") -> list[dict[str, Any]]:
        sizes = ("--shape", shape or SHAPES[program])
        tilec("compile", examples / f"{program}.tk", *sizes, "--dump", tmp_path, *words)
        lines = (tmp_path / "remarks.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    return of


@pytest.mark.parametrize("program", SHAPES)
def test_a_remark_is_made_once_and_has_a_place(
    remarks: Any, program: str, examples: Path, tmp_path: Path
) -> None:
    found = remarks(program)
    said = [(r["pass"], r["line"], r["text"]) for r in found]
    assert len(said) == len(set(said))
    source = (examples / f"{program}.tk").read_text().splitlines()
    index = (tmp_path / "index.md").read_text()
    for remark in found:
        line = source[remark["line"] - 1]
        assert line[remark["column"] - 1].strip()
        assert f"line {remark['line']}:{remark['column']}: {remark['text']}" in index


@pytest.mark.parametrize("program", SHAPES)
def test_numbers_of_a_remark_say_what_they_are(remarks: Any, program: str) -> None:
    names = {name for remark in remarks(program) for name in remark["data"]}
    assert names <= {
        "tile_sizes", "operands_by_tma", "stage_bytes", "most_stages_that_fit", "candidates",
        "rejected", "chosen",
        "box_innermost_first", "swizzle_bytes", "registers_of_producer", "registers_of_consumers",
    }  # fmt: skip


def test_fewer_stages_than_fit_are_explained(remarks: Any) -> None:
    beyond_l2 = "M=8192,N=8192,K=8192"
    (found,) = [r for r in remarks("gemm", shape=beyond_l2) if "would fit" in r["text"]]
    assert found["text"].startswith("3 stages of 48 KB, where 4 would fit: operands beyond L2 were")
    assert found["data"] == {"stage_bytes": 49152, "most_stages_that_fit": 4}
    pinned = remarks("gemm", "--schedule", "stages=3", shape=beyond_l2)
    assert not [r for r in [*pinned, *remarks("gemm")] if "would fit" in r["text"]]


def test_every_candidate_has_its_price_or_the_reason_against_it(remarks: Any) -> None:
    (found,) = [r for r in remarks("gemm") if "candidates" in r["data"]]
    prices = [c["microseconds"] for c in found["data"]["candidates"]]
    assert f"of {len(prices)} candidates" in found["text"]
    assert prices == sorted(prices)
    assert found["data"]["rejected"]
    assert all(shape["reason"] for shape in found["data"]["rejected"])


def test_two_paths_are_explained(remarks: Any) -> None:
    (found,) = [r for r in remarks("softmax") if r["text"].startswith("two paths")]
    assert "full along N runs without masks" in found["text"]
    assert not [r for r in remarks("gemm") if r["text"].startswith("two paths")]
