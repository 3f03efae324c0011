"""What is wrong with a run: one record a fault, with both sides of it and what is missing.

A finding names its class (a row of ``CLASSES``; ``docs/emulator.md`` lists them), the PTX line, the
line of the program it came from, the other party where there is one, and in words what would have
made it right. The same fault at the same lines is recorded once and counted.

Advice, such as bank conflicts, is kept apart: it is no fault and fails nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilec.emulator.program import Instruction, Program

FAULT, ADVICE = "fault", "advice"


@dataclass(frozen=True)
class FindingClass:
    """A kind of fault: what it means, and what is missing where the finding says no more."""

    name: str
    sentence: str
    missing: str
    severity: str = FAULT


CLASSES: dict[str, FindingClass] = {
    row.name: row
    for row in (
        FindingClass(
            "data-race",
            "Two threads touch the same memory, one of them writes, and nothing orders the two.",
            "a barrier, or a release and an acquire, between the two",
        ),
        FindingClass(
            "unfinished-work",
            "Memory is touched that a transfer or a product in flight still reads or writes.",
            "a wait for the work, and an order from the wait to here",
        ),
        FindingClass(
            "wrong-phase",
            "Data of one phase of an mbarrier are used after a wait for an earlier phase, or a "
            "wait names the phase after the one that is over.",
            "a wait for the phase that the data belong to",
        ),
        FindingClass(
            "missing-proxy-fence",
            "TMA or wgmma reads what threads wrote, with no proxy fence between.",
            "a fence.proxy.async between the write and the async operation, before the barrier",
        ),
        FindingClass(
            "missing-wgmma-fence",
            "A product uses registers that something else touched after the last wgmma.fence, or "
            "no fence came before the first product.",
            "a wgmma.fence between the access and the product",
        ),
        FindingClass(
            "accumulator-in-flight",
            "An accumulator is read before the wait for its product.",
            "a wgmma.wait_group that covers the product, before this",
        ),
        FindingClass(
            "operand-in-flight",
            "A register that a product in flight reads or writes is overwritten.",
            "a wgmma.wait_group that covers the product, before this",
        ),
        FindingClass(
            "unfinished-at-exit",
            "A CTA ends while work in flight uses its shared memory.",
            "a wait for the work before the end",
        ),
        FindingClass(
            "uninitialised-barrier",
            "An mbarrier is used where none was initialised.",
            "an mbarrier.init that comes before",
        ),
        FindingClass(
            "barrier-init-unseen",
            "An mbarrier is used by a warp, or signalled by TMA, that its initialisation is not "
            "ordered before.",
            "a fence.mbarrier_init after the initialisation, and a barrier before the use",
        ),
        FindingClass(
            "cluster-rank",
            "An address or a mask names a CTA that the cluster does not have, or memory of another "
            "CTA is used where only the own may be.",
            "ranks below %cluster_nctarank, and .shared::cluster where they are used",
        ),
        FindingClass(
            "peer-ended",
            "A CTA ends while others of its cluster may still reach into its shared memory.",
            "a barrier.cluster.arrive and wait by all threads between the access and the end",
        ),
        FindingClass(
            "barrier-in-use",
            "An mbarrier is initialised again while it is in use.",
            "an initialisation once, or an mbarrier.inval before the next",
        ),
        FindingClass(
            "arrival-count",
            "More or fewer arrivals come to an mbarrier than it expects in a phase.",
            "as many arrivals a phase as the mbarrier.init says",
        ),
        FindingClass(
            "byte-count",
            "The bytes announced to an mbarrier are not those that transfers deliver.",
            "an expect_tx of just the bytes of the transfers of the phase",
        ),
        FindingClass(
            "barrier-count",
            "A named barrier is used with different numbers of threads, or with more than come.",
            "one number of threads at all instructions of the barrier, a multiple of 32",
        ),
        FindingClass(
            "deadlock",
            "No warp can go on and no work in flight can let one.",
            "an arrival, or bytes, at one of the barriers that are waited for",
        ),
        FindingClass(
            "divergent-aligned",
            "An instruction for whole warps is reached by some lanes, or its lanes disagree on "
            "what must be the same.",
            "all lanes of the warp at this instruction, with the same operands",
        ),
        FindingClass(
            "uninitialised-register",
            "A register is read that was never written.",
            "a write on every way to this instruction",
        ),
        FindingClass(
            "uninitialised-memory",
            "Memory is read that nothing has written.",
            "a write, and an order after it, on every way here",
        ),
        FindingClass(
            "out-of-bounds",
            "An access leaves the shared memory of its CTA, or lies in no array.",
            "a predicate that keeps the access inside",
        ),
        FindingClass(
            "misaligned",
            "An address is no multiple of what its access needs.",
            "an address that is a multiple of the access",
        ),
        FindingClass(
            "descriptor",
            "A matrix descriptor sets reserved bits, begins beside its swizzle's pattern, or "
            "reaches beyond shared memory.",
            "a descriptor as PTX ISA 9.7.15.5.1.2.2 has it",
        ),
        FindingClass(
            "tensor-map",
            "A tensor map is missing, breaks a rule of cuTensorMapEncodeTiled, or is used with "
            "another number of coordinates.",
            "a tensor map that the driver would accept",
        ),
        FindingClass(
            "register-count",
            "A role needs more registers than setmaxnreg leaves it, or setmaxnreg asks for what "
            "the CTA does not have.",
            "a setmaxnreg that covers the values that live at once",
        ),
        FindingClass("trap", "A trap was reached.", "whatever the program checked"),
        FindingClass(
            "bank-conflict",
            "Lanes of one access ask the same bank of shared memory for different words.",
            "a layout that spreads the lanes over the 32 banks",
            ADVICE,
        ),
        FindingClass(
            "uncoalesced",
            "An access of a warp to global memory touches many more sectors of 32 bytes than it "
            "has bytes for.",
            "neighbouring lanes at neighbouring addresses",
            ADVICE,
        ),
    )
}
"""All classes, in the order of the manual."""


def classes_table() -> str:
    """The classes as a table of Markdown."""
    rows = [f"| `{c.name}` | {c.severity} | {c.sentence} | {c.missing} |" for c in CLASSES.values()]
    return "\n".join(
        ["| class | | what it means | what is missing |", "| --- | --- | --- | --- |", *rows]
    )


@dataclass
class Finding:
    """One fault of the program that was run."""

    kind: str
    message: str
    line: int
    """The PTX line of the instruction at which it showed."""
    source: tuple[str, int] | None = None
    """File and line of the program that the PTX came from."""
    other_line: int | None = None
    other_source: tuple[str, int] | None = None
    missing: str = ""
    """What would have made it right."""
    where: str = ""
    """CTA, warps and lanes."""
    count: int = 1
    details: tuple[tuple[str, Any], ...] = ()

    @property
    def severity(self) -> str:
        """Whether it is a fault or advice."""
        return CLASSES[self.kind].severity


@dataclass
class Findings:
    """All faults of a run, each once."""

    program: Program
    found: dict[tuple[Any, ...], Finding] = field(default_factory=dict)
    advice: dict[tuple[Any, ...], Finding] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        at: Instruction,
        message: str,
        *,
        other: Instruction | None = None,
        missing: str = "",
        where: str = "",
        details: tuple[tuple[str, Any], ...] = (),
    ) -> None:
        """Record a fault or advice, or count it again."""
        kept = self.found if CLASSES[kind].severity == FAULT else self.advice
        key = (kind, at.line, other.line if other else None)
        if key in kept:
            kept[key].count += 1
            return
        kept[key] = Finding(
            kind,
            message,
            at.line,
            self.place(at),
            other.line if other else None,
            self.place(other) if other else None,
            missing or CLASSES[kind].missing,
            where,
            details=details,
        )

    def place(self, at: Instruction) -> tuple[str, int] | None:
        """The source file and line of an instruction."""
        if at.source is None:
            return None
        return self.program.files.get(at.source.file, f"file {at.source.file}"), at.source.line

    def __iter__(self) -> Any:
        """The faults in the order in which they showed."""
        return iter(self.found.values())

    def __len__(self) -> int:
        """How many different faults."""
        return len(self.found)
