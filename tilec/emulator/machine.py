"""The machine: runs the CTAs of a grid, a gang at a time, and lets the scheduler choose.

A gang runs until it waits or its quantum ends. When no gang can go on and nothing is in flight that
could let one, the run is a deadlock, which is reported with what every gang waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np

from tilec.diagnostics import Diagnostic, DiagnosticError
from tilec.emulator.arrays import GlobalRaces
from tilec.emulator.clusters import Cluster, check_visits
from tilec.emulator.conflicts import Advice
from tilec.emulator.cta import Cta
from tilec.emulator.deadlock import at_exit, report
from tilec.emulator.findings import Findings
from tilec.emulator.gang import WARP, Gang, Lanes
from tilec.emulator.liveness import registers_of, roles
from tilec.emulator.memory import PARAMETERS, Global
from tilec.emulator.parse import line_span
from tilec.emulator.program import Instruction, Program
from tilec.emulator.schedule import Choice
from tilec.emulator.shadow import Races
from tilec.emulator.table import EXIT, Bind, Block, Read, Result, Step, find, load_rows
from tilec.emulator.whole_warps import (
    names_members,
    needs_whole_warps,
    with_members,
    with_whole_warps,
)
from tilec.source import SourceFile

SHARED_WINDOW = 0x0
"""Shared addresses are offsets from here, as instructions with ``.shared`` take them."""


class Deadlock(Exception):
    """No gang can go on; the findings say why."""


class StepLimit(DiagnosticError):
    """The run took more instructions than it was given."""


DEFAULT_LIMIT = 50_000_000
"""Instructions of gangs that a launch may take: more than minutes of work."""


@dataclass
class Machine:
    """A program, its memory and its launch."""

    program: Program
    source: SourceFile
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int = 0
    memory: Global = field(default_factory=Global)
    parameters: bytearray = field(default_factory=bytearray)
    maps: dict[int, Any] = field(default_factory=dict)
    """Tensor maps by the address that holds them."""
    choice: Choice = field(default_factory=Choice)
    limit: int = DEFAULT_LIMIT
    steps_taken: int = 0
    advise: bool = False
    """Whether to tell of slow accesses as well."""
    parts: dict[str, Any] = field(default_factory=dict)
    """State of families of instructions that belongs to the whole run."""
    recorder: Any = None
    """Who keeps what happens for a report (``report.record``), if there is to be one."""

    def __post_init__(self) -> None:
        """Bind every instruction once."""
        load_rows()
        self.findings = Findings(self.program)
        self.executed = np.zeros(len(self.program.instructions) + 1, np.int64)
        self.watchers: list[Any] = [Races(), GlobalRaces()]
        """Who is told of each access by threads: race detection, conflicts, traffic."""
        if self.recorder is not None:
            self.watchers.append(self.recorder)
        self.in_flight: list[Any] = []
        """Work that proceeds on its own: copies and products; see `asynchrony`."""
        self.meets = _meeting_points(self.program)
        self.product_rows = {
            r.row
            for at in self.program.instructions
            if at.parts[:2] == ("wgmma", "mma_async")
            for operand in at.operands
            for r in registers_of(operand)
            if r.bank == "b32"
        }
        self.steps = [self._bind(at, n) for n, at in enumerate(self.program.instructions)]

    def keep(self, name: str, make: Callable[[Machine], Any]) -> Any:
        """The state of one family of instructions, made on first use."""
        if name not in self.parts:
            self.parts[name] = make(self)
        return self.parts[name]

    def _bind(self, at: Instruction, number: int) -> Step:
        found = find(at)
        bind = Bind(self, self.program, self.source, at, found, number)  # type: ignore[arg-type]
        if found is None:
            raise bind.fail("this instruction is beyond the emulator")
        step = found.build(bind)
        if needs_whole_warps(at):
            step = with_whole_warps(step, at)
        if names_members(at):
            step = with_members(step, at, bind.read(at.operands[-1], "u32"))
        if at.guard is not None and at.parts[0] != "bra":
            step = _guarded(step, bind.read(at.guard, "pred"), at.guard_negated)
        return step if self.recorder is None else self.recorder.wrapped(step, at, number)

    # --- what instructions ask of the launch ---------------------------------------------------

    def special(self, name: str, kind: Any) -> Read:
        """A reader of a special register."""
        base, _, axis = name[1:].partition(".")
        index = "xyz".find(axis) if axis else 0
        bx, by, _ = self.block
        sizes = {"ntid": self.block, "nctaid": self.grid}
        if base == "tid":
            div = (1, bx, bx * by)[index]
            most = self.block[index]
            return lambda g: ((g.tid // div) % most).astype(kind)
        if base in sizes:
            constant = np.asarray(sizes[base][index]).astype(kind)[()]
            return lambda g: constant
        if base == "ctaid":
            return lambda g: np.asarray(g.cta.index[index]).astype(kind)[()]
        if base in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"):
            by = self.program.cluster[index]
            if base == "clusterid":
                return lambda g: np.asarray(g.cta.index[index] // by).astype(kind)[()]
            if base == "cluster_ctaid":
                return lambda g: np.asarray(g.cta.index[index] % by).astype(kind)[()]
            size = np.asarray(by if base == "cluster_nctaid" else self.grid[index] // by)
            fixed = size.astype(kind)[()]
            return lambda g: fixed
        if base == "cluster_ctarank":
            return lambda g: np.asarray(g.cta.rank).astype(kind)[()]
        if base == "cluster_nctarank":
            return lambda g: np.asarray(len(g.cta.cluster.ctas)).astype(kind)[()]
        if base == "laneid":
            return lambda g: (g.tid % WARP).astype(kind)
        if base == "warpid":
            return lambda g: (g.tid // WARP).astype(kind)
        if base in ("clock", "clock64", "globaltimer"):
            return lambda g: np.asarray(g.steps).astype(kind)[()]
        if base == "activemask":
            return _active_mask
        if base.startswith("lanemask_"):
            return _lane_mask(base.removeprefix("lanemask_"))
        if base == "dynamic_smem_size":
            size = np.asarray(self.dynamic_shared).astype(kind)[()]
            return lambda g: size
        raise KeyError(name)

    def address_of(self, bind: Bind, name: str) -> int:
        """The address of a variable in shared memory or of a parameter."""
        if name in self.program.variables:
            variable = self.program.variables[name]
            static = self.program.static_shared
            aligned = -(-static // variable.align) * variable.align
            return SHARED_WINDOW + (aligned if variable.dynamic else variable.offset)
        for parameter in self.program.parameters:
            if parameter.name == name:
                return PARAMETERS + parameter.offset
        raise bind.fail(f"nothing is called {name}")

    # --- running -------------------------------------------------------------------------------

    def run(self) -> Findings:
        """Run all CTAs; what was wrong is in the findings."""
        self._check_roles()
        if self.advise:
            self.watchers.append(Advice())
        with np.errstate(all="ignore"):  # what NumPy warns of is what the instructions define
            for indices in self.choice.order(list(self._clusters())):
                try:
                    self.run_ctas(self.start_cluster(indices))
                except Deadlock:
                    break
        if self.recorder is not None:
            self.recorder.finish()
        return self.findings

    def _clusters(self) -> Iterator[list[tuple[int, int, int]]]:
        """The CTAs of each cluster, by rank."""
        shape = self.program.cluster
        if any(n % by for n, by in zip(self.grid, shape, strict=True)):
            raise DiagnosticError(
                Diagnostic(
                    "invalid-launch",
                    f"a grid of {self.grid} CTAs is no whole number of clusters of {shape}",
                    help="launch a multiple of the cluster along each axis",
                )
            )
        x, y, z = shape
        for first in _indices((self.grid[0] // x, self.grid[1] // y, self.grid[2] // z)):
            yield [
                (first[0] * x + i, first[1] * y + j, first[2] * z + k)
                for i, j, k in _indices(shape)
            ]

    def start_cluster(self, indices: list[tuple[int, int, int]]) -> list[Cta]:
        """The CTAs of a cluster at their first instruction."""
        cluster = Cluster(self.program.cluster)
        for rank, index in enumerate(indices):
            cta = self.start(index)
            cta.cluster, cta.rank = cluster, rank
            cluster.ctas.append(cta)
        return cluster.ctas

    def start(self, index: tuple[int, int, int]) -> Cta:
        """A CTA at its first instruction."""
        size = self.program.static_shared + self.dynamic_shared + 1024
        threads = int(np.prod(self.block))
        cta = Cta(index, self, np.zeros(size, np.uint8), np.zeros(size, np.bool_), threads)
        gang = Gang.start(cta, self.program, cta.warps)
        if threads % WARP:
            gang.mask = gang.tid < threads
        cta.gangs.append(gang)
        cta.cluster = Cluster((1, 1, 1), [cta])
        return cta

    def run_ctas(self, ctas: list[Cta]) -> None:
        """Run CTAs that are resident together until all have ended."""
        while any(cta.gangs for cta in ctas):
            ready = [g for cta in ctas for g in cta.gangs if self._ready(g)]
            gang = self.choice.gang(ready)
            if gang is not None:
                self._run_gang(gang)
                self.choice.settle(self.in_flight)
            elif not self.choice.force(self.in_flight):
                report(self, [g for cta in ctas for g in cta.gangs])
                raise Deadlock
        for work in list(self.in_flight):
            self._outlives(work)
        for cta in ctas:
            at_exit(self, cta)

    def _outlives(self, work: Any) -> None:
        """Writes to global memory may end after their CTA; what still uses its memory may not."""
        if not work.finished and work.uses_shared():
            self.findings.add(
                "unfinished-at-exit",
                work.at,
                f"{work.party.what} still uses shared memory when its CTA has ended",
                missing=work.party.waits,
                where=f"CTA {work.cta.index}",
            )
        work.finish()

    @staticmethod
    def _ready(gang: Gang) -> bool:
        return gang.waiting is None or gang.waiting.ready()

    def _run_gang(self, g: Gang) -> None:
        """Run until the gang waits, ends, or its quantum is over."""
        if self.steps_taken > self.limit:
            raise self._too_many_steps(g)
        g.waiting = None
        steps, executed = self.steps, self.executed
        for _ in range(min(self.choice.quantum(g), self.limit - self.steps_taken + 1)):
            if g.stack and g.pc == g.stack[-1].meet:
                g.meet()
            if g.pc >= len(steps):
                self._exit(g)
                return
            executed[g.pc] += 1
            g.steps += 1
            self.steps_taken += 1
            result: Result = steps[g.pc](g)
            if result is None:
                g.pc += 1
            elif isinstance(result, Block):
                g.waiting = result
                return
            elif result == EXIT:
                if self._exit(g):
                    return
            else:
                g.pc = result

    def _too_many_steps(self, g: Gang) -> StepLimit:
        at = self.program.instructions[min(g.pc, len(self.program.instructions) - 1)]
        return StepLimit(
            Diagnostic(
                "step-limit",
                f"{self.program.name} has not ended after {self.limit} instructions",
                [(line_span(self.source, at.line), f"CTA {g.cta.index} is here")],
                help="give more of them, or emulate smaller sizes",
            )
        )

    def _exit(self, g: Gang) -> bool:
        """The active lanes end; True when the gang has none left."""
        g.cta.exited += int(g.active().sum())
        while g.stack:
            top = g.stack.pop()
            if top.rejoined is not None and not top.mask.any():
                continue
            ended = g.active()
            g.mask, g.pc = top.mask & ~ended, top.pc
            if g.mask.any():
                return False
        g.cta.gangs.remove(g)
        g.cta.cluster.settle()
        if g.cta.finished:
            check_visits(g.cta)
        return True

    def _check_roles(self) -> None:
        """Static: what lives at once in each role."""
        for role in roles(self.program):
            if role.needed > role.allowed:
                self.findings.add(
                    "register-count",
                    role.begin or role.peak,
                    f"{role.needed} registers hold values at line {role.peak.line}, and the role "
                    f"has {role.allowed}",
                    other=role.peak,
                )


def _guarded(step: Step, guard: Read, negated: bool) -> Step:
    """The step for the active lanes whose guard holds."""

    def run(g: Gang) -> Result:
        chosen = guard(g)
        chosen = ~chosen if negated else chosen
        if g.mask is not None:
            chosen = chosen & g.mask
        if not chosen.any():
            return None
        before = g.mask
        g.mask = None if chosen.all() else chosen
        result = step(g)
        if result == EXIT:
            g.mask = chosen
            return EXIT
        g.mask = before
        return result

    return run


def _active_mask(g: Gang) -> Lanes:
    bits = (g.active().reshape(-1, WARP) << np.arange(WARP)).sum(axis=1).astype(np.uint32)
    return np.repeat(bits, WARP)


def _lane_mask(relation: str) -> Read:
    lane, other = np.arange(WARP)[:, None], np.arange(WARP)[None, :]
    holds = {
        "eq": other == lane,
        "le": other <= lane,
        "lt": other < lane,
        "ge": other >= lane,
        "gt": other > lane,
    }[relation]
    bits = (holds.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(axis=1)
    masks = bits.astype(np.uint32)
    return lambda g: masks[g.tid % WARP]


def _indices(grid: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                yield x, y, z


def _meeting_points(program: Program) -> Mapping[int, int]:
    """For each branch, the first instruction that every way from it to the end runs through."""
    end = len(program.instructions)
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(end + 1))
    branches = []
    for number, at in enumerate(program.instructions):
        following = {number + 1}
        if at.parts[0] == "bra":
            target = program.labels[at.operands[0].name]  # type: ignore[union-attr]
            following = {target} if at.guard is None else {target, number + 1}
            branches.append(number)
        elif at.parts[0] in ("ret", "exit", "trap") and at.guard is None:
            following = {end}
        graph.add_edges_from((after, number) for after in following)
    reachable = nx.immediate_dominators(graph, end)
    return {number: reachable.get(number, end) for number in branches}
