"""Which operands of products are worth a copy: what could be copied, and what either way costs.

The choice is ``repacks`` of the schedule. Left open, it is made from what reading costs in either
way (``Price``), which is documented with its constants; nothing is measured while compiling. Of a
product all operands come through rings or none do, so operands that need copies are judged
together, and one whose partner can have none is left alone. Arrays that are read at several places
are copied once for all loads that want the same layout; loads that TMA can serve, or that feed more
than products, go on reading the array itself.

Nothing here changes a kernel; ``repack-operands`` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilec.diagnostics import did_you_mean
from tilec.ir import rewrite
from tilec.ir.core import Kernel, Region, Value
from tilec.ir.facts import ArrayFacts
from tilec.ir.levels import tile
from tilec.ir.types import F32, Array, Tile
from tilec.passes.base import Context
from tilec.passes.check_schedule import BadChoice, BadChoices, impossible
from tilec.passes.costs import L2_BYTES_PER_CYCLE
from tilec.passes.form_products import feeds_only_products, source_of
from tilec.passes.mapping import MAX_MAP_RANK, tile_axes
from tilec.passes.operands import (
    Uses,
    copied_vector,
    either_axis,
    ring_refusal,
    summed_axes,
    tma_refusal,
)
from tilec.passes.range_starts import COPY_BYTES, aligned_start
from tilec.passes.traffic import elements_read, extent_of

ACCESS_CYCLES = 8
"""Cycles of an SM that one access of a warp takes with the work around it, where threads bring
operands: 4097 x 4097 x 4097 in bf16, element by element, ran at 102 TFLOP/s on an H200."""
CYCLES_PER_SECOND = 1.7e9
"""What an H200 holds while its tensor cores are busy."""
LAUNCH_SECONDS = 3e-6
"""A launch behind another one on its stream: the first ends, the second begins."""
WARP = 32

Key = tuple[Value[Any], tuple[int, ...]]
"""A copy: the array, and which of its axes the copy has, in order."""


# --- what could be copied -------------------------------------------------------------------------


@dataclass
class Copy:
    """An array that can be copied, for whom, and what reading it costs as it lies."""

    array: Value[Array]
    order: tuple[int, ...]
    """The array's axes that the copy has; the last one is contiguous."""
    tiled: tuple[int, int]
    """The array's axes along which the copy goes in tiles."""
    reason: str
    loads: list[tile.Load] = field(default_factory=list)
    elements: float = 0.0
    """Read in all of a call."""
    vector: int = 1
    """Elements of one access of a thread, as the array lies."""
    ringed: bool = True
    """Whether the threads can bring it through a ring as it lies (cp.async)."""


class Wanted:
    """The loads that a copy would serve, and why others cannot have one."""

    def __init__(self, kernel: Kernel, ctx: Context) -> None:
        self.ctx, self.uses = ctx, rewrite.uses(kernel.body)
        self.dots = [op for op in kernel.body.walk() if isinstance(op, tile.Dot)]
        self.copies: dict[Key, Copy] = {}
        self.by_load: dict[tile.Load, Copy] = {}
        self.refused: dict[str, str] = {}
        if not ctx.target.has_tma:
            return
        for launch in kernel.body.ops:
            if isinstance(launch, tile.Parallel):
                for load, elements in elements_read(ctx, Region([], [launch])):
                    self._consider(load, elements)

    def _consider(self, load: tile.Load, elements: float) -> None:
        if not isinstance(load.out.type, Tile) or not feeds_only_products(load.out, self.uses):
            return
        reason = tma_refusal(self.ctx, load, self.uses)
        if reason is None:
            return
        found = _layout(self.ctx, load, self.uses)
        if isinstance(found, str):
            self.refused.setdefault(load.array.name, found)
            return
        copy = self.copies.setdefault((load.array, found), _copy(self.ctx, load, found, reason))
        self.by_load[load] = copy
        copy.loads.append(load)
        copy.elements += elements
        vector = copied_vector(self.ctx, load, self.uses)
        copy.vector = vector if isinstance(vector, int) else 1
        copy.ringed = copy.ringed and isinstance(vector, int)

    def partners(self, copy: Copy) -> list[Copy] | tile.Load:
        """The copies without which one is of no use, or a load that threads do all the same."""
        found, waiting = [copy], [copy]
        while waiting:
            served = {load.out for load in waiting.pop().loads}
            for dot in self.dots:
                sources = [source_of(operand)[0] for operand in (dot.a, dot.b)]
                loads = [s.owner for s in sources if isinstance(s.owner, tile.Load)]
                for load in loads if served.intersection(sources) else ():
                    other = self.by_load.get(load)
                    if other is None and self._by_threads(load):
                        return load
                    if other is not None and not other.ringed and other not in found:
                        found.append(other)
                        waiting.append(other)
        return found

    def _by_threads(self, load: tile.Load) -> bool:
        alone = feeds_only_products(load.out, self.uses)
        return not alone or ring_refusal(self.ctx, load, self.uses) is not None


def _copy(ctx: Context, load: tile.Load, order: tuple[int, ...], reason: str) -> Copy:
    """The copy for a load; its launch has the source's neighbours in one tile, and the copy's."""
    array, last = load.array, order[-1]
    unit = facts_of(ctx, array).unit_axis
    others = [axis for axis in tile_axes(load.subscripts) if axis != last]
    return Copy(array, order, (unit if unit in order and unit != last else others[0], last), reason)


def facts_of(ctx: Context, array: Value[Array]) -> ArrayFacts:
    """What is promised of an array; nothing, where there is no word about it."""
    return ctx.facts.array(array.name) or ArrayFacts(-1, 1)


def _layout(ctx: Context, load: tile.Load, uses: Uses) -> tuple[int, ...] | str:
    """The axes that a copy for a load has, in order; why there can be none, in words."""
    array, axes, dtype = load.array, tile_axes(load.subscripts), load.array.type.dtype
    facts = facts_of(ctx, array)
    if not isinstance(array.owner, Region) or array.type.mode != "in":
        return f"{array.name} is written, and a copy would not follow"
    if any(dot.a.type.dtype == F32 and not dot.precision for dot in _products(load.out, uses)):
        return "f32 operands are taken apart in registers, where threads bring them anyway"
    if dtype.bits == 64:
        return "products of 64 bits take longer than threads take to bring their operands"
    if len(axes) != 2:
        return f"the tile has {len(axes)} axes"
    if set(axes) & set(facts.repeats):
        return f"{array.name} has stride 0 along the tile: a copy would multiply memory"
    summed = summed_axes(load.out, uses)
    if either_axis(dtype) and facts.unit_axis in axes:
        last = facts.unit_axis
    elif len(summed) == 1:
        last = axes[next(iter(summed))]
    elif either_axis(dtype):
        last = axes[1]
    else:
        return "products sum along either of its axes"
    order = (*(a for a in range(len(array.type.shape)) if a not in (*facts.repeats, last)), last)
    if len(order) > MAX_MAP_RANK:
        return f"a copy would have {len(order)} axes, a tensor map has {MAX_MAP_RANK} at most"
    elements = max(1, COPY_BYTES // dtype.bytes)
    if aligned_start(ctx, load.subscripts[last], elements) < elements:
        return f"{load.subscripts[last].name} may start anywhere, also in a copy"
    return order


def _products(value: Value[Any], uses: Uses) -> list[tile.Dot]:
    """The products that take a tile, through transposes."""
    found: list[tile.Dot] = []
    for op in uses.get(value, []):
        if isinstance(op, tile.Transpose):
            found += _products(op.out, uses)
        elif isinstance(op, tile.Dot):
            found.append(op)
    return found


# --- whether it pays ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Price:
    """Seconds of reading an array as it lies, of reading a copy, and of making the copy.

    Sizes are what the promises bound them by, so a call may take less of all three.
    As it lies: one access of a warp each ``ACCESS_CYCLES`` on every SM. From a copy: what L2
    delivers to TMA. Neither is faster than memory gives the array once. A copy moves the array
    twice through memory, and is a launch of its own.
    """

    as_it_lies: float
    from_copy: float
    copying: float

    @property
    def pays(self) -> bool:
        """Whether a copy costs less than it saves."""
        return self.from_copy + self.copying < self.as_it_lies

    @classmethod
    def of(cls, ctx: Context, copy: Copy) -> Price:
        """The price of one copy, by the extents that are known."""
        each = copy.array.type.dtype.bytes
        size = prod(extent_of(ctx, copy.array.type.shape[axis]) for axis in copy.order) * each
        once = size / ctx.target.memory_bytes_per_second
        cycles = ctx.target.sms * CYCLES_PER_SECOND
        accesses = copy.elements / (WARP * copy.vector)
        return cls(
            max(once, accesses * ACCESS_CYCLES / cycles),
            max(once, copy.elements * each / L2_BYTES_PER_CYCLE / cycles),
            2 * once + LAUNCH_SECONDS,
        )


def choose(ctx: Context, wanted: Wanted) -> list[Copy]:
    """The arrays that are copied: by the pins, and else by the estimate."""
    pins = dict(ctx.schedule.repacks)
    chosen = []
    for copy in wanted.copies.values():
        name, note = copy.array.name, ""
        price = Price.of(ctx, copy)
        wins, partners = price.pays, wanted.partners(copy)
        if name in pins:
            wins, note = bool(pins[name]), f" (repacks.{name} = {pins[name]} is pinned)"
        elif ctx.facts.array(name) is None:
            wins, note = False, "; nothing is promised of it, so nothing is judged"
        elif isinstance(partners, tile.Load) or any(pins.get(p.array.name) == 0 for p in partners):
            wins, note = False, "; threads bring the other operand all the same"
        elif not copy.ringed and len(partners) > 1:
            prices = [Price.of(ctx, partner) for partner in partners]
            wins = sum(p.from_copy + p.copying - p.as_it_lies for p in prices) < 0
            names = " and ".join(dict.fromkeys(p.array.name for p in partners if p is not copy))
            note = f"; judged together with {names}" * (wins != price.pays)
        if wins:
            chosen.append(copy)
        _explain(ctx, copy, price, wins, note)
    return chosen


def _explain(ctx: Context, copy: Copy, price: Price, wins: bool, note: str) -> None:
    """Say why an array is copied or not, and what either costs."""
    name, turns = copy.array.name, copy.order[-1] != facts_of(ctx, copy.array).unit_axis
    what = "is copied to workspace" if wins else "is not copied"
    how = f" with axis {copy.order[-1]} contiguous" if wins and turns else ""
    micro = [round(s * 1e6, 1) for s in (price.as_it_lies, price.from_copy, price.copying)]
    ctx.remark(
        copy.loads[0],
        f"{name} {what}{how}: {copy.reason}; reading it so takes up to {micro[0]} us a call, "
        f"a copy {micro[1]} us and {micro[2]} us to make{note}",
        as_it_lies_us=micro[0],
        from_copy_us=micro[1],
        copying_us=micro[2],
    )


def check_pins(kernel: Kernel, ctx: Context, wanted: Wanted) -> None:
    """Refuse pins that no kernel can have; say which have no effect here."""
    arrays = {a.name: a for a in kernel.body.args if isinstance(a.type, Array)}
    possible = {copy.array.name for copy in wanted.copies.values()}
    faults = []
    for name, value in ctx.schedule.repacks:
        if name not in arrays:
            hint = did_you_mean(name, arrays) or f"there are {', '.join(sorted(arrays))}"
            text = f"no array is called `{name}`"
            faults.append(BadChoice("unknown-choice", text, f"repacks.{name} = {value}", hint))
        elif value not in (0, 1):
            why = "an operand is copied (1) or not (0)"
            faults.append(impossible(f"repacks.{name}", value, why, f"write `repacks.{name}=1`"))
        elif value and name in wanted.refused and name not in possible:
            why, instead = wanted.refused[name], f"the nearest is `repacks.{name}=0`"
            faults.append(impossible(f"repacks.{name}", value, why, instead))
        elif value and name not in possible:
            ctx.remark(
                None,
                f"repacks.{name} = 1 has no effect: products read no tile of {name}, or copies of "
                f"{ctx.target.name} reach it as it lies",
            )
    if faults:
        raise BadChoices(faults)
