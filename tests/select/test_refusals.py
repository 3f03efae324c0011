"""What selection declines, and the reason that it gives: one small kernel each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu.cta_text import Text
from tilec.compiler import compile_source
from tilec.diagnostics import DiagnosticError
from tilec.ir.declare import Refused
from tilec.ir.parser import parse_module
from tilec.ir.verify import VerifyError
from tilec.layout.fragments import accumulator, blocked
from tilec.layout.linear import Layout
from tilec.layout.shared import swizzled
from tilec.passes.base import Context
from tilec.pipeline import run
from tilec.source import SourceFile
from tilec.targets import by_name

Build = Callable[[Text], None]
CASES: list[tuple[str, str, Build]] = []

LINE = Layout.parse("(reg: i1 i2 | lane: i4 i8 i16 i32 i64 | warp: i128 i256)")
ACC = accumulator(64)
SQUARE = swizzled(64, 64, 16, 128)


def refused(because: str) -> Callable[[Build], Build]:
    """The body of a role (or, named ``top_...``, of the kernel) that is refused for a reason."""

    def register(build: Build) -> Build:
        CASES.append((build.__name__.replace("_", " "), because, build))
        return build

    return register


def line(text: Text, dtype: str, value: object = 0) -> str:
    """A tile of one number."""
    one = text.constant(value, dtype)
    return str(text.op("math.fill", one, type=text.reg(dtype, LINE)))


def loaded(text: Text, dtype: str, layout: Layout = LINE) -> str:
    """A tile out of memory."""
    x = text.array("x", dtype, layout.shape)
    rank = range(layout.rank)
    return text.read(x, text.reg(dtype, layout), [text.zero for _ in rank], list(rank))


def unary(name: str, dtype: str) -> Build:
    """An op on a tile out of memory."""
    return lambda text: text.op(name, loaded(text, dtype), type=text.reg(dtype, LINE))


def binary(name: str, dtype: str, out: str = "", **more: object) -> Build:
    """An op on a tile out of memory and itself."""

    def build(text: Text) -> None:
        x = loaded(text, dtype)
        text.op(name, x, x, type=text.reg(out or dtype, LINE), **more)

    return build


def cast(source: str, target: str) -> Build:
    """A cast of a tile out of memory."""
    return lambda text: text.op(
        "math.cast", loaded(text, source), type=text.reg(target, LINE), dtype=target
    )


CASES += [
    ("add bool", "this operation is not defined on bool", binary("math.add", "bool")),
    ("and f32", "this is not defined on f32", binary("math.and", "f32")),
    ("exp2 f64", "GPUs have no instruction for this on f64", unary("math.exp2", "f64")),
    ("exp f64", "GPUs have no instruction for this on f64", unary("math.exp", "f64")),
    ("sqrt s32", "this is not defined on s32", unary("math.sqrt", "s32")),
    ("shift f32", "shifts are not defined on f32", binary("math.shl", "f32")),
    ("divide f32", "integer division is not defined on f32", binary("math.floordiv", "f32")),
    (
        "order of bools",
        "bools are compared with == and != only",
        binary("math.compare", "bool", "bool", relation="lt"),
    ),
]


@refused("inf is not a value of s32")
def an_infinite_integer(text: Text) -> None:
    text.constant(float("inf"), "s32")


# --- registers -----------------------------------------------------------------------------------


def reduce(op: str, dtype: str, kind: str, layout: Layout = ACC, axis: int = 1) -> Build:
    """A reduction of a tile out of memory."""

    def build(text: Text) -> None:
        thread = op == "cta.reduce_thread"
        to = layout.keep_lanes(axis) if thread else layout.drop(axis)
        value = loaded(text, dtype, layout)
        text.op(op, value, type=text.reg(dtype, to), axis=axis, kind=kind)

    return build


LANES = ACC.keep_lanes(1)
TILTED = Layout.parse("(reg: i1*1 | lane: j1 i1^j2 i2 i4 i8 | warp: i16 i32)")
CASES += [
    ("reduce bool", "bool cannot be combined by max", reduce("cta.reduce_thread", "bool", "max")),
    ("reduce and", "f32 cannot be combined by and", reduce("cta.reduce_thread", "f32", "and")),
    (
        "lanes and registers",
        "still spread over registers",
        reduce("cta.reduce_lanes", "f32", "add"),
    ),
    ("tilted", "moves along two axes", reduce("cta.reduce_lanes", "f32", "add", TILTED)),
]


def exchange(dtype: str, count: int, vector: Layout, kind: str = "max") -> Build:
    """An exchange through a buffer of some elements."""

    def build(text: Text) -> None:
        type = text.shared("f32", Layout.parse(f"(off: i1*{count})"))
        buffer = text.op("cta.buffer", type=type, offset=0)
        value = loaded(text, dtype, vector)
        type = text.reg(dtype, vector)
        text.op("cta.exchange", value, buffer, type=type, kind=kind, barrier=1)

    return build


FOUR = Layout.parse("(reg: i1 i2 | lane: _*32 | warp: _*4)")
CASES += [
    ("small buffer", "one element for each row and warp", exchange("f32", 15, FOUR)),
    (
        "three parts",
        "a number of warps that is no power of two",
        exchange("f32", 16, Layout.parse("(reg: i1 i2 | lane: _*32 | warp: _*3)")),
    ),
]


@refused("the result's layout must be")
def expand_to_another_layout(text: Text) -> None:
    other = Layout.parse("(reg: i2 i1 | lane: i4 i8 i16 i32 i64 | warp: i128 i256)")
    type = text.reg("f32", other.insert(1))
    text.op("math.expand", line(text, "f32", 0.0), type=type, axis=1)


@refused("scalars need no broadcast")
def broadcast_of_a_scalar(text: Text) -> None:
    text.op("math.broadcast", text.zero, type=text.reg("s32", LINE))


@refused("broadcast one axis at a time")
def broadcast_of_two_axes(text: Text) -> None:
    one = Layout.parse("(reg: i1*1 j1*1 | lane: _*32 | warp: _*4)")
    value = text.op("math.fill", text.constant(0.0, "f32"), type=text.reg("f32", one))
    text.op("math.broadcast", value, type=text.reg("f32", ACC))


@refused("another layout takes a cta.convert")
def broadcast_that_converts(text: Text) -> None:
    value = loaded(text, "f32", ACC)
    text.op("math.broadcast", value, type=text.reg("f32", blocked((64, 64), 128, 4, 32)))


@refused("is held by other threads (lane)")
def slice_for_other_threads(text: Text) -> None:
    to = blocked((64, 32), 128, 4, 32)
    text.op("cta.slice", loaded(text, "f32", ACC), type=text.reg("f32", to), axis=1, start=0)


@refused("no register holds element")
def slice_beyond_the_tile(text: Text) -> None:
    type = text.reg("f32", accumulator(32))
    text.op("cta.slice", loaded(text, "f32", ACC), type=type, axis=1, start=48)


@refused("needs an exchange between threads")
def convert_between_threads(text: Text) -> None:
    to = blocked((64, 64), 128, 4, 32)
    value = loaded(text, "f32", ACC)
    text.op("cta.convert", value, type=text.reg("f32", to), layout=text.layout(to))


# --- shared memory -------------------------------------------------------------------------------


def buffer(text: Text, dtype: str, layout: Layout, offset: int = 0) -> str:
    """A tile in shared memory."""
    return str(text.op("cta.buffer", type=text.shared(dtype, layout), offset=offset))


@refused("shared memory has offsets")
def top_buffer_without_a_place(text: Text) -> None:
    buffer(text, "bf16", SQUARE, offset=-1)


@refused("shared memory has offsets")
def top_ring_without_a_place(text: Text) -> None:
    text.op("cta.ring", type=f"ring<2, [{text.shared('bf16', SQUARE)}]>")


@refused("a stage holds shared tiles")
def top_ring_of_registers(text: Text) -> None:
    text.op("cta.ring", type=f"ring<2, [{text.reg('f32', LINE)}]>", offset=0, barriers=0)


@refused("does not fit")
def put_of_another_shape(text: Text) -> None:
    tile = buffer(text, "bf16", SQUARE)
    text.op("cta.put", tile, loaded(text, "bf16", accumulator(32)), instruction="store")


@refused("does not give")
def get_of_another_type(text: Text) -> None:
    tile = buffer(text, "bf16", SQUARE)
    text.op("cta.get", tile, type=text.reg("f16", ACC), instruction="load")


@refused("bool tiles are not stored in shared memory")
def put_of_bools(text: Text) -> None:
    tile = buffer(text, "bool", swizzled(64, 64, 8, 0))
    text.op("cta.put", tile, loaded(text, "bool", ACC), instruction="store")


@refused("bool tiles are not stored in shared memory")
def get_of_bools(text: Text) -> None:
    tile = buffer(text, "bool", swizzled(64, 64, 8, 0))
    text.op("cta.get", tile, type=text.reg("bool", ACC), instruction="load")


@refused("sm_90a has no mma.sync of bf16 by f16 to f32")
def fragments_of_two_types(text: Text) -> None:
    a, b = buffer(text, "bf16", SQUARE), buffer(text, "f16", SQUARE)
    text.op("mma.product", a, b, type=text.reg("f32", ACC))


@refused("mma.sync's result has the layout")
def fragments_in_other_places(text: Text) -> None:
    a, b = buffer(text, "bf16", SQUARE), buffer(text, "bf16", SQUARE)
    text.op("mma.product", a, b, type=text.reg("f32", blocked((64, 64), 128, 2, 32)))


@refused("an operand in registers needs the layout")
def fragments_in_other_registers(text: Text) -> None:
    a, b = buffer(text, "bf16", SQUARE), loaded(text, "bf16", ACC)
    text.op("mma.product", a, b, type=text.reg("f32", ACC))


@refused("mma.sync gives multiples of 16 rows and 8 columns")
def fragments_of_eight_rows(text: Text) -> None:
    a, b = buffer(text, "bf16", swizzled(8, 64, 16, 128)), buffer(text, "bf16", SQUARE)
    text.op("mma.product", a, b, type=text.reg("f32", blocked((8, 64), 128, 2, 32)))


@refused("K = 8 is no multiple of 16")
def fragments_of_half_a_step(text: Text) -> None:
    tile = buffer(text, "bf16", swizzled(64, 8, 16, 0))
    text.op("mma.product", tile, tile, type=text.reg("f32", ACC))


@refused("no full 32-bit register of packed elements")
def matrices_of_single_halves(text: Text) -> None:
    tile = buffer(text, "bf16", swizzled(32, 8, 16, 0))
    layout = Layout.parse("(lane: j1 j2 j4 i1 i2 | warp: i4 i8 i16)")
    text.op("cta.put", tile, loaded(text, "bf16", layout), instruction="stmatrix")


@refused("a window of a window")
def window_of_a_window(text: Text) -> None:
    type = text.shared("bf16", SQUARE, (32, 64))
    half = text.op("cta.window", buffer(text, "bf16", SQUARE), text.zero, type=type, rows=32)
    quarter = text.shared("bf16", SQUARE, (16, 64))
    text.op("cta.window", half, text.zero, type=quarter, rows=16)


@refused("windows of 4 rows do not lie evenly")
def window_inside_an_atom(text: Text) -> None:
    type = text.shared("bf16", SQUARE, (4, 64))
    text.op("cta.window", buffer(text, "bf16", SQUARE), text.zero, type=type, rows=4)


@refused("transpose the tile before")
def transpose_of_a_window(text: Text) -> None:
    type = text.shared("bf16", SQUARE, (32, 64))
    half = text.op("cta.window", buffer(text, "bf16", SQUARE), text.zero, type=type, rows=32)
    turned = text.shared("bf16", SQUARE.transpose(), (64, 32))
    text.op("cta.transpose", half, type=turned)


@refused("the map's box is (64, 32)")
def store_by_another_box(text: Text) -> None:
    out = text.array("out", "bf16", (64, 64), "out")
    target = text.op("cta.tensor_map", out, type="tensormap<bf16, 64 x 32, 128>", axes=(1, 0))
    text.op("cta.store", target, buffer(text, "bf16", SQUARE), text.zero, text.zero, axes=(0, 1))


# --- products ------------------------------------------------------------------------------------


def multiply(rows: int, columns: int, depth: int, out: Layout, a: Layout | None = None) -> Build:
    """A product of this shape; A in registers of a layout if one is given."""

    def build(text: Text) -> None:
        right = buffer(text, "bf16", swizzled(columns, depth, 16, 0, stripe_bytes=16))
        left = (
            loaded(text, "bf16", a)
            if a is not None
            else buffer(text, "bf16", swizzled(rows, depth, 16, 0, stripe_bytes=16))
        )
        text.op("cta.product", left, right, type=text.flight("f32", out))

    return build


CASES += [
    ("product rows", "in its own layout", multiply(32, 64, 64, blocked((32, 64), 128, 2, 32))),
    ("product depth", "K = 24 is no multiple of 16", multiply(64, 64, 24, ACC)),
    (
        "product registers",
        "A in registers needs the layout",
        multiply(64, 64, 64, ACC, blocked((64, 64), 128, 2, 16)),
    ),
]


# --- the kernel ----------------------------------------------------------------------------------


@refused("the grid cannot be computed before the launch")
def top_grid_that_depends_on_the_cta(text: Text) -> None:
    text.op("cta.grid", text.op("cta.index", type="s32"))


@refused("roles stand in the kernel's body only")
def a_role_in_a_loop(text: Text) -> None:
    with text.loop(text.zero, text.one, text.one), text.role("inner", warps=1):
        text.yields()


@refused("this op belongs inside a role")
def top_leader_without_a_role(text: Text) -> None:
    text.op("cta.drain_stores")


@refused("is a view or a ring, and those cannot be carried")
def a_view_chosen_by_a_branch(text: Text) -> None:
    type = text.shared("bf16", SQUARE)
    first, second = buffer(text, "bf16", SQUARE), buffer(text, "bf16", SQUARE, 8192)
    condition = text.constant(True, "bool")
    with text.branch(condition, [type]) as (chosen,):
        text.yields(first)
        text.otherwise()
        text.yields(second)
    text.op("cta.get", chosen, type=text.reg("bf16", ACC), instruction="load")


@pytest.mark.parametrize(("name", "because", "build"), CASES, ids=[case[0] for case in CASES])
def test_selection_says_why_it_declines(name: str, because: str, build: Build) -> None:
    text = Text(shared_bytes=65536)
    if name.startswith("top "):
        build(text)
    else:
        with text.role():
            build(text)
    module = parse_module(str(text))
    with pytest.raises((Refused, VerifyError)) as caught:
        run(
            module,
            Context(by_name(module.target)),
            start_after="place-shared",
            stop_after="select-instructions",
        )
    assert because in str(caught.value)


def test_a_refusal_deep_inside_stands_at_the_innermost_line() -> None:
    text = """kernel f(x: u8[M, N], r: inout u8[M, N]):
    for i in parallel(tiles(M)):
        n = 0
        for j in tiles(N):
            r[i, j] += x[i, j]
"""
    with pytest.raises(DiagnosticError) as caught:
        compile_source(SourceFile("f.tk", text), None, {}, by_name("90"))
    (found,) = caught.value.diagnostics
    assert found.span is not None
    assert text[found.span.start : found.span.end] == "r[i, j] += x[i, j]"
    assert "source line" not in found.message
    assert any("flow.for of line 4" in note for note in found.notes)
