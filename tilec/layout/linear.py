"""A layout says which element of a tile a piece of hardware holds.

Each bit of a hardware index names the step that it makes in the tile, and steps combine by XOR.
The accumulator of a 64 x 128 product:

    (reg: j1 i8 j8 j16 j32 j64 | lane: j2 j4 i1 i2 i4 | warp: i16 i32)

reads: bit 0 of the register number moves by one column, bit 1 by eight rows, ..., bit 0 of the
lane by two columns. Register 6 = 0b110 of lane 13 = 0b01101 in warp 2 = 0b10 is therefore row
8 + 1 + 2 + 32 = 43 and column 8 + 2 = 10. Axes are i, j, k, l; `i1^j8` moves along two axes at
once (a swizzle); `_` does not move (a copy of the same element). Extents that are not powers of
two stand outside the XOR: `j8*10` is one digit of ten values, each eight columns further, added.

Canonical form, so that equal maps compare equal: every repeat is split into bits and one odd
repeat (`j8*10` is stored as `j8 j16*5` and printed merged), copies are gathered the same way,
spaces have a fixed order, and spaces of size one are left out. Along an axis the digits never
carry into each other: a repeat's step is larger than everything below it can reach, and no other
digit lies within its reach. An axis of extent one that would otherwise be unseen is written `j1*1`.

Pure integers. A layout never knows element types, addresses or instructions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tilec.layout.bits import Basis
from tilec.layout.digits import (
    AXES,
    Digit,
    Digits,
    LayoutError,
    LayoutRefusal,
    Placed,
    canonical,
    decode,
)
from tilec.layout.inverse import Inverse
from tilec.layout.text import format_space, parse_layout

__all__ = ["AXES", "Digit", "Inverse", "Layout", "LayoutError", "LayoutRefusal", "Placed"]

SPACE_ORDER = ("reg", "lane", "warp", "group", "off")


@dataclass(frozen=True)
class Layout:
    """An immutable map from named hardware indices to tile coordinates; build it with `make`."""

    digits: tuple[tuple[str, Digits], ...]
    rank: int

    # -- making and printing -------------------------------------------------------------------

    @staticmethod
    def make(spaces: Mapping[str, Iterable[Digit]], rank: int | None = None) -> Layout:
        """Build the canonical layout from the digits of each space, lowest digit first."""
        given = {name: tuple(digits) for name, digits in spaces.items()}
        made = {name: canonical(name, digits) for name, digits in given.items()}
        order = sorted((name for name in made if made[name]), key=_space_key)
        seen = max((axis + 1 for name in order for d in made[name] for axis in d.axes), default=0)
        if rank is None:
            rank = max(
                (axis + 1 for digits in given.values() for d in digits for axis in d.axes),
                default=0,
            )
        if not seen <= rank <= len(AXES):
            raise LayoutError(f"rank {rank} does not hold the axes used, {seen}")
        layout = Layout(tuple((name, made[name]) for name in order), rank)
        layout._check_places()
        return layout

    @staticmethod
    def parse(text: str) -> Layout:
        """Read the text form; raises LayoutError with the piece that is wrong."""
        try:
            spaces = parse_layout(text)
        except ValueError as error:
            raise LayoutError(str(error)) from None
        return Layout.make(
            {
                name: [Digit(steps, extent) for steps, extent in digits]
                for name, digits in spaces.items()
            }
        )

    def __str__(self) -> str:
        """Return the canonical text form, which `parse` reads back."""
        parts = {
            name: format_space([(d.steps, d.extent) for d in digits])
            for name, digits in self.digits
        }
        if self.rank > max((axis + 1 for p in self.placed for axis in p.digit.axes), default=0):
            name = next(reversed(parts), "reg")
            parts[name] = (parts.get(name, "") + f" {AXES[self.rank - 1]}1*1").strip()
        return "(" + " | ".join(f"{name}: {text}" for name, text in parts.items()) + ")"

    # -- reading off ---------------------------------------------------------------------------

    @cached_property
    def spaces(self) -> dict[str, Digits]:
        """The digits of each space, lowest first; spaces of size one are absent."""
        return dict(self.digits)

    @cached_property
    def placed(self) -> tuple[Placed, ...]:
        """All digits with their weights, in the order of spaces, low to high."""
        out = []
        for name, digits in self.digits:
            weight = 1
            for digit in digits:
                out.append(Placed(name, weight, digit))
                weight *= digit.extent
        return tuple(out)

    def size(self, space: str) -> int:
        """Return how many indices the space has (registers of a thread for "reg")."""
        size = 1
        for digit in self.spaces.get(space, ()):
            size *= digit.extent
        return size

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The extent of the tile along each axis."""
        return tuple(
            1 + sum(step * (extent - 1) for step, extent in places) for places in self._places
        )

    def __call__(self, **index: int) -> tuple[int, ...]:
        """Return the coordinates at a hardware index; spaces not given are at 0."""
        xor = added = 0
        left = dict(index)
        for name, digits in self.digits:
            rest = left.pop(name, 0)
            if not 0 <= rest < self.size(name):
                raise LayoutError(f"{name}={rest} is outside 0..{self.size(name) - 1}")
            for digit in digits:
                rest, value = divmod(rest, digit.extent)
                if digit.is_bit:
                    xor ^= digit.mask * value
                else:
                    added += digit.mask * value
        for name, value in left.items():
            if value != 0:
                raise LayoutError(f"{name}={value}, but the layout has no space {name}")
        return decode(xor + added, self.rank)

    def indices(self) -> Iterator[dict[str, int]]:
        """Iterate over every hardware index, registers fastest."""
        names = [name for name, _ in self.digits]
        sizes = [range(self.size(name)) for name in reversed(names)]
        for values in itertools.product(*sizes):
            yield dict(zip(names, reversed(values), strict=True))

    # -- the way back --------------------------------------------------------------------------

    def inverse(self) -> Inverse:
        """Return the map from coordinates to the lowest hardware index that holds them."""
        return self._inverse

    def owners(self, *coordinates: int) -> tuple[dict[str, int], ...]:
        """Return every hardware index that holds the element, lowest first."""
        return self.inverse().owners(*coordinates)

    @cached_property
    def is_injective(self) -> bool:
        """Whether no element is held twice."""
        return not self.inverse().basis.kernel and not any(
            p.digit.is_copy and not p.digit.is_bit for p in self.placed
        )

    def copies(self, space: str) -> int:
        """Return how many indices of one space hold the same element, all else fixed."""
        basis = Basis()
        copies = 1
        for digit in self.spaces.get(space, ()):
            if digit.is_bit:
                copies *= 1 if basis.insert(digit.mask, 0) else 2
            elif digit.is_copy:
                copies *= digit.extent
        return copies

    # -- other layouts from this one -----------------------------------------------------------

    def drop(self, axis: int) -> Layout:
        """Return the layout of a vector along the other axes: moves along `axis` become copies."""
        self._need_axis(axis)

        def without(digit: Digit) -> Digit:
            kept = tuple((a - (a > axis), step) for a, step in digit.steps if a != axis)
            return Digit(kept, digit.extent)

        return Layout.make(
            {name: map(without, digits) for name, digits in self.digits}, self.rank - 1
        )

    def insert(self, axis: int) -> Layout:
        """Return the layout with a new axis of extent one at the position."""

        def moved(digit: Digit) -> Digit:
            return Digit(tuple((a + (a >= axis), s) for a, s in digit.steps), digit.extent)

        return Layout.make({n: map(moved, d) for n, d in self.digits}, self.rank + 1)

    def permute(self, *axes: int) -> Layout:
        """Return the layout of the transposed tile: new axis n is old axis axes[n]."""
        if sorted(axes) != list(range(self.rank)):
            raise LayoutError(f"{axes} is no permutation of {self.rank} axes")

        def moved(digit: Digit) -> Digit:
            return Digit(tuple((axes.index(a), s) for a, s in digit.steps), digit.extent)

        return Layout.make({n: map(moved, d) for n, d in self.digits}, self.rank)

    def transpose(self) -> Layout:
        """Return the layout of the tile with its last two axes exchanged."""
        if self.rank < 2:
            raise LayoutError("a tile of rank below 2 has no transpose")
        axes = list(range(self.rank))
        axes[-1], axes[-2] = axes[-2], axes[-1]
        return self.permute(*axes)

    def squeeze(self, space: str) -> Layout:
        """Return the layout without the copies that one space holds."""
        return Layout.make(
            {
                name: [d for d in digits if name != space or not d.is_copy]
                for name, digits in self.digits
            },
            self.rank,
        )

    def repeat(self, space: str, axis: int, count: int) -> Layout:
        """Return the layout of `count` such tiles in a row along an axis, numbered by a space."""
        self._need_axis(axis)
        spaces = {name: list(digits) for name, digits in self.digits}
        spaces.setdefault(space, []).append(Digit(((axis, self.shape[axis]),), count))
        return Layout.make(spaces, self.rank)

    def keep_lanes(self, axis: int) -> Layout:
        """Return the layout after each thread has reduced its own registers along an axis.

        The register digits along the axis go; what lanes and warps still hold of the axis is
        renumbered densely, so that the axis has the extent that is left to reduce.
        """
        self._need_axis(axis)
        kept: dict[str, list[Digit]] = {}
        for name, digits in self.digits:
            for digit in digits:
                if name == "reg" and axis in digit.axes:
                    if len(digit.axes) > 1:
                        raise LayoutRefusal(
                            "a register digit moves along the reduced axis and "
                            "another one, so a thread holds no part of a row"
                        )
                else:
                    kept.setdefault(name, []).append(digit)
        steps = sorted(
            {
                (step, d.extent)
                for digits in kept.values()
                for d in digits
                for a, step in d.steps
                if a == axis
            }
        )
        dense: dict[int, int] = {}
        reach = 1
        for step, extent in steps:
            dense[step] = reach
            reach *= extent
        return Layout.make(
            {
                name: [
                    Digit(tuple((a, dense[s] if a == axis else s) for a, s in d.steps), d.extent)
                    for d in digits
                ]
                for name, digits in kept.items()
            },
            self.rank,
        )

    # -- invariants ----------------------------------------------------------------------------

    @cached_property
    def _inverse(self) -> Inverse:
        return Inverse(self.placed, self._places, tuple(name for name, _ in self.digits))

    @cached_property
    def _places(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each axis the (step, extent) of its places, ascending."""
        bits: list[set[int]] = [set() for _ in range(self.rank)]
        repeats: list[list[tuple[int, int]]] = [[] for _ in range(self.rank)]
        for placed in self.placed:
            for axis, step in placed.digit.steps:
                if placed.digit.is_bit:
                    bits[axis].add(step)
                else:
                    repeats[axis].append((step, placed.digit.extent))
        return tuple(
            tuple(sorted([(step, 2) for step in bits[a]] + repeats[a])) for a in range(self.rank)
        )

    def _check_places(self) -> None:
        for axis, places in enumerate(self._places):
            reach = 0
            for step, extent in places:
                if step <= reach:
                    raise LayoutError(
                        f"{AXES[axis]}{step} lies within the reach of a repeat along the same axis"
                    )
                reach += step * (extent - 1)

    def _need_axis(self, axis: int) -> None:
        if not 0 <= axis < self.rank:
            raise LayoutError(f"axis {axis} of a layout of rank {self.rank}")


def _space_key(name: str) -> tuple[int, str]:
    known = SPACE_ORDER.index(name) if name in SPACE_ORDER else len(SPACE_ORDER)
    return known, name
