"""In how many shares a loop over K runs, where a launch has too few tiles for the multiprocessors.

The price of products (``costs``) decides: shares fill the machine, and cost a launch that merges
their states. Loops that no law lets split, and launches of unknown size, run in order.

Nothing here changes a kernel: ``split-loops`` does.
"""

from __future__ import annotations

from tilec.ir.core import Kernel
from tilec.ir.declare import Refused
from tilec.ir.levels import tile
from tilec.ir.types import is_symbol
from tilec.passes.base import Context
from tilec.passes.check_schedule import check_schedule
from tilec.passes.product_tiles import ProductTiles, cheapest

COUNTS = (*range(1, 17), *range(18, 32, 2), *range(33, 67, 3), 80, 88, 96, 112, 132)
"""Numbers of shares that are considered."""
LEAST_ROUNDS = 8
"""Rounds of a share, at least: fewer are over before the ring is full."""
WORTHWHILE = 0.9
"""Of the time without shares: a smaller gain is not worth a second launch."""


def worthwhile_shares(kernel: Kernel, ctx: Context) -> tuple[str, int, str] | None:
    """The loop to split, its number of shares and why, where that pays; None elsewhere."""
    launches = [op for op in kernel.body.ops if isinstance(op, tile.Parallel)]
    if len(launches) != 1:
        return None
    loops = [op for op in launches[0].body.ops if isinstance(op, tile.ForTiles)]
    dots = [op for op in launches[0].body.walk() if isinstance(op, tile.Dot)]
    if len(loops) != 1 or not dots:
        return None
    loop, choices = loops[0], ProductTiles(kernel, ctx)
    index = loop.body.args[0]
    deep = choices.axes.of(dots[0].a, 1)
    if deep is None or choices.axes.of(index, 0) is not deep or not is_symbol(index.type.size):
        return None
    try:
        check_schedule(kernel, ctx)
        prices = choices.best_of_shares(COUNTS)
    except Refused:
        return None  # choose-tiles refuses it where it can say more
    whole = prices.pop(1, None)
    enough = {n: p for n, p in prices.items() if p.rounds >= LEAST_ROUNDS}
    if whole is None or not enough:
        return None
    found = cheapest(list(enough.values()))
    count = found.shares
    if found.microseconds > WORTHWHILE * whole.microseconds:
        return None
    why = (
        f"{whole.tiles} tiles leave multiprocessors idle: {found.microseconds:.1f} us in {count} "
        f"shares, {whole.microseconds:.1f} us in one"
    )
    return str(index.type.size)[1:], count, why
