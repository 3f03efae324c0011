"""Registers that an unfinished product still uses, and who touches them.

Idea: groups in flight are followed forwards by the names that the registers have after sharing, so
that a copy, a loop's back edge and a carried flight all look alike. Reading or writing an
accumulator in flight, or writing or copying A's registers in flight, makes ptxas run the products
one by one (C7513 to C7515); it is refused here, where the op is known.

Never: changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest

from tilec.backend_ptx.liveness import Program
from tilec.backend_ptx.steps import bodies, walk
from tilec.ir.core import Op, Region
from tilec.ir.levels import ptx

Shared = Callable[[Iterable[int]], int]

Group = tuple[int, int]
"""Accumulators and A registers that one group of products uses."""

State = tuple[Group, ...]
"""Groups in flight, the one still open last."""

_NONE: State = ((0, 0),)

_DEEPEST = 9
"""``wait_group`` takes 0 to 7, so more groups than that are never told apart."""


def _either(a: State, b: State) -> State:
    pairs = zip_longest(reversed(a), reversed(b), fillvalue=(0, 0))
    return tuple((x[0] | y[0], x[1] | y[1]) for x, y in pairs)[::-1]


def check_flights(program: Program, shared: Shared, error: Callable[[str], Exception]) -> None:
    """Raise ``error`` at the first op that touches registers in flight.

    ``shared`` gives the set of all registers that share with one of some registers.
    """
    if any(isinstance(op, ptx.Wgmma) for op in walk(program.kernel.body)):
        _Flights(program, shared, error).region(program.kernel.body, _NONE)


class _Flights:
    def __init__(self, program: Program, shared: Shared, error: Callable[[str], Exception]) -> None:
        self.program, self.shared, self.error = program, shared, error

    def region(self, region: Region, state: State) -> State:
        for op in region.ops:
            if isinstance(op, ptx.Loop):
                entry, end = state, self.region(op.body, state)
                while (joined := _either(entry, end)) != entry and len(joined) <= _DEEPEST:
                    entry, end = joined, self.region(op.body, joined)
                state = end
            elif isinstance(op, ptx.If):
                ends = [self.region(body, state) for body in bodies(op)]
                state = _either(ends[0], ends[1])
            elif not op.is_terminator:
                state = self.straight(op, state)
        return state

    def straight(self, op: Op, state: State) -> State:
        if isinstance(op, ptx.WgmmaWait):
            closed = state[:-1]
            return (*closed[len(closed) - min(op.pending, len(closed)) :], state[-1])
        if isinstance(op, ptx.Fence) and op.kind == "wgmma_commit":
            return (*state, (0, 0))
        if state == _NONE and not isinstance(op, ptx.Wgmma):
            return state
        self.touch(op, state)
        if isinstance(op, ptx.Wgmma):
            # A descriptor is read when the product is issued; A's registers until it is done.
            a = [] if op.a.type.kind == "b64" else self.program.at.owned(op.a)
            outs = self.program.at.owned(op.out)
            *closed_groups, (written, read) = state
            return (*closed_groups, (written | self.shared(outs), read | self.shared(a)))
        return state

    def touch(self, op: Op, state: State) -> None:
        flying, feeding = 0, 0
        for written, read in state:
            flying, feeding = flying | written, feeding | read
        for reads, writes, _ in self.program.touched(op):
            what = ""
            if writes & feeding or (isinstance(op, ptx.Copy) and reads & feeding):
                what = "A registers"
            elif not isinstance(op, ptx.Wgmma) and (reads | writes) & flying:
                what = "an accumulator"
            if what:
                raise self.error(f"{what} in flight would be touched before the wait by {op!r}")
