"""One call of a kernel, sorted out: what is refused before anything runs, and the interpreter.

Nothing here compiles or launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.compiler import at_line
from tilec.diagnostics import did_you_mean
from tilec.ir.core import Module
from tilec.ir.types import Array
from tilec.runtime import arrays as arrays_of
from tilec.runtime.arrays import ArrayView
from tilec.runtime.expressions import evaluate, spell
from tilec.runtime.scalars import key as scalar_key
from tilec.runtime.specialise import LaunchError
from tilec.source import SourceFile

_NEAR = 129
"""How far from a size another one is looked for that meets a requirement."""


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
            raise LaunchError(
                f"{signature} has no parameter `{name}`",
                code="wrong-arguments",
                help=did_you_mean(name, names) or f"the parameters are {', '.join(names)}",
            )
    needed = [p.name for p in parameters if p.mode != "out"]
    fits = [
        places[: len(args)]
        for places in (names, needed)
        if len(args) <= len(places)
        and not set(places[: len(args)]) & set(named)
        and set(needed) <= {*places[: len(args)], *named}
    ]
    if not fits:
        raise LaunchError(
            _misfit(signature, names, needed, len(args), named),
            code="wrong-arguments",
            help=f"pass {', '.join(needed)}; outputs may be left out",
        )
    given = dict(zip(fits[0], args, strict=True)) | dict(named)
    for p in parameters:
        value = given.get(p.name)
        if value is None:
            if p.mode != "out":
                raise LaunchError(
                    f"{p.name} of {signature} must be given, got None",
                    code="wrong-arguments",
                    at={p.name: "only `out` parameters may be left out"},
                    help=f"pass {'a number' if p.dims is None else 'an array'} for {p.name}",
                )
        elif (p.dims is not None) != arrays_of.is_array(value):
            kind = "a number" if p.dims is None else "an array"
            raise LaunchError(
                f"{p.name} of {signature} is {kind}, got {_shown(value)}",
                code="wrong-arguments",
                at={p.name: f"declared as {kind}"},
                help=_instead(p, value),
            )
    return {name: given[name] for name in names if given.get(name) is not None}


def _shown(value: Any) -> str:
    """An argument in few words."""
    if arrays_of.is_array(value):
        return f"an array of shape {tuple(getattr(value, 'shape', ()))}"
    return f"{value!r:.60}"


def _instead(parameter: Parameter, value: Any) -> str:
    """What to pass for a parameter that got a value of the other sort."""
    if parameter.dims is None:
        return f"pass one number, such as `{parameter.name}.item()` of an array with one element"
    if isinstance(value, (list, tuple)):
        return f"make an array of it: `numpy.array({parameter.name})`"
    return "pass an array of numpy, torch, cupy or jax"


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


def interpret_call(call: Call, name: str, *, silent: bool = False) -> None:
    """Run a call on arrays in host memory with the interpreter; ``silent`` asserts nothing."""
    from tilec.interp.interpret import interpret
    from tilec.interp.looking import AssertError
    from tilec.interp.memory import InterpretError
    from tilec.runtime.checks import at_assertion
    from tilec.runtime.host import host_array

    held = {key: host_array(view) for key, view in call.views.items()}
    try:
        interpret(call.module.kernel(name), held, call.scalars, silent=silent)
    except AssertError as error:
        raise at_assertion(error, call.module) from None
    except InterpretError as error:
        labels = at_line(call.module, error.line, "while running this")
        raise LaunchError(error.message, code="run-fails", labels=labels, help=error.help) from None


def overlaps_itself(view: ArrayView) -> bool:
    """Whether two elements of a view may share memory.

    Strides that each step over all that smaller strides reach cannot; others are refused.
    """
    view, reach = view.in_bytes, 0
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
                f"for shape {view.shape})",
                code="arrays-overlap",
                at={name: f"{call.types[name].mode} parameters need a place for each element"},
                help=f"pass `{name}.copy()`, or an array that is not a broadcast or sliding view",
            )
        for other, seen in call.views.items():
            if other != name and arrays_of.may_overlap(view, seen):
                raise LaunchError(
                    f"{name} is written and overlaps {other} in memory",
                    code="arrays-overlap",
                    at={name: "written here", other: "shares memory with it"},
                    help=f"pass a copy of {other if call.types[other].mode == 'in' else name}"
                    + (
                        "; to change an array in place declare one `inout` parameter"
                        if arrays_of.same_elements(view, seen)
                        else ""
                    ),
                )


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
                f"{name} requires {spell(condition, names)}; here {sizes}",
                code="require-fails",
                labels=at_line(call.module, line, "required here"),
                help=_smallest_change(condition, names, shapes, call.scalars),
            )


def _smallest_change(
    condition: Any,
    names: Mapping[tuple[str, int], str],
    shapes: Mapping[str, tuple[int, ...]],
    scalars: Mapping[str, Any],
) -> str:
    """The nearest size that meets a condition, if changing one size alone can."""
    extents = {names[leaf]: leaf for leaf in _extents_in(condition)}
    for dim in sorted(extents):
        array, axis = extents[dim]
        here = shapes[array][axis]
        for distance in range(1, _NEAR):
            for size in (here - distance, here + distance):
                if size > 0 and _holds(condition, dim, size, names, shapes, scalars):
                    return f"the nearest {dim} that fits is {size}"
    return "pass sizes and numbers for which it holds"


def _extents_in(condition: Any) -> list[tuple[str, int]]:
    if not isinstance(condition, tuple):
        return []
    if condition[0] == "extent":
        return [(condition[1], condition[2])]
    return [leaf for part in condition[1:] for leaf in _extents_in(part)]


def _holds(
    condition: Any,
    dim: str,
    size: int,
    names: Mapping[tuple[str, int], str],
    shapes: Mapping[str, tuple[int, ...]],
    scalars: Mapping[str, Any],
) -> bool:
    """Whether a condition holds when every axis called ``dim`` has another size."""
    changed = {
        key: tuple(
            size if names.get((key, axis)) == dim else extent for axis, extent in enumerate(shape)
        )
        for key, shape in shapes.items()
    }
    try:
        return bool(evaluate(condition, changed, scalars))
    except ZeroDivisionError:
        return False
