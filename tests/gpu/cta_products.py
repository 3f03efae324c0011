"""Products on the tensor cores, and the order in which their results are waited for.

Idea: operands are small integers, so every sum is exact in f32 and the expectation is NumPy's
product.  One warp loads the operands by TMA; A may also come from registers.

Never: puts an operand where the program could not (what a layout cannot give is not listed).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.gpu.cta_case import Case, Data, placed, values
from tests.gpu.cta_shared import box_type, tile_bytes
from tests.gpu.cta_text import Text
from tilec.layout.fragments import a_fragment, accumulator
from tilec.layout.linear import Layout
from tilec.layout.shared import core_matrices, swizzled

SPANS = (0, 32, 64, 128)


def whole(shape: tuple[int, ...], seed: int) -> Data:
    """Integers from -2 to 2."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


def operand_layout(rows: int, columns: int, span: int) -> Layout:
    """A row-major operand tile with this swizzle, or the widest one that its rows hold."""
    while span and (columns * 2) % span:
        span //= 2
    if span < 32:
        return core_matrices(rows, columns, 16)
    return swizzled(rows, columns, 16, span)


@dataclass(frozen=True)
class Operand:
    """A matrix [rows, k]: its place ("k" or "mn" major in shared memory, or "reg") and swizzle."""

    place: str
    rows: int
    k: int
    span: int

    @property
    def layout(self) -> Layout:
        """The part of a stage that holds it."""
        shape = (self.rows, self.k) if self.place == "k" else (self.k, self.rows)
        return operand_layout(*shape, self.span)

    def stored(self, data: Data) -> Data:
        """Its elements as the array has them."""
        return data.T if self.place == "mn" else data

    def view(self, text: Text, dtype: str, part: str) -> tuple[str, Layout]:
        """The tile [rows, k] in a part, and its layout."""
        if self.place == "k":
            return part, self.layout
        turned = self.layout.transpose()
        return text.op("cta.transpose", part, type=text.shared(dtype, turned)), turned


@dataclass(frozen=True)
class Multiply:
    """out[groups * 64, n] = A B^T (+ C), over ``blocks`` of K."""

    dtype: str
    a: Operand
    b: Operand
    groups: int = 1
    blocks: int = 1
    stages: int = 1
    starts: bool = False
    pending: int = 0

    @property
    def name(self) -> str:
        """What it is, in words."""
        a, b = self.a, self.b
        more = f" blocks {self.blocks} stages {self.stages} pending {self.pending}" * (
            self.blocks > 1
        )
        return (
            f"product {self.dtype} a {a.place} {a.span} b {b.place} {b.span} n {b.rows} k {b.k} "
            f"groups {self.groups}{' on c' * self.starts}{more}"
        )

    def case(self) -> Case:
        """The kernel and its result."""
        a, b, n = self.a, self.b, self.b.rows
        rows, depth = 64 * self.groups, a.k * self.blocks
        left, right, start = whole((rows, depth), 1), whole((n, depth), 2), whole((rows, n), 3)
        inputs = {"a": placed(self.dtype, a.stored(left)), "b": placed(self.dtype, b.stored(right))}
        wanted = left @ right.T
        if self.starts:
            inputs["c"] = placed("f32", start)
            wanted = wanted + start
        return Case(self.name, _Kernel(self).text(), inputs, {"out": placed("f32", wanted)})


class _Kernel:
    def __init__(self, what: Multiply) -> None:
        self.what = what
        self.acc = accumulator(what.b.rows)
        parts = [what.b] if what.a.place == "reg" else [what.a, what.b]
        self.parts = parts
        sizes = [-(-tile_bytes(p.layout, what.dtype) // 1024) * 1024 for p in parts]
        self.barriers = what.stages * sum(sizes)
        shared = self.barriers + 16 * what.stages
        self.out = Text(threads=128 + 128 * what.groups, shared_bytes=shared)

    def text(self) -> str:
        what, out, dtype = self.what, self.out, self.what.dtype
        rows, depth = 64 * what.groups, what.a.k * what.blocks
        a = out.array("a", dtype, (depth, rows) if what.a.place == "mn" else (rows, depth))
        b = out.array(
            "b", dtype, (depth, what.b.rows) if what.b.place == "mn" else (what.b.rows, depth)
        )
        c = out.array("c", "f32", (rows, what.b.rows)) if what.starts else ""
        result = out.array("out", "f32", (rows, what.b.rows), "out")
        arrays = [b] if what.a.place == "reg" else [a, b]
        maps = [
            out.op("cta.tensor_map", x, type=box_type(p.layout, dtype), axes=(1, 0))
            for x, p in zip(arrays, self.parts, strict=True)
        ]
        out.op("cta.grid", out.one)
        self.listed = f"[{', '.join(out.shared(dtype, p.layout) for p in self.parts)}]"
        kind = f"ring<{what.stages}, {self.listed}>"
        self.ring = out.op("cta.ring", type=kind, offset=0, barriers=self.barriers)
        self.limit, self.step = out.constant(depth), out.constant(what.a.k)
        with out.role("load", warps=1), out.loop(out.zero, self.limit, self.step) as (k, _, _):
            stage = out.op("cta.acquire", self.ring, type=f"free<{self.listed}>")
            for number, (part, source) in enumerate(zip(self.parts, maps, strict=True)):
                origin = [k, out.zero] if part.place == "mn" else [out.zero, k]
                out.op("cta.load", self.ring, stage, source, *origin, axes=(0, 1), part=number)
            out.yields()
        with out.role("multiply", first=4, warps=4 * what.groups, group=4) as group:
            row = out.op("math.mul", group, out.constant(64), type="s32")
            start = ""
            if c:
                start = out.read(c, out.reg("f32", self.acc), [row, out.zero], [0, 1], vector=2)
            total = self._multiply(group, row, a, start)
            out.write(result, total, [row, out.zero], [0, 1], vector=2)
        return str(out)

    def _issue(self, group: str, row: str, k: str, a: str, acc: str) -> tuple[str, str]:
        """Wait for a stage and start its product: the flight and the slot."""
        what, out, dtype = self.what, self.out, self.what.dtype
        slot = out.op("cta.wait", self.ring, type=f"slot<{self.listed}>")
        parts = [
            out.op(
                "cta.part", slot, type=out.shared(dtype, p.layout), **({"index": n} if n else {})
            )
            for n, p in enumerate(self.parts)
        ]
        right, _ = what.b.view(out, dtype, parts[-1])
        if what.a.place == "reg":
            fragment = out.reg(dtype, a_fragment(16, what.a.k))
            left = out.read(a, fragment, [row, k], [0, 1], vector=2)
        else:
            left, layout = what.a.view(out, dtype, parts[0])
            if what.groups > 1:
                kind = out.shared(dtype, layout, (64, what.a.k))
                left = out.op("cta.window", left, group, type=kind, rows=64)
        given = [left, right, acc] if acc else [left, right]
        flight = out.op("cta.product", *given, type=out.flight("f32", self.acc))
        out.op("cta.commit")
        return flight, slot

    def _multiply(self, group: str, row: str, a: str, start: str) -> str:
        what, out = self.what, self.out
        flight, slot = self._issue(group, row, out.zero, a, start)
        if what.blocks > 1:
            carried = [(flight, out.flight("f32", self.acc)), (slot, f"slot<{self.listed}>")]
            with out.loop(self.step, self.limit, self.step, carried) as (k, (acc, old), results):
                following, fresh = self._issue(group, row, k, a, acc)
                out.op("cta.settle", pending=what.pending)
                out.op("cta.release", self.ring, old)
                out.yields(following, fresh)
            flight, slot = results
        (total,) = out.op("cta.settle", flight, type=[out.reg("f32", self.acc)], pending=0)
        out.op("cta.release", self.ring, slot)
        return str(total)


def _single() -> Iterator[Multiply]:
    seen = set()
    every = product(("k", "mn", "reg"), ("k", "mn"), (8, 64, 80, 128, 256), (16, 64, 128), SPANS)
    for number, (a_place, b_place, n, k, span) in enumerate(every):
        dtype = ("bf16", "f16")[number % 2]
        a, b = Operand(a_place, 64, k, span), Operand(b_place, n, k, span)
        key = (a_place, a.layout, b_place, b.layout)
        if key not in seen:
            seen.add(key)
            yield Multiply(dtype, a, b, starts=number % 3 == 0)


def _windows() -> Iterator[Multiply]:
    for a_place, groups, span in product(("k", "mn"), (2, 3), SPANS):
        a = Operand(a_place, 64 * groups, 64, span)
        yield Multiply("bf16", a, Operand("k", 80, 64, 128), groups=groups)


def _loops() -> Iterator[Multiply]:
    for blocks, stages, pending in product((2, 3, 6), (2, 3, 4), (0, 1)):
        for a_place in ("k", "mn"):
            a, b = Operand(a_place, 128, 64, 128), Operand("mn", 128, 64, 128)
            yield Multiply("bf16", a, b, 2, blocks, stages, blocks == 3, pending)
        # A's registers are read anew each time, so nothing that uses them may still be in flight.
        if pending == 0:
            a, b = Operand("reg", 64, 64, 128), Operand("k", 64, 64, 64)
            yield Multiply("f16", a, b, 1, blocks, stages, blocks == 3, pending)


def _two_in_flight() -> Case:
    """Two groups of products, the older one waited for while the newer one runs."""
    acc, fragment = accumulator(64), a_fragment(16, 64)
    layout = swizzled(64, 64, 16, 128)
    left, right = whole((2, 64, 64), 1), whole((64, 64), 2)
    size = tile_bytes(layout, "bf16")
    text = Text(shared_bytes=size)
    a = text.array("a", "bf16", (2, 64, 64))
    b = text.array("b", "bf16", (64, 64))
    out = text.array("out", "f32", (2, 64, 64), "out")
    text.op("cta.grid", text.one)
    tile = text.op("cta.buffer", type=text.shared("bf16", layout), offset=0)
    with text.role() as group:
        value = text.read(b, text.reg("bf16", acc), [text.zero] * 2, [0, 1], vector=2)
        text.op("cta.put", tile, value, instruction="stmatrix")
        text.op("cta.publish")
        text.op("cta.sync", group, barrier=1, threads=128)
        flights = []
        for number in (text.zero, text.one):
            origin = [number, text.zero, text.zero]
            rows = text.read(a, text.reg("bf16", fragment), origin, [1, 2], vector=2)
            flights.append(text.op("cta.product", rows, tile, type=text.flight("f32", acc)))
            text.op("cta.commit")
        for number, flight, pending in zip((text.zero, text.one), flights, (1, 0), strict=True):
            (done,) = text.op("cta.settle", flight, type=[text.reg("f32", acc)], pending=pending)
            twice = text.op("math.add", done, done, type=text.reg("f32", acc))
            text.write(out, twice, [number, text.zero, text.zero], [1, 2], vector=2)
    wanted = 2 * np.einsum("gik,jk->gij", left, right)
    inputs = {"a": placed("bf16", left), "b": placed("bf16", right)}
    return Case("product two in flight", str(text), inputs, {"out": placed("f32", wanted)})


def _chained() -> Case:
    """The result of one product, narrowed, is A of the next: no element moves between them."""
    acc, layout = accumulator(64), swizzled(64, 64, 16, 128)
    left, right = whole((64, 64), 1), whole((64, 64), 2)
    left[:, 2:] = 0  # keeps the first product within what bf16 holds exactly
    text = Text(shared_bytes=tile_bytes(layout, "bf16"))
    a, b = text.array("a", "bf16", (64, 64)), text.array("b", "bf16", (64, 64))
    out = text.array("out", "f32", (64, 64), "out")
    text.op("cta.grid", text.one)
    tile = text.op("cta.buffer", type=text.shared("bf16", layout), offset=0)
    with text.role() as group:
        value = text.read(b, text.reg("bf16", acc), [text.zero] * 2, [0, 1], vector=2)
        text.op("cta.put", tile, value, instruction="stmatrix")
        text.op("cta.publish")
        text.op("cta.sync", group, barrier=1, threads=128)
        rows = text.read(a, text.reg("bf16", a_fragment(16, 64)), [text.zero] * 2, [0, 1], vector=2)
        first = text.op("cta.product", rows, tile, type=text.flight("f32", acc))
        text.op("cta.commit")
        (done,) = text.op("cta.settle", first, type=[text.reg("f32", acc)], pending=0)
        narrow = text.op("math.cast", done, type=text.reg("bf16", acc), dtype="bf16")
        turned = text.op("cta.transpose", tile, type=text.shared("bf16", layout.transpose()))
        second = text.op("cta.product", narrow, turned, type=text.flight("f32", acc))
        text.op("cta.commit")
        (total,) = text.op("cta.settle", second, type=[text.reg("f32", acc)], pending=0)
        text.write(out, total, [text.zero] * 2, [0, 1], vector=2)
    wanted = values("bf16", left @ right.T) @ right
    inputs = {"a": placed("bf16", left), "b": placed("bf16", right)}
    return Case("product chained", str(text), inputs, {"out": placed("f32", wanted)})


def cases() -> Iterator[Case]:
    """All of them."""
    for family in (_single, _windows, _loops):
        for what in family():
            yield what.case()
    yield _two_in_flight()
    yield _chained()
