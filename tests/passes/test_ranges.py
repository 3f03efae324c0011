"""Bounds of integers hold for every value that the operands can have, wrap-around included."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.select.simt import Array, Machine
from tilec.ir.core import Builder, Op, Region, Value
from tilec.ir.levels import cta, flow, math
from tilec.ir.levels.ptx import Alu
from tilec.ir.parser import parse_module
from tilec.ir.types import S32, Scalar
from tilec.ir.types import Array as ArrayType
from tilec.passes.base import Context
from tilec.passes.constants import evaluate
from tilec.passes.ranges import Ranges, type_bounds
from tilec.pipeline import run
from tilec.targets import by_name

LOW, HIGH = type_bounds(S32)


class Program:
    """Scalars with known bounds, and ops on them."""

    def __init__(self) -> None:
        self.region = Region()
        self.build = Builder(self.region)

    def constant(self, value: int) -> Value[Any]:
        """A literal."""
        return self.build.add(math.Constant(value, type=Scalar(S32))).out

    def between(self, low: int, high: int) -> Value[Any]:
        """A value of which no more is known than these bounds."""
        anything = Value(Scalar(S32))
        raised = self.build.add(math.Max(anything, self.constant(low))).out
        return self.build.add(math.Min(raised, self.constant(high))).out

    def bounds(self, value: Value[Any]) -> Any:
        """What is found out about a value."""
        return Ranges(self.region).bounds(value)


BINARY = [math.Add, math.Sub, math.Mul, math.Min, math.Max, math.FloorDiv, math.Mod, math.CeilDiv]
EDGES = [(-3, 2), (0, 0), (0, 3), (1, 4), (2, 2), (HIGH - 1, HIGH), (LOW, LOW + 1), (-1, HIGH)]


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
def test_no_result_is_outside_its_bounds(op: type[Op]) -> None:
    for x, y in itertools.product(EDGES, EDGES):
        program = Program()
        made = program.build.add(op(program.between(*x), program.between(*y)))
        low, high = program.bounds(made.results[0])
        for values in itertools.product(_some(x), _some(y)):
            found = evaluate(made, list(values))
            assert found is None or low <= found <= high, (op.__name__, values)


def _some(bounds: tuple[int, int]) -> list[int]:
    low, high = bounds
    return sorted({low, high, *(v for v in (-2, -1, 0, 1, 2, 3) if low <= v <= high)})


def test_a_product_that_may_wrap_may_be_negative() -> None:
    program = Program()
    large = program.between(0, HIGH)
    made = program.build.add(math.Mul(large, program.constant(2))).out
    assert program.bounds(made) == (LOW, HIGH)
    small = program.build.add(math.Mul(program.between(0, 9), program.constant(2))).out
    assert program.bounds(small) == (0, 18)


def test_what_a_floor_division_leaves_is_under_the_divisor() -> None:
    program = Program()
    x, y = program.between(-100, 100), program.between(1, 7)
    quotient = program.build.add(math.FloorDiv(x, y)).out
    back = program.build.add(math.Mul(quotient, y)).out
    assert program.bounds(program.build.add(math.Sub(x, back)).out) == (0, 6)
    assert program.bounds(program.build.add(math.Sub(quotient, back)).out)[0] < 0


@pytest.mark.parametrize(("step", "known"), [(1, True), (0, False), (-1, False)])
def test_a_loop_s_index_starts_at_its_lower_bound_if_it_counts_up(step: int, known: bool) -> None:
    program = Program()
    body = Region([], [flow.Yield(())])
    index = body.add_arg(Scalar(S32), "i")
    bounds = (program.between(5, 8), program.between(LOW, 20), program.constant(step))
    program.build.add(flow.For(*bounds, (), body=body))
    assert program.bounds(index) == ((5, 19) if known else (LOW, HIGH))


def test_extents_and_numbers_of_ctas_are_never_negative() -> None:
    program = Program()
    array = program.region.add_arg(ArrayType(S32, ("M",), "in"), "a")
    extent = program.build.add(cta.ExtentOf(array, axis=0)).out
    index = program.build.add(cta.CtaIndex()).out
    count = program.build.add(cta.CtaCount()).out
    ranges = Ranges(program.region)
    assert all(map(ranges.never_negative, (extent, index, count)))
    assert not ranges.never_negative(program.build.add(math.Sub(extent, index)).out)


# --- what selection makes of it ------------------------------------------------------------------

OPS = ("floordiv", "mod", "ceildiv")
KERNEL = """tir 1 level cta target sm_90a
#v = (reg: i1 | lane: i2 i4 i8 i16 i32)
kernel @k {{threads = 32, shared_bytes = 0}}
{{ |%x: array<s32, 64, in>, %y: array<s32, 64, in>, %out: array<s32, 64, out>|
  cta.grid(%one)
  cta.role() {{label = all, first = 0, warps = 1, group = 1}} {{ |%group: s32|
    %zero = math.constant() {{value = 0}} : s32
    %a = cta.read(%x, %zero) {{axes = (0,)}} : reg<s32, 64, #v>
    %b = cta.read(%y, %zero) {{axes = (0,)}} : reg<s32, 64, #v>
    {clamp}
    %q = math.{op}(%c, %d) : reg<s32, 64, #v>
    cta.write(%out, %q, %zero) {{axes = (0,)}}
    flow.yield()
  }}
}}
"""
CLAMPED = """%one = math.constant() {value = 1} : s32
    %c = math.max(%a, %zero) : reg<s32, 64, #v>
    %d = math.max(%b, %one) : reg<s32, 64, #v>"""
FREE = """%one = math.constant() {value = 1} : s32
    %c = math.max(%a, %a) : reg<s32, 64, #v>
    %d = math.max(%b, %b) : reg<s32, 64, #v>"""


@pytest.mark.parametrize("op", OPS)
def test_division_without_signs_gives_the_same_bits(op: str) -> None:
    edges = [0, 1, 2, 3, 7, 1000, HIGH - 1, HIGH]
    x, y = (np.array(v, np.int32).ravel() for v in np.meshgrid(edges, [1, *edges[1:]]))
    found, opcodes = {}, {}
    for name, clamp in {"clamped": CLAMPED, "free": FREE}.items():
        found[name], opcodes[name] = _run(op, clamp, x, y)
    exact = {"floordiv": x // y, "mod": x % y, "ceildiv": -(-x.astype(np.int64) // y)}[op]
    for name in found:
        np.testing.assert_array_equal(found[name], exact, err_msg=name)
    assert "div.u32" in opcodes["clamped"]
    assert "div.s32" not in opcodes["clamped"]
    assert "div.s32" in opcodes["free"]
    assert len(opcodes["clamped"]) < len(opcodes["free"])


def _run(op: str, clamp: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, list[str]]:
    text = KERNEL.format(op=op, clamp=clamp).replace(
        "  cta.grid(%one)\n", "  %tiles = math.constant() {value = 1} : s32\n  cta.grid(%tiles)\n"
    )
    module = parse_module(text)
    context = Context(by_name(module.target))
    run(module, context, start_after="place-shared", stop_after="select-instructions")
    (kernel,) = module.kernels
    arrays = {
        name: Array(np.frombuffer(values.tobytes(), np.uint8), 0, (64,), (1,))
        for name, values in {"x": x, "y": y, "out": np.zeros_like(x)}.items()
    }
    out = Machine(kernel, arrays).run()["out"]
    opcodes = [op.opcode for op in kernel.body.walk() if isinstance(op, Alu)]
    return np.frombuffer(out.tobytes(), np.int32), opcodes
