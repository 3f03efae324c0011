"""Copies everywhere: a kernel made ready for emission without judging which copies it needs.

Idea: ``place_copies`` decides where tied values may share registers. To run a kernel as it is
*before* that decision, every tie of a loop or branch gets copies of its own here, two in a row, so
that nothing is shared that could be overwritten: all values that a region hands on are first
copied aside, and then to where they are wanted. Registers of products in flight must not be
copied; their ties are left to ``place_copies``, as are the few that remain.

Never: what is compiled. It is slow code, for comparing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tilec.backend_ptx import registers
from tilec.backend_ptx.steps import bodies, walk
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.levels import ptx
from tilec.ir.rewrite import clone_kernel


def with_copies(kernel: Kernel) -> Kernel:
    """A copy of a kernel at level ``ptx`` that can be emitted."""
    made = clone_kernel(kernel)
    copy_ties(made)
    try:
        registers.place_copies(made)
    except registers.PlacementError:  # a copy here would disturb a product in flight
        made = clone_kernel(kernel)
        registers.place_copies(made)
    return made


def copy_ties(kernel: Kernel) -> None:
    """Give every tie of loops and branches its own copies."""
    flying = in_flight(kernel)
    places: dict[int, list[registers.Tie]] = defaultdict(list)
    anchors: dict[int, tuple[Region, Op]] = {}
    for tie in registers.ties(kernel.body):
        if tie.order > 0 and tie.source not in flying and tie.target not in flying:
            places[id(tie.anchor)].append(tie)
            anchors[id(tie.anchor)] = (tie.region, tie.anchor)
    for key, found in places.items():
        region, anchor = anchors[key]
        aside = [ptx.Copy(tie.source) for tie in found]
        there = [ptx.Copy(copy.out) for copy in aside]
        for tie, copy in zip(found, there, strict=True):
            registers.set_operand(tie.user, tie.position, copy.out)
        at = region.ops.index(anchor)
        region.ops[at:at] = [*aside, *there]


def in_flight(kernel: Kernel) -> set[Value[Any]]:
    """Values whose registers an unfinished product may use: results, operands, who carries them."""
    found: set[Value[Any]] = set()
    pairs: list[tuple[Value[Any], Value[Any]]] = []
    for op in walk(kernel.body):
        if isinstance(op, ptx.Wgmma):
            found.update((op.out, op.a))
        elif isinstance(op, ptx.WgmmaWait):
            found.update(op.flights)
        elif isinstance(op, ptx.Loop):
            handed = op.body.ops[-1].operands[1:]
            for row in zip(op.init, op.body.args, handed, op.finals, strict=True):
                pairs += [(row[0], one) for one in row[1:]]
        elif isinstance(op, ptx.If):
            for body in bodies(op):
                pairs += zip(body.ops[-1].operands, op.out, strict=True)
    grown = True
    while grown:
        more = {v for pair in pairs for v in pair if not found.isdisjoint(pair)}
        grown = not more <= found
        found |= more
    return found
