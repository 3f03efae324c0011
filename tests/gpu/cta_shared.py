"""Shared memory: put and get by plain and matrix instructions, rings that TMA fills, TMA stores.

Idea: what one instruction writes another reads: registers in one layout, then in another, through
the tile or its transpose; TMA on one side and registers on the other.  Agreement of two that know
nothing of each other is what the swizzle has to give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.gpu.cta_case import Case, Data, Placed, held, values
from tests.gpu.cta_memory import some, untouched
from tests.gpu.cta_text import Text
from tilec.interp.numbers import decode
from tilec.ir.types import DTYPES
from tilec.layout.fragments import a_fragment, accumulator, blocked
from tilec.layout.linear import Layout
from tilec.layout.shared import swizzled
from tilec.layout.tma import boxes

SPANS = (0, 32, 64, 128)


def bits_of(dtype: str) -> int:
    """Bits of an element."""
    return DTYPES[dtype].bits


def tile_bytes(layout: Layout, dtype: str) -> int:
    """Bytes of a shared tile."""
    return layout.size("off") * bits_of(dtype) // 8


def box_type(layout: Layout, dtype: str, lead: int = 0) -> str:
    """The tensor map's type for a tile: box innermost first, ``lead`` further axes of one."""
    from tilec.layout.shared import swizzle_of

    first = boxes(layout, bits_of(dtype))[0]
    extents = " x ".join(map(str, (*first.extents, *[1] * lead)))
    return f"tensormap<{dtype}, {extents}, {swizzle_of(layout)}>"


# --- registers on both sides ---------------------------------------------------------------------


def _through(
    dtype: str,
    shared: Layout,
    into: tuple[Layout, str, bool],
    out_of: tuple[Layout, str, bool],
    label: str,
) -> Case:
    """Put and get: each side's register layout, instruction, and whether it sees a transpose."""
    (source, store, turned_in), (target, load, turned_out) = into, out_of
    data = some(dtype, source.shape)
    text = Text(shared_bytes=tile_bytes(shared, dtype))
    x = text.array("x", dtype, source.shape)
    out = text.array("out", dtype, target.shape, "out")
    text.op("cta.grid", text.one)
    tile = text.op("cta.buffer", type=text.shared(dtype, shared), offset=0)
    view_type = text.shared(dtype, shared.transpose())
    with text.role() as group:
        value = text.read(x, text.reg(dtype, source), [text.zero] * 2, [0, 1])
        place = text.op("cta.transpose", tile, type=view_type) if turned_in else tile
        text.op("cta.put", place, value, instruction=store)
        text.op("cta.sync", group, barrier=1, threads=128)
        place = text.op("cta.transpose", tile, type=view_type) if turned_out else tile
        back = text.op("cta.get", place, type=text.reg(dtype, target), instruction=load)
        text.write(out, back, [text.zero] * 2, [0, 1])
    wanted = data.T if turned_in != turned_out else data
    outputs = {"out": Placed(dtype, np.ascontiguousarray(wanted))}
    return Case(f"shared {dtype} {label}", str(text), {"x": Placed(dtype, data)}, outputs)


def _matrix_moves() -> Iterator[Case]:
    square, fragment = accumulator(64), a_fragment(16, 64)
    for dtype, span in product(("bf16", "f16"), SPANS):
        shared = swizzled(64, 64, 16, span)
        for store, load in product(("store", "stmatrix"), ("load", "ldmatrix")):
            label = f"{store} {load} swizzle {span}"
            yield _through(dtype, shared, (square, store, False), (fragment, load, False), label)
        for store, load in product(("store", "stmatrix"), ("ldmatrix",)):
            label = f"{store} {load} transposed in swizzle {span}"
            yield _through(dtype, shared, (square, store, True), (square, load, False), label)
        for store, load in product(("store", "stmatrix"), ("ldmatrix",)):
            label = f"{store} {load} transposed out swizzle {span}"
            yield _through(dtype, shared, (square, store, False), (square, load, True), label)
        wide = swizzled(64, 128, 16, span)
        yield _through(
            dtype, wide, (accumulator(128), "stmatrix", False),
            (a_fragment(16, 128), "load", False), f"striped swizzle {span}",
        )  # fmt: skip
        yield _through(
            dtype, swizzled(64, 80, 16, span if span < 64 else 32),
            (accumulator(80), "stmatrix", False), (accumulator(80), "ldmatrix", False),
            f"80 columns swizzle {span if span < 64 else 32} of {span}",
        )  # fmt: skip


def _plain_moves() -> Iterator[Case]:
    for dtype, span in product(("f32", "s32", "bf16", "f64", "s8"), SPANS):
        bits = bits_of(dtype)
        columns = 1024 // bits
        shared = swizzled(32, columns, bits, span)
        vector = 128 // bits
        lines = blocked((32, columns), 128, vector, bits)
        single = blocked((32, columns), 128, max(1, 32 // bits), bits)
        for label, into, out in (("wide", lines, single), ("narrow", single, lines)):
            yield _through(
                dtype,
                shared,
                (into, "store", False),
                (out, "load", False),
                f"{label} swizzle {span}",
            )
        if bits >= 32:
            turned = blocked((columns, 32), 128, 1, bits)
            yield _through(
                dtype,
                shared,
                (lines, "store", False),
                (turned, "load", True),
                f"turned swizzle {span}",
            )
    # Accumulators as they are, with stripes.
    for n, span in ((64, 128), (64, 0), (80, 64), (8, 32)):
        shared = swizzled(64, n, 32, span)
        acc = accumulator(n)
        lines = blocked((64, n), 128, 4, 32)
        yield _through(
            "f32", shared, (acc, "store", False), (lines, "load", False), f"acc{n} {span}"
        )
        yield _through(
            "f32", shared, (lines, "store", False), (acc, "load", False), f"to acc{n} {span}"
        )


def _windows() -> Iterator[Case]:
    """Two groups, each with the rows of its number; then each reads the other's."""
    for span in SPANS:
        shared = swizzled(128, 64 if span in (0, 128) else span // 2, 16, span)
        columns = shared.shape[1]
        acc = accumulator(columns)
        data = some("bf16", (128, columns))
        text = Text(threads=256, shared_bytes=tile_bytes(shared, "bf16"))
        x = text.array("x", "bf16", data.shape)
        out = text.array("out", "bf16", data.shape, "out")
        text.op("cta.grid", text.one)
        tile = text.op("cta.buffer", type=text.shared("bf16", shared), offset=0)
        with text.role(warps=8, group=4) as group:
            row = text.op("math.mul", group, text.constant(64), type="s32")
            value = text.read(x, text.reg("bf16", acc), [row, text.zero], [0, 1])
            view = text.shared("bf16", shared, (64, columns))
            mine = text.op("cta.window", tile, group, type=view, rows=64)
            text.op("cta.put", mine, value, instruction="stmatrix")
            text.op("cta.sync", group, barrier=1, threads=128)
            back = text.op("cta.get", mine, type=text.reg("bf16", acc), instruction="ldmatrix")
            text.write(out, back, [row, text.zero], [0, 1])
        pair = {"x": Placed("bf16", data)}, {"out": Placed("bf16", data)}
        yield Case(f"shared windows swizzle {span}", str(text), *pair)


# --- rings ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiles:
    """Shared tiles that one array is cut into, row of tiles by row of tiles."""

    dtype: str
    shared: Layout
    registers: Layout
    extents: tuple[int, int]

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles along each axis; the last ones may reach beyond the array."""
        return tuple(-(-e // n) for e, n in zip(self.extents, self.shared.shape, strict=True))  # type: ignore[return-value]

    def cut(self, data: Data) -> Data:
        """All tiles one below another; zero beyond the array."""
        rows, columns = self.shared.shape
        down, across = self.grid
        whole = np.zeros((down * rows, across * columns), data.dtype)
        whole[: data.shape[0], : data.shape[1]] = data
        pieces = [
            whole[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
            for i in range(down)
            for j in range(across)
        ]
        return np.concatenate(pieces)


def _ring(label: str, stages: int, parts: Sequence[Tiles], groups: int = 1) -> Case:
    """One warp loads all tiles of each array, one a part; groups read them back in turn."""
    count = parts[0].grid[0] * parts[0].grid[1]
    part_bytes = [-(-tile_bytes(p.shared, p.dtype) // 1024) * 1024 for p in parts]
    barriers = stages * sum(part_bytes)
    text = Text(threads=128 + 128 * groups, shared_bytes=barriers + 16 * stages)
    inputs, outputs = {}, {}
    maps, outs = [], []
    for n, part in enumerate(parts):
        data = some(part.dtype, part.extents, seed=n)
        inputs[f"x{n}"] = Placed(part.dtype, data)
        outputs[f"out{n}"] = Placed(part.dtype, np.concatenate([part.cut(data)] * groups))
        x = text.array(f"x{n}", part.dtype, part.extents)
        shape = outputs[f"out{n}"].values.shape
        outs.append(text.array(f"out{n}", part.dtype, shape, "out"))
        kind = box_type(part.shared, part.dtype)
        maps.append(text.op("cta.tensor_map", x, type=kind, axes=(1, 0)))
    text.op("cta.grid", text.one)
    listed = f"[{', '.join(text.shared(p.dtype, p.shared) for p in parts)}]"
    kind = f"ring<{stages}, {listed}>"
    ring = text.op("cta.ring", type=kind, offset=0, barriers=barriers)
    limit, across = text.constant(count), text.constant(parts[0].grid[1])
    with text.role("load", warps=1), text.loop(text.zero, limit, text.one) as (index, _, _):
        down = text.op("math.floordiv", index, across, type="s32")
        along = text.op("math.mod", index, across, type="s32")
        stage = text.op("cta.acquire", ring, type=f"free<{listed}>")
        for n, part in enumerate(parts):
            row, column = (
                text.op("math.mul", at, text.constant(extent), type="s32")
                for at, extent in zip((down, along), part.shared.shape, strict=True)
            )
            text.op("cta.load", ring, stage, maps[n], row, column, axes=(0, 1), part=n)
        text.yields()
    with text.role("take", first=4, warps=4 * groups, group=4) as group:
        before = text.op("math.mul", group, limit, type="s32")
        with text.loop(text.zero, limit, text.one) as (index, _, _):
            number = text.op("math.add", before, index, type="s32")
            slot = text.op("cta.wait", ring, type=f"slot<{listed}>")
            for n, part in enumerate(parts):
                kind = text.shared(part.dtype, part.shared)
                tile = text.op("cta.part", slot, type=kind, index=n)
                register = text.reg(part.dtype, part.registers)
                value = text.op("cta.get", tile, type=register, instruction="load")
                height = text.constant(part.shared.shape[0])
                row = text.op("math.mul", number, height, type="s32")
                text.write(outs[n], value, [row, text.zero], [0, 1])
            text.op("cta.release", ring, slot)
            text.yields()
    return Case(f"ring {label} stages {stages}", str(text), inputs, outputs)


def _tiles(dtype: str, rows: int, columns: int, span: int, extents: tuple[int, int]) -> Tiles:
    bits = bits_of(dtype)
    shared = swizzled(rows, columns, bits, span)
    vector = max(1, min(128, 32 if span == 0 else 128) // bits)
    return Tiles(dtype, shared, blocked((rows, columns), 128, vector, bits), extents)


def _rings() -> Iterator[Case]:
    for stages in (1, 2, 3, 4):
        tiles = _tiles("bf16", 64, 64, 128, (64 * 7, 64))
        yield _ring("bf16", stages, [tiles])
        yield _ring("bf16 two groups", stages, [tiles], groups=2)
        second = _tiles("f32", 16, 32, 128, (16 * 7, 32))
        third = _tiles("bf16", 8, 256, 0, (8 * 7, 256))
        yield _ring("three parts", stages, [tiles, second, third])
    for dtype, span in product(("bf16", "f16", "f32", "s32", "f64", "u8"), SPANS):
        width = 128 if span == 0 else 2 * span
        columns = width * 8 // bits_of(dtype)
        tiles = _tiles(dtype, 32, columns, span, (75, columns * 3 - columns // 2))
        yield _ring(f"{dtype} swizzle {span} clipped", 2, [tiles])
    yield _ring("tall", 2, [_tiles("bf16", 512, 16, 32, (1200, 16))])
    yield _ring("column", 2, [_tiles("bf16", 64, 64, 128, (61, 64 * 5 - 8))])


# --- stores --------------------------------------------------------------------------------------


def _store(
    label: str, dtype: str, tiles: Tiles, instruction: str, lead: int = 0, update: str = ""
) -> Case:
    """Tiles through one staging buffer to an array whose edge cuts the last ones."""
    data = some(
        dtype, (tiles.grid[0] * tiles.shared.shape[0], tiles.grid[1] * tiles.shared.shape[1])
    )
    size = tile_bytes(tiles.shared, dtype)
    text = Text(shared_bytes=size)
    x = text.array("x", dtype, data.shape)
    shape = (*[3] * lead, *tiles.extents)
    out = text.array("out", dtype, shape, "inout" if update else "out")
    axes = tuple(range(len(shape)))[::-1]
    target = text.op("cta.tensor_map", out, type=box_type(tiles.shared, dtype, lead), axes=axes)
    text.op("cta.grid", text.one)
    buffer = text.op("cta.buffer", type=text.shared(dtype, tiles.shared), offset=0)
    with text.role() as group:
        down, across = (text.constant(n) for n in data.shape)
        height, width = (text.constant(n) for n in tiles.shared.shape)
        with text.loop(text.zero, down, height) as (row, _, _):
            with text.loop(text.zero, across, width) as (column, _, _):
                type = text.reg(dtype, tiles.registers)
                value = text.read(x, type, [row, column], [0, 1])
                text.op("cta.drain_stores")
                text.op("cta.sync", group, barrier=1, threads=128)
                text.op("cta.put", buffer, value, instruction=instruction)
                text.op("cta.publish")
                text.op("cta.sync", group, barrier=1, threads=128)
                origin = [*[text.one] * lead, row, column]
                how = {"update": update} if update else {}
                text.op("cta.store", target, buffer, *origin, axes=axes[::-1][lead:], **how)
                text.yields()
            text.yields()
        text.op("cta.drain_stores", visible=True)
    given = {"x": Placed(dtype, data)}
    left = untouched(dtype, shape)
    stored = data[: tiles.extents[0], : tiles.extents[1]]
    if update:
        left = some(dtype, shape, seed=1)
        given["out"] = Placed(dtype, left.copy())
        there, new = (decode(DTYPES[dtype], part) for part in (left[(1,) * lead], stored))
        stored = held(dtype, values(dtype, there + new))
    left[(1,) * lead] = stored
    does = "sum" if update else "store"
    return Case(f"tma {does} {label}", str(text), given, {"out": Placed(dtype, left)})


def _stores() -> Iterator[Case]:
    for span in SPANS:
        columns = 64 if span in (0, 128) else span // 2
        shared = swizzled(64, columns, 16, span)
        for height, width in ((64, columns), (50, columns - 8), (150, 2 * columns + 8), (1, 8)):
            for instruction in ("stmatrix", "store"):
                tiles = Tiles("bf16", shared, accumulator(columns), (height, width))
                label = f"{height} x {width} swizzle {span} {instruction}"
                yield _store(label, "bf16", tiles, instruction)
        single = _tiles("f32", 32, 32 if span == 0 else span // 4, span, (70, 44))
        yield _store(f"f32 swizzle {span}", "f32", single, "store")
        yield _store(f"f32 swizzle {span} of three", "f32", single, "store", lead=1)
    for dtype in ("bf16", "f16", "f32", "s32"):
        for span in SPANS:
            columns = 16 if span == 0 else span * 8 // bits_of(dtype)
            summed = _tiles(dtype, 64, columns, span, (150, 2 * columns + 8))
            yield _store(f"{dtype} swizzle {span}", dtype, summed, "store", update="add")
    leading = _tiles("bf16", 64, 64, 128, (70, 104))
    yield _store("bf16 of three", "bf16", leading, "store", lead=1, update="add")
    striped = Tiles("bf16", swizzled(64, 128, 16, 128), accumulator(128), (130, 200))
    yield _store("two stripes", "bf16", striped, "stmatrix")


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _matrix_moves()
    yield from _plain_moves()
    yield from _windows()
    yield from _rings()
    yield from _stores()
