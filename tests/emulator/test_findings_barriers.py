"""Findings on barriers, transfers and phases: three texts a class, with and without the fault."""

from __future__ import annotations

import pytest

from tests.emulator.single import Case, check

LOAD = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r1+1024], [%d2, {%r3, %r4}], [%r1];\n"
)
_ZERO = "mov.b32 %r3, 0; mov.b32 %r4, 0; shl.b32 %r5, %r0, 2; add.u32 %r6, %r1, %r5;\n"
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024;\n"
_FILL = _ZERO + "@!%p0 bra $go;\n" + EXPECT + LOAD + "$go:\n"
WAIT = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;"
_READ = "ld.shared.b32 %r7, [%r6+1024];\n"
STORE = (
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d2, {%r3, %r4}], [%r1+1024];\n"
    "cp.async.bulk.commit_group;\n"
)
_PUT = (
    _ZERO
    + "shl.b32 %r8, %r0, 4; add.u32 %r8, %r8, %r1;\n"
    + ("st.shared.v4.b32 [%r8+1024], {%r0, %r0, %r0, %r0};\n")
)


def _filled_but(count: str) -> str:
    """A load whose bytes the faulty text announces otherwise."""
    return _FILL.replace(EXPECT, f"{EXPECT.strip()} //! instead {EXPECT.replace('1024', count)}")


_ELECT = "setp.ne.u32 %p2, %r0, 0; @%p2 bra $end;\n"

CASES = {
    "unfinished-work": [
        Case(f"@INIT 1\n{_FILL}{WAIT} //! drop\n{_READ}"),
        # A second load goes where the first one still may write.
        Case(
            f"@INIT 1\n{_ZERO}@!%p0 bra $end;\n{EXPECT}{LOAD}{WAIT} //! drop\n"
            f"{EXPECT}{LOAD}$end:",
            order="early",
        ),
        Case(
            f"{_PUT}fence.proxy.async.shared::cta;\nbar.sync 0;\n{_ELECT}{STORE}"
            "cp.async.bulk.wait_group.read 0; //! drop\n"
            "st.shared.b32 [%r1+1024], %r0;\ncp.async.bulk.wait_group.read 0;\n$end:"
        ),
        Case(
            f"{_PUT}fence.proxy.async.shared::cta;\nbar.sync 0;\n{_ELECT}{STORE}"
            "cp.async.bulk.wait_group 0; //! instead cp.async.bulk.wait_group.read 0;\n"
            "ld.global.b32 %r7, [%d0];\ncp.async.bulk.wait_group 0;\n$end:",
            order="early",
        ),
        Case(
            f"{_ZERO}cp.async.ca.shared.global [%r6+1024], [%d0], 4;\n"
            f"cp.async.commit_group;\ncp.async.wait_group 0; //! drop\n{_READ}"
        ),
    ],
    "wrong-phase": [
        Case(f"@INIT 1\n{_FILL}{WAIT} //! instead {WAIT.replace('0;', '1;')}\n{_READ}"),
        Case(
            f"@INIT 1\n{_FILL}{WAIT}\n{_READ}bar.sync 0;\n@!%p0 bra $more;\n{EXPECT}{LOAD}$more:\n"
            f"{WAIT.replace('0;', '1;')} //! instead {WAIT}\n{_READ}"
        ),
        # Two phases further than the one that was waited for: the parity does not tell.
        Case(
            f"@INIT 1\n{_ZERO}@!%p0 bra $end;\nmbarrier.arrive.shared::cta.b64 _, [%r1];\n"
            f"{WAIT} //! drop\nmbarrier.arrive.shared::cta.b64 _, [%r1];\n"
            f"{WAIT.replace('0;', '1;')} //! instead {WAIT}\n$end:"
        ),
    ],
    "missing-proxy-fence": [
        Case(
            f"{_PUT}fence.proxy.async.shared::cta; //! drop\nbar.sync 0;\n{_ELECT}{STORE}"
            "cp.async.bulk.wait_group.read 0;\n$end:"
        ),
        # A fence by the thread that stores does not cover what others wrote before.
        Case(
            f"{_PUT}fence.proxy.async.shared::cta; //! drop\nbar.sync 0;\n{_ELECT}"
            f"st.shared.b32 [%r1+8192], %r0;\nfence.acq_rel.cta;\n{STORE}"
            "cp.async.bulk.wait_group.read 0;\n$end:"
        ),
        Case(
            f"{_PUT}fence.proxy.async.shared::cta; //! instead fence.proxy.async.global;\n"
            f"bar.sync 0;\n{_ELECT}{STORE}cp.async.bulk.wait_group.read 0;\n$end:"
        ),
    ],
    "unfinished-at-exit": [
        Case(
            f"{_PUT}fence.proxy.async.shared::cta;\nbar.sync 0;\n{_ELECT}{STORE}"
            "cp.async.bulk.wait_group.read 0; //! drop\n$end:"
        ),
        Case(f"@INIT 1\n{_FILL}{WAIT} //! drop\n"),
        Case(
            f"{_ZERO}cp.async.ca.shared.global [%r6+1024], [%d0], 4;\n"
            "cp.async.commit_group;\ncp.async.wait_all; //! drop\n"
        ),
    ],
    "uninitialised-barrier": [
        Case(
            "@INIT 1\n@!%p0 bra $go;\n"
            "mbarrier.arrive.shared::cta.b64 _, [%r1]; //! instead "
            "mbarrier.arrive.shared::cta.b64 _, [%r1+8];\n$go:"
        ),
        Case(f"@INIT 1\n{_FILL}{WAIT} //! instead {WAIT.replace('[%r1]', '[%r1+16]')}\n"),
        Case(
            "setp.eq.u32 %p0, %r0, 0; @!%p0 bra $go;\n"
            "mbarrier.init.shared::cta.b64 [%r1], 1; //! drop\n"
            "mbarrier.arrive.shared::cta.b64 _, [%r1];\n$go:"
        ),
    ],
    "barrier-init-unseen": [
        Case(
            "setp.lt.u32 %p1, %r0, 32; @!%p1 bra $go;\nsetp.eq.u32 %p0, %r0, 0;\n"
            "@%p0 mbarrier.init.shared::cta.b64 [%r1], 64;\nfence.mbarrier_init.release.cluster;\n"
            "$go:\nbar.sync 0; //! drop\n"
            "mbarrier.arrive.shared::cta.b64 _, [%r1];",
            order="in order",
        ),
        Case(
            "setp.eq.u32 %p0, %r0, 0; @!%p0 bra $go;\nmbarrier.init.shared::cta.b64 [%r1], 1;\n"
            f"fence.mbarrier_init.release.cluster; //! drop\n{_ZERO}{EXPECT}{LOAD}{WAIT}\n$go:"
        ),
        Case(
            "setp.eq.u32 %p0, %r0, 0; @!%p0 bra $go;\nmbarrier.init.shared::cta.b64 [%r1], 1;\n"
            f"fence.proxy.async; //! drop\n$go:\nbar.sync 0;\n{_FILL.replace('$go', '$on')}{WAIT}"
        ),
    ],
    "barrier-in-use": [
        Case(
            "@INIT 2\n@!%p0 bra $go;\nmbarrier.arrive.shared::cta.b64 _, [%r1];\n"
            "mbarrier.inval.shared::cta.b64 [%r1]; //! drop\n"
            "mbarrier.init.shared::cta.b64 [%r1], 2;\n$go:"
        ),
        Case(
            "@INIT 1\n@!%p0 bra $go;\nmbarrier.arrive.shared::cta.b64 _, [%r1];\n"
            "mbarrier.init.shared::cta.b64 [%r1+8], 1; "
            "//! instead mbarrier.init.shared::cta.b64 [%r1], 1;\n$go:"
        ),
        Case(
            "@INIT 4\n@!%p0 bra $go;\nmbarrier.arrive.shared::cta.b64 _, [%r1], 3;\n"
            "//! instead mbarrier.init.shared::cta.b64 [%r1], 4;\n$go:"
        ),
    ],
    "arrival-count": [
        Case(
            "@INIT 2\n@!%p0 bra $go;\nmbarrier.arrive.shared::cta.b64 _, [%r1], 2; "
            "//! instead mbarrier.arrive.shared::cta.b64 _, [%r1], 3;\n$go:"
        ),
        Case(
            f"@INIT 2\n@!%p0 bra $go;\nmbarrier.arrive.shared::cta.b64 _, [%r1];\n"
            f"mbarrier.arrive.shared::cta.b64 _, [%r1]; //! drop\n$go:\n{WAIT}"
        ),
        Case(f"@INIT 64 //! instead @INIT 65\nmbarrier.arrive.shared::cta.b64 _, [%r1];\n{WAIT}"),
    ],
    "byte-count": [
        Case(f"@INIT 1\n{_filled_but('1040')}{WAIT}"),
        Case(f"@INIT 1\n{_filled_but('1008')}{WAIT}"),
        Case(f"@INIT 1\n{_ZERO}@!%p0 bra $go;\n{EXPECT}{LOAD.strip()} //! drop\n$go:\n{WAIT}"),
    ],
    "deadlock": [
        Case(
            "@INIT 1\n@!%p0 bra $go;\nmbarrier.arrive.shared::cta.b64 _, [%r1]; //! drop\n$go:\n"
            f"{WAIT}"
        ),
        Case(
            "setp.lt.u32 %p1, %r0, 32; @%p1 bra $low;\nbar.sync 1, 64;\nbra $end;\n$low:\n"
            "bar.sync 1, 64; //! instead bar.sync 2, 64;\n$end:"
        ),
        # Each warp waits for what the other would do next.
        Case(
            "setp.eq.u32 %p0, %r0, 0; @!%p0 bra $ready;\nmbarrier.init.shared::cta.b64 [%r1], 1;\n"
            "mbarrier.init.shared::cta.b64 [%r1+8], 1;\n$ready:\nbar.sync 0;\n"
            "and.b32 %r9, %r0, 31; setp.eq.u32 %p3, %r9, 0;\n"
            "setp.lt.u32 %p1, %r0, 32; @%p1 bra $low;\n"
            f"{WAIT}\n@%p3 mbarrier.arrive.shared::cta.b64 _, [%r1+8];\nbra $end;\n$low:\n"
            f"@%p3 mbarrier.arrive.shared::cta.b64 _, [%r1]; //! drop\n"
            f"{WAIT.replace('[%r1]', '[%r1+8]')}\n$end:"
        ),
    ],
    "barrier-count": [
        Case("bar.sync 1, 64; //! instead bar.sync 1, 48;\n"),
        Case(
            "setp.lt.u32 %p1, %r0, 32; @%p1 bra $low;\nbar.sync 1, 64;\nbra $end;\n$low:\n"
            "bar.arrive 1, 64; //! instead bar.arrive 1, 96;\n$end:"
        ),
        Case("bar.sync 1, 64; //! instead bar.sync 1, 96;\n"),
    ],
    "trap": [
        Case("setp.gt.u32 %p1, %r0, 63; //! instead setp.gt.u32 %p1, %r0, 62;\n@%p1 trap;"),
        Case("setp.gt.u32 %p1, %r0, 63; @%p1 bra $bad;\nbra $end; //! drop\n$bad:\ntrap;\n$end:"),
        Case("mov.b32 %r2, 0; //! instead mov.b32 %r2, 1;\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 trap;"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "number"), [(kind, n) for kind, cases in CASES.items() for n in range(len(cases))]
)
def test_found_in_the_faulty_text_only(kind: str, number: int) -> None:
    check(kind, CASES[kind][number])


def test_a_deadlock_names_its_ring_and_the_state_of_every_barrier() -> None:
    (found,) = (f for f in CASES["deadlock"][2].faulty() if f.kind == "deadlock")
    assert "waits at line" in found.message
    assert dict(found.details)["barriers"]
