"""Elements that several threads or registers hold: who has the first copy.

A digit without steps is a copy; lanes and warps beyond a layout's own hold copies too. Whatever is
done once for each element is done by the thread whose copy digits are all 0.
"""

from __future__ import annotations

from tilec.layout.linear import Layout

LANES = 32


def first_copies(layout: Layout, warps: int) -> tuple[int, int]:
    """Masks of the lane's and of the warp's number, both 0 in the thread of the first copy."""
    masks = []
    for space, held in (("lane", LANES), ("warp", warps)):
        mask = sum(p.weight for p in layout.placed if p.space == space and p.digit.is_copy)
        masks.append(mask | ((1 << (held - 1).bit_length()) - 1) & ~(layout.size(space) - 1))
    return masks[0], masks[1]


def repeats_registers(layout: Layout) -> bool:
    """Whether one thread holds an element twice."""
    places = [layout(reg=r) for r in range(layout.size("reg"))]
    return len(set(places)) < len(places)
