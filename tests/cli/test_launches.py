"""Programs of several launches on the command line: dumps, pins, runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command

TEXT = """kernel centred(x: f32[M, N], y: out f32[M, N]):
    sums = temp[f32](N)
    for j in parallel(tiles(N)):
        total = zeros[f32](j)
        for i in tiles(M):
            total += sum(x[i, j], axis=0)
        sums[j] = total
    for i, j in parallel(tiles(M), tiles(N)):
        y[i, j] = x[i, j] - sums[j][None, :]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A program of two launches."""
    path = tmp_path / "centred.tk"
    path.write_text(TEXT)
    return path


def test_every_step_of_a_dump_goes_on_to_the_same_bytes(
    tilec: Command, file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    tilec("compile", file, "--dump", folder, "-o", tmp_path / "c.ptx")
    made = (tmp_path / "c.ptx").read_text()
    assert made.count(".visible .entry") == 2
    steps = sorted(folder.glob("*.tir"))
    assert any("split-launches" in step.name for step in steps)
    for step in steps:
        tilec("opt", step, "-o", tmp_path / "again.ptx")
        assert (tmp_path / "again.ptx").read_text() == made, step.name
    assert set(json.loads((folder / "schedule.json").read_text())) == {"centred_1", "centred_2"}
    assert "workspace sums: f32[N]" in (folder / "resources.txt").read_text()


def test_a_pin_reaches_the_launch_with_the_loop_also_from_a_dump(
    tilec: Command, file: Path, tmp_path: Path
) -> None:
    folder, split = tmp_path / "out", tmp_path / "split.tir"
    tilec("compile", file, "--stop-after", "split-launches", "-o", split)
    pin = ("--schedule", "tiles.j=32,tiles.i_2=64")
    for start in (("compile", file), ("opt", split)):
        tilec(*start, *pin, "--dump", folder, "-o", tmp_path / "c.ptx")
        choices = json.loads((folder / "schedule.json").read_text())
        assert ["j", 32] in choices["centred_1"]["tiles"]
        assert ["i_2", 64] in choices["centred_2"]["tiles"]
    for start in (("compile", file), ("opt", split)):
        said = tilec(*start, "--schedule", "tiles.h=32", code=1).stderr
        assert "no loop over tiles is called `h`" in said


def test_a_launch_alone_is_no_kernel(tilec: Command, file: Path, tmp_path: Path) -> None:
    split = tmp_path / "split.tir"
    tilec("compile", file, "--stop-after", "select-instructions", "-o", split)
    text = split.read_text()
    second = text.index("kernel @centred_2")
    split.write_text(text[: text.index("kernel @centred_1")] + text[second:])
    said = tilec("opt", split, code=1).stderr
    assert "not all launches of one kernel: 2 of 2 of centred" in said


def test_runs_compile_all_launches(tilec: Command, file: Path, tmp_path: Path) -> None:
    words = ("run", file, "--on", "interp", "--shape", "M=40,N=33", "--dump", tmp_path / "out")
    assert "y: largest error" in tilec(*words).stdout


@pytest.mark.parametrize(
    ("choice", "says", "instead"),
    [
        ("splits.q=4", "no loop over tiles is called `q`", "there are i, j, k"),
        ("splits.k=0", "there are 1 to 1024 shares", "`splits.k=1`"),
        ("splits.k=5000", "there are 1 to 1024 shares", "`splits.k=1024`"),
        ("splits.i=2", "only a loop over tiles that stands directly in `parallel`", ""),
    ],
)
def test_splits_that_cannot_be_are_refused(
    tilec: Command, examples: Path, choice: str, says: str, instead: str
) -> None:
    said = tilec("compile", examples / "gemm.tk", "--schedule", choice, code=1).stderr
    assert says in said
    assert instead in said


def test_a_split_comes_too_late_where_loops_are_split_already(
    tilec: Command, examples: Path, tmp_path: Path
) -> None:
    tir = tmp_path / "gemm.tir"
    tilec("compile", examples / "gemm.tk", "--stop-after", "simplify", "-o", tir)
    said = tilec("opt", tir, "--schedule", "splits.k=4", code=1).stderr
    assert "comes too late: this text is from after split-loops" in said
