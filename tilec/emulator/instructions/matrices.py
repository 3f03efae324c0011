"""Matrices of a warp: ldmatrix, stmatrix, movmatrix and mma.sync (PTX ISA 9.7.14.5)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tilec.emulator.gang import WARP
from tilec.emulator.instructions.elements import decode, element_bytes
from tilec.emulator.instructions.memory import address_of, aligned, in_shared, observe
from tilec.emulator.memory import gather, scatter
from tilec.emulator.table import Bind, Step, row

_ROW_BYTES = 16
_MMA = re.compile(r"m(16|8)n8k(\d+)")


_SUMS: dict[str, tuple[Any, Any]] = {
    "s32": (np.int64, np.int32),
    "f32": (np.float32, np.float32),
    "f64": (np.float64, np.float64),
}
"""What products are summed in, and what a register holds, by the result's type."""


def _count(bind: Bind) -> int:
    return next(int(p[1:]) for p in bind.at.parts if p in ("x1", "x2", "x4"))


def _row_lanes(bind: Bind, g: Any, places: Any, count: int) -> Any:
    """Lanes 8i to 8i+7 of each warp give the rows of matrix i: those that may be accessed."""
    lanes = g.active() & (np.arange(g.lanes) % WARP < 8 * count)
    whole = aligned(bind, g, np.where(lanes, places, 0), _ROW_BYTES)
    return in_shared(bind, g, places, _ROW_BYTES, lanes & whole)


def _turned(tiles: Any, turned: bool) -> Any:
    """Matrices [warp, matrix, row, column] as memory or registers take them."""
    return np.ascontiguousarray(tiles.transpose(0, 1, 3, 2) if turned else tiles)


@row("ldmatrix.sync", effect="reads")
def _ldmatrix(bind: Bind) -> Step:
    count, turned = _count(bind), "trans" in bind.at.parts
    target, place = bind.operands
    writes = [bind.write(t, "b32") for t in bind.many(target)]
    address = address_of(bind, place)
    if len(writes) != count:
        raise bind.fail(f"{count} registers are needed")

    def run(g: Any) -> None:
        places = address(g)
        good = _row_lanes(bind, g, places, count)
        observe(bind, g, "shared", None, places, _ROW_BYTES, good, writes=False)
        rows = np.zeros((g.lanes, _ROW_BYTES), np.uint8)
        rows[good] = gather(g.cta.shared, places[good], _ROW_BYTES)
        tiles = _turned(rows.view(np.uint16).reshape(-1, 4, 8, 8), turned)
        pairs = tiles.view(np.uint32).reshape(len(g.warps), 4, WARP)
        for number, write in enumerate(writes):
            write(g, pairs[:, number].reshape(-1))

    return run


@row("stmatrix.sync", effect="writes")
def _stmatrix(bind: Bind) -> Step:
    count, turned = _count(bind), "trans" in bind.at.parts
    place, source = bind.operands
    reads = [bind.read(s, "b32") for s in bind.many(source)]
    address = address_of(bind, place)
    if len(reads) != count:
        raise bind.fail(f"{count} registers are needed")

    def run(g: Any) -> None:
        places = address(g)
        good = _row_lanes(bind, g, places, count)
        pairs = np.zeros((len(g.warps), 4, WARP), np.uint32)
        for number, read in enumerate(reads):
            pairs[:, number] = np.broadcast_to(read(g), (g.lanes,)).reshape(-1, WARP)
        tiles = _turned(pairs.view(np.uint16).reshape(-1, 4, 8, 8), turned)
        rows = tiles.view(np.uint8).reshape(-1, _ROW_BYTES)
        observe(bind, g, "shared", None, places, _ROW_BYTES, good, writes=True, rows=rows)
        scatter(g.cta.shared, places[good], rows[good])

    return run


@row("movmatrix.sync")
def _movmatrix(bind: Bind) -> Step:
    target, source = bind.operands
    write, read = bind.write(target, "b32"), bind.read(source, "b32")

    def run(g: Any) -> None:
        value = np.ascontiguousarray(np.broadcast_to(read(g), (g.lanes,)))
        tiles = value.view(np.uint16).reshape(-1, 8, 8).transpose(0, 2, 1)
        write(g, np.ascontiguousarray(tiles).view(np.uint32).reshape(-1))

    return run


@row("mma.sync")
def _mma(bind: Bind) -> Step:
    shape = next((m for p in bind.at.parts if (m := _MMA.fullmatch(p))), None)
    if shape is None:
        raise bind.fail("only m16n8kK and m8n8kK are known")
    height, depth = int(shape.group(1)), int(shape.group(2))
    kinds = bind.at.parts[-4:] if "satfinite" not in bind.at.parts else bind.at.parts[-5:-1]
    result, of_a, of_b, _ = kinds
    if result not in ("f32", "s32", "f64"):
        raise bind.fail(f"results of {result} are beyond the emulator")
    if (height == 8 or (of_a, depth) == ("tf32", 16)) and result != "f64":
        raise bind.fail(f"m{height}n8k{depth} is not for {of_a}")
    d, a, b, c = (bind.many(o) for o in bind.operands)
    writes = [bind.write(r, result) for r in d]
    adds = [bind.read(r, result) for r in c]
    size = element_bytes(of_a)
    held = "f64" if size == 8 else "b32"
    reads_a = [bind.read(r, held) for r in a]
    reads_b = [bind.read(r, held) for r in b]
    packed, halves = max(1, 4 // size), height // 8
    lane = np.arange(WARP)[:, None, None]
    each = np.arange(packed)[None, None, :]
    ra = np.arange(len(a))[None, :, None]
    rb = np.arange(len(b))[None, :, None]
    a_rows = lane // 4 + 8 * (ra % halves) + 0 * each
    a_k = lane % 4 * packed + 4 * packed * (ra // halves) + each
    b_columns = lane // 4 + 0 * rb + 0 * each
    b_k = lane % 4 * packed + 4 * packed * rb + each
    if len(d) != 2 * halves or len(c) != 2 * halves or len(b) * 4 * packed != depth:
        raise bind.fail("another number of registers is needed")
    rc = np.arange(2 * halves)[None, :]
    c_rows = np.arange(WARP)[:, None] // 4 + 8 * (rc // 2)
    c_columns = np.arange(WARP)[:, None] % 4 * 2 + rc % 2
    wide, kind = _SUMS[result]

    def run(g: Any) -> None:
        warps = len(g.warps)
        left = np.zeros((warps, height, depth), wide)
        right = np.zeros((warps, depth, 8), wide)
        left[:, a_rows, a_k] = _parts(reads_a, g, size, of_a)
        right[:, b_k, b_columns] = _parts(reads_b, g, size, of_b)
        with np.errstate(all="ignore"):
            total = (left @ right)[:, c_rows, c_columns]  # warp, lane, register
            for number, (write, add) in enumerate(zip(writes, adds, strict=True)):
                found = total[:, :, number].reshape(-1)
                write(g, (np.asarray(add(g)) + found.astype(kind)).astype(kind))

    return run


def _parts(reads: list[Any], g: Any, size: int, type: str) -> Any:
    """The registers' elements, [warp, lane, register, element]."""
    raw = np.stack([np.broadcast_to(r(g), (g.lanes,)) for r in reads], axis=1)
    if type == "f64":
        return raw.reshape(-1, WARP, len(reads), 1)
    flat = np.ascontiguousarray(raw.astype(np.uint32)).view(np.uint8).reshape(-1, size)
    return decode(flat, type).reshape(-1, WARP, len(reads), 4 // size)
