"""A faulty program, or a faulty call of a right one, from its files, and what tilec says about it.

Idea: ``NAME.tk`` is a program and ``NAME.txt`` what its author is told. Without more the program is
compiled for sm_90. ``NAME.toml`` says otherwise: ``target``, ``bindings``, ``schedule`` (as on the
command line), ``sizes``, or a call: ``[arguments]`` by parameter name, numbers as they are and
arrays as tables of ``shape``, ``dtype`` (NumPy's name), ``strides`` and ``start`` in elements,
``fill`` (a number, or ``"count"`` for 0, 1, 2 ...), ``readonly``, ``of`` (shares the memory of that
argument) and ``on`` (where it lies: ``cuda:1``, or any other name for a tensor of a library that
has such a device). ``places`` passes arguments by place instead, ``machine`` is the GPU of a call:
its compute capability, or "none". What is not there is not passed.

Invariants: nothing needs a GPU or a CUDA driver; arrays "on" one are refused before they are read.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilec.backend_ptx import module as driver
from tilec.cli_options import read_facts, read_schedule
from tilec.compiler import compile_module, front, prepare
from tilec.diagnostics import Diagnostic, DiagnosticError
from tilec.runtime import kernel as kernels
from tilec.runtime.kernel import Program
from tilec.source import SourceFile
from tilec.targets import by_name

FOLDER = Path(__file__).parent
CLASSES = {
    "syntax": "text that has not the shape of a program",
    "names": "names that mean nothing, or something else",
    "shapes": "axes and ranks that do not fit",
    "ragged-axes": "tiles of different loops, and what may lie beyond an edge",
    "dtypes": "element types",
    "tiles-under-16": "tile sizes that no pin or offer may have",
    "carried-types": "values of a loop that change their type",
    "aliasing": "one array in two roles",
    "launch-mismatches": "arguments that do not fit the parameters",
    "devices": "arrays that lie where they cannot be used",
    "overlapping-arrays": "outputs that are read-only or share memory in part",
    "missing-constraint": "what has to be stated, and what was stated and does not hold",
    "unsupported-on-target": "what a GPU, or this version on it, does not do",
    "too-much-memory": "more shared memory or registers than there are",
    "wrong-ptx": "instructions that are not",
    "structure": "launches, functions and the modes of parameters",
}
"""The folders, and what is wrong in each."""


def all_faults() -> list[Path]:
    """The programs of all classes."""
    return sorted(FOLDER.glob("*/*.tk"))


def found_in(path: Path) -> list[Diagnostic]:
    """The errors that tilec reports for a program, or for the call that stands beside it."""
    beside = path.with_suffix(".toml")
    told: dict[str, Any] = tomllib.loads(beside.read_text()) if beside.exists() else {}
    source = SourceFile(path.name, path.read_text())
    try:
        if "arguments" in told or "places" in told:
            _call(source, told)
        else:
            _compile(source, told)
    except DiagnosticError as error:
        return list(error.diagnostics)
    return []


def _compile(source: SourceFile, told: Mapping[str, Any]) -> None:
    target = by_name(told.get("target", "90"))
    module = front(source, None, told.get("bindings", {}), target)
    facts = read_facts(module, told.get("sizes", {}), told.get("arrays", []))
    prepare(module, facts, read_schedule(told.get("schedule", [])))
    compile_module(module, target)


def _call(source: SourceFile, told: Mapping[str, Any]) -> None:
    with _machine(told.get("machine", "none")):
        (kernel,) = Program(source).kernels
        chosen = kernel.using(read_schedule(told.get("schedule", [])), **told.get("bindings", {}))
        named = _values(told.get("arguments", {}))
        places = told.get("places", [])
        given = [named.pop(p) if isinstance(p, str) else p for p in places]
        chosen(*given, **named)


@contextmanager
def _machine(capability: str) -> Iterator[None]:
    """A machine with one GPU of a compute capability, or with none."""

    def facts(ordinal: int) -> Any:
        if capability == "none":
            raise driver.CudaError("cuInit", "NO_DRIVER", "there is no CUDA driver here")
        major, minor = map(int, capability.split("."))
        return SimpleNamespace(name="This GPU", compute_capability=(major, minor))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "gpu_available", lambda: False)
        patch.setattr(driver, "device_facts", facts)
        yield


def _values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call."""
    made: dict[str, Any] = {}
    memory: dict[str, Any] = {}
    for name, told in arguments.items():
        if not isinstance(told, dict):
            made[name] = told
            continue
        shape, strides = told["shape"], told.get("strides")
        if "of" not in told:
            memory[name] = _filled(told, shape, strides)
        base = memory[told.get("of", name)]
        steps = _packed(shape) if strides is None else strides
        array = np.lib.stride_tricks.as_strided(
            base.view(told.get("dtype", base.dtype))[told.get("start", 0) :],
            shape,
            [s * base.itemsize for s in steps],
        )
        if told.get("readonly"):
            array.flags.writeable = False
        made[name] = _placed(array, told["on"]) if "on" in told else array
    return made


def _filled(told: Mapping[str, Any], shape: Sequence[int], strides: Sequence[int] | None) -> Any:
    """Memory that is large enough for an array and for those that share it."""
    steps = _packed(shape) if strides is None else strides
    last = sum((n - 1) * abs(s) for n, s in zip(shape, steps, strict=True) if n)
    count = max(last + 1, told.get("memory", 0)) + told.get("start", 0)
    fill, dtype = told.get("fill", 0), np.dtype(told.get("dtype", "float32"))
    return np.arange(count).astype(dtype) if fill == "count" else np.full(count, fill, dtype)


def _packed(shape: Sequence[int]) -> list[int]:
    steps = [1]
    for extent in reversed(shape[1:]):
        steps.append(steps[-1] * max(extent, 1))
    return steps[::-1][: len(shape)]


class _OnGpu:
    """An array that says it lies on a GPU, as cupy's and numba's do."""

    def __init__(self, array: Any, ordinal: int) -> None:
        self.dtype, self.device = array.dtype, SimpleNamespace(id=ordinal)
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}

    # Asked for on the class: only arrays have it.
    __cuda_array_interface__: Any = None


def _placed(array: Any, where: str) -> Any:
    """An array that says it lies on a device."""
    kind, _, ordinal = where.partition(":")
    if kind == "cuda":
        return _OnGpu(array, int(ordinal))
    if kind == "dlpack":
        there = {"__dlpack__": None, "__dlpack_device__": lambda self: (int(ordinal), 0)}
        return type("Array", (), {**there, "dtype": array.dtype})()
    fields = {
        "data_ptr": lambda self: 0,
        "device": type("device", (), {"type": kind, "index": 0, "__str__": lambda self: where})(),
    }
    return type("Tensor", (), {**fields, "__module__": "torch"})()
