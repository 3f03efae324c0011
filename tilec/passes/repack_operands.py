"""Copy operands of products that TMA cannot read to where it can, in a launch before the products.

TMA reads rows that start at multiples of 16 bytes, and wgmma reads elements of other than 16 bits
with K contiguous only (``operands``). An array that is laid out otherwise is brought by the threads
of each CTA, a few bytes at a time, again for each tile of the result. Where that costs more than
moving the array once, the array is copied into workspace, which the launcher lays out in rows of a
multiple of 16 bytes, and the products read the copy. A copy of elements of 16 bits keeps the axis
that is contiguous; the others get the axis last along which the products sum.

    parallel(i, j): ... a[i, k] @ b[j, k].T ...
    =  parallel(k, i): copy[i, k] = a[i, k]
       parallel(i, j): ... copy[i, k] @ b[j, k].T ...

Law: an ``in`` array is written by nobody during a call, so a copy that is made before holds what it
holds. Along an axis of stride zero all places hold the same element, and the copy has no such axis.

``repack_choices`` says which arrays are copied, and why.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilec.ir import rewrite
from tilec.ir.core import Builder, Kernel, Op, Region, Value
from tilec.ir.levels import math, tile
from tilec.ir.types import S32, Array, Index, Scalar
from tilec.passes.base import Context, tile_pass
from tilec.passes.check_schedule import index_sizes
from tilec.passes.form_products import feeds_only_products
from tilec.passes.mapping import tile_axes
from tilec.passes.repack_choices import Copy, Wanted, check_pins, choose


@tile_pass("repack-operands", level="tile")
def repack_operands(kernel: Kernel, ctx: Context) -> None:
    """Operands that TMA cannot read, and that are read often, are copied to where it can."""
    wanted = Wanted(kernel, ctx)
    check_pins(kernel, ctx, wanted)
    chosen = choose(ctx, wanted)
    if not chosen:
        return
    packed = _replace(kernel, chosen)
    pins = {**dict(ctx.schedule.repacks), **{array.name: 1 for array, _ in packed}}
    kernel.schedule = {**kernel.schedule, "repacks": tuple(pins.items())}
    if ctx.schedule.swizzles:
        kernel.schedule["swizzles"] = tuple(_moved(kernel, packed, ctx.schedule.swizzles))


# --- the copies -----------------------------------------------------------------------------------


Packed = list[tuple[Value[Array], Value[Array]]]
"""Arrays and their copies."""


def _replace(kernel: Kernel, copies: list[Copy]) -> Packed:
    """Put each copy before the first launch that reads it, and its loads onto it."""
    taken = {*index_sizes(kernel), *(arg.name for arg in kernel.body.args)}
    made: dict[tile.Load, tuple[Value[Array], Copy]] = {}
    for copy in copies:
        build = Builder(Region())
        build.loc = copy.loads[0].loc
        name = _unused(f"{copy.array.name}_packed", taken)
        packed = _launch(build, copy, name, taken)
        first = next(op for op in kernel.body.ops if _holds(op, copy.loads))
        place = kernel.body.ops.index(first)
        kernel.body.ops[place:place] = build.region.ops
        made.update(dict.fromkeys(copy.loads, (packed, copy)))
    rewrite.apply(kernel.body, lambda op, build: _from_copy(op, build, made))
    return list(dict.fromkeys((copy.array, packed) for packed, copy in made.values()))


def _moved(
    kernel: Kernel, packed: Packed, swizzles: tuple[tuple[str, int], ...]
) -> Iterator[tuple[str, int]]:
    """Pinned swizzles, those of what is copied with the copies that products read instead."""
    uses = rewrite.uses(kernel.body)
    loads = [op for op in kernel.body.walk() if isinstance(op, tile.Load)]
    read = {op.array.name for op in loads if feeds_only_products(op.out, uses)}
    for name, width in swizzles:
        copies = [copy.name for array, copy in packed if array.name == name]
        if name in read or not copies:
            yield name, width
        yield from ((copy, width) for copy in copies)


def _holds(op: Op, loads: list[tile.Load]) -> bool:
    return any(inner in loads for region in op.regions for inner in region.walk())


def _unused(name: str, taken: set[str]) -> str:
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found


def _launch(build: Builder, copy: Copy, name: str, taken: set[str]) -> Value[Array]:
    """Workspace, and the launch that fills it."""
    array = copy.array
    shape = array.type.shape
    extents = {a: build.add(tile.ExtentOf(array, a), str(shape[a])).out for a in copy.order}
    type_ = Array(array.type.dtype.held, tuple(shape[a] for a in copy.order), "inout")
    packed = build.add(tile.Temp(tuple(extents.values()), type=type_), name).out
    body, at = Region(), dict[int, Value[Any]]()
    over = (*(a for a in copy.order if a not in copy.tiled), *copy.tiled)
    sizes: list[Any] = []
    for axis in over:
        loop = _unused(f"{name}_{axis}", taken)
        sizes.append(f"${loop}" if axis in copy.tiled else 0)
        kind = Index(sizes[-1], shape[axis]) if axis in copy.tiled else Scalar(S32)
        at[axis] = body.add_arg(kind, loop)
    with build.inside(body):
        for axis in range(len(shape)):
            if axis not in at:  # all places along it hold the same element
                at[axis] = build.add(math.Constant(0, Scalar(S32))).out
        found = build.add(tile.Load(array, tuple(at[a] for a in range(len(shape)))), name).out
        to = tuple(at[a] for a in copy.order)
        if _swapped(copy):
            found = build.add(tile.Transpose(found), name).out
        build.add(tile.Store(packed, found, to))
    build.add(tile.Parallel(tuple(extents[a] for a in over), tuple(sizes), body))
    return packed


def _swapped(copy: Copy) -> bool:
    """Whether the copy has its two tiled axes in the other order than the array."""
    first, second = (copy.order.index(axis) for axis in sorted(copy.tiled))
    return first > second


def _from_copy(
    op: Op, build: Builder, made: dict[tile.Load, tuple[Value[Array], Copy]]
) -> list[Value[Any]] | None:
    """What a load gives, from the copy."""
    if not isinstance(op, tile.Load) or op not in made:
        return None
    packed, copy = made[op]
    found = build.add(tile.Load(packed, tuple(op.subscripts[a] for a in copy.order)), op.out.name)
    first, second = (copy.order.index(axis) for axis in tile_axes(op.subscripts))
    if first < second:
        return [found.out]
    return [build.add(tile.Transpose(found.out), op.out.name).out]
