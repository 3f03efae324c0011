"""Vectors of arithmetic, comparisons and conversions: pairs of sixteen edge values of a type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.emulator.vectors import THREADS, Vector, pairs, spread

_BANK = {"16": "h", "32": "r", "64": "d"}


def edges(type: str) -> np.ndarray:
    """Sixteen values of a PTX type, as their bits."""
    bits = int(type.lstrip("subf"))
    if type[0] == "f" and bits > 16:
        kind = np.dtype(f"f{bits // 8}")
        info = np.finfo(kind)
        values = [0.0, -0.0, 1.0, -1.0, 1.5, -2.75, 3e9, -1e-3, np.inf, -np.inf, np.nan,
                  float(info.max), float(info.tiny), float(info.tiny) / 4, 0.1, -255.5]  # fmt: skip
        return np.asarray(values, kind).view(f"u{bits // 8}")
    top = 1 << (bits - 1)
    values = [0, 1, 2, 3, 7, 10, 31, 32, 255, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2,
              0x1234_5678_9ABC_DEF0 % (2 * top), 2 * top - 7]  # fmt: skip
    return np.asarray(values, f"u{bits // 8}")


def halves(kind: str, seed: int) -> np.ndarray:
    """Pairs of 16-bit floats, edges and random ones, packed."""
    chance = np.random.default_rng(seed)
    if kind == "f16":
        special = np.asarray([0, 0x8000, 0x3C00, 0xBC00, 0x7BFF, 0x0001, 0x7C00, 0x7E00], "u2")
        values = chance.standard_normal(2 * THREADS).astype(np.float16).view("u2")
    else:
        special = np.asarray([0, 0x8000, 0x3F80, 0xBF80, 0x7F7F, 0x0001, 0x7F80, 0x7FC0], "u2")
        values = (chance.standard_normal(2 * THREADS).astype("f4").view("u4") >> 16).astype("u2")
    values[: 8 * 16] = np.tile(special, 16) if seed % 2 else np.repeat(special, 16)
    return values.view("u4")


def _register(type: str, number: int) -> str:
    bits = type.lstrip("subf")
    bank = "f" if type == "f32" else "g" if type == "f64" else _BANK[bits]
    return f"%{bank}{number}"


def _kind(type: str) -> str:
    return type if type in ("f32", "f64") else "bits"


def _binary(opcode: str, type: str, ulps: float = 0.0, out: str = "") -> Vector:
    a, b = pairs(edges(type))
    made, first, second = (_register(t, n) for t, n in ((out or type, 2), (type, 0), (type, 1)))
    return Vector(
        f"{opcode}", f"{opcode} {made}, {first}, {second};", ((first, a), (second, b)), (made,),
        _kind(out or type), ulps,
    )  # fmt: skip


def _unary(opcode: str, type: str, ulps: float = 0.0, absolute: float = 0.0) -> Vector:
    chance = np.random.default_rng(5)
    values = spread(edges(type), 3)
    if type[0] == "f":
        some = (chance.standard_normal(192) * 8).astype(f"f{int(type[1:]) // 8}")
        values[64:] = some.view(values.dtype)
    made, first = _register(type, 2), _register(type, 0)
    return Vector(
        opcode, f"{opcode} {made}, {first};", ((first, values),), (made,), _kind(type), ulps,
        absolute,
    )  # fmt: skip


def _ternary(opcode: str, type: str) -> Vector:
    places = [_register(type, n) for n in range(4)]
    inputs = tuple((places[n], spread(edges(type), 11 + n)) for n in range(3))
    return Vector(opcode, f"{opcode} {places[3]}, {', '.join(places[:3])};", inputs, (places[3],),
                  _kind(type))  # fmt: skip


def _integers() -> Iterator[Vector]:
    for type in ("s16", "u16", "s32", "u32", "s64", "u64"):
        for name in ("add", "sub", "mul.lo", "min", "max"):
            yield _binary(f"{name}.{type}", type)
    for type in ("s32", "u32", "s64", "u64"):
        yield _binary(f"mul.hi.{type}", type)
        yield _ternary(f"mad.lo.{type}", type)
        a, b = edges(type), edges(type)[edges(type) != 0]
        first, second = np.repeat(a, len(b))[:THREADS], np.tile(b, len(a))[:THREADS]
        room = THREADS - len(first)
        first, second = (np.concatenate([x, x[:room]]) for x in (first, second))
        for name in ("div", "rem"):
            opcode = f"{name}.{type}"
            lowest = np.asarray([1 << (int(type[1:]) - 1)], a.dtype)[0]
            safe = np.where((first == lowest) & (second == ~a.dtype.type(0)), 3, second)
            places = [_register(type, n) for n in range(3)]
            yield Vector(
                opcode, f"{opcode} {places[2]}, {places[0]}, {places[1]};",
                ((places[0], first), (places[1], safe.astype(a.dtype))), (places[2],),
            )  # fmt: skip
    for type, wide in (("s32", "s64"), ("u32", "u64"), ("s16", "s32"), ("u16", "u32")):
        yield _binary(f"mul.wide.{type}", type, out=wide)
    for type in ("b16", "b32", "b64"):
        for name in ("and", "or", "xor"):
            yield _binary(f"{name}.{type}", type)
        yield _unary(f"not.{type}", type)
    for opcode in ("shl.b16", "shl.b32", "shl.b64", "shr.u16", "shr.u32", "shr.u64", "shr.s16",
                   "shr.s32", "shr.s64"):  # fmt: skip
        type = opcode[4:]
        a = np.repeat(edges(type), 16)
        b = np.tile(np.asarray([0, 1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 200, 1 << 31],
                               "u4"), 16)  # fmt: skip
        made, first = _register(type, 2), _register(type, 0)
        yield Vector(opcode, f"{opcode} {made}, {first}, %r100;", ((first, a), ("%r100", b)),
                     (made,))  # fmt: skip
    for type in ("s16", "s32", "s64"):
        yield _unary(f"neg.{type}", type)
        yield _unary(f"abs.{type}", type)
    for opcode in ("popc.b32", "clz.b32", "brev.b32"):
        yield _unary(opcode, "b32")
    for opcode in ("shf.l.wrap.b32", "shf.r.wrap.b32", "shf.l.clamp.b32", "shf.r.clamp.b32",
                   "prmt.b32", "bfe.u32", "bfe.s32"):  # fmt: skip
        yield _ternary(opcode, "b32")
    for code in (0x80, 0xF8, 0x96, 0xE8, 0x1D):
        v = _ternary("lop3.b32", "b32")
        yield Vector(f"lop3.b32 {code:#x}", v.body.replace(";", f", {code};"), v.inputs, v.results)


def _relations() -> Iterator[Vector]:
    tests = {
        "s32": ("eq", "ne", "lt", "le", "gt", "ge"), "u32": ("lt", "le", "gt", "ge", "lo", "hs"),
        "s64": ("eq", "lt", "ge"), "u64": ("lt", "ge"), "s16": ("lt", "eq"), "u16": ("gt",),
        "f32": ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu",
                "num", "nan"),
        "f64": ("eq", "ne", "lt", "ge", "neu", "nan"),
    }  # fmt: skip
    for type, names in tests.items():
        for name in names:
            a, b = pairs(edges(type))
            first, second = _register(type, 0), _register(type, 1)
            body = f"setp.{name}.{type} %p0, {first}, {second};\nselp.b32 %r9, 5, 9, %p0;"
            yield Vector(f"setp.{name}.{type}", body, ((first, a), (second, b)), ("%r9",))
    a, b = pairs(edges("s32"))
    body = ("setp.lt.s32 %p0, %r0, 0;\nsetp.gt.and.s32 %p1|%p2, %r0, %r1, %p0;\n"
            "selp.b32 %r8, 1, 0, %p1;\nselp.b32 %r9, 1, 0, %p2;")  # fmt: skip
    yield Vector("setp.gt.and", body, (("%r0", a), ("%r1", b)), ("%r8", "%r9"))


def _floats() -> Iterator[Vector]:
    for type in ("f32", "f64"):
        for name in ("add.rn", "sub.rn", "mul.rn", "div.rn", "min", "max"):
            yield _binary(f"{name}.{type}", type)
        yield _ternary(f"fma.rn.{type}", type)
        for name in ("sqrt.rn", "rcp.rn", "neg", "abs"):
            yield _unary(f"{name}.{type}", type)
        yield _binary(f"copysign.{type}", type)
    for opcode in ("add.rn.ftz.f32", "mul.rn.ftz.f32", "min.NaN.f32", "max.NaN.f32",
                   "max.ftz.f32"):  # fmt: skip
        yield _binary(opcode, "f32")
    yield _ternary("fma.rn.ftz.f32", "f32")
    for opcode, ulps, absolute in (
        ("ex2.approx.ftz.f32", 4, 0), ("ex2.approx.f32", 4, 0), ("rcp.approx.ftz.f32", 2, 0),
        ("rsqrt.approx.f32", 4, 0), ("sqrt.approx.f32", 4, 0), ("lg2.approx.f32", 4, 2.0**-22),
        ("tanh.approx.f32", 0, 2.0**-10),
    ):  # fmt: skip
        yield _unary(opcode, "f32", ulps, absolute)
    for kind in ("f16x2", "bf16x2"):
        names = ["add.rn", "sub.rn", "mul.rn", "min", "max", "min.NaN", "max.NaN"]
        for name in names:
            opcode = f"{name}.{kind}"
            yield Vector(
                opcode, f"{opcode} %r2, %r0, %r1;",
                (("%r0", halves(kind[:-2], 0)), ("%r1", halves(kind[:-2], 1))), ("%r2",), kind[:-2],
            )  # fmt: skip
        yield Vector(
            f"fma.rn.{kind}", f"fma.rn.{kind} %r3, %r0, %r1, %r2;",
            tuple((f"%r{n}", halves(kind[:-2], n)) for n in range(3)), ("%r3",), kind[:-2],
        )  # fmt: skip


_HOLDS = {"s8": "r", "u8": "r", "s16": "h", "u16": "h", "f16": "h", "bf16": "h", "s32": "r",
          "u32": "r", "s64": "d", "u64": "d", "f32": "f", "f64": "g"}  # fmt: skip


def _conversions() -> Iterator[Vector]:
    integers = ("s16", "u16", "s32", "u32", "s64", "u64")
    listed = [f"cvt.{a}.{b}" for a in integers for b in integers if a != b]
    listed += [f"cvt.{a}.s32" for a in ("s8", "u8")] + [f"cvt.s32.{a}" for a in ("s8", "u8")]
    listed += [f"cvt.sat.{a}.s32" for a in ("s8", "u8", "u16", "s16")]
    for f in ("f32", "f64"):
        listed += [f"cvt.rn.{f}.{i}" for i in integers]
        listed += [f"cvt.rzi.{i}.{f}" for i in integers]
        listed += [f"cvt.{r}.s32.{f}" for r in ("rni", "rmi", "rpi")]
        listed += [f"cvt.{r}.{f}.{f}" for r in ("rni", "rzi", "rmi", "rpi")]
    listed += ["cvt.rn.f32.f64", "cvt.f64.f32", "cvt.rn.f16.f32", "cvt.f32.f16", "cvt.rn.bf16.f32",
               "cvt.f32.bf16", "cvt.rn.f16.f64", "cvt.f64.f16", "cvt.sat.f32.f32"]  # fmt: skip
    for opcode in listed:
        to, of = opcode.split(".")[-2:]
        source = {"s8": "b32", "u8": "b32", "f16": "b16", "bf16": "b16"}.get(of, of)
        values = spread(edges(source), 21)
        if source == "b16":
            values = np.random.default_rng(4).integers(0, 1 << 16, THREADS).astype("u2")
        elif of[0] == "f":
            some = np.random.default_rng(6).standard_normal(128) * 3e4
            values[:128] = some.astype(f"f{int(of[1:]) // 8}").view(values.dtype)
        made, first = f"%{_HOLDS[to]}9", f"%{_HOLDS[of]}1"
        kind = to if to in ("f16", "bf16", "f32", "f64") else "bits"
        yield Vector(opcode, f"{opcode} {made}, {first};", ((first, values),), (made,), kind)
    for opcode in ("cvt.rn.bf16x2.f32", "cvt.rn.f16x2.f32", "cvt.rn.relu.bf16x2.f32"):
        chance = np.random.default_rng(8)
        a, b = (spread(edges("f32"), n) for n in (31, 32))
        a[:128] = chance.standard_normal(128).astype("f4").view("u4")
        kind = "bf16" if "bf16" in opcode else "f16"
        yield Vector(opcode, f"{opcode} %r9, %f0, %f1;", (("%f0", a), ("%f1", b)), ("%r9",), kind)
    for kind in ("e4m3x2", "e5m2x2"):
        chance = np.random.default_rng(9)
        a, b = ((chance.standard_normal(THREADS) * s).astype("f4").view("u4") for s in (4, 300))
        a[:16] = edges("f32")
        opcode = f"cvt.rn.satfinite.{kind}.f32"
        yield Vector(opcode, f"{opcode} %h3, %f0, %f1;", (("%f0", a), ("%f1", b)), ("%h3",))
        codes = np.arange(THREADS, dtype="u2") * 257
        opcode = f"cvt.rn.f16x2.{kind}"
        yield Vector(opcode, f"{opcode} %r9, %h0;", (("%h0", codes),), ("%r9",), "f16")
    yield _unary("cvt.rna.tf32.f32", "f32")
    yield _unary("cvt.rn.tf32.f32", "f32")


def vectors() -> Iterator[Vector]:
    """All of them."""
    yield from _integers()
    yield from _relations()
    yield from _floats()
    for v in _conversions():
        if v.name.startswith(("cvt.rna.tf32", "cvt.rn.tf32")):
            yield Vector(v.name, v.body.replace("%f2", "%r9"), v.inputs, ("%r9",), "f32")
        else:
            yield v
