"""An index as a function of the thread, in a form that a backend can emit.

An `IndexMap` gives for each digit of a thread's hardware index (a lane bit, a warp bit) what it
contributes to a number, a byte offset or a coordinate: a part that is XORed and a part that is
added. The XORed parts stay below `xor_limit` and the added ones are multiples of it, so the two
never meet in a carry. `terms` gathers neighbouring bits into `(space & mask) << shift`.

`compose` makes the contributions of a register layout to the offsets of a shared layout of the
same tile: it is dst^-1 after src, kept digit by digit. `split` then sorts what each instruction
adds as a constant into a few bases, where the constant meets bits that the thread also sets, and a
plain displacement for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilec.layout.bits import bits_of
from tilec.layout.linear import AXES, Layout, LayoutRefusal, Placed


@dataclass(frozen=True)
class Contribution:
    """What one unit of a digit of a hardware index brings: value = index // weight % extent."""

    space: str
    weight: int
    extent: int
    xor: int
    add: int


@dataclass(frozen=True)
class ShiftTerm:
    """`(space & mask) << shift`, or `>> -shift`; combined by XOR."""

    space: str
    mask: int
    shift: int

    def value(self, index: int) -> int:
        """Evaluate the term."""
        kept = index & self.mask
        return kept << self.shift if self.shift >= 0 else kept >> -self.shift


@dataclass(frozen=True)
class ScaleTerm:
    """`space // weight % extent * scale`; combined by XOR or by addition."""

    space: str
    weight: int
    extent: int
    scale: int
    exclusive: bool

    def value(self, index: int) -> int:
        """Evaluate the term."""
        return index // self.weight % self.extent * self.scale


@dataclass(frozen=True)
class IndexMap:
    """A number as a function of the thread."""

    contributions: tuple[Contribution, ...]

    def __call__(self, **index: int) -> int:
        """Evaluate at a hardware index; spaces not given are at 0."""
        xor = add = 0
        for part in self.contributions:
            value = index.get(part.space, 0) // part.weight % part.extent
            xor ^= part.xor * value
            add += part.add * value
        return xor + add

    @cached_property
    def xor_mask(self) -> int:
        """All bits that some thread sets by XOR."""
        mask = 0
        for part in self.contributions:
            mask |= part.xor
        return mask

    @cached_property
    def terms(self) -> tuple[ShiftTerm | ScaleTerm, ...]:
        """The map as few shifts and scalings: XOR terms first, added ones last."""
        runs: dict[tuple[str, int], int] = {}
        scales: list[ScaleTerm] = []
        for part in self.contributions:
            if part.xor and part.weight & (part.weight - 1) == 0:
                source = part.weight.bit_length() - 1
                for target in bits_of(part.xor):
                    key = (part.space, target - source)
                    runs[key] = runs.get(key, 0) | part.weight
            elif part.xor:
                scales.append(ScaleTerm(part.space, part.weight, part.extent, part.xor, True))
            if part.add:
                scales.append(ScaleTerm(part.space, part.weight, part.extent, part.add, False))
        shifts = [ShiftTerm(space, mask, shift) for (space, shift), mask in runs.items()]
        return (*shifts, *sorted(scales, key=lambda term: not term.exclusive))


@dataclass(frozen=True)
class Composition:
    """Contributions of every digit of a register layout to byte offsets in shared memory."""

    registers: tuple[Contribution, ...]
    threads: tuple[Contribution, ...]
    xor_limit: int


def compose(layout: Layout, shared: Layout, element_bits: int) -> Composition:
    """Send each digit of a register layout to byte offsets of a shared layout of the tile.

    The registers may hold the first rows alone.
    """
    fits = layout.shape[0] <= shared.shape[0] and layout.shape[1:] == shared.shape[1:]
    if layout.rank != shared.rank or not fits:
        raise LayoutRefusal(
            f"the registers hold a tile {layout.shape}, shared memory one of {shared.shape}"
        )
    exchanged = _exchanged_region(shared)
    registers: list[Contribution] = []
    threads: list[Contribution] = []
    touched: dict[int, Placed] = {}
    for placed in layout.placed:
        xor = add = 0
        for target in _targets(placed, shared):
            if target.weight < exchanged:
                xor |= target.weight
                continue
            # A place above a repeat is reached by addition: two digits there would carry.
            if touched.setdefault(target.weight, placed) is not placed:
                raise LayoutRefusal(
                    "two hardware bits meet in a digit of the shared offset that is no power of two"
                )
            add += target.weight
        part = Contribution(
            placed.space,
            placed.weight,
            placed.digit.extent,
            xor * element_bits // 8,
            add * element_bits // 8,
        )
        (registers if placed.space == "reg" else threads).append(part)
    return Composition(tuple(registers), tuple(threads), exchanged * element_bits // 8)


def _exchanged_region(shared: Layout) -> int:
    """Elements below the first repeat of the offset: there bits may be XORed."""
    for placed in shared.placed:
        if not placed.digit.is_bit:
            return placed.weight
    return shared.size("off")


def _targets(placed: Placed, shared: Layout) -> Sequence[Placed]:
    back = shared.inverse()
    digit = placed.digit
    if digit.is_copy:
        return ()
    if digit.is_bit:
        found = back.solve(digit.mask)
        if found is not None:
            return found
    else:
        repeat = back.repeats.get(digit.steps[0])
        if repeat is not None and repeat.digit.extent == digit.extent:
            return (repeat,)
    axes = "".join(AXES[axis] for axis in sorted(digit.axes))
    raise LayoutRefusal(f"axis {axes} is cut into other powers of two in {shared}")


def gather(parts: Iterable[Contribution], index: int) -> tuple[int, int]:
    """Return the XORed and the added part of one space's index."""
    xor = add = 0
    for part in parts:
        value = index // part.weight % part.extent
        xor ^= part.xor * value
        add += part.add * value
    return xor, add


def split(
    constants: Sequence[tuple[int, int]], thread: IndexMap
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Sort (xor, add) constants into bases and displacements.

    Returns the distinct XOR constants of the bases, and for each constant the number of its base
    and the bytes to add: address = (thread ^ bases[number]) + displacement.
    """
    bases: dict[int, int] = {}
    placed = []
    for xor, add in constants:
        met = xor & thread.xor_mask
        number = bases.setdefault(met, len(bases))
        placed.append((number, (xor ^ met) + add))
    return tuple(bases), tuple(placed)


def thread_coordinates(layout: Layout) -> tuple[IndexMap, ...]:
    """Return the tile coordinate of register 0 along each axis, as a function of the thread.

    A register then adds the plain coordinates `layout(reg=r)`; refused where registers and
    threads meet in one step, since the sum would be wrong there.
    """
    maps = []
    for axis in range(layout.rank):
        parts = []
        seen = {"reg": 0, "thread": 0}
        for placed in layout.placed:
            step = sum(step for a, step in placed.digit.steps if a == axis)
            bit = placed.digit.is_bit
            seen["reg" if placed.space == "reg" else "thread"] |= step
            if step and placed.space != "reg":
                parts.append(
                    Contribution(
                        placed.space,
                        placed.weight,
                        placed.digit.extent,
                        step if bit else 0,
                        0 if bit else step,
                    )
                )
        if seen["reg"] & seen["thread"]:
            raise LayoutRefusal(f"registers and threads share a step along {AXES[axis]}")
        maps.append(IndexMap(tuple(parts)))
    return tuple(maps)
