"""What the options of the command line mean: pairs, sizes, promises, schedules, targets, files.

Invariant: a value that cannot be meant is refused here, by name, before anything is compiled or
run: sizes and axes that a kernel has not, numbers outside their range, a name given twice, a file
in a folder that does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from tilec.diagnostics import did_you_mean
from tilec.ir.core import Kernel, Module
from tilec.ir.facts import ArrayFacts, Facts, Schedule
from tilec.ir.types import Array
from tilec.targets import by_name
from tilec.targets.base import Target

_MOST = (1 << 31) - 1
"""The most elements of an axis."""


def check_folder(file: Path | None, made: Path | None = None) -> None:
    """Refuse a file to be written in a folder that is not there; ``made`` is one that will be."""
    if file is None or (made is not None and file.parent.resolve() == made.resolve()):
        return
    if not file.parent.is_dir():
        raise click.UsageError(f"there is no folder {file.parent} to write {file.name} to")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise click.UsageError(f"{file} cannot be written")


def pairs(texts: Sequence[str], what: str) -> dict[str, str]:
    """``a=1,b=2`` texts as one dictionary."""
    found: dict[str, str] = {}
    for text in texts:
        for item in filter(None, text.split(",")):
            name, equals, value = (part.strip() for part in item.partition("="))
            if not equals or not name or not value:
                raise click.UsageError(f"{what} is written NAME=VALUE, got `{item}`")
            if found.setdefault(name, value) != value:
                raise click.UsageError(f"{name} is given twice: {found[name]} and {value}")
    return found


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise click.UsageError(f"{name} is a whole number, got `{text}`") from None


def read_schedule(texts: Sequence[str]) -> Schedule:
    """``stages=3,tiles.i=128,registers=24:240,persistent=true`` as a schedule."""
    kinds = {item.name: str(item.type) for item in fields(Schedule)}
    made: dict[str, Any] = {}
    for key, text in pairs(texts, "a choice").items():
        name, _, of = key.partition(".")
        if name not in kinds or (("tuple[tuple" in kinds[name]) != bool(of)):
            shown = [f"{n}.NAME" if "tuple[tuple" in k else n for n, k in kinds.items()]
            hint = did_you_mean(name, kinds) or f"there are {', '.join(shown)}"
            raise click.UsageError(f"a schedule has no `{key}`; {hint}")
        if of:
            made[name] = (*made.get(name, ()), (of, _whole(key, text)))
        elif "bool" in kinds[name]:
            if text not in ("true", "false"):
                raise click.UsageError(f"{key} is true or false, got `{text}`")
            made[name] = text == "true"
        elif "tuple" in kinds[name]:
            made[name] = tuple(_whole(key, part) for part in text.split(":"))
        else:
            made[name] = _whole(key, text)
    return Schedule(**made)


def read_sizes(texts: Sequence[str]) -> dict[str, int]:
    """``M=200,N=136`` as sizes."""
    sizes = {name: _whole(name, text) for name, text in pairs(texts, "a size").items()}
    for name, size in sizes.items():
        if not 0 <= size <= _MOST:
            raise click.UsageError(f"{name} is a size, from 0 to {_MOST}, got {size}")
    return sizes


def read_facts(module: Module, sizes: dict[str, int], arrays: Sequence[str]) -> Facts | None:
    """Promises from the command line, on top of the defaults."""
    from tilec.compiler import default_facts
    from tilec.runtime.specialise import multiple_class, size_class

    if not sizes and not arrays:
        return None
    kernel = module.kernels[0]
    ranks = {a.name: len(a.type.shape) for a in kernel.body.args if isinstance(a.type, Array)}
    _known(kernel, "size", sizes, _dims(kernel))
    assumed = default_facts(kernel)
    promised, extents = dict(assumed.arrays), dict(assumed.extents)
    extents.update((name, size_class(size)) for name, size in sizes.items())
    given = pairs(arrays, "an array")
    _known(kernel, "array", given, ranks)
    for name, text in given.items():
        promised[name] = _array_facts(name, text, ranks[name])
    return Facts(
        tuple(promised.items()),
        tuple(extents.items()),
        tuple((n, multiple_class(s)) for n, s in sizes.items() if multiple_class(s) > 1),
    )


def _dims(kernel: Kernel) -> list[str]:
    """Names of the sizes that a launch decides."""
    types = [a.type for a in kernel.body.args if isinstance(a.type, Array)]
    return list(dict.fromkeys(e for t in types for e in t.shape if isinstance(e, str)))


def _known(kernel: Kernel, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a name that the kernel has not."""
    there = list(known)
    for name in names:
        if name not in there:
            hint = did_you_mean(name, there) or (
                f"there are {', '.join(there)}" if there else "there is none"
            )
            raise click.UsageError(f"{kernel.name} has no {what} `{name}`; {hint}")


def _array_facts(name: str, text: str, rank: int) -> ArrayFacts:
    """``AXIS[:ALIGNMENT]`` of an array."""
    first, _, last = text.partition(":")
    axis, alignment = _whole(name, first), _whole(name, last or "16")
    if not -1 <= axis < rank:
        axes = f"its axes are 0 to {rank - 1}" if rank > 1 else "its only axis is 0"
        raise click.UsageError(f"{name} has no axis {axis}; {axes}, and -1 says none")
    if alignment < 1 or alignment & (alignment - 1):
        raise click.UsageError(f"the alignment of {name} is a power of two, got {alignment}")
    return ArrayFacts(axis, alignment)


def read_target(name: str) -> Target:
    """A target by any of its names."""
    try:
        return by_name(name)
    except KeyError as error:
        raise click.UsageError(str(error.args[0])) from None
