"""Graphs of the IR, made on request as networkx graphs: nothing keeps one, nothing updates one.

``dependence`` answers what an op needs and who needs it, ``nesting`` which op holds which, and
``hand_over`` which role waits for which through rings. networkx is imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.ir.core import Kernel, Op, Region
from tilec.ir.declare import Effects
from tilec.ir.levels import cta

if TYPE_CHECKING:
    import networkx as nx


def dependence(region: Region) -> nx.DiGraph[Op]:
    """An edge from each op to every op that must come after it, nested ops included.

    Edges carry ``why``: ``value`` for an operand, ``order`` between ops with effects that stand in
    one region (reads may pass reads, nothing passes an op that orders).
    """
    import networkx as nx

    graph: nx.DiGraph[Op] = nx.DiGraph()
    for op in region.walk():
        graph.add_node(op)
        for value in op.operands:
            if isinstance(value.owner, Op):
                graph.add_edge(value.owner, op, why="value")
    for body in _regions(region):
        _order(graph, body)
    return graph


def _regions(region: Region) -> list[Region]:
    return [region, *(nested for op in region.walk() for nested in op.regions)]


def effects_within(op: Op) -> Effects:
    """The op's own effects and those of all ops that it holds."""
    total = op.effects
    for nested in op.regions:
        for inner in nested.walk():
            total |= inner.effects
    return total


def _order(graph: nx.DiGraph[Op], body: Region) -> None:
    """Order ops with effects: each after the last op that it may not pass."""
    readers: list[Op] = []
    barrier: Op | None = None
    for op in body.ops:
        effects = effects_within(op)
        if effects is Effects.PURE:
            continue
        if effects is Effects.READS:
            if barrier is not None:
                graph.add_edge(barrier, op, why="order")
            readers.append(op)
            continue
        for earlier in readers or ([barrier] if barrier is not None else []):
            graph.add_edge(earlier, op, why="order")
        if readers and barrier is not None:
            graph.add_edge(barrier, op, why="order")
        readers, barrier = [], op


def nesting(region: Region) -> nx.DiGraph[Op]:
    """A tree (or forest) with an edge from each op to the ops of its regions."""
    import networkx as nx

    tree: nx.DiGraph[Op] = nx.DiGraph()
    for op in region.walk():
        tree.add_node(op)
        for nested in op.regions:
            for inner in nested.ops:
                tree.add_edge(op, inner)
    return tree


def hand_over(kernel: Kernel) -> nx.MultiDiGraph[str]:
    """Roles of a ``cta`` kernel, with an edge from who waits to whom it waits for, by ring.

    ``ring`` names the ring and ``state`` what is waited for: ``full`` or ``empty``. A cycle is
    ordinary (a ring's two sides wait for each other); a role that nobody answers is not.
    """
    import networkx as nx

    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    fills: dict[Any, list[str]] = {}
    drains: dict[Any, list[str]] = {}
    for role in (op for op in kernel.body.ops if isinstance(op, cta.Role)):
        graph.add_node(role.label)
        for op in role.body.walk():
            if isinstance(op, cta.Acquire):
                fills.setdefault(op.ring, []).append(role.label)
            elif isinstance(op, cta.Wait):
                drains.setdefault(op.ring, []).append(role.label)
    for ring in {**fills, **drains}:
        for producer in dict.fromkeys(fills.get(ring, [])):
            for consumer in dict.fromkeys(drains.get(ring, [])):
                graph.add_edge(consumer, producer, ring=ring.name, state="full")
                graph.add_edge(producer, consumer, ring=ring.name, state="empty")
    return graph
