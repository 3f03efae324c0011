"""Homes that the author pinned: ``shared x = ...`` and ``register x = ...``.

Without a pin, operands of products lie in shared memory and everything else in registers. A tile
that is pinned to shared memory and computed on is put into a buffer of its own where it is made,
and read again by each op that uses it: registers are free in between, at the price of the reads,
which a remark names. A tile that only products read lies in shared memory as it is; one that is
loaded for them alone cannot be pinned to registers. The pins are ops until here and gone then.
"""

from __future__ import annotations

from typing import Any

from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.facts import Schedule
from tilec.ir.levels import author, cta, math, tile
from tilec.ir.types import DType, Register, Shared, Tile
from tilec.layout.linear import Layout
from tilec.layout.shared import SPANS
from tilec.passes.base import Context
from tilec.passes.check_schedule import nearest
from tilec.passes.form_products import feeds_only_products
from tilec.passes.forming import Forming
from tilec.passes.mapping import shared_layout
from tilec.passes.operands import Uses
from tilec.passes.pinned_layouts import Pins
from tilec.passes.refusal import refused


def take_homes(kernel: Kernel) -> Pins:
    """The pins of a kernel by the values that they pin; they are removed from it."""
    found: Pins = {}
    for op in kernel.body.walk():
        if not isinstance(op, author.Home):
            continue
        other = found.setdefault(op.x, op)
        if other.home != op.home:
            raise refused(
                op,
                f"%{op.x.name} is pinned to {other.home} memory and to {op.home} memory: equal "
                "tiles are computed once, and have one home; remove one of the two words",
            )
        if other.attributes != op.attributes:
            raise refused(
                op,
                f"%{op.x.name} is pinned in two ways: equal tiles are computed once, and lie in "
                "one way; remove one of the two",
            )
    for region in _regions(kernel.body):
        region.ops = [op for op in region.ops if not isinstance(op, author.Home)]
    return found


def operand_swizzles(ctx: Context, schedule: Schedule, uses: Uses, pins: Pins) -> Schedule:
    """The schedule, with swizzles that the author pinned where an operand gets its name."""
    chosen = dict(schedule.swizzles)
    made: dict[str, int] = {}
    for value, pin in pins.items():
        load = value.owner
        if (
            pin.swizzle < 0
            or not isinstance(load, tile.Load)
            or not feeds_only_products(value, uses)
        ):
            continue
        name, width = load.array.name, pin.swizzle
        if chosen.get(name, width) != width:
            ctx.remark(pin, f"swizzles.{name} = {chosen[name]} in the schedule wins over the pin")
        elif made.setdefault(name, width) != width:
            raise refused(
                pin,
                f"tiles of {name} are pinned to swizzles of {made[name]} and of {width} bytes: "
                f"all tiles of an array have one; the nearest is `swizzle={made[name]}`",
            )
    return schedule.merged(Schedule(swizzles=tuple(made.items())))


def _regions(region: Region) -> list[Region]:
    inner = [r for op in region.ops for nested in op.regions for r in _regions(nested)]
    return [region, *inner]


def check_homes(f: Forming, uses: Uses) -> None:
    """Refuse pins that cannot be, and say of those that are so anyway."""
    for value, pin in list(f.homes.items()):
        only_products = feeds_only_products(value, uses)
        if pin.home == "register" and only_products and isinstance(value.owner, tile.Load):
            raise refused(
                pin,
                f"%{value.name} is read by products alone, which read their operands from shared "
                "memory in this version; leave the word away, or compute something on the tile",
            )
        if pin.layout is not None or pin.arrangement:
            del f.homes[value]  # `pin_layouts` says what becomes of it
        elif only_products or pin.home == "register":
            where = "shared memory" if pin.home == "shared" else "registers"
            if pin.swizzle < 0:
                f.ctx.remark(pin, f"%{value.name} lies in {where}, as it would without the pin")
            elif not isinstance(value.owner, tile.Load):
                f.swizzles[value] = pin.swizzle
            del f.homes[value]
        elif value.type.dtype.kind == "bool":
            raise refused(
                pin, f"%{value.name} holds bools, which lie in registers; cast it to s32 first"
            )


def keep_homes(f: Forming, op: Op) -> None:
    """Put what an op has made, and the author pinned to shared memory, into a buffer."""
    for value in op.results:
        pin = f.homes.get(value)
        if pin is not None and value in f.values:
            f.body.loc = pin.loc
            _put(f, value, pin)


def _put(f: Forming, value: Value[Any], pin: author.Home) -> None:
    held = f.values[value]
    assert isinstance(value.type, Tile)
    flat = len(value.type.shape) == 1
    if flat:
        layout = held.type.layout.insert(0)
        row = Register(held.type.dtype, layout.shape, layout)
        held = f.body.add(math.Expand(held, axis=0, type=row)).out
    type = held.type
    if len(type.shape) != 2:
        raise Refused(f"a tile with {len(type.shape)} axes cannot be pinned to shared memory")
    rows, columns = type.shape
    layout = _layout((rows * f.team.groups, columns), type.dtype, pin)
    shared = Shared(type.dtype, layout.shape, layout)
    view: Value[Any] = f.buffer(("home", value), shared, value.name)
    if f.team.groups > 1:
        view = f.body.add(cta.Window(view, f.group, rows=rows)).out
    f.sync()
    f.body.add(cta.Put(view, held, instruction="store"))
    f.sync()
    f.stored[value] = (view, type)
    bytes_each = rows * columns * type.dtype.bytes
    f.ctx.remark(
        pin,
        f"%{value.name} lies in shared memory, {bytes_each} bytes a group; each use reads it again",
        bytes=bytes_each,
    )


def _layout(shape: tuple[int, int], dtype: DType, pin: author.Home) -> Layout:
    """Swizzled rows, as pinned if the author did, or plain ones where there are too few for it."""
    if pin.swizzle >= 0:
        try:
            return shared_layout(shape, dtype, 1, pin.swizzle)
        except Refused as refusal:
            reason = f"%{pin.x.name} cannot have a swizzle of {pin.swizzle} bytes: {refusal}"
            raise refused(pin, f"{reason}; {_nearest(shape, dtype, pin.swizzle)}") from None
    try:
        return shared_layout(shape, dtype, 1)
    except Refused:
        return shared_layout(shape, dtype, 1, swizzle=0)


def _nearest(shape: tuple[int, int], dtype: DType, swizzle: int) -> str:
    legal = []
    for width in SPANS:
        try:
            shared_layout(shape, dtype, 1, width)
            legal.append(width)
        except Refused:
            continue
    return f"the nearest is `swizzle={nearest(swizzle, legal)}`"


def fetch(f: Forming, value: Value[Any]) -> Value[Any]:
    """A tile that lies in shared memory, read into registers."""
    view, type = f.stored[value]
    found: Value[Any] = f.body.add(cta.Get(view, instruction="load", type=type), value.name).out
    if isinstance(value.type, Tile) and len(value.type.shape) == 1:
        layout = type.layout.drop(0)
        vector = Register(type.dtype, layout.shape, layout)
        found = f.body.add(math.Squeeze(found, axis=0, type=vector), value.name).out
    return found
