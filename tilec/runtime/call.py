"""One call of a kernel, sorted out: what is refused before anything runs, and the interpreter.

Nothing here compiles or launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.diagnostics import did_you_mean
from tilec.ir.core import Module
from tilec.ir.types import Array
from tilec.runtime import arrays as arrays_of
from tilec.runtime.arrays import ArrayView
from tilec.runtime.expressions import evaluate, spell
from tilec.runtime.scalars import key as scalar_key
from tilec.runtime.specialise import LaunchError
from tilec.source import SourceFile


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter as the source declares it; ``dims`` is None for a scalar."""

    name: str
    mode: str
    type_name: str
    dims: tuple[Any, ...] | None


@dataclass
class Call:
    """The arguments of one call, sorted out."""

    types: dict[str, Array]
    views: dict[str, ArrayView]
    scalars: dict[str, Any]
    dims: dict[str, int]
    module: Module


def quick_key(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """All that matters of a call, read off the arrays at the least cost; None for other callers.

    A repeated call with the same tensors (or new ones at the same places) finds its launch by this.
    """
    key: list[Any] = []
    for arg in args:
        kind = type(arg)
        if kind.__module__ == "torch":
            key += (kind, arg.data_ptr(), arg.shape, arg.stride(), arg.dtype, arg.device)
        elif kind.__module__.startswith("cupy"):
            key += (kind, arg.data.ptr, arg.shape, arg.strides, arg.dtype, arg.device.id)
        elif kind in (int, float, bool):
            key += scalar_key(arg)
        else:
            return None
    return tuple(key)


def match(
    signature: str, parameters: Sequence[Parameter], args: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by parameter name, in order; outputs may be left out, or be None.

    Arguments by place fill the parameters, or the parameters that are not outputs, from the first.
    """
    names = [p.name for p in parameters]
    for name in named:
        if name not in names:
            hint = did_you_mean(name, names)
            raise LaunchError(f"{signature} has no parameter `{name}`; {hint}".rstrip("; "))
    needed = [p.name for p in parameters if p.mode != "out"]
    fits = [
        places[: len(args)]
        for places in (names, needed)
        if len(args) <= len(places)
        and not set(places[: len(args)]) & set(named)
        and set(needed) <= {*places[: len(args)], *named}
    ]
    if not fits:
        raise LaunchError(_misfit(signature, names, needed, len(args), named))
    given = dict(zip(fits[0], args, strict=True)) | dict(named)
    for p in parameters:
        value = given.get(p.name)
        if value is None:
            if p.mode != "out":
                raise LaunchError(f"{p.name} of {signature} must be given, got None")
        elif (p.dims is not None) != arrays_of.is_array(value):
            kind = "a number" if p.dims is None else "an array"
            raise LaunchError(f"{p.name} of {signature} is {kind}, got {value!r:.60}")
    return {name: given[name] for name in names if given.get(name) is not None}


def _misfit(
    signature: str, names: list[str], needed: list[str], count: int, named: Mapping[str, Any]
) -> str:
    """Why so many arguments by place do not go with those by name."""
    twice = [name for name in needed[:count] if name in named]
    if twice and count <= len(names):
        return f"{twice[0]} of {signature} is given twice, by place and by name"
    counts = sorted({len(set(places) - set(named)) for places in (needed, names)})
    wanted = " or ".join(map(str, counts))
    return f"{signature} takes {wanted} arguments here, got {count}"


def interpret_call(call: Call, name: str) -> None:
    """Run a call on arrays in host memory with the interpreter."""
    from tilec.interp.interpret import interpret
    from tilec.interp.memory import InterpretError
    from tilec.runtime.host import host_array

    held = {key: host_array(view) for key, view in call.views.items()}
    try:
        interpret(call.module.kernel(name), held, call.scalars)
    except InterpretError as error:
        raise LaunchError(str(error)) from None


def overlaps_itself(view: ArrayView) -> bool:
    """Whether two elements of a view may share memory.

    Strides that each step over all that smaller strides reach cannot; others are refused.
    """
    reach = 0
    steps = sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1)
    for step, extent in steps:
        if step <= reach:
            return view.size > 0
        reach += step * (extent - 1)
    return False


def check_overlap(call: Call) -> None:
    """Refuse a written array that shares memory with itself or any other argument."""
    for name, view in call.views.items():
        if call.types[name].mode == "in":
            continue
        if overlaps_itself(view):
            raise LaunchError(
                f"{name} is written, and its elements overlap (strides {view.strides} "
                f"for shape {view.shape})"
            )
        for other, seen in call.views.items():
            if other != name and arrays_of.may_overlap(view, seen):
                raise LaunchError(f"{name} is written and overlaps {other} in memory")


def check_requirements(source: SourceFile, call: Call, name: str) -> None:
    """Refuse a launch that breaks a ``require``, naming it."""
    from tilec.passes.lift_requirements import requirements_of

    shapes = {key: view.shape for key, view in call.views.items()}
    names = {
        (key, axis): str(extent)
        for key, type in call.types.items()
        for axis, extent in enumerate(type.shape)
    }
    for line, condition in requirements_of(call.module.kernel(name)):
        try:
            holds = evaluate(condition, shapes, call.scalars)
        except ZeroDivisionError:  # nothing can be a multiple of 0, or a part of it
            holds = False
        if not holds:
            sizes = ", ".join(f"{k} = {v}" for k, v in {**call.dims, **call.scalars}.items())
            raise LaunchError(
                f"{source.name}:{line}: {name} requires {spell(condition, names)}; here {sizes}"
            )
