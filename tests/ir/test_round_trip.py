"""Text to IR and back: every text of the suite comes back the same, as text and as structure."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.ir.texts import TESTS, all_texts, differences
from tilec.ir.core import Kernel, Module, Op, Region, Value
from tilec.ir.levels import cta, ptx
from tilec.ir.levels import math as arithmetic
from tilec.ir.parser import parse_module
from tilec.ir.printer import module_text, value_lines
from tilec.ir.rewrite import clone_kernel
from tilec.ir.types import BF16, F32, Bits, Register, Scalar
from tilec.ir.verify import verify
from tilec.layout.linear import Layout
from tilec.source import SourceFile

TEXTS = all_texts()
NAMES = [str(path.relative_to(TESTS)) for path in TEXTS]


@pytest.mark.parametrize("path", TEXTS, ids=NAMES)
def test_a_parsed_text_prints_as_itself_and_means_the_same(path: Path) -> None:
    first = parse_module(path.read_text())
    text = module_text(first)
    second = parse_module(text)
    assert list(differences(first, second)) == []
    assert module_text(second) == text


@pytest.mark.parametrize("path", TEXTS, ids=NAMES)
def test_a_clone_prints_the_same_and_shares_nothing(path: Path) -> None:
    module = parse_module(path.read_text())
    copy = Module(
        module.level, module.target, [clone_kernel(k) for k in module.kernels], module.source
    )
    assert module_text(copy) == module_text(module)
    for kernel, cloned in zip(module.kernels, copy.kernels, strict=True):
        ours = {id(op) for op in kernel.body.walk()} | {id(kernel.body)}
        assert not ours & ({id(op) for op in cloned.body.walk()} | {id(cloned.body)})


@pytest.mark.parametrize("path", sorted(Path(__file__).parent.glob("*.tir")), ids=lambda p: p.stem)
def test_the_texts_here_are_valid(path: Path) -> None:
    verify(parse_module(path.read_text()))


@pytest.mark.parametrize("path", TEXTS, ids=NAMES)
def test_every_op_is_found_on_its_line(path: Path) -> None:
    module = parse_module(path.read_text())
    lines = module_text(module).splitlines()
    found = value_lines(module)
    for kernel in module.kernels:
        places = [found[id(op)] for op in kernel.body.walk()]
        assert places == sorted(set(places))
        for op, place in zip(kernel.body.walk(), places, strict=True):
            assert f"{op.name}(" in lines[place - 1]


def _single(*ops: Op, level: str = "cta") -> Module:
    return Module(level, "sm_90a", [Kernel("k", Region((), ops))])


def _again(module: Module) -> Module:
    return parse_module(module_text(module))


@pytest.mark.parametrize(
    "value", [0, -7, 2**40, 1.5, 0.1, 1e-30, -1e300, math.inf, -math.inf, True]
)
def test_a_number_keeps_its_kind_and_every_bit(value: float) -> None:
    module = _single(arithmetic.Constant(value, Scalar(F32)))
    assert list(differences(module, _again(module))) == []


def test_nan_stays_nan() -> None:
    op = next(_again(_single(arithmetic.Constant(math.nan, Scalar(F32)))).kernels[0].body.walk())
    assert isinstance(op, arithmetic.Constant)
    assert math.isnan(op.value)


def test_a_name_that_is_also_an_element_type_stays_a_name_where_a_name_is_declared() -> None:
    address = ptx.Parameter(0, Bits("b64", 1))
    load = ptx.Load(address.out, space="global", width="f32", type=Bits("f32", 1))
    module = _single(address, load, level="ptx")
    assert list(differences(module, _again(module))) == []


def test_an_element_type_stays_an_element_type() -> None:
    constant = arithmetic.Constant(1.0, Scalar(F32))
    module = _single(constant, arithmetic.Cast(constant.out, BF16))
    assert list(differences(module, _again(module))) == []


@pytest.mark.parametrize("text", ["()", "(lane: _ _)", "(reg: i1*1)", "(warp: j1 i1*3)"])
def test_layouts_without_moves_and_of_extent_one_survive(text: str) -> None:
    layout = Layout.parse(text)
    module = _single(cta.Coordinates(0, Register(F32, layout.shape, layout)))
    assert list(differences(module, _again(module))) == []


def test_values_of_one_name_are_told_apart_and_keep_their_hint() -> None:
    ops = [arithmetic.Constant(i, Scalar(F32)) for i in range(3)]
    for op in ops:
        op.out.name = "x"
    module = _single(*ops)
    text = module_text(module)
    assert [line.split()[0] for line in text.splitlines() if "=" in line] == ["%x", "%x.0", "%x.1"]
    assert [op.results[0].name for op in _again(module).kernels[0].body.walk()] == ["x"] * 3


def test_printing_leaves_the_module_as_it_was() -> None:
    op = arithmetic.Constant(1, Scalar(F32))
    module = _single(op)
    module_text(module)
    assert op.out.name == ""


def test_the_source_travels_with_the_dump() -> None:
    module = _single()
    module.source = SourceFile("k.tk", 'kernel k():\n    # "quoted" // %x = math.add(\n\n')
    assert _again(module).source == module.source


def test_layouts_are_named_in_order_of_first_appearance_over_all_kernels() -> None:
    layouts = [Layout.parse("(reg: i1)"), Layout.parse("(lane: i1)"), Layout.parse("(warp: i1)")]

    def kernel(name: str, *chosen: Layout) -> Kernel:
        ops = [cta.Coordinates(0, Register(F32, y.shape, y)) for y in chosen]
        return Kernel(name, Region((), ops))

    module = Module(
        "cta",
        "sm_90a",
        [kernel("a", layouts[1], layouts[0]), kernel("b", layouts[0], layouts[2])],
    )
    heads = [line for line in module_text(module).splitlines() if line.startswith("#")]
    assert heads == [f"#l0 = {layouts[1]}", f"#l1 = {layouts[0]}", f"#l2 = {layouts[2]}"]


def test_a_region_argument_may_share_the_name_of_an_outer_value() -> None:
    outer = arithmetic.Constant(0, Scalar(F32))
    outer.out.name = "g"
    role = cta.Role("r", 0, 4, 4, Region([Value(Scalar(F32), "g")]))
    text = module_text(_single(outer, role))
    assert "%g.0: f32" in text
    assert module_text(parse_module(text)) == text


@pytest.mark.parametrize(
    "names",
    [["a.0", "a"], ["a", "a.0", "a"], ["a.1.2"], ["7", "", "7"], ["a.b", "a.b"], ["x.0", "x.0"]],
)
def test_a_dump_of_any_hints_prints_as_itself_when_read_again(names: list[str]) -> None:
    ops = [arithmetic.Constant(i, Scalar(F32)) for i in range(len(names))]
    for op, name in zip(ops, names, strict=True):
        op.out.name = name
    text = module_text(_single(*ops))
    assert module_text(parse_module(text)) == text
