"""Register tiles to and from global memory: vectors, edges, strides, axes, copies.

Idea: each kernel reads one tile and writes it twice: whole, to an array of the tile's shape, which
shows what was read and the fill, and back to where it came from in an array like the first, which
shows what was written and what was left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tests.gpu.cta_case import Case, Data, Placed, held, values
from tests.gpu.cta_text import Text
from tilec.interp.numbers import storage
from tilec.ir.types import DTYPES
from tilec.layout.fragments import blocked
from tilec.layout.linear import Layout


def some(dtype: str, shape: Sequence[int], seed: int = 0) -> Data:
    """Random elements as memory holds them."""
    generator = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    if dtype == "bool":
        return generator.random(shape) < 0.5
    if kind.is_float and kind.bits > 8:
        return held(dtype, values(dtype, generator.standard_normal(shape)))
    wide = generator.integers(-(1 << 62), 1 << 62, shape)
    return wide.astype(np.uint64).astype(storage(kind))


def untouched(dtype: str, shape: Sequence[int]) -> Data:
    """Elements as the poison of a storage leaves them."""
    kind = storage(DTYPES[dtype])
    if kind == np.bool_:
        return np.full((*shape, 1), 0xA5, np.uint8).view(kind)[..., 0]
    return np.full((*shape, kind.itemsize), 0xA5, np.uint8).view(kind)[..., 0]


@dataclass(frozen=True)
class Move:
    """One tile of one array."""

    name: str
    dtype: str
    tile: Layout
    shape: tuple[int, ...]
    origin: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    bounded: tuple[int, ...] = ()
    vector: int = 1
    strides: tuple[int, ...] | None = None
    offset: int = 0
    unit: int | None = None
    fill: Any = 0
    warps: int = 4
    symbolic: bool = True
    write: bool = True

    def case(self) -> Case:
        """The kernel, and what it must leave."""
        rank = len(self.shape)
        origin = self.origin or (0,) * rank
        axes = self.axes or tuple(range(rank))
        data = some(self.dtype, self.shape)
        if self.strides is not None and 0 in self.strides:
            axis = self.strides.index(0)
            data = np.broadcast_to(np.take(data, [0], axis), self.shape).copy()
        names = [f"N{a}" if self.symbolic else n for a, n in enumerate(self.shape)]
        text = Text(threads=32 * self.warps)
        x = text.array("x", self.dtype, names, unit=self.unit)
        whole = text.array("whole", self.dtype, self.tile.shape, "out")
        back = ""
        if self.write:
            back = text.array("back", self.dtype, names, "out", unit=self.unit)
        text.op("cta.grid", text.one)
        with text.role(warps=self.warps):
            at = [text.constant(o) for o in origin]
            more: dict[str, Any] = {"bounded": self.bounded} if self.bounded else {}
            filled = {"fill": self.fill} if self.fill else {}
            type = text.reg(self.dtype, self.tile)
            value = text.read(x, type, at, axes, vector=self.vector, **more, **filled)
            ranks = range(self.tile.rank)
            text.write(whole, value, [text.zero for _ in ranks], ranks)
            if back:
                text.write(back, value, at, axes, vector=self.vector, **more)
        seen, left = self._expected(data, origin, axes)
        outputs = {"whole": Placed(self.dtype, seen)}
        if self.write:
            outputs["back"] = Placed(self.dtype, left, self.strides, self.offset)
        inputs = {"x": Placed(self.dtype, data, self.strides, self.offset)}
        return Case(self.name, str(text), inputs, outputs)

    def _expected(
        self, data: Data, origin: tuple[int, ...], axes: tuple[int, ...]
    ) -> tuple[Data, Data]:
        fill = held(self.dtype, np.asarray(self.fill, bool if self.dtype == "bool" else float))
        seen: Data = np.empty(self.tile.shape, data.dtype)
        left = untouched(self.dtype, self.shape)
        for place in np.ndindex(*self.tile.shape):
            at = list(origin)
            for axis, step in zip(axes, place, strict=True):
                at[axis] += step
            if all(n < extent for n, extent in zip(at, self.shape, strict=True)):
                seen[place] = left[tuple(at)] = data[tuple(at)]
            else:
                seen[place] = fill
        return seen, left


_WIDEST = {
    "f32": 4, "s32": 4, "bf16": 8, "f16": 8, "s64": 2, "f64": 2, "s8": 16, "u16": 8, "bool": 16,
}  # fmt: skip


def _vectors() -> Iterator[Move]:
    """Every width, on a whole tile and on edges that do and do not cut a vector."""
    for dtype, widest in _WIDEST.items():
        for vector in (1, 2, 4, 8, 16):
            if vector > widest:
                continue
            tile = blocked((8, 128), 128, vector, 8 * storage(DTYPES[dtype]).itemsize)
            for name, shape in {
                "whole": (8, 128),
                "even": (5, 112),
                "uneven": (7, 101),
                "one": (8, 1),
            }.items():
                pitch = 128
                yield Move(
                    f"move {dtype} vector {vector} {name}",
                    dtype,
                    tile,
                    shape,
                    bounded=(0, 1) if name != "whole" else (),
                    vector=vector,
                    strides=(pitch, 1),
                )
        edge = blocked((4, 128), 128, min(4, widest), 8)
        yield Move(
            f"move {dtype} edges known", dtype, edge, (3, 96), bounded=(0, 1),
            vector=min(4, widest), strides=(128, 1), symbolic=False,
        )  # fmt: skip


def _fills() -> Iterator[Move]:
    tile = blocked((8, 64), 128, 2, 32)
    for dtype, fill in (
        ("f32", float("-inf")), ("f32", 1.5), ("s32", -7), ("s64", 1 << 40), ("bool", True),
        ("f64", -2.5),
    ):  # fmt: skip
        for vector in (1, 2):
            yield Move(
                f"fill {dtype} {fill} vector {vector}", dtype, tile, (5, 37), bounded=(0, 1),
                vector=vector, fill=fill, strides=(40, 1),
            )  # fmt: skip


def _strides() -> Iterator[Move]:
    """Zero, padded, exchanged, and none that is one; bases that no vector could start at."""
    for dtype in ("f32", "bf16", "s8", "f64"):
        tile = blocked((16, 64), 128, 2, 8)
        shape = (13, 50)
        for name, strides, unit, vector, write in (
            ("padded", (72, 1), 1, 2, True),
            ("zero rows", (0, 1), 1, 2, False),
            ("zero columns", (64, 0), -1, 1, False),
            ("transposed", (1, 24), 0, 1, True),
            ("every other", (128, 2), -1, 1, True),
            ("far", (1 << 16, 1), 1, 2, True),
        ):
            yield Move(
                f"strides {dtype} {name}", dtype, tile, shape, bounded=(0, 1), vector=vector,
                strides=strides, unit=unit, write=write,
            )  # fmt: skip
        yield Move(
            f"strides {dtype} odd base",
            dtype,
            tile,
            shape,
            bounded=(0, 1),
            strides=(67, 1),
            offset=3,
        )


def _places() -> Iterator[Move]:
    """Origins, and tiles along some axes of an array, in either order."""
    line = blocked((512,), 128, 2, 32)
    square = blocked((16, 32), 128, 2, 32)
    cube = blocked((4, 8, 16), 128, 2, 32)
    for dtype in ("f32", "bf16"):
        for start, extent in ((0, 512), (64, 400), (512, 1000), (600, 600)):
            yield Move(
                f"line {dtype} {start} of {extent}", dtype, line, (extent,), (start,), bounded=(0,),
                vector=2,
            )  # fmt: skip
        for axes in product(range(3), repeat=2):
            if axes[0] == axes[1]:
                continue
            yield Move(
                f"square {dtype} axes {axes}",
                dtype,
                square,
                (20, 36, 40),
                (3, 6, 10),
                axes,
                (0, 1),
                2,
            )
        yield Move(
            f"cube {dtype}", dtype, cube, (5, 9, 40), (2, 4, 32), bounded=(0, 1, 2), vector=2
        )
        yield Move(
            f"cube {dtype} turned", dtype, cube, (18, 5, 9), (0, 2, 4), (1, 2, 0), (0, 1, 2), 2
        )


def _copies() -> Iterator[Move]:
    """Elements that several threads or registers hold are written by one of them."""
    for name, text, warps in (
        ("lanes", "(reg: i1 i2 | lane: _ _ i4 i8 i16 | warp: i32 i64)", 4),
        ("warps", "(reg: i1 i2 | lane: i4 i8 i16 i32 i64 | warp: _ i128)", 4),
        ("absent warps", "(reg: i1 i2 | lane: i4 i8 i16 i32 i64)", 4),
        ("three warps", "(reg: i1 i2 | lane: i4 i8 i16 i32 i64)", 3),
        ("eight warps", "(reg: i1 | lane: i2 i4 i8 i16 i32 | warp: i64 _ i128)", 8),
        ("registers", "(reg: _ i1 _ i2 | lane: i4 i8 i16 i32 i64 | warp: i128 i256)", 4),
        ("one element", "(reg: i1*1 | lane: _ _ _ _ _ | warp: _ _)", 4),
        ("two warps", "(reg: i64*3 | lane: i1 i2 i4 i8 i16 | warp: i32)", 2),
        ("one warp", "(reg: i1 | lane: i2 i4 i8 i16 i32)", 1),
    ):
        tile = Layout.parse(text)
        for dtype in ("f32", "bf16", "bool"):
            yield Move(f"copies {name} {dtype}", dtype, tile, tile.shape, bounded=(0,), warps=warps)


def cases() -> Iterator[Case]:
    """All of them."""
    for family in (_vectors, _fills, _strides, _places, _copies):
        for move in family():
            yield move.case()
