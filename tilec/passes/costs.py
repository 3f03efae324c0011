"""What a launch with products costs, in microseconds, as a sum of terms that a dump can show.

A CTA runs its tiles one after the other; a tile runs its rounds of K; a round takes as long as the
slowest of three engines, and a little more: the tensor pipe (the target's dense rate), shared
memory (each warpgroup reads its rows of A and all of B) and L2 (the bytes of a stage, in whole
32-byte sectors). The slowest SM has ``ceil(tiles / SMs)`` tiles. A launch is never faster than
memory delivers each byte once.

The constants were fitted by least squares to 57 timings of ``examples/gemm.tk`` on an H200, bf16,
tiles from 64 x 32 to 256 x 128 and sizes from 512 cubed to 16384 cubed: 4.6 % root mean square,
largest error 19 % (a launch that memory limits). The model ranks schedules; what it leaves out
(the clock under load, conflicts in L2) it leaves out of all candidates alike.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tilec.targets.base import Target

TENSOR_SHARE = 0.94
"""Of the dense rate, what a warpgroup keeps up between waits."""
SHARED_BYTES_PER_CYCLE = 88
"""Of 128 that shared memory delivers; TMA writes each byte that wgmma reads."""
L2_BYTES_PER_CYCLE = 68
"""To one SM, while all of them read."""
ROUND_CYCLES = 51
"""Waiting for a stage and giving it back, which nothing hides."""
OUTSIDE_CYCLES = 12
"""A row of a TMA box that lies outside its tensor: a tile of 64 rows with one inside took 63 us
where 64 inside took 45 (8192 columns, K = 8192)."""
LAUNCH_US = 5.2
"""From one launch to the next: its start, the first stage, the last store."""
MEMORY_SHARE = 0.85
"""Of the bandwidth that the data sheet names, what streaming reads."""
FEEDING_SHARE = 1.33
"""How much more than its part of the bandwidth an SM can ask for."""
ACROSS_LINES = 2.0
"""Requests for a row of a box that starts inside a line of 128 bytes: 5000 cubed, whose rows are
10000 bytes, took 1.27 times as long as with rows of 10112, where requests set the pace."""
CLUSTER_CYCLES = 25
"""A round's wait for the other CTAs of a cluster: 4096 cubed took 2 % longer in clusters of two."""
HALF_RATE_MMA = 0.6
"""mma.sync against wgmma on a target that has both: operands pass through registers."""
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


@dataclass(frozen=True)
class Work:
    """What is to be computed: extents (None: not known), how often beside one another, of what.

    ``whole_lines`` says of A and of B whether their rows start at whole lines of 128 bytes.
    """

    rows: int | None
    columns: int | None
    depth: int | None
    outer: int | None
    element_bytes: int
    whole_lines: tuple[bool, bool] = (True, True)


@dataclass(frozen=True)
class Price:
    """A launch with one tile shape, in cycles of an SM and microseconds, term by term."""

    shape: Shape
    shares: int
    cluster: tuple[int, int]
    tensor_cycles: float
    shared_cycles: float
    l2_cycles: float
    round_cycles: float
    rounds: int
    tiles: int
    waves: float
    sms: int
    compute_us: float
    memory_us: float
    merge_us: float
    microseconds: float

    def terms(self) -> dict[str, Any]:
        """Every term by its name, and the limit, for whoever asks why."""
        flat = {**asdict(self.shape), **{k: v for k, v in asdict(self).items() if k != "shape"}}
        rounded = {k: round(v, 2) if isinstance(v, float) else v for k, v in flat.items()}
        return {**rounded, "limit": self.limit}

    @property
    def moved_bytes(self) -> int:
        """Bytes of 2-byte elements that come from L2, and that wgmma reads from shared memory."""
        shape = self.shape
        read = (shape.rows + shape.columns * shape.warpgroups) * shape.depth * shape.products * 2
        return self.tiles * self.shares * self.rounds * (shape.stage_bytes(2) + read)

    @property
    def filled(self) -> float:
        """The share of the time in which an SM has a tile."""
        return self.tiles * self.shares / (max(self.waves, 1.0) * self.sms)

    @property
    def limit(self) -> str:
        """The engine that this launch waits for."""
        if self.memory_us > self.compute_us:
            return "memory"
        engines = {
            "the tensor pipe": self.tensor_cycles,
            "shared memory": self.shared_cycles,
            "L2": self.l2_cycles,
        }
        return max(engines, key=lambda name: engines[name])


def price(
    target: Target,
    work: Work,
    shape: Shape,
    shares: int = 1,
    cluster: tuple[int, int] = (1, 1),
) -> Price:
    """What a launch costs whose tiles have that shape, its loop over K run in ``shares`` parts.

    ``cluster`` counts CTAs along rows and columns that bring what they share once for all.
    """
    rate = target.tensor_flops_per_cycle * 2 / work.element_bytes
    if shape.rows % 64 and target.has_wgmma:
        rate *= HALF_RATE_MMA
    flops = 2 * shape.rows * shape.columns * shape.depth * shape.products
    tensor = flops / rate / TENSOR_SHARE
    once = (shape.rows + shape.columns * shape.warpgroups) * shape.depth * work.element_bytes
    shared = once * shape.products / SHARED_BYTES_PER_CYCLE
    l2 = _l2_bytes(work, shape, cluster) / L2_BYTES_PER_CYCLE
    outside = max(0, shape.rows - (work.rows or shape.rows)) * OUTSIDE_CYCLES
    each = max(tensor, shared, l2) + ROUND_CYCLES + outside * (not shape.rows % 64)
    together = cluster[0] * cluster[1]
    each += CLUSTER_CYCLES * (together > 1)
    rounds = -(-_tiles(work.depth, shape.depth) // shares)
    blocks = _tiles(work.rows, shape.rows * cluster[0])
    blocks *= _tiles(work.columns, shape.columns * cluster[1])
    tiles = (work.outer or 1) * blocks * together
    waves = tiles * shares / target.sms
    if None not in (work.rows, work.columns, work.outer):
        waves = float(-(-tiles * shares // (target.sms // together * together)))
    compute = waves * rounds * each / target.cycles_per_us
    feeding = min(1.0, FEEDING_SHARE * tiles * shares / target.sms)
    memory = _bytes(work) / _bytes_per_us(target) / feeding
    merge = 0.0
    if shares > 1:
        # Each share writes its state and the merge reads it: both meet L2, not memory.
        state = 4 * shape.rows * shape.columns * tiles * shares
        merge = LAUNCH_US / 2 + 2 * state / _bytes_per_us(target)
    total = max(compute, memory) + merge + LAUNCH_US
    return Price(
        shape, shares, cluster, tensor, shared, l2, each, rounds, tiles, waves, target.sms,
        compute, memory, merge, total,
    )  # fmt: skip


def _l2_bytes(work: Work, shape: Shape, cluster: tuple[int, int]) -> float:
    """Bytes of a stage as a CTA asks L2 for them; what a cluster shares is asked for once."""
    row = shape.depth * work.element_bytes
    touched = [row if whole else row * ACROSS_LINES for whole in work.whole_lines]
    left = shape.rows * shape.lefts * touched[0] / cluster[1]
    return left + shape.columns * shape.rights * touched[1] / cluster[0]


def operand_bytes(work: Work) -> int:
    """Bytes of both operands of one product of those that stand beside one another."""
    m, n, k = (e or TYPICAL_EXTENT for e in (work.rows, work.columns, work.depth))
    return work.element_bytes * (m + n) * k


def _bytes(work: Work) -> float:
    m, n = (e or TYPICAL_EXTENT for e in (work.rows, work.columns))
    return (work.outer or 1) * (operand_bytes(work) + work.element_bytes * m * n)


def _bytes_per_us(target: Target) -> float:
    return target.memory_bytes_per_second * MEMORY_SHARE / 1e6


def _tiles(extent: int | None, size: int) -> int:
    return max(1, -(-(TYPICAL_EXTENT if extent is None else extent) // size))
