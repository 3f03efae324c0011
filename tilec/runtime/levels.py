"""A program at any level, run on arrays of the host by whoever gives that level its meaning.

Level ``tile`` has the interpreter, level ``cta`` the machine of roles and rings, level ``ptx`` the
emulator on the text that would be emitted. Workspace between launches is made here, as a launcher
would, and shows where nothing was written.

Never: changes the module that it runs, or needs a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tilec.compiler import at_line, emit_module, prepare, run_passes
from tilec.diagnostics import render
from tilec.interp.interpret import interpret
from tilec.interp.memory import InterpretError, unwritten
from tilec.interp.numbers import Data, shape_of, storage
from tilec.ir.checks import BLOCKS
from tilec.ir.core import Kernel as IRKernel
from tilec.ir.core import Module
from tilec.pipeline import position
from tilec.runtime.call import Call
from tilec.runtime.checks import Said, read_checks, tell
from tilec.runtime.emulated import Emulator, emulate_call
from tilec.runtime.expressions import evaluate
from tilec.runtime.host import host_array
from tilec.runtime.kernel import Kernel, fresh
from tilec.runtime.specialise import LaunchError, facts_for
from tilec.source import SourceFile
from tilec.targets.base import Target

PADDED_SINCE = "fill-padding"
"""From this pass on, padding is what the program says it is."""
LAST_OF_CTA = "place-shared"


class Faulty(Exception):
    """A run went wrong, in words; its outputs mean nothing."""


def module_for(kernel: Kernel, call: Call) -> Module:
    """A call's module at level ``tile``, with facts and choices, before any pass."""
    module = replace(call.module, kernels=[fresh(call.module, kernel.name)])
    return prepare(module, facts_for(call.views, call.dims), kernel.schedule)


def run_on_numpy(
    module: Module, arrays: Mapping[str, Data], scalars: Mapping[str, Any], *, wide: bool = False
) -> Said:
    """Run a module of level ``tile`` or ``cta``; ``wide`` is float64 without rounding.

    Gives what level ``cta`` reported, and passes over assertions and prints at level ``tile``.
    Raises ``InterpretError`` where it breaks a rule.
    """
    held = {**arrays, **_workspace(module, arrays, scalars, wide)}
    if module.level == "cta":
        from tilec.interp.cta.run import run_launches

        run_launches(module.kernels, held, scalars, wide=wide)
        return read_checks(module.kernels, {k: held[k] for k in BLOCKS if k in held})
    for kernel in module.kernels:
        explicit = _has_run(kernel, PADDED_SINCE)
        interpret(kernel, held, scalars, wide=wide, explicit=explicit, silent=True)
    return Said()


def _has_run(kernel: IRKernel, name: str) -> bool:
    done = kernel.attributes.get("after")
    return done is not None and position(str(done)) >= position(name)


def _workspace(
    module: Module, arrays: Mapping[str, Data], scalars: Mapping[str, Any], wide: bool
) -> dict[str, Data]:
    dtypes = {a.name: a.type.dtype for kernel in module.kernels for a in kernel.body.args}
    shapes = {name: shape_of(dtypes[name], array) for name, array in arrays.items()}
    made: dict[str, Data] = {}
    for kernel in module.kernels:
        for name, dtype, extents in kernel.attributes.get("workspace", ()):
            shape = tuple(int(evaluate(extent, shapes, scalars)) for extent in extents)
            fresh = np.zeros(shape, storage(dtype)) if name in BLOCKS else None
            made.setdefault(str(name), unwritten(dtype, shape, wide) if fresh is None else fresh)
    return made


def run_on_emulator(module: Module, call: Call, source: SourceFile, how: Emulator) -> None:
    """Run the PTX of a module of level ``ptx`` on a call's arrays; ``Faulty`` with what was found.

    Before copies are placed the module is emitted with copies everywhere.
    """
    if not all(_has_run(kernel, "place-copies") for kernel in module.kernels):
        from tilec.backend_ptx.careful import with_copies

        module = replace(module, kernels=[with_copies(kernel) for kernel in module.kernels])
    done = emulate_call(call, emit_module(module, []), how)
    if done.findings:
        raise Faulty(render(done.diagnostics(source)))


def cta_call(kernel: Kernel, call: Call, target: Target) -> None:
    """Run a call on arrays in host memory with the interpreter of level ``cta``."""
    module = module_for(kernel, call)
    run_passes(module, target, stop_after=LAST_OF_CTA)
    held = {key: host_array(view) for key, view in call.views.items()}
    try:
        said = run_on_numpy(module, held, call.scalars)
    except InterpretError as error:
        labels = at_line(module, error.line, "while running this")
        raise LaunchError(error.message, code="run-fails", labels=labels, help=error.help) from None
    tell(said, module)
