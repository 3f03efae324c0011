"""Findings on products, registers and whole warps, and advice; each with and without the fault."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.emulator import test_findings_barriers, test_findings_clusters, test_findings_memory
from tests.emulator.single import Case, check
from tilec.emulator.findings import CLASSES

# Both operands lie as core matrices of 8 rows of 16 bytes: 128 bytes along K, 256 along rows.
_A, _B = 1024 >> 4 | 8 << 16 | 16 << 32, 3072 >> 4 | 8 << 16 | 16 << 32
_SWIZZLED = 1024 >> 4 | 1 << 16 | 64 << 32 | 1 << 62
_FILLED = (
    "shl.b32 %r2, %r0, 4; add.u32 %r2, %r2, %r1; mov.b32 %r3, 0x3F803F80;\n"
    + "".join(
        f"st.shared.v4.b32 [%r2+{1024 + 2048 * n}], {{%r3, %r3, %r3, %r3}};\n" for n in range(5)
    )
    + "fence.proxy.async.shared::cta;\nbar.sync 0;\nsetp.ne.u32 %p3, %r1, 0;\n"
    f"mov.b64 %d3, {_A}; mov.b64 %d4, {_B};\n"
)
_OF = "{%f0, %f1, %f2, %f3}"
_MULTIPLY = (
    f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {_OF}, %d3, %d4, %p3, 1, 1, 0, 0;\n"
)
_FROM_REGISTERS = (
    "mov.b32 %r10, %r3; mov.b32 %r11, %r3; mov.b32 %r12, %r3; mov.b32 %r13, %r3;\n"
    "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
    f"{_OF}, {{%r10, %r11, %r12, %r13}}, %d4, %p3, 1, 1, 0;\nwgmma.commit_group.sync.aligned;\n"
)
_FENCE = "wgmma.fence.sync.aligned;\n"
_COMMIT = "wgmma.commit_group.sync.aligned;\n"
_DONE = _COMMIT + "wgmma.wait_group.sync.aligned 0;\n"
_USE = "add.rn.f32 %f9, %f0, %f1;\n"
_TO_SHARED = "shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;\n"
_TWO = f"{_FILLED}{_FENCE}{_MULTIPLY}{_COMMIT}"
_MANY = "".join(f"ld.global.b32 %r{10 + n}, [%d0+{4 * n}];\n" for n in range(32)) + "".join(
    f"st.global.b32 [%d3+{4 * n}], %r{10 + n};\n" for n in range(32)
)
_OWN = "mad.lo.u32 %r4, %r0, 128, 0; cvt.u64.u32 %d4, %r4; add.s64 %d3, %d1, %d4;\n"
_WARPGROUP = "setp.ge.u32 %p1, %r0, 128; @%p1 bra $rest;\n"


def _mm(**parts: str) -> Case:
    """One product; a part that is given stands in for the usual one."""
    usual = {"fence": _FENCE, "multiply": _MULTIPLY, "done": _DONE, "use": _USE, "first": ""}
    usual |= parts
    order = ("first", "fence", "multiply", "done", "use")
    return Case(_FILLED + "".join(usual[k] for k in order), 128)


def _drop(text: str) -> str:
    return f"{text.strip()} //! drop\n"


def _descriptor(bits: int, instead: int) -> Case:
    return _mm(first=f"mov.b64 %d3, {bits}; //! instead mov.b64 %d3, {instead};\n")


def _registers(count: int, instead: int) -> Case:
    text = "setmaxnreg.dec.sync.aligned.u32"
    return Case(f"{text} {count}; //! instead {text} {instead};", 384)


CASES = {
    "missing-wgmma-fence": [
        _mm(fence=_drop(_FENCE)),
        _mm(done=f"{_DONE}mov.b32 %f0, 0f00000000;\n{_drop(_FENCE)}{_MULTIPLY}{_DONE}"),
        _mm(done=f"{_DONE}{_USE}{_drop(_FENCE)}{_MULTIPLY}{_DONE}"),
        Case(
            _FILLED + _FENCE + _FROM_REGISTERS.replace(_FENCE, _drop(_FENCE))
            + "wgmma.wait_group.sync.aligned 0;\n", 128,
        ),
    ],
    "accumulator-in-flight": [
        _mm(done=_COMMIT + _drop("wgmma.wait_group.sync.aligned 0;") + "\n"),
        _mm(
            done=f"{_COMMIT}wgmma.wait_group.sync.aligned 0; "
            "//! instead wgmma.wait_group.sync.aligned 1;\n"
        ),
        _mm(done=_drop(_COMMIT) + "wgmma.wait_group.sync.aligned 0;\n"),
    ],
    "operand-in-flight": [
        _mm(
            done=_COMMIT + _drop("wgmma.wait_group.sync.aligned 0;"),
            use="mov.b32 %f0, 0f00000000;\nwgmma.wait_group.sync.aligned 0;\n",
        ),
        Case(
            f"{_FILLED}{_FROM_REGISTERS}" + _drop("wgmma.wait_group.sync.aligned 0;")
            + "mov.b32 %r10, 0;\nwgmma.wait_group.sync.aligned 0;\n", 128,
        ),
        Case(
            f"{_FILLED}{_FROM_REGISTERS}wgmma.wait_group.sync.aligned 0; "
            "//! instead wgmma.wait_group.sync.aligned 1;\n"
            "ld.shared.b32 %r12, [%r2+1024];\nwgmma.wait_group.sync.aligned 0;\n", 128,
        ),
    ],
    "descriptor": [
        _descriptor(_A, _A | 1 << 52),
        _descriptor(_A, _A | 1 << 46),
        _descriptor(_SWIZZLED, _SWIZZLED + 8),
        _descriptor(_SWIZZLED + 2, _SWIZZLED + 24),
        _descriptor(_A, _A + 900),
    ],
    "uninitialised-register": [
        Case("mov.b32 %r5, 1; //! drop\nadd.u32 %r6, %r5, %r0;"),
        Case(
            "setp.lt.u32 %p1, %r0, 64; //! instead setp.lt.u32 %p1, %r0, 63;\n"
            "@%p1 mov.b32 %r5, 1;\nadd.u32 %r6, %r5, %r0;"
        ),
        _mm(first="setp.ne.u32 %p3, %r1, 0; //! instead setp.eq.u32 %p3, %r1, 0;\n"),
    ],
    "divergent-aligned": [
        Case(
            "setp.lt.u32 %p1, %r0, 32; //! instead setp.lt.u32 %p1, %r0, 16;\n@!%p1 bra $end;\n"
            "bar.sync 1, 32;\n$end:"
        ),
        Case(
            "setp.lt.u32 %p1, %r0, 16; @!%p1 bra $end;\n"
            "shfl.sync.idx.b32 %r5, %r0, 0, 31, 0xffff; "
            "//! instead shfl.sync.idx.b32 %r5, %r0, 0, 31, 0xffffffff;\n$end:"
        ),
        Case(
            "setp.lt.u32 %p1, %r0, 32; //! instead setp.lt.u32 %p1, %r0, 48;\n"
            "shl.b32 %r2, %r0, 4; add.u32 %r3, %r1, %r2; mov.b32 %r5, 0;\n"
            "@%p1 stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r3], {%r5, %r5, %r5, %r5};"
        ),
        Case(
            "setp.lt.u32 %p1, %r0, 128; //! instead setp.lt.u32 %p1, %r0, 120;\n"
            "@%p1 setmaxnreg.dec.sync.aligned.u32 40;", 384,
        ),
    ],
    "register-count": [
        _registers(40, 36),
        _registers(160, 176),
        Case(
            f"{_WARPGROUP}setmaxnreg.dec.sync.aligned.u32 40; "
            f"//! instead setmaxnreg.dec.sync.aligned.u32 24;\n{_OWN}{_MANY}$rest:", 384,
        ),
        Case(
            f"{_WARPGROUP}setmaxnreg.dec.sync.aligned.u32 24;\nbra $end;\n$rest:\n"
            "setmaxnreg.inc.sync.aligned.u32 240; "
            "//! instead setmaxnreg.inc.sync.aligned.u32 160;\n$end:", 384,
        ),
    ],
    "bank-conflict": [
        Case(
            _TO_SHARED + "shl.b32 %r4, %r0, 7;\n"
            "st.shared.b32 [%r3], %r0; //! instead st.shared.b32 [%r4], %r0;"
        ),
        Case(
            "shl.b32 %r2, %r0, 4; shl.b32 %r4, %r0, 6;\n"
            "st.shared.v4.b32 [%r2], {%r0, %r0, %r0, %r0}; "
            "//! instead st.shared.v4.b32 [%r4], {%r0, %r0, %r0, %r0};"
        ),
        Case(
            "shl.b32 %r2, %r0, 4; shl.b32 %r4, %r0, 7;\n"
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r2], {%r0, %r0, %r0, %r0}; "
            "//! instead stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r0, %r0, %r0, %r0};"
        ),
    ],
    "uncoalesced": [
        Case(
            "mul.wide.u32 %d3, %r0, 4; mul.wide.u32 %d4, %r0, 64;\n"
            "add.s64 %d3, %d3, %d0; //! instead add.s64 %d3, %d4, %d0;\nld.global.b32 %r5, [%d3];"
        ),
        Case(
            "mul.wide.u32 %d3, %r0, 2; mul.wide.u32 %d4, %r0, 128;\n"
            "add.s64 %d3, %d3, %d0; //! instead add.s64 %d3, %d4, %d0;\nld.global.b16 %h1, [%d3];"
        ),
        Case(
            "mul.wide.u32 %d3, %r0, 8; mul.wide.u32 %d4, %r0, 256;\n"
            "add.s64 %d3, %d3, %d1; //! instead add.s64 %d3, %d4, %d1;\n"
            "st.global.v2.b32 [%d3], {%r0, %r0};"
        ),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, n) for kind, cases in CASES.items() for n in range(len(cases))]
)
def test_found_in_the_faulty_text_only(kind: str, number: int) -> None:
    check(kind, CASES[kind][number])


def test_every_class_has_three_faults_and_three_near_misses() -> None:
    tables = (
        CASES, test_findings_barriers.CASES, test_findings_clusters.CASES,
        test_findings_memory.CASES,
    )  # fmt: skip
    tried: Counter[str] = Counter()
    for table in tables:
        tried.update({kind: len(cases) for kind, cases in table.items()})
    tried["tensor-map"] = 5  # tested by changes of the map, below the table of its file
    assert {kind: tried.get(kind, 0) for kind in CLASSES if tried.get(kind, 0) < 3} == {}
