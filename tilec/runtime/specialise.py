"""From actual arrays to what the compiler may assume, in few enough classes to be worth caching.

Shapes and strides are arguments, not types; still the best code depends on which axis is
contiguous, on alignment, on which sizes are multiples of tile sizes, and on their magnitude. Each
of these is rounded to a class, so that calls of one class share one compilation.

An axis with at most one element is never stepped along, so its stride means nothing: it is replaced
by whatever helps. Nothing here knows a kernel or touches a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from tilec.diagnostics import Diagnostic, DiagnosticError, Label
from tilec.ir.facts import ArrayFacts, Facts
from tilec.ir.types import Array
from tilec.runtime.arrays import NIBBLES, ArrayView
from tilec.source import Span

WIDEST_ALIGNMENT = 16
"""Bytes: no copy instruction asks for more."""
MULTIPLES = tuple(1 << bit for bit in range(16, 2, -1))
"""Divisors of a size that are worth knowing: whole tiles, and whole 16-byte vectors."""
SMALLEST_TILE = 16
CLASSES_PER_OCTAVE = 64
"""Size classes between a power of two and the next: fine enough to count waves of tiles."""


class LaunchError(DiagnosticError, ValueError):
    """The arguments do not fit the kernel; the message names them.

    ``at`` says of parameters what was found there, for whoever knows where they are declared.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "launch",
        at: Mapping[str, str] | None = None,
        labels: Sequence[Label] = (),
        notes: Sequence[str] = (),
        help: str = "",
    ) -> None:
        """One finding, with the code of its section in ``docs/errors.md``."""
        super().__init__(Diagnostic(code, message, labels, notes, help))
        self.at = dict(at or {})

    def shown_on(self, declared: Mapping[str, Span], kernel: Span) -> LaunchError:
        """The same with what was found of each parameter on the place that declares it."""
        (found,) = self.diagnostics
        labels = [(declared[name], text) for name, text in self.at.items() if name in declared]
        return type(self)(
            found.message,
            code=found.code,
            labels=[*labels, *found.labels] or [(kernel, "called")],
            notes=found.notes,
            help=found.help,
        )


def unit_axis(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The contiguous axis: the last long one of stride 1, else the last short one, else -1."""
    long = [a for a, n in enumerate(shape) if n > 1]
    found = [a for a in long if strides[a] == 1]
    if found:
        return found[-1]
    short = [a for a, n in enumerate(shape) if n <= 1]
    return short[-1] if short else -1


def effective_strides(view: ArrayView) -> tuple[int, ...]:
    """Strides in elements, with those of axes that are never stepped along made harmless."""
    unit = unit_axis(view.shape, view.strides)
    neutral = 8 * WIDEST_ALIGNMENT // view.element_bits
    return tuple(
        stride if extent > 1 else 1 if axis == unit else neutral
        for axis, (extent, stride) in enumerate(zip(view.shape, view.strides, strict=True))
    )


def array_facts(view: ArrayView) -> ArrayFacts:
    """The promise that an array keeps; arrays without elements promise nothing."""
    if view.size == 0 and view.dtype in NIBBLES:
        return ArrayFacts(len(view.shape) - 1, 1)
    if view.size == 0:
        return ArrayFacts(-1, view.element_bytes)
    strides = effective_strides(view)
    unit = unit_axis(view.shape, view.strides)
    others = [s * view.element_bits // 8 for axis, s in enumerate(strides) if axis != unit]
    alignment = gcd(view.address, WIDEST_ALIGNMENT, *others)
    if any(step < 0 for step in others):
        # A tensor map takes no negative stride: less than 16 bytes says that there is to be none.
        alignment = min(alignment, WIDEST_ALIGNMENT // 2)
    repeats = tuple(axis for axis, stride in enumerate(strides) if stride == 0)
    return ArrayFacts(unit, max(alignment, 1), repeats)


def size_class(extent: int) -> int:
    """The upper bound that stands for an extent, at least 1.

    A power of two up to ``SMALLEST_TILE``, then multiples of it, and for large ones at most a
    sixty-fourth above.
    """
    if extent <= SMALLEST_TILE:
        return 1 << max(extent - 1, 0).bit_length()
    octave = 1 << extent.bit_length() - 1
    step = max(SMALLEST_TILE, octave // CLASSES_PER_OCTAVE)
    return -(-extent // step) * step


def multiple_class(extent: int) -> int:
    """The greatest of ``MULTIPLES`` that divides an extent, or 1."""
    return next((m for m in MULTIPLES if extent % m == 0), 1)


def facts_for(views: Mapping[str, ArrayView], dims: Mapping[str, int]) -> Facts:
    """What a compilation for these arrays may assume."""
    return Facts(
        tuple((name, array_facts(view)) for name, view in views.items()),
        tuple((dim, size_class(extent)) for dim, extent in dims.items()),
        tuple(
            (dim, multiple_class(extent))
            for dim, extent in dims.items()
            if multiple_class(extent) > 1
        ),
    )


# --- dimensions -----------------------------------------------------------------------------------


def bind_dims(types: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The dimension names of a call; refuses shapes that do not fit or disagree."""
    dims: dict[str, int] = {}
    origin: dict[str, str] = {}
    for name, shape in shapes.items():
        wanted = types[name].shape
        if len(shape) != len(wanted):
            raise LaunchError(
                f"{name} has {len(shape)} axes (shape {shape}), "
                f"{name}[{', '.join(map(str, wanted))}] has {len(wanted)}",
                code="shapes-disagree",
                at={name: f"the array has shape {shape}"},
                help=_other_rank(shape, wanted),
            )
        for axis, (extent, found) in enumerate(zip(wanted, shape, strict=True)):
            if found >= 1 << 31:
                raise LaunchError(
                    f"axis {axis} of {name} has {found} elements, the most are 2^31 - 1",
                    code="shapes-disagree",
                    at={name: f"the array has shape {shape}"},
                    help="pass it in parts, or with this axis as two",
                )
            if isinstance(extent, int):
                if extent != found:
                    raise LaunchError(
                        f"axis {axis} of {name} has {found} elements (shape {shape}), "
                        f"the kernel is compiled for {extent}",
                        code="shapes-disagree",
                        at={name: f"the array has shape {shape}"},
                        notes=_packing(types[name]),
                        help=f"pass an array of which axis {axis} has {extent} elements"
                        + (", such as its transposed view" if tuple(wanted) == shape[::-1] else ""),
                    )
            elif dims.setdefault(extent, found) != found:
                other = origin[extent]
                raise LaunchError(
                    f"{extent} is {dims[extent]} in {other} (shape {shapes[other]}) "
                    f"and {found} in {name} (shape {shape})",
                    code="shapes-disagree",
                    at={
                        name: f"here {extent} is {found}: the array has shape {shape}",
                        other: f"here {extent} is {dims[extent]}: the array has shape "
                        f"{shapes[other]}",
                    },
                    notes=_packing(types[name]) or _packing(types[other]),
                    help=_one_size(dims, wanted, extent, name, shape),
                )
            else:
                origin.setdefault(extent, name)
    return dims


def check_packed(types: Mapping[str, Array], dims: Mapping[str, int]) -> None:
    """Refuse sizes that leave half a byte at the end of each row of an array."""
    for name, type in types.items():
        last = type.shape[-1] if type.shape else 0
        extent = last if isinstance(last, int) else dims.get(last, 0)
        if type.dtype.is_nibble and extent % 2:
            raise LaunchError(
                f"{last} is {extent}, and {name} holds two {type.dtype} a byte along it",
                code="packed-axis",
                at={name: f"its last axis would have {extent} elements"},
                help=f"the nearest {last} that fits are {extent - 1} and {extent + 1}",
            )


def _packing(type: Array) -> tuple[str, ...]:
    """What is said of an array of bytes that stands for one of smaller elements."""
    if not type.dtype.is_nibble:
        return ()
    return (f"each byte of the array is two elements of {type.dtype} along the last axis",)


def _other_rank(shape: tuple[int, ...], wanted: Sequence[int | str]) -> str:
    """What to do about an array with too many or too few axes."""
    if len(shape) < len(wanted):
        return "insert the missing axes with `[None]`, or `.reshape` the array"
    return "select of the axes that are too many with a subscript, or `.reshape` the array"


def _one_size(
    dims: Mapping[str, int],
    wanted: Sequence[int | str],
    extent: str,
    name: str,
    shape: tuple[int, ...],
) -> str:
    """What to do about two sizes of one dimension: turning the array round may settle it."""
    turned = zip(wanted, shape[::-1], strict=True)
    if len(shape) == 2 and all(isinstance(w, str) and dims.get(w, n) == n for w, n in turned):
        return f"`{name}.T` has the right shape"
    return f"pass arrays with one size for {extent}, or declare another name for one of the axes"
