"""Findings on memory: each class in three texts, and the same texts without the fault."""

from __future__ import annotations

import pytest

from tests.emulator.single import Case, check

_TO_B = "shl.b32 %r2, %r0, 2; cvt.u64.u32 %d3, %r2; add.s64 %d4, %d1, %d3; add.s64 %d5, %d0, %d3;\n"
_TO_SHARED = "shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2; xor.b32 %r4, %r3, 128;\n"
_CTA_AT_B = "mov.u32 %r2, %ctaid.x; mul.wide.u32 %d3, %r2, 4; add.s64 %d4, %d1, %d3;\n"
_FIRST = "setp.ne.u32 %p1, %r0, 0; @%p1 bra $end;\n"

CASES = {
    "data-race": [
        Case(
            _TO_SHARED
            + "st.shared.b32 [%r3], %r0;\nbar.sync 0; //! drop\nld.shared.b32 %r5, [%r4];"
        ),
        Case(
            _TO_SHARED + "st.shared.b32 [%r3], %r0;\nbar.sync 0;\nld.shared.b32 %r5, [%r4];\n"
            "bar.sync 0; //! drop\nst.shared.b32 [%r3], %r5;"
        ),
        Case(
            _TO_B + "st.global.b32 [%d4], %r0;\nbar.sync 0; //! drop\n"
            "xor.b64 %d6, %d4, 128;\nld.global.b32 %r5, [%d6];"
        ),
        # Every CTA has a word of its own, or all have the same one.
        Case(
            _FIRST + _CTA_AT_B + "st.global.b32 [%d4], %r0; //! instead st.global.b32 [%d1], %r0;\n"
            "$end:",
            grid=2,
        ),
        # The second CTA reads what the first has written: a flag that is released hands it over.
        Case(
            _FIRST + "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p2, %r2, 0; @!%p2 bra $reads;\n"
            "st.global.b32 [%d1], %r0;\nfence.acq_rel.gpu; //! drop\n"
            "mov.b32 %r3, 1; st.relaxed.gpu.global.b32 [%d1+64], %r3; bra $end;\n$reads:\n"
            "ld.relaxed.gpu.global.b32 %r4, [%d1+64];\nfence.acq_rel.gpu;\n"
            "ld.global.b32 %r5, [%d1];\n$end:",
            grid=2,
        ),
        Case(
            _FIRST + "mov.u32 %r2, %ctaid.x; setp.eq.u32 %p2, %r2, 0; @!%p2 bra $reads;\n"
            "st.global.b32 [%d1], %r0;\nfence.acq_rel.gpu;\n"
            "mov.b32 %r3, 1; st.relaxed.gpu.global.b32 [%d1+64], %r3; bra $end;\n$reads:\n"
            "ld.relaxed.gpu.global.b32 %r4, [%d1+64];\nfence.acq_rel.gpu; //! drop\n"
            "ld.global.b32 %r5, [%d1];\n$end:",
            grid=2,
        ),
    ],
    "uninitialised-memory": [
        Case(_TO_SHARED + "st.shared.b32 [%r3], %r0; //! drop\nld.shared.b32 %r5, [%r3];"),
        Case(_TO_B + "st.global.b32 [%d4], %r0; //! drop\nld.global.b32 %r5, [%d4];"),
        Case(
            _TO_SHARED + "st.shared.b32 [%r3], %r0; //! instead st.shared.b16 [%r3], %h0;\n"
            "ld.shared.b32 %r5, [%r3];"
        ),
    ],
    "out-of-bounds": [
        Case(
            _TO_SHARED
            + "st.shared.b32 [%r3+16128], %r0; //! instead st.shared.b32 [%r3+16256], %r0;"
        ),
        Case(_TO_B + "ld.global.b32 %r5, [%d5+7936]; //! instead ld.global.b32 %r5, [%d5+8064];"),
        Case(
            _TO_B + "setp.lt.u32 %p1, %r0, 32; //! instead setp.lt.u32 %p1, %r0, 33;\n"
            "@%p1 ld.global.b32 %r5, [%d5+8064];"
        ),
    ],
    "misaligned": [
        Case(_TO_SHARED + "st.shared.b32 [%r3+4], %r0; //! instead st.shared.b32 [%r3+2], %r0;"),
        Case(_TO_B + "ld.global.b32 %r5, [%d5]; //! instead ld.global.v2.b32 {%r5, %r6}, [%d5];"),
        Case(
            "@INIT 1\nmov.b32 %r3, 0; //! instead mov.b32 %r3, 4;\nmov.b32 %r4, 0;\n"
            "@!%p0 bra $wait;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024;\n"
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            "[%r1+1024], [%d2, {%r3, %r4}], [%r1];\n$wait:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;"
        ),
    ],
}  # fmt: skip
_LOAD = (
    "@INIT 1\nmov.b32 %r3, 0; mov.b32 %r4, 0;\n@!%p0 bra $wait;\n"
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024;\n"
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r1+1024], [%d2, {%r3, %r4}], [%r1];\n$wait:\n"
    "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;"
)


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, n) for kind, cases in CASES.items() for n in range(len(cases))]
)
def test_found_in_the_faulty_text_only(kind: str, number: int) -> None:
    check(kind, CASES[kind][number])


@pytest.mark.parametrize(
    "changed",
    [
        {"stride": 136},
        {"box": (80, 8)},
        {"box": (64, 257)},
    ],
)
def test_a_tensor_map_that_the_driver_would_refuse(changed: dict) -> None:  # type: ignore[type-arg]
    assert not list(Case(_LOAD).clean())
    found = Case(_LOAD, **changed).clean()
    assert "tensor-map" in {f.kind for f in found}


@pytest.mark.parametrize(
    ("what", "instead"),
    [("[%d2, {%r3, %r4}]", "[%d2, {%r3}]"), ("[%d2, {%r3, %r4}]", "[%d1, {%r3, %r4}]")],
)
def test_a_copy_by_the_wrong_map(what: str, instead: str) -> None:
    text = _LOAD
    assert "tensor-map" in {f.kind for f in Case(text.replace(what, instead)).clean()}
