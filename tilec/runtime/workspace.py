"""Workspace: arrays that live from a call's first launch to its last.

Idea: all workspace of a call is one block, borrowed on the call's stream and given back on it once
the launches are issued. Both are ordered with the stream's work, so the next borrower on that
stream may have the same memory, and a borrower on another stream cannot before this work is done:
calls from several threads and streams never share what is in use. A stream that is being captured
into a graph gets memory that belongs to the graph.

Invariants: arrays are row-major, each starts at a multiple of 256 bytes, and rows at multiples of
16 bytes, so every copy engine can reach them (``pipeline.workspace_facts`` promises that). Long
rows start at lines of the cache, so that a box of whole lines touches no line more.

Never: waits, or keeps memory of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

from tilec.backend_ptx.module import allocate_on, free_on
from tilec.compiler import Workspace
from tilec.runtime.arrays import ELEMENT_BYTES, ArrayView, packed_strides
from tilec.runtime.expressions import evaluate
from tilec.runtime.specialise import LaunchError

ALIGNMENT = 256
ROW_ALIGNMENT = 16
LINE = 128
"""Bytes of a line of L2; rows of ``LONG_ROW`` bytes and more grow by an eighth at most for it."""
LONG_ROW = 1024


@dataclass(frozen=True)
class Block:
    """The workspace of one call: views relative to address 0, and the bytes that they span."""

    views: Mapping[str, ArrayView]
    size_bytes: int

    @property
    def has_empty(self) -> bool:
        """Whether an array has no elements; one copy of zeros stands for it."""
        return any(view.size == 0 for view in self.views.values())

    def at(self, base: int) -> dict[str, ArrayView]:
        """The views of a block that lies at ``base``."""
        return {
            name: ArrayView(base + v.address, v.shape, v.strides, v.dtype, v.device, None)
            for name, v in self.views.items()
        }


def block_for(
    wanted: Sequence[Workspace],
    shapes: Mapping[str, tuple[int, ...]],
    scalars: Mapping[str, Any],
    ordinal: int,
) -> Block:
    """Lay out the workspace of a call with arguments of these shapes."""
    views: dict[str, ArrayView] = {}
    end = 0
    for item in wanted:
        shape = tuple(int(evaluate(extent, shapes, scalars)) for extent in item.extents)
        if min(shape) < 0:
            raise LaunchError(f"workspace {item.name} would have the shape {shape}")
        name = item.dtype.name
        long = shape[-1] * ELEMENT_BYTES[name] >= LONG_ROW
        per_row = max(1, (LINE if long else ROW_ALIGNMENT) // ELEMENT_BYTES[name])
        pitched = (*shape[:-1], -(-max(shape[-1], 1) // per_row) * per_row)
        start = -(-end // ALIGNMENT) * ALIGNMENT
        end = start + prod(max(extent, 1) for extent in pitched) * ELEMENT_BYTES[name]
        views[item.name] = ArrayView(
            start, shape, packed_strides(pitched), name, ("cuda", ordinal), None
        )
    return Block(views, end)


@contextmanager
def borrowed(size_bytes: int, kind: str, ordinal: int, stream: int) -> Iterator[int]:
    """The address of a block, for work issued to ``stream`` within the ``with``.

    ``kind`` is the framework that the arguments come from, and ``stream`` its current one: torch
    lends from its own allocator, so that its memory counts and its graphs hold.
    """
    if size_bytes == 0:
        yield 0
    elif kind == "torch":
        torch = sys.modules["torch"]
        held = torch.empty(size_bytes, dtype=torch.uint8, device=f"cuda:{ordinal}")
        yield int(held.data_ptr())
    else:
        address = allocate_on(stream, size_bytes, ordinal)
        try:
            yield address
        finally:
            free_on(stream, address)
