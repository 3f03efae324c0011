"""PTX text to programs, and errors with lines for what is none."""

from __future__ import annotations

import pytest

from tilec.diagnostics import DiagnosticError
from tilec.emulator.machine import Machine
from tilec.emulator.parse import parse_ptx
from tilec.emulator.program import Address, Number, Program, Register, Vector
from tilec.source import SourceFile

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"


def program(body: str, head: str = "") -> tuple[Program, SourceFile]:
    """One kernel whose body is given."""
    source = SourceFile("k.ptx", f"{HEAD}{head}.visible .entry k(.param .u64 a)\n{{\n{body}\n}}\n")
    return parse_ptx(source)["k"], source


def test_registers_have_a_bank_and_a_row() -> None:
    found, _ = program(".reg .f32 %f<2>;\n.reg .b32 %r<3>;\nadd.f32 %f1, %f0, 0f3F800000;\nret;")
    assert found.registers["b32"] == 5
    target, _, one = found.instructions[0].operands
    assert isinstance(target, Register)
    assert target.row == 1
    assert one == Number(0x3F800000, 32)


def test_operands_of_every_form() -> None:
    text = """.reg .b32 %r<4>; .reg .pred %p; .reg .b64 %d;
$again:
@!%p bra $again;
st.global.v2.b32 [%d+-8], {%r0, -1};
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d, {%r1, 64}], [%r2];
elect.sync _|%p, 0xffffffff;"""
    found, _ = program(text)
    branch, store, copy, _ = found.instructions
    assert branch.guard_negated
    assert found.labels == {"$again": 0}
    assert store.operands[0] == Address(store.operands[0].base, -8)  # type: ignore[union-attr]
    assert isinstance(store.operands[1], Vector)
    assert isinstance(copy.operands[0], Address)
    assert copy.operands[0].coordinates is not None


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        (".reg .b32 %r;\nadd.s32 %r, %q, 1;", 7, "%q is not declared"),
        ("add.s32 %r 1;", 6, "no PTX from here on"),
        (".reg .foo %r;", 6, "registers of type .foo"),
    ],
)
def test_what_is_wrong_is_said_at_its_line(body: str, line: int, words: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        program(body)
    (found,) = caught.value.diagnostics
    assert words in found.message
    assert found.labels[0][0].line == line


def test_an_unknown_instruction_is_an_error_with_its_line() -> None:
    found, source = program(".reg .b32 %r<2>;\nfrobnicate.b32 %r0, %r1;")
    with pytest.raises(DiagnosticError, match="beyond the emulator"):
        Machine(found, source, (1, 1, 1), (32, 1, 1))
