"""Arithmetic, logic, comparisons and selections on registers (PTX ISA 9.7.1 to 9.7.8).

Integers wrap, as NumPy's do. A single float operation rounds once to nearest even; ``fma`` rounds
once, by way of exact float64 products. What the hardware only approximates (``ex2``, ``rcp`` and
their like) is computed as well as NumPy can: within the documented bound by construction.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tilec.emulator.table import Bind, Step, row

Function = Callable[..., Any]

_INTEGERS = ("s16", "u16", "s32", "u32", "s64", "u64", "b16", "b32", "b64", "pred")


def shaped(bind: Bind) -> str:
    """The one type of an instruction; ``fail`` when it has none or several."""
    types = bind.types() or [p for p in bind.at.parts if p == "pred"]
    if not types:
        raise bind.fail("the opcode names no type that the emulator knows")
    return types[-1]


def elementwise(function: Function, arity: int) -> Callable[[Bind], Step]:
    """A row's builder: ``function`` of ``arity`` operands of one type."""

    def build(bind: Bind) -> Step:
        type = shaped(bind)
        target, *sources = bind.operands
        if len(sources) != arity:
            raise bind.fail(f"{arity} operands are needed, there are {len(sources)}")
        write = bind.write(target, type)
        reads = [bind.read(source, type) for source in sources]
        flush = flusher(bind, type)
        if arity == 1:
            (one,) = reads
            return lambda g: write(g, flush(function(flush(one(g)))))
        if arity == 2:
            first, second = reads
            return lambda g: write(g, flush(function(flush(first(g)), flush(second(g)))))
        first, second, third = reads
        return lambda g: write(
            g, flush(function(flush(first(g)), flush(second(g)), flush(third(g))))
        )

    return build


def flusher(bind: Bind, type: str) -> Function:
    """What ``.ftz`` does to a value: subnormal numbers become zeros of their sign."""
    if type != "f32" or "ftz" not in bind.modifiers:
        return lambda x: x
    least = np.float32(2.0**-126)
    return lambda x: np.where(np.abs(x) < least, np.copysign(np.float32(0), x), x)


def _quotient(a: Any, b: Any) -> Any:
    """Integer division towards zero; division by zero gives all ones."""
    a, b = np.broadcast_arrays(a, b)
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    found = np.floor_divide(a, safe)
    if a.dtype.kind == "i":
        inexact = (np.remainder(a, safe) != 0) & ((a < 0) != (safe < 0))
        found = found + inexact.astype(a.dtype)
    return np.where(b == 0, np.array(-1).astype(a.dtype), found)


def _remainder(a: Any, b: Any) -> Any:
    a, b = np.broadcast_arrays(a, b)
    return np.where(b == 0, a, a - _quotient(a, b) * np.where(b == 0, 1, b).astype(b.dtype))


def _minimum(a: Any, b: Any) -> Any:
    """Of a number and NaN the number (PTX ISA 9.7.3.11); -0 is less than 0."""
    return np.where(a == b, np.where(np.signbit(a), a, b), np.fmin(a, b))


def _maximum(a: Any, b: Any) -> Any:
    return np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b))


def _extremum(integers: Function, numbers: Function) -> Callable[[Bind], Step]:
    def build(bind: Bind) -> Step:
        type = shaped(bind)
        if type in ("bf16x2", "f16x2", "bf16", "f16"):
            return _narrow(bind, type, numbers)
        if type[0] != "f":
            return elementwise(integers, 2)(bind)
        if "NaN" not in bind.modifiers:
            return elementwise(numbers, 2)(bind)
        carry = lambda a, b: np.where(  # noqa: E731
            np.isnan(a) | np.isnan(b), np.float64("nan"), numbers(a, b)
        ).astype(np.result_type(a))
        return elementwise(carry, 2)(bind)

    return build


def _narrow(bind: Bind, type: str, function: Function) -> Step:
    """A float operation on 16-bit types, alone or in pairs: computed wide, rounded once."""
    pair, base = type.endswith("x2"), type.removesuffix("x2")
    target, *sources = bind.operands
    reads = [bind.read(source, "b32" if pair else "b16") for source in sources]
    write = bind.write(target, "b32" if pair else "b16")
    keeps_nan = "NaN" in bind.modifiers

    def run(g: Any) -> None:
        values = [widen(np.broadcast_to(r(g), (g.lanes,)), base, pair) for r in reads]
        found = function(*values)
        if keeps_nan:
            lost = np.logical_or.reduce([np.isnan(v) for v in values])
            found = np.where(lost, np.nan, found)
        write(g, narrowed(found, base, pair))

    return run


def widen(bits: Any, base: str, pair: bool) -> Any:
    """16-bit floats as float64: one a lane, or two (axis 1)."""
    halves = bits.view(np.uint16).reshape(len(bits), 2) if pair else bits.view(np.uint16)
    if base == "f16":
        return halves.view(np.float16).astype(np.float64)
    wide = (halves.astype(np.uint32) << 16).view(np.float32)
    return wide.astype(np.float64)


def narrowed(values: Any, base: str, pair: bool) -> Any:
    """Float64 values rounded to nearest even as 16-bit patterns, packed in pairs if so."""
    if base == "f16":
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16).view(np.uint16)
    else:
        halves = bf16_bits(values)
    halves = np.ascontiguousarray(halves)
    return halves.view(np.uint32).reshape(-1) if pair else halves


def bf16_bits(values: Any) -> Any:
    """Numbers rounded to bf16, to nearest even; from float64 by way of a sticky float32."""
    wide = np.asarray(values, np.float64)
    single = wide.astype(np.float32)
    # Rounding twice would err at ties: the first rounding goes to odd where it is inexact.
    back = single.astype(np.float64)
    bits = single.view(np.uint32)
    inexact = (back != wide) & np.isfinite(wide) & np.isfinite(single)
    towards_zero = np.where(inexact & (np.abs(back) > np.abs(wide)), bits - 1, bits)
    bits = np.where(inexact, towards_zero | 1, bits).astype(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(wide), 0x7FFF, rounded).astype(np.uint16)


def _exact_fma(a: Any, b: Any, c: Any) -> Any:
    """One rounding of a·b + c: for f32 the product is exact in float64, the sum is made odd."""
    if np.result_type(a, b, c) == np.float64:
        return _double_fma(a, b, c)
    product = np.multiply(a, b, dtype=np.float64)
    addend = np.asarray(c, np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = np.asarray(total).view(np.int64)
    odd = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
    away = (error > 0) == (total > 0)
    moved = np.where(odd, np.where(away, bits + 1, bits - 1), bits)
    return moved.view(np.float64).astype(np.float32)


def _double_fma(a: Any, b: Any, c: Any) -> Any:
    """One rounding in float64, through long double where that is wider, else by Fraction."""
    a, b, c = np.broadcast_arrays(np.asarray(a), np.asarray(b), np.asarray(c))
    plain = a * b + c
    flat = plain.copy().reshape(-1)
    for n, (x, y, z) in enumerate(zip(a.flat, b.flat, c.flat, strict=True)):
        if np.isfinite([x, y]).all():
            if not np.isfinite(z):
                flat[n] = z
                continue
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
            flat[n] = _nearest(exact) if exact else flat[n]
    return flat.reshape(plain.shape)


def _nearest(exact: Fraction) -> float:
    """The nearest float64, infinity beyond the largest."""
    try:
        return float(exact)
    except OverflowError:
        return np.inf if exact > 0 else -np.inf


def _add_or_sub(function: Function) -> Callable[[Bind], Step]:
    def build(bind: Bind) -> Step:
        type = shaped(bind)
        if type in ("bf16x2", "f16x2", "bf16", "f16"):
            return _narrow(bind, type, function)
        if "sat" in bind.modifiers and type == "s32":
            low, high = -(1 << 31), (1 << 31) - 1
            return elementwise(
                lambda a, b: np.clip(
                    function(np.asarray(a, np.int64), np.asarray(b, np.int64)), low, high
                ).astype(np.int32),
                2,
            )(bind)
        return elementwise(function, 2)(bind)

    return build


row("add")(_add_or_sub(lambda a, b: a + b))
row("sub")(_add_or_sub(lambda a, b: a - b))
row("min")(_extremum(np.minimum, _minimum))
row("max")(_extremum(np.maximum, _maximum))
row("neg")(elementwise(lambda a: -a, 1))
row("abs")(elementwise(np.abs, 1))
row("rem")(elementwise(_remainder, 2))
row("and")(elementwise(lambda a, b: a & b, 2))
row("or")(elementwise(lambda a, b: a | b, 2))
row("xor")(elementwise(lambda a, b: a ^ b, 2))
row("not")(elementwise(lambda a: ~a, 1))
row("mul.f32", "mul.rn", "mul.ftz", "mul.f64")(elementwise(lambda a, b: a * b, 2))
row("mul.lo")(elementwise(lambda a, b: a * b, 2))
row("mad.lo")(elementwise(lambda a, b, c: a * b + c, 3))
row("fma")(elementwise(_exact_fma, 3))


@row("mul.bf16x2", "mul.f16x2", "mul.rn.bf16x2", "mul.rn.f16x2")
def _mul_pairs(bind: Bind) -> Step:
    return _narrow(bind, shaped(bind), lambda a, b: a * b)


@row("fma.rn.bf16x2", "fma.rn.f16x2", "fma.rn.bf16", "fma.rn.f16")
def _fma_pairs(bind: Bind) -> Step:
    return _narrow(bind, shaped(bind), lambda a, b, c: a * b + c)


@row("div")
def _div(bind: Bind) -> Step:
    type = shaped(bind)
    return elementwise(np.divide if type[0] == "f" else _quotient, 2)(bind)


@row("mul.hi", "mad.hi")
def _mul_hi(bind: Bind) -> Step:
    type = shaped(bind)
    width = int(type[1:])

    def high(a: Any, b: Any, c: Any = 0) -> Any:
        wide = object if width == 64 else (np.int64 if type[0] == "s" else np.uint64)
        product = np.asarray(a).astype(wide) * np.asarray(b).astype(wide)
        kind = np.asarray(a).dtype
        found = product >> width
        if wide is object:
            found = np.asarray([int(x) & ((1 << 64) - 1) for x in np.ravel(found)], np.uint64)
        return found.astype(kind) + np.asarray(c, kind)

    return elementwise(high, len(bind.operands) - 1)(bind)


@row("mul.wide", "mad.wide")
def _mul_wide(bind: Bind) -> Step:
    type = shaped(bind)
    wide = f"{type[0]}{2 * int(type[1:])}"
    target, first, second, *third = bind.operands
    write = bind.write(target, wide)
    reads = bind.read(first, type), bind.read(second, type)
    kind = np.dtype(f"{'i' if type[0] == 's' else 'u'}{int(type[1:]) // 4}")
    if not third:
        return lambda g: write(g, reads[0](g).astype(kind) * reads[1](g).astype(kind))
    add = bind.read(third[0], wide)
    return lambda g: write(g, reads[0](g).astype(kind) * reads[1](g).astype(kind) + add(g))


def _shift(left: bool) -> Callable[[Bind], Step]:
    def build(bind: Bind) -> Step:
        type = shaped(bind)
        width = int(type[1:])
        target, value, amount = bind.operands
        write, read, by = bind.write(target, type), bind.read(value, type), bind.read(amount, "u32")

        def run(g: Any) -> None:
            x = np.asarray(read(g))
            n = np.minimum(by(g), width)  # PTX ISA 9.7.8.6: larger amounts are clamped
            near = np.minimum(n, width - 1).astype(x.dtype)
            if left:
                found = np.where(n >= width, 0, x << near).astype(x.dtype)
            elif type[0] == "s":
                found = x >> near
            else:
                found = np.where(n >= width, 0, x >> near).astype(x.dtype)
            write(g, found)

        return run

    return build


row("shl")(_shift(left=True))
row("shr")(_shift(left=False))


@row("shf.l.wrap", "shf.r.wrap", "shf.l.clamp", "shf.r.clamp")
def _funnel(bind: Bind) -> Step:
    target, low, high, amount = bind.operands
    write = bind.write(target, "b32")
    reads = [bind.read(o, "b32") for o in (low, high)]
    by = bind.read(amount, "u32")
    left, wraps = bind.at.parts[1] == "l", bind.at.parts[2] == "wrap"

    def run(g: Any) -> None:
        both = (np.asarray(reads[1](g), np.uint64) << np.uint64(32)) | reads[0](g)
        n = by(g)
        n = np.asarray(n & 31 if wraps else np.minimum(n, 32), np.uint64)
        moved = (both << n) >> np.uint64(32) if left else both >> n
        write(g, moved.astype(np.uint32))

    return run


@row("lop3")
def _lop3(bind: Bind) -> Step:
    *places, table = bind.operands
    write = bind.write(places[0], "b32")
    reads = [bind.read(o, "b32") for o in places[1:4]]
    code = int(bind.immediate(table, "u32"))  # type: ignore[arg-type]

    def run(g: Any) -> None:
        a, b, c = (np.asarray(r(g), np.uint32) for r in reads)
        found = np.zeros(g.lanes, np.uint32)
        for entry in range(8):
            if code >> entry & 1:
                found |= (
                    (a if entry & 4 else ~a) & (b if entry & 2 else ~b) & (c if entry & 1 else ~c)
                )
        write(g, found)

    return run


_RELATIONS: dict[str, Function] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal,
    "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_COMBINED: dict[str, Function] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _compared(bind: Bind) -> Function:
    name = bind.at.parts[1]
    if name == "ne":  # of numbers only; NumPy's holds for NaN
        return lambda a, b: (a < b) | (a > b)
    if name in _RELATIONS:
        return _RELATIONS[name]
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name.endswith("u") and name[:-1] in _RELATIONS:
        ordered = _RELATIONS[name[:-1]]
        return lambda a, b: ordered(a, b) | np.isnan(a) | np.isnan(b)
    raise bind.fail(f"no relation {name}")


@row("setp")
def _setp(bind: Bind) -> Step:
    from tilec.emulator.program import Pair

    type = shaped(bind)
    relation = _compared(bind)
    target, first, second, *rest = bind.operands
    reads = bind.read(first, type), bind.read(second, type)
    also = next((m for m in bind.at.parts[2:] if m in _COMBINED), None)
    other = bind.read(rest[0], "pred") if rest else None
    both = target if isinstance(target, Pair) else None
    write = bind.write(both.first if both else target, "pred")
    inverse = bind.write(both.second, "pred") if both else None

    def run(g: Any) -> None:
        found = relation(reads[0](g), reads[1](g))
        opposite = ~found
        if also is not None and other is not None:
            found = _COMBINED[also](found, other(g))
            opposite = _COMBINED[also](opposite, other(g))
        if inverse is not None:
            inverse(g, opposite)
        write(g, found)

    return run


@row("selp")
def _selp(bind: Bind) -> Step:
    type = shaped(bind)
    target, first, second, chosen = bind.operands
    write, which = bind.write(target, type), bind.read(chosen, "pred")
    reads = bind.read(first, type), bind.read(second, type)
    return lambda g: write(g, np.where(which(g), reads[0](g), reads[1](g)))


def _approximate(function: Function) -> Callable[[Bind], Step]:
    def build(bind: Bind) -> Step:
        type = shaped(bind)
        if type in ("bf16x2", "f16x2", "bf16", "f16"):
            return _narrow(bind, type, function)
        return elementwise(lambda x: function(np.asarray(x, np.float64)).astype(x.dtype), 1)(bind)

    return build


row("ex2")(_approximate(np.exp2))
row("lg2")(_approximate(np.log2))
row("rcp")(_approximate(lambda x: 1 / x))
row("rsqrt")(_approximate(lambda x: 1 / np.sqrt(x)))
row("sqrt")(_approximate(np.sqrt))
row("sin")(_approximate(np.sin))
row("cos")(_approximate(np.cos))
row("tanh")(_approximate(np.tanh))


@row("copysign")
def _copysign(bind: Bind) -> Step:
    # The first operand gives the sign (PTX ISA 9.7.3.15).
    return elementwise(lambda sign, x: np.copysign(x, sign), 2)(bind)


@row("popc", "clz", "brev")
def _bits(bind: Bind) -> Step:
    type = shaped(bind)
    width = int(type[1:])
    target, source = bind.operands
    name = bind.at.parts[0]
    write, read = bind.write(target, type if name == "brev" else "u32"), bind.read(source, type)

    def run(g: Any) -> None:
        x = np.broadcast_to(np.asarray(read(g)), (g.lanes,))
        bits = (x[:, None] >> np.arange(width, dtype=x.dtype)) & 1
        if name == "popc":
            write(g, bits.sum(axis=1).astype(np.uint32))
        elif name == "clz":
            leading = np.cumsum(bits[:, ::-1], axis=1) == 0
            write(g, leading.sum(axis=1).astype(np.uint32))
        else:
            weights = np.left_shift(np.ones(1, x.dtype), np.arange(width, dtype=x.dtype))
            write(g, (bits[:, ::-1] * weights).sum(axis=1).astype(x.dtype))

    return run


@row("bfe")
def _bfe(bind: Bind) -> Step:
    type = shaped(bind)
    width = int(type[1:])
    target, *sources = bind.operands
    write, read = bind.write(target, type), bind.read(sources[0], type)
    start, length = (bind.read(o, "u32") for o in sources[1:])

    def run(g: Any) -> None:
        x = np.broadcast_to(np.asarray(read(g)), (g.lanes,)).astype(object)
        found = []
        lanes = zip(
            x,
            np.broadcast_to(start(g), (g.lanes,)),
            np.broadcast_to(length(g), (g.lanes,)),
            strict=True,
        )
        for value, at, count in lanes:
            at, count = int(at) & 255, min(int(count) & 255, width)
            bits = (int(value) >> at) & ((1 << count) - 1)
            if type[0] == "s" and count and bits >> (count - 1) & 1:
                bits -= 1 << count
            found.append(bits)
        write(
            g, np.asarray(found).astype(np.dtype(f"{'i' if type[0] == 's' else 'u'}{width // 8}"))
        )

    return run


@row("prmt")
def _prmt(bind: Bind) -> Step:
    target, first, second, selector = bind.operands
    write = bind.write(target, "b32")
    reads = [bind.read(o, "b32") for o in (first, second)]
    chosen = bind.read(selector, "b32")

    def run(g: Any) -> None:
        a, b = (np.broadcast_to(r(g), (g.lanes,)) for r in reads)
        data = np.stack([a, b], axis=1).astype(np.uint32).view(np.uint8).reshape(-1, 8)
        codes = np.broadcast_to(chosen(g), (g.lanes,))
        found = np.zeros((g.lanes, 4), np.uint8)
        for byte in range(4):
            code = (codes >> (4 * byte)) & 0xF
            picked = data[np.arange(g.lanes), code & 7]
            spread = np.where(picked & 0x80, 0xFF, 0).astype(np.uint8)
            found[:, byte] = np.where(code & 8, spread, picked)
        write(g, found.view(np.uint32).reshape(-1))

    return run
