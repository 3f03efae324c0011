"""Wrong edits and wrong files: one error for each cause, its caret at the op."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command

EDITS = [
    (r"offset = 147456", "offset = 147000", "no multiple of 1024"),
    (r"offset = 147456", "offset = 0", "inside the ring"),
    (r"offset = 147456", "offset = 180224", "inside the barriers of %ring"),
    (r"barriers = 180224", "barriers = 147456", "inside the barriers of %ring"),
    (r"ring<3, ", "ring<4, ", "inside the ring"),
    (r"first = 4, warps = 8", "first = 0, warps = 8", "its warps overlap with those of role load"),
    (r"registers = 240\}", "registers = 248}", "the roles ask for"),
    (r"threads = 384", "threads = 256", "do not fit them"),
]


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The last dump of gemm at level cta."""
    from click.testing import CliRunner

    from tests.cli.conftest import CHECKOUT
    from tilec.cli import main

    file = tmp_path_factory.mktemp("placed") / "gemm.tir"
    words = ["compile", CHECKOUT / "examples" / "gemm.tk", "--shape", "M=4096,N=4096,K=4096",
             "--schedule", "stages=3", "--stop-after", "place-shared", "-o", file]  # fmt: skip
    assert CliRunner().invoke(main, [str(word) for word in words]).exit_code == 0
    return file.read_text()


@pytest.mark.parametrize(("old", "new", "says"), EDITS, ids=[f"{e[1]}, {e[2]}" for e in EDITS])
def test_one_wrong_edit_is_one_error_at_its_op(
    tilec: Command, tmp_path: Path, placed: str, old: str, new: str, says: str
) -> None:
    text, count = re.subn(old, new, placed)
    assert count
    file = tmp_path / "edited.tir"
    file.write_text(text)
    said = tilec("opt", file, code=1).stderr
    errors = [line for line in said.splitlines() if line.startswith("error")]
    assert len(errors) == 1, said
    assert says in errors[0]
    found = re.search(r"error\[invalid-ir\]: ([\w.]+): ", errors[0])
    assert found is not None
    shown, carets = re.search(r"\d+ \| (.*)\n *\| (.*) this op", said).groups()  # type: ignore[union-attr]
    assert shown[carets.index("^") : carets.rindex("^") + 1] == found[1]


def test_a_file_of_another_kind_is_named_as_what_it_is(
    tilec: Command, examples: Path, tmp_path: Path
) -> None:
    ptx, tir = tmp_path / "gemm.ptx", tmp_path / "gemm.tir"
    ptx.write_text(".version 8.6\n")
    tir.write_text("tir 1 level tile target sm_90a\n")
    said = tilec("opt", ptx, code=2).stderr
    assert "`tilec opt` takes .tir files; gemm.ptx is PTX" in said
    assert "`tilec compile` starts from it" in tilec("opt", examples / "gemm.tk", code=2).stderr
    assert "takes .tk and .tir files" in tilec("compile", ptx, code=2).stderr
    for command in ("run", "check"):
        said = tilec(command, tir, code=2).stderr
        assert f"`tilec {command}` takes .tk files; gemm.tir is a dump" in said


@pytest.mark.parametrize("claimed", ["by option", "by the text"])
def test_a_pass_that_is_claimed_and_never_ran_is_an_error_at_what_it_left(
    tilec: Command, examples: Path, tmp_path: Path, claimed: str
) -> None:
    file = tmp_path / "gemm.tir"
    tilec("compile", examples / "gemm.tk", "--stop-after", "choose-tiles", "-o", file)
    words = ["--start-after", "apply-tiles"]
    if claimed == "by the text":
        text = file.read_text()
        assert "after = choose-tiles" in text
        file.write_text(text.replace("after = choose-tiles", "after = apply-tiles"))
        words = []
    said = tilec("opt", file, *words, code=1).stderr
    assert "`tile extents are integers` holds since apply-tiles, and does not here" in said
    assert "this op" in said
