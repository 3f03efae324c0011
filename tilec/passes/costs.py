"""What a tile of a product costs, in cycles of one SM: enough to rank tile shapes.

A round of K takes as long as the slowest of three engines: the tensor pipe (the target's dense
rate), shared memory (128 bytes a cycle; each warpgroup reads its rows of A and all of B), and L2
(bytes of the stage at what L2 delivers to one SM). A tile adds a fixed price for filling the ring,
the last wait, and what of the epilogue is not hidden. Tiles of a launch run in waves over the SMs.

The model ranks; it predicts nothing. Its constants are rough and say where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.targets.base import Target

SHARED_BYTES_PER_CYCLE = 128
L2_BYTES_PER_CYCLE = 64
"""To one SM: the width of its port; a 128 x 256 x 64 stage in flight needs 48."""

TILE_CYCLES = 1000
"""Latency of the first stage and of an epilogue's end, about half a microsecond."""

TYPICAL_EXTENT = 4096
"""Stands for an extent that is not known; only the ratio to a tile matters."""


@dataclass(frozen=True)
class Shape:
    """The tile of a product: rows, columns, K of one stage, and the warpgroups that share it.

    A stage holds ``lefts`` operands with the rows and ``rights`` with the columns.
    """

    rows: int
    columns: int
    depth: int
    warpgroups: int
    lefts: int = 1
    rights: int = 1

    @property
    def products(self) -> int:
        """Products a round, at least."""
        return max(self.lefts, self.rights)

    def stage_bytes(self, element_bytes: int) -> int:
        """Bytes of one stage of both operands."""
        return (self.rows * self.lefts + self.columns * self.rights) * self.depth * element_bytes


def round_cycles(target: Target, shape: Shape, element_bytes: int) -> float:
    """Cycles of one round of K when the ring never runs dry."""
    rate = target.tensor_flops_per_cycle * 2 / element_bytes
    tensor = 2 * shape.rows * shape.columns * shape.depth * shape.products / rate
    once = (shape.rows + shape.columns * shape.warpgroups) * shape.depth * element_bytes
    read = once * shape.products
    fetched = shape.stage_bytes(element_bytes)
    return max(tensor, read / SHARED_BYTES_PER_CYCLE, fetched / L2_BYTES_PER_CYCLE)


def launch_cycles(
    target: Target,
    shape: Shape,
    element_bytes: int,
    extents: tuple[int | None, int | None, int | None],
    outer: int,
) -> float:
    """Cycles of a whole launch; ``outer`` is the number of products beside one another."""
    m, n, k = extents
    tiles = outer * _tiles(m, shape.rows) * _tiles(n, shape.columns)
    waves = tiles / target.sms
    if m is not None and n is not None:
        waves = float(-(-tiles // target.sms))
    rounds = _tiles(k, shape.depth)
    return waves * (rounds * round_cycles(target, shape, element_bytes) + TILE_CYCLES)


def _tiles(extent: int | None, size: int) -> int:
    return max(1, -(-(TYPICAL_EXTENT if extent is None else extent) // size))
