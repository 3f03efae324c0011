"""Choices that cannot be are refused alike from the source, the command line, Python and a dump."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tilec.compiler import compile_source
from tilec.diagnostics import DiagnosticError
from tilec.ir.facts import Schedule
from tilec.source import SourceFile
from tilec.targets import by_name

BAD = [
    # program, choice, code, part of the message, what to type instead
    ("gemm", "tiles.nosuch=64", "unknown-choice", "no loop over tiles is called", "there are i"),
    ("gemm", "tiles.kk=64", "unknown-choice", "is called `kk`", "did you mean `k`?"),
    ("gemm", "tiles.i=100", "impossible-choice", "multiple of 16", "`tiles.i=96`"),
    ("gemm", "tiles.i=0", "impossible-choice", "multiple of 16", "`tiles.i=16`"),
    ("gemm", "tiles.i=-64", "impossible-choice", "multiple of 16", "`tiles.i=16`"),
    ("gemm", "tiles.j=12", "impossible-choice", "multiple of 16", "`tiles.j=16`"),
    ("gemm", "tiles.k=8192", "impossible-choice", "from 16 to 4096", "`tiles.k=4096`"),
    ("gemm", "stages=0", "impossible-choice", "at least one", "`stages=1`"),
    ("gemm", "stages=9,tiles.i=128,tiles.j=256,tiles.k=64", "impossible-choice",
     "do not fit 232448 bytes", "`stages=4`"),
    ("gemm", "warpgroups=5", "impossible-choice", "1 to 3 warpgroups", "`warpgroups=3`"),
    ("softmax", "warpgroups=3", "impossible-choice", "a power of two", "`warpgroups=4`"),
    ("softmax", "warpgroups=64", "impossible-choice", "up to 8", "`warpgroups=8`"),
    ("gemm", "registers=24", "impossible-choice", "there are two", "`registers=24:240`"),
    ("gemm", "registers=25:240", "impossible-choice", "multiples of 8", "`registers=24:240`"),
    ("gemm", "registers=24:300,tiles.i=64", "impossible-choice", "24 to 256", "`registers=24:256`"),
    ("gemm", "registers=40:240,warpgroups=2", "impossible-choice", "66560 registers",
     "`registers=40:232`"),
    ("gemm", "registers=40:240", "impossible-choice", "66560 registers", "`registers=40:232`"),
    ("gemm", "swizzles.d=64", "unknown-choice", "no array is called `d`", "there are a, b, c"),
    ("softmax", "swizzles.x=64", "impossible-choice", "neither an operand", "nothing here does"),
    ("gemm", "swizzles.a=48", "impossible-choice", "32, 64 or 128", "`swizzles.a=64`"),
    ("gemm", "swizzles.a=0", "impossible-choice", "wgmma cannot read", "`swizzles.a=32`"),
    ("gemm", "swizzles.b=128,tiles.k=32", "impossible-choice", "rows of 64 bytes",
     "`swizzles.b=64`"),
    ("add", "vector=3", "impossible-choice", "a power of two", "`vector=4`"),
    ("add", "vector=32", "impossible-choice", "up to 8 here", "`vector=8`"),
    ("softmax", "tiles.i=3", "impossible-choice", "one of 1, 2, 4, 8", "`tiles.i=4`"),
    ("softmax", "tiles.N=64", "impossible-choice", "holds all of N, up to 4096", "`tiles.N=4096`"),
    ("gemm", "group=0", "impossible-choice", "at least one", "`group=1`"),
]  # fmt: skip


SIZES = {"gemm": "M=4096,N=4096,K=4096", "add": "M=4096,N=4096", "softmax": "M=4096,N=4096"}


@pytest.mark.parametrize(("program", "choice", "code", "says", "instead"), BAD, ids=lambda v: v)
def test_a_choice_that_cannot_be_is_refused_with_the_nearest_that_can(
    tilec: Command, examples: Path, program: str, choice: str, code: str, says: str, instead: str
) -> None:
    words = ("compile", examples / f"{program}.tk", "--shape", SIZES[program])
    said = tilec(*words, "--schedule", choice, code=1).stderr
    assert said.startswith(f"error[{code}]: ")
    assert says in said.splitlines()[0]
    helps = [line for line in said.splitlines() if " = help: " in line]
    assert len(helps) == 1
    assert instead in helps[0]


@pytest.mark.parametrize(
    ("program", "choice", "instead"),
    [(row[0], row[1], m[1]) for row in BAD if (m := re.fullmatch(r"`(.*)`", row[4]))],
    ids=lambda v: v,
)
def test_what_the_help_says_compiles(
    tilec: Command, examples: Path, program: str, choice: str, instead: str
) -> None:
    name = instead.partition("=")[0]
    kept = [item for item in choice.split(",") if not item.startswith(f"{name}=")]
    words = ("compile", examples / f"{program}.tk", "--shape", SIZES[program])
    # A stage of the longest legal K fits no shared memory, which is said then.
    code = 1 if instead == "tiles.k=4096" else 0
    said = tilec(*words, "--schedule", ",".join([*kept, instead]), code=code).stderr
    assert ("bytes of shared memory" in said) == bool(code)


def test_all_bad_choices_are_reported_at_once(tilec: Command, examples: Path) -> None:
    said = tilec("compile", examples / "gemm.tk", "--schedule", "tiles.i=7,stages=0,group=0",
                 code=1).stderr  # fmt: skip
    assert said.count("error[impossible-choice]") == 3


def test_python_and_the_source_are_refused_alike(examples: Path) -> None:
    source = SourceFile.read(examples / "gemm.tk")
    target = by_name("90")
    with pytest.raises(DiagnosticError, match=r"impossible-choice.*warpgroups = 7"):
        compile_source(source, None, {}, target, schedule=Schedule(warpgroups=7))
    head, body = source.text.split("):\n", 1)
    pinned = SourceFile("pinned.tk", f"{head}):\n    schedule warpgroups=7\n{body}")
    with pytest.raises(DiagnosticError, match=r"impossible-choice.*warpgroups = 7"):
        compile_source(pinned, None, {}, target)
    wrong = Schedule(stages=3.5)  # type: ignore[arg-type]
    with pytest.raises(DiagnosticError, match=r"stages = 3.5 cannot be: it is a whole number"):
        compile_source(source, None, {}, target, schedule=wrong)


@pytest.mark.parametrize(
    ("edit", "code", "says"),
    [
        (("stages = ", "stage = "), "unknown-choice", "did you mean `stages`?"),
        (("warpgroups = 2", "warpgroups = 9"), "impossible-choice", "`warpgroups=3`"),
        (("(k, 64)", "(k, 40)"), "impossible-choice", "`tiles.k=48`"),
        (("(k, 64)", "(q, 64)"), "unknown-choice", "there are i, j, k"),
        (("persistent = true", "persistent = 2"), "impossible-choice", "true or false"),
        (("stages = ", "stages = 1"), "refused", "at most"),
    ],
    ids=lambda v: v[1] if isinstance(v, tuple) else "",
)
def test_an_edited_schedule_is_refused_alike(
    tilec: Command, examples: Path, tmp_path: Path, edit: tuple[str, str], code: str, says: str
) -> None:
    file = tmp_path / "chosen.tir"
    tilec("compile", examples / "gemm.tk", "--shape", "M=4096,N=4096,K=4096",
          "--stop-after", "choose-tiles", "-o", file)  # fmt: skip
    text = file.read_text()
    assert edit[0] in text
    file.write_text(text.replace(*edit))
    said = tilec("opt", file, code=1).stderr
    assert said.startswith(f"error[{code}]: ")
    assert says in said


def test_a_choice_for_a_text_that_has_it_made_is_refused(
    tilec: Command, examples: Path, tmp_path: Path
) -> None:
    file = tmp_path / "formed.tir"
    tilec("compile", examples / "gemm.tk", "--stop-after", "form-ctas", "-o", file)
    said = tilec("opt", file, "--schedule", "stages=2", code=1).stderr
    assert said.startswith("error[choice-is-made]: stages = 2 comes too late")
    tilec("opt", file, "--schedule", "registers=32:232")


@pytest.mark.parametrize("choice", ["stages=3", "registers=24:240"])
def test_a_choice_without_a_use_is_remarked_on(
    tilec: Command, examples: Path, tmp_path: Path, choice: str
) -> None:
    tilec("compile", examples / "add.tk", "--schedule", choice, "--dump", tmp_path)
    name, _, value = choice.partition("=")
    assert f"{name} = {value} has no effect" in (tmp_path / "index.md").read_text()
