"""Vectors of what runs on its own: TMA in every swizzle, cp.async, and wgmma of every type."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.emulator.vectors import Vector
from tests.emulator.vectors_warp import _packed

_THREADS = 128
_BARRIER = 60000 // 8 * 8


def _setup(bytes: int) -> str:
    return f"""mov.u32 %r101, smem;
add.u32 %r102, %r101, {_BARRIER};
setp.eq.u32 %p0, %r150, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r102], 1;
@%p0 fence.mbarrier_init.release.cluster;
bar.sync 0;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r102], {bytes};
mov.b64 %d0, map0;
cvta.param.u64 %d0, %d0;
"""


_WAIT = """$again:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r102], 0;
@!%p1 bra $again;
"""


def _dump(bytes: int) -> tuple[str, tuple[str, ...]]:
    """Each thread reads its share of the first bytes of shared memory."""
    words = bytes // 4 // _THREADS
    lines = ["shl.b32 %r103, %r150, 2;", "add.u32 %r103, %r103, %r101;"]
    lines += [f"ld.shared.b32 %r{n}, [%r103+{512 * n}];" for n in range(words)]
    return "\n".join(lines), tuple(f"%r{n}" for n in range(words))


def _loads() -> Iterator[Vector]:
    for size, swizzle, across, down, x, y in (
        (2, 0, 16, 64, 0, 0), (2, 32, 16, 64, 8, 3), (2, 64, 32, 64, 40, 10),
        (2, 128, 64, 64, 0, 0), (2, 128, 64, 64, 56, 90), (2, 128, 64, 32, -8, -5),
        (1, 128, 128, 64, 16, 7), (1, 0, 64, 64, 0, 60), (4, 128, 32, 64, 4, 2),
        (4, 64, 16, 64, 20, 80), (4, 0, 8, 64, 28, 0), (2, 64, 32, 16, 16, 96),
    ):  # fmt: skip
        width, height = 80 if size < 4 else 32, 100
        data = np.random.default_rng(size).integers(0, 256, width * height * size, "u1")
        bytes = across * down * size
        dump, out = _dump(bytes)
        body = (
            _setup(bytes) + f"@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile."
            f"mbarrier::complete_tx::bytes [%r101], [%d0, {{{x}, {y}}}], [%r102];\n{_WAIT}{dump}"
        )
        name = f"tma load {size} bytes swizzle {swizzle} box {across}x{down} at {x},{y}"
        yield Vector(
            name, body, (), out, threads=_THREADS, tensor=data,
            maps=((size, width, height, across, down, swizzle),),
        )  # fmt: skip


def _stores() -> Iterator[Vector]:
    for size, swizzle, across, down, x, y in (
        (2, 0, 16, 64, 0, 0), (2, 32, 16, 64, 8, 3), (2, 64, 32, 64, 40, 10),
        (2, 128, 64, 64, 16, 90), (1, 128, 128, 64, 16, 7), (4, 128, 32, 64, 4, 2),
    ):  # fmt: skip
        width, height = 80 if size < 4 else 32, 100
        words = across * down * size // 4 // _THREADS
        given = tuple(
            (f"%r{n}", np.random.default_rng(n).integers(0, 1 << 32, _THREADS).astype("u4"))
            for n in range(words)
        )
        stores = "\n".join(f"st.shared.b32 [%r103+{512 * n}], %r{n};" for n in range(words))
        body = f"""mov.u32 %r101, smem;
shl.b32 %r103, %r150, 2;
add.u32 %r103, %r103, %r101;
{stores}
fence.proxy.async.shared::cta;
bar.sync 0;
setp.eq.u32 %p0, %r150, 0;
mov.b64 %d0, map0;
cvta.param.u64 %d0, %d0;
@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d0, {{{x}, {y}}}], [%r101];
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;"""
        name = f"tma store {size} bytes swizzle {swizzle} box {across}x{down} at {x},{y}"
        yield Vector(
            name, body, given, threads=_THREADS, changes_tensor=True,
            tensor=np.zeros(width * height * size, "u1"),
            maps=((size, width, height, across, down, swizzle),),
        )  # fmt: skip


def _copies() -> Iterator[Vector]:
    for opcode, size, taken in (("ca", 4, 4), ("ca", 8, 8), ("ca", 16, 16), ("cg", 16, 16),
                                ("cg", 16, 0), ("ca", 8, 4), ("ca", 16, 12)):  # fmt: skip
        data = np.random.default_rng(size).integers(0, 1 << 32, (4, _THREADS)).astype("u4")
        body = f"""mov.u32 %r101, smem;
shl.b32 %r103, %r150, 4;
cvt.u64.u32 %d1, %r103;
add.u64 %d1, %d1, %d20;
add.u32 %r103, %r103, %r101;
st.shared.v4.b32 [%r103], {{%r150, %r150, %r150, %r150}};
cp.async.{opcode}.shared.global [%r103], [%d1], {size}, {taken};
cp.async.commit_group;
cp.async.wait_group 0;
bar.sync 0;
ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r103];"""
        inputs = tuple((f"%r{n}", data[n]) for n in range(4))
        out = ("%r10", "%r11", "%r12", "%r13")
        yield Vector(f"cp.async.{opcode} {size} of {taken}", body, inputs, out, threads=_THREADS)


def _image(type: str, seed: int, words: int) -> tuple[str, tuple[tuple[str, np.ndarray], ...]]:
    """Every thread fills its part of shared memory with small numbers of a type."""
    given = tuple((f"%r{n}", _packed(type, seed + n)[:_THREADS]) for n in range(words))
    lines = ["mov.u32 %r101, smem;", "shl.b32 %r103, %r150, 2;", "add.u32 %r103, %r103, %r101;"]
    lines += [f"st.shared.b32 [%r103+{512 * n}], %r{n};" for n in range(words)]
    lines += ["fence.proxy.async.shared::cta;", "bar.sync 0;"]
    return "\n".join(lines), given


def _descriptor(register: str, offset: int, leading: int, stride: int, swizzle: int) -> str:
    code = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
    fixed = (leading >> 4) << 16 | (stride >> 4) << 32 | code << 62
    return (
        f"add.u32 %r104, %r101, {offset};\nshr.u32 %r104, %r104, 4;\nand.b32 %r104, %r104, "
        f"0x3fff;\ncvt.u64.u32 {register}, %r104;\nor.b64 {register}, {register}, {fixed};\n"
    )


def _wgmma(
    types: tuple[str, str, str], columns: int, swizzle: int, majors: tuple[int, int],
    from_registers: bool,
) -> Vector:  # fmt: skip
    result, a, b = types
    depth = {"tf32": 8, "bf16": 16, "f16": 16}.get(a, 32)
    fill, given = _image(a, 70, 40)
    count = columns // 2
    bank = "f" if result == "f32" else "r"
    d = [f"%{bank}{(0 if bank == 'f' else 20) + n}" for n in range(count)]
    zero = "0f00000000" if bank == "f" else "0"
    clear = "\n".join(f"mov.b32 {r}, {zero};" for r in d)
    stride = {0: 256, 32: 256, 64: 512, 128: 1024}[swizzle]
    mn_stride = {0: 256, 32: 256, 64: 512, 128: 1024}[swizzle]
    leading = 128 if swizzle == 0 else 2048
    made = _descriptor("%d4", 0, leading, mn_stride if majors[0] else stride, swizzle)
    made += _descriptor("%d5", 8192, leading, mn_stride if majors[1] else stride, swizzle)
    left = "{%r110, %r111, %r112, %r113}" if from_registers else "%d4"
    if from_registers:
        moves = "\n".join(f"ld.shared.b32 %r{110 + n}, [%r103+{512 * n}];" for n in range(4))
    else:
        moves = ""
    tail = "" if bank == "r" else ", 1, 1"
    if a in ("bf16", "f16"):
        tail += f", {majors[1]}" if from_registers else f", {majors[0]}, {majors[1]}"
    opcode = f"wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{result}.{a}.{b}"
    body = f"""{fill}
{moves}
{clear}
{made}setp.ne.u32 %p1, %r101, 0xffffffff;
wgmma.fence.sync.aligned;
{opcode} {{{", ".join(d)}}}, {left}, %d5, %p1{tail};
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;"""
    name = f"{opcode} swizzle {swizzle} majors {majors}{' a in registers' * from_registers}"
    return Vector(name, body, given, tuple(d), "f32" if bank == "f" else "bits", threads=_THREADS)


def vectors() -> Iterator[Vector]:
    """All of them."""
    yield from _loads()
    yield from _stores()
    yield from _copies()
    for swizzle in (0, 32, 64, 128):
        for majors in ((0, 0), (1, 0), (0, 1), (1, 1)):
            yield _wgmma(("f32", "bf16", "bf16"), 64, swizzle, majors, False)
        yield _wgmma(("f32", "f16", "f16"), 32, swizzle, (0, 0), True)
    for columns in (8, 16, 24, 40, 72, 96):
        yield _wgmma(("f32", "bf16", "bf16"), columns, 128, (0, 0), columns % 16 == 8)
    for types in (("f32", "tf32", "tf32"), ("f32", "e4m3", "e4m3"), ("f32", "e5m2", "e5m2"),
                  ("f32", "e4m3", "e5m2"), ("s32", "s8", "s8"), ("s32", "u8", "u8"),
                  ("s32", "u8", "s8")):  # fmt: skip
        yield _wgmma(types, 64, 128, (0, 0), False)
        yield _wgmma(types, 16, 64, (0, 0), True)
