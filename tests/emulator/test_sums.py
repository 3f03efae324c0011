"""Sums that TMA makes in memory: each element of the box that exists is added to, once rounded."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.emulator.launch import BufferMap, BufferPointer, Launch, emulate
from tilec.interp.numbers import decode, encode, rounded, storage
from tilec.ir.types import DTYPES
from tilec.source import SourceFile

ROWS, COLUMNS = 20, 24
BOX = (16, 16)

_TEXT = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .align 64 .b8 map[128]) .maxntid 32 {{
.reg .b32 %r<12>; .reg .b64 %d<9>; .reg .pred %p<3>;
.shared .align 128 .b8 box[1024];
mov.u32 %r0, %tid.x;
mov.u32 %r1, box;
ld.param.u64 %d0, [a];
mad.wide.u32 %d1, %r0, 32, %d0;
mad.lo.u32 %r2, %r0, 32, %r1;
setp.lt.u32 %p1, %r0, {lanes};
@%p1 ld.global.v4.b32 {{%r3, %r4, %r5, %r6}}, [%d1];
@%p1 st.shared.v4.b32 [%r2], {{%r3, %r4, %r5, %r6}};
@%p1 ld.global.v4.b32 {{%r3, %r4, %r5, %r6}}, [%d1+16];
@%p1 st.shared.v4.b32 [%r2+16], {{%r3, %r4, %r5, %r6}};
fence.proxy.async.shared::cta;
bar.sync 0;
mov.b64 %d2, map;
cvta.param.u64 %d2, %d2;
mov.u32 %r7, 16;
mov.u32 %r8, 8;
setp.eq.u32 %p0, %r0, 0;
@%p0 cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group
    [%d2, {{%r7, %r8}}], [%r1];
@%p0 cp.async.bulk.commit_group;
@%p0 cp.async.bulk.wait_group 0;
ret;
}}
"""


def _run(name: str, grid: int = 2) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Two CTAs add one box at column 16 and row 8: what there is, what must be, and findings."""
    kind = DTYPES[name]
    random = np.random.default_rng(3)
    draw = random.standard_normal if kind.is_float else lambda n: random.integers(-9, 9, n)
    box, there = (
        rounded(kind, draw(shape)) if kind.is_float else draw(shape).astype(storage(kind))
        for shape in (BOX, (ROWS, COLUMNS))
    )
    wanted = there.copy()
    for _ in range(grid):
        part = wanted[8:20, 16:24] + box[:12, :8]
        wanted[8:20, 16:24] = rounded(kind, part) if kind.is_float else part
    array = encode(kind, there, storage(kind))
    buffers = {
        "a": encode(kind, box, storage(kind)).view(np.uint8).reshape(-1),
        "c": array.view(np.uint8).reshape(-1),
    }
    each = kind.bytes
    tensor = BufferMap("c", 0, each, (COLUMNS, ROWS), (COLUMNS * each,), BOX, 0, name)
    launch = Launch((grid, 1, 1), (32, 1, 1), 0, (BufferPointer("a"), tensor), buffers)
    text = _TEXT.format(lanes=BOX[0] * BOX[1] * each // 32)
    findings, _ = emulate(SourceFile("k.ptx", text), launch)
    found = buffers["c"].view(storage(kind)).reshape(ROWS, COLUMNS)
    return decode(kind, found), wanted, [f.message for f in findings]


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "s32", "u32"])
def test_a_box_is_added_to_what_is_there(name: str) -> None:
    found, wanted, findings = _run(name)
    assert findings == []
    np.testing.assert_array_equal(found, wanted)
