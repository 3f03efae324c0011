"""What it takes to move a register tile from one layout to another.

Read off dst^-1 after src: an element that dst wants in a thread may lie there already in another
register, in another lane of the same warp, or in another warp. The first case that covers all
elements decides: `none`, `registers`, `lanes` (shuffles) or `warps` (through shared memory).

Costs count issue slots of one thread and exist to compare conversions, not to predict time: a
shuffle counts 2, a select 1, a 16-byte shared access 4, and the pair of barriers 32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from tilec.layout.bits import Basis
from tilec.layout.linear import Digit, Layout, LayoutRefusal

KINDS = ("none", "registers", "lanes", "warps")
_SHUFFLE, _SELECT, _SHARED_ACCESS, _BARRIERS = 2, 1, 4, 32


@dataclass(frozen=True)
class Conversion:
    """The kind of a conversion and its price for each thread."""

    kind: str
    selects: int
    shuffles: int
    shared_bytes: int
    cost: int

    def __str__(self) -> str:
        """Say the conversion in words."""
        if self.kind == "none":
            return "nothing moves"
        if self.kind == "registers":
            return f"registers are renamed, {self.selects} selects"
        if self.kind == "lanes":
            return f"{self.shuffles} shuffles and {self.selects} selects in each lane"
        return f"through {self.shared_bytes} bytes of shared memory"


def conversion(source: Layout, target: Layout, element_bits: int = 32) -> Conversion:
    """Classify and price the conversion of a tile between two register layouts."""
    if source.shape != target.shape:
        raise LayoutRefusal(f"the layouts hold different tiles, {source.shape} and {target.shape}")
    if _all(source) == _all(target):
        return Conversion("none", 0, 0, 0, 0)
    registers = -(-target.size("reg") * element_bits // 32)
    wanted = target.spaces.get("reg", ())
    wider = _wider_spaces(source, target)
    if _keeps_repeats(source, target):
        thread = _span(source, "reg")
        leaving = [_leaving(source, target, space, thread) for space in ("lane", *wider)]
        if not any(leaving) and not _outside(wanted, thread):
            selects = registers * _differing(source, target, ("lane", *wider))
            return Conversion("registers", selects, 0, 0, selects * _SELECT)
        warp = _span(source, "reg", "lane")
        wanted += target.spaces.get("lane", ())
        crossing = [_leaving(source, target, space, warp) for space in wider]
        if not any(crossing) and not _outside(wanted, warp):
            return _shuffled(source, target, registers)
    size = prod(source.shape) * element_bits // 8
    accesses = 2 * -(-registers // 4)
    return Conversion("warps", 0, 0, size, accesses * _SHARED_ACCESS + _BARRIERS)


def register_moves(source: Layout, target: Layout) -> tuple[int, ...] | None:
    """For each target register, name the source register that holds its element in every thread.

    None if some thread would need another register or another thread.
    """
    for space in ("lane", *_wider_spaces(source, target)):
        if _bits(source, space) != _bits(target, space):
            return None
    if source.shape != target.shape or not _keeps_repeats(source, target):
        return None
    if _outside(target.spaces.get("reg", ()), _span(source, "reg")):
        return None
    # A solution may not use lanes: solve among the registers alone.
    alone = Layout.make({"reg": source.spaces.get("reg", ())}, source.rank).inverse()
    return tuple(
        alone(*target(reg=register)).get("reg", 0) for register in range(target.size("reg"))
    )


def _shuffled(source: Layout, target: Layout, registers: int) -> Conversion:
    """Price an exchange inside warps: each lane bit that turns into a register bit halves it."""
    exchanged = _leaving(source, target, "lane", _span(source, "lane"))
    # Exchanging m lane bits with m register bits is m rounds, each sending half the registers.
    shuffles = exchanged * -(-registers // 2) if exchanged else registers
    selects = 2 * shuffles if exchanged else 0
    return Conversion("lanes", selects, shuffles, 0, shuffles * _SHUFFLE + selects * _SELECT)


def _all(layout: Layout) -> tuple[object, ...]:
    """The digits with the trailing copies of lanes and warps left out: absent bits are copies."""
    trimmed = [(space, _trimmed(digits)) for space, digits in layout.digits if space != "reg"]
    return (layout.spaces.get("reg", ()), *(pair for pair in trimmed if pair[1]))


def _wider_spaces(source: Layout, target: Layout) -> list[str]:
    """The spaces above a warp: warps, and groups of them."""
    return sorted({*source.spaces, *target.spaces} - {"reg", "lane"})


def _trimmed(digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
    while digits and digits[-1].is_copy:
        digits = digits[:-1]
    return digits


def _bits(layout: Layout, space: str) -> list[int]:
    return [digit.mask for digit in _trimmed(layout.spaces.get(space, ()))]


def _span(layout: Layout, *spaces: str) -> Basis:
    basis = Basis()
    for space in spaces:
        for digit in layout.spaces.get(space, ()):
            if digit.is_bit:
                basis.insert(digit.mask, 0)
    return basis


def _outside(digits: Iterable[Digit], basis: Basis) -> int:
    """Count the bits that make moves outside the span."""
    return sum(1 for d in digits if d.is_bit and basis.solve(d.mask) is None)


def _leaving(source: Layout, target: Layout, space: str, basis: Basis) -> int:
    """Count the bits of a space whose element lies outside what the span can reach."""
    return sum(1 for a, b in _paired(source, target, space) if basis.solve(a ^ b) is None)


def _differing(source: Layout, target: Layout, spaces: tuple[str, ...]) -> int:
    return sum(1 for space in spaces for a, b in _paired(source, target, space) if a != b)


def _paired(source: Layout, target: Layout, space: str) -> list[tuple[int, int]]:
    a, b = _bits(source, space), _bits(target, space)
    length = max(len(a), len(b))
    a += [0] * (length - len(a))
    b += [0] * (length - len(b))
    return list(zip(a, b, strict=True))


def _keeps_repeats(source: Layout, target: Layout) -> bool:
    """Whether both layouts count the odd repeats in the same space and, beside registers, alike."""

    def counted(layout: Layout) -> list[tuple[object, ...]]:
        return sorted(
            (p.space, p.digit.steps, p.digit.extent, 0 if p.space == "reg" else p.weight)
            for p in layout.placed
            if not p.digit.is_bit and not p.digit.is_copy
        )

    return counted(source) == counted(target)
