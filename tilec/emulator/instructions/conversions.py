"""Moves, packing and conversions between types (PTX ISA 9.7.9.4 and 9.7.9.21)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.emulator.gang import VIEWS
from tilec.emulator.instructions.arithmetic import bf16_bits, flusher, widen
from tilec.emulator.program import WIDTH, Vector
from tilec.emulator.table import Bind, Step, row


@row("mov")
def _mov(bind: Bind) -> Step:
    type = bind.at.parts[1]
    target, source = bind.operands
    if isinstance(source, Vector):
        return _pack(bind, type, target, source)
    if isinstance(target, Vector):
        return _unpack(bind, type, target, source)
    write, read = bind.write(target, type), bind.read(source, type)
    return lambda g: write(g, read(g))


def _pieces(bind: Bind, type: str, vector: Vector) -> str:
    bits = 8 * WIDTH[type] // len(vector.items)
    if bits not in (16, 32):
        raise bind.fail(f"{len(vector.items)} parts of .{type} are beyond the emulator")
    return f"b{bits}"


def _pack(bind: Bind, type: str, target: Any, source: Vector) -> Step:
    part = _pieces(bind, type, source)
    reads = [bind.read(item, part) for item in source.items]
    write = bind.write(target, type)
    kind = VIEWS[part][1]

    def run(g: Any) -> None:
        rows = np.empty((g.lanes, len(reads)), kind)
        for number, read in enumerate(reads):
            rows[:, number] = read(g)
        write(g, rows.view(VIEWS[type][1]).reshape(-1))

    return run


def _unpack(bind: Bind, type: str, target: Vector, source: Any) -> Step:
    part = _pieces(bind, type, target)
    writes = [bind.write(item, part) for item in target.items]
    read = bind.read(source, type)
    kind = VIEWS[part][1]

    def run(g: Any) -> None:
        value = np.ascontiguousarray(np.broadcast_to(read(g), (g.lanes,)))
        rows = value.view(kind).reshape(g.lanes, -1)
        for number, write in enumerate(writes):
            write(g, rows[:, number])

    return run


@row("cvta")
def _cvta(bind: Bind) -> Step:
    target, source = bind.operands
    write, read = bind.write(target, "u64"), bind.read(source, "u64")
    return lambda g: write(g, read(g))


_MINIFLOATS = {"e4m3x2": (3, 7, 448.0), "e5m2x2": (2, 15, 57344.0)}


@row("cvt")
def _cvt(bind: Bind) -> Step:
    parts = [p for p in bind.at.parts[1:] if p in WIDTH or p in _MINIFLOATS or p == "tf32"]
    if len(parts) != 2:
        raise bind.fail(f"a conversion between {' and '.join(parts) or 'no types'}")
    to, of = parts
    if to in ("bf16x2", "f16x2") and of == "f32":
        return _pair(bind, to.removesuffix("x2"))
    if to in _MINIFLOATS:
        return _to_minifloat(bind, to, of)
    if of in _MINIFLOATS:
        return _from_minifloat(bind, to, of)
    if to == "tf32":
        return _tf32(bind)
    return _single(bind, to, of)


def _pair(bind: Bind, base: str) -> Step:
    """The first source goes to the upper half."""
    target, high, low = bind.operands
    write = bind.write(target, "b32")
    reads = bind.read(high, "f32"), bind.read(low, "f32")
    relu = "relu" in bind.modifiers

    def run(g: Any) -> None:
        upper, lower = (_narrow(_positive(r(g), relu), base) for r in reads)
        write(g, (upper.astype(np.uint32) << 16) | lower)

    return run


def _positive(x: Any, relu: bool) -> Any:
    return np.where(x > 0, x, np.where(np.isnan(x), x, 0)).astype(x.dtype) if relu else x


def _narrow(x: Any, base: str) -> Any:
    if base == "bf16":
        return bf16_bits(x)
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(np.float16).view(np.uint16)


def minifloat_values(name: str) -> Any:
    """What each of the 256 codes stands for."""
    mantissa, bias, _ = _MINIFLOATS[name]
    codes = np.arange(128)
    exponent, fraction = codes >> mantissa, codes & ((1 << mantissa) - 1)
    scale = np.where(exponent == 0, 1 - bias, exponent - bias).astype(np.float64)
    units = np.where(exponent == 0, 0, 1 << mantissa) + fraction
    values = units * 2.0 ** (scale - mantissa)
    if name == "e4m3x2":
        values[127] = np.nan
    else:
        values[124], values[125:] = np.inf, np.nan
    return np.concatenate([values, -values])


def _to_minifloat(bind: Bind, to: str, of: str) -> Step:
    target, *sources = bind.operands
    write = bind.write(target, "b16")
    values = minifloat_values(to)[: 127 if to == "e4m3x2" else 124]
    relu = "relu" in bind.modifiers
    if of == "f32":
        high, low = (bind.read(o, "f32") for o in sources)
    else:
        both = bind.read(sources[0], "b32")

    def code(x: Any) -> Any:
        x = _positive(np.asarray(x, np.float64), relu)
        size = np.abs(x)
        place = np.clip(np.searchsorted(values, size), 1, len(values) - 1)
        below, above = values[place - 1], values[place]
        middle = (below + above) / 2
        up = (size > middle) | ((size == middle) & (place % 2 == 0))
        found = np.where(up, place, place - 1)
        found = np.where(size == 0, 0, np.where(size >= values[-1], len(values) - 1, found))
        found = np.where(np.isnan(x), 127, found)
        return (found | np.where(np.signbit(x), 128, 0)).astype(np.uint16)

    def run(g: Any) -> None:
        if of == "f32":
            upper, lower = high(g), low(g)
        else:
            wide = widen(np.broadcast_to(both(g), (g.lanes,)), of.removesuffix("x2"), True)
            lower, upper = wide[:, 0], wide[:, 1]
        write(g, (code(upper) << 8) | code(lower))

    return run


def _from_minifloat(bind: Bind, to: str, of: str) -> Step:
    target, source = bind.operands
    write, read = bind.write(target, "b32"), bind.read(source, "b16")
    values = minifloat_values(of)
    base = to.removesuffix("x2")

    def run(g: Any) -> None:
        bits = np.broadcast_to(read(g), (g.lanes,))
        lower, upper = (_narrow(values[b], base) for b in (bits & 255, bits >> 8))
        write(g, (upper.astype(np.uint32) << 16) | lower)

    return run


def _tf32(bind: Bind) -> Step:
    """19 bits of a float32: to nearest, ties away (rna) or to even (rn)."""
    target, source = bind.operands
    write, read = bind.write(target, "b32"), bind.read(source, "f32")
    away = "rna" in bind.modifiers

    def run(g: Any) -> None:
        x = np.asarray(read(g), np.float32)
        bits = x.view(np.uint32)
        half = np.uint32(0x1000) if away else np.uint32(0xFFF) + ((bits >> 13) & 1)
        found = np.where(np.isfinite(x), (bits + half) & np.uint32(0xFFFFE000), bits)
        write(g, np.where(np.isnan(x), np.uint32(0x7FFFFFFF), found).astype(np.uint32))

    return run


_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def _single(bind: Bind, to: str, of: str) -> Step:
    target, source = bind.operands
    wide_to = {"u8": "u16", "s8": "s16"}.get(to, to)
    bank = target.bank if hasattr(target, "bank") else "b32"
    if to in ("u8", "s8") and bank == "b32":
        wide_to = f"{to[0]}32"
    narrow_of = of in ("u8", "s8")
    from_bank = getattr(source, "bank", "b32")
    read_as = f"{of[0]}{from_bank[1:]}" if narrow_of else of
    write, read = bind.write(target, wide_to), bind.read(source, read_as)
    rounding = next((_ROUND[m] for m in bind.modifiers if m in _ROUND), None)
    flush = flusher(bind, "f32")
    saturates = "sat" in bind.modifiers

    def run(g: Any) -> None:
        x = np.broadcast_to(np.asarray(read(g)), (g.lanes,))
        if narrow_of:
            x = x.astype(np.int8 if of == "s8" else np.uint8)
        if of == "bf16":
            x = widen(x, "bf16", False)
        elif of[0] == "f":
            x = flush(x).astype(np.float64)
        write(g, _converted(x, to, of, rounding, saturates))

    return run


def _converted(x: Any, to: str, of: str, rounding: Any, saturates: bool) -> Any:
    kind = {"u8": np.uint8, "s8": np.int8}.get(to, VIEWS[to][1])
    if to in ("bf16", "f16"):
        found = _narrow(x.astype(np.float64), to)
        return found.view(VIEWS[to][1]) if to == "f16" else found
    if to[0] == "f":
        value = rounding(x) if rounding is not None else x
        value = np.clip(np.where(np.isnan(value), 0, value), 0, 1) if saturates else value
        with np.errstate(over="ignore"):
            return value.astype(kind)
    limits = np.iinfo(kind)
    if of[0] != "f" and of != "bf16":
        if saturates:
            return np.clip(x.astype(object), limits.min, limits.max).astype(kind)
        return x.astype(kind)
    whole = (rounding or np.trunc)(x)
    # Out of range clamps; NaN gives 0 or, from f64 or to 64 bits, the top bit (measured on H200).
    inside = np.where(np.isnan(whole), 0.0, whole)
    low, high = inside <= limits.min, inside >= float(limits.max)
    middle = np.where(low | high, 0.0, inside).astype(kind)
    found = np.where(low, limits.min, np.where(high, limits.max, middle)).astype(kind)
    if of == "f64" or limits.bits == 64:
        top = np.array(1 << (limits.bits - 1), f"u{limits.bits // 8}").view(kind)
        found = np.where(np.isnan(whole), top, found)
    return found
