"""Let a known axis be padded where a product cannot take it as it is.

Law: the whole of a known axis is the whole of an axis whose length happens to be known. So an axis
of 72 elements may be a ragged axis of extent 72 with a tile of 80: its type gets a size symbol in
place of the number, and what makes ragged axes right makes this one right: loads fill with zero,
consumers ask for their own fill, stores skip what does not exist. ``choose-tiles`` settles the size
to the multiple that instructions take.

Only axes that a product runs along, and whose extent is no such multiple, are changed. An axis that
no array has (``full`` alone gives it) has no index to say where it ends, and keeps its number.
"""

from __future__ import annotations

from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Kernel, Op, Value
from tilec.ir.levels import math, tile
from tilec.ir.types import Tile
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.base import Context, tile_pass
from tilec.passes.fit_tiles import known_multiple, resize


def _known_axes(kernel: Kernel, axes: Axes) -> list[AxisClass]:
    """The classes of products' axes that are a number which the instructions do not take."""
    found: dict[AxisClass, None] = {}
    for op in kernel.body.walk():
        if not isinstance(op, tile.Dot):
            continue
        for axis in (*axes.all_of(op.a), *axes.all_of(op.out)):
            if axis is None or not isinstance(axis.size, int) or axis.index is None:
                continue
            if axis.size % known_multiple(axes, kernel.body, axis):
                found.setdefault(axis)
    return list(found)


def _is_one_for_others(kernel: Kernel, axes: Axes, axis: AxisClass) -> bool:
    """Whether an axis of one element is repeated or dropped somewhere: so it has to stay one."""
    for op in kernel.body.walk():
        if isinstance(op, math.Broadcast):
            shapes = zip(op.x.type.shape, op.out.type.shape, strict=True)
            spread = [place for place, (small, large) in enumerate(shapes) if small != large]
            if any(axes.of(op.x, place) is axis for place in spread):
                return True
        elif isinstance(op, math.Squeeze) and axes.of(op.x, op.axis) is axis:
            return True
    return False


def _repeat_inserted(kernel: Kernel, symbols: set[str]) -> None:
    """An axis of one that was inserted where one was met is repeated along the padded axis."""

    def rule(op: Op, builder: Builder) -> list[Value[Any]] | None:
        if not isinstance(op, math.Expand) or op.out.type.shape[op.axis] not in symbols:
            return None
        goal = op.out.type
        shape = tuple(1 if place == op.axis else e for place, e in enumerate(goal.shape))
        one = builder.add(math.Expand(op.x, axis=op.axis, type=Tile(goal.dtype, shape))).out
        return [builder.add(math.Broadcast(one, type=goal), op.out.name).out]

    rewrite.apply(kernel.body, rule)


def _lift(loop: tile.Parallel, symbols: set[str]) -> None:
    """Let the indices of freed axes stand first, where everything in the loop can name them."""
    lifted = [op for op in loop.body.walk() if isinstance(op, tile.Whole) and op.size in symbols]
    chosen = set(lifted)
    for region in (loop.body, *(r for op in loop.body.walk() for r in op.regions)):
        region.ops = [op for op in region.ops if op not in chosen]
    loop.body.ops[:0] = lifted


@tile_pass("free-known-axes", level="tile")
def free_known_axes(kernel: Kernel, ctx: Context) -> None:
    """Known axes that products cannot take have sizes to choose."""
    axes = Axes(kernel.body)
    freed: dict[str, AxisClass] = {}
    for axis in _known_axes(kernel, axes):
        if axis.size == 1 and _is_one_for_others(kernel, axes, axis):
            continue
        name = f"known{axis.size}"
        symbol = next(
            s
            for n in range(len(freed) + 1)
            if (s := f"${name}{f'_{n + 1}' * (n > 0)}") not in freed
        )
        freed[symbol] = axis
    for symbol, axis in freed.items():
        at = next((v.owner for v, _ in axis.members if not hasattr(v.owner, "args")), None)
        ctx.remark(
            at,
            f"the known axis of {axis.size} is padded: products take multiples of "
            f"{known_multiple(axes, kernel.body, axis)}",
        )
        resize(kernel.body, axis, symbol)
    if freed:
        _repeat_inserted(kernel, set(freed))
        for op in kernel.body.walk():
            if isinstance(op, tile.Parallel):
                _lift(op, set(freed))
        rewrite.remove_duplicates(kernel.body)
