"""A kernel's head: what is missing from it or unknown in it is refused where it stands."""

from __future__ import annotations

import pytest

from tilec.ir.core import Kernel, Module, Region
from tilec.ir.levels import cta, math, ptx
from tilec.ir.parser import IRSyntaxError, parse_module
from tilec.ir.types import S32, Scalar, Shared
from tilec.ir.verify import VerifyError, verify
from tilec.layout.linear import Layout

ALL = "after = select-instructions, threads = 32, parameters = (), grid = 1, shared_bytes = 0"
GRID = "%n = math.constant() {value = 1} : s32\n  cta.grid(%n)"
BUFFER = "%b = cta.buffer() {offset = 0} : shared<s32, 2, #l>"


def _text(level: str, head: str, body: str) -> str:
    return (
        f"tir 1 level {level} target sm_90a\n#l = (off: i1)\nkernel @k {{{head}}} {{\n  {body}\n}}"
    )


def _fault(text: str) -> IRSyntaxError:
    with pytest.raises(IRSyntaxError) as caught:
        parse_module(text)
    return caught.value


@pytest.mark.parametrize("name", ["threads", "parameters", "grid", "shared_bytes"])
def test_at_level_ptx_nothing_of_the_launch_is_left_out(name: str) -> None:
    body = "%m = ptx.shared_base() : bits<b32, 1>"
    verify(parse_module(_text("ptx", ALL, body)))
    parts = [part for part in ALL.split(", ") if not part.startswith(name)]
    fault = _fault(_text("ptx", ", ".join(parts), body))
    assert f"says nothing of its {name}" in str(fault)
    assert (fault.line, fault.column) == (3, 9)
    misspelt = _fault(_text("ptx", ALL.replace(name, "q" + name[1:]), body))
    assert f"a kernel has no attribute q{name[1:]}" in str(misspelt)
    assert misspelt.line == 3


def test_at_level_cta_placed_memory_is_counted_and_the_grid_is_given_once() -> None:
    head = "after = place-shared, threads = 32"
    verify(parse_module(_text("cta", head, GRID)))
    assert "its shared_bytes" in str(_fault(_text("cta", head, f"{GRID}\n  {BUFFER}")))
    assert "here are 0" in str(_fault(_text("cta", f"{head}, shared_bytes = 8", BUFFER)))
    assert "here are 2" in str(_fault(_text("cta", head, f"{GRID}\n  cta.grid(%n)")))


@pytest.mark.parametrize(
    "wrong",
    ["threads = x", "shared_bytes = 1.5", "grid = x", "parameters = 3", "arrays = ((a, 1),)"],
)
def test_an_attribute_of_another_kind(wrong: str) -> None:
    name = wrong.split(" ")[0]
    assert f"attribute {name}: " in str(_fault(_text("cta", wrong, GRID)))


def test_an_unknown_level_and_an_unknown_target() -> None:
    text = _text("cta", "threads = 32", GRID)
    assert "there is no level foo; there are tile, cta, ptx" in str(
        _fault(text.replace("level cta", "level foo"))
    )
    fault = _fault(text.replace("sm_90a", "sm_12"))
    assert "there is no target sm_12" in str(fault)
    assert (fault.line, fault.column) == (1, 24)


def test_what_a_pass_leaves_out_is_found_too() -> None:
    kernel = Kernel("k", Region((), [ptx.SharedBase()]), {"after": "select-instructions"})
    with pytest.raises(VerifyError) as caught:
        verify(Module("ptx", "sm_90a", [kernel]))
    assert len(caught.value.faults) == 4
    one = math.Constant(1, Scalar(S32))
    buffer = cta.Buffer(Shared(S32, (2,), Layout.parse("(off: i1)")), offset=0)
    ops = [one, cta.Grid(one.out), buffer]
    made = Kernel("k", Region((), ops), {"after": "place-shared", "threads": 32})
    with pytest.raises(VerifyError, match="its shared_bytes"):
        verify(Module("cta", "sm_90a", [made]))
