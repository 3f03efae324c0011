"""Pieces of an axis: what registers hold is renamed, what another lane holds comes by a shuffle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.gpu.cta_case import Case, placed
from tests.gpu.cta_registers import numbers
from tests.gpu.cta_text import Text
from tilec.ir.levels.piece import Group, closed
from tilec.layout.linear import Layout

TILES = {
    "vector": Layout.parse("(reg: i1 i2 | lane: i4 i8 i16 i32 i64 | warp: _ _)"),
    "two ways": Layout.parse("(reg: i1 i128 | lane: i2 i4 i8 i16 i32 | warp: i64 _)"),
}
REGISTERS = {"vector": 4, "two ways": 2}
LANES = 32


def _parts(name: str, tile: Layout, dtype: str) -> Case:
    """Take all parts, exchange one with a lane's neighbour, and join them in another order."""
    text, count = Text(), REGISTERS[name]
    data = numbers(dtype, tile.shape)
    x = text.array("x", dtype, tile.shape)
    out = text.array("out", dtype, tile.shape, "out")
    text.op("cta.grid", text.one)
    small = closed(tile, 0, Group("reg", 1, count))
    with text.role():
        value = text.read(x, text.reg(dtype, tile), [text.zero], [0])
        kind = text.reg(dtype, small)
        parts = [
            text.op("piece.take", value, type=kind, axis=0, extent=count, which=n)
            for n in range(count)
        ]
        parts[0] = text.op("piece.partner", parts[0], type=kind, axis=0, step=4)
        joined = text.op("piece.join", *parts[::-1], type=text.reg(dtype, tile), axis=0)
        text.write(out, joined, [text.zero], [0])
    kept = data.reshape(-1, count).copy()
    kept[:, 0] = kept[np.arange(len(kept)) ^ 4, 0]
    outputs = {"out": placed(dtype, kept[:, ::-1].reshape(-1))}
    return Case(f"parts of {name} {dtype}", str(text), {"x": placed(dtype, data)}, outputs)


def _spread(dtype: str) -> Case:
    """Lanes that hold the same are one element, and all of them again."""
    small = Layout.parse("(reg: i1 | lane: _ _ _ _ _ | warp: _*4)")
    large = Layout.parse("(reg: i32 | lane: i1 i2 i4 i8 i16 | warp: _*4)")
    text = Text()
    data = numbers(dtype, (2,))
    x = text.array("x", dtype, (2,))
    out, again = text.array("out", dtype, (64,), "out"), text.array("again", dtype, (2,), "out")
    text.op("cta.grid", text.one)
    with text.role():
        value = text.read(x, text.reg(dtype, small), [text.zero], [0])
        wide = text.op("piece.spread", value, type=text.reg(dtype, large), axis=0, extent=LANES)
        text.write(out, wide, [text.zero], [0])
        back = text.op("piece.close", wide, type=text.reg(dtype, small), axis=0, extent=LANES)
        text.write(again, back, [text.zero], [0])
    outputs = {"out": placed(dtype, np.repeat(data, LANES)), "again": placed(dtype, data)}
    return Case(f"spread {dtype}", str(text), {"x": placed(dtype, data)}, outputs)


def cases() -> Iterator[Case]:
    """Both kinds of parts, in elements of one register and of two."""
    for dtype in ("f32", "s32", "f64", "s64"):
        for name, tile in TILES.items():
            yield _parts(name, tile, dtype)
        yield _spread(dtype)
