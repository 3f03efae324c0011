"""The digits that layouts are made of, their canonical spelling, and coordinates as integers.

A digit is a bit of a hardware index with the steps it makes in the tile, or a plain repeat of
more values with one step. `canonical` gives every run of digits one spelling: repeats become bits
and one odd repeat, steps that occur twice cancel, neighbouring copies are gathered.

Nothing here knows a whole layout; `linear` holds that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

AXES = "ijkl"
AXIS_BITS = 48  # room for each axis in the integer that encodes a coordinate


class LayoutError(ValueError):
    """The layout asked for is malformed."""


class LayoutRefusal(Exception):
    """A sound layout that a given instruction or method cannot serve; the text says why."""


@dataclass(frozen=True)
class Digit:
    """One digit of a hardware index: its extent and its (axis, step) moves."""

    steps: tuple[tuple[int, int], ...] = ()
    extent: int = 2

    @property
    def is_copy(self) -> bool:
        """Whether the digit moves nowhere."""
        return not self.steps

    @property
    def is_bit(self) -> bool:
        """Whether the digit combines by XOR; every other digit is added."""
        return self.extent == 2

    @property
    def axes(self) -> frozenset[int]:
        """The axes along which the digit moves."""
        return frozenset(axis for axis, _ in self.steps)

    @cached_property
    def mask(self) -> int:
        """The moves as one integer, see `encode`."""
        return sum(step << axis * AXIS_BITS for axis, step in self.steps)


@dataclass(frozen=True)
class Placed:
    """A digit with its place: the space it belongs to and what one unit of it is worth there."""

    space: str
    weight: int
    digit: Digit


Digits = tuple[Digit, ...]


def encode(coordinates: Iterable[int]) -> int:
    """Pack coordinates into one integer, a field for each axis."""
    return sum(value << axis * AXIS_BITS for axis, value in enumerate(coordinates))


def decode(mask: int, rank: int) -> tuple[int, ...]:
    """Unpack the coordinates of `encode`."""
    field = (1 << AXIS_BITS) - 1
    return tuple(mask >> axis * AXIS_BITS & field for axis in range(rank))


def canonical(space: str, digits: Iterable[Digit]) -> Digits:
    """Split repeats into bits and an odd rest; gather neighbouring copies."""
    out: list[Digit] = []
    copies = 1
    for digit in digits:
        if digit.extent == 1:
            continue
        steps = _steps(digit)
        if digit.extent < 1:
            raise LayoutError(f"a digit of {digit.extent} values in {space}")
        if not steps:
            copies *= digit.extent
            continue
        if len(steps) > 1 and digit.extent != 2:
            raise LayoutError("only a bit may move along several axes, not a repeat")
        out += _split((), 0, copies)
        copies = 1
        out += _split(steps, 1, digit.extent)
    out += _split((), 0, copies)
    if space == "lane" and not all(d.is_bit for d in out):
        raise LayoutError("the 32 lanes of a warp are bits: no repeat stands in `lane`")
    return tuple(out)


def _steps(digit: Digit) -> tuple[tuple[int, int], ...]:
    """Cancel moves that occur twice, and sort the rest."""
    left: set[tuple[int, int]] = set()
    for axis, step in digit.steps:
        if not 0 <= axis < len(AXES) or step < 1 or step & (step - 1):
            raise LayoutError(f"a step of {step} along axis {axis} is no power of two")
        left ^= {(axis, step)}
    return tuple(sorted(left))


def _split(steps: tuple[tuple[int, int], ...], growth: int, extent: int) -> list[Digit]:
    """Write a digit of any extent as bits and one odd repeat."""
    out = []
    factor = 1
    while extent % 2 == 0:
        out.append(Digit(tuple((a, s * factor) for a, s in steps)))
        extent //= 2
        factor <<= growth
    if extent > 1:
        out.append(Digit(tuple((a, s * factor) for a, s in steps), extent))
    return out
