"""Plain loads and stores of a register tile: the widest vector, and what each access takes.

The low register digits that run along contiguous memory form the vector, up to 16 bytes; every
other digit must keep the address aligned to it. `global_plan` serves tensors with run-time
strides, so it speaks in coordinates; `shared_plan` speaks in byte offsets of a shared layout.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.layout.index_map import (
    Contribution,
    IndexMap,
    compose,
    gather,
    split,
    thread_coordinates,
)
from tilec.layout.linear import Layout, LayoutError

MAX_BYTES = 16


@dataclass(frozen=True)
class GlobalAccess:
    """One vector: its first register, and the coordinates to add to the thread's own."""

    register: int
    offset: tuple[int, ...]


@dataclass(frozen=True)
class GlobalPlan:
    """Accesses of a tensor; coordinate = thread[axis](lane, warp) + offset[axis]."""

    elements: int
    bytes: int
    thread: tuple[IndexMap, ...]
    accesses: tuple[GlobalAccess, ...]


@dataclass(frozen=True)
class SharedAccess:
    """One vector: its first register, base number, bytes to add."""

    register: int
    base: int
    displacement: int


@dataclass(frozen=True)
class SharedPlan:
    """Accesses of a shared tile; address = (thread(lane, warp) ^ bases[n]) + displacement."""

    elements: int
    bytes: int
    thread: IndexMap
    bases: tuple[int, ...]
    accesses: tuple[SharedAccess, ...]

    def address(self, access: SharedAccess, **index: int) -> int:
        """Return the byte offset that a thread uses for an access."""
        return (self.thread(**index) ^ self.bases[access.base]) + access.displacement


def global_plan(
    layout: Layout, element_bits: int, *, axis: int | None = None, max_bytes: int = MAX_BYTES
) -> GlobalPlan:
    """Plan accesses of a tensor that is contiguous along one axis (the last one if not given).

    `max_bytes` is what the alignment of the tensor's base and pitches allows.
    """
    along = layout.rank - 1 if axis is None else axis
    parts = [
        Contribution(
            p.space,
            p.weight,
            p.digit.extent,
            sum(step for a, step in p.digit.steps if a == along),
            0,
        )
        for p in layout.placed
    ]
    low = [p for p in layout.placed if p.space == "reg"]
    pure = 0
    while pure < len(low) and low[pure].digit.axes == {along}:
        pure += 1
    elements = _vector(parts, pure, 1, max_bytes * 8 // element_bits, element_bits)
    accesses = tuple(
        GlobalAccess(register, layout(reg=register))
        for register in range(0, layout.size("reg"), elements)
    )
    return GlobalPlan(elements, elements * element_bits // 8, thread_coordinates(layout), accesses)


def shared_plan(
    layout: Layout, shared: Layout, element_bits: int, *, max_bytes: int = MAX_BYTES
) -> SharedPlan:
    """Plan plain loads or stores of a register tile in a shared layout."""
    parts = compose(layout, shared, element_bits)
    each = element_bits // 8
    elements = _vector(
        [*parts.registers, *parts.threads],
        len(parts.registers),
        each,
        max_bytes // each,
        element_bits,
    )
    thread = IndexMap(parts.threads)
    starts = range(0, layout.size("reg"), elements)
    bases, placed = split([gather(parts.registers, start) for start in starts], thread)
    return SharedPlan(
        elements,
        elements * each,
        thread,
        bases,
        tuple(
            SharedAccess(start, base, displacement)
            for start, (base, displacement) in zip(starts, placed, strict=True)
        ),
    )


def _vector(parts: list[Contribution], low: int, unit: int, most: int, element_bits: int) -> int:
    """Return the elements of the widest vector that the first `low` digits can form."""
    if element_bits < 8 or most < 1:
        raise LayoutError(f"no access moves single elements of {element_bits} bits")
    elements = 1
    count = 0
    while (
        count < low
        and elements * 2 <= most
        and parts[count].extent == 2
        and (parts[count].xor, parts[count].add) == (unit * elements, 0)
    ):
        elements *= 2
        count += 1
    while count:
        width = unit * elements
        if all((part.xor | part.add) % width == 0 for part in parts[count:]):
            break
        elements //= 2
        count -= 1
    return elements
