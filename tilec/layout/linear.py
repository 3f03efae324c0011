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
from functools import cached_property, lru_cache

from tilec.layout.bits import Basis, bits_of
from tilec.layout.text import format_space, parse_layout

AXES = "ijkl"
SPACE_ORDER = ("reg", "lane", "warp", "group", "off")
_AXIS_BITS = 48  # room for each axis in the integer that encodes a coordinate


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
        return sum(step << axis * _AXIS_BITS for axis, step in self.steps)


@dataclass(frozen=True)
class Placed:
    """A digit with its place: the space it belongs to and what one unit of it is worth there."""

    space: str
    weight: int
    digit: Digit


Digits = tuple[Digit, ...]


@dataclass(frozen=True)
class Layout:
    """An immutable map from named hardware indices to tile coordinates; build it with `make`."""

    digits: tuple[tuple[str, Digits], ...]
    rank: int

    # -- making and printing -------------------------------------------------------------------

    @staticmethod
    def make(spaces: Mapping[str, Iterable[Digit]], rank: int | None = None) -> Layout:
        """Build the canonical layout from the digits of each space, lowest digit first."""
        canonical = {name: _canonical(name, digits) for name, digits in spaces.items()}
        order = sorted((name for name in canonical if canonical[name]), key=_space_key)
        seen = max(
            (axis + 1 for name in order for d in canonical[name] for axis in d.axes), default=0
        )
        if rank is None:
            rank = max(
                (axis + 1 for digits in spaces.values() for d in digits for axis in d.axes),
                default=0,
            )
        if not seen <= rank <= len(AXES):
            raise LayoutError(f"rank {rank} does not hold the axes used, {seen}")
        layout = Layout(tuple((name, canonical[name]) for name in order), rank)
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
        return _inverse(self)

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


class Inverse:
    """The way from tile coordinates back to hardware indices, as a bit matrix and repeats.

    `basis` solves for the bits, `bits` lists them in its order; `repeats` finds the digit that
    counts a repeat along an axis.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.basis = Basis()
        self.bits = [p for p in layout.placed if p.digit.is_bit]
        self.repeats = {
            p.digit.steps[0]: p for p in layout.placed if not p.digit.is_bit and p.digit.steps
        }
        for number, placed in enumerate(self.bits):
            self.basis.insert(placed.digit.mask, 1 << number)

    def __call__(self, *coordinates: int) -> dict[str, int]:
        """Return the lowest hardware index; LayoutError if nothing holds the element."""
        index = {name: 0 for name, _ in self.layout.digits}
        mask = 0
        if len(coordinates) != self.layout.rank:
            raise LayoutError(f"{len(coordinates)} coordinates for rank {self.layout.rank}")
        for axis, coordinate in enumerate(coordinates):
            rest = coordinate
            for step, extent in reversed(self.layout._places[axis]):
                value = min(max(rest // step, 0), extent - 1)
                rest -= value * step
                if extent == 2:
                    mask |= (step * value) << axis * _AXIS_BITS
                else:
                    placed = self.repeats[axis, step]
                    index[placed.space] += value * placed.weight
            if rest:
                raise LayoutError(f"coordinate {coordinate} lies outside axis {AXES[axis]}")
        chosen = self.basis.solve(mask)
        if chosen is None:
            raise LayoutError(f"nothing holds the element {coordinates}")
        for number in bits_of(chosen):
            index[self.bits[number].space] += self.bits[number].weight
        return index

    def solve(self, mask: int) -> list[Placed] | None:
        """Return the hardware bits that make an encoded XOR move, or None if none do."""
        chosen = self.basis.solve(mask)
        return None if chosen is None else [self.bits[number] for number in bits_of(chosen)]

    def owners(self, *coordinates: int) -> tuple[dict[str, int], ...]:
        """Return every hardware index that holds the element, lowest first."""
        found = [self(*coordinates)]
        for combination in self.basis.kernel:
            flipped = [dict(index) for index in found]
            for index in flipped:
                for number in bits_of(combination):
                    bit = self.bits[number]
                    set_now = index[bit.space] // bit.weight % 2
                    index[bit.space] += -bit.weight if set_now else bit.weight
            found += flipped
        for placed in self.layout.placed:
            if placed.digit.is_copy and not placed.digit.is_bit:
                found = [
                    {**index, placed.space: index[placed.space] + value * placed.weight}
                    for index in found
                    for value in range(placed.digit.extent)
                ]
        names = [name for name, _ in reversed(self.layout.digits)]
        return tuple(sorted(found, key=lambda index: [index[name] for name in names]))


@lru_cache(maxsize=1024)
def _inverse(layout: Layout) -> Inverse:
    return Inverse(layout)


def encode(coordinates: Iterable[int]) -> int:
    """Pack coordinates into one integer, a field for each axis."""
    return sum(value << axis * _AXIS_BITS for axis, value in enumerate(coordinates))


def decode(mask: int, rank: int) -> tuple[int, ...]:
    """Unpack the coordinates of `encode`."""
    field = (1 << _AXIS_BITS) - 1
    return tuple(mask >> axis * _AXIS_BITS & field for axis in range(rank))


def _space_key(name: str) -> tuple[int, str]:
    known = SPACE_ORDER.index(name) if name in SPACE_ORDER else len(SPACE_ORDER)
    return known, name


def _canonical(space: str, digits: Iterable[Digit]) -> Digits:
    """Split repeats into bits and an odd rest; gather neighbouring copies."""
    out: list[Digit] = []
    copies = 1
    for digit in digits:
        steps = _steps(digit)
        if digit.extent < 1:
            raise LayoutError(f"a digit of {digit.extent} values in {space}")
        if not steps:
            copies *= digit.extent
            continue
        if digit.extent == 1:
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
