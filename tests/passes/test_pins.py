"""Layouts and swizzles that the author pins: obeyed, priced, or refused with one that would do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.passes.programs import Program
from tests.passes.test_meaning import TARGET, check_everywhere, lowered, promised, unpromised
from tilec import pipeline
from tilec.ir.core import Module
from tilec.ir.declare import Refused
from tilec.ir.facts import Schedule
from tilec.ir.levels import cta
from tilec.ir.types import Register, Shared
from tilec.layout.fragments import accumulator
from tilec.layout.linear import Layout
from tilec.layout.shared import swizzle_of
from tilec.passes.base import Context

OWN = "(reg: j1 j2 i8 i16 i32 | lane: j4 j8 j16 j32 i1 | warp: i2 i4)"
MIXED = "(reg: i2 i4 j32 j64 i32 | lane: j1 j2 j4 j8 j16 | warp: i8 i1 i16)"

PROGRAMS = {
    "a loop, a reduction and its result": Program(
        f"""
kernel f(x: f32[M, N], y: out f32[M, N], z: out f32[M]):
    for i in parallel(tiles(M, 64)):
        m = full[f32](i, -inf)
        for j in tiles(N, 64):
            register["{OWN}"] a = x[i, j] * 2
            m = max(m, rowmax(a))
            y[i, j] = a
        z[i] = m
""",
        {"x": "MN", "y": "MN", "z": "M"},
        lambda x: {"y": 2 * x.x, "z": 2 * x.x.max(1)},
        sizes={"M": 70, "N": 100},
    ),
    "three pins along the same axes, one of them carried": Program(
        f"""
kernel f(x: f32[M, 128], y: out f32[M, 128], z: out f32[M]):
    schedule warpgroups=2
    for i in parallel(tiles(M, 64)):
        register["{MIXED}"] acc = zeros[f32](i, 128)
        for t in range(3):
            register[rows] a = x[i, :] * 2
            register[accumulator] b = a + 1
            acc = acc + b
            y[i, :] = a - rowsum(b)[:, None]
        z[i] = rowsum(acc)
""",
        {"x": "MD", "y": "MD", "z": "M"},
        lambda x: {
            "y": 2 * x.x - (2 * x.x + 1).sum(1)[:, None],
            "z": 3 * (2 * x.x + 1).sum(1),
        },
        sizes={"M": 70, "D": 128},
    ),
    "a product's operands, result and what is made of it": Program(
        """
kernel f(a: bf16[M, K], b: bf16[N, K], c: out f32[M, N], d: out f32[M, N]):
    for i, j in parallel(tiles(M, 64), tiles(N, 64)):
        register[rows] acc = zeros[f32](i, j)
        for k in tiles(K, 64):
            register[operand] p = a[i, k] * 2
            shared[swizzle=64] q = b[j, k]
            acc += p @ q.T
        register[vectors] out = acc + 1
        c[i, j] = out
        shared[swizzle=32] e = out * 2
        d[i, j] = e
""",
        {"a": "MK", "b": "NK", "c": "MN", "d": "MN"},
        lambda x: {"c": 2 * x.a @ x.b.T + 1, "d": 4 * x.a @ x.b.T + 2},
    ),
    "vectors, in a branch too": Program(
        """
kernel f(h: f32[M], y: out f32[M]):
    for i in parallel(tiles(M, 256)):
        register["(reg: i64 | lane: i1 i2 i4 i8 i16 | warp: i32 i128)"] v = h[i] * 2
        if len(i) > 100:
            register["(reg: i1 i64 | lane: i2 i4 i8 i16 i32 | warp: i128)"] v = v + 1
        y[i] = v + cumsum(full[f32](i, 1), axis=0)
""",
        {"h": "M", "y": "M"},
        lambda x: {"y": 2 * x.h + 2 + np.arange(200.0)},
        sizes={"M": 200},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_pinned_layouts_change_nothing_that_is_computed(name: str) -> None:
    program = PROGRAMS[name]
    check_everywhere(program, promised(program, program.sizes, 16), Schedule())
    check_everywhere(program, unpromised(program.sizes), Schedule())


def _formed(text: str, schedule: Schedule | None = None) -> tuple[Module, Context]:
    """A program after ``form-ctas``, and what the passes said."""
    names = re.findall(r"(\w): (?:out )?\w+\[([^]]*)\]", text)
    shapes = {name: axes.replace(", ", "") for name, axes in names}
    program = Program(text, shapes, lambda x: {})
    sizes = {axis: 1024 for axes in shapes.values() for axis in axes}
    module, ctx = (
        lowered(program, promised(program, sizes, 16), schedule or Schedule()),
        Context(TARGET),
    )
    pipeline.run(module, ctx, stop_after="form-ctas")
    return module, ctx


def _layouts(module: Module, name: str) -> set[Layout]:
    return {
        value.type.layout
        for op in module.kernels[0].body.walk()
        for value in op.results
        if isinstance(value.type, Register) and (value.name or "").split(".")[0] == name
    }


ELEMENTWISE = """
kernel f(x: f32[M, N], y: out f32[M, N]):
    for i, j in parallel(tiles(M, 64), tiles(N, 64)):
        register[{}] a = x[i, j] * 2
        y[i, j] = a + 1
"""


def test_a_pin_that_nothing_contradicts_is_the_layout_of_everything_and_moves_nothing() -> None:
    module, ctx = _formed(ELEMENTWISE.format(f'"{OWN}"'))
    used = {
        value.type.layout
        for op in module.kernels[0].body.walk()
        for value in op.results
        if isinstance(value.type, Register)
    }
    assert used == {Layout.parse(OWN)}
    assert not any(isinstance(op, cta.Put) for op in module.kernels[0].body.walk())
    assert any("nothing moves" in r.text and r.line == 3 for r in ctx.remarks)


def test_names_stand_for_layouts() -> None:
    module, _ = _formed(ELEMENTWISE.format("accumulator"))
    assert _layouts(module, "a") == {accumulator(64)}


TWO_GROUPS = """
kernel f(a: bf16[M, K], b: bf16[N, K], c: out bf16[M, N]):
    for i, j in parallel(tiles(M, 128), tiles(N, 64)):
        acc = zeros[f32](i, j)
        for k in tiles(K, 64):
            acc += a[i, k] @ b[j, k].T
        register["{}"] out = cast[bf16](acc)
        c[i, j] = out * 2
"""
WHOLE = "(reg: j1 j2 j4 i8 i16 i32 | lane: j8 j16 j32 i1 i2 | warp: i4 _ i64)"
PART = "(reg: j1 j2 j4 i8 i16 i32 | lane: j8 j16 j32 i1 i2 | warp: i4 _)"


@pytest.mark.parametrize("given", [WHOLE, PART])
def test_a_layout_is_of_the_whole_tile_or_of_a_groups_part(given: str) -> None:
    module, ctx = _formed(TWO_GROUPS.format(given))
    assert Layout.parse(PART) in _layouts(module, "out")
    assert any("it is converted for other uses" in r.text for r in ctx.remarks)
    assert any("through 16384 bytes of shared memory" in r.text for r in ctx.remarks)


def test_swizzles_are_pinned_where_a_tile_gets_its_name() -> None:
    text = PROGRAMS["a product's operands, result and what is made of it"].text
    module, _ = _formed(text)
    kernel = module.kernels[0]
    assert dict(kernel.schedule["swizzles"]) == {"b": 64}
    widths = {
        swizzle_of(op.out.type.layout)
        for op in kernel.body.walk()
        if isinstance(op, cta.Buffer) and op.out.name == "e" and isinstance(op.out.type, Shared)
    }
    assert widths == {32}


def test_the_schedule_wins_over_a_pinned_swizzle() -> None:
    text = PROGRAMS["a product's operands, result and what is made of it"].text
    module, ctx = _formed(text, Schedule(swizzles=(("b", 128),)))
    assert dict(module.kernels[0].schedule["swizzles"]) == {"b": 128}
    assert any("swizzles.b = 128 in the schedule wins" in r.text for r in ctx.remarks)


REFUSED = {
    "another tile": (
        "(reg: j1 j2 | lane: j4 j8 j16 i1 i2 | warp: i4 i8)",
        r"of 16 x 32 .* has 64 x 64",
    ),
    "too many warps": (OWN.replace("i16 i32", "i16").replace("i4)", "i4 i32)"), "8 warps, and 4"),
    "too many registers": (
        "(reg: j1*64 i1 i2 i4 i8 | lane: i16 i32 | warp: _)",
        "takes 1024 registers of a thread, which has 255",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_a_layout_that_would_do(name: str) -> None:
    layout, reason = REFUSED[name]
    with pytest.raises(Refused, match=reason) as caught:
        _formed(ELEMENTWISE.format(f'"{layout}"'))
    assert "line 3" in str(caught.value)
    near = re.search(r'would do is "(.*)"', str(caught.value))
    assert near is not None
    _formed(ELEMENTWISE.format(f'"{near.group(1)}"'))


def test_one_tile_is_not_pinned_in_two_ways() -> None:
    text = ELEMENTWISE.format("rows") + "        register[vectors] b = a\n"
    with pytest.raises(Refused, match="pinned in two ways"):
        _formed(text)
