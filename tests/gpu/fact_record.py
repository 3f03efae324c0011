"""One measured fact, and the means to run a kernel for it.

Idea: an experiment returns `Fact`s; a fact is a question, a sentence that answers it, whether the
project's claim held, and the raw readings.

Invariants: a fact's answer is computed from its readings; device memory is freed after each run;
an experiment runs in a child of its own, so that a fault in it leaves the others their context.

Never: decides what to measure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.gpu.fact_kernels import Kernel, module_text
from tilec.backend_ptx import module as cuda
from tilec.runtime.supervise import SupervisedError, run

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Fact:
    """A question put to the hardware.  `holds` is None where there was no claim to test."""

    name: str
    question: str
    answer: str
    holds: bool | None = None
    readings: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The fact as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Experiment:
    """Facts that are measured together.

    `measure` is a module-level function and runs in a supervised child.  With `own_children` it
    runs here, is given the time limit, and starts a child for each trial itself: for trials that
    may end in a fault, which is then the answer.
    """

    name: str
    measure: Callable[..., list[Fact]]
    own_children: bool = False

    def facts(self, limit_s: float) -> list[Fact]:
        """What it found; raises `SupervisedError` when its child did not deliver."""
        if self.own_children:
            return self.measure(limit_s)
        found: list[Fact] = run(self.measure, limit_s=limit_s)
        return found


def outcome(trial: Callable[..., str], *arguments: Any, limit_s: float) -> str:
    """What a trial in a child of its own came to: its result, or the error that ended it."""
    try:
        return str(run(trial, *arguments, limit_s=limit_s))
    except SupervisedError as error:
        first = str(error).splitlines()[0]
        code = re.search(r"CUDA_ERROR_\w+", first)
        return code[0] if code else first


class Bench:
    """Kernels loaded into the current context."""

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        """Assemble (driver JIT) and load the kernels as one module."""
        self._kernels = {kernel.name: kernel for kernel in kernels}
        self._module = cuda.Module.load(module_text(self._kernels.values()))
        self._functions: dict[str, cuda.Function] = {}

    def run(
        self,
        name: str,
        values: Sequence[Any],
        *,
        threads: int,
        shared_bytes: int = 0,
        grid: int = 1,
    ) -> None:
        """Launch one kernel and wait for it."""
        kernel = self._kernels[name]
        if name not in self._functions:
            self._functions[name] = self._module.function(name)
        arguments = cuda.pack(list(zip(kernel.kinds, values, strict=True)))
        size = (grid, 1, 1)
        cuda.launch(self._functions[name], size, (threads, 1, 1), shared_bytes, arguments)
        cuda.synchronize()


def words(count: int) -> cuda.DeviceBuffer:
    """A device buffer of `count` zeroed 32-bit words."""
    return cuda.DeviceBuffer.of(np.zeros(count, np.uint32))


def listing(values: Iterable[Any]) -> str:
    """Values joined by commas, or "none"."""
    return ", ".join(str(value) for value in values) or "none"


def claim(name: str, question: str, readings: dict[str, bool]) -> Fact:
    """The fact that a claim holds for every case that was tried."""
    wrong = [key for key, right in readings.items() if not right]
    answer = f"not for {listing(wrong)}" if wrong else f"yes ({len(readings)} cases)"
    return Fact(name, question, answer, not wrong, dict(readings))
