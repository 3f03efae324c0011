"""Fields of the right kind whose values make no sense together, at level ``cta``."""

from __future__ import annotations

import pytest

from tilec.ir.parser import IRSyntaxError, parse_module
from tilec.ir.verify import VerifyError, verify

HEAD = "tir 1 level cta target sm_90a\n#l = (off: j1 j2 j4 i1)\n#r = (reg: j1 j2 j4 i1)\n"
ARRAYS = "%a: array<f32, N x M, in>, %o: array<f32, N x M, out>, %n: s32, %h: s16"
REG = "%v: reg<f32, 2 x 8, #r>, %s: shared<f32, 2 x 8, #l>"


def _read(axes: str = "(0, 1)", rest: str = "", type: str = "f32", array: str = "%a") -> str:
    return f"%r = cta.read({array}, %n, %n) {{axes = {axes}{rest}}} : reg<{type}, 2 x 8, #r>"


CASES = {
    "extent of no axis": ("%e = cta.extent(%a) {axis = 7} : s32", "has no axis 7"),
    "map of an axis twice": (
        "%m = cta.tensor_map(%a) {axes = (0, 0)} : tensormap<f32, 4 x 4, 0>", "each once",
    ),
    "map of no axis": (
        "%m = cta.tensor_map(%a) {axes = (0, 7)} : tensormap<f32, 4 x 4, 0>", "each once",
    ),
    "map of other elements": (
        "%m = cta.tensor_map(%a) {axes = (1, 0)} : tensormap<bf16, 4 x 4, 0>", "copies bf16",
    ),
    "read of too few axes": (_read("(0,)"), "axes (0,) do not name"),
    "read of too many axes": (_read("(0, 1, 2)"), "do not name"),
    "read of an axis twice": (_read("(0, 0)"), "do not name"),
    "read of no axis": (_read("(0, 7)"), "do not name"),
    "read bounded along no axis": (_read(rest=", bounded = (0, 7)"), "bounded (0, 7)"),
    "read bounded twice": (_read(rest=", bounded = (0, 0)"), "bounded (0, 0)"),
    "read of no elements": (_read(rest=", vector = 0"), "vector = 0"),
    "read of three elements": (_read(rest=", vector = 3"), "vector = 3"),
    "read of too many elements": (_read(rest=", vector = 8"), "up to 4 elements"),
    "read of other elements": (_read(type="bf16"), "the tile holds bf16, the array f32"),
    "read of an out parameter": (_read(array="%o"), "never read"),
    "scalar of an out parameter": ("%x = cta.read_scalar(%o, %n, %n) : f32", "never read"),
    "scalar at too few places": ("%x = cta.read_scalar(%a, %n) : f32", "the origin gives 1"),
    "write to an in parameter": ("cta.write(%a, %v, %n, %n) {axes = (0, 1)}", "never written"),
    "write at too few places": ("cta.write(%o, %v, %n) {axes = (0, 1)}", "the origin gives 1"),
    "put by no instruction": ("cta.put(%s, %v) {instruction = foo}", "none of stmatrix, store"),
    "get by no instruction": (
        "%g = cta.get(%s) {instruction = foo} : reg<f32, 2 x 8, #r>", "none of ldmatrix, load",
    ),
    "a constant too large": ("%c = math.constant() {value = 2147483648} : s32", "does not fit"),
    "a constant too small": ("%c = math.constant() {value = -1} : u8", "-1 does not fit u8"),
    "a fraction among integers": ("%c = math.constant() {value = 1.5} : s32", "1.5 is no s32"),
    "a truth value among integers": ("%c = math.constant() {value = true} : s32", "is no s32"),
    "an integer as a truth value": ("%c = math.constant() {value = 2} : bool", "2 is no bool"),
    "a fill of other elements": ("%f = math.fill(%n) : reg<f32, 2 x 8, #r>", "does not fill"),
    "a fill of one element": ("%f = math.fill(%n) : s32", "does not fill"),
    "a condition that is none": ("flow.if(%n) { } { }", "s32, bool is needed"),
    "a bound of another type": ("flow.for(%n, %h, %n) { |%i: s32| flow.yield() }", "must be s32"),
    "get of another type": (
        "%g = cta.get(%s) {instruction = load} : reg<bf16, 2 x 8, #r>", "the value has type",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "message"), CASES.values(), ids=CASES.keys())
def test_what_makes_no_sense_is_refused(line: str, message: str) -> None:
    text = f"{HEAD}kernel @k {{ |{ARRAYS}, {REG}|\n  {line}\n}}\n"
    with pytest.raises(VerifyError) as caught:
        verify(parse_module(text))
    assert message in str(caught.value)
    assert [f.op.name in line for f in caught.value.faults] == [True]


def test_what_makes_sense_is_not() -> None:
    text = f"""{HEAD}kernel @k {{threads = 32}} {{ |{ARRAYS}|
  %e = cta.extent(%a) {{axis = 1}} : s32
  %m = cta.tensor_map(%a) {{axes = (1, 0)}} : tensormap<f32, 4 x 4, 0>
  cta.role() {{label = all, first = 0, warps = 1, group = 1}} {{ |%g: s32|
    {_read(rest=", bounded = (1,), vector = 4")}
    cta.write(%o, %r, %n, %n) {{axes = (0, 1)}}
  }}
}}
"""
    verify(parse_module(text))


@pytest.mark.parametrize(
    ("extent", "index"), [("tile.extent(%a) {axis = 1}", "N"), ("math.constant() {value = 8}", "M")]
)
def test_an_index_runs_over_the_extent_of_its_loop(extent: str, index: str) -> None:
    for loop in ("tile.parallel(%m) {sizes = ($i,)}", "tile.for(%m) {size = $i}"):
        text = (
            f"tir 1 level tile target sm_90a\nkernel @k {{ |%a: array<f32, N x M, in>|\n"
            f"  %m = {extent} : s32\n  {loop} {{ |%i: index<$i, {index}>| }}\n}}\n"
        )
        with pytest.raises(VerifyError, match=f"its index over {index}"):
            verify(parse_module(text))


@pytest.mark.parametrize("step", [0, -1])
def test_a_loop_goes_up(step: int) -> None:
    text = f"""{HEAD}kernel @k {{ |%n: s32|
  %s = math.constant() {{value = {step}}} : s32
  flow.for(%n, %n, %s) {{ |%i: s32|
    flow.yield()
  }}
}}
"""
    with pytest.raises(VerifyError, match=f"the step is {step}, so the loop never ends"):
        verify(parse_module(text))


@pytest.mark.parametrize("mode", ["inn", "", "IN"])
def test_a_mode_that_is_none(mode: str) -> None:
    with pytest.raises(IRSyntaxError, match="none of in, out, inout" if mode else "unexpected"):
        parse_module(f"{HEAD}kernel @k {{ |%a: array<f32, N x M, {mode}>| }}\n")


def test_a_combination_has_the_registers_of_its_halves() -> None:
    text = (
        "tir 1 level ptx target sm_90a\nkernel @k { |%x: bits<b32, 1>|\n"
        "  %c = ptx.combine(%x, %x) : bits<b64, 96>\n}\n"
    )
    with pytest.raises(VerifyError, match="halves of 1 and 1 registers for 96 results"):
        verify(parse_module(text))
