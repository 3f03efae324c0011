"""Small PTX texts with one planted fault each, and the same text without it.

A line with the mark ``//! drop`` is missing in the faulty text; after ``//! instead`` stands what
the faulty text has in place of the line. ``@INIT n`` stands for the initialisation of an mbarrier
at shared address 0 for n arrivals, by thread 0, made known to all.

%r0 is the thread, %r1 the start of shared memory, %d0 and %d1 the arrays ``a`` (input) and ``b``
(nothing in it yet), %d2 the tensor map of ``a`` as 64 rows of 64 bf16, with boxes of 8 rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tilec.emulator.findings import Findings
from tilec.emulator.launch import BufferMap, BufferPointer, Launch, start
from tilec.emulator.parse import parse_ptx
from tilec.emulator.schedule import Choice
from tilec.source import SourceFile

_HEAD = """.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(.param .u64 a, .param .u64 b, .param .align 64 .b8 map[128])
 .maxntid {threads},1,1 {cluster}
{{
.reg .b32 %r<99>; .reg .f32 %f<99>; .reg .b64 %d<33>; .reg .b16 %h<9>; .reg .pred %p<17>;
mov.u32 %r0, %tid.x;
mov.u32 %r1, smem;
ld.param.u64 %d0, [a];
ld.param.u64 %d1, [b];
mov.b64 %d2, map;
cvta.param.u64 %d2, %d2;
"""
_INIT = """setp.eq.u32 %p0, %r0, 0;
@!%p0 bra $ready;
mbarrier.init.shared::cta.b64 [%r1], {};
fence.mbarrier_init.release.cluster;
$ready:
bar.sync 0;"""


@dataclass
class Case:
    """A text with a mark, and how to run it."""

    text: str
    threads: int = 64
    grid: int = 1
    order: str = "late"
    box: tuple[int, int] = (64, 8)
    stride: int = 128
    cluster: int = 1
    """CTAs of a cluster; the grid is one of them."""

    def clean(self) -> Findings:
        """What is found in the text without the fault."""
        return self._run(re.sub(r"//!.*", "", self.text))

    def faulty(self) -> Findings:
        """What is found in the text with the fault."""
        text = re.sub(r"^.*//! drop *$", "", self.text, flags=re.M)
        text = re.sub(r"^.*//! instead (.*)$", r"\1", text, flags=re.M)
        assert text != self.text
        return self._run(text)

    def _head(self) -> str:
        alone = self.cluster == 1
        more = "" if alone else f".explicitcluster .reqnctapercluster {self.cluster},1,1"
        return _HEAD.format(threads=self.threads, cluster=more)

    def _run(self, text: str) -> Findings:
        body = re.sub(r"@INIT (\d+)", lambda m: _INIT.format(m[1]), text)
        source = SourceFile("k.ptx", self._head() + body + "\nret;\n}\n")
        a = (np.arange(64 * 64) % 100 + 0x3F00).astype(np.uint16)
        buffers = {"a": a.view(np.uint8), "b": np.zeros(1 << 16, np.uint8)}
        map = BufferMap("a", 0, 2, (64, 64), (self.stride,), self.box, 128)
        launch = Launch(
            (max(self.grid, self.cluster), 1, 1),
            (self.threads, 1, 1),
            16384,
            (BufferPointer("a"), BufferPointer("b"), map),
            buffers,
            {"b": False},
        )
        program = parse_ptx(source)["k"]
        findings, _ = start(program, source, launch, Choice(self.order), advise=True)
        return findings


def kinds(findings: Findings) -> set[str]:
    """The classes that were found, advice among them."""
    return {f.kind for f in (*findings, *findings.advice.values())}


def check(kind: str, case: Case) -> None:
    """The class is found in the faulty text, with words; nothing is found in the other."""
    clean = case.clean()
    assert not [f.message for f in clean]
    assert kind not in kinds(clean)
    found = case.faulty()
    assert kind in kinds(found), [f"{f.kind}: {f.message}" for f in found]
    chosen = next(f for f in (*found, *found.advice.values()) if f.kind == kind)
    assert chosen.message
    assert chosen.missing
    assert chosen.line > 0
