"""Choose what the schedule leaves open: tile sizes, stages, warpgroups, raster, vectors.

Products decide where there are any (``product_tiles``); other kernels move memory (``row_tiles``).
An axis along which nothing is combined may be cut anywhere, so its size has no meaning and may be
any number from 1; every other size is a multiple of 16, as the language promises.
"""

from __future__ import annotations

from tilec.ir.core import Kernel
from tilec.ir.levels import tile
from tilec.passes.base import Context, tile_pass
from tilec.passes.check_schedule import check_schedule, shown_value
from tilec.passes.open_choices import OpenChoices
from tilec.passes.product_tiles import ProductTiles
from tilec.passes.row_tiles import RowTiles


@tile_pass("choose-tiles", level="tile")
def choose_tiles(kernel: Kernel, ctx: Context) -> None:
    """Every choice of the schedule is made, by the author or here."""
    check_schedule(kernel, ctx)
    multiplies = any(isinstance(op, tile.Dot) for op in kernel.body.walk())
    choices = ProductTiles(kernel, ctx) if multiplies else RowTiles(kernel, ctx)
    choices.offered()
    choices.decide()
    _without_effect(choices)
    choices.record()


def _without_effect(choices: OpenChoices) -> None:
    """Say which pins nothing asks for in this kernel, under these promises."""
    if choices.rings:
        return
    for name in ("stages", "registers"):
        value = getattr(choices.ctx.schedule, name)
        if value not in (None, ()):
            choices.ctx.remark(
                None,
                f"{name} = {shown_value(value)} has no effect: nothing comes through a "
                "ring, so there are no stages and no producer",
            )
