"""Findings across the CTAs of a cluster: texts with and without the fault, and sound ones.

%r10 is the CTA's rank, %r11 that of the other CTA, %r12 the address of the mbarrier there.
"""

from __future__ import annotations

import pytest

from tests.emulator.single import Case, check
from tilec.diagnostics import DiagnosticError

SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
RANKS = (
    "mov.u32 %r10, %cluster_ctarank;\nxor.b32 %r11, %r10, 1;\n"
    "mapa.shared::cluster.u32 %r12, %r1, %r11;\n"
)
ELECT = "setp.eq.u32 %p0, %r0, 0;\n"


def init(count: int) -> str:
    """The mbarrier of each CTA, known to all of the cluster."""
    return (
        f"{RANKS}{ELECT}@%p0 mbarrier.init.shared::cta.b64 [%r1], {count};\n"
        "fence.mbarrier_init.release.cluster;\n"
    )


ARRIVE = "@%p0 mbarrier.arrive.shared::cluster.b64 _, [%r12];\n"
WAIT = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n"
EXPECT = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 2048;\n"
PLACE = "mov.b32 %r3, 0; shl.b32 %r4, %r10, 3; shl.b32 %r5, %r10, 10; add.u32 %r5, %r5, %r1;\n"
MULTICAST = (
    "@%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    ".multicast::cluster [%r5+1024], [%d2, {%r3, %r4}], [%r1], %h0;\n"
)
BOTH = "mov.b16 %h0, 3;\n"
READ = "shl.b32 %r6, %r0, 2; add.u32 %r6, %r6, %r1; ld.shared.b32 %r7, [%r6+1024];\n"


def shared_load(mask: str = BOTH, wait: str = WAIT, end: str = SYNC) -> str:
    """Each CTA brings half of a tile to both."""
    return f"{init(1)}{SYNC}{PLACE}{mask}{EXPECT}{MULTICAST}{wait}{READ}{end}"


def dropped(text: str) -> str:
    """Lines that are missing in the faulty text."""
    return "".join(f"{line} //! drop\n" for line in text.splitlines())


def changed(text: str, instead: str) -> str:
    """A line that is another one in the faulty text."""
    return f"{text.strip()} //! instead {instead.strip()}\n"


def two(text: str, order: str = "late", threads: int = 64) -> Case:
    """Two CTAs in a cluster."""
    return Case(text, threads=threads, order=order, cluster=2)


ARRIVING, WAITING = (f"{line}\n" for line in SYNC.splitlines())
NOTHING = "mov.b32 %r7, 0;\n"
OWN, OTHER = (f"shl.b32 %r8, 1, {rank}; cvt.u16.u32 %h0, %r8;" for rank in ("%r10", "%r11"))
FENCE = "fence.mbarrier_init.release.cluster;\n"

CASES = {
    "peer-ended": [
        # An arrival at a barrier of a CTA that waits for nothing.
        two(f"{init(1)}{SYNC}{ARRIVE}{dropped(SYNC)}"),
        two(f"{init(1)}{SYNC}{ARRIVE}{dropped(SYNC)}", order="random"),
        # Who waits for all arrivals knows of them, and may end; one arrival is not all.
        two(f"{init(2)}{SYNC}{ARRIVE}{ARRIVE}{changed(WAIT, NOTHING)}"),
        # A barrier of the cluster before the arrival says nothing of what comes after it.
        two(f"{init(1)}{SYNC}{dropped(ARRIVE)}{SYNC}{changed(NOTHING, ARRIVE)}", order="in order"),
        # What a multicast brings is over for those who wait for it.
        two(shared_load(wait=changed(WAIT, NOTHING), end="").replace(READ, "")),
    ],
    "cluster-rank": [
        two(
            f"{init(1)}{SYNC}{changed(NOTHING, 'mov.b32 %r11, 2;')}"
            f"mapa.shared::cluster.u32 %r12, %r1, %r11;\n{ARRIVE}{WAIT}{SYNC}"
        ),
        two(shared_load(mask=changed(BOTH, "mov.b16 %h0, 7;"))),
        two(shared_load(mask=changed(BOTH, "mov.b16 %h0, 0;"))),
        # An arrival that says .shared::cta at an address of the cluster.
        two(f"{init(1)}{SYNC}{changed(ARRIVE, ARRIVE.replace('::cluster', '::cta'))}{WAIT}{SYNC}"),
    ],
    "barrier-init-unseen": [
        # No barrier of the cluster between the initialisation and the others' use.
        two(
            f"{init(1)}{changed(ARRIVING, 'bar.sync 0;')}{dropped(WAITING)}{ARRIVE}{WAIT}{SYNC}",
            order="in order",
        ),
        two(
            f"{init(1)}{changed(ARRIVING, 'barrier.cluster.arrive.relaxed.aligned;')}{WAITING}"
            f"{ARRIVE}{WAIT}{SYNC}"
        ),
        two(shared_load().replace(FENCE, dropped(FENCE))),
    ],
    "byte-count": [
        two(shared_load(mask=changed(BOTH, OWN))),
        two(shared_load(mask=changed(BOTH, OTHER))),
        two(shared_load().replace(EXPECT, changed(EXPECT, EXPECT.replace("2048", "1024")))),
    ],
    "unfinished-work": [
        two(shared_load(wait=dropped(WAIT))),
        two(shared_load(wait=dropped(WAIT)), order="early"),
        two(shared_load(wait=dropped(WAIT)), order="random"),
    ],
    "data-race": [
        # The next shares are brought before the other CTA has read the ones before.
        two(
            f"{shared_load(end='')}{dropped(SYNC)}{EXPECT}{MULTICAST}"
            f"{WAIT.replace('0;', '1;')}{READ}{SYNC}",
            order=order,
        )
        for order in ("early", "late", "random")
    ],
    "barrier-count": [
        two(f"{SYNC}{dropped(ARRIVING)}{WAITING}"),
        two(f"{SYNC}{changed(NOTHING, ARRIVING)}{SYNC}"),
        two(f"{init(1)}{dropped(ARRIVING)}{WAITING}{SYNC}{ARRIVE}{WAIT}{SYNC}"),
    ],
    "deadlock": [
        two(f"{init(1)}{SYNC}{dropped(ARRIVE)}{WAIT}{SYNC}"),
        two(f"{init(2)}{SYNC}{ARRIVE}{dropped(ARRIVE)}{WAIT}{SYNC}"),
        # One CTA waits for the other at the barrier of the cluster, that one for an arrival.
        two(
            f"{init(1)}{SYNC}setp.eq.u32 %p2, %r10, 0;\n@%p2 bra $end;\n"
            f"{changed(NOTHING, WAIT)}$end:\n{SYNC}"
        ),
    ],
}
TABLE = [(kind, n) for kind, cases in CASES.items() for n in range(len(cases))]


@pytest.mark.parametrize(("kind", "number"), TABLE)
def test_the_fault_is_found_and_only_there(kind: str, number: int) -> None:
    check(kind, CASES[kind][number])


@pytest.mark.parametrize("order", ["in order", "early", "late", "random"])
def test_a_shared_load_is_sound(order: str) -> None:
    assert not list(two(shared_load(), order=order).clean())


def test_those_who_have_ended_are_not_waited_for() -> None:
    text = "setp.lt.u32 %p2, %r0, 32;\n@%p2 bra $end;\nbarrier.cluster.arrive;\n"
    assert not list(two(f"{text}barrier.cluster.wait;\n$end:").clean())


def test_a_grid_is_whole_clusters() -> None:
    case = two(SYNC)
    case.grid = 3
    with pytest.raises(DiagnosticError, match="no whole number of clusters"):
        case.clean()


PEER = "shl.b32 %r6, %r0, 2; add.u32 %r8, %r1, %r6; add.u32 %r9, %r12, %r6;\n"
PUT = "st.shared.b32 [%r8+1024], %r0;\n"
FETCH = "ld.shared::cluster.b32 %r7, [%r9+1024];\n"
SEND = "st.shared::cluster.b32 [%r9+1024], %r0;\n"
TAKE = "ld.shared.b32 %r7, [%r8+1024];\n"
VISITS = {
    "a read of what the other wrote": ("data-race", f"{PUT}{dropped(SYNC)}{FETCH}{SYNC}"),
    "a write over what the other reads": (
        "data-race", f"{PUT}{SYNC}{FETCH}{dropped(SYNC)}{PUT}{SYNC}",
    ),
    "a read of what came from the other": ("data-race", f"{SEND}{dropped(SYNC)}{TAKE}{SYNC}"),
    "a write over what came": ("data-race", f"{PUT}{TAKE}{dropped(SYNC)}{SEND}{SYNC}{TAKE}"),
    "nothing was written there": ("uninitialised-memory", f"{dropped(PUT)}{SYNC}{FETCH}{SYNC}"),
    "beyond the end": (
        "out-of-bounds",
        f"{PUT}{SYNC}{changed(FETCH, FETCH.replace('1024', '16380'))}{SYNC}",
    ),
    "an access after the end": ("peer-ended", f"{PUT}{SYNC}{FETCH}{dropped(SYNC)}"),
}  # fmt: skip


@pytest.mark.parametrize("order", ["in order", "random"])
@pytest.mark.parametrize("name", VISITS)
def test_memory_of_another_cta(name: str, order: str) -> None:
    kind, text = VISITS[name]
    check(kind, two(f"{RANKS}{PEER}{text}", order=order))


def test_only_loads_and_stores_go_there() -> None:
    with pytest.raises(DiagnosticError, match="only loads and stores"):
        two(f"{RANKS}{SYNC}red.shared::cluster.add.u32 [%r12], 1;\n{SYNC}").clean()
