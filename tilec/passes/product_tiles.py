"""Tiles, rings and roles of kernels with products.

Candidates of 64 rows a warpgroup are ranked by ``costs``; a ring takes what shared memory holds
beside the staging. A pinned size is taken as it is (``fit_tiles`` says how a product runs one that
no warpgroup has).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import tile
from tilec.passes.axes import AxisClass
from tilec.passes.check_schedule import BadChoices, impossible
from tilec.passes.costs import Shape, launch_cycles
from tilec.passes.fit_tiles import columns_taken, known_multiple, rows_taken
from tilec.passes.form_products import feeds_only_products, source_of
from tilec.passes.frames import PRODUCT_ROWS, WARPGROUP_WARPS
from tilec.passes.live_results import ACCUMULATOR_BITS, live_results
from tilec.passes.open_choices import MULTIPLE, WARP, OpenChoices
from tilec.passes.operands import ring_refusal, tma_refusal
from tilec.passes.refusal import refused

COLUMNS = (16, 32, 64, 128, 256)
DEPTH_BYTES = 128
"""Bytes of K in a stage: one swizzle span, the widest that TMA and wgmma share."""
MOST_DEPTH_ALONE = 64
"""Elements of K where the warps bring operands, for which they need registers."""
STAGES = (2, 8)
"""Fewest and most stages of a ring; more than eight hide nothing further."""
GROUP = 16
"""Rows of tiles that neighbouring CTAs share in L2; 8 to 32 measured alike."""
REGISTERS = {2: (24, 240), 3: (32, 160)}
"""Producer's and consumers' registers by warpgroups: together they fill the register file."""
OTHER_REGISTERS = 40
"""Registers of a thread beside accumulators: 128 of these fit the 168 of three warpgroups."""
WIDE_FRAGMENTS = 48
"""Registers of the operands' fragments of 64-bit elements."""


class ProductTiles(OpenChoices):
    """The open choices of a kernel with products."""

    fragments = 0
    """Registers that fragments take beside what all products have."""

    def decide(self) -> None:
        """Known axes as long as products ask for, the first product's tile, and what is beside."""
        dots = self.dots()
        self.known_axes()
        self.products(dots)
        self.rest(dots[0])

    def dots(self) -> list[tile.Dot]:
        """All products, in text order."""
        return [op for op in self.kernel.body.walk() if isinstance(op, tile.Dot)]

    def products(self, dots: list[tile.Dot]) -> None:
        """Tile, ring and roles of a kernel with products."""
        main = dots[0]
        rows, columns = self.axes.of(main.out, 0), self.axes.of(main.out, 1)
        deep = self.axes.of(main.a, 1)
        element = main.a.type.dtype.bytes
        self.fragments = WIDE_FRAGMENTS if element == 8 else 0
        # In registers of 32 bits, as everything that is counted.
        accumulators = sum(
            -(-bits // ACCUMULATOR_BITS)
            for bits in {_first(op): op.out.type.dtype.bits for op in dots}.values()
        )
        live = max(accumulators, live_results(self.axes, self.kernel.body, dots))
        mapped = self.rings = self.mapped(dots)
        if not mapped:
            # The warps bring operands themselves, which one warpgroup does for itself.
            if self.schedule.warpgroups not in (None, 1):
                self.ctx.remark(
                    main,
                    f"warpgroups = {self.schedule.warpgroups} has no effect: TMA does not bring "
                    "the operands, and one warpgroup brings them for itself",
                )
            self.schedule = replace(self.schedule, warpgroups=None)
        extents = (self.bound(rows), self.bound(columns), self.bound(deep))
        best = min(
            # A pinned tile may hold more than registers do: it is kept, and what is over spills.
            self.candidates(rows, columns, deep, element, mapped, live)
            or self.candidates(rows, columns, deep, element, mapped, accumulators),
            key=lambda s: launch_cycles(self.ctx.target, s, element, extents, 1),
            default=None,
        )
        if best is None:
            shapes = self.shapes(rows, columns, deep, element, mapped, accumulators)
            raise self.no_candidate(main, shapes, element, accumulators)
        for axis, size in ((rows, best.rows), (columns, best.columns), (deep, best.depth)):
            if axis is not None:
                self.settle(axis, size)
        self.set(warpgroups=best.warpgroups)
        tiles = self.tiles(rows, best.rows, columns, best.columns)
        # Without a ring nothing is fetched ahead, so several CTAs an SM hide each other's waits.
        many = mapped and (tiles is None or tiles > self.ctx.target.sms)
        self.set(group=GROUP, persistent=many)
        self.ctx.remark(
            main,
            f"tiles of {best.rows} x {best.columns} x {best.depth}, {best.warpgroups} warpgroups: "
            f"least cycles of the candidates over {self.ctx.target.sms} SMs",
            tile_sizes=(best.rows, best.columns, best.depth),
            operands_by_tma=mapped,
        )
        if mapped:
            self.set(stages=self.stages(best, element, extents[2], main))
            # A warp that computes the addresses of copies needs its share of registers.
            if self.ctx.target.has_setmaxnreg and not self.copied(dots):
                self.set(registers=REGISTERS.get(self.schedule.warpgroups or 0, ()))

    def mapped(self, dots: list[tile.Dot]) -> bool:
        """Whether a ring brings every operand."""
        for op in dots:
            for operand in (op.a, op.b):
                load = source_of(operand)[0].owner
                if not isinstance(load, tile.Load):
                    return False
                reason = ring_refusal(self.ctx, load, self.uses)
                if reason is not None or not feeds_only_products(load.out, self.uses):
                    return False
        return True

    def copied(self, dots: list[tile.Dot]) -> bool:
        """Whether threads copy an operand."""
        loads = [source_of(v)[0].owner for op in dots for v in (op.a, op.b)]
        return any(
            isinstance(load, tile.Load) and tma_refusal(self.ctx, load, self.uses) is not None
            for load in loads
        )

    def no_candidate(
        self, main: tile.Dot, shapes: list[Shape], element: int, accumulators: int
    ) -> Refused:
        """Why every candidate fell to the pins; of stages, how many there could be."""
        held = [s for s in shapes if self.holds(s, accumulators)]
        most = max((self.room(s, element) // s.stage_bytes(element) for s in held), default=0)
        asked = self.ctx.schedule.stages
        if asked is not None and asked > most >= 1:
            return BadChoices(
                [
                    impossible(
                        "stages",
                        asked,
                        f"that many do not fit {self.ctx.target.shared_per_cta} bytes of shared "
                        "memory beside the staging of the result",
                        f"the most that fit are `stages={most}`",
                        main,
                    )
                ]
            )
        pins = {**dict(self.ctx.schedule.tiles), "stages": self.schedule.stages or STAGES[0]}
        listed = ", ".join(f"{name} = {value}" for name, value in pins.items())
        return refused(
            main,
            f"no tile with {listed} fits {self.ctx.target.shared_per_cta} bytes of shared memory, "
            "and its accumulators the registers",
            "pin smaller tiles or fewer stages; take a known axis that is too long for one tile in "
            "parts, by a loop",
        )

    def tiles(
        self, rows: AxisClass | None, height: int, columns: AxisClass | None, width: int
    ) -> int | None:
        """Tiles of a launch, if its extents are bounded and nothing is beside them."""
        m, n = self.bound(rows), self.bound(columns)
        loops = [op for op in self.kernel.body.ops if isinstance(op, tile.Parallel)]
        if m is None or n is None or any(len(op.sizes) > 2 for op in loops):
            return None
        return -(-m // height) * -(-n // width)

    def candidates(
        self,
        rows: AxisClass | None,
        columns: AxisClass | None,
        deep: AxisClass | None,
        element: int,
        mapped: bool,
        accumulators: int,
    ) -> list[Shape]:
        """Tile shapes that honour the pins, register and shared memory limits."""
        shapes = self.shapes(rows, columns, deep, element, mapped, accumulators)
        return [s for s in shapes if self.fits(s, element, accumulators)]

    def shapes(
        self,
        rows: AxisClass | None,
        columns: AxisClass | None,
        deep: AxisClass | None,
        element: int,
        mapped: bool,
        accumulators: int,
    ) -> list[Shape]:
        """Tile shapes that honour the pins."""
        if rows is None or columns is None or deep is None:
            raise Refused("a product along an axis of extent one is not tiled in this version")
        pinned = [self.pinned(axis) for axis in (rows, columns, deep)]
        groups = (self.schedule.warpgroups,) if self.schedule.warpgroups else (1, 2)
        heights = [(PRODUCT_ROWS * w, w) for w in groups] if mapped else [(PRODUCT_ROWS, 1)]
        if pinned[0] is not None:
            height = pinned[0] if rows in self.resident() else rows_taken(pinned[0], mapped)
            heights = [(height, max(1, height // PRODUCT_ROWS))]
        most = columns_taken(max(COLUMNS), mapped)
        widths = [c for c in COLUMNS if c <= most // accumulators]
        if pinned[1] is not None:
            widths = [columns_taken(pinned[1], mapped)]
        deepest = DEPTH_BYTES // element
        depth = pinned[2] or (deepest if mapped else min(deepest, MOST_DEPTH_ALONE))
        lefts, rights = self.operands(rows, columns)
        return [Shape(h, w, depth, g, lefts, rights) for h, g in heights for w in widths]

    def operands(self, rows: AxisClass, columns: AxisClass) -> tuple[int, int]:
        """How many loads with these rows, and with these columns, feed the products."""
        found: tuple[set[Any], set[Any]] = (set(), set())
        for op in self.kernel.body.walk():
            if isinstance(op, tile.Dot):
                for side, (operand, axis) in enumerate(((op.a, 0), (op.b, 1))):
                    if self.axes.of(operand, axis) in (rows, columns):
                        found[side].add(source_of(operand)[0])
        return max(1, len(found[0])), max(1, len(found[1]))

    def fits(self, shape: Shape, element: int, accumulators: int) -> bool:
        """Whether the fewest stages fit shared memory, and the accumulators the registers."""
        least = (self.schedule.stages or STAGES[0]) if self.rings else 1
        room = self.room(shape, element) >= least * shape.stage_bytes(element)
        return room and self.holds(shape, accumulators)

    def holds(self, shape: Shape, accumulators: int) -> bool:
        """Whether registers hold the accumulators beside what else a thread needs."""
        threads = WARP * WARPGROUP_WARPS * (shape.warpgroups + 1)
        each = self.ctx.target.registers_per_sm // threads // 8 * 8
        held = shape.columns // 2 * accumulators + OTHER_REGISTERS + self.fragments
        return held <= min(each, self.ctx.target.registers_per_thread)

    def room(self, shape: Shape, element: int) -> int:
        """Bytes for the ring: all but two staging halves and the barriers."""
        staging = 2 * shape.rows * min(shape.columns * 2, DEPTH_BYTES) * self.ctx.target.has_tma
        return self.ctx.target.shared_per_cta - staging - 1024

    def stages(self, shape: Shape, element: int, deep: int | None, at: Op) -> int:
        """As many stages as fit, but no more than rounds of K or than hide anything."""
        fits = self.room(shape, element) // shape.stage_bytes(element)
        rounds = STAGES[1] if deep is None else -(-deep // shape.depth)
        # Three stages of the widest tile were measured faster than four (tighter reuse in L2).
        each = shape.stage_bytes(element)
        cap = 3 if each * 4 > self.ctx.target.shared_per_cta * 3 // 4 else 8
        if self.schedule.stages is None and cap < min(fits, rounds):
            self.ctx.remark(
                at,
                f"{cap} stages of {each // 1024} KB, where {fits} would fit: measured faster on an "
                "H200, since CTAs that fetch less far ahead find more of it in L2; "
                f"stages={fits} tries the other",
                stage_bytes=each,
                most_stages_that_fit=fits,
            )
        return max(STAGES[0], min(fits, rounds, cap, STAGES[1]))

    def known_axes(self) -> None:
        """A known axis that products pad is one tile, as long as they ask for."""
        for axis in self.resident():
            extent = axis.index.type.extent if axis.index is not None else None
            if isinstance(extent, int) and isinstance(axis.size, str):
                step = known_multiple(self.axes, self.kernel.body, axis)
                self.choose(axis.size, -(-extent // step) * step)

    def rest(self, at: Op) -> None:
        """Sizes beside the first product's: resident axes whole, others as the first one's."""
        for symbol in self.symbols():
            if symbol in self.sizes:
                continue
            axis = self.class_of(symbol)
            bound = self.bound(axis)
            whole = axis in self.resident()
            if whole and bound is None:
                raise refused(at, f"the length of {symbol[1:]} needs a bound to stay resident")
            self.choose(symbol, -(-(bound or 1) // MULTIPLE) * MULTIPLE if whole else 64)


def _first(op: tile.Dot) -> Value[Any]:
    """What a chain of products, each on the one before, adds to."""
    while isinstance(op.acc.owner, tile.Dot):
        op = op.acc.owner
    return op.acc
