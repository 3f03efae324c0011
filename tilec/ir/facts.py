"""What a specialisation assumes about a launch, and the choices made for it.

``Facts`` come from the arguments (or from defaults when only compiling); ``Schedule`` is every
choice that the passes make and an author may pin. Both are frozen, are printed in the dump, and
together with source, compile-time values and target decide the code.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class ArrayFacts:
    """What is promised about one array's strides and address.

    ``unit_axis`` is an axis of stride one (-1: none is promised); ``alignment`` in bytes divides
    the address and the byte strides of all other axes (a power of two, at most 16). Along the axes
    of ``repeats`` the array has one element for several places: a stride of zero.
    """

    unit_axis: int
    alignment: int
    repeats: tuple[int, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What is promised about a launch: arrays by parameter name, extents by size name.

    An extent given here is an upper bound that every launch of the specialisation respects; it
    sizes what must be resident. Sizes that are absent may be anything.
    """

    arrays: tuple[tuple[str, ArrayFacts], ...] = ()
    extents: tuple[tuple[str, int], ...] = ()
    multiples: tuple[tuple[str, int], ...] = ()
    """Divisors of sizes by size name (powers of two); a size that is absent may be odd."""

    def array(self, name: str) -> ArrayFacts | None:
        """The promise about a parameter, if there is one."""
        return dict(self.arrays).get(name)

    def extent(self, name: str) -> int | None:
        """The upper bound of a size, if there is one."""
        return dict(self.extents).get(name)

    def multiple(self, name: str) -> int:
        """A number that divides the size in every launch; 1 if nothing is promised."""
        return dict(self.multiples).get(name, 1)


@dataclass(frozen=True)
class Schedule:
    """Every choice of a kernel's compilation; ``None`` or ``()`` leaves it to the passes."""

    tiles: tuple[tuple[str, int], ...] = ()
    """Tile size by loop name (the name bound in ``for i in ...tiles(M)``)."""
    stages: int | None = None
    """Stages of each ring of operand tiles."""
    warpgroups: int | None = None
    """Consumer warpgroups (1 to 3), or for kernels without products the warps / 4."""
    group: int | None = None
    """Tile rows that neighbouring CTAs share before moving along columns (raster grouping)."""
    persistent: bool | None = None
    """Whether CTAs loop over tiles (one CTA an SM) instead of one CTA a tile."""
    registers: tuple[int, ...] = ()
    """Registers a thread of the producer and of the consumer warpgroups (setmaxnreg)."""
    swizzles: tuple[tuple[str, int], ...] = ()
    """Swizzle width in bytes by operand parameter name."""
    vector: int | None = None
    """Elements an access of plain global loads and stores."""
    splits: tuple[tuple[str, int], ...] = ()
    """Shares in which a loop runs side by side, by loop name (split K, split KV)."""
    repacks: tuple[tuple[str, int], ...] = ()
    """Whether an operand is copied to where TMA can read it (1) or not (0), by parameter name."""

    checks: bool | None = None
    """Whether assertions and prints are compiled; they are if nothing is said."""
    cluster: tuple[int, ...] = ()
    """CTAs of a cluster along the last two axes of the grid, which share operand tiles."""
    alternate: bool | None = None
    """Whether two consumer warpgroups take tiles in turns, each one of its own."""

    def merged(self, other: Schedule) -> Schedule:
        """This schedule with every choice that ``other`` makes taken over."""
        changes: dict[str, Any] = {}
        for item in fields(other):
            value = getattr(other, item.name)
            if value is None or value == ():
                continue
            if item.name in ("tiles", "swizzles", "splits", "repacks"):
                value = tuple({**dict(getattr(self, item.name)), **dict(value)}.items())
            changes[item.name] = value
        return replace(self, **changes)

    def as_attributes(self) -> dict[str, Any]:
        """The choices made, as the dump shows them."""
        shown = {item.name: getattr(self, item.name) for item in fields(self)}
        return {key: value for key, value in shown.items() if value is not None and value != ()}

    @classmethod
    def from_attributes(cls, attributes: dict[str, Any]) -> Schedule:
        """The inverse of ``as_attributes``; raises ``TypeError`` on an unknown choice."""
        return cls(**attributes)


@dataclass
class Remark:
    """One decision, explained: which pass, where in the source, what and why.

    ``line`` and ``column`` count from 1 and are 0 where no place asked for it; ``data`` holds the
    numbers of the text for programs, by names that say what and in which unit.
    """

    decided_by: str
    line: int
    text: str
    data: dict[str, Any] = field(default_factory=dict)
    column: int = 0
