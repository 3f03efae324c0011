"""tilec: kernels on tiles, compiled to PTX, every step a readable file.

``load`` and ``compile`` give programs whose kernels are called like functions. Everything is
imported on use: importing this package loads neither NumPy nor a parser nor CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilec.diagnostics import DiagnosticError
    from tilec.ir.facts import Schedule
    from tilec.runtime.bisect import Bisection, bisect
    from tilec.runtime.emulated import EmulationError, Emulator
    from tilec.runtime.kernel import Kernel, Program
    from tilec.runtime.report import report
    from tilec.runtime.specialise import LaunchError

__all__ = [
    "Bisection",
    "DiagnosticError",
    "EmulationError",
    "Emulator",
    "Kernel",
    "LaunchError",
    "Program",
    "Schedule",
    "bisect",
    "compile",
    "load",
    "report",
]
__version__ = "0.1.0"

_HOMES = {
    "Bisection": "tilec.runtime.bisect",
    "bisect": "tilec.runtime.bisect",
    "DiagnosticError": "tilec.diagnostics",
    "EmulationError": "tilec.runtime.emulated",
    "Emulator": "tilec.runtime.emulated",
    "Schedule": "tilec.ir.facts",
    "report": "tilec.runtime.report",
    "Kernel": "tilec.runtime.kernel",
    "Program": "tilec.runtime.kernel",
    "LaunchError": "tilec.runtime.specialise",
}


def load(path: str) -> Program:
    """The program in a ``.tk`` file; its kernels are attributes of the result."""
    from tilec.runtime.kernel import Program
    from tilec.source import SourceFile

    return Program(SourceFile.read(path))


def compile(text: str, name: str = "<text>") -> Program:
    """The program in a text."""
    from tilec.runtime.kernel import Program
    from tilec.source import SourceFile

    if not isinstance(text, str):
        raise TypeError(f"the text of a program is a str, got {type(text).__name__}")
    return Program(SourceFile(name, text))


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name not in _HOMES:
        raise AttributeError(f"module tilec has no attribute {name}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
