"""What to say when nothing can go on: who waits for whom, and what each barrier lacks.

A gang waits for a barrier; whoever has ever arrived there, or filled it, could let it go on. A ring
of such waits is named. Where a barrier shows why it is stuck (bytes that no transfer brings,
arrivals that stopped half way, a wait for a phase too far) that is a finding of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import networkx as nx

from tilec.emulator.instructions.control import barriers
from tilec.emulator.instructions.mbarriers import Mbarrier, mbarriers
from tilec.emulator.program import Instruction
from tilec.emulator.table import where


def report(machine: Any, gangs: list[Any]) -> None:
    """Record a deadlock of these gangs, and what its barriers show."""
    program = machine.program
    at = {g: program.instructions[min(g.pc, len(program.instructions) - 1)] for g in gangs}
    said = "; ".join(f"{where(g)} waits at line {at[g].line} for {g.waiting.what}" for g in gangs)
    ring = _ring(gangs, at)
    states = [line for cta in dict.fromkeys(g.cta for g in gangs) for line in _states(cta)]
    message = f"nothing can go on: {said}"
    if ring:
        message += f". In a ring: {ring}"
    machine.findings.add(
        "deadlock",
        at[gangs[0]],
        message,
        missing=" ".join(_lacks(g) for g in gangs if _lacks(g)),
        where=where(gangs[0]),
        details=(("barriers", tuple(states)),),
    )
    for g in gangs:
        kind, place = g.waiting.key
        if kind == "mbarrier" and place in mbarriers(g.cta):
            _explain(machine, g, at[g], mbarriers(g.cta)[place])
        if kind == "bar" and g.cta.gangs == [g]:
            _explain_named(machine, g, at[g], place)


def _could(g: Any) -> tuple[str, dict[int, Instruction]]:
    """The barrier that a gang waits for, and the warps that have ever come there, and where."""
    kind, place = g.waiting.key
    if kind == "mbarrier" and place in mbarriers(g.cta):
        barrier = mbarriers(g.cta)[place]
        return f"mbarrier {place}", {**barrier.arrivers, **barrier.fillers}
    if kind == "bar":
        return f"barrier {place}", barriers(g.cta)[place].users
    return "registers", {}


def _ring(gangs: list[Any], at: dict[Any, Instruction]) -> str:
    graph: nx.DiGraph[int] = nx.DiGraph()
    names = {}
    for number, g in enumerate(gangs):
        name, users = _could(g)
        names[number] = f"{where(g)} (line {at[g].line}) waits for {name}"
        for other_number, other in enumerate(gangs):
            if other is g:
                continue
            mine = set(other.warps.tolist())
            if other.cta is g.cta:
                comes = bool(mine & users.keys())
            else:
                comes = other.cta.cluster is g.cta.cluster and _reaches(g, other, mine)
            if comes:
                graph.add_edge(number, other_number)
    try:
        edges = nx.find_cycle(graph)
    except nx.NetworkXNoCycle:
        return ""
    return ", ".join(f"{names[a]}, where {where(gangs[b])} arrives" for a, b in edges)


def _reaches(g: Any, other: Any, warps: set[int]) -> bool:
    """Whether warps of another CTA have ever come to what a gang waits for."""
    kind, place = g.waiting.key
    if kind == "mbarrier" and place in mbarriers(g.cta):
        came = {warp for rank, warp in mbarriers(g.cta)[place].peers if rank == other.cta.rank}
        return bool(came & warps)
    return bool(kind == "cluster")


def _states(cta: Any) -> Iterable[str]:
    for barrier in sorted(mbarriers(cta).values(), key=lambda b: b.address):
        yield barrier.state()
    for number, named in barriers(cta).items():
        if named.came:
            yield f"barrier {number}: {named.count} of {named.expected} threads have come"


def _lines(users: dict[int, Instruction]) -> str:
    return ", ".join(str(n) for n in sorted({i.line for i in users.values()}))


def _lacks(g: Any) -> str:
    name, users = _could(g)
    if not users:
        return f"Nobody has ever come to {name}." if name != "registers" else ""
    return f"To {name} came before: warps {sorted(users)} at lines {_lines(users)}."


def _explain(machine: Any, g: Any, at: Instruction, barrier: Mbarrier) -> None:
    missed = [w for w in g.warps.tolist() if barrier.passed.get(w, (-1,))[0] < barrier.phase - 1]
    if missed and barrier.phase:
        machine.findings.add(
            "wrong-phase",
            at,
            f"warp {missed[0]} waits for phase {barrier.phase} of the mbarrier at "
            f"{barrier.address}, and phase {barrier.phase - 1} is over without its having waited "
            "for it",
            other=barrier.at,
            where=where(g),
        )
    if not barrier.pending:
        bytes_differ(machine, barrier, where(g))
    elif barrier.came:
        machine.findings.add(
            "arrival-count",
            at,
            f"{barrier.state()}; those of this phase came at lines "
            + ", ".join(str(n) for n in sorted({i.line for i in barrier.came})),
            other=barrier.at,
            missing=f"{barrier.pending} more arrivals a phase, or an mbarrier.init of fewer",
            where=where(g),
        )


def _explain_named(machine: Any, g: Any, at: Instruction, place: int) -> None:
    """The last gang of a CTA waits at a named barrier to which nobody else can come."""
    barrier = barriers(g.cta)[place]
    machine.findings.add(
        "barrier-count",
        at,
        f"barrier {place} expects {barrier.expected} threads and {barrier.count} have come; no "
        "other warp of the CTA is left",
        where=where(g),
    )


def bytes_differ(machine: Any, barrier: Mbarrier, place: str) -> None:
    """All arrivals of a phase have come and its bytes do not add up."""
    count = barrier.bytes
    verb = "announced and not delivered" if count > 0 else "delivered and not announced"
    fillers = _lines(barrier.fillers)
    machine.findings.add(
        "byte-count",
        barrier.announcer or barrier.at,
        f"phase {barrier.phase} of the mbarrier at {barrier.address} cannot end: {abs(count)} "
        f"bytes are {verb}" + (f"; transfers of lines {fillers} fill it" if fillers else ""),
        other=next(iter(barrier.fillers.values()), None),
        where=place,
    )


def at_exit(machine: Any, cta: Any) -> None:
    """A CTA has ended: bytes that were announced have come."""
    for barrier in mbarriers(cta).values():
        if barrier.bytes:
            bytes_differ(machine, barrier, f"CTA {cta.index}")
