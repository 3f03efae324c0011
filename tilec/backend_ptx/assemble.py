"""Assemble PTX with `ptxas` and read SASS with `nvdisasm`, where they are installed.

Idea: both are optional programs.  They are looked for on PATH, in the wheels ``nvidia-cuda-nvcc``
and ``nvidia-cuda-nvdisasm`` and under CUDA_HOME, and a refusal says what to install.

Invariants: nothing is left on disk; the notes of a failed assembly travel with the error.

Never: imports a CUDA package or needs a GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tilec.backend_ptx.assembler_log import AssemblerNote, parse_assembler_log

_WHEELS = {"ptxas": "nvidia-cuda-nvcc", "nvdisasm": "nvidia-cuda-nvdisasm"}
_TIME_LIMIT_S = 120.0


class ToolMissing(RuntimeError):
    """`ptxas` or `nvdisasm` is not installed."""


class AssemblyError(RuntimeError):
    """ptxas refused the text; `notes` holds its errors with their PTX lines."""

    def __init__(self, message: str, notes: list[AssemblerNote], log: str) -> None:
        """Keep the notes and the whole log beside the message."""
        super().__init__(message)
        self.notes, self.log = notes, log


@dataclass(frozen=True)
class Assembled:
    """A cubin and what the assembler said about it.

    `registers` and `spill_bytes` are the largest over the kernels of the text.
    """

    cubin: bytes
    notes: tuple[AssemblerNote, ...]
    log: str

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return max((n.value for n in self.notes if n.kind == "registers"), default=0)

    @property
    def spill_bytes(self) -> int:
        """Bytes of spill stores and loads of a thread."""
        return max((n.value for n in self.notes if n.kind == "spills"), default=0)

    @property
    def losses(self) -> tuple[AssemblerNote, ...]:
        """Advisories that mean slower code."""
        return tuple(note for note in self.notes if note.is_loss)


def find_tool(name: str) -> Path | None:
    """The path of `ptxas` or `nvdisasm`, or None."""
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    places = [Path(entry) / "nvidia" for entry in sys.path if entry]
    candidates = [wheel / major / "bin" / name for wheel in places for major in ("cu13", "cu12")]
    candidates += [wheel / "cuda_nvcc" / "bin" / name for wheel in places]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            candidates.append(Path(os.environ[variable]) / "bin" / name)
    candidates.append(Path("/usr/local/cuda/bin") / name)
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def _require(name: str) -> Path:
    tool = find_tool(name)
    if tool is None:
        raise ToolMissing(
            f"{name} is not installed (looked on PATH, in the CUDA wheels and in CUDA_HOME); "
            f"type: pip install {_WHEELS[name]}"
        )
    return tool


def version(tool: str = "ptxas") -> str:
    """The release that a tool reports, such as "13.0.88"."""
    text = _run([str(_require(tool)), "--version"]).stdout
    marks = [word for word in text.replace(",", " ").split() if word.startswith("V")]
    return marks[-1][1:] if marks else "unknown"


def assemble(
    ptx: str, target: str = "sm_90a", *, ptxas: Path | None = None, debug_lines: bool = False
) -> Assembled:
    """Assemble `ptx` for `target`; raises `AssemblyError` or `ToolMissing`."""
    tool = ptxas or _require("ptxas")
    with tempfile.TemporaryDirectory(prefix="tilec-") as folder:
        source, result = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        command = [str(tool), f"-arch={target}", "-v", str(source), "-o", str(result)]
        if debug_lines:
            command.insert(1, "-lineinfo")
        done = _run(command)
        log = (done.stdout + done.stderr).replace(str(source), "kernel.ptx")
        notes = parse_assembler_log(log)
        if done.returncode:
            raise AssemblyError(_first_errors(notes, log), notes, log)
        return Assembled(result.read_bytes(), tuple(notes), log)


def _first_errors(notes: list[AssemblerNote], log: str) -> str:
    errors = [note for note in notes if note.kind == "error"][:5]
    if not errors:
        return f"ptxas failed:\n{log.strip()}"
    lines = [f"line {n.line}: {n.text}" if n.line is not None else n.text for n in errors]
    return "ptxas refused the text:\n" + "\n".join(lines)


def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin as nvdisasm prints it."""
    tool = _require("nvdisasm")
    with tempfile.TemporaryDirectory(prefix="tilec-") as folder:
        source = Path(folder) / "kernel.cubin"
        source.write_bytes(cubin)
        done = _run([str(tool), "--print-code", str(source)])
        if done.returncode:
            raise AssemblyError(f"nvdisasm failed:\n{done.stderr.strip()}", [], done.stderr)
        return done.stdout


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise AssemblyError(
            f"{Path(command[0]).name} did not finish in {_TIME_LIMIT_S:.0f} s", [], ""
        ) from None
