"""docs/cli.md: every command and option has its place there, and its examples run as shown.

A ``console`` block holds commands after ``$`` and what they print, in order, in one folder;
``...`` stands for anything, on a line of its own for any number of lines. A ``tk NAME`` or ``ptx
NAME`` block is a file of that folder.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tilec.cli import main

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / "docs" / "cli.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(console|tk|ptx)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = dict(re.findall(r"^## tilec (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = sorted(main.commands)


def pattern_of(shown: str) -> re.Pattern[str]:
    """What is shown, with gaps; spaces at the ends of lines do not count."""
    lines = [
        r"(?:.*\n)*?"
        if line == "..."
        else r"[^\n]*".join(re.escape(part) for part in re.split(r" ?\.\.\. ?", line)) + r" *\n"
        for line in shown.splitlines()
    ]
    return re.compile("".join(lines))


@pytest.mark.parametrize(
    ("shown", "printed", "fits"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("...\nc\n", "a\nb\nc\n", True),
        ("x ... z\n", "x y z  \n", True),
        ("x ... z\n", "x\nz\n", False),
        ("", "a\n", False),
    ],
)
def test_gaps_stand_for_what_they_may(shown: str, printed: str, fits: bool) -> None:
    assert bool(pattern_of(shown).fullmatch(printed)) is fits


def steps(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what it is said to print."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def test_the_page_has_every_command_in_a_section() -> None:
    assert sorted(SECTIONS) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_a_section_names_every_option_and_shows_an_example(name: str) -> None:
    options = [
        option
        for parameter in main.commands[name].params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
    ]
    table = re.sub(r"^```.*?^```$", "", SECTIONS[name], flags=re.MULTILINE | re.DOTALL)
    assert [option for option in options if not re.search(rf"`{option}[` ]", table)] == []
    assert set(re.findall(r"`(--?\w[\w-]*)[` ]", table)) - {*options, "--array"} == set()
    assert re.search(rf"^\$ tilec {name}\b", SECTIONS[name], re.MULTILINE)


def test_the_examples_run_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(CHECKOUT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    count = 0
    for kind, name, body in FENCE.findall(PAGE):
        if kind in ("tk", "ptx"):
            Path(name).write_text(body, encoding="utf-8")
            continue
        for command, shown in steps(body):
            line, _, given = command.partition(" < ")
            text = Path(given).read_text(encoding="utf-8") if given else ""
            words = shlex.split(line)
            assert words[0] == "tilec"
            done = CliRunner().invoke(main, words[1:], input=text)
            assert isinstance(done.exception, SystemExit | None), done.exception
            assert pattern_of(shown).fullmatch(done.output), f"$ {command}\n{done.output[:2000]}"
            count += 1
    assert count >= len(COMMANDS)
