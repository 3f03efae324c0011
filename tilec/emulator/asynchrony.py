"""Work that proceeds on its own: copies and products between their issue and the wait for them.

A piece of work is done in parts, in order, at a time that the scheduler chooses: between its issue
and the wait that covers it every moment is legal. Work of one queue (the products of a warpgroup,
the copies of a thread's group) is done in the order of issue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilec.emulator.program import Instruction
from tilec.emulator.shadow import Party
from tilec.emulator.table import Bind, Step


@dataclass(eq=False)
class Work:
    """One piece of work in flight."""

    kind: str
    at: Instruction
    cta: Any
    party: Party
    parts: list[Callable[[], None]]
    done: Callable[[], None] = lambda: None
    """Called once when all parts are done, such as the arrival of bytes at a barrier."""
    after: Work | None = None
    finished: bool = False
    warps: tuple[int, ...] = field(default_factory=tuple)
    written: int = 0
    """The bit that says that its writes to global memory are done."""
    bytes: int = 0
    """Of shared memory that a copy reads or writes."""

    def may_finish(self) -> bool:
        """Whether the work before it in its queue is done."""
        return self.after is None or self.after.finished

    def uses_shared(self) -> bool:
        """Whether shared memory is still read or written: a store's last part is global."""
        return len(self.parts) > 1 if self.kind == "tma-store" else bool(self.parts)

    def advance(self) -> None:
        """Do one part."""
        if self.after is not None and not self.after.finished:
            self.after.finish()
        if self.parts:
            self.parts.pop(0)()
        if not self.parts and not self.finished:
            self.finished = True
            self.after = None
            self.cta.machine.in_flight.remove(self)
            self.done()

    def finish(self) -> None:
        """Do all that is left, and first what has to come before."""
        while not self.finished:
            self.advance()


def issue(work: Work) -> Work:
    """Put work in flight; the scheduler may do it at once."""
    machine = work.cta.machine
    if machine.recorder is not None:
        machine.recorder.issued(work)
    machine.in_flight.append(work)
    machine.choice.issued(work)
    return work


@dataclass
class Groups:
    """Work of one issuer in groups: what is open, and the groups that were closed, oldest first."""

    open: list[Work] = field(default_factory=list)
    closed: list[list[Work]] = field(default_factory=list)
    last: Work | None = None

    def add(self, work: Work) -> None:
        """The work joins the open group."""
        self.open.append(work)
        self.last = work

    def commit(self) -> None:
        """Close the open group, which may be empty."""
        self.closed.append(self.open)
        self.open = []

    def wait(self, pending: int) -> list[Work]:
        """All but the newest ``pending`` groups, finished now; they leave the list."""
        count = max(0, len(self.closed) - pending)
        covered = [work for group in self.closed[:count] for work in group]
        self.closed = self.closed[count:]
        return covered


def commits(groups_of: Callable[[Any, int], Groups]) -> Callable[[Bind], Step]:
    """The builder of a row that closes each active warp's open group."""

    def build(bind: Bind) -> Step:
        def run(g: Any) -> None:
            for warp in g.active_warps():
                groups_of(g.cta, warp).commit()

        return run

    return build
