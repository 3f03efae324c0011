"""What the parameters of a launch hold, before anybody packs them.

The kernel lists its parameters as ``(pointer, a)``, ``(extent, a, axis)``, ``(stride, a, axis)`` in
elements, ``(scalar, name)`` and ``(map, a, axes, box, swizzle_bytes)`` with axes innermost first.
A GPU and the emulator take the values from here, so that one cannot be right where the other is
not.

Never: touches a GPU, or memory of the arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilec.compiler import Compiled, Entry
from tilec.runtime.arrays import ArrayView
from tilec.runtime.expressions import evaluate
from tilec.runtime.scalars import scalar_bits
from tilec.runtime.specialise import LaunchError, effective_strides

_MOST_CTAS = (1 << 31) - 1


@dataclass(frozen=True)
class Pointer:
    """The address of an array's first element."""

    array: str


@dataclass(frozen=True)
class Number:
    """A number as 8 bytes, of which a parameter takes as many as it has."""

    bits: bytes


@dataclass(frozen=True)
class MapOf:
    """A tensor map on an array; axes innermost first, strides in bytes without the innermost."""

    array: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


Value = Pointer | Number | MapOf


def launches(
    compiled: Compiled, views: Mapping[str, ArrayView], scalars: Mapping[str, Any]
) -> Iterator[tuple[Entry, int]]:
    """The launches of a call in order with their numbers of CTAs, without those that have none."""
    shapes = {name: view.shape for name, view in views.items()}
    for entry in compiled.launches:
        count = int(evaluate(entry.grid, shapes, scalars))
        if count <= 0:
            continue
        if count > _MOST_CTAS:
            raise LaunchError(
                f"{entry.name} would need {count} CTAs; a grid has at most 2^31 - 1",
                code="grid-too-large",
                help="pin larger tiles, or pass the arrays in parts",
            )
        yield entry, count


def value_of(
    compiled: Compiled,
    parameter: tuple[Any, ...],
    views: Mapping[str, ArrayView],
    scalars: Mapping[str, Any],
) -> Value:
    """What one parameter holds."""
    what, name, *rest = parameter
    if what == "scalar":
        return Number(scalar_bits(dict(compiled.scalars)[name].dtype, scalars[name]))
    view = views[name]
    if what == "pointer":
        return Pointer(name)
    if what == "extent":
        return Number(struct.pack("<q", view.shape[rest[0]]))
    steps = effective_strides(view)
    if what == "stride":
        return Number(struct.pack("<q", steps[rest[0]]))
    if what == "map":
        axes, box, swizzle = rest
        return MapOf(
            name,
            tuple(max(view.shape[a], 1) for a in axes),  # see ``Block.has_empty``
            tuple(steps[a] * view.element_bytes for a in axes[1:]),
            tuple(box),
            swizzle,
        )
    raise LaunchError(f"{compiled.name} has a parameter of unknown kind {what}")
