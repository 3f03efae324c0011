"""What ``bisect`` says: on the command line, in its dump, and from Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tilec
from tests.bisect.programs import CASES
from tests.bisect.test_planted import (
    a_wait_is_gone,
    ops,
    plant,
    quotient_upside_down,
    region_of,
)
from tilec import pipeline
from tilec.cli import main
from tilec.ir.levels import cta


@pytest.fixture
def softmax(tmp_path: Path) -> Path:
    """A program in a file."""
    path = tmp_path / "f.tk"
    path.write_text(CASES["softmax"].text.lstrip("\n"))
    return path


def test_the_command_names_the_pass_and_shows_its_change(
    softmax: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "apply-tiles", quotient_upside_down)
    dump = tmp_path / "steps"
    done = CliRunner().invoke(
        main, ["bisect", str(softmax), "--shape", "M=9,N=100", "--dump", str(dump)]
    )
    assert done.exit_code == 1, done.output
    lines = done.output.splitlines()
    named = "apply-tiles is the first pass whose output means something else:"
    assert named in lines
    said = lines[lines.index(named) + 1]
    assert said.startswith("  y[0, 0] is ")
    assert "the source gives" in said
    assert said.endswith("in float64 without rounding")
    assert any(line.startswith("-") and "math.div" in line for line in lines)
    files = sorted(path.name for path in dump.iterdir())
    number = pipeline.position("apply-tiles") + 2  # behind the source and what `lower` made
    assert [f for f in files if "apply-tiles" in f] == [
        f"{number:02}-apply-tiles.diff",
        f"{number:02}-apply-tiles.tir",
    ]
    assert f"{number - 1:02}-fill-padding.tir" in files
    assert "form-ctas" not in done.output


def test_what_an_executor_finds_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "select-instructions", a_wait_is_gone)
    found = CASES["product"].bisect().first
    assert found is not None
    assert found.verdict == "faulty"
    assert "error[" in found.message
    assert "f.tk:" in found.message


def test_a_deadlock_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that the consumers do not go: its stage is never given back."""

    def one_round_less(kernels: object) -> None:
        load = next(ops(kernels, cta.Load))  # type: ignore[arg-type]
        region = region_of(kernels, load)  # type: ignore[arg-type]
        region.ops.remove(load)

    monkeypatch.setattr("tilec.pipeline.verify", lambda module, name: None)
    plant(monkeypatch, "split-roles", one_round_less)
    found = CASES["product"].bisect().first
    assert found is not None
    assert (found.name, found.verdict) == ("split-roles", "faulty")
    assert "deadlock: " in found.message or "is not filled" in found.message


def test_arrays_come_from_an_archive(softmax: Path, tmp_path: Path) -> None:
    archive = tmp_path / "in.npz"
    np.savez(archive, x=np.arange(27, dtype=np.float32).reshape(3, 9), other=np.zeros(3))
    runner = CliRunner()
    done = runner.invoke(main, ["bisect", str(softmax), "--inputs", str(archive)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("f(x: [3, 9], y: [3, 9]), after each pass\n")
    assert done.output.endswith("every pass keeps the meaning\n")
    wrong = runner.invoke(main, ["bisect", str(softmax), "--inputs", str(softmax)])
    assert wrong.exit_code == 1
    assert "cannot be read as an .npz file" in wrong.output + wrong.stderr


def test_a_call_from_python_infers_what_arrays_say() -> None:
    program = tilec.load("examples/gemm.tk")
    a, b = np.ones((20, 24), np.float16), np.ones((40, 24), np.float16)
    found = tilec.bisect(program.gemm, a, b)
    assert isinstance(found, tilec.Bisection)
    assert found.first is None
    assert found.kernel == "gemm"


def test_calls_run_on_the_cta_interpreter() -> None:
    gemm = tilec.load("examples/gemm.tk").gemm.using(on="cta")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, 24)).astype(np.float16) for n in (20, 40))
    c = gemm(a, b)
    assert c.dtype == np.float16
    want = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c - want).max() < 2**-9 * np.abs(want).max()


def test_the_command_runs_on_the_cta_interpreter(softmax: Path) -> None:
    done = CliRunner().invoke(main, ["run", str(softmax), "--shape", "M=9,N=100", "--on", "cta"])
    assert done.exit_code == 0, done.output
    assert "on the interpreter of level cta" in done.output


def test_an_output_of_unknown_size_is_asked_for() -> None:
    program = tilec.compile(
        "kernel f(x: f32[M], y: out f32[M, P]):\n    for i, j in parallel(tiles(M), tiles(P)):\n"
        "        y[i, j] = x[i][:, None] + zeros[f32](i, j)\n"
    )
    with pytest.raises(tilec.LaunchError, match="y must be given: no argument says what P is"):
        tilec.bisect(program.f, np.ones(3, np.float32))
