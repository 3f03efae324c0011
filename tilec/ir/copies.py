"""Tensor maps against the tiles that they fill or empty.

The map fixes element type, box and swizzle of each copy, the tile's layout says what is needed;
if they differ the bytes land elsewhere, or a barrier waits for bytes that never come. Nothing is
decided here that the two do not already say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.ir.clusters import shares
from tilec.ir.core import Kernel, Op, Value
from tilec.ir.levels import cta
from tilec.ir.types import Shared, TensorMap
from tilec.ir.verify import Fault
from tilec.layout.linear import LayoutRefusal
from tilec.layout.shared import swizzle_of
from tilec.layout.tma import cut_boxes

TMA_ADDS = ("f32", "f16", "bf16", "s32", "u32", "u64")
"""Elements that ``cp.reduce.async.bulk.tensor`` adds in memory (PTX ISA 9.7.9.27.1)."""


def copy_faults(kernel: Kernel) -> Iterator[Fault]:
    """Loads and stores whose map does not fit their tile, and maps that leave out an axis."""
    repeats = {str(name): axes for name, axes in kernel.attributes.get("repeats", ())}
    for op in kernel.body.walk():
        if isinstance(op, cta.TensorMapOf):
            left = {*range(len(op.array.type.shape))} - {*op.axes}
            if not left <= {*repeats.get(op.array.name, ())}:
                yield Fault(op, f"axes {op.axes} leave out one along which nothing is repeated")
        if isinstance(op, cta.Load):
            parts = op.ring.type.parts
            if 0 <= op.part < len(parts):
                count = shares(kernel, op.ring, op.part)
                yield from _misfits(op, op.source, parts[op.part], op.axes, op.origin, count)
        elif isinstance(op, cta.StoreTile):
            yield from _misfits(op, op.target, op.x.type, op.axes, op.origin)


def _misfits(
    op: Op,
    target: Value[Any],
    tile: Any,
    axes: Sequence[int],
    origin: Sequence[Value[Any]],
    count: int = 1,
) -> Iterator[Fault]:
    made, kind = target.owner, target.type
    if not (
        isinstance(made, cta.TensorMapOf)
        and isinstance(kind, TensorMap)
        and isinstance(tile, Shared)
    ):
        return
    array = made.array.type
    if isinstance(op, cta.Load) and array.mode == "out":
        yield Fault(op, "an out parameter is never read")
    if isinstance(op, cta.StoreTile):
        if array.mode == "in":
            yield Fault(op, "an in parameter is never written")
        if op.update not in ("", "add"):
            yield Fault(op, f"TMA makes no `{op.update}`")
        if op.update and kind.dtype.name not in TMA_ADDS:
            yield Fault(op, f"TMA adds {', '.join(TMA_ADDS)}, not {kind.dtype}")
    rank = len(array.shape)
    if len(origin) != rank:
        yield Fault(op, f"the array has {rank} axes, the origin gives {len(origin)}")
    if len(axes) != len(tile.shape) or not set(axes) <= set(made.axes):
        yield Fault(op, f"axes {axes} do not name one axis of the map for each of the tile's")
        return
    if kind.dtype != tile.dtype:
        yield Fault(op, f"the map copies {kind.dtype}, the tile holds {tile.dtype}")
    try:
        swizzle = swizzle_of(tile.layout)
        whole = tile.layout.shape == tile.shape
        needed = [
            tuple(
                {axes[a]: e for a, e in zip(b.axes, b.extents, strict=True)}.get(x, 1)
                for x in made.axes
            )
            for b in (cut_boxes(tile.layout, tile.dtype.bits, count).boxes if whole else ())
        ]
    except LayoutRefusal as refusal:
        yield Fault(op, f"no TMA copy writes this tile: {refusal}")
        return
    if kind.swizzle != swizzle:
        yield Fault(op, f"the map swizzles {kind.swizzle} bytes, the tile's layout {swizzle}")
    for box in needed:
        if box != kind.box:
            yield Fault(op, f"the map's box is {kind.box}, the tile needs {box}")
            break
