"""Clusters: the barrier of all their threads, and addresses in other CTAs (PTX ISA 9.7.13.4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.emulator.clusters import come, mapped, pass_barrier, round_to_wait_for
from tilec.emulator.memory import WINDOW_BITS
from tilec.emulator.table import Bind, Block, Result, Step, lanes_of, row, where


@row("barrier.cluster.arrive", effect="orders")
def _arrive(bind: Bind) -> Step:
    tells = "relaxed" not in bind.at.parts
    return lambda g: come(bind, g, tells=tells)


@row("barrier.cluster.wait", effect="orders")
def _wait(bind: Bind) -> Step:
    def run(g: Any) -> Result:
        round_ = round_to_wait_for(bind, g)
        if round_ is None:
            return None
        cluster = g.cta.cluster
        if cluster.rounds <= round_:
            return Block(
                f"the barrier of its cluster: {cluster.count} of {cluster.threads} threads have "
                "come",
                lambda: cluster.rounds > round_,
                ("cluster", 0),
            )
        pass_barrier(g)
        return None

    return run


@row("mapa")
def _mapa(bind: Bind) -> Step:
    """The same place in the window of the CTA of a rank."""
    if "shared::cluster" not in bind.at.parts:
        raise bind.fail("only mapa.shared::cluster is known")
    type = bind.types()[-1]
    target, place, rank = bind.operands
    write, of = bind.write(target, type), bind.read(place, type)
    which = bind.read(rank, "u32")

    def run(g: Any) -> None:
        offsets, ranks = lanes_of(of(g), g).astype(np.int64), lanes_of(which(g), g)
        wrong = g.active() & (ranks >= len(g.cta.cluster.ctas))
        if wrong.any():
            lane = int(np.argmax(wrong))
            g.cta.machine.findings.add(
                "cluster-rank",
                bind.at,
                f"rank {int(ranks[lane])} of a cluster of {len(g.cta.cluster.ctas)} CTAs",
                where=where(g),
            )
        offsets = offsets & ((1 << WINDOW_BITS) - 1)
        found = [mapped(int(o), int(r)) for o, r in zip(offsets, ranks, strict=True)]
        write(g, np.asarray(found, np.int64).astype(f"u{8 if type.endswith('64') else 4}"))

    return run
