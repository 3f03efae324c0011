"""Tiles whose shape changes in registers: axes, reductions, exchanges, coordinates, slices, votes.

Idea: data are small integers (and NaN and infinities for ``max`` and ``min``), so every order of a
sum is exact and the expectation is NumPy's.  What a thread alone has combined is compared too, by
asking the layouts which elements it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from tests.gpu.cta_case import Case, Data, placed, values
from tests.gpu.cta_text import Text
from tilec.layout.fragments import accumulator, blocked, column_vector, row_vector, rows
from tilec.layout.linear import Layout

COMBINE: dict[str, Callable[..., Any]] = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip

ODD = blocked((3, 128), 128, 1, 16)  # three registers a thread
TILES = {
    "acc8": accumulator(8),
    "acc24": accumulator(24),
    "acc80": accumulator(80),
    "acc256": accumulator(256),
    "blocked": blocked((32, 64), 128, 4, 32),
    "odd": ODD,
}


def numbers(dtype: str, shape: tuple[int, ...], kind: str = "add", seed: int = 0) -> Data:
    """Data on which ``kind`` is exact in any order."""
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.random(shape) < (0.9 if kind == "and" else 0.1)
    if kind in ("and", "or"):
        return values(dtype, generator.integers(0, 1 << 31, shape))
    if kind == "mul":
        data = generator.choice([1, -1], shape)
        data[..., ::17] = 2
        return values(dtype, data % 5 if dtype.startswith("u") else data)
    low = 0 if dtype.startswith("u") else -2
    data = values(dtype, generator.integers(low, 3 if kind == "add" else 100, shape))
    if kind in ("max", "min") and dtype in ("f32", "f16", "bf16"):
        data[0, 1], data[1, 0], data[-1, -1] = np.nan, np.inf, -np.inf
    if kind in ("max", "min") and dtype == "u32":
        data[0, 1] = 0xFFFFFFF0  # negative if it were signed
    return data


# --- axes that come and go ---------------------------------------------------------------------


def _spread(name: str, tile: Layout, dtype: str, axis: int) -> Case:
    """A vector becomes an axis of extent one, is repeated along it, and is taken back."""
    vector = row_vector(tile) if axis == 1 else column_vector(tile)
    data = numbers(dtype, vector.shape)
    if dtype != "bool":
        data = values(dtype, np.arange(vector.shape[0]) % 200)
    text = Text()
    x = text.array("x", dtype, vector.shape)
    out = text.array("out", dtype, tile.shape, "out")
    back = text.array("back", dtype, vector.shape, "out")
    text.op("cta.grid", text.one)
    with text.role():
        v = text.read(x, text.reg(dtype, vector), [text.zero], [0])
        thin = text.op("math.expand", v, type=text.reg(dtype, vector.insert(axis)), axis=axis)
        wide = text.op("math.broadcast", thin, type=text.reg(dtype, tile))
        text.write(out, wide, [text.zero, text.zero], [0, 1])
        again = text.op("math.squeeze", thin, type=text.reg(dtype, vector), axis=axis)
        text.write(back, again, [text.zero], [0])
    wanted = np.broadcast_to(np.expand_dims(data, axis), tile.shape)
    outputs = {"out": placed(dtype, wanted), "back": placed(dtype, data)}
    return Case(
        f"broadcast {name} {dtype} axis {axis}", str(text), {"x": placed(dtype, data)}, outputs
    )


# --- reductions ----------------------------------------------------------------------------------


@cache
def _held_together(tile: Layout, axis: int) -> dict[tuple[int, ...], list[tuple[int, ...]]]:
    """For each place of ``keep_lanes``, the elements that the thread which owns it holds."""
    kept = tile.keep_lanes(axis)
    places: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for index in tile.indices():
        thread = {space: n for space, n in index.items() if space != "reg"}
        place, own, base = tile(**index), tile(**thread), kept(**thread)
        # A register moves the element along the other axes as it does in the tile.
        to = tuple(
            b if a == axis else b + p - o
            for a, (b, p, o) in enumerate(zip(base, place, own, strict=True))
        )
        places.setdefault(to, set()).add(place)
    return {to: sorted(members) for to, members in places.items()}


def thread_parts(data: Data, tile: Layout, axis: int, kind: str) -> Data:
    """What each thread holds after it has combined its own elements along an axis."""
    places = _held_together(tile, axis)
    found: Data = np.empty(tile.keep_lanes(axis).shape, data.dtype)
    assert len(places) == found.size
    for to, members in places.items():
        found[to] = COMBINE[kind].reduce(data[tuple(np.transpose(members))])  # type: ignore[attr-defined]
    return found


def _reduction(
    name: str, tile: Layout, dtype: str, kinds: tuple[str, ...], chains: int, axis: int = 1
) -> Case:
    """Within threads, across lanes, and across warps where the axis is spread over them."""
    kept = tile.keep_lanes(axis)
    vector = kept.drop(axis)
    along = [p for p in kept.placed if p.space == "warp" and axis in p.digit.axes]
    count = 4 * vector.shape[0]
    text = Text(shared_bytes=4 * count)
    inputs, outputs = {}, {}
    arrays = []
    for kind in kinds:
        data = numbers(dtype, tile.shape, kind)
        inputs[f"x_{kind}"] = placed(dtype, data)
        x = text.array(f"x_{kind}", dtype, tile.shape)
        part = text.array(f"part_{kind}", dtype, kept.shape, "out")
        outputs[f"part_{kind}"] = placed(dtype, thread_parts(data, tile, axis, kind))
        out = ""
        if dtype != "bool":
            out = text.array(f"out_{kind}", dtype, vector.shape, "out")
            whole = COMBINE[kind].reduce(data, axis=axis)  # type: ignore[attr-defined]
            outputs[f"out_{kind}"] = placed(dtype, np.asarray(whole, data.dtype))
        arrays.append((kind, x, part, out))
    text.op("cta.grid", text.one)
    if along:
        line = Layout.parse(f"(off: i1*{count})")
        buffer = text.op("cta.buffer", type=text.shared("f32", line), offset=0)
    with text.role():
        for kind, x, part, out in arrays:
            tile_value = text.read(x, text.reg(dtype, tile), [text.zero] * 2, [0, 1])
            own = text.op(
                "cta.reduce_thread",
                tile_value,
                type=text.reg(dtype, kept),
                axis=axis,
                kind=kind,
                chains=chains,
            )
            text.write(part, own, [text.zero] * 2, [0, 1])
            if not out:
                continue
            type = text.reg(dtype, vector)
            total = text.op("cta.reduce_lanes", own, type=type, axis=axis, kind=kind)
            if along:
                total = text.op("cta.exchange", total, buffer, type=type, kind=kind, barrier=1)
            text.write(out, total, [text.zero], [0])
    label = f"reduce {name} {dtype} {' '.join(kinds)} chains {chains} axis {axis}"
    return Case(label, str(text), inputs, outputs)


def _reductions() -> Iterator[Case]:
    every = ("add", "mul", "max", "min")
    for name, tile in TILES.items():
        for chains in (1, 3, 4, 5):
            yield _reduction(name, tile, "f32", every, chains)
    for name in ("acc80", "odd", "acc8"):
        tile = TILES[name]
        for dtype in ("f16", "bf16", "s32", "u32"):
            yield _reduction(name, tile, dtype, every, 4)
        for dtype in ("s32", "u32", "bool"):
            yield _reduction(name, tile, dtype, ("and", "or"), 3)
    for dtype in ("f32", "bf16", "s32"):
        yield _reduction("blocked", TILES["blocked"], dtype, every, 4, axis=0)
    yield _reduction("rows", rows((8, 96), 1, 1), "f32", every, 4)


# --- exchange over warps -------------------------------------------------------------------------


def _exchange(warps: int, groups: int, tile: Layout, dtype: str, kind: str) -> Case:
    """Each group combines rows of its own, several times over one buffer."""
    height, width = tile.shape
    times = 3
    part = tile.keep_lanes(1)
    vector = part.drop(1)
    count = height * warps * groups
    data = numbers(dtype, (times * groups * height, width), kind)
    text = Text(threads=32 * warps * groups, shared_bytes=4 * count)
    x = text.array("x", dtype, data.shape)
    out = text.array("out", dtype, data.shape[:1], "out")
    text.op("cta.grid", text.one)
    line = Layout.parse(f"(off: i1*{count})") if count > 1 else Layout.parse("(off: i1*1)")
    buffer = text.op("cta.buffer", type=text.shared("f32", line), offset=0)
    with text.role(warps=warps * groups, group=warps) as group:
        step, limit = text.constant(groups * height), text.constant(len(data))
        own = text.op("math.mul", group, text.constant(height), type="s32")
        with text.loop(text.zero, limit, step) as (index, _, _):
            row = text.op("math.add", index, own, type="s32")
            value = text.read(x, text.reg(dtype, tile), [row, text.zero], [0, 1], vector=2)
            thread = text.op(
                "cta.reduce_thread", value, type=text.reg(dtype, part), axis=1, kind=kind
            )
            type = text.reg(dtype, vector)
            lanes = text.op("cta.reduce_lanes", thread, type=type, axis=1, kind=kind)
            total = text.op("cta.exchange", lanes, buffer, type=type, kind=kind, barrier=1)
            text.write(out, total, [row], [0])
            text.yields()
    whole = COMBINE[kind].reduce(data, axis=1)  # type: ignore[attr-defined]
    name = f"exchange {warps} warps {groups} groups rows {height} {dtype} {kind}"
    outputs = {"out": placed(dtype, np.asarray(whole, data.dtype))}
    return Case(name, str(text), {"x": placed(dtype, data)}, outputs)


def _exchanges() -> Iterator[Case]:
    for warps in (2, 4, 8):
        for height in (1, 3, 4):
            tile = rows((height, 64 * warps), warps, 2, 32 * warps)
            for groups in (1, 2) if warps < 8 else (1,):
                yield _exchange(warps, groups, tile, "f32", "add")
                yield _exchange(warps, groups, tile, "f32", "max")
    for dtype in ("s32", "u32", "bf16"):
        yield _exchange(4, 2, rows((4, 256), 4, 2, 128), dtype, "max")
        yield _exchange(4, 1, rows((4, 256), 2, 2, 128), dtype, "add")


# --- places, pieces, votes -----------------------------------------------------------------------


def _coordinates() -> Iterator[Case]:
    for name, tile in {**TILES, "rows": rows((6, 96), 1, 1)}.items():
        text = Text()
        out = [text.array(f"out{axis}", "s32", tile.shape, "out") for axis in (0, 1)]
        text.op("cta.grid", text.one)
        with text.role():
            for axis, array in enumerate(out):
                where = text.op("cta.coordinates", type=text.reg("s32", tile), axis=axis)
                text.write(array, where, [text.zero] * 2, [0, 1])
        places = np.indices(tile.shape)
        outputs = {f"out{axis}": placed("s32", places[axis]) for axis in (0, 1)}
        yield Case(f"coordinates {name}", str(text), {}, outputs)


def _moved(name: str, op: str, dtype: str, tile: Layout, to: Layout, **attributes: Any) -> Case:
    """A tile, an op that only renames registers, and the part of the tile that it keeps."""
    data = numbers(dtype, tile.shape, "max" if dtype == "s32" else "add")
    text = Text()
    x = text.array("x", dtype, tile.shape)
    out = text.array("out", dtype, to.shape, "out")
    text.op("cta.grid", text.one)
    with text.role():
        value = text.read(x, text.reg(dtype, tile), [text.zero] * 2, [0, 1])
        if op == "cta.convert":
            attributes["layout"] = text.layout(to)
        moved = text.op(op, value, type=text.reg(dtype, to), **attributes)
        text.write(out, moved, [text.zero] * 2, [0, 1])
    start = attributes.get("start", 0)
    kept = data[:, start : start + to.shape[1]]
    return Case(
        f"{name} {dtype}", str(text), {"x": placed(dtype, data)}, {"out": placed(dtype, kept)}
    )


def _pieces() -> Iterator[Case]:
    tile = accumulator(128)
    turned = Layout.parse("(reg: i8 j8 j1 j64 j32 j16 | lane: j2 j4 i1 i2 i4 | warp: i16 i32)")
    for dtype in ("f32", "bf16", "f16", "s32", "bool"):
        yield _moved("convert", "cta.convert", dtype, tile, turned)
        if dtype == "bool":
            continue
        for start, extent in ((0, 64), (64, 64), (32, 32), (48, 16)):
            name = f"slice {start} {extent}"
            to = accumulator(extent)
            yield _moved(name, "cta.slice", dtype, tile, to, axis=1, start=start)
    yield _moved(
        "slice 24 40", "cta.slice", "bf16", accumulator(80), accumulator(40), axis=1, start=24
    )


def _votes() -> Iterator[Case]:
    """One true element of one thread is seen by its warp and by no other; a branch follows it."""
    tile = Layout.parse("(reg: i1 i2 | lane: i4 i8 i16 i32 i64 | warp: i128 i256)")
    for place in (0, 127, 128, 258, 511, None):
        data = np.zeros(512, bool)
        if place is not None:
            data[place] = True
        text = Text()
        x = text.array("x", "bool", (512,))
        out, taken = (
            text.array(n, d, (512,), "out") for n, d in (("out", "bool"), ("taken", "s32"))
        )
        text.op("cta.grid", text.one)
        with text.role():
            value = text.read(x, text.reg("bool", tile), [text.zero], [0])
            some = text.op("cta.any", value, type="bool")
            spread = text.op("math.fill", some, type=text.reg("bool", tile))
            text.write(out, spread, [text.zero], [0])
            with text.branch(some, ["s32"]) as (chosen,):
                text.yields(text.constant(7))
                text.otherwise()
                text.yields(text.constant(-7))
            number = text.op("math.fill", chosen, type=text.reg("s32", tile))
            text.write(taken, number, [text.zero], [0])
        seen = np.repeat(data.reshape(4, 128).any(1), 128)
        outputs = {"out": placed("bool", seen), "taken": placed("s32", np.where(seen, 7, -7))}
        yield Case(f"any at {place}", str(text), {"x": placed("bool", data)}, outputs)


def cases() -> Iterator[Case]:
    """All of them."""
    for name, tile in TILES.items():
        for dtype in ("f32", "bf16", "f16", "s32", "bool"):
            for axis in (0, 1):
                if name != "acc256" or dtype == "f32":
                    yield _spread(name, tile, dtype, axis)
    yield from _reductions()
    yield from _exchanges()
    yield from _coordinates()
    yield from _pieces()
    yield from _votes()
