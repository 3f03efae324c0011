"""Turns among the groups of a role, in ``ptx`` form: named barriers, and cursors that move on."""

from __future__ import annotations

from tilec.ir.levels import cta, ptx
from tilec.ir.levels.turns import Skip
from tilec.passes.select.rings import RingRecord
from tilec.passes.select.selector import Selector, lowers, record


@lowers(cta.Turns)
def _turns(sel: Selector, op: cta.Turns) -> None:
    sel.records[op.out] = op


@lowers(cta.WaitTurn)
def _wait_turn(sel: Selector, op: cta.WaitTurn) -> None:
    turns = record(sel, op.turns, cta.Turns)
    threads = 2 * 32 * sel.need_role().group_warps
    mine = sel.alu("add.u32", sel.get(op.group), turns.barrier)
    sel.build.add(ptx.BarrierSync(mine, threads=threads))


@lowers(cta.PassTurn)
def _pass_turn(sel: Selector, op: cta.PassTurn) -> None:
    turns = record(sel, op.turns, cta.Turns)
    threads = 2 * 32 * sel.need_role().group_warps
    following = sel.alu("add.u32", sel.get(op.group), 1)
    wraps = sel.alu("setp.eq.u32", following, turns.groups, kind="pred")
    barrier = sel.alu("add.u32", sel.alu("selp.b32", 0, following, wraps), turns.barrier)
    sel.build.add(ptx.BarrierArrive(barrier, threads=threads))


@lowers(Skip)
def _skip(sel: Selector, op: Skip) -> None:
    """The cursor that ``count`` steps of ``_advance`` would leave."""
    stages = record(sel, op.ring, RingRecord).stages
    stage, parity = sel.cursors[op.ring]
    place = sel.alu("add.u32", stage, sel.get(op.count))
    if stages & (stages - 1):
        laps = sel.alu("div.u32", place, stages)
        stage = sel.alu("sub.u32", place, sel.alu("mul.lo.u32", laps, stages))
    else:
        laps = sel.alu("shr.u32", place, stages.bit_length() - 1)
        stage = sel.alu("and.b32", place, stages - 1)
    odd = sel.alu("and.b32", laps, 1)
    sel.cursors[op.ring] = (stage, sel.alu("xor.b32", parity, odd))
