"""Compiling from the command line: levels, resuming, dumps, and failures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tilec.backend_ptx.assemble import find_tool

PROGRAMS = ("add", "gemm", "softmax")
SHAPES = {"add": "M=1000,N=1000", "gemm": "M=4096,N=4096,K=4096", "softmax": "M=1000,N=4096"}


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> str:
    """Each example in turn."""
    return str(request.param)


def _compile(tilec: Command, examples: Path, program: str, *words: object) -> str:
    shape = ("--shape", SHAPES[program])
    return tilec("compile", examples / f"{program}.tk", *shape, *words).stdout


def test_each_level_names_itself(tilec: Command, examples: Path, program: str) -> None:
    for level in ("tile", "cta"):
        text = _compile(tilec, examples, program, "--emit", level)
        assert text.startswith(f"tir 1 level {level} target sm_90a")
    ptx = _compile(tilec, examples, program)
    assert f".entry {program}(" in ptx
    assert f"// {program}.tk" in ptx or f"{program}.tk" in ptx


def test_every_dump_resumes_to_the_same_bytes(
    tilec: Command, examples: Path, program: str, tmp_path: Path
) -> None:
    ptx = _compile(tilec, examples, program, "--dump", tmp_path)
    dumps = sorted(tmp_path.glob("*.tir"))
    assert len(dumps) >= 6
    for dump in dumps:
        assert tilec("opt", dump).stdout == ptx, dump.name


def test_the_same_input_gives_the_same_folder(
    tilec: Command, examples: Path, tmp_path: Path
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "99-stale.tir").write_text("an older dump")
    (tmp_path / "b" / "notes.md").write_text("not ours")
    for folder in folders:
        _compile(tilec, examples, "gemm", "--dump", folder)
    first, second = ({p.name: p.read_bytes() for p in f.iterdir()} for f in folders)
    assert second.pop("notes.md") == b"not ours"
    assert first == second
    wanted = {"index.md", "remarks.jsonl", "resources.txt", "schedule.json", "layouts.txt"}
    assert wanted | {"gemm.ptx", "00-gemm.tk", "01-lower.tir"} <= set(first)


def test_the_index_links_what_exists(tilec: Command, examples: Path, tmp_path: Path) -> None:
    _compile(tilec, examples, "softmax", "--dump", tmp_path)
    index = (tmp_path / "index.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", index)
    assert len(links) > 10
    assert [link for link in links if not (tmp_path / link).exists()] == []
    for line in (tmp_path / "remarks.jsonl").read_text().splitlines():
        assert json.loads(line)["text"]


def test_pinned_choices_stand_in_the_schedule(tilec: Command, examples: Path) -> None:
    text = _compile(
        tilec, examples, "gemm", "--schedule", "stages=4,tiles.i=128,tiles.j=128", "--emit", "tile"
    )
    head = next(line for line in text.splitlines() if line.startswith("schedule"))
    assert "stages = 4" in head
    assert "(i, 128)" in head


def test_print_after_and_stop_after(tilec: Command, examples: Path) -> None:
    text = _compile(tilec, examples, "gemm", "--print-after", "simplify",
                    "--stop-after", "simplify")  # fmt: skip
    assert text.startswith("// after simplify\ntir 1 level tile")
    assert text.count("tir 1 level tile") == 2


def test_named_passes_run_alone(tilec: Command, examples: Path, tmp_path: Path) -> None:
    start = tmp_path / "start.tir"
    _compile(tilec, examples, "gemm", "--stop-after", "lift-requirements", "-o", start)
    text = tilec("opt", start, "--passes", "simplify").stdout
    assert "after = simplify" in text


def test_a_fault_in_an_edited_dump_is_shown_at_its_line(
    tilec: Command, examples: Path, tmp_path: Path
) -> None:
    file = tmp_path / "edited.tir"
    _compile(tilec, examples, "gemm", "--stop-after", "lift-requirements", "-o", file)
    text = file.read_text()
    edited = re.sub(r"(tile\.for\(%K, %acc\)) \{size = \$k\}", r"\1 {size = 64}", text)
    assert edited != text
    file.write_text(f"// a line more\n{edited}")
    line = next(n for n, t in enumerate(file.read_text().splitlines(), 1) if "tile.for(" in t)
    said = tilec("opt", file, code=1).stderr
    assert "error[invalid-ir]" in said
    assert f"{file}:{line}:" in said


def test_a_text_that_is_no_ir_is_shown_at_its_place(tilec: Command, tmp_path: Path) -> None:
    file = tmp_path / "broken.tir"
    file.write_text("tir 1 level tile target sm_90a\nkernel @k {\n  %x = math.nope() : s32\n}\n")
    said = tilec("opt", file, code=1).stderr
    assert "error[ir-syntax]" in said
    assert f"{file}:3:" in said


def test_a_refusal_leaves_the_failing_input_and_its_command(
    tilec: Command, examples: Path, tmp_path: Path
) -> None:
    result = tilec("compile", examples / "gemm.tk", "--schedule", "stages=200,tiles.i=256",
                   "--dump", tmp_path, code=1)  # fmt: skip
    assert "error[" in result.stderr
    command = (tmp_path / "failure.txt").read_text().splitlines()[-1].split()
    assert command[:2] == ["tilec", "opt"]
    again = tilec("opt", tmp_path / command[2], *command[3:], code=1)
    assert again.stderr.splitlines()[0] == result.stderr.splitlines()[0]


@pytest.mark.skipif(find_tool("ptxas") is None, reason="ptxas is not installed")
def test_shipped_kernels_assemble_without_a_loss(
    tilec: Command, examples: Path, program: str, tmp_path: Path
) -> None:
    words = ("--shape", SHAPES[program], "--emit", "cubin", "-o", tmp_path / "k.cubin")
    result = tilec("compile", examples / f"{program}.tk", *words)
    assert (tmp_path / "k.cubin").read_bytes().startswith(b"\x7fELF")
    assert result.stderr == ""


@pytest.mark.skipif(
    find_tool("ptxas") is None or find_tool("nvdisasm") is None, reason="no assembler here"
)
def test_every_product_is_a_wgmma_fed_by_tma(tilec: Command, examples: Path) -> None:
    sass = _compile(tilec, examples, "gemm", "--emit", "sass")
    assert "HGMMA" in sass
    assert "UTMALDG" in sass
    assert "UTMASTG" in sass
