"""Places computed while running, and updates in place: after every pass what the source says.

Each program runs on the interpreter and then, after each pass of level ``cta``, on the small
machine: with what a launch promises about arrays and with nothing promised, and at sizes around the
edges. Coordinates reach out of the arrays on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilec import pipeline
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.cta.run import run_cta
from tilec.interp.interpret import choose_sizes, interpret
from tilec.ir.core import Module
from tilec.ir.facts import ArrayFacts, Facts
from tilec.passes.base import Context
from tilec.runtime import trial
from tilec.source import SourceFile
from tilec.targets import by_name

TARGET = by_name("90")
CTA_PASSES = ("form-ctas", "split-roles", "pipeline-products", "overlap-stores", "weave")
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Program:
    """A source, and the part of its arrays that NumPy says it writes."""

    text: str
    means: Callable[[Any], Arrays]


def _inside(places: np.ndarray, extent: int) -> np.ndarray:
    return (places >= 0) & (places < extent)


def _taken(x: np.ndarray, rows: np.ndarray, fill: float) -> np.ndarray:
    """Rows of ``x``, and ``fill`` where there is none."""
    out = np.full((len(rows), *x.shape[1:]), fill, x.dtype)
    ok = _inside(rows, len(x))
    out[ok] = x[rows[ok]]
    return out


def _one_each(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    """One element of each row, -1 where there is none."""
    columns = np.clip(places, 0, max(x.shape[1] - 1, 0))
    ok = _inside(places, x.shape[1])
    return np.array([x[i, columns[i]] if ok[i] else -1 for i in range(len(x))], x.dtype)


def _put(y: np.ndarray, rows: np.ndarray, value: np.ndarray) -> np.ndarray:
    out = y.copy()
    ok = _inside(rows, len(y))
    out[rows[ok]] = value[ok]
    return out


def _added(y: np.ndarray, rows: np.ndarray, value: Any) -> np.ndarray:
    out = y.copy()
    ok = _inside(rows, len(y))
    np.add.at(out, rows[ok], np.broadcast_to(value, (len(rows), *y.shape[1:]))[ok])
    return out


PROGRAMS = {
    "one of each": Program(
        """
kernel f(x: f32[M, N], p: s32[M], y: out f32[M]):
    for i in parallel(tiles(M)):
        y[i] = x.at(i, p[i], fill=-1)
""",
        lambda a: {"y": _one_each(a.x, a.p)},
    ),
    "rows by number": Program(
        """
kernel f(x: f32[M, N], p: s32[T], y: out f32[T, N]):
    for i, j in parallel(tiles(T), tiles(N)):
        y[i, j] = x.at(p[i], j, fill=7)
""",
        lambda a: {"y": _taken(a.x, a.p, 7)},
    ),
    "sums of rows by number": Program(
        """
kernel f(x: f32[M, N], p: s32[T], y: out f32[T]):
    for i in parallel(tiles(T)):
        total = zeros[f32](i)
        for j in tiles(N):
            total += rowsum(x.at(p[i], j - 1, fill=0))
        y[i] = total
""",
        lambda a: {"y": _taken(a.x, a.p, 0)[:, : max(a.x.shape[1] - 1, 0)].sum(1)},
    ),
    "rows to numbers": Program(
        """
kernel f(x: f32[T, N], q: s32[T], y: inout f32[M, N]):
    for i, j in parallel(tiles(T), tiles(N)):
        y.at(q[i], j, drop) = x[i, j]
""",
        lambda a: {"y": _put(a.y, a.q, a.x)},
    ),
    "a product of gathered rows": Program(
        """
kernel f(x: bf16[M, N], p: s32[T], w: bf16[K, N], y: out f32[T, K]):
    for i, j in parallel(tiles(T), tiles(K)):
        acc = zeros[f32](i, j)
        for k in tiles(N):
            acc += x.at(p[i], k, fill=0) @ w[j, k].T
        y[i, j] = acc
""",
        lambda a: {"y": _taken(a.x, a.p, 0) @ a.w.T},
    ),
    "sums into rows": Program(
        """
kernel f(x: f32[T, N], p: s32[T], y: inout f32[M, N]):
    for i, j in parallel(tiles(T), tiles(N)):
        y.at(p[i], j, drop) += x[i, j]
""",
        lambda a: {"y": _added(a.y, a.p, a.x)},
    ),
    "counts": Program(
        """
kernel f(p: s32[T], y: inout s32[M]):
    for i in parallel(tiles(T)):
        y.at(p[i], drop) += 1
""",
        lambda a: {"y": _added(a.y, a.p, 1)},
    ),
    "every tile into one": Program(
        """
kernel f(x: f32[T, N], y: inout f32[N], most: inout s32[1], z: inout f32[N]):
    for i in parallel(tiles(T, 16)):
        for j in tiles(N):
            y[j] += sum(x[i, j], axis=0)
            atomic_max(z[j], max(x[i, j], axis=0))
        atomic_max(most[0], len(i))
""",
        lambda a: {
            "y": a.y + a.x.sum(0),
            "z": np.maximum(a.z, a.x.max(0, initial=-np.inf)),
            "most": np.maximum(a.most, min(16, len(a.x))),
        },
    ),
    "tickets": Program(
        """
kernel f(p: s32[T], y: inout s32[M], total: inout s32[1], z: out s32[T]):
    for i in parallel(tiles(T)):
        first = atomic_add(total[0], 0)
        old = atomic_exchange(y.at(i, fill=first), -5)
        z[i] = old
""",
        lambda a: {
            "z": _taken(a.y, np.arange(len(a.p)), int(a.total[0])),
            "y": np.where(np.arange(len(a.y)) < len(a.p), -5, a.y),
        },
    ),
    "exchanged where equal": Program(
        """
kernel f(v: s32[M], y: inout s32[M], z: out s32[M]):
    for i in parallel(tiles(M)):
        z[i] = atomic_compare_exchange(y[i], v[i], 100)
""",
        lambda a: {"z": a.y, "y": np.where(a.y == a.v, 100, a.y)},
    ),
    "written and read again": Program(
        """
kernel f(x: f32[M], y: inout f32[M], z: out f32[M]):
    for g in parallel(1):
        for i in tiles(M):
            y[i] = x[i]
        for i in tiles(M):
            z[i] = y.at(M - 1 - i, fill=0)
""",
        lambda a: {"y": a.x, "z": a.x[::-1]},
    ),
}  # fmt: skip
SIZES = [
    {"M": 72, "N": 64, "T": 130, "K": 16},
    {"M": 17, "N": 50, "T": 15, "K": 33},
    {"M": 1, "N": 1, "T": 1, "K": 1},
    {"M": 5, "N": 128, "T": 0, "K": 64},
    {"M": 33, "N": 0, "T": 16, "K": 5},
    {"M": 65, "N": 16, "T": 129, "K": 80},
]


def built(program: Program, facts: Facts) -> Module:
    """The program at level ``tile``, with its promises."""
    module = lower(check(parse(SourceFile("f.tk", program.text.lstrip("\n"))), {}), "f")
    module.target = TARGET.name
    pipeline.record_facts(module.kernels[0], facts)
    return module


def inputs_of(module: Module, sizes: dict[str, int]) -> Arrays:
    """Small integers, so that sums are exact in any order; places reach out of the arrays."""
    rng = np.random.default_rng(11)
    found: Arrays = {}
    for name, type in trial.array_parameters(module.kernels[0]).items():
        shape = tuple(sizes[e] if isinstance(e, str) else e for e in type.shape)
        if name == "q":  # places that differ
            found[name] = rng.permutation(shape[0]).astype(np.int32) - 2
        elif name == "p":
            found[name] = rng.integers(-3, sizes["M"] + 3, shape).astype(np.int32)
        elif type.dtype.is_float:
            found[name] = rng.integers(-4, 5, shape).astype(np.float32)
        else:
            found[name] = rng.integers(0, 3, shape).astype(np.int32)
    return found


def means(program: Program, arrays: Arrays) -> Arrays:
    """What NumPy says."""
    return program.means(type("Given", (), dict(arrays)))


def same(found: Arrays, expected: Arrays, where: str) -> None:
    """The arrays that are written hold what they should."""
    for name, value in expected.items():
        np.testing.assert_array_equal(
            np.asarray(found[name], np.float64), np.asarray(value, np.float64), f"{name} {where}"
        )


@pytest.mark.parametrize("sizes", SIZES, ids=lambda s: "-".join(map(str, s.values())))
@pytest.mark.parametrize("promised", [True, False], ids=["promised", "nothing known"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_go_where_they_say(name: str, promised: bool, sizes: dict[str, int]) -> None:
    program = PROGRAMS[name]
    kernel = built(program, Facts()).kernels[0]
    arrays = trial.array_parameters(kernel)
    facts = Facts((), tuple(sizes.items()))
    if promised:
        known = tuple((n, ArrayFacts(len(t.shape) - 1, 16)) for n, t in arrays.items())
        facts = Facts(known, tuple(sizes.items()), tuple((n, s & -s) for n, s in sizes.items()))
    module = built(program, facts)
    inputs = inputs_of(module, sizes)
    expected = means(program, inputs)
    ctx = Context(TARGET)
    for step in pipeline.PIPELINE[: pipeline.position("place-shared") + 1]:
        pipeline.step(module, pipeline.find_pass(step), ctx)
        if step not in CTA_PASSES:
            continue
        found = {n: v.astype(np.float64) for n, v in inputs.items()}
        run_cta(module.kernels[0], found, {}, wide=True)
        same(found, expected, step)


@pytest.mark.parametrize("sizes", SIZES, ids=lambda s: "-".join(map(str, s.values())))
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_interpreter_agrees(name: str, sizes: dict[str, int]) -> None:
    program = PROGRAMS[name]
    module = built(program, Facts((), tuple(sizes.items())))
    inputs = inputs_of(module, sizes)
    expected = means(program, inputs)
    narrow = {n for n, t in trial.array_parameters(module.kernels[0]).items() if t.dtype.bits == 16}
    for choice in (0, 1):
        kernel = module.kernels[0]
        arrays = {
            n: (v.view(np.uint32) >> 16).astype(np.uint16) if n in narrow else v.copy()
            for n, v in inputs.items()
        }
        used = {n: s for n, s in sizes.items() if n in kernel_dims(kernel)}
        interpret(kernel, arrays, {}, choose_sizes(kernel, used, choice))
        same(arrays, expected, f"choice {choice}")


def kernel_dims(kernel: Any) -> set[str]:
    """The dimensions that a kernel's arrays name."""
    shapes = [t.shape for t in trial.array_parameters(kernel).values()]
    return {e for shape in shapes for e in shape if isinstance(e, str)}
