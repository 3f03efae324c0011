"""Tiles, rings and roles of kernels with products.

Candidates of 64 rows a warpgroup are ranked by ``costs``; a ring takes what shared memory holds
beside the staging. A pinned size is taken as it is (``fit_tiles`` says how a product runs one that
no warpgroup has).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from tilec.ir.clusters import ALONE
from tilec.ir.core import Op, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import tile
from tilec.passes.axes import AxisClass
from tilec.passes.check_schedule import BadChoices, impossible
from tilec.passes.choose_cluster import possible_clusters
from tilec.passes.costs import Price, Shape, Work, operand_bytes, price
from tilec.passes.eights import in_eights
from tilec.passes.fit_tiles import MOST_COLUMNS, columns_taken, known_multiple, rows_taken
from tilec.passes.form_products import feeds_only_products, source_of
from tilec.passes.frames import FRAGMENT_ROWS, PRODUCT_ROWS, WARPGROUP_WARPS
from tilec.passes.live_results import ACCUMULATOR_BITS, live_results
from tilec.passes.open_choices import MULTIPLE, WARP, OpenChoices
from tilec.passes.operands import ring_refusal, tma_refusal
from tilec.passes.refusal import refused
from tilec.passes.shared_needs import shared_needs
from tilec.passes.tensor_cores import shared_rows
from tilec.targets.base import Target

DEPTH_BYTES = 128
"""Bytes of K in a stage: one swizzle span, the widest that TMA and wgmma share."""
MOST_DEPTH_ALONE = 64
"""Elements of K where the warps bring operands, for which they need registers."""
STAGES = (2, 8)
"""Fewest and most stages of a ring; more than eight hide nothing further."""
GROUPS = (8, 16)
"""Fewest and most rows of tiles that neighbouring CTAs share in L2."""
GROUP_SHARE = 0.4
"""Of L2, what the rows of a group take: at K = 16384 a group of 8 took 12.1 ms, one of 16, whose
rows alone are 67 MB, 14.7."""
REGISTERS = {2: (24, 240), 3: (32, 160)}
"""Producer's and consumers' registers by warpgroups: together they fill the register file."""
TURNS = 2
"""Warpgroups that take tiles in turns where the schedule says `alternate`."""
OTHER_REGISTERS = 40
"""Registers of a thread beside accumulators: 128 of these fit the 168 of three warpgroups."""
WIDE_FRAGMENTS = 48
"""Registers of the operands' fragments of 64-bit elements."""
LEAST_SHARED_ROUNDS = 8
"""Rounds of a tile before a cluster is tried: its CTAs start together and end together."""
ALIKE = 1.02
"""Times that the model does not tell apart."""


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

    def legal(self, dots: list[tile.Dot]) -> tuple[list[Shape], list[Shape]]:
        """The tile shapes that honour the pins, and those of them that fit; refused if none do."""
        main = dots[0]
        element = main.a.type.dtype.bytes
        self.fragments = WIDE_FRAGMENTS if element == 8 else 0
        # In registers of 32 bits, as everything that is counted.
        accumulators = sum(
            -(-bits // ACCUMULATOR_BITS)
            for bits in {_first(op): op.out.type.dtype.bits for op in dots}.values()
        )
        live = max(accumulators, live_results(self.axes, self.kernel.body, dots))
        # A pinned tile may hold more than registers do: it is kept, and what is over spills.
        for held in (live, accumulators):
            shapes = self.shapes(main, self.rings, held)
            fitting = [s for s in shapes if self.fits(s, element, held)]
            if fitting:
                return shapes, fitting
        raise self.no_candidate(main, shapes, element, accumulators)

    def products(self, dots: list[tile.Dot]) -> None:
        """Tile, ring and roles of a kernel with products."""
        main = dots[0]
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
        shapes, fitting = self.legal(dots)
        work = self.work(main)
        prices = self.prices(work, fitting, main)
        best, most = self.fitting(prices, main)
        for axis, size in zip(
            self.tiled(main), (best.shape.rows, best.shape.columns, best.shape.depth), strict=True
        ):
            self.settle(axis, size)
        self.set(warpgroups=best.shape.warpgroups)
        # Without a ring nothing is fetched ahead, so several CTAs an SM hide each other's waits.
        self.set(group=raster_group(self.ctx.target, work, best.shape))
        self.set(persistent=self.many(best, work))
        if best.cluster != ALONE:
            self.set(cluster=best.cluster)
        self.explain(main, best, prices, shapes)
        if mapped:
            element = main.a.type.dtype.bytes
            self.set(stages=self.stages(best.shape, element, work, most, main))
            # A warp that computes the addresses of copies needs its share of registers.
            if self.ctx.target.has_setmaxnreg and not self.copied(dots):
                consumers = self.consumers(self.schedule.warpgroups or 0)
                self.set(registers=REGISTERS.get(consumers, ()))
        elif most < STAGES[0]:
            self.set(stages=most)

    def prices(self, work: Work, shapes: list[Shape], main: tile.Dot) -> list[Price]:
        """What each shape costs, alone and in the clusters that may be."""
        alone = [price(self.ctx.target, work, shape) for shape in shapes]
        rows, columns, _ = self.tiled(main)
        clusters = possible_clusters(self.kernel, self.ctx, self.axes, rows, columns)
        if not self.rings or (all(work.whole_lines) and ALONE in clusters):
            return alone
        shared = [
            price(self.ctx.target, work, found.shape, cluster=cluster)
            for found in alone
            for cluster in clusters
            if cluster != ALONE and self.many(found, work) and found.rounds >= LEAST_SHARED_ROUNDS
        ]
        return [*alone, *shared] if ALONE in clusters else shared or alone

    def many(self, best: Price, work: Work) -> bool:
        """Whether CTAs go from tile to tile: there may be more of these than SMs."""
        known = None not in (work.rows, work.columns, work.outer)
        one = known and best.tiles <= self.ctx.target.sms
        return self.rings and (bool(self.schedule.alternate) or not one)

    def fitting(self, prices: list[Price], main: tile.Dot) -> tuple[Price, int]:
        """The cheapest that fits shared memory whole, and the most stages that it leaves room.

        One stage hides nothing, so it comes last; where nothing fits, ``place-shared`` says so.
        """
        most: dict[Shape, int] = {}
        for least in (self.schedule.stages or STAGES[0], 1):
            left = list(prices)
            while left:
                best = cheapest(left)
                if best.shape not in most:
                    most[best.shape] = self.most_stages(best, main)
                if most[best.shape] >= least:
                    return best, most[best.shape]
                left.remove(best)
        return cheapest(prices), STAGES[1]

    def most_stages(self, chosen: Price, main: tile.Dot) -> int:
        """The most stages of open rings that fit beside all else; 0 if that does not fit."""
        shape, settled = chosen.shape, dict(self.sizes)
        for axis, size in zip(
            self.tiled(main), (shape.rows, shape.columns, shape.depth), strict=True
        ):
            self.settle(axis, size)
        self.rest(main)
        persistent = self.schedule.persistent
        trial = replace(
            self.schedule,
            tiles=tuple((name[1:], size) for name, size in self.sizes.items()),
            warpgroups=self.schedule.warpgroups or shape.warpgroups,
            persistent=self.many(chosen, self.work(main)) if persistent is None else persistent,
        )
        self.sizes = settled
        needs = shared_needs(self.kernel, self.ctx, trial)
        return STAGES[1] if needs is None else needs.most_stages(self.ctx.target.shared_per_cta)

    def tiled(self, main: tile.Dot) -> tuple[AxisClass, AxisClass, AxisClass]:
        """The classes of a product's rows, columns and depth."""
        rows, columns = self.axes.of(main.out, 0), self.axes.of(main.out, 1)
        deep = self.axes.of(main.a, 1)
        if rows is None or columns is None or deep is None:
            raise Refused("a product along an axis of extent one is not tiled in this version")
        return rows, columns, deep

    def best_of_shares(self, counts: Sequence[int]) -> dict[int, Price]:
        """The best price for each number of shares in which the loop over K may run."""
        dots = self.dots()
        self.known_axes()
        self.rings = self.mapped(dots)
        work = self.work(dots[0])
        if None in (work.rows, work.columns, work.depth, work.outer):
            return {}
        _, fitting = self.legal(dots)
        return {
            count: cheapest([price(self.ctx.target, work, shape, count) for shape in fitting])
            for count in counts
        }

    def work(self, main: tile.Dot) -> Work:
        """What the first product amounts to in a launch, as far as sizes are known."""
        rows, columns, deep = self.tiled(main)
        lines = tuple(self.whole_lines(source_of(operand)[0]) for operand in (main.a, main.b))
        element = main.a.type.dtype.bytes
        depth = self.bound(deep)
        for op in self.kernel.body.walk():
            if isinstance(op, tile.ForShare) and depth is not None:
                depth = -(-depth // op.count)
        extents = (self.bound(rows), self.bound(columns), depth)
        return Work(*extents, self.outer(), element, (lines[0], lines[1]))

    def whole_lines(self, operand: Value[Any]) -> bool:
        """Whether the rows of an operand's array start at whole lines of memory.

        A packed array is assumed: its rows are as long as its contiguous axis.
        """
        load = operand.owner
        if not isinstance(load, tile.Load):
            return True
        array = load.array.type
        facts = self.ctx.facts.array(load.array.name or "")
        if facts is None or facts.unit_axis < 0:
            return True
        extent = array.shape[facts.unit_axis]
        step = extent if isinstance(extent, int) else self.ctx.facts.multiple(extent)
        return self.ctx.facts.extent(str(extent)) is None or step * array.dtype.bytes % 128 == 0

    def explain(
        self, main: tile.Dot, best: Price, prices: list[Price], shapes: list[Shape]
    ) -> None:
        """The choice, and every candidate with its terms or the reason against it."""
        shape, sms = best.shape, self.ctx.target.sms
        self.ctx.remark(
            main,
            f"tiles of {shape.rows} x {shape.columns} x {shape.depth}, {shape.warpgroups} "
            f"warpgroups: least time of {len(prices)} candidates over {sms} SMs; "
            f"{best.limit} sets the pace"
            + (f"; clusters of {best.cluster}" if best.cluster != ALONE else ""),
            tile_sizes=(shape.rows, shape.columns, shape.depth),
            operands_by_tma=self.rings,
            chosen=best.terms(),
            candidates=[p.terms() for p in sorted(prices, key=lambda p: p.microseconds)],
            rejected=[
                {**asdict(s), "reason": self.too_large(s, main)}
                for s in shapes
                if s not in {p.shape for p in prices}
            ],
        )

    def too_large(self, shape: Shape, main: tile.Dot) -> str:
        """Which limit a shape does not keep."""
        element = main.a.type.dtype.bytes
        least = (self.schedule.stages or STAGES[0]) if self.rings else 1
        if self.room(shape, element) < least * shape.stage_bytes(element):
            return f"{least} stages do not fit shared memory"
        return "its accumulators do not fit the registers"

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

    def shapes(self, main: tile.Dot, mapped: bool, accumulators: int) -> list[Shape]:
        """Tile shapes that honour the pins."""
        rows, columns, deep = self.tiled(main)
        pinned = [self.pinned(axis) for axis in (rows, columns, deep)]
        sharing = (1, 2, 3) if shared_rows(self.axes, self.kernel.body) is rows else (1,)
        groups = (self.schedule.warpgroups,) if self.schedule.warpgroups else sharing
        if self.schedule.alternate:
            groups = (1,)
        heights = [(PRODUCT_ROWS * w, w) for w in groups] if mapped else [(PRODUCT_ROWS, 1)]
        most_rows = self.bound(rows)
        if most_rows is not None and most_rows < PRODUCT_ROWS and self.schedule.warpgroups is None:
            heights += [(h, 1) for h in range(FRAGMENT_ROWS, PRODUCT_ROWS, FRAGMENT_ROWS)]
        if pinned[0] is not None:
            height = pinned[0] if rows in self.resident() else rows_taken(pinned[0], mapped)
            heights = [(height, max(1, height // PRODUCT_ROWS) if len(sharing) > 1 else 1)]
        most = columns_taken(MOST_COLUMNS, mapped) // accumulators
        widths = self.widths(main, columns, most, mapped)
        if pinned[1] is not None:
            widths = [columns_taken(pinned[1], mapped)]
        element = main.a.type.dtype.bytes
        deepest = DEPTH_BYTES // element
        depth = pinned[2] or (deepest if mapped else min(deepest, MOST_DEPTH_ALONE))
        lefts, rights = self.operands(rows, columns)
        # Fewer rows than a warpgroup has are mma.sync's, whose warps share columns by sixteens.
        fine = {h: MULTIPLE if h % PRODUCT_ROWS and pinned[1] is None else 1 for h, _ in heights}
        return [
            Shape(h, w, depth, g, lefts, rights)
            for h, g in heights
            for w in widths
            if w % fine[h] == 0
        ]

    def widths(self, main: tile.Dot, columns: AxisClass, most: int, mapped: bool) -> list[int]:
        """Columns of tiles: in sixteens, and in eights where wgmma reads operands of TMA."""
        widths = set(range(MULTIPLE, most + 1, MULTIPLE))
        if mapped and not self.copied(self.dots()):
            eights = in_eights(self.ctx, self.axes, self.kernel, columns)
            widths.update(w for w in eights if MULTIPLE <= w <= most)
        return sorted(widths)

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
        threads = WARP * WARPGROUP_WARPS * (self.consumers(shape.warpgroups) + 1)
        each = self.ctx.target.registers_per_sm // threads // 8 * 8
        held = shape.columns // 2 * accumulators + OTHER_REGISTERS + self.fragments
        return held <= min(each, self.ctx.target.registers_per_thread)

    def consumers(self, sharing: int) -> int:
        """The consumer warpgroups of a CTA, or their rows, where so many share a tile."""
        return sharing * TURNS if self.schedule.alternate else sharing

    def room(self, shape: Shape, element: int) -> int:
        """Bytes for the ring: all but two staging halves and the barriers."""
        rows = self.consumers(shape.rows)
        staging = 2 * rows * min(shape.columns * 2, DEPTH_BYTES) * self.ctx.target.has_tma
        return self.ctx.target.shared_per_cta - staging - 1024

    def stages(self, shape: Shape, element: int, work: Work, most: int, at: Op) -> int:
        """As many stages as fit, ``most`` of them, but no more than rounds of K."""
        fits = min(most, self.room(shape, element) // shape.stage_bytes(element))
        rounds = STAGES[1] if work.depth is None else -(-work.depth // shape.depth)
        each = shape.stage_bytes(element)
        wide = each * 4 > self.ctx.target.shared_per_cta * 3 // 4
        cap = 3 if wide and operand_bytes(work) > 2 * self.ctx.target.l2_bytes else STAGES[1]
        if self.schedule.stages is None and cap < min(fits, rounds):
            why = (
                "operands beyond L2 were measured faster so on an H200, since CTAs that fetch less "
                "far ahead find more of them there"
                if cap < STAGES[1]
                else "more hide nothing further"
            )
            self.ctx.remark(
                at,
                f"{cap} stages of {each // 1024} KB, where {fits} would fit: {why}; "
                f"stages={fits} tries the other",
                stage_bytes=each,
                most_stages_that_fit=fits,
            )
        return max(min(most, STAGES[0]), min(fits, rounds, cap, STAGES[1]))

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


def cheapest(prices: list[Price]) -> Price:
    """Of the prices that the model cannot tell apart, the one that moves the fewest bytes.

    Columns in sixteens come first among them: of others a part leaves from registers.
    A large launch on this chip ends at its power limit, and bytes cost energy. Where memory sets
    the pace, all multiprocessors are to ask for a part of it.
    """
    least = min(p.microseconds for p in prices)
    close = [p for p in prices if p.microseconds <= least * ALIKE]
    if any(p.limit == "memory" for p in close):
        return min(close, key=lambda p: (-round(p.filled, 1), *_order(p)))
    return min(close, key=_order)


def _order(price: Price) -> tuple[bool, int, float]:
    return price.shape.columns % MULTIPLE != 0, price.moved_bytes, price.microseconds


def raster_group(target: Target, work: Work, shape: Shape) -> int:
    """Rows of tiles whose operand stays in L2 while the raster moves along the columns."""
    if work.depth is None:
        return GROUPS[1]
    each = shape.rows * shape.lefts * work.depth * work.element_bytes
    return max(GROUPS[0], min(GROUPS[1], int(target.l2_bytes * GROUP_SHARE / max(each, 1))))


def _first(op: tile.Dot) -> Value[Any]:
    """What a chain of products, each on the one before, adds to."""
    while isinstance(op.acc.owner, tile.Dot):
        op = op.acc.owner
    return op.acc
