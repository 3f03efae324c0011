"""What is known about an example program, apart from its text: sizes, inputs, truth, closeness.

Idea: a file of this folder for each kernel of ``examples/``, found by its name.  It declares an
`Example`; the interpreter's tests and those on a GPU run the same ones.  Inputs are float64 arrays
whose values the element type holds exactly, so that the truth is computed from what the kernel
sees.

Invariants: the same example, sizes, view and seed give the same arrays; every example has at least
eight sizes, among them none of something, and one under and one over a tile.

Never: computes a truth with tilec.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.interp.numbers import decode, encode, rounded, storage
from tilec.ir.types import DTYPES

FOLDER = Path(__file__).resolve().parents[2] / "examples"
Data = npt.NDArray[Any]
Sizes = Mapping[str, Any]
VIEWS = ("packed", "padded", "offset", "repeated", "turned")
"""How arrays lie: packed, with wide or odd rows, all rows the first one, the last axes turned."""
_LEAST_SIZES = 8


@dataclass(frozen=True)
class Given:
    """One input: its element type, and values that are rounded to it."""

    dtype: str
    values: Data

    def exact(self) -> Data:
        """The values that the element type holds, as float64 or integers."""
        return decoded(self.dtype, stored(self.dtype, self.values))


@dataclass(frozen=True)
class Close:
    """How far an output may be from the truth: relative to the element, and to the largest."""

    dtype: str
    shape: tuple[str | int, ...]
    relative: float = 0.0
    absolute: float = 0.0
    of_largest: float = 0.0

    def extents(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape at these sizes."""
        return tuple(e if isinstance(e, int) else int(sizes[e]) for e in self.shape)

    def allowed(self, truth: Data) -> Data:
        """The largest error of each element."""
        finite = np.abs(truth[np.isfinite(truth)])
        largest = float(finite.max()) if finite.size else 0.0
        return self.absolute + self.of_largest * largest + self.relative * np.abs(truth)


ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-10, "f32": 2.0**-22, "e4m3": 2.0**-3}
"""One unit in the last place of each type, relative: half for rounding, half for what it rounds."""


def close(dtype: str, *shape: str | int, of_largest: float = 0.0, absolute: float = 0.0) -> Close:
    """An output as close as its own rounding, and so much of its largest element."""
    return Close(dtype, shape, ROUNDING.get(dtype, 0.0), absolute, of_largest)


@dataclass(frozen=True, eq=False)
class Example:
    """A kernel of an example file and how to judge it."""

    file: str
    kernel: str
    sizes: tuple[Sizes, ...]
    """Dimensions and compile-time parameters of each run."""
    inputs: Callable[[np.random.Generator, Sizes], dict[str, Any]]
    """`Given` arrays, and scalars, by parameter name; the `inout` ones as well."""
    truth: Callable[[dict[str, Any], Sizes], dict[str, Data]]
    """What each output holds, from exact inputs."""
    outputs: Mapping[str, Close]
    choices: tuple[str, ...] = ()
    """Those of the sizes that are compile-time parameters."""
    larger: tuple[Sizes, ...] = ()
    """Sizes that only a GPU is asked for."""
    fixed: frozenset[str] = field(default_factory=frozenset)
    """Inputs whose values mean something: no view repeats them."""
    unordered: bool = False
    """Whether atomics add in any order, so that two runs may differ in the last bits."""

    @property
    def path(self) -> Path:
        """The `.tk` file."""
        return FOLDER / f"{self.file}.tk"

    def bindings(self, sizes: Sizes) -> dict[str, Any]:
        """The compile-time parameters of these sizes."""
        return {name: sizes[name] for name in self.choices if name in sizes}


def rng_for(sizes: Sizes, seed: int = 0) -> np.random.Generator:
    """The generator for one run."""
    numbers = [int(v) if isinstance(v, int) else sum(map(ord, str(v))) for v in sizes.values()]
    return np.random.default_rng([seed, *numbers])


def normal(rng: np.random.Generator, dtype: str, *shape: int, scale: float = 1.0) -> Given:
    """Random normal values."""
    return Given(dtype, rng.standard_normal(shape) * scale)


def stored(dtype: str, values: Data) -> Data:
    """The array as its element type lies in memory (bf16 and fp8 as bits)."""
    kind = DTYPES[dtype]
    held = rounded(kind, np.asarray(values, np.float64)) if kind.is_float else values
    return np.asarray(encode(kind, held, storage(kind)))


def decoded(dtype: str, bits: Data) -> Data:
    """What an array in memory holds: float64 for floats, else the integers."""
    kind = DTYPES[dtype]
    values = decode(kind, bits)
    return values.astype(np.float64) if kind.is_float else values


def run_inputs(
    example: Example, sizes: Sizes, view: str = "packed", seed: int = 0
) -> dict[str, Any]:
    """The inputs of one run; the view "repeated" makes all rows of an array the first one."""
    given = example.inputs(rng_for(sizes, seed), sizes)
    if view == "repeated":
        for name, value in given.items():
            if isinstance(value, Given) and repeats(example, name, value):
                rows = np.broadcast_to(value.values[:1], value.values.shape)
                given[name] = Given(value.dtype, rows)
    return given


def repeats(example: Example, name: str, value: Given) -> bool:
    """Whether the view "repeated" gives this input a stride of 0."""
    plain = name not in example.outputs and name not in example.fixed
    return plain and value.values.ndim > 1 and value.values.shape[0] > 1


def truth_of(example: Example, given: Mapping[str, Any], sizes: Sizes) -> dict[str, Data]:
    """The outputs in float64."""
    exact = {k: v.exact() if isinstance(v, Given) else v for k, v in given.items()}
    with np.errstate(all="ignore"):
        return example.truth(exact, sizes)


def fault(close_to: Close, found: Data, truth: Data) -> str:
    """What is wrong with an output; empty when it is close enough everywhere."""
    if found.shape != truth.shape:
        return f"shape {found.shape}, expected {truth.shape}"
    same = (found == truth) | (np.isnan(found) & np.isnan(truth)) if found.size else found == truth
    with np.errstate(all="ignore"):
        near = np.abs(found - truth) <= close_to.allowed(np.asarray(truth, np.float64))
    wrong = ~(same | near)
    if not wrong.any():
        return ""
    place = tuple(int(n) for n in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {found.size} elements are off, the first at {place}: "
        f"{found[place]}, expected {truth[place]}"
    )


def all_examples() -> Iterator[Example]:
    """Every example that a file of this folder declares."""
    package = importlib.import_module(__package__ or "tests.examples")
    for found in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
        if found.startswith("test_") or found in ("spec", "conftest"):
            continue
        module = importlib.import_module(f"{package.__name__}.{found}")
        for value in vars(module).values():
            if isinstance(value, Example):
                assert len(value.sizes) >= _LEAST_SIZES, f"{found} has too few sizes"
                yield value
