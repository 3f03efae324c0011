"""Gangs: warps that run the same instructions together, their lanes a vector.

All warps of a CTA start as one gang. Where a branch takes warps apart the gang splits for good;
where it takes the lanes of one warp apart, a part waits on a stack until both meet again, as
hardware before independent thread scheduling did, which is one of the legal orders.

Registers are rows of banks. Each row has a state: whether all lanes have a value, or some, or
whether an unfinished product owns it; reads and writes look at it, so that a use before a wait is
found where it happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilec.emulator.program import BANKS, Program

if TYPE_CHECKING:
    from tilec.emulator.cta import Cta

Lanes = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

WARP = 32
EMPTY, FULL, PARTIAL, ACCUMULATING, MULTIPLIED = range(5)
"""State of a register: no value, a value in all lanes, in some; owned by a product in flight as its
accumulator (neither read nor written), or as its operand (not written)."""

_KINDS = {"pred": np.bool_, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64}
VIEWS: dict[str, tuple[str, Any]] = {
    "pred": ("pred", np.bool_),
    "b16": ("b16", np.uint16), "u16": ("b16", np.uint16), "s16": ("b16", np.int16),
    "f16": ("b16", np.float16), "bf16": ("b16", np.uint16),
    "b8": ("b16", np.uint16), "u8": ("b16", np.uint16), "s8": ("b16", np.int16),
    "b32": ("b32", np.uint32), "u32": ("b32", np.uint32), "s32": ("b32", np.int32),
    "f32": ("b32", np.float32), "f16x2": ("b32", np.uint32), "bf16x2": ("b32", np.uint32),
    "b64": ("b64", np.uint64), "u64": ("b64", np.uint64), "s64": ("b64", np.int64),
    "f64": ("b64", np.float64),
}  # fmt: skip
"""How instructions of a type see a bank."""


@dataclass
class Reconvergence:
    """A part of the lanes that waits, and where all meet."""

    mask: Mask
    pc: int
    meet: int
    rejoined: Mask | None


@dataclass(eq=False)
class Gang:
    """Warps at one place of the program."""

    cta: Cta
    warps: npt.NDArray[np.int64]
    """Numbers of the warps in their CTA."""
    banks: dict[str, Lanes]
    states: dict[str, bytearray]
    pc: int = 0
    mask: Mask | None = None
    """Active lanes; None for all."""
    valid: dict[tuple[str, int], Mask] = field(default_factory=dict)
    """Lanes with a value, of rows in state PARTIAL."""
    owners: dict[tuple[str, int], Any] = field(default_factory=dict)
    """The product in flight that owns a row."""
    fresh: bytearray = field(default_factory=bytearray)
    """Registers of products that something else touched since the last wgmma.fence."""
    fenced: bool = False
    """Whether a wgmma.fence came at all."""
    stack: list[Reconvergence] = field(default_factory=list)
    waiting: Any = None
    """Why the gang does not go on: a `Block`, or None."""
    steps: int = 0

    def __post_init__(self) -> None:
        """Make the typed views."""
        self.lanes = len(self.warps) * WARP
        self.fresh = self.fresh or bytearray(len(self.banks["b32"]))
        self._see()

    def _see(self) -> None:
        self.views = {
            name: self.banks[bank] if bank == "pred" else self.banks[bank].view(kind)
            for name, (bank, kind) in VIEWS.items()
        }
        self.tid = (self.warps[:, None] * WARP + np.arange(WARP)).reshape(-1)

    @staticmethod
    def start(cta: Cta, program: Program, warps: int) -> Gang:
        """All warps of a CTA at the first instruction, with registers that hold nothing."""
        lanes = warps * WARP
        banks: dict[str, Lanes] = {
            b: np.zeros((program.registers[b], lanes), k) for b, k in _KINDS.items()
        }
        states = {b: bytearray(program.registers[b]) for b in BANKS}
        return Gang(cta, np.arange(warps), banks, states)

    def part(self, keep: npt.NDArray[np.bool_]) -> Gang:
        """The gang of some of the warps; ``keep`` has one truth a warp."""
        lanes = np.repeat(keep, WARP)
        made = Gang(
            self.cta,
            self.warps[keep],
            {b: np.ascontiguousarray(v[:, lanes]) for b, v in self.banks.items()},
            {b: bytearray(v) for b, v in self.states.items()},
            self.pc,
            None if self.mask is None else self.mask[lanes],
            {k: v[lanes] for k, v in self.valid.items()},
            dict(self.owners),
            stack=[
                Reconvergence(
                    r.mask[lanes],
                    r.pc,
                    r.meet,
                    None if r.rejoined is None else r.rejoined[lanes],
                )
                for r in self.stack
            ],
        )
        made.steps, made.fresh = self.steps, bytearray(self.fresh)
        made.fenced = self.fenced
        return made

    def active(self) -> Mask:
        """One truth a lane."""
        return np.ones(self.lanes, np.bool_) if self.mask is None else self.mask

    # --- divergence --------------------------------------------------------------------------

    def diverge(self, taken: Mask, target: int, meet: int) -> None:
        """Go on where a branch leads; warps that disagree become gangs of the CTA, for good."""
        here = self.active().reshape(-1, WARP)
        jumping = (taken & self.active()).reshape(-1, WARP)
        some, every = jumping.any(axis=1), (jumping == here).all(axis=1)
        ways = np.where(every & some, 1, np.where(some, 2, 0))
        alive = here.any(axis=1)
        kinds = sorted(set(ways[alive].tolist()))
        for way in kinds[1:]:
            keep = (ways == way) & alive
            other = self.part(keep)
            other._go(way, taken[np.repeat(keep, WARP)], target, meet)
            self.cta.gangs.append(other)
        if len(kinds) > 1:
            keep = ~alive | (ways == kinds[0])
            rest = self.part(keep)
            self._become(rest)
            taken = taken[np.repeat(keep, WARP)]
        self._go(kinds[0] if kinds else 0, taken, target, meet)

    def _go(self, way: int, taken: Mask, target: int, meet: int) -> None:
        """0: all active lanes fall through, 1: all jump, 2: some lanes of each warp do."""
        if way == 1:
            self.pc = target
            return
        if way == 2:
            active = self.active()
            self.stack.append(Reconvergence(active & taken, target, meet, self.mask))
            self.mask = active & ~taken
        self.pc += 1

    def by_warp(self, offsets: Lanes, lanes: Mask) -> Iterator[tuple[int, int, Lanes]]:
        """Of each warp with chosen lanes: its place in the gang, its number, its lanes' offsets."""
        for place, warp in enumerate(self.warps.tolist()):
            mine = slice(WARP * place, WARP * place + WARP)
            picked = offsets[mine][lanes[mine]]
            if len(picked):
                yield place, warp, picked

    def active_warps(self) -> list[int]:
        """Numbers of the warps with active lanes."""
        found: list[int] = self.warps[self.active().reshape(-1, WARP).any(axis=1)].tolist()
        return found

    def split(self, keys: Lanes) -> None:
        """Keep the warps whose key is the first one's; others go on at this place by themselves."""
        chosen = keys.reshape(-1, WARP)
        here = self.active().reshape(-1, WARP)
        of_warp = chosen[np.arange(len(chosen)), here.argmax(axis=1)]
        alive = here.any(axis=1)
        distinct = list(dict.fromkeys(of_warp[alive].tolist()))
        for key in distinct[1:]:
            self.cta.gangs.append(self.part((of_warp == key) & alive))
        if len(distinct) > 1:
            self._become(self.part((of_warp == distinct[0]) | ~alive))

    def _become(self, other: Gang) -> None:
        for name in (
            "warps",
            "banks",
            "states",
            "mask",
            "valid",
            "owners",
            "stack",
            "pc",
            "fresh",
            "fenced",
        ):
            setattr(self, name, getattr(other, name))
        self.lanes = len(self.warps) * WARP
        self._see()

    def meet(self) -> None:
        """Switch to the part that waits when this one is where all meet, or join."""
        while self.stack and self.pc == self.stack[-1].meet:
            top = self.stack[-1]
            if top.pc == top.meet:
                self.mask = top.rejoined
                self.stack.pop()
                continue
            self.mask, self.pc = top.mask, top.pc
            top.pc = top.meet
