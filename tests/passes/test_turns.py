"""Warpgroups that take tiles in turns: the same results, and nothing that a verifier lets pass.

Each pass of level ``cta`` is run on the interpreter for a GPU of two SMs, so that a CTA has several
tiles: an odd number of them, an even one, and one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.passes import machine_runs
from tests.passes.machine_runs import TARGET, check_text
from tests.passes.test_clusters import ATTENTION, GEMM, NN, TN, TT, formed, operands
from tilec.ir.core import Kernel
from tilec.ir.facts import Schedule
from tilec.ir.levels import cta, flow, math
from tilec.ir.levels.turns import Skip
from tilec.ir.types import S32, Scalar
from tilec.ir.verify import VerifyError, verify
from tilec.targets import by_name

EPILOGUES = """
kernel f(a: bf16[M, K], b: bf16[N, K], v: bf16[N], r: f32[M, N],
         c: out bf16[M, N], d: out f32[M, N]):
    for i, j in parallel(tiles(M, 64), tiles(N, 64)):
        acc = zeros[f32](i, j)
        for k in tiles(K, 64):
            acc += a[i, k] @ b[j, k].T
        y = acc + cast[f32](v[j])[None, :]
        c[i, j] = cast[bf16](max(y, 0.0))
        d[i, j] = y + r[i, j]
"""
TURNS = Schedule(alternate=True, stages=2, persistent=True)


@pytest.fixture(autouse=True)
def few_ctas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two SMs."""
    monkeypatch.setattr(machine_runs, "TARGET", replace(TARGET, sms=2))


@pytest.mark.parametrize("form", [TN, NN, TT], ids=["TN", "NN", "TT"])
@pytest.mark.parametrize("m", [64, 130, 200])
def test_turns_compute_the_same(form: dict[str, str], m: int) -> None:
    a, b, c = operands(form, m, 200, 136)
    check_text(GEMM.format(**form), {"a": a, "b": b}, {"c": c}, schedule=TURNS)


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("trips", range(8))
def test_any_number_of_rounds(trips: int, stages: int) -> None:
    a, b, c = operands(TN, 72, 264, 64 * trips)
    schedule = replace(TURNS, stages=stages)
    check_text(GEMM.format(**TN), {"a": a, "b": b}, {"c": c}, schedule=schedule)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2)])
def test_turns_in_clusters(shape: tuple[int, int]) -> None:
    a, b, c = operands(TN, 200, 328, 136)
    schedule = replace(TURNS, cluster=shape)
    check_text(GEMM.format(**TN), {"a": a, "b": b}, {"c": c}, schedule=schedule)


def test_bias_residual_and_two_outputs() -> None:
    a, b, product = operands(TN, 200, 136, 136)
    rng = np.random.default_rng(2)
    v, r = rng.integers(-4, 5, 136).astype(float), rng.integers(-4, 5, (200, 136)).astype(float)
    y = product + v
    inputs = {"a": a, "b": b, "v": v, "r": r}
    check_text(EPILOGUES, inputs, {"c": np.maximum(y, 0), "d": y + r}, schedule=TURNS)


def test_attention_has_two_rings_and_two_loops() -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 2, n, 64)) for n in (200, 136, 136))
    s = q @ k.swapaxes(-1, -2) * 0.125
    top = s.max(-1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True)
    expected = {"o": p / total @ v, "lse": (np.log(total) + top)[..., 0]}
    check_text(
        ATTENTION,
        {"q": q, "k": k, "v": v},
        expected,
        schedule=replace(TURNS, tiles=(("i", 64), ("j", 64))),
        scalars={"scale": 0.125},
        values={"D": 64},
        tolerance=1e-6,
    )


# --- refusals, and what has no effect -------------------------------------------------------------


def test_where_nothing_multiplies_a_remark_says_so() -> None:
    text = """
kernel f(x: f32[M, N], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        c[i, j] = x[i, j]
"""
    _, ctx, _ = formed(text, Schedule(alternate=True))
    assert any("alternate has no effect" in remark.text for remark in ctx.remarks)


def test_without_wgmma_it_is_refused() -> None:
    with pytest.raises(Exception, match="its products are not wgmma's"):
        formed(GEMM.format(**TN), TURNS, target=by_name("80"))


def test_a_pinned_share_of_registers_counts_both_groups() -> None:
    with pytest.raises(Exception, match="a producer and 2 consumer warpgroups take"):
        formed(GEMM.format(**TN), replace(TURNS, warpgroups=1, registers=(24, 248)))


def test_warpgroups_that_share_take_no_turns() -> None:
    with pytest.raises(Exception, match="each of two takes a tile of its own"):
        formed(GEMM.format(**TN), replace(TURNS, warpgroups=2))


# --- breaches, in a kernel that is right ----------------------------------------------------------


def skips(kernel: Kernel) -> list[Skip]:
    """What groups pass over: before the loop over tiles, and in it."""
    return [op for op in kernel.body.walk() if isinstance(op, Skip)]


def role_of(kernel: Kernel) -> cta.Role:
    """The consumers."""
    return next(op for op in kernel.body.ops if isinstance(op, cta.Role) and op.label == "compute")


def one_round_too_few(kernel: Kernel) -> None:
    _, inside = skips(kernel)
    (loop,) = (op for op in role_of(kernel).body.ops if isinstance(op, flow.For))
    one = math.Constant(1, type=Scalar(S32))
    less = math.Sub(inside.count, one.out)
    before = loop.body.ops.index(inside)
    loop.body.ops[before:before] = [one, less]
    inside.count = less.out


def both_start_alike(kernel: Kernel) -> None:
    first, inside = skips(kernel)
    first.count = inside.count


def nothing_is_passed_over(kernel: Kernel) -> None:
    _, inside = skips(kernel)
    (loop,) = (op for op in role_of(kernel).body.ops if isinstance(op, flow.For))
    loop.body.ops.remove(inside)


def every_tile_by_both(kernel: Kernel) -> None:
    (loop,) = (op for op in role_of(kernel).body.ops if isinstance(op, flow.For))
    assert isinstance(loop.step.owner, math.Mul)
    loop.step = loop.step.owner.x


def the_turn_is_kept(kernel: Kernel) -> None:
    (loop,) = (op for op in role_of(kernel).body.ops if isinstance(op, flow.For))
    loop.body.ops = [op for op in loop.body.ops if not isinstance(op, cta.PassTurn)]


@pytest.mark.parametrize(
    ("breach", "what"),
    [
        (one_round_too_few, "pass over other rounds of %ring than an iteration"),
        (both_start_alike, "a group starts behind the rounds of those before it"),
        (nothing_is_passed_over, "not once before and once in each iteration"),
        (every_tile_by_both, "not once before and once in each iteration"),
        (the_turn_is_kept, "the turn is"),
    ],
)
def test_the_verifier_finds_a_breach(breach: Callable[[Kernel], Any], what: str) -> None:
    kernel, _, module = formed(GEMM.format(**TN), TURNS, until="take-turns")
    verify(module, "test")
    breach(kernel)
    with pytest.raises(VerifyError, match=what):
        verify(module, "test")
