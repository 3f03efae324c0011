"""The README's commands are those that CI runs, and its figures are those on disk."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from benchmarks import figures

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")


def _shell_blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_there_are_exactly_two_commands() -> None:
    blocks = _shell_blocks()
    assert len(blocks) == 2
    assert all(block.count("\n") == 1 for block in blocks)


def test_ci_finds_the_same_commands() -> None:
    script = (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8")
    function = re.search(r"^readme_command\(\) \{.*?^\}$", script, re.MULTILINE | re.DOTALL)
    assert function is not None
    for number, block in enumerate(_shell_blocks(), start=1):
        text = f"{function[0]}\nreadme_command {number}"
        done = subprocess.run(
            ["bash", "-c", text], capture_output=True, text=True, check=True, cwd=CHECKOUT
        )
        assert done.stdout == block


def test_every_command_line_shown_is_one_that_the_program_takes() -> None:
    from tilec.cli import main

    lines = re.findall(r"(?:^|\.venv/bin/)(tilec [a-z].*)$", README, re.MULTILINE)
    assert len(lines) >= 8
    for line in lines:
        words = shlex.split(re.split(r"\s{2,}", line)[0])
        context = main.make_context("tilec", words[1:2], resilient_parsing=True)
        command = main.get_command(context, words[1])
        assert command is not None, line
        known = {option for parameter in command.params for option in parameter.opts}
        assert {w for w in words[2:] if w.startswith("-")} <= known, line


def test_the_figures_are_those_on_disk() -> None:
    assert figures.rewritten(README, figures.table()) == README
