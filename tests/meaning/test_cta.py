"""The ``cta`` interpreter: every op has a meaning, hand-written kernels compute what they should,
and each breach of the order is a fault that says where and what is missing.

The kernels of ``tests/cta`` use all of the level: rings, windows, products in flight, turns, votes
after which warps go different ways, stores from staging. Breaches are made by taking ops out of one
of them, which the verifier would refuse; the interpreter is not told.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilec.interp.cta.faults import Deadlock, ProtocolFault
from tilec.interp.cta.group import rule_of
from tilec.interp.cta.run import run_cta
from tilec.interp.memory import InterpretError
from tilec.ir.core import Kernel, Op
from tilec.ir.levels import LEVELS, cta, flow, math
from tilec.ir.parser import parse_module

GOLDEN = Path(__file__).resolve().parents[1] / "cta"
BY_THE_RUN = {
    "cta.grid", "cta.role", "cta.index", "cta.count", "cta.ring", "flow.yield",
    "cluster.shape", "cluster.rank", "cluster.index", "cluster.count",
}  # fmt: skip
"""What ``run`` and ``Group.region`` give their meaning to."""


def kernel_of(name: str) -> Kernel:
    """A hand-written kernel."""
    return parse_module((GOLDEN / f"{name}.tir").read_text()).kernels[0]


@pytest.mark.parametrize("name", sorted(Op.registry))
def test_every_op_of_the_level_has_a_meaning(name: str) -> None:
    cls = Op.registry[name]
    if name.split(".")[0] in LEVELS["cta"][0] and name not in BY_THE_RUN:
        assert rule_of(cls) is not None, f"say in tilec/interp/cta what {name} does"


# --- hand-written kernels ------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(300, 270, 200), (64, 20, 16), (128, 256, 64)])
def test_the_product_is_a_product(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)), rng.standard_normal((n, k))
    c = np.full((m, n), np.nan)
    run_cta(kernel_of("gemm"), {"a": a, "b": b, "c": c}, wide=True)
    np.testing.assert_allclose(c, a @ b.T, 1e-12, 1e-12)


@pytest.mark.parametrize(
    ("name", "causal"), [("attention", False), ("attention_causal", True)], ids=["full", "causal"]
)
@pytest.mark.parametrize("length", [1, 130, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("spread", [1.0, 12.0], ids=["no row is scaled again", "rows are"])
def test_attention_is_attention(name: str, causal: bool, length: int, spread: float) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (spread * rng.standard_normal((4, length, 128)) for _ in range(3))
    o = np.full(q.shape, np.nan)
    run_cta(kernel_of(name), {"q": q, "k": k, "v": v, "o": o}, wide=True)
    s = q @ k.transpose(0, 2, 1) * 128**-0.5
    if causal:
        s = np.where(np.tri(length, dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    np.testing.assert_allclose(o, p @ v / p.sum(-1, keepdims=True), 1e-5, 1e-5 * spread)


def test_element_types_round() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((64, 64)), rng.standard_normal((64, 64))
    found = {}
    for wide in (True, False):
        found[wide] = np.full((64, 64), np.nan)
        run_cta(kernel_of("gemm"), {"a": a, "b": b, "c": found[wide]}, wide=wide)
    error = np.abs(found[True] - found[False]).max() / np.abs(found[True]).max()
    assert 2**-10 < error < 2**-6
    bits = found[False].astype(np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any(), "each element is a bf16"


# --- breaches ------------------------------------------------------------------------------------


def without(kernel: Kernel, drop: Callable[[Op], bool], count: int = 1) -> Kernel:
    """The kernel without the first few ops of a kind, in the order of the text."""
    found = [op for op in kernel.body.walk() if drop(op)][:count]
    assert len(found) == count, "the kernel has not so many ops like that"
    regions = [kernel.body, *(r for op in kernel.body.walk() for r in op.regions)]
    for region in regions:
        region.ops = [op for op in region.ops if op not in found]
    return kernel


def run_gemm(kernel: Kernel, k: int = 400) -> np.ndarray:
    """The product of ones, which shows every element that is missing or too much."""
    c = np.full((128, 256), np.nan)
    run_cta(kernel, {"a": np.ones((128, k)), "b": np.ones((256, k)), "c": c}, wide=True)
    return c


def a(*classes: type[Op]) -> Callable[[Op], bool]:
    """Whether an op is of a class."""
    return lambda op: isinstance(op, classes)


def changed(kernel: Kernel, cls: type[Op], **fields: Any) -> Kernel:
    """The kernel with other fields in all ops of a class."""
    for op in kernel.body.walk():
        if isinstance(op, cls):
            for key, value in fields.items():
                setattr(op, key, value)
    return kernel


FAULTS: dict[str, tuple[Callable[[], Kernel], str]] = {
    "a stage that is never given back": (
        lambda: without(kernel_of("gemm"), a(cta.Release)),
        "deadlock: .*load waits for stage 0 of %ring to be empty .released 0 times, 2",
    ),
    "a part that is never loaded": (
        lambda: without(kernel_of("gemm"), a(cta.Load)),
        "deadlock: .*multiply 0 waits for stage 0 of %ring to be full .filled 0 times, 1",
    ),
    "a product that nobody waits for before the release": (
        lambda: without(
            kernel_of("gemm"), lambda op: isinstance(op, cta.Settle) and not op.flights
        ),
        "cta.product .*may still read the slot: no wait covers it",
    ),
    "a wait that leaves too much pending": (
        lambda: changed(kernel_of("gemm"), cta.Settle, pending=2),
        "may still read the slot",
    ),
    "a product without a commit": (
        lambda: without(kernel_of("gemm"), a(cta.Commit), 2),
        "is not committed|may still read the slot|is handed out before it is done",
    ),
    "no fence between the stores and TMA": (
        lambda: without(kernel_of("gemm"), a(cta.Publish)),
        "what cta.put .* wrote is not visible here: no cta.publish",
    ),
    "no barrier between the stores and TMA": (
        lambda: without(kernel_of("gemm"), a(cta.Sync), 4),
        "cta.sync",
    ),
    "staging that is written while TMA reads it": (
        lambda: changed(kernel_of("gemm"), cta.DrainStores, pending=8),
        "may still read the tile|reads shared memory",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_breach_is_a_fault(name: str) -> None:
    make, said = FAULTS[name]
    with pytest.raises(ProtocolFault, match=said):
        run_gemm(make())


def test_the_unchanged_kernel_has_no_fault() -> None:
    assert (run_gemm(kernel_of("gemm")) == 400).all()
    assert (run_gemm(kernel_of("gemm"), 64) == 64).all()


def test_a_deadlock_says_what_each_role_waits_for() -> None:
    with pytest.raises(Deadlock) as caught:
        run_gemm(without(kernel_of("gemm"), a(cta.Release)))
    load, *others = caught.value.waits
    assert "load waits for stage" in load
    assert [w.split(" waits")[0] for w in others] == ["multiply 0", "multiply 1"]


def test_a_turn_that_is_not_passed_on_is_a_deadlock() -> None:
    kernel = without(kernel_of("attention"), a(cta.PassTurn), 3)
    arrays = {n: np.ones((1, 130, 128)) for n in "qkvo"}
    with pytest.raises(ProtocolFault, match=r"turn|already held"):
        run_cta(kernel, arrays, wide=True)


REDUCTION = """tir 1 level cta target sm_90a
#wide = (reg: j1 | lane: j2 j4 j8 j16 j32 | warp: j64 j128)
#thin = (lane: j1 j2 j4 j8 j16 | warp: j32 j64)
#row = (lane: i1*1 _*32 | warp: _*4)
#room = (off: i1 i2)

kernel @f {threads = 128, shared_bytes = 16}
{ |%x: array<f32, 1 x 256, in>, %y: array<f32, 1, out>|
  %zero = math.constant() {value = 0} : s32
  %one = math.constant() {value = 1} : s32
  cta.grid(%one)
  %room = cta.buffer() {offset = 0} : shared<f32, 4, #room>
  cta.role() {label = sum, first = 0, warps = 4, group = 4} { |%w: s32|
    %t = cta.read(%x, %zero, %zero) {axes = (0, 1)} : reg<f32, 1 x 256, #wide>
    %p = cta.reduce_thread(%t) {axis = 1, kind = add} : reg<f32, 1 x 128, #thin>
    %l = cta.reduce_lanes(%p) {axis = 1, kind = add} : reg<f32, 1, #row>
    %s = cta.exchange(%l, %room) {kind = add, barrier = 1} : reg<f32, 1, #row>
    cta.write(%y, %s, %zero) {axes = (0,)}
  }
}
"""


def _reduction() -> Kernel:
    return parse_module(REDUCTION).kernels[0]


def test_a_sum_over_warps_needs_its_exchange() -> None:
    x, y = np.arange(256.0).reshape(1, 256), np.zeros(1)
    run_cta(_reduction(), {"x": x, "y": y}, wide=True)
    assert y[0] == x.sum()
    kernel = _reduction()
    for op in kernel.body.walk():
        if isinstance(op, cta.Write):
            op.value = next(o.out for o in kernel.body.walk() if isinstance(o, cta.ReduceLanes))
    with pytest.raises(ProtocolFault, match=r"copies of element \[0\] differ"):
        run_cta(kernel, {"x": x, "y": y}, wide=True)


def test_two_ctas_that_write_one_element_are_a_race() -> None:
    kernel = _reduction()
    for op in kernel.body.walk():
        if isinstance(op, math.Constant) and op.value == 1:
            op.value = 2
    with pytest.raises(InterpretError, match=r"race: an element of y is written .* another CTA"):
        run_cta(kernel, {"x": np.ones((1, 256)), "y": np.zeros(1)}, wide=True)


def test_an_access_over_the_edge_is_a_fault() -> None:
    with pytest.raises(ProtocolFault, match="axis 1 runs from 0 to 256, over the edge at 250"):
        run_cta(_reduction(), {"x": np.ones((1, 250)), "y": np.zeros(1)}, wide=True)


def test_warps_that_go_different_ways_may_only_compute() -> None:
    kernel = kernel_of("attention")
    for op in kernel.body.walk():
        if isinstance(op, flow.If) and isinstance(op.condition.owner, cta.AnyLane):
            op.then.ops.insert(0, cta.Publish())
    rng = np.random.default_rng(0)
    q = 12 * rng.standard_normal((1, 300, 128))
    with pytest.raises(ProtocolFault, match="the warps go different ways, and one of them does"):
        run_cta(kernel, {"q": q, "k": q[:, ::-1], "v": q, "o": np.zeros(q.shape)}, wide=True)
