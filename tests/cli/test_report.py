"""``--report`` and ``--timeline``: where they write, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as xml

import pytest

from tests.cli.conftest import Command

SIZES = ("--shape", "M=16,N=16,K=64", "--on", "emulator")


def test_files_are_written_and_standard_output_keeps_to_the_comparison(
    tilec: Command, examples: Path, tmp_path: Path
) -> None:
    table, drawn = tmp_path / "r.json", tmp_path / "r.svg"
    made = tilec("run", examples / "gemm.tk", *SIZES, "--report", table, "--timeline", drawn)
    assert "CTA (0, 0, 0)" not in made.stdout
    (launch,) = json.loads(table.read_text())["launches"]
    assert launch["kernel"] == "gemm"
    assert {line["file"] for line in launch["lines"]} == {"gemm.tk"}
    assert xml.parse(drawn).getroot().tag.endswith("svg")


def test_a_report_alone_is_printed(tilec: Command, examples: Path) -> None:
    made = tilec("run", examples / "gemm.tk", *SIZES, "--report")
    assert "findings: 0\ngemm: 1 CTA\n" in made.stdout
    assert "producer, warp 0" in made.stdout


def test_of_no_work_there_is_nothing_to_report(tilec: Command, examples: Path) -> None:
    words = ("--shape", "M=0,N=16,K=64", "--on", "emulator")
    assert "nothing was launched" in tilec("run", examples / "gemm.tk", *words, "--report").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "interp", "--report"), "--report and --timeline go with `--on emulator`"),
        (("--timeline", "x.svg"), "--report and --timeline go with `--on emulator`"),
        (("--on", "emulator", "--report", "x.txt"), "--report writes a .json file, got `x.txt`"),
        (("--on", "emulator", "--timeline", "x.png"), "--timeline writes a .svg file"),
        (("--on", "emulator", "--timeline", "nowhere/x.svg"), "there is no folder nowhere"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tilec: Command, examples: Path, words: tuple[str, ...], said: str
) -> None:
    result = tilec("run", examples / "gemm.tk", "--shape", "M=16,N=16,K=64", *words, code=2)
    assert said in " ".join(result.stderr.split())


def test_two_things_do_not_both_get_standard_output(tilec: Command, tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{ ret; }")
    result = tilec("emulate", file, "--grid", 1, "--json", "--report", code=2)
    assert "--json and --report both write to standard output" in " ".join(result.stderr.split())
    both = tilec("emulate", file, "--grid", 1, "--json", "--report", tmp_path / "r.json")
    assert json.loads(both.stdout)["findings"] == []
