"""The example programs on the emulator: compiled as a call compiles them, run, and judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from tests.examples.spec import (
    Example,
    Given,
    Sizes,
    decoded,
    fault,
    run_inputs,
    stored,
    truth_of,
)
from tilec.interp.memory import unwritten
from tilec.ir.facts import Facts, Schedule
from tilec.ir.types import DTYPES
from tilec.runtime import trial
from tilec.runtime.emulated import Emulator, emulate_call
from tilec.runtime.kernel import Kernel, Program
from tilec.runtime.specialise import facts_for
from tilec.source import SourceFile
from tilec.targets import by_name

ADVERSARIES = ("late", "early", "random")


@dataclass
class Subject:
    """An example for a target; what is compiled for it is kept."""

    example: Example
    target: str = "sm_90"
    schedule: Schedule | None = None
    """Choices to pin."""
    _kernels: dict[Any, Kernel] = field(default_factory=dict)

    def kernel(self, sizes: Sizes) -> Kernel:
        """The kernel with the compile-time parameters of these sizes."""
        bindings = self.example.bindings(sizes)
        key = tuple(bindings.items())
        if key not in self._kernels:
            path = self.example.path
            program = Program(SourceFile(path.name, path.read_text()))
            kernel = getattr(program, self.example.kernel)
            self._kernels[key] = kernel.using(self.schedule, **bindings)
        return self._kernels[key]

    def wrong(self, sizes: Sizes, how: Emulator, facts: Facts | None = None) -> list[str]:
        """Findings and outputs that are too far from the truth, in words."""
        kernel, target = self.kernel(sizes), by_name(self.target)
        call, arrays, given = self._call(sizes)
        if not any(v.size for n, v in call.views.items() if call.types[n].mode != "in"):
            return []
        done = emulate_call(call, kernel.compile(call, target, facts), how)
        said = [f"{f.kind} at line {f.line}: {f.message}" for f in done.findings]
        truth = truth_of(self.example, given, sizes)
        for name, output in self.example.outputs.items():
            why = fault(output, decoded(output.dtype, arrays[name]), truth[name])
            said += [f"{name}: {why}"] if why else []
        return said

    def facts(self, sizes: Sizes) -> Facts:
        """What a compilation for these sizes assumes."""
        call, _, _ = self._call(sizes)
        return facts_for(call.views, call.dims)

    def _call(self, sizes: Sizes) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        kernel = self.kernel(sizes)
        given = run_inputs(self.example, sizes)
        held = {k: stored(v.dtype, v.values) for k, v in given.items() if isinstance(v, Given)}
        for name, output in self.example.outputs.items():
            fresh = unwritten(DTYPES[output.dtype], output.extents(sizes), False)
            held[name] = held[name].copy() if name in held else fresh
        arrays = {p.name: held[p.name] for p in kernel.parameters if p.dims is not None}
        scalars = {k: v for k, v in given.items() if not isinstance(v, Given)}
        views = trial.views_of(kernel, arrays)
        return kernel.sort_out(views, scalars, by_name(self.target)), arrays, given


def quick_sizes(example: Example) -> list[Sizes]:
    """No work, and a ragged tile: of the sizes where there is some, the second in amount."""

    def amount(sizes: Sizes) -> int:
        chosen = [v for k, v in sizes.items() if k not in example.choices]
        return prod(int(v) for v in chosen)

    some = sorted((s for s in example.sizes if amount(s)), key=amount)
    return [next(s for s in example.sizes if not amount(s)), some[1]]
