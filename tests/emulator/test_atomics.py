"""Atomic updates and arrivals after copies, each with what it has to leave in memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.single import Case, check
from tilec.emulator.launch import BufferPointer, Launch, emulate
from tilec.source import SourceFile

_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b) .maxntid 64 {
.reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %d<9>;
mov.u32 %r0, %tid.x;
ld.param.u64 %d0, [a];
ld.param.u64 %d1, [b];
mad.wide.u32 %d2, %r0, 4, %d1;
"""


def _run(body: str, a: np.ndarray, grid: int = 2) -> np.ndarray:
    """Run two CTAs of 64 threads; what each thread of the last one left in ``b``."""
    b = np.zeros(64, np.uint32)
    buffers = {"a": a.view(np.uint8), "b": b.view(np.uint8)}
    values = (BufferPointer("a"), BufferPointer("b"))
    launch = Launch((grid, 1, 1), (64, 1, 1), 0, values, buffers)
    findings, _ = emulate(SourceFile("k.ptx", _HEAD + body + "\nret;\n}\n"), launch)
    assert [f.message for f in findings] == []
    return b


@pytest.mark.parametrize(
    ("operation", "before", "after"),
    [
        ("add.u32", 5, 5 + 2 * sum(range(64))),
        ("max.s32", -3, 63),
        ("min.s32", 40, 0),
        ("or.b32", 128, 191),
        ("and.b32", 255, 0),
        ("xor.b32", 9, 9),
        ("inc.u32", 0, None),
    ],
)
def test_all_threads_update_one_place(operation: str, before: int, after: int | None) -> None:
    a = np.array([before], np.int32)
    _run(f"red.global.{operation} [%d0], %r0;", a)
    if after is None:  # `inc` wraps where the old value is at the operand or above
        wanted = before
        for most in [*range(64)] * 2:
            wanted = 0 if wanted >= most else wanted + 1
        after = wanted
    assert a[0] == after


def test_each_thread_gets_what_was_there_before_its_own_update() -> None:
    a = np.zeros(1, np.uint32)
    body = "atom.global.add.u32 %r1, [%d0], 1;\nst.global.u32 [%d2], %r1;"
    assert sorted(_run(body, a, grid=1)) == list(range(64))
    assert a[0] == 64


def test_only_one_thread_finds_what_it_compares_with() -> None:
    a = np.zeros(1, np.uint32)
    body = "add.u32 %r2, %r0, 1;\natom.global.cas.b32 %r1, [%d0], 0, %r2;\n"
    found = _run(body + "st.global.u32 [%d2], %r1;", a, grid=1)
    assert (found == 0).sum() == 1
    assert set(found.tolist()) == {0, int(a[0])}


def test_vectors_of_floats_are_added_element_by_element() -> None:
    a = np.array([1, 2, 3, 4], np.float32)
    body = "mov.f32 %f0, 0f3F800000;\nmov.f32 %f1, 0f40000000;\n"
    _run(body + "red.global.add.v4.f32 [%d0], {%f0, %f1, %f0, %f1};", a)
    assert a.tolist() == [129, 258, 131, 260]


def test_pairs_of_bf16_are_rounded_after_each_addition() -> None:
    a = np.array([0x4380_4380], np.uint32)  # 256 twice: adding 1 rounds back to even
    _run("mov.b32 %r1, 0x3F803F80;\nred.global.add.noftz.bf16x2 [%d0], %r1;", a)
    assert a[0] == 0x4380_4380


def test_an_arrival_after_copies_says_that_they_have_landed() -> None:
    case = Case("""@INIT 64
mul.lo.u32 %r2, %r0, 16;
add.u32 %r3, %r2, %r1;
add.u32 %r3, %r3, 1024;
cvt.u64.u32 %d4, %r2;
add.s64 %d4, %d4, %d0;
cp.async.cg.shared.global [%r3], [%d4], 16;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];
$wait:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0; //! instead setp.eq.u32 %p1, %r0, %r0;
@!%p1 bra $wait;
xor.b32 %r3, %r3, 512;
ld.shared.b32 %r5, [%r3];
""")
    check("unfinished-work", case)
