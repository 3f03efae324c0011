"""A case from the field: a small program, inputs, and what must come out.

Idea: each case is a function that calls kernels through a ``Runner`` and asserts what came out; its
first line says what is tried. So the same function is a test on the interpreter (where the program
is also compiled and assembled for the arguments of each call) and a check on a GPU, to which the
runner's arrays travel.

Invariants: oracles are NumPy in float64, or exact integers; nothing but results is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tilec.compiler import compile_source
from tilec.diagnostics import DiagnosticError
from tilec.runtime import arrays as arrays_of
from tilec.runtime.kernel import Kernel, Program
from tilec.source import SourceFile
from tilec.targets import by_name

Data = Any


@dataclass
class Runner:
    """Calls kernels; with ``assemble`` given, also compiles each call and hands the PTX over."""

    assemble: Callable[[str, str], object] | None = None
    programs: dict[str, Program] = field(default_factory=dict)

    def kernel(self, text: str, **using: Any) -> Kernel:
        """The first kernel of a text."""
        if text not in self.programs:
            self.programs[text] = Program(SourceFile("case.tk", text))
        return self.programs[text].kernels[0].using(**using)

    def __call__(
        self,
        text: str,
        using: dict[str, Any] | None = None,
        targets: tuple[str, ...] = ("90", "80"),
        **given: Any,
    ) -> Any:
        """What a call gives; ``targets`` are those that have what the program needs."""
        kernel = self.kernel(text, **(using or {}))
        result = kernel(**given)
        if self.assemble is not None:
            outs = result if isinstance(result, tuple) else (result,)
            names = [p.name for p in kernel.parameters if p.mode != "in"]
            all_given = {**given, **dict(zip(names, outs, strict=True))}
            for name in targets:
                ptx, sm = compiled_for(kernel, all_given, name)
                self.assemble(ptx, sm)
        return result

    def refused(self, text: str, code: str, part: str, **given: Any) -> None:
        """Assert that a call, or the compilation if nothing is given, is refused in these words."""
        with pytest.raises(DiagnosticError) as caught:
            self._whatever(text, given)
        said = [(d.code, str(d.message) + d.help) for d in caught.value.diagnostics]
        assert any(code == c and part in text for c, text in said), said

    def _whatever(self, text: str, given: dict[str, Any]) -> None:
        if given:
            self.kernel(text)(**given)
        else:
            compile_source(SourceFile("case.tk", text), None, {}, by_name("90"))


def compiled_for(kernel: Kernel, given: dict[str, Any], name: str) -> tuple[str, str]:
    """The PTX for the arguments of a call, and the target to assemble it for."""
    target = by_name(name)
    views = {p.name: arrays_of.view(given[p.name]) for p in kernel.parameters if p.dims is not None}
    scalars = {p.name: given[p.name] for p in kernel.parameters if p.dims is None}
    return kernel.compile(kernel.sort_out(views, scalars, target), target).ptx, target.name


@dataclass(frozen=True)
class Case:
    """One case, and where it was seen."""

    id: str
    kind: str
    source: str
    check: Callable[[Runner], None]
    refusal: str = ""

    @property
    def what(self) -> str:
        """What is tried."""
        return (self.check.__doc__ or "").strip().splitlines()[0].rstrip(".")


CASES: dict[str, Case] = {}


def case(id: str, kind: str, source: str, refusal: str = "") -> Callable[[Any], Any]:
    """Make a case of a function; ``refusal`` is a code, where a message is the answer."""

    def made(check: Callable[[Runner], None]) -> Callable[[Runner], None]:
        assert id not in CASES
        CASES[id] = Case(id, kind, source, check, refusal)
        return check

    return made


def all_cases() -> list[Case]:
    """Every case, by its id."""
    from tests.cases import language, loops, memory, products, rows, shapes, types  # noqa: F401

    return [CASES[id] for id in sorted(CASES)]


def whole(seed: int, *shape: int, dtype: Any = np.float16, most: int = 8) -> Data:
    """Small whole numbers, of which products and sums are exact."""
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(dtype)


def normal(seed: int, *shape: int, dtype: Any = np.float32) -> Data:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def guarded(rows: int, columns: int, pitch: int, dtype: Any, fill: int = 7) -> tuple[Data, Data]:
    """An array whose rows lie further apart than they are long, and all of its memory."""
    memory = np.full((rows, pitch), fill, dtype)
    return memory[:, :columns], memory
