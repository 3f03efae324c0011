"""One measured fact, and the means to run a kernel for it.

Idea: an experiment returns `Fact`s; a fact is a question, a sentence that answers it, whether the
project's claim held, and the raw readings.

Invariants: a fact's answer is computed from its readings; device memory is freed after each run.

Never: decides what to measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.gpu.fact_kernels import Kernel, module_text
from tilec.backend_ptx import module as cuda

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
