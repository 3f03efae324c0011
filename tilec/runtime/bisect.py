"""Which pass changes what a program means: every state of a compilation, run on the same inputs.

Idea: the source, run in float64 without rounding, says what is meant. After each pass the program
runs again in the executor of its level, and must give the same:

* in float64 without rounding, where only the association of sums may differ: within ``_EXACT`` of
  the largest element. This is sharp: a wrong constant, a mask that is missing or a wait that is
  missing cannot hide behind the rounding of element types. Levels ``tile`` and ``cta`` only.
* as the language rounds: like the source does then, within what ``tilec run`` allows for the
  element type, or four times as far apart as the source's own runs are with other tile sizes and
  other values of ``anchor``, whichever is more. This is what sees a cast that is missing.

Integers are compared exactly. What an executor
finds (a race, a breach of the protocol, a deadlock) is a difference too. A pass that changed
nothing is passed over, unless the executor goes by whether it ran.

Never: blames a pass for what the verifier or an assertion already stops; those errors name it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.backend_ptx.registers import PlacementError
from tilec.compiler import run_passes
from tilec.diagnostics import DiagnosticError
from tilec.dump import Dump, same_but_for_marks
from tilec.interp.interpret import outputs_for
from tilec.interp.memory import InterpretError, NoMeaning
from tilec.interp.numbers import Data, decode
from tilec.ir.core import Module
from tilec.ir.printer import module_text
from tilec.ir.types import Array, Scalar
from tilec.runtime import arrays as arrays_of
from tilec.runtime import trial
from tilec.runtime.call import Parameter, match
from tilec.runtime.emulated import Emulator
from tilec.runtime.host import host_array
from tilec.runtime.kernel import Kernel
from tilec.runtime.levels import PADDED_SINCE, Faulty, module_for, run_on_emulator, run_on_numpy
from tilec.runtime.scalars import held
from tilec.runtime.specialise import LaunchError, bind_dims, check_packed
from tilec.targets import by_name
from tilec.targets.base import Target

_EXACT = 2.0**-36
"""Of the largest element: what float64 sums and functions may lose to their order."""
_NOISE = 4.0
_OTHER_RUNS = ((1, False), (2, True))
"""Tile sizes and ends of ``anchor`` with which the source says how far its own runs are apart."""
_ALWAYS = (PADDED_SINCE, "place-copies")
"""Passes after which a program is taken another way, even if it is the same."""
_SAID = (InterpretError, Faulty, DiagnosticError, PlacementError)
_BROKEN = (*_SAID, ArithmeticError, LookupError, TypeError, ValueError, AssertionError)
"""What running a broken program may end in: its executor refuses it, or NumPy does."""


@dataclass(frozen=True)
class Difference:
    """The first element that is another one."""

    array: str
    index: tuple[int, ...]
    before: Any
    """What the source gives there."""
    after: Any
    allowed: float
    """How far apart the two may be."""
    how: str
    """``in float64 without rounding``, ``as element types round``, or ``on the emulator``."""

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        within = f" (allowed: {self.allowed:.3g} apart)" if self.allowed else ""
        found = f"{self.array}[{place}] is {self.after}"
        return f"{found}, the source gives {self.before}{within}, {self.how}"


@dataclass(frozen=True)
class Step:
    """What came of one pass."""

    name: str
    level: str
    verdict: str
    """``same``, ``unchanged``, ``differs``, ``faulty`` or ``not run``."""
    largest: float = 0.0
    """How far the rounded run is from the source's, at most."""
    difference: Difference | None = None
    message: str = ""
    before: str = ""
    after: str = ""
    """The module as text; only of a pass that changed the meaning."""

    @property
    def changes_meaning(self) -> bool:
        """Whether the result is another one, or there is none."""
        return self.verdict in ("differs", "faulty")

    def diff(self) -> str:
        """What the pass changed."""
        lines = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(),
            f"before {self.name}", f"after {self.name}", lineterm="",
        )  # fmt: skip
        return "\n".join(lines)


@dataclass
class Bisection:
    """All steps up to the first that means something else, or all of the pipeline."""

    kernel: str
    steps: list[Step] = field(default_factory=list)

    @property
    def first(self) -> Step | None:
        """The first pass whose output means something else."""
        return next((step for step in self.steps if step.changes_meaning), None)


class _Done(Exception):
    """The pass is found; what comes after it is of no interest."""


def bisect(
    kernel: Kernel,
    *args: Any,
    emulator: Emulator | None = None,
    dump: Dump | None = None,
    **named: Any,
) -> Bisection:
    """Compile a kernel for a call with arrays in host memory, running it after each pass.

    The arrays are not written; outputs may be left out, as in a call.
    """
    given = match(kernel.signature, kernel.parameters, args, named)
    views = {
        p.name: arrays_of.view(given[p.name]) for p in kernel.parameters if _is_array(p, given)
    }
    views = kernel.as_declared(views)
    for name, view in views.items():
        if view.device != arrays_of.CPU:
            raise LaunchError(
                f"{name} lies on {arrays_of.place(view.device)}: pass a copy on the CPU"
            )
    kernel = kernel.for_arrays(views)
    target = kernel.target or by_name("90")
    ir = kernel.front_end(kernel.bindings, target).kernel(kernel.name)
    arrays = {name: np.array(host_array(view)) for name, view in views.items()}
    types = trial.array_parameters(ir)
    dims = bind_dims(types, {name: view.shape for name, view in views.items()})
    check_packed(types, dims)
    for name, type in types.items():
        unknown = [str(e) for e in type.shape if isinstance(e, str) and e not in dims]
        if name not in arrays and unknown:
            missing = ", ".join(unknown)
            raise LaunchError(f"{name} must be given: no argument says what {missing} is")
    arrays |= {n: a for n, a in outputs_for(ir, dims).items() if n not in arrays}
    scalars = {
        a.name: held(a.name, a.type.dtype, given[a.name])
        for a in ir.body.args
        if isinstance(a.type, Scalar)
    }
    inputs = trial.Inputs({name: arrays[name] for name in types}, scalars, dims)
    return bisect_inputs(kernel, inputs, target, emulator=emulator, dump=dump)


def _is_array(parameter: Parameter, given: Mapping[str, Any]) -> bool:
    return parameter.dims is not None and parameter.name in given


def bisect_inputs(
    kernel: Kernel,
    inputs: trial.Inputs,
    target: Target,
    *,
    emulator: Emulator | None = None,
    dump: Dump | None = None,
) -> Bisection:
    """Compile a kernel for some inputs, running it after each pass, up to the first difference."""
    ir = kernel.front_end(kernel.bindings, target).kernel(kernel.name)
    arrays = trial.copies(ir, inputs)
    call = kernel.sort_out(trial.views_of(kernel, arrays), inputs.scalars, target)
    module = module_for(kernel, call)
    if dump is not None:
        dump.start(module, "lower")
    watch = _Watch(kernel, inputs, target, module, emulator or Emulator(), dump)
    with suppress(_Done):
        run_passes(module, target, dump=watch)
    return watch.found


class _Watch:
    """Runs the module after each pass."""

    def __init__(
        self, kernel: Kernel, inputs: trial.Inputs, target: Target, module: Module,
        emulator: Emulator, dump: Dump | None,
    ) -> None:  # fmt: skip
        self.kernel, self.inputs, self.target = kernel, inputs, target
        self.emulator, self.dump = emulator, dump
        self.ir = kernel.front_end(kernel.bindings, target).kernel(kernel.name)
        self.types = trial.array_parameters(self.ir)
        self.exact = self._numpy(module, wide=True)
        self.rounded = self._numpy(module, wide=False)
        self.found = Bisection(kernel.name)
        self.text = ""
        self.noise = self._noise()

    # The pipeline's observer --------------------------------------------------------------------

    def before(self, name: str, module: Module) -> None:
        """Keep the text."""
        self.text = module_text(module)
        if self.dump is not None:
            self.dump.before(name, module)

    def after(self, name: str, module: Module) -> None:
        """Run, compare, and stop the compilation at a difference."""
        if self.dump is not None:
            self.dump.after(name, module)
        text = module_text(module)
        if name not in _ALWAYS and same_but_for_marks(self.text, text):
            self.found.steps.append(Step(name, module.level, "unchanged"))
            return
        step = self._judged(name, module, text)
        self.found.steps.append(step)
        if step.changes_meaning:
            raise _Done

    def _judged(self, name: str, module: Module, text: str) -> Step:
        before, level = self.text, module.level
        try:
            difference, largest = self._compared(module)
        except NoMeaning as error:
            return Step(name, level, "not run", message=error.message)
        except _BROKEN as error:
            plain = isinstance(error, _SAID)
            message = str(error) if plain else f"{type(error).__name__}: {error}"
            return Step(name, level, "faulty", 0.0, None, message, before, text)
        if difference is not None:
            return Step(name, level, "differs", largest, difference, "", before, text)
        return Step(name, level, "same", largest)

    def _compared(self, module: Module) -> tuple[Difference | None, float]:
        """The first difference from the source, and the largest one of the rounded run."""
        if module.level == "ptx":
            return self._rounded_difference(self._emulated(module), "on the emulator")
        exact = self._numpy(module, wide=True)
        for name, type in self.types.items():
            if name in exact:
                wanted = self.exact[name]
                allowed = _EXACT * _scale(wanted) if type.dtype.is_float else 0.0
                found = _first(name, wanted, exact[name], allowed, "in float64 without rounding")
                if found is not None:
                    return found, 0.0
        rounded = self._numpy(module, wide=False)
        return self._rounded_difference(rounded, "as element types round")

    def _rounded_difference(
        self, rounded: Mapping[str, Data], how: str
    ) -> tuple[Difference | None, float]:
        largest = 0.0
        for name, type in self.types.items():
            if name not in rounded:
                continue
            if not type.dtype.is_float:
                found = _first(name, self.rounded[name], rounded[name], 0.0, how)
            else:
                values, wanted = (_numbers(type, one[name]) for one in (rounded, self.rounded))
                found = _first(name, wanted, values, self.noise[name], how)
                largest = max(largest, _apart(wanted, values))
            if found is not None:
                return found, largest
        return None, largest

    def _noise(self) -> dict[str, float]:
        """How far rounded runs of one meaning may be apart, by output."""
        others = [
            trial.on_interpreter(self.ir, self.inputs, choice, lazy=lazy).outputs
            for choice, lazy in _OTHER_RUNS
        ]
        noise: dict[str, float] = {}
        for name, type in self.types.items():
            if name not in self.rounded or not type.dtype.is_float:
                continue
            own = _numbers(type, self.rounded[name])
            apart = [_apart(own, _numbers(type, other[name])) for other in others]
            spread = max((a for a in apart if np.isfinite(a)), default=0.0)
            noise[name] = max(trial.allowed(type.dtype, _scale(own)), _NOISE * spread)
        return noise

    # Running ------------------------------------------------------------------------------------

    def _numpy(self, module: Module, *, wide: bool) -> dict[str, Data]:
        arrays = trial.copies(self.ir, self.inputs, wide)
        run_on_numpy(module, arrays, self.inputs.scalars, wide=wide)
        return trial.written(self.ir, arrays)

    def _emulated(self, module: Module) -> dict[str, Data]:
        arrays = trial.copies(self.ir, self.inputs)
        views = trial.views_of(self.kernel, arrays)
        call = self.kernel.sort_out(views, self.inputs.scalars, self.target)
        found = trial.written(self.ir, arrays)
        if any(array.size for array in found.values()):
            run_on_emulator(module, call, self.kernel.program.source, self.emulator)
        return found


def _numbers(type: Array, array: Data) -> Data:
    """Elements in memory as float64."""
    return decode(type.dtype, array).astype(np.float64)


def _scale(wanted: Data) -> float:
    finite = np.abs(wanted[np.isfinite(wanted)])
    return float(finite.max()) if finite.size else 0.0


def _distance(wanted: Data, values: Data) -> Data:
    """How far elements are apart; two NaN, or two like infinities, are not."""
    same = (values == wanted) | ((values != values) & (wanted != wanted))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(values.astype(np.float64) - wanted.astype(np.float64))
    apart = np.where(np.isnan(apart), np.inf, apart)
    made: Data = np.where(same, 0.0, apart)
    return made


def _apart(wanted: Data, values: Data) -> float:
    return float(_distance(wanted, values).max(initial=0.0))


def _first(name: str, wanted: Data, values: Data, allowed: float, how: str) -> Difference | None:
    if values.shape != wanted.shape:
        return Difference(name, (), wanted.shape, values.shape, 0.0, "as shapes")
    differs = (
        _distance(wanted, values) > allowed
        if wanted.dtype.kind == "f"
        else np.asarray(values != wanted)
    )
    if not differs.any():
        return None
    index = tuple(int(n) for n in np.argwhere(differs)[0])
    return Difference(name, index, wanted[index].item(), values[index].item(), allowed, how)
