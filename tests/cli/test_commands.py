"""The commands that ask and run: what they print, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Command
from tilec.pipeline import PIPELINE


def test_check_is_silent_about_what_is_right(tilec: Command, examples: Path) -> None:
    result = tilec("check", *sorted(examples.glob("*.tk")))
    assert "gemm.tk: gemm" in result.stdout
    assert result.stderr == ""


def test_check_shows_the_place_of_an_error(tilec: Command, tmp_path: Path) -> None:
    file = tmp_path / "wrong.tk"
    file.write_text("kernel k(a: f32[M], c: out f32[M]):\n    for i in parallel(tiles(M)):\n"
                    "        c[i] = b[i]\n")  # fmt: skip
    result = tilec("check", file, code=1)
    assert "error[unknown-name]" in result.stderr
    assert f"{file}:3:16" in result.stderr
    found = json.loads(tilec("check", "--json", file, code=1).stdout)
    assert found[0]["labels"][0]["line"] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["comple"], "there is no command `comple`; did you mean `compile`?"),
        (["compile", "GEMM", "--dmp", "x"], "--dump"),
        (["compile", "GEMM", "--stop-after", "simplfy"], "did you mean `simplify`?"),
        (["compile", "GEMM", "--schedule", "stage=3"], "did you mean `stages`?"),
        (["compile", "GEMM", "--schedule", "stages=three"], "stages is a whole number"),
        (["compile", "GEMM", "--schedule", "tiles=3"], "a schedule has no `tiles`"),
        (
            ["compile", "GEMM", "--sm", "12"],
            "there is no target 12; known: sm_80, sm_86, sm_89, sm_90a",
        ),
        (["run", "GEMM", "--shape", "M"], "a size is written NAME=VALUE"),
        (["run", "GEMM", "--shape", "M=10,M=20"], "M is given twice: 10 and 20"),
        (["run", "GEMM", "--seed", "-1"], "-1 is not in the range"),
        (["run", "GEMM", "--save", "nowhere/q.npz"], "no folder nowhere to write q.npz to"),
        (["compile", "GEMM", "-o", "nowhere/x.ptx"], "no folder nowhere to write x.ptx to"),
        (["compile", "GEMM", "--shape", "M=-5"], "M is a size, from 0 to 2147483647, got -5"),
        (["compile", "GEMM", "--shape", "N=99999999999"], "N is a size, from 0 to 2147483647"),
        (["compile", "GEMM", "--shape", "Q=5"], "gemm has no size `Q`; there are M, K, N"),
        (["compile", "GEMM", "--array", "z=1"], "gemm has no array `z`; there are a, b, c"),
        (["compile", "GEMM", "--array", "a=7"], "a has no axis 7; its axes are 0 to 1"),
        (["compile", "GEMM", "--array", "a=1:3"], "the alignment of a is a power of two, got 3"),
    ],
)
def test_a_wrong_command_line_is_explained(
    tilec: Command, examples: Path, words: list[str], said: str
) -> None:
    filled = [str(examples / "gemm.tk") if word == "GEMM" else word for word in words]
    result = tilec(*filled, code=2)
    assert said in result.stderr
    assert "error[command-line]" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shape", "M=4,N=4"], "gemm needs sizes for K: --shape K=256"),
        (["--shape", "M=4,N=4,K=4,L=1"], "gemm has no size `L`"),
        (["--shape", "M=4,N=4,K=4,T=1"], "bound when the kernel is compiled: `-D T=1`"),
        (["--shape", "M=4,N=4,K=4", "-D", "T=f99"], "is no value for `T`"),
        (["--shape", "M=4,N=4,K=4", "--kernel", "gem"], "did you mean `gemm`?"),
        (["--shape", "M=4,N=4,K=4", "--input", "a=none.npy"], "cannot be read from none.npy"),
        (["--shape", "M=1000000,N=1000000,K=1000000"], "GiB in float64, as the reference"),
        (["--shape", "M=4,N=4,K=4", "--schedule", "tiles.z=64"], "no loop over tiles is called"),
        (["--shape", "M=4,N=4,K=4", "--schedule", "stages=99"], "stages = 99 cannot be"),
        (["--shape", "M=4,N=4,K=4", "--schedule", "stages=0"], "stages = 0 cannot be"),
        (["--shape", "M=4,N=4,K=4", "--schedule", "tiles.k=24"], "the nearest is `tiles.k=32`"),
    ],
)
def test_a_run_that_cannot_be_is_explained(
    tilec: Command, examples: Path, words: list[str], said: str
) -> None:
    result = tilec("run", examples / "gemm.tk", "--on", "interp", *words, code=1)
    assert said in result.stderr


@pytest.mark.parametrize(("number", "values"), [("3", "M = 10, n = 3"), ("0", "M = 10, n = 0")])
def test_a_run_that_breaks_a_requirement_says_the_values(
    tilec: Command, tmp_path: Path, number: str, values: str
) -> None:
    program = tmp_path / "k.tk"
    program.write_text(
        "kernel k(n: s32, a: f32[M], c: out f32[M]):\n    require M % n == 0\n"
        "    for i in parallel(tiles(M)):\n        c[i] = a[i]\n"
    )
    run = ("run", program, "--shape", "M=10", "--on", "interp", "--input")
    tilec(*run, "n=5")
    said = tilec(*run, f"n={number}", code=1).stderr
    assert f"k requires M % n == 0; here {values}" in said
    assert "k.tk:2:5" in said
    assert "n is of type s32, a whole number" in tilec(*run, "n=2.5", code=1).stderr


def test_memory_that_is_not_there_is_no_traceback(
    tilec: Command, examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError("Unable to allocate 37 GiB")

    monkeypatch.setattr("tilec.runtime.trial.make_inputs", exhausted)
    said = tilec("run", examples / "add.tk", "--shape", "M=4,N=4", code=1).stderr
    assert "error[out-of-memory]: Unable to allocate 37 GiB" in said


@pytest.mark.parametrize(
    ("program", "shape"),
    [("gemm", "M=65,N=17,K=100"), ("add", "M=17,N=1000"), ("softmax", "M=17,N=1000")],
)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_examples_agree_with_float64(
    tilec: Command, examples: Path, program: str, shape: str, dtype: str
) -> None:
    result = tilec(
        "run", examples / f"{program}.tk", f"T={dtype}", "--shape", shape, "--on", "interp"
    )
    assert ": ok" in result.stdout
    assert f"{dtype}[" in result.stdout


def test_inputs_come_from_files_and_outputs_go_to_one(
    tilec: Command, examples: Path, tmp_path: Path
) -> None:
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)
    np.savez(tmp_path / "in.npz", a=a, other=b)
    tilec("run", examples / "add.tk", "-D", "T=f32", "--on", "interp",
          "--input", f"a={tmp_path / 'in.npz'},b={tmp_path / 'in.npz'}:other",
          "--save", tmp_path / "out.npz")  # fmt: skip
    assert np.array_equal(np.load(tmp_path / "out.npz")["c"], a + b)


def test_a_result_that_is_too_far_fails(
    tilec: Command, examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilec.runtime import trial

    exact = trial.on_interpreter

    def off(*args: object, wide: bool = False, **named: object) -> trial.Trial:
        made = exact(*args, wide=wide, **named)  # type: ignore[arg-type]
        if not wide:
            made.outputs["c"][0, 0] += np.float32(1)
        return made

    monkeypatch.setattr(trial, "on_interpreter", off)
    shape = ("--shape", "M=20,N=20", "--on", "interp", "-D", "T=f32")
    assert "TOO FAR" in tilec("run", examples / "add.tk", *shape, code=1).stdout


def test_layout_is_drawn_as_text_and_svg(tilec: Command, tmp_path: Path) -> None:
    text = "(reg: j1 i8 | lane: j2 j4 i1 i2 i4)"
    assert "0:1" in tilec("layout", text).stdout
    tilec("layout", text, "--svg", tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text().startswith("<svg")
    assert "error[bad-layout]" in tilec("layout", "(reg: q1)", code=1).stderr


def test_passes_and_targets_are_listed(tilec: Command) -> None:
    listed = tilec("passes").stdout
    assert [name for name in PIPELINE if name not in listed] == []
    assert "sm_90a" in tilec("targets").stdout
    assert json.loads(tilec("targets", "--json").stdout)["sm_90a"]["has_wgmma"] is True


def test_a_gpu_that_is_not_there_is_a_plain_error(
    tilec: Command, examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilec.cli_run.gpu_available", lambda: False)
    shape = ("--shape", "M=4,N=4", "--on", "gpu")
    said = tilec("run", examples / "add.tk", *shape, code=1).stderr
    assert said.strip() == (
        "error[launch]: there is no GPU that CUDA can use here; `--on interp` needs none"
    )
