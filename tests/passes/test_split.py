"""Loops that are split by index predicates run what they must, and mask what they must.

The interpreter counts rounds and masks by source line, after the pass; what it has to find is
counted here from the condition itself, element by element.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilec import pipeline
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.cta.run import run_cta
from tilec.interp.interpret import interpret, outputs_for
from tilec.interp.machine import Trace
from tilec.ir.core import Module
from tilec.ir.facts import ArrayFacts, Facts, Schedule
from tilec.ir.levels import cta, flow, parts
from tilec.ir.types import Flight
from tilec.passes.base import Context
from tilec.source import SourceFile
from tilec.targets import by_name

TARGET = by_name("90")
Condition = Callable[[Any, Any, dict[str, int]], Any]

ATTENTION = (
    """
kernel f(q: bf16[M, D], k: bf16[N, D], v: bf16[N, D], {parameters}o: out f32[M, D], e: out f32[M]):
    for i in parallel(tiles(M)):
        m = full[f32](i, -inf)
        l = zeros[f32](i)
        acc = zeros[f32](i, 32)
        for j in tiles(N):
            s = q[i, :] @ k[j, :].T
            s = where({condition}, s, -inf)
            r = anchor(m, s)
            p = exp2sub(s, r[:, None])
            alpha = exp2sub(m, r)
            l = l * alpha + rowsum(p)
            acc = acc * alpha[:, None] + cast[bf16](p) @ v[j, :]
            m = r
        o[i, :] = where(l[:, None] > 0, acc / l[:, None], 0)
        e[i] = where(l > 0, m + log2(l), -inf)
""".lstrip()
    .replace("D]", "32]")
    .replace(", D", ", 32")
)
LOOP_LINE, MASK_LINE = 6, 8

CONDITIONS: dict[str, tuple[str, Condition]] = {
    "causal": (
        "i[:, None] + (N - M) >= j[None, :]",
        lambda i, j, n: i + n["N"] - n["M"] >= j,
    ),
    "not above": ("~(j[None, :] > i[:, None])", lambda i, j, n: j <= i),
    "window": (
        "(j[None, :] <= i[:, None]) & (i[:, None] - j[None, :] < w)",
        lambda i, j, n: (j <= i) & (i - j < n["w"]),
    ),
    "both sides": (
        "(i[:, None] - j[None, :] <= w) & (j[None, :] - i[:, None] <= w)",
        lambda i, j, n: abs(i - j) <= n["w"],
    ),
    "prefix": (
        "(j[None, :] < w) | (j[None, :] <= i[:, None])",
        lambda i, j, n: (j < n["w"]) | (j <= i),
    ),
    "sinks and a window": (
        "(j[None, :] <= i[:, None]) & ((j[None, :] < 5) | (i[:, None] - j[None, :] < w))",
        lambda i, j, n: (j <= i) & ((j < 5) | (i - j < n["w"])),
    ),
    "segment": (
        "((lo <= j) & (j < lo + w))[None, :]",
        lambda i, j, n: (i >= 0) & (n["lo"] <= j) & (j < n["lo"] + n["w"]),
    ),
    "steep": (
        "3 * j[None, :] - 7 <= 2 * i[:, None]",
        lambda i, j, n: 3 * j - 7 <= 2 * i,
    ),
    "anti-causal": ("j[None, :] > i[:, None]", lambda i, j, n: j > i),
    "diagonal": ("j[None, :] == i[:, None]", lambda i, j, n: j == i),
}

SPARSE = ("sinks and a window",)
"""Conditions with alternatives, of which an empty one may cost a tile."""


def lowered(text: str, schedule: Schedule, facts: Facts | None = None) -> Module:
    module = lower(check(parse(SourceFile("f.tk", text)), {}), "f")
    module.target = TARGET.name
    kernel = module.kernels[0]
    pipeline.record_facts(kernel, facts or Facts())
    kernel.schedule = {**kernel.schedule, **schedule.as_attributes()}
    return module


def through(module: Module, last: str) -> Module:
    ctx = Context(TARGET)
    for name in pipeline.remaining(module):
        if pipeline.position(name) <= pipeline.position(last):
            pipeline.step(module, pipeline.find_pass(name), ctx)
    return module


def inputs_of(module: Module, sizes: dict[str, int]) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    arrays: dict[str, Any] = {}
    for arg in module.kernels[0].body.args:
        if hasattr(arg.type, "shape"):
            shape = tuple(sizes.get(str(s), s) for s in arg.type.shape)
            arrays[arg.name] = rng.standard_normal(shape).astype(np.float64)
    return arrays


def attention_of(x: dict[str, Any], seen: Any) -> tuple[Any, Any]:
    """Rows of attention, 0 and -inf where a row sees nothing."""
    s = np.where(seen, x["q"] @ x["k"].T, -np.inf)
    with np.errstate(all="ignore"):
        p = np.exp2(
            s - np.where(seen.any(1, keepdims=True), s.max(1, keepdims=True, initial=-1e9), 0)
        )
        p = np.where(seen, p, 0)
        total = p.sum(1, keepdims=True)
        out = np.where(total > 0, p @ x["v"] / total, 0)
        row = np.where(
            total > 0, s.max(1, keepdims=True, initial=-np.inf) + np.log2(total), -np.inf
        )
    return out, row[:, 0]


def counted(seen: Any, rows: int, columns: int) -> tuple[int, int]:
    """Tiles in which the condition holds somewhere, and those of them where it has to be asked.

    A last tile that is no whole one is masked for its edge, and keeps its condition.
    """
    live = mixed = 0
    for i in range(0, seen.shape[0], rows):
        for j in range(0, seen.shape[1], columns):
            part = seen[i : i + rows, j : j + columns]
            live += bool(part.any())
            mixed += bool(part.any() and (not part.all() or part.shape[1] < columns))
    return live, mixed


def case(name: str, sizes: dict[str, int], tiles: tuple[int, int]) -> tuple[Module, Any]:
    condition, means = CONDITIONS[name]
    names = [n for n in ("w", "lo") if re.search(rf"\b{n}\b", condition)]
    text = ATTENTION.format(condition=condition, parameters="".join(f"{n}: s32, " for n in names))
    module = lowered(text, Schedule(tiles=(("i", tiles[0]), ("j", tiles[1])), warpgroups=1))
    rows, columns = np.arange(sizes["M"])[:, None], np.arange(sizes["N"])[None, :]
    return module, np.broadcast_to(means(rows, columns, sizes), (sizes["M"], sizes["N"]))


SIZES = [
    {"M": 128, "N": 128, "w": 40, "lo": 30},
    {"M": 70, "N": 150, "w": 64, "lo": 64},
    {"M": 150, "N": 70, "w": 1, "lo": 60},
    {"M": 65, "N": 129, "w": 500, "lo": 0},
    {"M": 200, "N": 40, "w": 0, "lo": 500},
    {"M": 1, "N": 1, "w": 2, "lo": -3},
    {"M": 64, "N": 0, "w": 3, "lo": 1},
]


@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("tiles", [(64, 64), (64, 16), (128, 32)])
def test_no_dropped_tile_runs_and_no_kept_one_is_masked(name: str, tiles: tuple[int, int]) -> None:
    for sizes in SIZES:
        if name in SPARSE and sizes["w"] == 0:
            continue
        module, seen = case(name, sizes, tiles)
        kernel = through(module, "split-by-predicates").kernels[0]
        x = inputs_of(module, sizes)
        arrays = {**x, **outputs_for(kernel, sizes, True)}
        trace: Trace = Trace()
        interpret(kernel, arrays, sizes, wide=True, explicit=True, trace=trace)
        out, row = attention_of(x, seen)
        np.testing.assert_allclose(arrays["o"], out, 1e-9, 1e-9)
        np.testing.assert_allclose(arrays["e"], row, 1e-9, 1e-9)
        live, mixed = counted(seen, *tiles)
        found = trace["rounds", LOOP_LINE], trace["masks", MASK_LINE]
        assert found == (live, mixed), (sizes, found, (live, mixed))


@pytest.mark.parametrize("name", ["causal", "window", "prefix", "sinks and a window", "segment"])
def test_parts_run_on_rings_one_after_the_other(name: str) -> None:
    """The cta machine runs the parts: with TMA rings that keep their places from part to part."""
    for sizes in SIZES[:3]:
        condition, _ = CONDITIONS[name]
        module, seen = case(name, sizes, (64, 32))
        facts = Facts(tuple((a, ArrayFacts(1, 16)) for a in ("q", "k", "v", "o")))
        pipeline.record_facts(module.kernels[0], facts)
        x = inputs_of(module, sizes)
        out, row = attention_of(x, seen)
        ctx = Context(TARGET)
        for step in pipeline.remaining(module)[: pipeline.position("place-shared") + 1]:
            pipeline.step(module, pipeline.find_pass(step), ctx)
            if pipeline.position(step) < pipeline.position("form-ctas"):
                continue
            arrays = {k: v.copy() for k, v in x.items()}
            scalars = {n: sizes[n] for n in ("w", "lo") if n in condition}
            run_cta(module.kernels[0], arrays, scalars, wide=True)
            np.testing.assert_allclose(arrays["o"], out, 1e-9, 1e-9, err_msg=step)
            np.testing.assert_allclose(arrays["e"], row, 1e-9, 1e-9, err_msg=step)
        rings = [op for op in module.kernels[0].body.walk() if isinstance(op, cta.MakeRing)]
        assert len(rings) == 1, "all parts share one"


PIPELINED = """
kernel f(a: bf16[M, K], b: bf16[N, K], d: f32[K], o: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        top = -1.0
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
            top = max(top, max(d[k], axis=0))
        o[i, j] = acc + top
"""


@pytest.mark.parametrize("depth", [0, 10, 32, 70, 96, 128])
def test_products_are_pipelined_in_each_part(depth: int) -> None:
    """Each part peels its own first round, and gives back all stages before the next one starts."""
    module = lowered(
        PIPELINED.lstrip(), Schedule(tiles=(("i", 64), ("j", 32), ("k", 32)), stages=3)
    )
    kernel = module.kernels[0]
    pipeline.record_facts(kernel, Facts(tuple((a, ArrayFacts(1, 16)) for a in ("a", "b"))))
    x = inputs_of(module, {"M": 70, "N": 40, "K": depth})
    through(module, "pipeline-products")
    loops = [op for op in kernel.body.walk() if isinstance(op, flow.For)]
    flights = [op for op in loops if any(isinstance(v.type, Flight) for v in op.init)]
    assert len(flights) == 2
    through(module, "place-shared")
    run_cta(kernel, x, {}, wide=True)
    top = max(-1.0, x["d"].max(initial=-np.inf))
    np.testing.assert_allclose(x["o"], x["a"] @ x["b"].T + top, 1e-9, 1e-9)


# --- which rounds change nothing ----------------------------------------------------------------

SUM = "t += rowsum(where(j[None, :] <= i[:, None], x[i, j], {other}))"
CARRIED = """
kernel f(x: f32[M, N], o: out f32[M]):
    for i in parallel(tiles(M)):
        t = full[f32](i, {start})
        u = full[f32](i, {second})
        for j in tiles(N, 16):
            {body}
        o[i] = t + u
"""
SOFTMAX = """s = where(j[None, :] <= i[:, None], x[i, j], -inf)
            r = {anchor}
            p = {weight}
            u = u * {scale} + rowsum(p)
            t = r"""
WEIGHTS = {
    "anchor": "anchor(t, s)",
    "weight": "exp2sub(s, r[:, None])",
    "scale": "exp2sub(t, r)",
}

ROUNDS: dict[str, tuple[str, float | str, float | str, bool]] = {
    "a sum of zeros": (SUM.format(other="0"), 0, 0, True),
    "a sum of ones": (SUM.format(other="1"), 0, 0, False),
    "a maximum of -inf": (
        "t = max(t, rowmax(where(j[None, :] <= i[:, None], x[i, j], -inf)))", 0, 0, True,
    ),
    "a maximum of 0": (
        "t = max(t, rowmax(where(j[None, :] <= i[:, None], x[i, j], 0)))", 0, 0, False,
    ),
    "the other arm": (
        "t = min(t, min(where(j[None, :] <= i[:, None], inf, x[i, j]), axis=1))", 0, 0, True,
    ),
    "scaled by one": ("u = u * 1.0\n            " + SUM.format(other="0"), 0, 0, True),
    "scaled by two": ("u = u * 2\n            " + SUM.format(other="0"), 0, 1, False),
    "rounds are counted": ("u = u + 1\n            " + SUM.format(other="0"), 0, 0, False),
    "weights": (SOFTMAX.format(**WEIGHTS), "-inf", 0, True),
    "weights from a finite start": (SOFTMAX.format(**WEIGHTS), 0, 1, True),
    "weights that are forgotten": (SOFTMAX.format(**WEIGHTS), "-inf", 5, False),
    "plain powers, NaN where a row has nothing": (
        SOFTMAX.format(
            anchor="max(t, rowmax(s))", weight="exp2(s - r[:, None])", scale="exp2(t - r)"
        ),
        "-inf", 0, False,
    ),
    "another function": (
        SOFTMAX.format(
            anchor="max(t, rowmax(s))",
            weight="where(s == -inf, 0, exp(s - r[:, None]))",
            scale="where(t == -inf, 0, exp(t - r))",
        ),
        "-inf", 0, True,
    ),
    "a maximum that starts afresh": (
        SOFTMAX.format(anchor="rowmax(s)", weight=WEIGHTS["weight"], scale="1.0"), 0, 0, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDS)
def test_a_round_is_dropped_only_if_it_changes_nothing(name: str) -> None:
    body, start, second, dropped = ROUNDS[name]
    text = CARRIED.format(start=start, second=second, body=body).lstrip()
    sizes = {"M": 70, "N": 100}
    rng = np.random.default_rng(3)
    x = rng.standard_normal((70, 100)).astype(np.float32)
    results, rounds = [], []
    for last in ("apply-tiles", "split-by-predicates"):
        module = through(lowered(text, Schedule(tiles=(("i", 16), ("j", 16)))), last)
        arrays = {"x": x, **outputs_for(module.kernels[0], sizes)}
        trace: Trace = Trace()
        interpret(module.kernels[0], arrays, explicit=True, trace=trace)
        results.append(arrays["o"])
        rounds.append(trace["rounds", 5])
    np.testing.assert_array_equal(results[0], results[1])
    assert rounds[0] == 5 * 7
    taken = (7 + 6 + 5 + 4 + 3) if name == "the other arm" else (1 + 2 + 3 + 4 + 5)
    assert rounds[1] == (taken if dropped else 35)


def test_a_loop_that_stores_runs_every_round() -> None:
    text = """
kernel f(x: f32[M, N], o: out f32[M], y: out f32[M, N]):
    for i in parallel(tiles(M)):
        t = zeros[f32](i)
        for j in tiles(N):
            t += rowsum(where(j[None, :] <= i[:, None], x[i, j], 0))
            y[i, j] = x[i, j]
        o[i] = t
""".lstrip()
    module = through(lowered(text, Schedule(tiles=(("i", 16), ("j", 16)))), "split-by-predicates")
    sizes = {"M": 40, "N": 64}
    x = np.ones((40, 64), np.float32)
    arrays = {"x": x, **outputs_for(module.kernels[0], sizes)}
    interpret(module.kernels[0], arrays, explicit=True)
    np.testing.assert_array_equal(arrays["y"], x)


def test_bounds_may_be_numbers_from_memory() -> None:
    """Where a row's segment starts and ends is read for each tile; nothing outside it runs."""
    text = """
kernel f(x: f32[M, N], start: s32[M], o: out f32[M]):
    for i in parallel(M):
        lo = start[i]
        t = 0.0
        for j in tiles(N):
            t = t + sum(where((lo <= j) & (j < lo + 20), x[i, j], 0), axis=0)
        o[i] = t
""".lstrip()
    module = through(lowered(text, Schedule(tiles=(("j", 16),))), "split-by-predicates")
    starts = np.array([0, 16, 70, 95, 200, -30], np.int32)
    x = np.random.default_rng(1).integers(0, 9, (6, 100)).astype(np.float32)
    arrays = {"x": x, "start": starts, **outputs_for(module.kernels[0], {"M": 6})}
    trace: Trace = Trace()
    interpret(module.kernels[0], arrays, explicit=True, trace=trace)
    expected = [x[n, max(s, 0) : max(s + 20, 0)].sum() for n, s in enumerate(starts)]
    np.testing.assert_array_equal(arrays["o"], expected)
    touched = [len({j // 16 for j in range(s, s + 20) if 0 <= j < 100}) for s in starts]
    assert trace["rounds", 5] == sum(touched)


def test_ranges_from_memory_are_split_like_axes() -> None:
    """A loop over a segment: the causal diagonal and the segment's end decide what runs."""
    text = """
kernel f(x: f32[M, N], start: s32[2], o: out f32[M]):
    for i in parallel(tiles(M, 16)):
        t = zeros[f32](i)
        lo = start[0]
        for j in tiles(lo, start[1], max=N):
            t += rowsum(where(j[None, :] <= i[:, None], x[i, j], 0))
        o[i] = t
""".lstrip()
    x = np.random.default_rng(1).integers(0, 9, (70, 120)).astype(np.float32)
    for lo, hi in [(0, 120), (7, 100), (33, 40), (90, 120), (50, 50)]:
        module = through(lowered(text, Schedule()), "split-by-predicates")
        loops = [o for o in module.kernels[0].body.walk() if isinstance(o, parts.ForPart)]
        size = int(loops[0].size)
        start = np.array([lo, hi], np.int32)
        arrays = {"x": x, "start": start, **outputs_for(module.kernels[0], {"M": 70})}
        trace: Trace = Trace()
        interpret(module.kernels[0], arrays, explicit=True, trace=trace)
        seen = np.tri(70, 120, dtype=bool) & (np.arange(120) >= lo) & (np.arange(120) < hi)
        np.testing.assert_array_equal(arrays["o"], np.where(seen, x, 0).sum(1))
        live = sum(
            bool(seen[i : i + 16, j : min(j + size, hi)].any())
            for i in range(0, 70, 16)
            for j in range(lo, hi, size)
        )
        assert trace["rounds", 5] == live
