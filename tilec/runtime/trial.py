"""One trial of a kernel: inputs of given sizes, a run, and how far it is from a reference.

The reference is the interpreter in float64 without rounding, with other tile sizes than the run, so
that neither rounding nor the choice of sizes can hide. Inputs come from files or are random
(normal floats, small integers) from a seed. The GPU is used in a child process with a time limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilec.diagnostics import Diagnostic
from tilec.interp.interpret import choose_sizes, interpret, outputs_for
from tilec.interp.numbers import FORMATS, decode, encode, shape_of, storage
from tilec.ir.core import Kernel as IRKernel
from tilec.ir.facts import Schedule
from tilec.ir.types import Array, DType, Scalar
from tilec.runtime import arrays as arrays_of
from tilec.runtime import supervise
from tilec.runtime.arrays import ArrayView
from tilec.runtime.checks import Said
from tilec.runtime.kernel import Kernel, Program
from tilec.runtime.scalars import held
from tilec.runtime.specialise import LaunchError, check_packed
from tilec.source import SourceFile
from tilec.targets.base import Target

if TYPE_CHECKING:
    from tilec.runtime.emulated import Emulator

HostArray = npt.NDArray[Any]

GPU_LIMIT_S = 120.0
_TIMED_RUNS = 10
_SLACK = 2.0
"""Roundings of the output type that a result may be away from the reference."""
_SUMS, _WIDE_SUMS = 2.0**-20, 2.0**-49
"""What float32 sums, and those of f64, may lose, relative to the largest result."""
_WIDEST_BYTES = 8
_PRECISION = {"f64": 53, "f32": 24}


@dataclass
class Inputs:
    """Arrays by parameter name, as they lie in memory, and scalars."""

    arrays: dict[str, HostArray]
    scalars: dict[str, Any]
    dims: dict[str, int]


@dataclass(frozen=True)
class Deviation:
    """How far one output is from the reference."""

    name: str
    largest: float
    allowed: float
    scale: float
    """The largest magnitude of the reference."""

    @property
    def ok(self) -> bool:
        """Whether the output is as close as its element type allows."""
        return self.largest <= self.allowed


@dataclass
class Trial:
    """What a run gave."""

    outputs: dict[str, HostArray]
    seconds: float
    where: str
    sizes: dict[str, int] = field(default_factory=dict)
    said: Said = field(default_factory=Said)
    """What assertions and prints said that nobody has told yet."""


def array_parameters(kernel: IRKernel) -> dict[str, Array]:
    """The array parameters by name, in order."""
    return {a.name: a.type for a in kernel.body.args if isinstance(a.type, Array)}


def make_inputs(
    kernel: IRKernel, dims: Mapping[str, int], given: Mapping[str, str], seed: int
) -> Inputs:
    """Load the inputs that are given as files or numbers, and draw the others."""
    found = dict(dims)
    arrays: dict[str, HostArray] = {}
    scalars: dict[str, Any] = {}
    for argument in kernel.body.args:
        if isinstance(argument.type, Scalar):
            number = _number(argument.name, given.get(argument.name, "1"))
            scalars[argument.name] = held(argument.name, argument.type.dtype, number)
    known = array_parameters(kernel)
    for name, type in known.items():
        if name in given:
            arrays[name] = _from_file(name, type, given[name])
            shape = shape_of(type.dtype, arrays[name])
            for extent, size in zip(type.shape, shape, strict=False):
                if isinstance(extent, str):
                    found.setdefault(extent, size)
    named = {e for t in known.values() for e in t.shape if isinstance(e, str)}
    missing = sorted(named - set(found))
    if missing:
        example = ",".join(f"{name}=256" for name in missing)
        raise LaunchError(f"{kernel.name} needs sizes for {', '.join(missing)}: --shape {example}")
    _check_memory(known, found)
    check_packed(known, found)
    generator = np.random.default_rng(seed)
    for name, type in known.items():
        if name not in arrays and type.mode != "out":
            shape = tuple(e if isinstance(e, int) else found[e] for e in type.shape)
            arrays[name] = random_array(generator, type.dtype, shape)
    outputs = outputs_for(kernel, found)
    ordered = {name: arrays.get(name, outputs.get(name)) for name in known}
    return Inputs({n: a for n, a in ordered.items() if a is not None}, scalars, found)


def _check_memory(known: Mapping[str, Array], dims: Mapping[str, int]) -> None:
    """Refuse sizes whose arrays no memory here could hold, before it is tried."""
    shapes = ([e if isinstance(e, int) else dims[e] for e in t.shape] for t in known.values())
    needed = _WIDEST_BYTES * sum(map(prod, shapes))
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there:
        raise LaunchError(
            f"arrays of these sizes take {needed / 2**30:.3g} GiB in float64, as the reference "
            f"has them; this machine has {there / 2**30:.3g} GiB"
        )


def _number(name: str, text: str) -> int | float:
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise LaunchError(f"{name} is a number, got {text!r}") from None


def _from_file(name: str, type: Array, text: str) -> HostArray:
    path, _, member = text.partition(":")
    try:
        loaded: Any = np.load(Path(path))
    except (OSError, ValueError) as error:
        raise LaunchError(f"the input {name} cannot be read from {path}: {error}") from None
    if isinstance(loaded, np.lib.npyio.NpzFile):
        key = member or name
        if key not in loaded:
            raise LaunchError(f"{path} has no array {key}; it has {', '.join(loaded)}")
        loaded = loaded[key]
    values: HostArray = np.asarray(loaded)
    if values.dtype == storage(type.dtype) or not type.dtype.is_float:
        return values.astype(storage(type.dtype))
    return encode(type.dtype, decode(type.dtype, values), storage(type.dtype))


def random_array(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> HostArray:
    """Random elements as memory holds them."""
    if dtype.is_float:
        drawn = generator.standard_normal(shape)
        return encode(dtype, decode(dtype, drawn), storage(dtype))
    if dtype.kind == "bool":
        return generator.integers(0, 2, shape).astype(np.bool_)
    low = -8 if dtype.kind == "signed" else 0
    if dtype.is_nibble:
        return encode(dtype, generator.integers(low, low + 16, shape), storage(dtype))
    return generator.integers(low, 8, shape).astype(storage(dtype))


# --- running --------------------------------------------------------------------------------------


def copies(kernel: IRKernel, inputs: Inputs, wide: bool = False) -> dict[str, HostArray]:
    """Fresh arrays for whatever the kernel writes; inputs as they are."""
    made = outputs_for(kernel, inputs.dims, wide)
    for name, type in array_parameters(kernel).items():
        if type.mode == "inout":
            source = inputs.arrays[name]
            keep = wide and type.dtype.is_float
            made[name] = decode(type.dtype, source, wide=True) if keep else source.copy()
    return {**inputs.arrays, **made}


def written(kernel: IRKernel, arrays: Mapping[str, HostArray]) -> dict[str, HostArray]:
    """The arrays that a kernel writes."""
    return {n: arrays[n] for n, t in array_parameters(kernel).items() if t.mode != "in"}


def on_interpreter(
    kernel: IRKernel,
    inputs: Inputs,
    choice: int = 0,
    wide: bool = False,
    pinned: Sequence[tuple[str, int]] = (),
    lazy: bool = False,
    silent: bool = True,
) -> Trial:
    """Run with the ``choice``-th tile sizes, or those pinned by loop name.

    ``lazy`` takes the other end of what each ``anchor`` may be; what is not ``silent`` asserts and
    prints.
    """
    arrays = copies(kernel, inputs, wide)
    sizes = choose_sizes(kernel, inputs.dims, choice)
    sizes |= {f"${name}": size for name, size in pinned if f"${name}" in sizes}
    start = time.perf_counter()
    interpret(kernel, arrays, inputs.scalars, sizes, wide=wide, lazy=lazy, silent=silent)
    seconds = time.perf_counter() - start
    where = "the interpreter in float64" if wide else "the interpreter"
    return Trial(written(kernel, arrays), seconds, where, sizes)


def on_emulator(
    kernel: Kernel, ir: IRKernel, inputs: Inputs, target: Target, how: Emulator
) -> tuple[Trial, list[Diagnostic]]:
    """Run the emitted PTX on the emulator; what it gave, and what is wrong with it."""
    from tilec.runtime.emulated import emulate_call

    arrays = copies(ir, inputs)
    call = kernel.sort_out(views_of(kernel, arrays), inputs.scalars, target)
    where = f"the emulator, {how.order}" + (f" {how.seed}" if how.order == "random" else "")
    start = time.perf_counter()
    faults: list[Diagnostic] = []
    outputs, said = written(ir, arrays), Said()
    if any(array.size for array in outputs.values()):
        done = emulate_call(call, kernel.compile(call, target), how)
        faults, said = done.diagnostics(kernel.program.source), done.said
    return Trial(outputs, time.perf_counter() - start, where, said=said), faults


def on_cta(kernel: Kernel, ir: IRKernel, inputs: Inputs, target: Target) -> Trial:
    """Run on the interpreter of level ``cta``, as the passes leave the program there."""
    from tilec.runtime.levels import cta_call

    arrays = copies(ir, inputs)
    call = kernel.sort_out(views_of(kernel, arrays), inputs.scalars, target)
    start = time.perf_counter()
    outputs = written(ir, arrays)
    if any(array.size for array in outputs.values()):
        cta_call(kernel, call, target)
    return Trial(outputs, time.perf_counter() - start, "the interpreter of level cta")


def on_gpu(kernel: Kernel, ir: IRKernel, inputs: Inputs, limit_s: float = GPU_LIMIT_S) -> Trial:
    """Run on the GPU in a child process, and time it there."""
    outputs, seconds, where, said = supervise.run(
        gpu_child,
        (kernel.program.source.name, kernel.program.source.text),
        kernel.name,
        {name: str(value) for name, value in kernel.bindings.items()},
        kernel.schedule.as_attributes(),
        copies(ir, inputs),
        inputs.scalars,
        limit_s=limit_s,
    )
    return Trial(outputs, seconds, where, said=said)


def gpu_child(
    source: tuple[str, str],
    name: str,
    bindings: dict[str, Any],
    choices: dict[str, Any],
    arrays: dict[str, HostArray],
    scalars: dict[str, Any],
) -> tuple[dict[str, HostArray], float, str, Said]:
    """What ``on_gpu`` does in the child: outputs, seconds a launch, device, what was said."""
    from tilec.backend_ptx.module import activate, call, device_facts, synchronize
    from tilec.runtime.host import OnDevice

    program = Program(SourceFile(*source))
    kernel = getattr(program, name).using(Schedule.from_attributes(choices), **bindings)
    target = kernel.target_on(0)
    activate(0)
    views = views_of(kernel, arrays)
    there = {key: OnDevice(view, 0) for key, view in views.items()}
    sorted_out = kernel.sort_out({k: c.view for k, c in there.items()}, scalars, target)
    loaded = kernel.load(sorted_out, target, 0)
    said = loaded(sorted_out.views, sorted_out.scalars, 0) or Said()
    synchronize()
    outputs = {}
    for key, copy in there.items():
        if sorted_out.types[key].mode != "in":
            copy.bring_back()
            outputs[key] = arrays[key]
    begin, end = (call("cuEventCreate", 0) for _ in range(2))
    call("cuEventRecord", begin, 0)
    for _ in range(_TIMED_RUNS):
        loaded(sorted_out.views, sorted_out.scalars, 0)
    call("cuEventRecord", end, 0)
    synchronize()
    milliseconds = float(call("cuEventElapsedTime", begin, end))
    return outputs, milliseconds / 1e3 / _TIMED_RUNS, device_facts(0).name, said


def views_of(kernel: Kernel, arrays: Mapping[str, HostArray]) -> dict[str, ArrayView]:
    """Views of host arrays, in the order of the kernel's parameters."""
    return {p.name: arrays_of.view(arrays[p.name]) for p in kernel.parameters if p.name in arrays}


# --- comparing ------------------------------------------------------------------------------------


def compare(kernel: IRKernel, found: Trial, reference: Trial) -> list[Deviation]:
    """How far each output is from a float64 reference."""
    rows = []
    for name, type in array_parameters(kernel).items():
        if name in found.outputs:
            rows.append(deviation(name, type.dtype, found.outputs[name], reference.outputs[name]))
    return rows


def deviation(name: str, dtype: DType, found: HostArray, reference: HostArray) -> Deviation:
    """How far one output is from a float64 reference."""
    if found.size == 0:
        return Deviation(name, 0.0, 0.0, 0.0)
    if dtype.is_nibble:
        found, reference = decode(dtype, found), decode(dtype, reference)
    if not dtype.is_float:
        apart = np.max(np.abs(found.astype(np.float64) - reference.astype(np.float64)))
        return Deviation(name, float(apart), 0.0, float(np.max(np.abs(reference))))
    values, wanted = decode(dtype, found).astype(np.float64), reference.astype(np.float64)
    same = (values == wanted) | (np.isnan(values) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(values - wanted))
    apart = np.where(np.isnan(apart), np.inf, apart)
    finite = np.abs(wanted[np.isfinite(wanted)])
    scale = float(finite.max()) if finite.size else 0.0
    return Deviation(name, float(apart.max()), allowed(dtype, scale), scale)


def allowed(dtype: DType, scale: float) -> float:
    """How far results of a type may be from a reference that reaches ``scale``."""
    form = FORMATS.get(dtype.name)
    precision = form.precision if form is not None else _PRECISION[dtype.name]
    relative = _SLACK * 2.0**-precision + (_WIDE_SUMS if dtype.name == "f64" else _SUMS)
    return relative * max(scale, 2.0**-126)
