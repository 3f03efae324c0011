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
from tilec.ir.levels import author, cta, math, tile
from tilec.ir.types import DType, Register, Shared, Tile
from tilec.layout.linear import Layout
from tilec.passes.form_products import feeds_only_products
from tilec.passes.forming import Forming
from tilec.passes.mapping import shared_layout
from tilec.passes.operands import Uses
from tilec.passes.refusal import refused


def take_homes(kernel: Kernel) -> dict[Value[Any], author.Home]:
    """The pins of a kernel by the values that they pin; they are removed from it."""
    found: dict[Value[Any], author.Home] = {}
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
    for region in _regions(kernel.body):
        region.ops = [op for op in region.ops if not isinstance(op, author.Home)]
    return found


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
        if only_products or pin.home == "register":
            where = "shared memory" if pin.home == "shared" else "registers"
            f.ctx.remark(pin, f"%{value.name} lies in {where}, as it would without the pin")
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
    layout = _layout((rows * f.team.groups, columns), type.dtype)
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


def _layout(shape: tuple[int, int], dtype: DType) -> Layout:
    """Swizzled rows, or plain ones where there are too few for a swizzle."""
    try:
        return shared_layout(shape, dtype, 1)
    except Refused:
        return shared_layout(shape, dtype, 1, swizzle=0)


def fetch(f: Forming, value: Value[Any]) -> Value[Any]:
    """A tile that lies in shared memory, read into registers."""
    view, type = f.stored[value]
    found: Value[Any] = f.body.add(cta.Get(view, instruction="load", type=type), value.name).out
    if isinstance(value.type, Tile) and len(value.type.shape) == 1:
        layout = type.layout.drop(0)
        vector = Register(type.dtype, layout.shape, layout)
        found = f.body.add(math.Squeeze(found, axis=0, type=vector), value.name).out
    return found
