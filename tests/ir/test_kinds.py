"""Fields of another kind than their op declares are refused at their op, at every level."""

from __future__ import annotations

import pytest

from tilec.ir.core import Kernel, Module, Op, Region, Value
from tilec.ir.kinds import described, field_kinds, fits
from tilec.ir.levels import cta, math, tile
from tilec.ir.parser import IRSyntaxError, parse_module
from tilec.ir.types import F32, S32, Array, Scalar
from tilec.ir.verify import VerifyError, verify

BODY = "kernel @k {{ |%a: array<f32, N x M, inout>, %x: f32, %n: s32, %b: {extra}|\n  {line}\n}}\n"
EXTRA = {
    "tile": "tile<f32, 16 x 16>",
    "cta": "ring<2, [shared<f32, 4, #l>]>",
    "ptx": "bits<b32, 2>",
}

# level, the op's line, what is said
CASES = {
    "an axis that is a number": ("tile", "%m = tile.extent(%a) {axis = 1.5} : s32", "an integer"),
    "an axis that is a name": ("tile", "%m = tile.extent(%a) {axis = x} : s32", "axis = x"),
    "an axis that is true": ("tile", "%m = tile.extent(%a) {axis = true} : s32", "an integer"),
    "an axis that is not there": ("tile", "%m = tile.extent(%a) {axis = 7} : s32", "no axis 7"),
    "a whole axis not there": (
        "tile", "%m = tile.whole(%a) {axis = 7, size = $i} : index<$i, N>", "no axis 7",
    ),
    "a store into a scalar": ("tile", "tile.store(%n, %x, %n, %n)", "operand array has type s32"),
    "a product of a scalar": ("tile", "%d = tile.dot(%n, %b, %b) : tile<f32, 16 x 16>", "tile is"),
    "a loop over an array": ("tile", "tile.parallel(%a) {sizes = (16,)} { }", "operand extents"),
    "a fill with an array": ("tile", "%f = math.fill(%a) : tile<f32, 16>", "scalar is needed"),
    "a sum of an array": ("tile", "%s = math.add(%x, %a) : f32", "no elements"),
    "a constant that is a name": ("tile", "%c = math.constant() {value = x} : s32", "value = x"),
    "a map of a scalar": (
        "cta", "%m = cta.tensor_map(%n) {axes = (0,)} : tensormap<f32, 16, 0>", "array is needed",
    ),
    "a map that is none": ("cta", "%m = cta.tensor_map(%a) {axes = (1, 0)} : f32", "tensormap is"),
    "a read of a ring": (
        "cta", "%r = cta.read(%b, %n, %n) {axes = (0,)} : reg<f32, 4, #r>", "operand array",
    ),
    "an origin that is a ring": (
        "cta", "%r = cta.read(%a, %n, %b) {axes = (0,)} : reg<f32, 4, #r>", "operand origin",
    ),
    "axes that are no tuple": (
        "cta", "%r = cta.read(%a, %n, %n) {axes = 0} : reg<f32, 4, #r>", "a tuple of integers",
    ),
    "axes that are names": (
        "cta", "%r = cta.read(%a, %n, %n) {axes = (i,)} : reg<f32, 4, #r>", "a tuple of integers",
    ),
    "pending that is a name": ("cta", "cta.settle() {pending = x}", "pending = x"),
    "a barrier that is a number": ("cta", "cta.sync(%n) {barrier = 1.5, threads = 32}", "barrier"),
    "a ring that is a scalar": ("cta", "%r = cta.ring() : f32", "ring is needed"),
    "a copy of a scalar": ("ptx", "%c = ptx.copy(%x) : f32", "bits is needed"),
    "a guard that is a scalar": (
        "ptx", "ptx.store(%b, %b, %x) {space = global, width = b32}", "operand guard",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("level", "line", "message"), CASES.values(), ids=CASES.keys())
def test_another_kind_is_refused_at_its_op(level: str, line: str, message: str) -> None:
    text = f"tir 1 level {level} target sm_90a\n#l = (off: i1 i2)\n#r = (reg: i1 i2)\n" + (
        BODY.format(extra=EXTRA[level], line=line)
    )
    with pytest.raises((IRSyntaxError, VerifyError)) as caught:
        verify(parse_module(text))
    assert message in str(caught.value)
    if isinstance(caught.value, IRSyntaxError):
        assert caught.value.line == 5
    else:
        assert line.partition("(")[0].endswith(str(caught.value).split(": ")[1])


def test_what_a_pass_builds_is_looked_at_as_well() -> None:
    array: Value[Array] = Value(Array(F32, ("N",), "in"), "a")
    extent = tile.ExtentOf(array, 0)
    extent.axis = "x"  # type: ignore[assignment]
    constant = math.Constant(1, Scalar(S32))
    constant.out.type = Scalar(F32)
    constant.out.type = Array(F32, ("N",), "in")  # type: ignore[assignment]
    module = Module("tile", "sm_90a", [Kernel("k", Region([array], [extent, constant]))])
    with pytest.raises(VerifyError) as caught:
        verify(module)
    assert [fault.message for fault in caught.value.faults] == [
        "axis = x: an integer is needed",
        "result out has type array<f32, N, in>, scalar is needed",
    ]


def test_an_integer_serves_as_a_number_and_no_truth_value_as_either() -> None:
    good = [(1, float), (1.5, float), (True, int | bool), ((), tuple[int, ...])]
    bad = [(True, int), (False, float), (1.0, int), ((1, True), tuple[int, ...])]
    assert all(fits(value, kind) for value, kind in good)
    assert not any(fits(value, kind) for value, kind in bad)
    assert described(tuple[int | str, ...]) == "a tuple of integers or names"


def test_every_attribute_declares_a_kind_that_can_be_told() -> None:
    for cls in Op.registry.values():
        for key, kind in field_kinds(cls).items():
            if cls.specs[key].role == "attribute":
                assert "class" not in described(kind), f"{cls.name}: {key}"
    assert field_kinds(cta.Read)["bounded"] == tuple[int, ...]
