"""The assembler's log is read right; the texts were recorded from ptxas 13.0.88 and 13.5.37."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilec.backend_ptx import assemble as assembler
from tilec.backend_ptx.assembler_log import AssemblerNote, parse_assembler_log

_PLAIN = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas info    : Function properties for gemm
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 16 barriers
ptxas info    : Compile time = 172.782 ms
"""
_SPILLS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'spill' for 'sm_90a'
ptxas info    : Function properties for spill
    424 bytes stack frame, 476 bytes spill stores, 460 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers, 424 bytes cumulative stack size
"""
_ADVISORIES = """\
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine \
register count at entry.
ptxas info    : (C7519) warpgroup.arrive is injected in around line 13 by compiler to allow use of \
registers in GMMA in function 'ser'
ptxas info    : (C7517) wgmma.wait_group is injected in around line 12 by compiler to allow use of \
registers defined by GMMA in function 'ser'
"""
_ERRORS = """\
ptxas bad.ptx, line 7; error   : Arguments mismatch for instruction 'mov'
ptxas bad.ptx, line 9; error   : Not a name of any known instruction: 'foo'
ptxas fatal   : Ptx assembly aborted due to errors
"""
_MINIMAL = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry nothing(.param .u64 out)
{
  .reg .b64 %d<1>;
  .reg .b32 %r<1>;
  ld.param.u64 %d0, [out];
  mov.u32 %r0, %tid.x;
  st.global.u32 [%d0], %r0;
  ret;
}
"""


def test_registers_and_spills_are_read_with_their_kernel() -> None:
    """A clean kernel gives two notes."""
    assert [(n.kind, n.kernel, n.value) for n in parse_assembler_log(_PLAIN)] == [
        ("spills", "gemm", 0),
        ("registers", "gemm", 168),
    ]


def test_spill_bytes_are_stores_plus_loads() -> None:
    """The stack frame itself is no spill."""
    assert [n.value for n in parse_assembler_log(_SPILLS) if n.kind == "spills"] == [936]


def test_advisories_keep_code_kernel_and_line() -> None:
    """Both releases' wordings; only a performance loss counts as one."""
    notes = parse_assembler_log(_ADVISORIES)
    assert [(n.code, n.kernel, n.line, n.is_loss) for n in notes] == [
        ("C7508", None, None, True),
        ("C7519", "ser", 13, False),
        ("C7517", "ser", 12, False),
    ]


def test_errors_keep_their_ptx_line() -> None:
    """The fatal line has none."""
    notes = parse_assembler_log(_ERRORS)
    assert [(n.kind, n.line) for n in notes] == [("error", 7), ("error", 9), ("error", None)]
    assert notes[0].text == "Arguments mismatch for instruction 'mov'"


def test_the_drivers_log_reads_the_same() -> None:
    """The JIT names its input otherwise and pads its buffer with zero bytes."""
    text = "ptxas application ptx input, line 7; error   : Unknown symbol '%tidx'\0\0\0"
    assert parse_assembler_log(text) == [AssemblerNote("error", "Unknown symbol '%tidx'", line=7)]


def test_a_missing_tool_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler works without ptxas; what needs it says so."""
    monkeypatch.setattr(assembler, "find_tool", lambda name: None)
    with pytest.raises(assembler.ToolMissing, match="pip install nvidia-cuda-nvcc"):
        assembler.assemble(_MINIMAL)


def test_a_tool_is_found_in_cuda_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH and wheels first, then CUDA_HOME."""
    tool = tmp_path / "bin" / "ptxas"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert assembler.find_tool("ptxas") == tool


needs_ptxas = pytest.mark.skipif(
    assembler.find_tool("ptxas") is None or assembler.find_tool("nvdisasm") is None,
    reason="needs ptxas and nvdisasm",
)


@needs_ptxas
def test_assemble_and_disassemble_a_kernel() -> None:
    """A store in PTX is a store in SASS."""
    done = assembler.assemble(_MINIMAL)
    assert done.registers > 0
    assert done.spill_bytes == 0
    assert done.losses == ()
    assert "STG" in assembler.disassemble(done.cubin)


@needs_ptxas
def test_a_refused_text_names_its_line() -> None:
    """The error carries the notes, and no path of a temporary folder."""
    with pytest.raises(assembler.AssemblyError) as caught:
        assembler.assemble(_MINIMAL.replace("%tid.x", "%tidx"))
    assert "line 9" in str(caught.value)
    assert {note.line for note in caught.value.notes} == {9, None}
    assert "tilec-" not in caught.value.log
