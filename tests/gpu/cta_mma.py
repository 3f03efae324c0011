"""Products by mma.sync: every element type, place of the operands, and way to spread the warps.

Idea: operands are small integers, so every sum is exact and the expectation is NumPy's product.
The operands come from global memory through registers into shared memory, or stay in registers.

Never: puts an operand where the program could not (what a layout cannot give is not listed).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.gpu.cta_case import Case, Data, placed
from tests.gpu.cta_shared import bits_of, tile_bytes
from tests.gpu.cta_text import Text
from tilec.layout.fragments import blocked
from tilec.layout.linear import Layout, LayoutRefusal
from tilec.layout.matrices import matrix_plan
from tilec.layout.shared import swizzled
from tilec.layout.teams import team_a, team_b, team_result


def whole(shape: tuple[int, ...], seed: int, signed: bool = True) -> Data:
    """Integers from -2 to 2, or from 0 to 4."""
    found = np.random.default_rng(seed).integers(-2, 3, shape)
    return (found if signed else found + 2).astype(np.float32)


def shared_layout(rows: int, columns: int, bits: int, major: str) -> Layout:
    """The widest swizzle that the tile's rows hold."""
    for span in (128, 64, 32):
        try:
            return swizzled(rows, columns, bits, span, major)
        except LayoutRefusal:
            continue
    return swizzled(rows, columns, bits, 0, major)


@dataclass(frozen=True)
class Multiply:
    """out[rows, n] = A B^T (+ C) by ``warps`` warps; ``a`` and ``b`` are row, column or reg."""

    a_type: str
    b_type: str
    rows: int
    n: int
    k: int
    warps: int
    a: str = "row"
    b: str = "row"
    starts: bool = False

    @property
    def name(self) -> str:
        """What it is, in words."""
        return (
            f"mma {self.a_type} {self.b_type} {self.rows} x {self.n} x {self.k} warps {self.warps} "
            f"a {self.a} b {self.b}{' on c' * self.starts}"
        )

    def case(self) -> Case:
        """The kernel and its result."""
        total = {"s8": "s32", "u8": "s32", "f64": "f64"}.get(self.a_type, "f32")
        bits = bits_of(self.a_type)
        left = whole((self.rows, self.k), 1, self.a_type != "u8")
        right = whole((self.n, self.k), 2, self.b_type != "u8")
        start = whole((self.rows, self.n), 3)
        shape = (self.rows, self.n, self.k, self.warps)
        fragments = (team_a(bits, *shape), team_b(bits, *shape))
        tiles = [
            shared_layout(*x.shape, bits, major if major != "reg" else "row")
            for x, major in ((left, self.a), (right, self.b))
        ]
        sizes = [-(-tile_bytes(t, self.a_type) // 1024) * 1024 for t in tiles]
        text = Text(threads=32 * self.warps, shared_bytes=sum(sizes))
        arrays = [
            text.array("a", self.a_type, left.shape),
            text.array("b", self.b_type, right.shape),
        ]
        c = text.array("c", total, start.shape) if self.starts else ""
        out = text.array("out", total, start.shape, "out")
        text.op("cta.grid", text.one)
        parts = ((self.a, self.a_type), (self.b, self.b_type))
        buffers = [
            text.op("cta.buffer", type=text.shared(dtype, tile), offset=offset)
            for (place, dtype), tile, offset in zip(parts, tiles, (0, sizes[0]), strict=True)
        ]
        result = team_result(self.rows, self.n, self.warps)
        with text.role(warps=self.warps) as group:
            operands, by = [], []
            for (place, dtype), tile, array, buffer, fragment in zip(
                parts, tiles, arrays, buffers, fragments, strict=True
            ):
                held = fragment
                if place != "reg":
                    held = blocked(tile.shape, 32 * self.warps, 32 // min(32, bits), bits)
                value = text.read(array, text.reg(dtype, held), [text.zero] * 2, [0, 1])
                if place == "reg":
                    operands.append(value)
                    by.append("ldmatrix")
                    continue
                text.op("cta.put", buffer, value, instruction="store")
                operands.append(buffer)
                by.append(_brought_by(fragment, tile, bits))
            text.op("cta.sync", group, barrier=1, threads=32 * self.warps)
            if self.starts:
                operands.append(text.read(c, text.reg(total, result), [text.zero] * 2, [0, 1]))
            kind = text.reg(total, result)
            made = text.op("mma.product", *operands, type=kind, a_by=by[0], b_by=by[1])
            text.write(out, made, [text.zero] * 2, [0, 1])
        wanted = left @ right.T + (start if self.starts else 0)
        inputs = {"a": placed(self.a_type, left), "b": placed(self.b_type, right)}
        if self.starts:
            inputs["c"] = placed(total, start)
        return Case(self.name, str(text), inputs, {"out": placed(total, wanted)})


def _brought_by(fragment: Layout, tile: Layout, bits: int) -> str:
    try:
        matrix_plan(fragment, tile, bits)
    except LayoutRefusal:
        return "load"
    return "ldmatrix"


TEAMS = ((64, 64, 4), (16, 64, 4), (32, 24, 1), (48, 16, 2), (128, 8, 4), (16, 8, 4), (16, 40, 1))
"""Rows, columns and warps: along rows, along columns, blocks of rows, copies, odd counts."""


def cases() -> Iterator[Case]:
    """All of them."""
    for dtype in ("bf16", "f16"):
        for (rows, n, warps), k in product(TEAMS, (16, 48, 64)):
            yield Multiply(dtype, dtype, rows, n, k, warps).case()
        for a, b in product(("row", "column", "reg"), repeat=2):
            yield Multiply(dtype, dtype, 32, 32, 32, 4, a, b, starts=True).case()
            yield Multiply(dtype, dtype, 64, 64, 32, 4, a, b).case()
    for a_type, b_type in product(("s8", "u8"), repeat=2):
        for a, b in product(("row", "column"), repeat=2):
            yield Multiply(a_type, b_type, 16, 64, 64, 4, a, b, starts=True).case()
    for a, b in product(("row", "column"), repeat=2):
        yield Multiply("tf32", "tf32", 64, 32, 32, 4, a, b).case()
    for (rows, n, warps), k in product(TEAMS, (16, 48)):
        yield Multiply("f64", "f64", rows, n, k, warps).case()
    for a, b in product(("row", "column", "reg"), repeat=2):
        yield Multiply("f64", "f64", 64, 32, 32, 4, a, b, starts=True).case()
    for a_type, b_type in product(("e4m3", "e5m2"), repeat=2):
        for a, b in product(("row", "column"), repeat=2):
            yield Multiply(a_type, b_type, 64, 32, 64, 4, a, b).case()
