"""Vectors of what the lanes of a warp do together: shuffles, votes, matrices and mma.sync."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.emulator.vectors import THREADS, Vector

_MEMBERS = "0xffffffff"


def _numbers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, THREADS).astype("u4")


def _shuffles() -> Iterator[Vector]:
    for mode, clamps in (("up", (0, 0x1800, 0x1000)), ("down", (31, 0x181F, 0x1C1F)),
                         ("bfly", (31, 0x181F)), ("idx", (31, 0x181F, 0x1C1F))):  # fmt: skip
        for clamp in clamps:
            for by in (0, 1, 2, 5, 16, 31):
                body = (f"shfl.sync.{mode}.b32 %r1|%p0, %r0, {by}, {clamp}, {_MEMBERS};\n"
                        "selp.b32 %r2, 1, 0, %p0;")  # fmt: skip
                name = f"shfl.sync.{mode} by {by} clamp {clamp:#x}"
                yield Vector(name, body, (("%r0", _numbers(by)),), ("%r1", "%r2"))
    for mode in ("any", "all", "uni"):
        values = np.where(np.arange(THREADS) < 96, 1, _numbers(2) & 1).astype("u4")
        body = (f"setp.ne.u32 %p0, %r0, 0;\nvote.sync.{mode}.pred %p1, %p0, {_MEMBERS};\n"
                "selp.b32 %r1, 1, 0, %p1;")  # fmt: skip
        yield Vector(f"vote.sync.{mode}", body, (("%r0", values),), ("%r1",))
    body = f"setp.gt.u32 %p0, %r0, 1000000000;\nvote.sync.ballot.b32 %r1, %p0, {_MEMBERS};"
    yield Vector("vote.sync.ballot", body, (("%r0", _numbers(3)),), ("%r1",))
    for name in ("add.s32", "add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"):
        body = f"redux.sync.{name} %r1, %r0, {_MEMBERS};"
        yield Vector(f"redux.sync.{name}", body, (("%r0", _numbers(4)),), ("%r1",))


def _matrices() -> Iterator[Vector]:
    fill = ("shl.b32 %r100, %r150, 4;\nmov.u32 %r101, smem;\nadd.u32 %r100, %r100, %r101;\n"
            "st.shared.v4.b32 [%r100], {%r0, %r1, %r2, %r3};\nbar.sync 0;\n")  # fmt: skip
    inputs = tuple((f"%r{n}", _numbers(40 + n)) for n in range(4))
    for count in (1, 2, 4):
        for turned in ("", ".trans"):
            out = tuple(f"%r{10 + n}" for n in range(count))
            listed = ", ".join(out)
            opcode = f"ldmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16"
            yield Vector(opcode, f"{fill}{opcode} {{{listed}}}, [%r100];", inputs, out)
            opcode = f"stmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16"
            given = ", ".join(f"%r{n}" for n in range(count))
            body = (f"{fill}{opcode} [%r100], {{{given}}};\nbar.sync 0;\n"
                    "ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r100];")  # fmt: skip
            yield Vector(opcode, body, inputs, ("%r10", "%r11", "%r12", "%r13"))
    opcode = "movmatrix.sync.aligned.m8n8.trans.b16"
    yield Vector(opcode, f"{opcode} %r10, %r0;", inputs[:1], ("%r10",))


def _packed(type: str, seed: int) -> np.ndarray:
    """Registers full of small numbers of a type: their products are exact."""
    chance = np.random.default_rng(seed)
    whole = chance.integers(-4, 5, 4 * THREADS)
    match type:
        case "bf16":
            return (whole[: 2 * THREADS].astype("f4").view("u4") >> 16).astype("u2").view("u4")
        case "f16":
            return whole[: 2 * THREADS].astype("f2").view("u4")
        case "tf32":
            return whole[:THREADS].astype("f4").view("u4")
        case "s8":
            return chance.integers(-128, 128, 4 * THREADS).astype("i1").view("u4")
        case "u8":
            return chance.integers(0, 256, 4 * THREADS).astype("u1").view("u4")
    codes = np.asarray([0x00, 0x38, 0x40, 0x44, 0xB8, 0xC0, 0x48, 0x30], "u1")  # small numbers
    if type == "e5m2":
        codes = np.asarray([0x00, 0x3C, 0x40, 0x42, 0xBC, 0xC0, 0x44, 0x38], "u1")
    return codes[chance.integers(0, 8, 4 * THREADS)].view("u4")


def _products() -> Iterator[Vector]:
    shapes = [
        ("m16n8k16", "f32", "bf16", "bf16", 4, 2), ("m16n8k16", "f32", "f16", "f16", 4, 2),
        ("m16n8k8", "f32", "bf16", "bf16", 2, 1), ("m16n8k8", "f32", "tf32", "tf32", 4, 2),
        ("m16n8k4", "f32", "tf32", "tf32", 2, 1), ("m16n8k32", "s32", "s8", "s8", 4, 2),
        ("m16n8k32", "s32", "u8", "u8", 4, 2), ("m16n8k32", "s32", "s8", "u8", 4, 2),
        ("m16n8k16", "s32", "s8", "s8", 2, 1), ("m16n8k32", "f32", "e4m3", "e4m3", 4, 2),
        ("m16n8k32", "f32", "e5m2", "e4m3", 4, 2),
    ]  # fmt: skip
    for shape, result, a, b, of_a, of_b in shapes:
        opcode = f"mma.sync.aligned.{shape}.row.col.{result}.{a}.{b}.{result}"
        bank = "f" if result == "f32" else "r"
        d = [f"%{bank}{100 + n}" for n in range(4)]
        c = [f"%{bank}{110 + n}" for n in range(4)]
        left, right = [f"%r{n}" for n in range(of_a)], [f"%r{10 + n}" for n in range(of_b)]
        inputs = [(r, _packed(a, 50 + n)) for n, r in enumerate(left)]
        inputs += [(r, _packed(b, 60 + n)) for n, r in enumerate(right)]
        whole = np.random.default_rng(7).integers(-100, 100, (4, THREADS))
        held = whole.astype("f4" if result == "f32" else "i4").view("u4")
        inputs += [(r, held[n]) for n, r in enumerate(c)]
        parts = ", ".join(f"{{{', '.join(p)}}}" for p in (d, left, right, c))
        yield Vector(opcode, f"{opcode} {parts};", tuple(inputs), tuple(d),
                     "f32" if result == "f32" else "bits")  # fmt: skip


def vectors() -> Iterator[Vector]:
    """All of them."""
    yield from _shuffles()
    yield from _matrices()
    yield from _products()
