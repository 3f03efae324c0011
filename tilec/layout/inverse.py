"""The way from tile coordinates back to the hardware indices that hold them.

Bits are solved for by elimination; a repeat is found by its place along the axis. Works on the
placed digits of a layout, so that `linear` can offer it as a method.
"""

from __future__ import annotations

from tilec.layout.bits import Basis, bits_of
from tilec.layout.digits import AXES, AXIS_BITS, LayoutError, Placed


class Inverse:
    """The way from tile coordinates back to hardware indices, as a bit matrix and repeats.

    `basis` solves for the bits, `bits` lists them in its order; `repeats` finds the digit that
    counts a repeat along an axis.
    """

    def __init__(
        self,
        placed: tuple[Placed, ...],
        places: tuple[tuple[tuple[int, int], ...], ...],
        spaces: tuple[str, ...],
    ) -> None:
        self.placed = placed
        self.places = places
        self.spaces = spaces
        self.basis = Basis()
        self.bits = [p for p in placed if p.digit.is_bit]
        self.repeats = {p.digit.steps[0]: p for p in placed if not p.digit.is_bit and p.digit.steps}
        for number, bit in enumerate(self.bits):
            self.basis.insert(bit.digit.mask, 1 << number)

    def __call__(self, *coordinates: int) -> dict[str, int]:
        """Return the lowest hardware index; LayoutError if nothing holds the element."""
        index = dict.fromkeys(self.spaces, 0)
        mask = 0
        if len(coordinates) != len(self.places):
            raise LayoutError(f"{len(coordinates)} coordinates for rank {len(self.places)}")
        for axis, coordinate in enumerate(coordinates):
            rest = coordinate
            for step, extent in reversed(self.places[axis]):
                value = min(max(rest // step, 0), extent - 1)
                rest -= value * step
                if extent == 2:
                    mask |= (step * value) << axis * AXIS_BITS
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
        for placed in self.placed:
            if placed.digit.is_copy and not placed.digit.is_bit:
                found = [
                    {**index, placed.space: index[placed.space] + value * placed.weight}
                    for index in found
                    for value in range(placed.digit.extent)
                ]
        names = self.spaces[::-1]
        return tuple(sorted(found, key=lambda index: [index[name] for name in names]))
