"""Choose what the schedule leaves open: tile sizes, stages, warpgroups, raster, vectors.

Products: candidates of 64 rows a warpgroup are ranked by ``costs``; a ring takes what shared memory
holds beside the staging. Without products a kernel moves memory, so a tile is what keeps enough
16-byte accesses in flight: rows that are needed whole stay in registers, a few warps to a row, and
elementwise tiles give each thread four vectors.

An axis along which nothing is combined may be cut anywhere, so its size has no meaning and may be
any number from 1; every other size is a multiple of 16, as the language promises. A pinned size is
taken as it is (``fit_tiles`` says how a product runs one that no warpgroup has). Sizes that are not
known at compile time come from ``Facts.extents`` as upper bounds; what must be resident and has no
bound is refused.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Kernel, Op, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import math, tile
from tilec.ir.types import Extent, Index, Tile, is_symbol
from tilec.passes.axes import Axes, AxisClass, combined_axis
from tilec.passes.base import Context, tile_pass
from tilec.passes.check_schedule import MOST, BadChoices, check_schedule, impossible, shown_value
from tilec.passes.costs import Shape, launch_cycles
from tilec.passes.fit_tiles import columns_taken, known_multiple, rows_taken
from tilec.passes.form_products import feeds_only_products, source_of
from tilec.passes.frames import (
    ELEMENTS_PER_THREAD,
    PRODUCT_ROWS,
    WARPGROUP_WARPS,
    access_vector,
    vector_of,
    warps_per_row,
)
from tilec.passes.live_results import live_results
from tilec.passes.mapping import contiguous_axis, tile_axes
from tilec.passes.operands import ring_refusal, tma_refusal
from tilec.passes.refusal import refused
from tilec.passes.unformed import refuse_unformed

WARP = 32
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
RESIDENT_ELEMENTS = 64
"""Most elements of a row in one thread: with two copies of it the registers are full."""
ROW_WARPS = 16
"""Most warps of a row: at 512 threads each has 128 registers."""
VECTORS_IN_FLIGHT = 4
MOST_ACCESSES = 32
"""Accesses of one thread to all arrays: each holds an address of two registers and its data."""
MOST_OPERATIONS = 2048
"""Elementwise operations that a thread runs for its tile, all elements together."""
MULTIPLE = 16


class Chooser:
    """The open choices of one kernel."""

    def __init__(self, kernel: Kernel, ctx: Context) -> None:
        self.kernel, self.ctx = kernel, ctx
        self.axes = Axes(kernel.body)
        self.uses = rewrite.uses(kernel.body)
        self.sizes: dict[str, int] = {f"${n}": s for n, s in ctx.schedule.tiles}
        self.schedule = replace(ctx.schedule)
        self.rings = False

    # -- what is known -------------------------------------------------------------------------

    def bound(self, axis: AxisClass | None) -> int | None:
        """The upper bound of the extent that a class runs over."""
        if axis is None:
            return 1
        if axis.index is None:
            return axis.size if isinstance(axis.size, int) else None
        extent = axis.index.type.extent
        return extent if isinstance(extent, int) else self.ctx.facts.extent(extent)

    def size(self, extent: Extent) -> int | None:
        """A size that is pinned, static or chosen already."""
        return extent if isinstance(extent, int) else self.sizes.get(extent)

    def choose(self, extent: Extent, size: int) -> None:
        """Settle a size symbol that is still open."""
        if is_symbol(extent):
            self.sizes.setdefault(str(extent), size)

    def set(self, **choices: Any) -> None:
        """Settle schedule fields that are still open."""
        open_fields = {
            key: value
            for key, value in choices.items()
            if getattr(self.schedule, key) in (None, ())
        }
        self.schedule = replace(self.schedule, **open_fields)

    def class_of(self, symbol: Extent) -> AxisClass | None:
        """The class that a size symbol belongs to."""
        for op in self.kernel.body.walk():
            values = [*op.results, *(a for r in op.regions for a in r.args)]
            for value in values:
                if isinstance(value.type, Index) and value.type.size == symbol:
                    return self.axes.of(value, 0)
        return None

    def symbols(self) -> list[str]:
        """Size symbols of the kernel, in text order."""
        found: dict[str, None] = {}
        for op in self.kernel.body.walk():
            for value in (*op.results, *(a for r in op.regions for a in r.args)):
                if isinstance(value.type, Index) and is_symbol(value.type.size):
                    found.setdefault(str(value.type.size))
                if isinstance(value.type, Tile):
                    found.update(dict.fromkeys(str(s) for s in value.type.shape if is_symbol(s)))
        return list(found)

    def combined(self, axis: AxisClass) -> bool:
        """Whether some op combines elements along a class."""
        for op in self.kernel.body.walk():
            if combined_axis(self.axes, op) is axis:
                return True
            if isinstance(op, tile.Dot) and axis in self.axes.all_of(op.a) + self.axes.all_of(op.b):
                return True
        return False

    # -- products ------------------------------------------------------------------------------

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

    def products(self, dots: list[tile.Dot]) -> None:
        """Tile, ring and roles of a kernel with products."""
        main = dots[0]
        rows, columns = self.axes.of(main.out, 0), self.axes.of(main.out, 1)
        deep = self.axes.of(main.a, 1)
        element = main.a.type.dtype.bytes
        accumulators = len({_first(op) for op in dots})
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

    def settle(self, axis: AxisClass, size: int) -> None:
        """Give a size to every symbol of a class."""
        for value, place in axis.members:
            extent = value.type.shape[place] if isinstance(value.type, Tile) else value.type.size
            self.choose(extent, size)

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

    def pinned(self, axis: AxisClass) -> int | None:
        """The size that a class already has."""
        for value, place in axis.members:
            extent = value.type.shape[place] if isinstance(value.type, Tile) else value.type.size
            size = self.size(extent)
            if size is not None:
                return size
        return None

    def fits(self, shape: Shape, element: int, accumulators: int) -> bool:
        """Whether the fewest stages fit shared memory, and the accumulators the registers."""
        least = (self.schedule.stages or STAGES[0]) if self.rings else 1
        room = self.room(shape, element) >= least * shape.stage_bytes(element)
        return room and self.holds(shape, accumulators)

    def holds(self, shape: Shape, accumulators: int) -> bool:
        """Whether registers hold the accumulators beside what else a thread needs."""
        threads = WARP * WARPGROUP_WARPS * (shape.warpgroups + 1)
        each = self.ctx.target.registers_per_sm // threads // 8 * 8
        held = shape.columns // 2 * accumulators
        return held + OTHER_REGISTERS <= min(each, self.ctx.target.registers_per_thread)

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

    # -- no products ---------------------------------------------------------------------------

    def resident(self) -> list[AxisClass]:
        """Classes whose whole extent a tile holds (``:`` of an axis known at launch only)."""
        found: dict[AxisClass, None] = {}
        for op in self.kernel.body.walk():
            if isinstance(op, tile.Whole):
                axis = self.axes.of(op.out, 0)
                if axis is not None:
                    found.setdefault(axis)
        return list(found)

    def rows(self, whole: AxisClass, at: Op) -> None:
        """A resident row axis: its size class, warps, and how many rows a CTA takes."""
        bound = self.bound(whole)
        if bound is None:
            raise refused(
                at,
                f"`:` holds all of {whole.name} in registers, so its length needs a bound: give "
                f"it at the launch or by --shape {whole.name.lstrip('$')}=...",
            )
        vector = access_vector(self.ctx, self.axes, self.kernel.body, whole)
        most = ROW_WARPS
        if self.schedule.warpgroups:
            most = WARPGROUP_WARPS * self.schedule.warpgroups
        warps = warps_per_row(bound, most)
        if self.alone(whole):
            warps = max(warps, WARPGROUP_WARPS)
        grain = WARP * warps * vector
        size = -(-max(bound, 1) // grain) * grain
        pinned = self.pinned(whole)
        size = pinned or size
        held = size // (WARP * warps)
        if held > RESIDENT_ELEMENTS:
            raise refused(
                at,
                f"a row of {bound} elements does not fit the registers of {most * WARP} threads "
                f"({RESIDENT_ELEMENTS} each, {RESIDENT_ELEMENTS * WARP * most} in all)",
                "take it in tiles: `for j in tiles(N):`, carrying what is combined; or promise a "
                "shorter one with `--shape`",
            )
        self.settle(whole, size)
        total = max(WARPGROUP_WARPS, warps)
        self.set(warpgroups=total // WARPGROUP_WARPS)
        teams = WARPGROUP_WARPS * (self.schedule.warpgroups or 1) // warps
        several = 1
        while several * 2 * held <= ELEMENTS_PER_THREAD and several < MULTIPLE:
            several *= 2
        self.others(self.resident(), teams * several)
        self.ctx.remark(
            at,
            f"rows of up to {size} stay in registers: {warps} warps a row, {held} elements a "
            f"thread, {teams * several} row{'s'[: teams * several - 1]} a CTA",
        )

    def alone(self, whole: AxisClass) -> bool:
        """Whether rows are vectors of their own, which all warps of a CTA share."""
        return all(
            len(op.x.type.shape) == 1
            for op in self.kernel.body.walk()
            if isinstance(op, math.Reduce) and self.axes.of(op.x, op.axis) is whole
        )

    def others(self, done: list[AxisClass], rows: int) -> None:
        """Sizes of the classes beside a resident one: cut freely where nothing is combined."""
        first = True
        for symbol in self.symbols():
            axis = self.class_of(symbol)
            if axis is None or axis in done or symbol in self.sizes:
                continue
            if self.combined(axis):
                self.choose(symbol, MULTIPLE)
            else:
                self.choose(symbol, rows if first else 1)
                first = False

    def elementwise(self) -> None:
        """Tiles that give each thread four vectors along memory."""
        open_symbols = [s for s in self.symbols() if s not in self.sizes]
        axes = [a for a in (self.class_of(s) for s in open_symbols) if a is not None]
        if not axes:
            return
        vectors = {a: access_vector(self.ctx, self.axes, self.kernel.body, a) for a in axes}
        # Where vectors are widest memory is contiguous; without a promise, the last axis is.
        along = max(reversed(axes), key=lambda a: vectors[a])
        threads = WARP * WARPGROUP_WARPS * (self.schedule.warpgroups or 1)
        self.set(warpgroups=1)
        each = self.elements(max(vectors[along], 2) * VECTORS_IN_FLIGHT, along)
        most = threads * each
        bound = self.bound(along)
        width = MULTIPLE
        across = self.beside(along) if len(axes) == 1 else MULTIPLE
        while width * 2 * across <= most and width < MOST and (bound is None or width < bound):
            width *= 2
        self.settle(along, width)
        left = max(1, most // width)
        for axis in axes:
            if axis is along or self.pinned(axis) is not None:
                continue
            free = not self.combined(axis)
            size = left if left >= MULTIPLE or free else MULTIPLE
            self.settle(axis, size)
            left = 1
        stores = (op for op in self.kernel.body.walk() if isinstance(op, tile.Store))
        self.ctx.remark(
            next(stores, None),
            f"tiles of {width} along {along.name}, {vectors[along]} elements an access: "
            f"{each} elements a thread",
        )

    def elements(self, most: int, along: AxisClass) -> int:
        """Elements a thread, where memory asks for ``most``: fewer if their work is long.

        Straight code for an element grows with the program, and a program of many ops waits for
        them, not for memory; accesses that are no vectors need an address and a register each,
        and so do those of an array that is contiguous along another axis than ``along``.
        """
        ops = accesses = 0
        for op in self.kernel.body.walk():
            if isinstance(op, tile.Load | tile.Store):
                last = contiguous_axis(self.ctx, op.array, tile_axes(op.subscripts))
                wide = 1
                if last is not None and self.runs_along(op.subscripts[last], along):
                    wide = vector_of(self.ctx, op, last, most)
                accesses += most // wide
            elif isinstance(op, math.Elementwise | math.Cast):
                ops += any(isinstance(r.type, Tile) for r in op.results)
        fewer = 1
        while fewer < most and (
            accesses > MOST_ACCESSES * fewer or ops * most > MOST_OPERATIONS * fewer
        ):
            fewer *= 2
        return most // fewer

    def runs_along(self, subscript: Value[Any], axis: AxisClass) -> bool:
        """Whether a subscript is an index of that class of axes."""
        kind = subscript.type
        return isinstance(kind, Index) and self.class_of(str(kind.size)) is axis

    def offered(self) -> None:
        """Of the sizes that the author offers for a loop, take the first unless one is pinned."""
        there = self.symbols()
        for name, sizes in self.kernel.attributes.get("choices", ()):
            if f"${name}" not in there:  # the loop was dropped: nothing uses what it computes
                continue
            size = self.sizes.setdefault(f"${name}", sizes[0])
            listed = ", ".join(map(str, sizes))
            self.ctx.remark(
                None, f"tiles.{name} = {size}, where {listed} are offered: the first unless pinned"
            )

    def beside(self, along: AxisClass) -> int:
        """Elements of the sizes that are settled beside an axis, in the widest tile that has it."""
        widest = 1
        for value, _ in along.members:
            others = [a for a in self.axes.all_of(value) if a is not None and a is not along]
            sizes = [self.pinned(a) or 1 for a in others]
            widest = max(widest, prod(sizes))
        return widest

    def run(self) -> None:
        """Choose everything, and record it in the kernel."""
        refuse_unformed(self.kernel)
        check_schedule(self.kernel, self.ctx)
        self.offered()
        dots = [op for op in self.kernel.body.walk() if isinstance(op, tile.Dot)]
        if dots:
            self.known_axes()
            self.products(dots)
            self.rest(dots[0])
        else:
            for whole in self.resident():
                if isinstance(whole.size, str) or self.combined(whole):
                    at = next(
                        op
                        for op in self.kernel.body.walk()
                        if isinstance(op, tile.Whole) and self.axes.of(op.out, 0) is whole
                    )
                    self.rows(whole, at)
            self.elementwise()
        self.without_effect()
        chosen = tuple((name[1:], size) for name, size in self.sizes.items())
        self.schedule = replace(self.schedule, tiles=chosen)
        self.kernel.schedule = self.schedule.as_attributes()

    def without_effect(self) -> None:
        """Say which pins nothing asks for in this kernel, under these promises."""
        if not self.rings:
            for name in ("stages", "registers"):
                value = getattr(self.ctx.schedule, name)
                if value not in (None, ()):
                    self.ctx.remark(
                        None,
                        f"{name} = {shown_value(value)} has no effect: nothing comes through a "
                        "ring, so there are no stages and no producer",
                    )

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


@tile_pass("choose-tiles", level="tile")
def choose_tiles(kernel: Kernel, ctx: Context) -> None:
    """Every choice of the schedule is made, by the author or here."""
    Chooser(kernel, ctx).run()
