"""Run a kernel at level ``tile`` on NumPy arrays.

Sizes left open by the program are chosen here; ``choose_sizes`` offers several choices, and a
program's result may depend on them only by the association of float sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilec.interp import (  # noqa: F401  (register the meanings)
    math_meanings,
    place_meanings,
    tile_meanings,
)
from tilec.interp.machine import Machine, Trace, held
from tilec.interp.memory import InterpretError, Memory, unwritten
from tilec.interp.numbers import Data, carrier, rounded, shape_of
from tilec.ir.core import Kernel, Value
from tilec.ir.levels import tile
from tilec.ir.types import Array, Scalar, Tile

_CHOICES = (32, 48, 16, 64)


def interpret(
    kernel: Kernel,
    arrays: Mapping[str, Data],
    scalars: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    *,
    wide: bool = False,
    explicit: bool = False,
    lazy: bool = False,
    trace: Trace | None = None,
    silent: bool = False,
) -> None:
    """Execute ``kernel``, writing into the arrays of its ``out`` and ``inout`` parameters.

    ``sizes`` gives size symbols their values (others are chosen). ``wide`` computes all floats in
    float64 without rounding. ``explicit`` says that padding is the program's business, as it is
    after the pass that inserts ``tile.pad``. ``lazy`` takes the least legal value of each
    ``anchor`` instead of the greatest: a program whose result depends on that breaks its promise.
    ``trace`` counts the rounds of loops and the masks of tiles by source line. ``silent`` passes
    over assertions and prints.
    """
    dims = bind_dims(kernel, arrays)
    chosen = choose_sizes(kernel, dims) | dict(sizes or {})
    machine = Machine(
        chosen, wide=wide, explicit=explicit, lazy=lazy, trace=trace, silent=silent,
        body=kernel.body,
    )  # fmt: skip
    for parameter in kernel.body.args:
        name = parameter.name
        if isinstance(parameter.type, Array):
            machine.values[parameter] = Memory(name, parameter.type, arrays[name], wide)
            continue
        if name not in (scalars or {}):
            raise InterpretError(f"the parameter {name} has no value")
        machine.values[parameter] = held(_scalar(parameter.type, (scalars or {})[name], wide))
    with np.errstate(all="ignore"):
        machine.run(kernel.body)


def interpret_launches(
    kernels: Sequence[Kernel],
    arrays: Mapping[str, Data],
    scalars: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    *,
    wide: bool = False,
    explicit: bool = False,
    lazy: bool = False,
) -> None:
    """Execute the launches of one kernel in order, with the workspace that they share."""
    dims: dict[str, int] = {}
    held_by_launcher: dict[str, Data] = {}
    for kernel in kernels:
        made = {str(name) for name, *_ in kernel.attributes.get("workspace", ())}
        given = [arg for arg in kernel.body.args if arg.name not in made]
        dims |= _dims_of(given, arrays)
        for arg in kernel.body.args:
            if arg.name in made and arg.name not in held_by_launcher:
                shape = tuple(e if isinstance(e, int) else dims[e] for e in arg.type.shape)
                held_by_launcher[arg.name] = unwritten(arg.type.dtype, shape, wide)
        interpret(
            kernel, {**arrays, **held_by_launcher}, scalars, sizes,
            wide=wide, explicit=explicit, lazy=lazy,
        )  # fmt: skip


def _scalar(type: Scalar, value: Any, wide: bool) -> Data:
    if type.dtype.is_float:
        return rounded(type.dtype, np.asarray(value, np.float64), wide)
    return np.asarray(value).astype(carrier(type.dtype))


def bind_dims(kernel: Kernel, arrays: Mapping[str, Data]) -> dict[str, int]:
    """Size names from the arrays; refuses arrays that disagree with the types or each other."""
    return _dims_of(kernel.body.args, arrays)


def _dims_of(parameters: Iterable[Value[Any]], arrays: Mapping[str, Data]) -> dict[str, int]:
    dims: dict[str, int] = {}
    origin: dict[str, str] = {}
    for parameter in parameters:
        if not isinstance(parameter.type, Array):
            continue
        name, type = parameter.name, parameter.type
        if name not in arrays:
            raise InterpretError(f"the parameter {name} has no array")
        shape = shape_of(type.dtype, arrays[name])
        if len(shape) != len(type.shape):
            raise InterpretError(f"{name} has {len(shape)} axes, {len(type.shape)} are needed")
        for extent, found in zip(type.shape, shape, strict=True):
            if isinstance(extent, int):
                if extent != found:
                    raise InterpretError(f"{name} has shape {shape}, {type.shape} is needed")
            elif dims.setdefault(extent, found) != found:
                other = origin[extent]
                raise InterpretError(
                    f"{extent} is {dims[extent]} in {other} (shape {arrays[other].shape}) and "
                    f"{found} in {name} (shape {shape})"
                )
            else:
                origin.setdefault(str(extent), name)
    return dims


def choose_sizes(kernel: Kernel, dims: Mapping[str, int], choice: int = 0) -> dict[str, int]:
    """Values for all size symbols of a kernel: the ``choice``-th of several legal ones.

    Loops get multiples of 16, and tiles over a whole axis the axis rounded up; sizes that the
    schedule pins keep them.
    """
    size = _CHOICES[choice % len(_CHOICES)]
    sizes: dict[str, int] = {}
    for op in kernel.body.walk():
        if isinstance(op, tile.Whole) and isinstance(op.size, str):
            named = op.array.type.shape[op.axis]
            extent = named if isinstance(named, int) else dims[named]
            sizes[op.size] = -(-max(extent, 1) // size) * size
        elif isinstance(op, tile.Parallel):
            sizes.update((s, size) for s in op.sizes if isinstance(s, str))
        elif isinstance(op, tile.ForTiles) and isinstance(op.size, str):
            sizes[op.size] = size
    sizes.update((f"${name}", pinned) for name, pinned in kernel.schedule.get("tiles", ()))
    return sizes


def symbols(kernel: Kernel) -> set[str]:
    """The size symbols that a kernel's tile types still mention."""
    found: set[str] = set()
    for op in kernel.body.walk():
        for value in op.results:
            if isinstance(value.type, Tile):
                found.update(e for e in value.type.shape if isinstance(e, str))
    return found


def outputs_for(kernel: Kernel, dims: Mapping[str, int], wide: bool = False) -> dict[str, Data]:
    """Fresh arrays for the ``out`` parameters, holding NaN (or -1 or True) until written."""
    made: dict[str, Data] = {}
    for parameter in kernel.body.args:
        type = parameter.type
        if isinstance(type, Array) and type.mode == "out":
            shape = tuple(e if isinstance(e, int) else dims[e] for e in type.shape)
            made[parameter.name] = unwritten(type.dtype, shape, wide)
    return made
