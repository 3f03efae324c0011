"""`pip install` of the wheel alone gives a working program, with newest and lowest dependencies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.long


def _lowest() -> list[str]:
    """Each runtime dependency at its lower bound, with the same platform marker."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [re.sub(r">=", "==", text, count=1) for text in project["dependencies"]]


def _run(command: list[str], cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=600,
        env=environment,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _python(folder: Path) -> str:
    venv.create(folder, with_pip=True)
    return str(folder / ("Scripts" if sys.platform == "win32" else "bin") / "python")


@pytest.mark.parametrize("bounds", ["newest", "lowest"])
def test_the_installed_wheel_compiles_and_runs_gemm(
    bounds: str, wheel: Path, tmp_path: Path
) -> None:
    python = _python(tmp_path / "venv")
    extra = _lowest() if bounds == "lowest" else []
    _run([python, "-m", "pip", "install", "-q", str(wheel), *extra], tmp_path)
    shutil.copy(CHECKOUT / "examples" / "gemm.tk", tmp_path)
    program = str(Path(python).with_name("tilec"))
    said = _run(
        [program, "run", "gemm.tk", "--shape", "M=70,N=40,K=33", "--on", "interp", "--dump", "out"],
        tmp_path,
    )
    assert "error" in said
    (ptx,) = (tmp_path / "out").glob("*.ptx")
    assert "wgmma" in ptx.read_text(encoding="utf-8")
    assert list((tmp_path / "out").glob("*.tir"))
