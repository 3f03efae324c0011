"""Clusters: what the CTAs of one share, what is refused, and that nothing changes in the result.

Each pass of level ``cta`` is run on the interpreter, where a stage holds poison until every share
of it has come, and is filled again only when all CTAs that it is loaded for have released it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.passes.machine_runs import TARGET, check_text
from tilec import pipeline
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.cta.run import run_cta
from tilec.interp.memory import InterpretError
from tilec.ir.core import Kernel, Module
from tilec.ir.facts import ArrayFacts, Facts, Schedule
from tilec.ir.levels import cluster, cta
from tilec.ir.types import Array
from tilec.ir.verify import VerifyError, verify
from tilec.passes.base import Context
from tilec.passes.check_schedule import BadChoices
from tilec.source import SourceFile
from tilec.targets import by_name

GEMM = """
kernel f(a: {T}[{A}], b: {T}[{B}], c: out {T}[M, N]):
    for i, j in parallel(tiles(M, 64), tiles(N, {BN})):
        acc = zeros[f32](i, j)
        for k in tiles(K, 64):
            acc += {PRODUCT}
        c[i, j] = cast[{T}](acc)
"""
TN = {"A": "M, K", "B": "N, K", "PRODUCT": "a[i, k] @ b[j, k].T", "T": "bf16", "BN": "64"}
NN = {**TN, "B": "K, N", "PRODUCT": "a[i, k] @ b[k, j]", "BN": "128"}
TT = {**NN, "A": "K, M", "PRODUCT": "a[k, i].T @ b[k, j]"}

ROWS = """
kernel f(a: bf16[M, K], b: bf16[64, K], c: out f32[M, 64]):
    for i in parallel(tiles(M, 64)):
        acc = zeros[f32](i, 64)
        for k in tiles(K, 64):
            acc += a[i, k] @ b[:, k].T
        c[i, :] = acc
"""
ATTENTION = Path("examples/attention.tk").read_text(encoding="utf-8").replace("attention[", "f[")


def operands(form: dict[str, str], m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    """Two operands as a form stores them, of small whole numbers, and their product."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, size).astype(np.float64) for size in ((m, k), (n, k)))
    c = a @ b.T
    return (a.T if form["A"] == "K, M" else a), (b.T if form["B"] == "K, N" else b), c


def formed(
    text: str,
    schedule: Schedule,
    sizes: dict[str, int] | None = None,
    target: Any = TARGET,
    until: str = "place-shared",
    values: dict[str, Any] | None = None,
) -> tuple[Kernel, Context, Module]:
    """A kernel at the end of level ``cta``, with what the passes said."""  # fmt: skip
    module = lower(check(parse(SourceFile("f.tk", text.lstrip("\n"))), values or {}), "f")
    module.target = target.name
    kernel = module.kernels[0]
    sizes = sizes or {"M": 256, "N": 256, "K": 256}
    arrays = [
        (a.name, ArrayFacts(len(a.type.shape) - 1, 16))
        for a in kernel.body.args
        if isinstance(a.type, Array)
    ]
    multiples = tuple((n, s & -s) for n, s in sizes.items())
    pipeline.record_facts(kernel, Facts(tuple(arrays), tuple(sizes.items()), multiples))
    kernel.schedule = {**kernel.schedule, **schedule.as_attributes()}
    ctx = Context(target)
    for name in pipeline.PIPELINE[: pipeline.position(until) + 1]:
        pipeline.step(module, pipeline.find_pass(name), ctx)
    return module.kernels[0], ctx, module


def shared(kernel: Kernel) -> list[tuple[tuple[int, ...], ...]]:
    """What each ring says."""
    return [op.shared_along for op in kernel.body.ops if isinstance(op, cta.MakeRing)]


@pytest.mark.parametrize("form", [TN, NN, TT], ids=["TN", "NN", "TT"])
@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 2), (4, 1)])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_cluster_computes_the_same(
    form: dict[str, str], shape: tuple[int, int], persistent: bool
) -> None:
    m, n, k = 200, 136, 136
    a, b, c = operands(form, m, n, k)
    schedule = Schedule(cluster=shape, stages=2, persistent=persistent, warpgroups=1)
    check_text(GEMM.format(**form), {"a": a, "b": b}, {"c": c}, schedule=schedule)


@pytest.mark.parametrize("trips", range(6))
def test_any_number_of_rounds(trips: int) -> None:
    a, b, c = operands(TN, 72, 64, 64 * trips)
    schedule = Schedule(cluster=(2, 2), stages=2, persistent=True, warpgroups=1)
    check_text(GEMM.format(**TN), {"a": a, "b": b}, {"c": c}, schedule=schedule)


@pytest.mark.parametrize(
    ("shape", "along"),
    [((2, 1), ((), (0,))), ((1, 2), ((1,), ())), ((2, 2), ((1,), (0,))), ((1, 1), ())],
)
def test_an_operand_is_shared_along_the_axis_that_it_does_not_depend_on(
    shape: tuple[int, int], along: tuple[tuple[int, ...], ...]
) -> None:
    kernel, _, _ = formed(GEMM.format(**TN), Schedule(cluster=shape, warpgroups=1))
    assert shared(kernel) == [along]


def test_one_tile_for_all() -> None:
    text = """
    kernel f(a: bf16[64, K], b: bf16[64, K], x: f32[M, N], c: out f32[M, N]):
        for i, j in parallel(tiles(M, 64), tiles(N, 64)):
            acc = x[i, j]
            for k in tiles(K, 64):
                acc += x[i, j] * 0
            c[i, j] = acc
    """
    text = "\n".join(line[4:] for line in text.splitlines())
    _, ctx, _ = formed(text, Schedule(cluster=(2, 2)))
    assert any("cluster has no effect" in remark.text for remark in ctx.remarks)


def test_a_tile_that_does_not_cut_is_loaded_by_each() -> None:
    form = {**TN, "BN": "16"}
    kernel, ctx, _ = formed(GEMM.format(**form), Schedule(cluster=(4, 1), warpgroups=1))
    assert shared(kernel) == [()]
    assert any("does not cut into 4 shares" in remark.text for remark in ctx.remarks)
    a, b, c = operands(form, 200, 136, 136)
    schedule = Schedule(cluster=(4, 1), warpgroups=1)
    check_text(GEMM.format(**form), {"a": a, "b": b}, {"c": c}, schedule=schedule)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shape", "target", "why"),
    [
        (GEMM.format(**TN), (3, 1), "90", "a power of two of CTAs"),
        (GEMM.format(**TN), (4, 4), "90", "at most 8 in all"),
        (GEMM.format(**TN), (2,), "90", "a power of two of CTAs"),
        (GEMM.format(**TN), (2, 1), "80", "sm_80 has no clusters"),
        (ROWS, (2, 1), "90", "write `cluster=1:2`"),
        (ATTENTION, (2, 1), "90", "h is a number, no tile of indices"),
    ],
)
def test_a_cluster_that_cannot_be(text: str, shape: tuple[int, ...], target: str, why: str) -> None:
    with pytest.raises(BadChoices) as refusal:
        formed(text, Schedule(cluster=shape), target=by_name(target))
    assert why in str(refusal.value)


def test_causal_attention_has_its_reason() -> None:
    sizes = {"M": 512, "N": 512, "B": 1, "H": 2, "HK": 2}
    schedule = Schedule(cluster=(1, 2), tiles=(("i", 64), ("j", 64)))
    with pytest.raises(BadChoices) as refusal:
        formed(ATTENTION, schedule, sizes, values={"CAUSAL": True})
    assert "does not run alike in all of them" in str(refusal.value)
    assert refusal.value.faults[0].op.loc.line == 19
    kernel, _, _ = formed(ATTENTION, schedule, sizes, values={"CAUSAL": False})
    assert {along for ring in shared(kernel) for along in ring} == {(1,)}


def test_rows_share_the_whole_other_operand() -> None:
    a, b, c = operands(TN, 200, 64, 136)
    schedule = Schedule(cluster=(1, 4), stages=2, warpgroups=1)
    check_text(ROWS, {"a": a, "b": b}, {"c": c}, schedule=schedule)


def test_a_tile_beyond_the_end_does_nothing() -> None:
    text = """
kernel f(a: bf16[M, K], b: bf16[N, K], c: out f32[M, N], s: inout f32[N]):
    for i, j in parallel(tiles(M, 64), tiles(N, 64)):
        acc = zeros[f32](i, j)
        for k in tiles(K, 64):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = acc
        s[j] += full[f32](j, 1)
"""
    schedule = Schedule(cluster=(2, 1), warpgroups=1)
    with pytest.raises(BadChoices) as refusal:
        formed(text, schedule, {"M": 200, "N": 256, "K": 256})
    assert "would act for tiles that do not exist" in str(refusal.value)
    kernel, _, _ = formed(text, schedule)
    assert shared(kernel) == [((), (0,))]


# --- breaches, in a kernel that is right ---------------------------------------------------------


def gemm() -> tuple[Kernel, Module]:
    """A kernel in clusters of two by two."""
    schedule = Schedule(cluster=(2, 2), stages=2, warpgroups=1)
    kernel, _, module = formed(GEMM.format(**TN), schedule, until="split-roles")
    return kernel, module


def loads(kernel: Kernel) -> list[cta.Load]:
    """The loads of both operands."""
    return [op for op in kernel.body.walk() if isinstance(op, cta.Load)]


def test_the_verifier_asks_that_sharers_want_the_same_tile() -> None:
    kernel, module = gemm()
    ring = next(op for op in kernel.body.ops if isinstance(op, cta.MakeRing))
    ring.shared_along = ring.shared_along[::-1]
    with pytest.raises(VerifyError, match="its place differs along axes"):
        verify(module, "test")


def test_the_verifier_asks_for_a_cluster() -> None:
    kernel, module = gemm()
    kernel.body.ops = [op for op in kernel.body.ops if not isinstance(op, cluster.Shape)]
    with pytest.raises(VerifyError, match=r"no cluster\.shape"):
        verify(module, "test")


def test_the_verifier_asks_for_one_entry_a_part() -> None:
    kernel, module = gemm()
    ring = next(op for op in kernel.body.ops if isinstance(op, cta.MakeRing))
    ring.shared_along = ring.shared_along[:1]
    with pytest.raises(VerifyError, match="has 1 entries, a stage 2 parts"):
        verify(module, "test")


def test_the_verifier_compares_the_box_with_the_share() -> None:
    kernel, module = gemm()
    ring = next(op for op in kernel.body.ops if isinstance(op, cta.MakeRing))
    ring.shared_along = ((), ())
    with pytest.raises(VerifyError, match="the map's box is"):
        verify(module, "test")


def test_a_grid_is_whole_clusters() -> None:
    kernel, _ = gemm()
    grid = next(op for op in kernel.body.ops if isinstance(op, cta.Grid))
    grid.count = next(v for v in _values(kernel) if v.name == "tiles_i")
    a, b, c = operands(TN, 64, 64, 64)
    with pytest.raises(InterpretError, match="no whole number of clusters"):
        run_cta(kernel, {"a": a, "b": b, "c": c * np.nan}, wide=True)


def _values(kernel: Kernel) -> list[Any]:
    return [value for op in kernel.body.ops for value in op.results]
