"""Loops, branches, turns and weaving: what changes only when and how often things are done."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.gpu.cta_case import Case, Placed, placed, values
from tests.gpu.cta_elementwise import SIZE, TILE
from tests.gpu.cta_memory import some
from tests.gpu.cta_shared import box_type, tile_bytes
from tests.gpu.cta_text import Text
from tilec.layout.fragments import accumulator, blocked
from tilec.layout.linear import Layout
from tilec.layout.shared import swizzled

ONE = Layout.parse("(reg: i1*1 | lane: _*32 | warp: _*4)")


def _counted(lower: int, upper: int, step: int, known: bool) -> Case:
    """A loop carries a tile, a scalar and two values that change places; bounds known or read."""
    text = Text()
    bounds = text.array("bounds", "s32", (3,))
    x = text.array("x", "f32", (SIZE,))
    out, count = (
        text.array("out", "f32", (2, SIZE), "out"),
        text.array("count", "s32", (2, 1), "out"),
    )
    text.op("cta.grid", text.one)
    given = (lower, upper, step)
    with text.role():
        at = [text.constant(n) for n in range(3)]
        ends = [
            text.constant(v) if known else text.op("cta.read_scalar", bounds, a, type="s32")
            for v, a in zip(given, at, strict=True)
        ]
        tile = text.reg("f32", TILE)
        first = text.read(x, tile, [text.zero], [0])
        second = text.op("math.fill", text.constant(100.0, "f32"), type=tile)
        half = text.constant(1.0, "f32")
        init = [(first, tile), (second, tile), (text.zero, "s32"), (text.zero, "s32")]
        with text.loop(ends[0], ends[1], ends[2], init) as (
            index,
            (one, other, total, times),
            results,
        ):
            more = text.op("math.add", one, half, type=tile)
            text.yields(
                other,
                more,
                text.op("math.add", total, index, type="s32"),
                text.op("math.add", times, text.one, type="s32"),
            )
        for row in (0, 1):
            text.write(out, results[row], [text.constant(row), text.zero], [1])
            number = text.op("math.fill", results[2 + row], type=text.reg("s32", ONE))
            text.write(count, number, [text.constant(row), text.zero], [1])
    data = values("f32", np.arange(SIZE))
    pair, trips = (data, np.full(SIZE, 100.0, np.float32)), range(lower, upper, step)
    for _ in trips:
        pair = (pair[1], pair[0] + np.float32(1))
    outputs = {
        "out": placed("f32", np.stack(pair)),
        "count": placed("s32", np.array([[sum(trips)], [len(trips)]])),
    }
    inputs = {"bounds": placed("s32", np.array(given)), "x": placed("f32", data)}
    name = f"for {lower} {upper} {step} {'known' if known else 'read'}"
    return Case(name, str(text), inputs, outputs)


def _nested(outer: int, inner: int) -> Case:
    """Loops in loops with trip counts that depend on the index, some of them zero."""
    text = Text()
    bounds = text.array("bounds", "s32", (2,))
    out = text.array("out", "s32", (1,), "out")
    text.op("cta.grid", text.one)
    with text.role():
        ends = [text.op("cta.read_scalar", bounds, text.constant(n), type="s32") for n in range(2)]
        zero_sum = (text.zero, "s32")
        with text.loop(text.zero, ends[0], text.one, [zero_sum]) as (i, (total,), result):
            first = text.op("math.sub", i, ends[1], type="s32")
            with text.loop(first, text.zero, text.one, [(total, "s32")]) as (j, (sub,), subs):
                text.yields(text.op("math.sub", sub, j, type="s32"))
            text.yields(*subs)
        number = text.op("math.fill", result[0], type=text.reg("s32", ONE))
        text.write(out, number, [text.zero], [0])
    wanted = sum(-j for i in range(outer) for j in range(i - inner, 0))
    inputs = {"bounds": placed("s32", np.array([outer, inner]))}
    return Case(
        f"nested loops {outer} {inner}", str(text), inputs, {"out": placed("s32", [wanted])}
    )


def _one_sided(period: int, stages: int, count: int = 9) -> Case:
    """A branch takes a stage from a ring on one side only, and the loop carries what it read."""
    shared, registers = swizzled(16, 64, 16, 128), blocked((16, 64), 128, 2, 16)
    taken = [i for i in range(count) if i % period == 0]
    data = some("bf16", (16 * len(taken), 64))
    size = tile_bytes(shared, "bf16")
    text = Text(threads=256, shared_bytes=stages * size + 16 * stages)
    x = text.array("x", "bf16", data.shape)
    out = text.array("out", "bf16", (16 * count, 64), "out")
    source = text.op("cta.tensor_map", x, type=box_type(shared, "bf16"), axes=(1, 0))
    text.op("cta.grid", text.one)
    listed = f"[{text.shared('bf16', shared)}]"
    ring = text.op("cta.ring", type=f"ring<{stages}, {listed}>", offset=0, barriers=stages * size)
    height = text.constant(16)
    with text.role("load", warps=1):
        limit = text.constant(len(data))
        with text.loop(text.zero, limit, height) as (row, _, _):
            stage = text.op("cta.acquire", ring, type=f"free<{listed}>")
            text.op("cta.load", ring, stage, source, row, text.zero, axes=(0, 1))
            text.yields()
    with text.role("take", first=4):
        tile = text.reg("bf16", registers)
        start = text.op("math.fill", text.constant(0.0, "bf16"), type=tile)
        limit = text.constant(count)
        with text.loop(text.zero, limit, text.one, [(start, tile)]) as (i, (last,), _):
            rest = text.op("math.mod", i, text.constant(period), type="s32")
            now = text.op("math.compare", rest, text.zero, type="bool", relation="eq")
            with text.branch(now, [tile]) as (value,):
                slot = text.op("cta.wait", ring, type=f"slot<{listed}>")
                part = text.op("cta.part", slot, type=text.shared("bf16", shared))
                fresh = text.op("cta.get", part, type=tile, instruction="load")
                text.op("cta.release", ring, slot)
                text.yields(fresh)
                text.otherwise()
                text.yields(last)
            row = text.op("math.mul", i, height, type="s32")
            text.write(out, value, [row, text.zero], [0, 1], vector=2)
            text.yields(value)
    pieces = [data[16 * (i // period) : 16 * (i // period) + 16] for i in range(count)]
    outputs = {"out": Placed("bf16", np.concatenate(pieces))}
    name = f"branch takes each {period} of {count} stages {stages}"
    return Case(name, str(text), {"x": Placed("bf16", data)}, outputs)


def _turns(groups: int, rounds: int) -> Case:
    """Groups write their number to a log in the order of their turns."""
    text = Text(threads=128 * groups)
    count = text.array("count", "s32", (1,), "inout")
    log = text.array("log", "s32", (groups * rounds,), "inout")
    text.op("cta.grid", text.one)
    turns = text.op("cta.turns", type=f"token<{groups}>", groups=groups, barrier=1)
    with text.role(warps=4 * groups, group=4) as group:
        limit = text.constant(rounds)
        with text.loop(text.zero, limit, text.one) as (_, _, _):
            text.op("cta.wait_turn", turns, group)
            place = text.op("cta.read_scalar", count, text.zero, type="s32")
            text.op("cta.sync", group, barrier=1 + groups, threads=128)
            more = text.op("math.add", place, text.one, type="s32")
            one = text.reg("s32", ONE)
            text.write(count, text.op("math.fill", more, type=one), [text.zero], [0])
            text.write(log, text.op("math.fill", group, type=one), [place], [0])
            text.op("cta.sync", group, barrier=1 + groups, threads=128)
            text.op("cta.pass_turn", turns, group)
            text.yields()
    wanted = {
        "count": placed("s32", [groups * rounds]),
        "log": placed("s32", np.tile(np.arange(groups), rounds)),
    }
    start = {"count": placed("s32", [0]), "log": placed("s32", np.full(groups * rounds, -1))}
    return Case(f"turns of {groups} rounds {rounds}", str(text), start, wanted)


def _woven(n: int, dtype: str) -> Case:
    """A chain of exact ops, woven and not: both give NumPy's bits."""
    tile = accumulator(n)
    generator = np.random.default_rng(n)
    x = values("f32", generator.standard_normal((64, n)))
    y = values("f32", generator.standard_normal((64, n)))
    c = np.float32(0.127517431974411)
    text = Text()
    sources = [text.array(name, "f32", (64, n)) for name in ("x", "y")]
    outs, outputs = [], {}
    moved = (x * c).astype(np.float32) + y
    wide = np.maximum(moved, x)
    narrow = values(dtype, wide.astype(np.float64))
    for form in ("plain", "woven"):
        outs.append(
            [
                text.array(f"{form}_narrow", dtype, (64, n), "out"),
                text.array(f"{form}_top", "f32", (64,), "out"),
            ]
        )
        outputs[f"{form}_narrow"] = placed(dtype, narrow)
        outputs[f"{form}_top"] = placed("f32", wide.max(1))
    text.op("cta.grid", text.one)
    kept = tile.keep_lanes(1)
    types = [text.reg(dtype, tile), text.reg("f32", kept)]
    with text.role():
        type = text.reg("f32", tile)
        a, b = (text.read(s, type, [text.zero] * 2, [0, 1], vector=2) for s in sources)
        factor = text.constant(float(c), "f32")
        for woven, (narrow_out, top_out) in zip((False, True), outs, strict=True):
            with text.weave(types, woven) as results:
                scaled = text.op("math.mul", a, factor, type=type)
                total = text.op("math.add", scaled, b, type=type)
                top = text.op("math.max", total, a, type=type)
                parts = text.op("cta.reduce_thread", top, type=types[1], axis=1, kind="max")
                small = text.op("math.cast", top, type=types[0], dtype=dtype)
                if woven:
                    text.yields(small, parts)
                else:
                    results[:] = [small, parts]
            row = text.reg("f32", kept.drop(1))
            whole = text.op("cta.reduce_lanes", results[1], type=row, axis=1, kind="max")
            text.write(narrow_out, results[0], [text.zero] * 2, [0, 1], vector=2)
            text.write(top_out, whole, [text.zero], [0])
    inputs = {"x": placed("f32", x), "y": placed("f32", y)}
    return Case(f"weave {n} {dtype}", str(text), inputs, outputs)


def _grids() -> Iterator[Case]:
    """Each CTA has its own rows; the count comes from an extent."""
    for extent in (1, 64, 1000):
        text = Text(threads=64)
        x = text.array("x", "s32", ("M",))
        out = text.array("out", "s32", ("M", 2), "out")
        size = text.op("cta.extent", x, type="s32", axis=0)
        per = text.constant(64)
        text.op("cta.grid", text.op("math.ceildiv", size, per, type="s32"))
        index, count = text.op("cta.index", type="s32"), text.op("cta.count", type="s32")
        line = Layout.parse("(reg: i1*1 | lane: i1 i2 i4 i8 i16 | warp: i32)")
        with text.role(warps=2):
            row = text.op("math.mul", index, per, type="s32")
            where = text.op("cta.coordinates", type=text.reg("s32", line), axis=0)
            mine = text.op("math.add", where, row, type=text.reg("s32", line))
            many = text.op("math.fill", count, type=text.reg("s32", line))
            for column, value in enumerate((mine, many)):
                origin = [row, text.constant(column)]
                text.write(out, value, origin, [0], bounded=(0,))
        wanted = np.stack([np.arange(extent), np.full(extent, -(-extent // 64))], 1)
        inputs = {"x": placed("s32", np.zeros(extent, np.int32))}
        yield Case(f"grid for {extent}", str(text), inputs, {"out": placed("s32", wanted)})


def _idle() -> Iterator[Case]:
    """Warps that no role has do nothing: before, between and after those that have one."""
    for name, spans in {
        "before": ((4, 4),),
        "between": ((0, 4), (8, 4)),
        "beside": ((1, 1), (3, 1)),
        "after": ((0, 2),),
        "across warpgroups": ((2, 4), (8, 1)),
    }.items():
        last = max(first + warps for first, warps in spans)
        text = Text(threads=-(-last // 4) * 128)
        out = text.array("out", "s32", (16,), "inout")
        text.op("cta.grid", text.one)
        wanted = np.full(16, -1)
        for number, (first, warps) in enumerate(spans):
            one = Layout.parse("(reg: i1*1 | lane: _*32)")
            with text.role(f"r{number}", first=first, warps=warps, group=1) as group:
                # Each warp adds at its place: one too many would show there or elsewhere.
                place = text.op("math.add", group, text.constant(first), type="s32")
                type = text.reg("s32", one)
                value = text.read(out, type, [place], [0])
                more = text.op("math.add", value, text.constant(2 + number), type=type)
                text.write(out, more, [place], [0])
            wanted[first : first + warps] = 1 + number
        start = {"out": placed("s32", np.full(16, -1))}
        yield Case(f"idle warps {name}", str(text), start, {"out": placed("s32", wanted)})


def cases() -> Iterator[Case]:
    """All of them."""
    for bounds, known in product(
        ((0, 0, 1), (0, 1, 1), (0, 5, 1), (3, 3, 2), (5, 2, 1), (-4, 9, 3), (0, 6, 2)),
        (True, False),
    ):
        yield _counted(*bounds, known)
    for outer, inner in ((0, 3), (5, 0), (4, 3), (7, 2)):
        yield _nested(outer, inner)
    for period, stages in product((1, 2, 3), (1, 2, 3)):
        yield _one_sided(period, stages)
    for groups, rounds in product((2, 3), (1, 5)):
        yield _turns(groups, rounds)
    for n, dtype in product((8, 64, 80), ("bf16", "f16")):
        yield _woven(n, dtype)
    yield from _grids()
    yield from _idle()
