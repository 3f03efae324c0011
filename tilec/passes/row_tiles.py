"""Tiles of kernels without products, which move memory.

A tile is what keeps enough 16-byte accesses in flight: rows that are needed whole stay in
registers, a few warps to a row, and elementwise tiles give each thread four vectors; fewer where
a launch would otherwise leave multiprocessors without work. What must be resident and has no bound
is refused.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilec.ir.core import Op, Value
from tilec.ir.levels import math, tile
from tilec.ir.types import Index, Tile
from tilec.passes.axes import AxisClass
from tilec.passes.check_schedule import MOST
from tilec.passes.frames import (
    ELEMENTS_PER_THREAD,
    WARPGROUP_WARPS,
    Turn,
    access_vector,
    turn_of,
    vector_of,
    warps_per_row,
)
from tilec.passes.mapping import contiguous_axis, tile_axes
from tilec.passes.open_choices import MULTIPLE, WARP, OpenChoices
from tilec.passes.refusal import refused

RESIDENT_ELEMENTS = 64
"""Most elements of a row in one thread: with two copies of it the registers are full."""
ROW_WARPS = 16
"""Most warps of a row: at 512 threads each has 128 registers."""
VECTORS_IN_FLIGHT = 4
MOST_ACCESSES = 32
"""Accesses of one thread to all arrays: each holds an address of two registers and its data."""
TURNED = 64
"""Either extent of a tile that changes which axis is contiguous: each row is at least two sectors
of memory on both sides, and a thread of a warpgroup has 32 elements."""
MOST_OPERATIONS = 2048
"""Elementwise operations that a thread runs for its tile, all elements together."""


class RowTiles(OpenChoices):
    """The open choices of a kernel without products."""

    def decide(self) -> None:
        """Rows that stay in registers first, then what is beside them."""
        for whole in self.resident():
            if isinstance(whole.size, str) or self.combined(whole):
                at = next(
                    op
                    for op in self.kernel.body.walk()
                    if isinstance(op, tile.Whole) and self.axes.of(op.out, 0) is whole
                )
                self.rows(whole, at)
        self.elementwise()

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
        turn = turn_of(self.ctx, self.axes, self.kernel.body)
        if turn is not None and {turn.read, turn.written} <= set(axes):
            self.turned(turn, axes)
            return
        vectors = {a: access_vector(self.ctx, self.axes, self.kernel.body, a) for a in axes}
        # Where vectors are widest memory is contiguous; without a promise, the last axis is.
        along = max(reversed(axes), key=lambda a: vectors[a])
        threads = WARP * WARPGROUP_WARPS * (self.schedule.warpgroups or 1)
        self.set(warpgroups=1)
        each = self.elements(max(vectors[along], 2) * VECTORS_IN_FLIGHT, along)
        bounds = [self.bound(axis) for axis in axes]
        beside = self.outer()
        if beside is not None and None not in bounds:
            # A launch with less work than multiprocessors have threads spreads it over all.
            total = beside * prod(b for b in bounds if b is not None)
            while each > vectors[along] and total < threads * each * self.ctx.target.sms:
                each //= 2
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

    def turned(self, turn: Turn, axes: list[AxisClass]) -> None:
        """Square tiles where memory is read along one axis and written along another."""
        self.set(warpgroups=1)
        for axis in axes:
            bound, size = self.bound(axis), TURNED if axis in (turn.read, turn.written) else 1
            while size > MULTIPLE and bound is not None and size // 2 >= bound:
                size //= 2
            self.settle(axis, MULTIPLE if size == 1 and self.combined(axis) else size)
        stores = (op for op in self.kernel.body.walk() if isinstance(op, tile.Store))
        self.ctx.remark(
            next(stores, None),
            f"tiles that are read along {turn.read.name} and written along {turn.written.name}, "
            f"{turn.vector} elements a write: {TURNED} of either at most",
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

    def beside(self, along: AxisClass) -> int:
        """Elements of the sizes that are settled beside an axis, in the widest tile that has it."""
        widest = 1
        for value, _ in along.members:
            others = [a for a in self.axes.all_of(value) if a is not None and a is not along]
            sizes = [self.pinned(a) or 1 for a in others]
            widest = max(widest, prod(sizes))
        return widest
