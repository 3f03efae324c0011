"""The meaning of each op on elements, as a table: op, element type, operands, result."""

from __future__ import annotations

import math as pymath
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.meaning.programs import kernel
from tilec.interp import elementwise
from tilec.interp.interpret import interpret
from tilec.interp.machine import MEANINGS
from tilec.interp.numbers import FORMATS, decode, encode, rounded, storage, to_integers
from tilec.ir.core import Op
from tilec.ir.levels import math
from tilec.ir.types import DTYPES, DType

INF, NAN = pymath.inf, pymath.nan
F32, BF16, F16 = DTYPES["f32"], DTYPES["bf16"], DTYPES["f16"]
MIN32, MAX32 = -(2**31), 2**31 - 1

BINARY: list[tuple[str, str, Any, Any, Any]] = [
    ("add", "f32", 1.0, 2.0**-24, 1.0),  # a tie goes to even
    ("add", "bf16", 1.0, 2.0**-8, 1.0),
    ("add", "bf16", 1.0 + 2.0**-7, 2.0**-8, 1.0 + 2.0**-6),
    ("add", "f16", 65504.0, 16.0, INF),
    ("add", "e4m3", 448.0, 448.0, 448.0),  # fp8 saturates
    ("add", "s32", MAX32, 1, MIN32),
    ("add", "u8", 250, 10, 4),
    ("sub", "u32", 0, 1, 2**32 - 1),
    ("mul", "s16", 300, 300, 300 * 300 - 2 * 65536 + 65536),
    ("div", "f32", 1.0, 0.0, INF),
    ("div", "f32", 1.0, 3.0, 0.3333333432674408),
    ("floordiv", "s32", -7, 2, -4),
    ("floordiv", "s32", 7, -2, -4),
    ("mod", "s32", -7, 3, 2),
    ("mod", "s32", 7, -3, -2),
    ("ceildiv", "s32", 7, 2, 4),
    ("ceildiv", "s32", -7, 2, -3),
    ("ceildiv", "u8", 255, 2, 128),
    ("max", "f32", 1.0, NAN, NAN),
    ("min", "f32", NAN, 1.0, NAN),
    ("max", "f32", -0.0, 0.0, 0.0),
    ("min", "f32", 0.0, -0.0, -0.0),
    ("max", "s32", -3, 2, 2),
    ("and", "bool", True, False, False),
    ("or", "bool", True, False, True),
    ("xor", "bool", True, True, False),
    ("and", "s32", 12, 10, 8),
    ("xor", "u16", 12, 10, 6),
    ("shl", "s32", 1, 31, MIN32),
    ("shl", "s32", 1, 32, 0),
    ("shr", "s32", -8, 1, -4),
    ("shr", "s32", -8, 40, -1),
    ("shr", "u32", 2**31, 31, 1),
]

UNARY: list[tuple[str, str, Any, Any]] = [
    ("neg", "f32", 0.0, -0.0),
    ("neg", "s32", MIN32, MIN32),
    ("abs", "f16", -2.5, 2.5),
    ("not", "bool", True, False),
    ("not", "u8", 1, 254),
    ("exp2", "f32", 10.0, 1024.0),
    ("exp2", "f32", -INF, 0.0),
    ("exp", "f32", 0.0, 1.0),
    ("log2", "f32", 8.0, 3.0),
    ("log2", "f32", 0.0, -INF),
    ("log", "f32", 1.0, 0.0),
    ("sqrt", "f32", 2.0, 1.4142135381698608),
    ("sqrt", "f32", -1.0, NAN),
    ("rsqrt", "f32", 0.25, 2.0),
    ("rcp", "f32", -4.0, -0.25),
    ("tanh", "f32", INF, 1.0),
]

COMPARED = [("lt", 1.0, 2.0, True), ("le", 2.0, 2.0, True), ("gt", 1.0, 2.0, False),
            ("ge", NAN, 1.0, False), ("eq", NAN, NAN, False), ("ne", NAN, NAN, True)]  # fmt: skip

CASTS: list[tuple[str, str, Any, Any]] = [
    ("f32", "bf16", 1.00390625, 1.0),  # half way, to even
    ("f64", "bf16", 1.00390625 + 2.0**-40, 1.0078125),  # through float32 it would be a tie
    ("f32", "f16", 65519.99, 65504.0),
    ("f32", "f16", 65520.0, INF),
    ("f32", "e4m3", 1e9, 448.0),
    ("f32", "e4m3", 2.0**-10, 0.0),
    ("f32", "e4m3", 3 * 2.0**-10, 2.0**-8),
    ("f32", "e5m2", INF, 57344.0),
    ("f32", "e5m2", NAN, NAN),
    ("f32", "s32", 2.9, 2),
    ("f32", "s32", -2.9, -2),
    ("f32", "s32", 1e20, MAX32),
    ("f32", "s32", -INF, MIN32),
    ("f32", "s32", NAN, 0),
    ("f32", "u8", -1.0, 0),
    ("f64", "s64", 9.3e18, 2**63 - 1),
    ("s32", "s8", 300, 44),
    ("s32", "f32", 2**24 + 1, 2.0**24),
    ("s64", "bf16", (1 << 62) + (1 << 54) + 1, 2.0**62 + 2.0**55),
    ("s32", "bool", 7, True),
    ("bool", "f32", True, 1.0),
    ("f32", "bool", 0.5, True),
]


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _run(lines: str, dtype: str) -> Any:
    """Execute lines that define ``%r`` of ``dtype``."""
    text = f"""
kernel @one {{ |%y: array<{dtype}, 1, out>|
  %at = math.constant() {{value = 0}} : s32
  {lines}
  tile.store(%y, %r, %at)
}}
"""
    y = np.zeros(1, storage(DTYPES[dtype]))
    interpret(kernel(text), {"y": y})
    return decode(DTYPES[dtype], y)[0].item()


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and pymath.isnan(wanted):
        return pymath.isnan(found)
    if isinstance(wanted, float) and wanted == 0:
        return bool(found == 0 and pymath.copysign(1, found) == pymath.copysign(1, wanted))
    return bool(found == wanted)


def _constant(name: str, value: Any, dtype: str) -> str:
    return f"%{name} = math.constant() {{value = {_literal(value)}}} : {dtype}"


@pytest.mark.parametrize(("op", "dtype", "x", "y", "wanted"), BINARY)
def test_binary(op: str, dtype: str, x: Any, y: Any, wanted: Any) -> None:
    lines = [_constant("x", x, dtype), _constant("z", y, dtype)]
    found = _run("\n".join([*lines, f"%r = math.{op}(%x, %z) : {dtype}"]), dtype)
    assert _same(found, wanted), found


@pytest.mark.parametrize(("op", "dtype", "x", "wanted"), UNARY)
def test_unary(op: str, dtype: str, x: Any, wanted: Any) -> None:
    found = _run(f"{_constant('x', x, dtype)}\n%r = math.{op}(%x) : {dtype}", dtype)
    assert _same(found, wanted), found


@pytest.mark.parametrize(("relation", "x", "y", "wanted"), COMPARED)
def test_comparisons_with_nan_are_false_except_ne(
    relation: str, x: float, y: float, wanted: bool
) -> None:
    lines = [_constant("x", x, "f32"), _constant("z", y, "f32")]
    lines.append(f"%r = math.compare(%x, %z) {{relation = {relation}}} : bool")
    assert _run("\n".join(lines), "bool") is wanted


@pytest.mark.parametrize(("source", "dtype", "x", "wanted"), CASTS)
def test_casts(source: str, dtype: str, x: Any, wanted: Any) -> None:
    line = f"{_constant('x', x, source)}\n%r = math.cast(%x) {{dtype = {dtype}}} : {dtype}"
    found = _run(line, dtype)
    assert _same(found, wanted), found


def test_where_takes_the_unchosen_side_for_nothing() -> None:
    lines = [_constant("c", True, "bool"), _constant("x", 1.0, "f32"), _constant("z", NAN, "f32")]
    assert _run("\n".join([*lines, "%r = math.where(%c, %x, %z) : f32"]), "f32") == 1.0


REDUCED = [("add", "f32", 6.0), ("mul", "f32", 6.0), ("max", "f32", 3.0), ("min", "f32", 1.0),
           ("max", "s32", 3), ("min", "u8", 1), ("and", "s32", 0), ("or", "u8", 3)]  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype", "wanted"), REDUCED)
def test_reductions_skip_what_is_invalid(kind: str, dtype: str, wanted: Any) -> None:
    text = f"""
kernel @reduce {{ |%x: array<{dtype}, N, in>, %y: array<{dtype}, 1, out>|
  %at = math.constant() {{value = 0}} : s32
  %j = tile.whole(%x) {{axis = 0, size = 16}} : index<16, N>
  %v = tile.load(%x, %j) : tile<{dtype}, 16>
  %m = math.expand(%v) {{axis = 0}} : tile<{dtype}, 1 x 16>
  %r = math.reduce(%m) {{axis = 1, kind = {kind}}} : tile<{dtype}, 1>
  %i = tile.whole(%y) {{axis = 0, size = 1}} : index<1, 1>
  tile.store(%y, %r, %i)
}}
"""
    x, y = np.array([1, 2, 3], storage(DTYPES[dtype])), np.zeros(1, storage(DTYPES[dtype]))
    interpret(kernel(text), {"x": x, "y": y})
    assert y[0] == wanted


def test_the_maximum_of_nothing_is_minus_infinity() -> None:
    found = elementwise.reduce("max", F32, np.zeros((2, 0), np.float32), 1, False)
    assert np.array_equal(found, [-INF, -INF])


def test_length_and_indices_count_what_exists() -> None:
    text = """
kernel @sums { |%x: array<f32, N, in>, %y: array<s32, T, out>, %z: array<s32, T, out>|
  %N = tile.extent(%x) {axis = 0} : s32
  %s = math.constant() {value = 16} : s32
  tile.parallel(%N) {sizes = (16,)} { |%i: index<16, N>|
    %v = tile.indices(%i) : tile<s32, 16>
    %sum = math.reduce(%v) {axis = 0, kind = add} : s32
    %low = math.reduce(%v) {axis = 0, kind = min} : s32
    %t = math.floordiv(%low, %s) : s32
    %n = tile.length(%i) : s32
    tile.store(%y, %sum, %t)
    tile.store(%z, %n, %t)
  }
}
"""
    y, z = np.zeros(2, np.int32), np.zeros(2, np.int32)
    interpret(kernel(text), {"x": np.zeros(20, np.float32), "y": y, "z": z})
    assert y.tolist() == [sum(range(16)), sum(range(16, 20))]
    assert z.tolist() == [16, 4]


# --- exactness ------------------------------------------------------------------------------------


def _nearest(value: float, dtype: DType) -> float:
    """The nearest value of a format, found by exact rational arithmetic."""
    form = FORMATS[dtype.name]
    if value == 0 or pymath.isnan(value):
        return value
    if pymath.isinf(value):
        return pymath.copysign(form.greatest if form.saturates else INF, value)
    exponent = max(pymath.frexp(value)[1] - 1, form.least_exponent) - form.precision + 1
    quotient = Fraction(value) / Fraction(2) ** exponent
    made = round(quotient) * Fraction(2) ** exponent  # round() of a Fraction goes to even
    if abs(made) > Fraction(form.greatest):
        return pymath.copysign(form.greatest if form.saturates else INF, value)
    return pymath.copysign(abs(float(made)), value)


@pytest.mark.parametrize("name", sorted(FORMATS))
@settings(max_examples=300, deadline=None)
@given(value=st.floats(allow_nan=False))
def test_rounding_is_to_nearest_even_from_float64(name: str, value: float) -> None:
    found = float(rounded(DTYPES[name], np.array([value]))[0])
    wanted = _nearest(value, DTYPES[name])
    assert struct.pack("d", found) == struct.pack("d", wanted)


@pytest.mark.parametrize("name", ["bf16", "f16", "e4m3", "e5m2"])
def test_every_bit_pattern_survives_the_trip_through_memory(name: str) -> None:
    dtype = DTYPES[name]
    bits = np.arange(1 << dtype.bits, dtype=np.uint16 if dtype.bits == 16 else np.uint8)
    stored = bits.view(storage(dtype))
    values = decode(dtype, stored)
    again = encode(dtype, values, storage(dtype))
    number = ~np.isnan(values) & ~(np.isinf(values) if FORMATS[name].saturates else False)
    assert np.array_equal(again.view(bits.dtype)[number], bits[number])
    assert np.all(np.isnan(decode(dtype, again)[np.isnan(values)]))


@settings(max_examples=300, deadline=None)
@given(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 3)
def test_fma_rounds_once(x: float, y: float, z: float) -> None:
    a, b, c = (np.array([v], np.float32) for v in (x, y, z))
    with np.errstate(all="ignore"):
        found = elementwise.fused(F32, a, b, c, False)[0]
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    with np.errstate(over="ignore"):
        below, above = (np.nextafter(found, np.float32(end)) for end in (-INF, INF))
    if not np.isfinite(found):
        assert abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103
        return
    distance = abs(Fraction(float(found)) - exact)
    for other in (below, above):
        if np.isfinite(other):
            assert distance <= abs(Fraction(float(other)) - exact)


def test_float_to_integer_saturates_at_the_edges_of_64_bits() -> None:
    found = to_integers(DTYPES["s64"], np.array([2.0**63, -(2.0**63), 2.0**62, NAN]))
    assert found.tolist() == [2**63 - 1, -(2**63), 2**62, 0]


@pytest.mark.parametrize(
    ("source", "target", "x", "wanted"),
    [
        ("f32", "s32", 1.0, 0x3F800000),
        ("s32", "f32", -(2**31), -0.0),
        ("u32", "s32", 2**32 - 1, -1),
        ("f64", "s64", -2.0, -(2**62)),
        ("s64", "f64", 1, 5e-324),
        ("u64", "f64", 0x7FF << 52, INF),
    ],
)
def test_bits_are_read_as_another_type(source: str, target: str, x: Any, wanted: Any) -> None:
    lines = _constant("x", x, source)
    lines += f"\n  %r = math.bitcast(%x) {{dtype = {target}}} : {target}"
    assert _same(_run(lines, target), wanted)


# --- coverage -------------------------------------------------------------------------------------


def test_every_op_of_the_level_has_a_meaning() -> None:
    families = {"tile", "math", "flow"}
    without = [
        name
        for name, cls in Op.registry.items()
        if name.split(".")[0] in families and not cls.is_terminator and cls not in MEANINGS
    ]
    assert without == []


def test_every_elementwise_op_is_in_a_table() -> None:
    tabled = {row[0] for row in BINARY} | {row[0] for row in UNARY}
    declared = {c.name.removeprefix("math.") for c in (*math.Binary.__subclasses__(),
                                                       *math.Unary.__subclasses__())}  # fmt: skip
    assert declared == tabled | {"tile.exp2sub"}


@pytest.mark.parametrize(
    ("x", "r", "wanted"),
    [(-INF, -INF, 0.0), (-INF, NAN, 0.0), (-INF, INF, 0.0), (3.0, 1.0, 4.0), (NAN, 0.0, NAN),
     (2.0, -INF, INF), (2.0, INF, 0.0)],
)  # fmt: skip
def test_exp2sub_of_minus_infinity_is_zero_whatever_is_subtracted(
    x: float, r: float, wanted: float
) -> None:
    lines = [_constant("x", x, "f32"), _constant("z", r, "f32"), "%r = tile.exp2sub(%x, %z) : f32"]
    assert _same(_run("\n".join(lines), "f32"), wanted)
