"""The graphs say what the text says: who needs whom, who holds whom, who waits for whom."""

from __future__ import annotations

from pathlib import Path

import networkx as nx

from tilec.ir.levels import cta, flow
from tilec.ir.parser import parse_module
from tilec.ir.views import dependence, hand_over, nesting

GEMM = Path(__file__).resolve().parents[1] / "cta" / "gemm.tir"


def test_every_order_of_the_text_is_an_order_of_the_dependence_graph() -> None:
    kernel = parse_module(GEMM.read_text()).kernels[0]
    graph = dependence(kernel.body)
    place = {op: n for n, op in enumerate(kernel.body.walk())}
    assert nx.is_directed_acyclic_graph(graph)
    assert all(place[a] < place[b] for a, b in graph.edges)


def test_a_release_comes_after_the_settle_before_it() -> None:
    kernel = parse_module(GEMM.read_text()).kernels[0]
    graph = dependence(kernel.body)
    settle = next(op for op in graph if isinstance(op, cta.Settle))
    release = next(op for op in graph if isinstance(op, cta.Release))
    assert nx.has_path(graph, settle, release)


def test_two_loads_of_a_stage_may_change_places_but_not_with_the_acquire() -> None:
    kernel = parse_module(GEMM.read_text()).kernels[0]
    graph = dependence(kernel.body)
    acquire = next(op for op in graph if isinstance(op, cta.Acquire))
    first, second = [op for op in graph if isinstance(op, cta.Load)]
    assert nx.has_path(graph, acquire, first)
    assert nx.has_path(graph, acquire, second)


def test_the_product_loop_lies_three_deep() -> None:
    kernel = parse_module(GEMM.read_text()).kernels[0]
    tree = nesting(kernel.body)
    loops = [op for op in tree if isinstance(op, flow.For)]
    depth = {op: len(nx.ancestors(tree, op)) for op in loops}
    assert sorted(depth.values()) == [1, 1, 2, 2]


def test_loader_and_multiplier_wait_for_each_other_through_the_ring() -> None:
    graph = hand_over(parse_module(GEMM.read_text()).kernels[0])
    edges = {(a, b, data["ring"], data["state"]) for a, b, data in graph.edges(data=True)}
    assert edges == {("multiply", "load", "ring", "full"), ("load", "multiply", "ring", "empty")}
