"""Example kernels compiled for an emulated launch on NumPy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilec.compiler import compile_source, front
from tilec.emulator.findings import Findings
from tilec.emulator.launch import Launch, emulate
from tilec.emulator.schedule import Choice
from tilec.interp.interpret import bind_dims
from tilec.ir.facts import ArrayFacts, Facts
from tilec.runtime.arrays import view
from tilec.runtime.emulated import buffer_value
from tilec.runtime.expressions import evaluate
from tilec.runtime.specialise import multiple_class
from tilec.source import SourceFile
from tilec.targets import by_name

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass
class Emulated:
    """The arrays after a run, and what was found wrong."""

    arrays: dict[str, np.ndarray]
    findings: Findings


def emulated(
    program: str, arrays: dict[str, np.ndarray], *, order: str = "in order", seed: int = 0
) -> Emulated:
    """Compile an example for row-major, aligned arrays and emulate its one launch."""
    held = {name: a.copy() for name, a in arrays.items()}
    text, launch = prepared(program, held)
    findings, _ = emulate(text, launch, choice=Choice(order, seed))
    return Emulated(held, findings)


def prepared(
    program: str, held: dict[str, np.ndarray], bounds: dict[str, int] | None = None
) -> tuple[SourceFile, Launch]:
    """An example's PTX and its one launch on row-major, aligned arrays, changed in place.

    ``bounds`` is what the compiler may take the sizes for, instead of those of the arrays.
    """
    path = EXAMPLES / f"{program}.tk"
    source, target = SourceFile(path.name, path.read_text()), by_name("sm_90")
    dims = bind_dims(front(source, None, {}, target).kernels[0], held)
    facts = Facts(
        tuple((n, ArrayFacts(a.ndim - 1, 16)) for n, a in held.items() if a.ndim),
        tuple((dims if bounds is None else bounds).items()),
        tuple((n, multiple_class(extent)) for n, extent in (bounds or {}).items()),
    )
    compiled = compile_source(source, None, {}, target, facts)
    views = {n: view(held[n], type.dtype.name) for n, type in compiled.arrays}
    scalars = {n: held[n].item() for n, _ in compiled.scalars}
    grid = int(evaluate(compiled.grid, {n: a.shape for n, a in held.items()}, {}))
    launch = Launch(
        (grid, 1, 1),
        (compiled.threads, 1, 1),
        compiled.shared_bytes,
        tuple(buffer_value(compiled, p, views, scalars) for p in compiled.parameters),
        {name: a.reshape(-1).view(np.uint8) for name, a in held.items()},
    )
    return SourceFile(f"{program}.ptx", compiled.ptx), launch
