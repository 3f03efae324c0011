"""Sharing registers never changes what a program means.

The lost-copy and swap problems have a small case each; random structured programs look for the
rest, running each program once as SSA and once as the text that is emitted.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ptx.machine import run_text, run_values
from tests.ptx.programs import BYTES, Maker
from tilec.backend_ptx import registers
from tilec.backend_ptx.emit import emit
from tilec.backend_ptx.liveness import Program
from tilec.backend_ptx.registers import PlacementError, allocate, assign, place_copies
from tilec.ir.core import Module
from tilec.ir.levels import ptx
from tilec.ir.parser import parse_module
from tilec.ir.verify import verify


def memories(module: Module) -> tuple[bytearray, bytearray]:
    """Memory after running the values, and after running the text."""
    start = Random(1).randbytes(BYTES)
    by_value, by_text = bytearray(start), bytearray(start)
    run_values(module.kernels[0], by_value)
    place_copies(module.kernels[0])
    verify(module, "place-copies")
    run_text(emit(module), by_text)
    return by_value, by_text


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_random_programs_mean_the_same_with_registers(random: Random) -> None:
    module = Maker(random).module()
    verify(module)
    by_value, by_text = memories(module)
    assert by_value == by_text


def test_the_comparison_notices_when_registers_are_shared_blindly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Blind:
        def __init__(self, program: Program) -> None:
            self.conflicts = [0] * len(program.at.kinds)

    monkeypatch.setattr(registers, "Liveness", Blind)
    outcomes = [memories(Maker(Random(seed)).module()) for seed in range(20)]
    assert any(by_value != by_text for by_value, by_text in outcomes)


def loop(carried: str, body: str) -> Module:
    """A loop of three rounds around ``body``, which yields next to the counter."""
    names = [part.split("=")[0].strip() for part in carried.split(",")]
    inits = [part.split("=")[1].strip() for part in carried.split(",")]
    words = ", ".join(["bits<b32, 1>"] * (len(names) + 1))
    arguments = ", ".join(f"{name}: bits<b32, 1>" for name in names)
    finals = ", ".join(f"{name}_end" for name in names)
    stores = "\n".join(
        f"ptx.store(%m, {name}_end) {{space = shared, width = b32, offset = {16 * i}}}"
        for i, name in enumerate(names)
    )
    return parse_module(f"""tir 1 level ptx target sm_90a
kernel @k {{threads = 32}} {{
  %m = ptx.shared_base() : bits<b32, 1>
  %zero = ptx.constant() {{value = 0}} : bits<b32, 1>
  %one = ptx.constant() {{value = 1}} : bits<b32, 1>
  %three = ptx.constant() {{value = 3}} : bits<b32, 1>
  %x = ptx.load(%m) {{space = shared, width = b32, offset = 64}} : bits<b32, 1>
  %y = ptx.load(%m) {{space = shared, width = b32, offset = 68}} : bits<b32, 1>
  %n_end, {finals} = ptx.loop(%zero, {", ".join(inits)}) {{|%n: bits<b32, 1>, {arguments}|
    %n1 = ptx.alu(%n, %one) {{opcode = add.u32}} : bits<b32, 1>
    %more = ptx.alu(%n1, %three) {{opcode = setp.lt.u32}} : bits<pred, 1>
    {body}
  }} : {words}
  {stores}
}}
""")


def copies_in(module: Module) -> int:
    """Registers that the placed copies move."""
    ops = module.kernels[0].body.walk()
    return sum(op.out.type.count for op in ops if isinstance(op, ptx.Copy))


CASES = {
    # name: (carried, body, copies, why)
    "in place": (
        "%a = %x, %b = %y",
        "%a1 = ptx.alu(%a, %b) {opcode = add.u32} : bits<b32, 1>\n ptx.yield(%more, %n1, %a1, %b)",
        1,  # the counter starts from a constant; nothing else moves
    ),
    "swap": (
        "%a = %x, %b = %y",
        "ptx.yield(%more, %n1, %b, %a)",
        4,  # one of the two would be enough to break the circle, but pairs stay whole
    ),
    "rotation with a new value": (
        "%a = %x, %b = %y",
        "%c = ptx.alu(%a, %b) {opcode = add.u32} : bits<b32, 1>\n ptx.yield(%more, %n1, %b, %c)",
        3,  # b moves to a, then the new value to b
    ),
    "the argument outlives its next value": (
        "%a = %x, %s = %y",
        "%a1 = ptx.alu(%a, %one) {opcode = add.u32} : bits<b32, 1>\n"
        "%s1 = ptx.alu(%s, %a) {opcode = xor.b32} : bits<b32, 1>\n"
        "ptx.yield(%more, %n1, %a1, %s1)",
        2,
    ),
    "one initial value for two": (
        "%a = %x, %b = %x",
        "%a1 = ptx.alu(%a, %b) {opcode = add.u32} : bits<b32, 1>\n ptx.yield(%more, %n1, %a1, %b)",
        2,
    ),
    "an initial value needed after the loop": (
        "%a = %x, %b = %y",
        "%a1 = ptx.alu(%a, %x) {opcode = add.u32} : bits<b32, 1>\n ptx.yield(%more, %n1, %a1, %b)",
        2,
    ),
    "a constant is carried on": (
        "%a = %x, %b = %y",
        "%b1 = ptx.alu(%b, %a) {opcode = add.u32} : bits<b32, 1>\n"
        "ptx.yield(%more, %n1, %three, %b1)",
        2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_loops_copy_what_they_must_and_no_more(name: str) -> None:
    carried, body, expected = CASES[name]
    module = loop(carried, body)
    verify(module)
    by_value, by_text = memories(module)
    assert by_value == by_text
    assert copies_in(module) <= expected


def test_names_are_numbered_in_order_of_appearance() -> None:
    module = loop("%a = %x", "ptx.yield(%more, %n1, %a)")
    place_copies(module.kernels[0])
    names = assign(module.kernels[0])
    seen = [name for pieces in names.values() for name in pieces if name.startswith("%r")]
    assert list(dict.fromkeys(seen)) == [f"%r{i}" for i in range(len(set(seen)))]


def test_assignment_adds_no_copy_of_its_own() -> None:
    module = loop("%a = %x, %b = %y", "ptx.yield(%more, %n1, %b, %a)")
    with pytest.raises(PlacementError, match="cannot share"):
        allocate(module.kernels[0])
