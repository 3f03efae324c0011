"""Arithmetic on tiles and scalars, at the values where it goes wrong.

Idea: one kernel an op and element type computes it on a tile of value pairs, and again with some
operands scalars; each combination is a row of the output.  The expectation is the interpreter's
NumPy meaning of the op, which shares no code with the compiler.

Never: asks for what an op leaves open (the quotient of a division by zero).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tests.gpu.cta_case import Case, Data, Error, placed, values
from tests.gpu.cta_text import Text
from tilec.interp import elementwise
from tilec.interp.numbers import carrier
from tilec.ir.core import Op
from tilec.ir.levels import math
from tilec.ir.types import DTYPES
from tilec.layout.linear import Layout

SIZE = 512
TILE = Layout.parse("(reg: i1 i2 | lane: i4 i8 i16 i32 i64 | warp: i128 i256)")
SCALARS = (3, 100, 259, 401)
FLOATS = ("f32", "f16", "bf16", "f64")
STORED = ("e4m3", "e5m2", "tf32")
INTEGERS = ("s32", "u32", "s64", "u64", "s16", "u16", "s8", "u8")
ALL = (*FLOATS, *STORED, *INTEGERS, "bool")

_FLOAT_EDGES = (
    0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.0, np.inf, -np.inf, np.nan, 2.0**-24, -(2.0**-14), 2.0**-126,
    2.0**-140, 65504.0, -65520.0, 3.0e38, 0.1, 1.00390625, 2049.0, -1e-20, 16777217.0,
)  # fmt: skip
_INTEGER_EDGES = (
    0, 1, -1, 2, -2, 7, -7, 8, -8, 31, 32, 33, 63, 64, 100, -100, 1 << 31, (1 << 31) - 1, 65536,
    1 << 63, (1 << 63) - 1, 123456789,
)  # fmt: skip


def edges(dtype: str) -> Data:
    """Values at the ends and in the corners of an element type."""
    if dtype == "bool":
        return np.array([False, True])
    kind = DTYPES[dtype]
    if kind.is_float:
        with np.errstate(over="ignore"):
            return values(dtype, _FLOAT_EDGES)
    wrapped = np.array([e & ((1 << kind.bits) - 1) for e in _INTEGER_EDGES], np.uint64)
    return wrapped.astype(carrier(kind))


def operands(dtype: str, count: int, seed: int = 0) -> list[Data]:
    """``count`` vectors: all pairs of edges in the first two, the rest at random."""
    generator = np.random.default_rng(seed)
    kind, some = DTYPES[dtype], edges(dtype)
    if dtype == "bool":
        rest = generator.random((count, SIZE)) < 0.5
    elif kind.is_float:
        rest = values(dtype, generator.standard_normal((count, SIZE)) * 4)
    else:
        rest = generator.integers(-(1 << 62), 1 << 62, (count, SIZE)).astype(carrier(kind))
        rest[:, ::2] = rest[:, ::2] % np.asarray(100 if kind.bits == 8 else 1000, carrier(kind))
    pairs = np.array(list(product(some, some)), some.dtype)[:SIZE]
    for which in range(count):
        rest[which, : len(pairs)] = np.roll(pairs[:, which % 2], 7 * (which // 2))
    return list(rest)


Emit = Callable[[Text, list[str], list[str], bool], str]
"""Writes the op: the text, names of operands, their element types, whether any is a tile."""


def kernel(
    name: str,
    emit: Emit,
    inputs: Sequence[tuple[str, Data]],
    out: str,
    meaning: Callable[..., Any],
    error: Error | None = None,
) -> Case:
    """A kernel that applies an op to tiles and scalars in every combination."""
    masks = [m for m in product((False, True), repeat=len(inputs)) if any(m)]
    rows = 1 + len(SCALARS) * len(masks)
    text = Text()
    names = [text.array(f"x{n}", dtype, (SIZE,)) for n, (dtype, _) in enumerate(inputs)]
    flags = [
        text.array(f"flags{n}", "s32", (SIZE,)) if dtype == "bool" else ""
        for n, (dtype, _) in enumerate(inputs)
    ]
    output = text.array("out", out, (rows, SIZE), "out")
    text.op("cta.grid", text.one)
    dtypes = [dtype for dtype, _ in inputs]
    expected: list[Data] = []
    with text.role():
        tiles = [
            text.read(array, text.reg(dtype, TILE), [text.zero], [0], vector=2)
            for array, dtype in zip(names, dtypes, strict=True)
        ]

        def keep(value: str) -> None:
            row = text.constant(len(expected))
            text.write(output, value, [row, text.zero], [1], vector=2)

        keep(emit(text, tiles, dtypes, True))
        expected.append(meaning(*(data for _, data in inputs)))
        for place in SCALARS:
            at = text.constant(place)
            ones = []
            for array, flag, dtype in zip(names, flags, dtypes, strict=True):
                one = str(
                    text.op("cta.read_scalar", flag or array, at, type=dtype.replace("bool", "s32"))
                )
                if flag:
                    one = str(text.op("math.compare", one, text.zero, type="bool", relation="ne"))
                ones.append(one)
            for mask in masks:
                given = [s if m else t for s, t, m in zip(ones, tiles, mask, strict=True)]
                value = emit(text, given, dtypes, not all(mask))
                if all(mask):
                    value = str(text.op("math.fill", value, type=text.reg(out, TILE)))
                keep(value)
                data = [
                    np.full(SIZE, x[place]) if m else x
                    for (_, x), m in zip(inputs, mask, strict=True)
                ]
                expected.append(meaning(*data))
    arrays = {f"x{n}": placed(dtype, data) for n, (dtype, data) in enumerate(inputs)}
    arrays |= {
        f"flags{n}": placed("s32", data.astype(np.int32) * 256)
        for n, (dtype, data) in enumerate(inputs)
        if dtype == "bool"
    }
    return Case(name, str(text), arrays, {"out": placed(out, np.stack(expected))}, error)


def plain(op: str, out: str, **attributes: Any) -> Emit:
    """An op that is written with its operands alone."""

    def emit(text: Text, given: list[str], _dtypes: list[str], tile: bool) -> str:
        type = text.reg(out, TILE) if tile else out
        return str(text.op(op, *given, type=type, **attributes))

    return emit


def _settled(dtype: str, function: Callable[..., Any]) -> Callable[..., Data]:
    def meaning(*data: Data) -> Data:
        with np.errstate(all="ignore"):
            return elementwise.settle(DTYPES[dtype], function(*data), False)

    return meaning


_SHARED = (math.Add, math.Sub, math.Mul, math.Max, math.Min)
_BITS = (math.And, math.Or, math.Xor)
BINARY: dict[str, tuple[type[Op], ...]] = {
    **dict.fromkeys(FLOATS, (*_SHARED, math.Div)),
    **dict.fromkeys(
        INTEGERS,
        (*_SHARED, *_BITS, math.FloorDiv, math.Mod, math.CeilDiv, math.Shl, math.Shr),
    ),
    "bool": _BITS,
}
_APPROXIMATE = {
    math.Exp2: 2.0**-20, math.Exp: 2.0**-16, math.Log2: 2.0**-20, math.Log: 2.0**-20,
    math.Rsqrt: 2.0**-21, math.Rcp: 2.0**-21, math.Tanh: 2.0**-10,
}  # fmt: skip
"""Relative errors admitted in f32: a little above those of the instructions (PTX ISA, ex2 ...)."""
_STEP = {"f32": 0.0, "f16": 2.0**-10, "bf16": 2.0**-7}
_LEAST = {"f32": 2.0**-126, "f16": 2.0**-23, "bf16": 2.0**-126}


def _binaries() -> Iterator[Case]:
    for dtype, ops in BINARY.items():
        for op in ops:
            x, y = operands(dtype, 2)
            if op in (math.FloorDiv, math.CeilDiv):
                y = np.where(y == 0, np.asarray(3, y.dtype), y)
            function = elementwise.BINARY[op]  # type: ignore[index]
            emit = plain(op.name, dtype)
            meaning = _settled(dtype, function)
            yield kernel(f"{op.name} {dtype}", emit, [(dtype, x), (dtype, y)], dtype, meaning)
    for dtype in (*FLOATS, *INTEGERS):
        x, y, z = operands(dtype, 3)

        def fused(x: Data, y: Data, z: Data, dtype: str = dtype) -> Data:
            with np.errstate(all="ignore"):
                raw = elementwise.fused(DTYPES[dtype], x, y, z, False)
                return elementwise.settle(DTYPES[dtype], raw, False)

        inputs = [(dtype, v) for v in (x, y, z)]
        yield kernel(f"math.fma {dtype}", plain("math.fma", dtype), inputs, dtype, fused)


def _unaries() -> Iterator[Case]:
    exact = {
        **dict.fromkeys(FLOATS, (math.Neg, math.Abs, math.Sqrt)),
        **dict.fromkeys(INTEGERS, (math.Neg, math.Abs, math.Not)),
        "bool": (math.Not,),
    }
    for dtype, ops in exact.items():
        for op in ops:
            (x,) = operands(dtype, 1)
            meaning = _settled(dtype, elementwise.UNARY[op])
            yield kernel(f"{op.name} {dtype}", plain(op.name, dtype), [(dtype, x)], dtype, meaning)
    for dtype in ("f32", "f16", "bf16"):
        for op, relative in _APPROXIMATE.items():
            (x,) = operands(dtype, 1)
            # Approximate instructions may take a subnormal for zero.
            x = np.where((np.abs(x) < 2.0**-126) & (x != 0), np.float32(0.5), x)
            error = Error(relative + _STEP[dtype], max(_LEAST[dtype], relative * (op in _LOGS)))
            meaning = _settled(dtype, elementwise.UNARY[op])
            emit = plain(op.name, dtype)
            yield kernel(f"{op.name} {dtype}", emit, [(dtype, x)], dtype, meaning, error)


_LOGS = (math.Log2, math.Log)  # near one they are off by a distance, not by a share


def _comparisons() -> Iterator[Case]:
    for dtype in ALL:
        for relation, function in elementwise.RELATIONS.items():
            if dtype == "bool" and relation not in ("eq", "ne"):
                continue
            emit = plain("math.compare", "bool", relation=relation)
            inputs = [(dtype, v) for v in operands(dtype, 2)]
            yield kernel(f"math.compare {relation} {dtype}", emit, inputs, "bool", function)
        (condition,) = operands("bool", 1, seed=1)
        x, y = operands(dtype, 2)
        inputs = [("bool", condition), (dtype, x), (dtype, y)]
        yield kernel(f"math.where {dtype}", plain("math.where", dtype), inputs, dtype, np.where)


def _casts() -> Iterator[Case]:
    for source, target in product(ALL, ALL):
        (x,) = operands(source, 1)
        if source in INTEGERS and target in FLOATS:  # ties and near ties of every precision
            x[-64:] = np.array([(1 << 24) + 65537 + n for n in range(64)]).astype(x.dtype)
        if source == "f64":
            x[-64:] = 1 + 2.0**-9 + np.ldexp(1.0, -np.arange(64.0).astype(int))
            x[-128:-64] = 1 + 2.0**-4 + np.ldexp(1.0, -np.arange(64.0).astype(int))
            x[-4:] = 1e300, -1e300, 2.0**40 + 0.5, -(2.0**63)
        if DTYPES[target].bits == 8 and DTYPES[target].is_float and DTYPES[source].is_float:
            ends = [448, 449, 463, 464, 465, 480, 57344, 61439, 61440, 61441, 65536, np.inf]
            x[-28:-4] = values(source, [*ends, *(-v for v in ends)])

        for saturate in (True, False) if target in ("e4m3", "e5m2") else (True,):

            def meaning(
                data: Data, source: str = source, target: str = target, saturate: bool = saturate
            ) -> Data:
                with np.errstate(all="ignore"):
                    return elementwise.cast(DTYPES[source], DTYPES[target], data, False, saturate)

            emit = plain("math.cast", target, dtype=target, saturate=saturate)
            name = f"math.cast {source} {target}{'' if saturate else ' open'}"
            yield kernel(name, emit, [(source, x)], target, meaning)


def _bitcasts() -> Iterator[Case]:
    for source, target in product(sorted(math.BITCAST), repeat=2):
        if DTYPES[source].bits != DTYPES[target].bits:
            continue
        (x,) = operands(source, 1)
        kind = carrier(DTYPES[target])
        emit = plain("math.bitcast", target, dtype=target)
        meaning = partial(np.ndarray.view, dtype=kind)
        yield kernel(f"math.bitcast {source} {target}", emit, [(source, x)], target, meaning)


def _constant_divisors() -> Iterator[Case]:
    """Divisors that selection sees: shifts and masks stand for powers of two."""
    for dtype, op in product(INTEGERS, (math.FloorDiv, math.Mod, math.CeilDiv)):
        for divisor in (1, 2, 8, 1 << 30, 7, -3, -8):
            if math.value_fault(divisor, DTYPES[dtype]) is not None:
                continue

            def emit(
                text: Text,
                given: list[str],
                dtypes: list[str],
                tile: bool,
                op: type[Op] = op,
                divisor: int = divisor,
            ) -> str:
                type = text.reg(dtypes[0], TILE) if tile else dtypes[0]
                return str(text.op(op.name, *given, text.constant(divisor, dtypes[0]), type=type))

            def meaning(x: Data, op: type[Op] = op, divisor: int = divisor) -> Data:
                function = elementwise.BINARY[op]  # type: ignore[index]
                return np.asarray(function(x, np.asarray(divisor, x.dtype)), x.dtype)

            (x,) = operands(dtype, 1)
            name = f"{op.name} {dtype} by {divisor}"
            yield kernel(name, emit, [(dtype, x)], dtype, meaning)


def _constants() -> Iterator[Case]:
    """Literals that must be rounded to their type, and integers that fit theirs."""
    for dtype in ALL:
        text = Text()
        some = [0, 1, -1, 300] if dtype == "bool" else [0, 1, -5, (1 << 31) + 7, (1 << 24) + 65537]
        literals: list[Any] = [bool(v) for v in some] if dtype == "bool" else list(some)
        if DTYPES[dtype].is_float:
            literals = [
                0.0,
                -0.0,
                1e39,
                float("-inf"),
                float("nan"),
                2.0**-149,
                1 + 2.0**-8 + 2.0**-40,
            ]
        literals = [v for v in literals if math.value_fault(v, DTYPES[dtype]) is None]
        output = text.array("out", dtype, (len(literals), SIZE), "out")
        text.op("cta.grid", text.one)
        with text.role():
            for row, literal in enumerate(literals):
                one = text.constant(literal, dtype)
                tile = str(text.op("math.fill", one, type=text.reg(dtype, TILE)))
                text.write(output, tile, [text.constant(row), text.zero], [1], vector=2)
        if DTYPES[dtype].is_float:
            with np.errstate(over="ignore"):
                data = values(dtype, literals)
            # An infinity that is written is one, also of a type that saturates.
            for place in np.flatnonzero(np.isinf(literals)):
                data[place] = literals[place]
        else:
            mask = (1 << DTYPES[dtype].bits) - 1
            data = np.array([int(v) & mask for v in literals], np.uint64)
            data = data.astype(carrier(DTYPES[dtype]))
        wanted = np.repeat(data[:, None], SIZE, 1)
        yield Case(f"math.constant {dtype}", str(text), {}, {"out": placed(dtype, wanted)})


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _binaries()
    yield from _unaries()
    yield from _comparisons()
    yield from _casts()
    yield from _bitcasts()
    yield from _constant_divisors()
    yield from _constants()
