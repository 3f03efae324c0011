"""What is no IR is refused at its line and column, in words."""

from __future__ import annotations

import pytest

from tilec.ir.parser import IRSyntaxError, parse_module

HEAD = "tir 1 level cta target sm_90a\n"
ROW = "#row = (reg: i1 i2)\n"


def _body(line: str) -> str:
    return f"{HEAD}{ROW}kernel @k {{ |%x: f32|\n  {line}\n}}\n"


# Where the fault stands, and what the message says about it.
CASES = {
    "the first word is wrong": ("tor 1 level cta", 1, 1, "unexpected"),
    "a later version": ("tir 2 level cta target sm_90a\n", 1, 5, "version 2"),
    "an unknown op": (_body("%y = math.frob(%x) : f32"), 4, 8, "there is no op math.frob"),
    "an unknown value": (_body("%y = math.neg(%z) : f32"), 4, 17, "%z is not defined here"),
    "a value defined twice": (_body("%x = math.neg(%x) : f32"), 4, 3, "%x is defined twice"),
    "a wrong result type": (_body("%y = math.neg(%x) : s32"), 4, 3, "type f32, the text says s32"),
    "no result type": (_body("%y = math.neg(%x)"), 4, 8, "gives 0 types"),
    "no result name": (_body("math.neg(%x) : f32"), 4, 3, "has 1 results, the text names 0"),
    "too many operands": (_body("%y = math.neg(%x, %x) : f32"), 4, 8, "too many operands"),
    "too few operands": (_body("%y = math.add(%x) : f32"), 4, 8, "missing y"),
    "a missing attribute": (_body("%y = math.cast(%x) : f32"), 4, 8, "missing dtype"),
    "an unknown attribute": (_body("%y = math.neg(%x) {z = 1} : f32"), 4, 8, "unknown fields"),
    "too many regions": (_body("%y = math.neg(%x) { } : f32"), 4, 8, "too many regions"),
    "a missing region": (_body("%y = flow.if(%x) { } : f32"), 4, 8, "missing otherwise"),
    "an unknown type": (_body("%y = math.neg(%x) : float"), 4, 23, "there is no type float"),
    "an unknown element type": (
        _body("%y = math.fill(%x) : reg<f99, 4, #row>"),
        4,
        28,
        "f99 is not an element type",
    ),
    "too few type fields": (_body("%y = math.fill(%x) : reg<f32, 4>"), 4, 24, "reg has 3 fields"),
    "an unknown layout": (
        _body("%y = math.fill(%x) : reg<f32, 4, #none>"),
        4,
        36,
        "#none is not defined",
    ),
    "operands without parentheses": (_body("%y = math.neg %x : f32"), 4, 17, "unexpected '%x'"),
    "a brace never closed": (f"{HEAD}kernel @k {{\n  cta.commit()\n", 3, 14, "unexpected"),
    "a layout with an unknown axis": (
        f"{HEAD}#l = (reg: z1)\nkernel @k {{ }}\n",
        2,
        6,
        "'z1' is no digit",
    ),
}


@pytest.mark.parametrize(("text", "line", "column", "message"), CASES.values(), ids=CASES.keys())
def test_a_fault_is_named_where_it_stands(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(IRSyntaxError) as caught:
        parse_module(text)
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert str(caught.value).startswith(f"line {line}, column {column}: ")


def test_a_value_of_an_inner_region_is_unknown_behind_it() -> None:
    text = _body("cta.role() {label = r, first = 0, warps = 4, group = 4} { |%g: s32| }")
    text = text.replace("\n}\n", "\n  %y = math.neg(%g) : s32\n}\n")
    with pytest.raises(IRSyntaxError, match=r"line 5, column 17: %g is not defined here"):
        parse_module(text)


def test_comments_and_white_space_do_not_matter() -> None:
    plain = _body("%y = math.neg(%x) : f32")
    spread = plain.replace("math.neg(%x)", "math.neg( // the operand\n      %x\n  )")
    assert len(parse_module(spread).kernels[0].body.ops) == 1
