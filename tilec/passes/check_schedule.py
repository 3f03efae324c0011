"""What a schedule may say, wherever it comes from: the source, a command line, Python, a dump.

Two questions, asked apart. ``shape_faults``: is it a schedule at all, with known names and values
of the right kind? ``check_schedule``: can this kernel have these choices on this target? Every
choice that cannot be is reported, with what was found, why not, and the nearest one that works.

Invariant: a choice that passes here is obeyed, or a remark says why it has no effect. What depends
on choices that are still open (does the ring fit beside the staging?) is judged where it is made.
Nothing here changes a choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

from tilec.diagnostics import did_you_mean
from tilec.ir.core import Kernel, Op
from tilec.ir.declare import Refused
from tilec.ir.facts import Schedule
from tilec.ir.levels import tile
from tilec.ir.levels.cluster import MOST_CTAS
from tilec.ir.types import Array, Index, is_symbol
from tilec.layout.shared import SPANS
from tilec.passes.axes import Axes, combined
from tilec.passes.base import Context
from tilec.passes.eights import EIGHT, in_eights
from tilec.targets.base import Target

STEP = 16
MOST = 4096
SMALL = (1, 2, 4, 8)
"""Tile sizes under ``STEP``, for axes along which nothing is combined."""
REGISTER_STEP, REGISTER_RANGE = 8, (24, 256)
"""PTX ISA, setmaxnreg: a multiple of 8 from 24 to 256."""
MOST_PRODUCT_GROUPS = 3
ACCESS_BYTES = 16
"""Most bytes of one access of a thread."""


@dataclass(frozen=True)
class BadChoice:
    """One choice that cannot be: what was found, why not, what to type; ``op`` asks for it."""

    code: str
    message: str
    found: str
    help: str
    notes: tuple[str, ...] = ()
    op: Op | None = None


class BadChoices(Refused):
    """Choices of a schedule that a kernel cannot have."""

    def __init__(self, faults: Iterable[BadChoice]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f"{f.message}; {f.help}" for f in self.faults))


def impossible(
    choice: str, value: Any, why: str, instead: str, op: Op | None = None, *notes: str
) -> BadChoice:
    """A choice that exists, with a value that it cannot have."""
    shown = shown_value(value)
    return BadChoice(
        "impossible-choice", f"{choice} = {shown} cannot be: {why}", f"{choice} = {shown}",
        instead, notes, op,
    )  # fmt: skip


def shown_value(value: Any) -> str:
    """A value as the command line writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ":".join(map(str, value)) if isinstance(value, tuple) else str(value)


def nearest(value: int, legal: Iterable[int]) -> int:
    """The legal value that lies nearest, the larger of two."""
    return min(legal, key=lambda item: (abs(item - value), -item))


# --- is it a schedule? ---------------------------------------------------------------------------


def _is_whole(value: object) -> bool:
    return type(value) is int


def _is_named(value: object) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) and _is_whole(v[1])
        for v in value
    )


_KINDS: dict[object, tuple[str, str, Any]] = {
    int | None: ("a whole number", "3", _is_whole),
    bool | None: ("true or false", "true", lambda v: type(v) is bool),
    tuple[int, ...]: (
        "whole numbers", "24:240",
        lambda v: isinstance(v, tuple) and all(map(_is_whole, v)),
    ),
    tuple[tuple[str, int], ...]: ("a whole number for a name", "64", _is_named),
}  # fmt: skip


def shape_faults(attributes: dict[str, Any]) -> list[BadChoice]:
    """Names that no schedule has, and values of another kind than their choice."""
    hints = get_type_hints(Schedule)
    known = [item.name for item in fields(Schedule)]
    found = []
    for name, value in attributes.items():
        if name not in known:
            hint = did_you_mean(name, known) or f"there are {', '.join(known)}"
            text = f"a schedule has no `{name}`"
            found.append(BadChoice("unknown-choice", text, f"{name} = {value}", hint))
            continue
        what, example, fits = _KINDS[hints[name]]
        if not fits(value):
            dotted = f"{name}.NAME" if "name" in what else name
            found.append(impossible(name, value, f"it is {what}", f"such as `{dotted}={example}`"))
    return found


# --- can this kernel have it? --------------------------------------------------------------------


def check_schedule(kernel: Kernel, ctx: Context) -> None:
    """Raise ``BadChoices`` with everything that a kernel at level ``tile`` cannot have."""
    asked = _Asked(kernel, ctx)
    faults = [
        *asked.tiles(), *asked.counts(), *asked.warpgroups(), *asked.registers(),
        *asked.swizzles(), *asked.vector(), *asked.cluster(),
    ]  # fmt: skip
    if faults:
        raise BadChoices(faults)


class _Asked:
    """The choices of one kernel, judged one field at a time."""

    def __init__(self, kernel: Kernel, ctx: Context) -> None:
        self.kernel, self.ctx, self.schedule = kernel, ctx, ctx.schedule
        self.axes = Axes(kernel.body)
        self.dots = [op for op in kernel.body.walk() if isinstance(op, tile.Dot)]
        self.at = self.dots[0] if self.dots else None

    def tiles(self) -> Iterator[BadChoice]:
        """Each name is a loop's, each size one that a tile along the loop can have."""
        sized = index_sizes(self.kernel)
        if not sized:
            return  # applied already
        yield from _unknown_loops(sized, self.schedule.tiles, "tiles")
        for name, size in self.schedule.tiles:
            if name not in sized:
                continue
            index, op = sized[name]
            axis = self.axes.of(index, 0)
            inside = any(axis in self.axes.all_of(dot.out) for dot in self.dots)
            free = not inside and not combined(self.axes, self.kernel.body, axis)
            if isinstance(op, tile.Whole):
                yield from self._whole(name, size, index.type.extent, op)
                continue
            more = SMALL if free else in_eights(self.ctx, self.axes, self.kernel, axis)
            if (size % STEP or not STEP <= size <= MOST) and size not in more:
                legal = sorted({*more, *range(STEP, MOST + 1, STEP)})
                why = f"a tile size is a multiple of {STEP}, from {STEP} to {MOST}"
                if more:
                    few = f"one of {', '.join(map(str, SMALL))}"
                    why += f", or {few if free else f'of {EIGHT}, up to {max(more)}'}"
                good = f"tiles.{name}={nearest(size, legal)}"
                note = f"products and sums run along {name}" if not free else ""
                yield impossible(
                    f"tiles.{name}", size, why, f"the nearest is `{good}`", op,
                    *filter(None, [note]),
                )  # fmt: skip

    def _whole(self, name: str, size: int, extent: Any, op: Op) -> Iterator[BadChoice]:
        """A row that stays in registers holds the whole axis."""
        bound = extent if isinstance(extent, int) else self.ctx.facts.extent(extent)
        least = max(bound or 1, 1)
        if size < least or size % STEP:
            good = -(-max(size, least) // STEP) * STEP
            why = f"`:` holds all of {extent}, up to {least}, in a multiple of {STEP}"
            yield impossible(
                f"tiles.{name}", size, why, f"the nearest is `tiles.{name}={good}`", op
            )

    def counts(self) -> Iterator[BadChoice]:
        """Stages and the raster's group are at least one."""
        for name in ("stages", "group"):
            value = getattr(self.schedule, name)
            if value is not None and value < 1:
                why = "there is at least one"
                yield impossible(name, value, why, f"the nearest is `{name}=1`", self.at)

    def warpgroups(self) -> Iterator[BadChoice]:
        """Products leave registers for three; other work splits by powers of two."""
        value = self.schedule.warpgroups
        if value is None:
            return
        if self.dots and self.schedule.alternate and value != 1:
            yield impossible(
                "warpgroups", value, "with alternate=true each of two takes a tile of its own",
                "leave it out, or pin `warpgroups=1`", self.at,
            )  # fmt: skip
            return
        if self.dots:
            legal = list(range(1, MOST_PRODUCT_GROUPS + 1))
            why = f"1 to {MOST_PRODUCT_GROUPS} warpgroups share a product beside its producer"
        else:
            most = self.ctx.target.threads_per_cta // 128
            legal = [1 << n for n in range(most.bit_length()) if 1 << n <= most]
            why = f"without products they are a power of two, up to {most}"
        if value not in legal:
            good = nearest(value, legal)
            yield impossible(
                "warpgroups", value, why, f"the nearest is `warpgroups={good}`", self.at
            )

    def registers(self) -> Iterator[BadChoice]:
        """A pair that setmaxnreg can set and the register file holds."""
        given = self.schedule.registers
        if not given:
            return
        low, high = REGISTER_RANGE
        each = range(low, high + 1, REGISTER_STEP)
        if len(given) != 2:
            yield impossible(
                "registers", given, "there are two, the producer's and the consumers'",
                "write `registers=24:240`", self.at,
            )  # fmt: skip
            return
        first, second = (nearest(value, each) for value in given)
        if (first, second) != given:
            yield impossible(
                "registers", given,
                f"setmaxnreg takes multiples of {REGISTER_STEP} from {low} to {high}",
                f"the nearest is `registers={first}:{second}`", self.at,
            )  # fmt: skip
            return
        groups = self.schedule.warpgroups
        if groups is None or groups < 1 or not self.dots:
            return
        groups *= 2 if self.schedule.alternate else 1
        most = register_limit(self.ctx.target, first, groups)
        if second > most:
            total = 128 * (first + groups * second)
            yield impossible(
                "registers", given,
                f"a producer and {groups} consumer warpgroups take {total} registers, an SM has "
                f"{self.ctx.target.registers_per_sm}",
                f"the nearest is `registers={first}:{most}`", self.at,
            )  # fmt: skip

    def swizzles(self) -> Iterator[BadChoice]:
        """Widths that exist, for arrays that go through shared memory."""
        arrays = {a.name for a in self.kernel.body.args if isinstance(a.type, Array)}
        through = self._through_shared()
        for name, value in self.schedule.swizzles:
            if name not in arrays:
                hint = did_you_mean(name, arrays) or f"there are {', '.join(sorted(arrays))}"
                text = f"no array is called `{name}`"
                yield BadChoice("unknown-choice", text, f"swizzles.{name} = {value}", hint)
            elif name not in through:
                which = (
                    f"those that do are {', '.join(through)}" if through else "nothing here does"
                )
                yield impossible(
                    f"swizzles.{name}", value, f"{name} is neither an operand nor the result of a "
                    "product, so it does not lie in shared memory",
                    f"leave it out; {which}",
                )  # fmt: skip
            elif value not in SPANS:
                good = nearest(value, SPANS[1:])
                yield impossible(
                    f"swizzles.{name}", value, "a swizzle spans 32, 64 or 128 bytes, or 0 for none",
                    f"the nearest is `swizzles.{name}={good}`", through[name],
                )  # fmt: skip

    def _through_shared(self) -> dict[str, Op]:
        """Arrays whose tiles meet a product, by name, with the op that moves them."""
        behind = {value for dot in self.dots for value in (dot.a, dot.b)}
        found: dict[str, Op] = {}
        for op in reversed(list(self.kernel.body.walk())):
            if isinstance(op, tile.Load | tile.Store):
                value = op.value if isinstance(op, tile.Store) else op.out
                if value in behind or (self.dots and isinstance(op, tile.Store)):
                    found[op.array.name] = op
            elif any(result in behind for result in op.results):
                behind.update(op.operands)
        return dict(reversed(found.items()))

    def cluster(self) -> Iterator[BadChoice]:
        """CTAs along two axes, in powers of two, few enough for one cluster."""
        value = self.schedule.cluster
        if not value:
            return
        good = len(value) == 2 and all(n > 0 and n & (n - 1) == 0 for n in value)
        if not good or value[0] * value[1] > MOST_CTAS:
            yield impossible(
                "cluster", value, "it has a power of two of CTAs along each of the grid's last "
                f"two axes, at most {MOST_CTAS} in all", "such as `cluster=2:1`", self.at,
            )  # fmt: skip
        elif value != (1, 1) and not self.ctx.target.has_clusters:
            yield impossible(
                "cluster", value, f"{self.ctx.target.name} has no clusters",
                "leave it out, or compile for sm_90a", self.at,
            )  # fmt: skip

    def vector(self) -> Iterator[BadChoice]:
        """A power of two of elements that one access can move."""
        value = self.schedule.vector
        if value is None:
            return
        widths = [
            op.array.type.dtype.bytes
            for op in self.kernel.body.walk()
            if isinstance(op, tile.Load | tile.Store)
        ]
        most = ACCESS_BYTES // min(widths, default=1)
        legal = [1 << n for n in range(most.bit_length())]
        if value not in legal:
            yield impossible(
                "vector", value, f"an access moves a power of two of elements, up to {most} here",
                f"the nearest is `vector={nearest(value, legal)}`", self.at,
            )  # fmt: skip


def register_limit(target: Target, producer: int, groups: int) -> int:
    """The most registers that each consumer thread can have beside a producer."""
    left = (target.registers_per_sm // 128 - producer) // groups
    return min(left // REGISTER_STEP * REGISTER_STEP, REGISTER_RANGE[1])


def index_sizes(kernel: Kernel) -> dict[str, tuple[Any, Op]]:
    """The indices whose tile size is open, by the name that a schedule knows them by."""
    return {
        str(index.type.size).removeprefix("$"): (index, op)
        for index, op in _indices(kernel)
        if is_symbol(index.type.size)
    }


Pins = tuple[tuple[str, int], ...]


def refuse_unknown_loops(kernel: Kernel, pins: Pins, choice: str) -> None:
    """Raise ``BadChoices`` for pins of loops that a kernel has not."""
    faults = [*_unknown_loops(index_sizes(kernel), pins, choice)]
    if faults:
        raise BadChoices(faults)


def _unknown_loops(sized: Mapping[str, Any], pins: Pins, choice: str) -> Iterator[BadChoice]:
    for name, size in pins:
        if name not in sized:
            hint = did_you_mean(name, sized) or f"there are {', '.join(sized)}"
            text = f"no loop over tiles is called `{name}`"
            yield BadChoice("unknown-choice", text, f"{choice}.{name} = {size}", hint)


def _indices(kernel: Kernel) -> Iterator[tuple[Any, Op]]:
    for op in kernel.body.walk():
        values = [*op.results, *(a for r in op.regions for a in r.args)]
        yield from ((value, op) for value in values if isinstance(value.type, Index))
