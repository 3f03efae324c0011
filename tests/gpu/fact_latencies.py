"""How long results, loads and bulk copies take, and what an SM gets of the L2, in cycles.

Idea: chains in which each instruction needs the one before it; a walk along pointers for loads;
one bulk copy at a time between two reads of the clock; and all threads of an SM, or of all SMs,
reading what the L2 holds.

Invariants: what is to come from memory was pushed out of the L2 by writing more than it holds, and
is read once; of everything else the least of several launches counts.

Never: says how much of it a kernel can hide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.gpu.fact_costs import Loop
from tests.gpu.fact_kernels import Kernel, entry
from tests.gpu.fact_record import Bench, Experiment, Fact, words
from tests.gpu.fact_sass import loop_instructions
from tilec.backend_ptx.module import DeviceBuffer, copy_to_device, device_facts

_LAUNCHES = 5

# --- results -------------------------------------------------------------------------------------

#: An instruction that needs its own result; %y and %z are constants.
_CHAINS = {
    "fma.rn.ftz.f32": "fma.rn.ftz.f32 %a0, %a0, %y0, %z0;",
    "mad.lo.s32": "mad.lo.s32 %a0, %a0, %y0, %z0;",
    "lop3.b32": "lop3.b32 %a0, %a0, %y0, %z0, 0x96;",
    "prmt.b32": "prmt.b32 %a0, %a0, %y0, 0x5410;",
    "ex2.approx.ftz.f32": "ex2.approx.ftz.f32 %a0, %a0;",
    "cvt.rn.bf16x2.f32": "cvt.rn.bf16x2.f32 %a0, %a0, %y0;",
    "shfl.sync.bfly.b32": "shfl.sync.bfly.b32 %a0, %a0, 1, 31, 0xffffffff;",
    "redux.sync.max.s32": "redux.sync.max.s32 %a0, %a0, 0xffffffff;",
    "ld.shared.b32": "ld.shared.b32 %a0, [%a0];",
    "mma.sync.m16n8k16.bf16": (
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%a0, %a1, %a2, %a3}, "
        "{%y0, %y0, %y0, %y0}, {%z0, %z0}, {%a0, %a1, %a2, %a3};"
    ),
}
_LENGTH = 32


def _chain(name: str) -> Loop:
    """A warp alone; of a load the chain is a word that holds its own address."""
    declare = "  .reg .b32 %a<4>;\n  .reg .b32 %y<1>;\n  .reg .b32 %z<1>;\n"
    setup = "".join(f"  add.u32 %a{i}, %r0, {i};\n" for i in range(4))
    setup += "  mul.lo.u32 %y0, %r0, 12345;\n  mul.lo.u32 %z0, %r0, 54321;\n"
    if name.startswith("ld.shared"):
        setup += "  st.shared.b32 [%r1], %r1;\n  mov.b32 %a0, %r1;\n"
    label = "".join(c if c.isalnum() else "_" for c in name)
    body = f"  {_CHAINS[name]}\n" * _LENGTH
    return Loop(f"chain_{label}", declare, setup, body, "", [f"%a{i}" for i in range(4)], 32)


def _result_facts() -> list[Fact]:
    loops = {name: _chain(name) for name in _CHAINS}
    bench = Bench(loop.kernel() for loop in loops.values())
    readings: dict[str, Any] = {}
    for name, loop in loops.items():
        sass = loop_instructions(loop.kernel())
        cycles = round(loop.cycles(bench, 1) / _LENGTH, 1)
        readings[name] = {"cycles": cycles, "loop in SASS": dict(sass)}
    return [result_latency(readings)]


def result_latency(readings: Mapping[str, Any]) -> Fact:
    """From an instruction to one that needs its result."""
    cycles = [row["cycles"] for row in readings.values()]
    question = (
        f"How many cycles after an instruction can one issue that needs its result (loops of "
        f"{_LENGTH}, one warp)?"
    )
    answer = f"{min(cycles):.0f} to {max(cycles):.0f}"
    return Fact("result latency", question, answer, None, dict(readings))


# --- memory --------------------------------------------------------------------------------------

_LINE = 128
_BEYOND_L2 = 256 << 20
_COLD = 64 << 20
"""Bytes at the front of a buffer that writing the rest pushes out of the L2."""
_HOPS = 256

_CLOCKED = """  mov.u64 %d3, %clock64;
  sub.u64 %d3, %d3, %d2;
  cvt.u32.u64 %r3, %d3;
"""


def walk_kernel() -> Kernel:
    """Follow pointers. Parameters: clock output (and the last pointer, at 8), first, hops."""
    body = f"""  ld.param.u64 %d0, [p0];
  ld.param.u64 %d1, [p1];
  ld.param.u32 %r2, [p2];
  mov.u64 %d2, %clock64;
LOOP:
  .pragma "nounroll";
  ld.global.cg.b64 %d1, [%d1];
  sub.u32 %r2, %r2, 1;
  setp.ne.u32 %p0, %r2, 0;
  @%p0 bra LOOP;
  st.global.b64 [%d0+8], %d1;
{_CLOCKED}  st.global.b32 [%d0], %r3;
"""
    return entry("walk", ("ptr", "ptr", "u32"), 32, body)


def bulk_kernel() -> Kernel:
    """One bulk copy to shared memory and the wait for it. Parameters: clock, source, bytes."""
    body = f"""  ld.param.u64 %d0, [p0];
  ld.param.u64 %d1, [p1];
  ld.param.u32 %r2, [p2];
  mov.u32 %r1, smem;
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra END;
  mbarrier.init.shared::cta.b64 [%r1], 1;
  fence.mbarrier_init.release.cluster;
  fence.proxy.async.shared::cta;
  add.u32 %r4, %r1, 1024;
  mov.u64 %d2, %clock64;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r2;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%d1], %r2, [%r1];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
  @!%p2 bra WAIT;
{_CLOCKED}  st.global.b32 [%d0], %r3;
END:
"""
    return entry("bulk", ("ptr", "ptr", "u32"), 32, body)


_READERS, _EACH, _ROUNDS = 1024, 4, 256
_REGION = 4 << 20
"""Bytes that every SM reads over and over."""


def read_kernel() -> Kernel:
    """All threads read 16 bytes at a time. Parameters: clocks by CTA, region, sink, flag (0)."""
    loads = "".join(
        f"  ld.global.cg.v4.b32 {{%r{16 + 4 * i}, %r{17 + 4 * i}, %r{18 + 4 * i}, "
        f"%r{19 + 4 * i}}}, [%d5+{16 * _READERS * i}];\n"
        for i in range(_EACH)
    )
    sums = "".join(f"  xor.b32 %r8, %r8, %r{16 + i};\n" for i in range(4 * _EACH))
    body = f"""  ld.param.u64 %d0, [p0];
  ld.param.u64 %d1, [p1];
  mov.u32 %r0, %tid.x;
  mov.u32 %r5, %ctaid.x;
  shl.b32 %r6, %r0, 4;
  mul.wide.u32 %d4, %r6, 1;
  mov.b32 %r8, 0;
  mul.lo.u32 %r7, %r5, {16 * _READERS * _EACH};
  mov.b32 %r2, {_ROUNDS};
  bar.sync 0;
  mov.u64 %d2, %clock64;
LOOP:
  .pragma "nounroll";
  and.b32 %r7, %r7, {_REGION - 1};
  cvt.u64.u32 %d5, %r7;
  add.u64 %d5, %d5, %d1;
  add.u64 %d5, %d5, %d4;
{loads}{sums}  add.u32 %r7, %r7, {16 * _READERS * _EACH};
  sub.u32 %r2, %r2, 1;
  setp.ne.u32 %p0, %r2, 0;
  @%p0 bra LOOP;
  bar.sync 0;
{_CLOCKED}  mul.wide.u32 %d6, %r5, 4;
  add.u64 %d0, %d0, %d6;
  st.global.b32 [%d0], %r3;
  ld.param.u64 %d7, [p2];
  ld.param.u32 %r9, [p3];
  setp.eq.u32 %p1, %r9, 0;
  @%p1 bra END;
  st.global.b32 [%d7], %r8;
END:
"""
    return entry("read", ("ptr", "ptr", "ptr", "b32"), _READERS, body)


def pointers(address: int, lines: int, spread: int, seed: int = 0) -> np.ndarray:
    """A buffer of ``spread`` bytes in which so many lines form one ring in random order."""
    rng = np.random.default_rng(seed)
    places = rng.permutation(spread // _LINE)[:lines] * _LINE
    held = np.zeros(spread // 8, np.uint64)
    held[places // 8] = address + np.roll(places, -1)
    return held


def _clock(bench: Bench, name: str, out: DeviceBuffer, *values: int, **how: int) -> int:
    bench.run(name, [out.address, *values], threads=32, **how)
    return int(out.read((1,), np.uint32)[0])


def _walk_facts() -> list[Fact]:
    bench = Bench([walk_kernel()])
    readings = {}
    with words(4) as out, DeviceBuffer(_BEYOND_L2) as buffer:
        held = pointers(buffer.address, _HOPS, 1 << 20)
        copy_to_device(buffer.address, held)
        first = int(held[np.flatnonzero(held)[0]])
        near = min(_clock(bench, "walk", out, first, _HOPS) for _ in range(_LAUNCHES))
        readings["load, L2"] = round(near / _HOPS, 1)
        far = []
        for seed in range(3):
            held = np.zeros(_BEYOND_L2 // 8, np.uint64)
            held[: _COLD // 8] = pointers(buffer.address, _HOPS, _COLD, seed)
            copy_to_device(buffer.address, held)
            first = int(held[np.flatnonzero(held)[0]])
            far.append(_clock(bench, "walk", out, first, _HOPS))
        readings["load, memory"] = round(min(far) / _HOPS, 1)
    return [memory_latency("load latency", "one load after the other", readings)]


_SIZES = (16, 1024, 16384, 65536)


def _bulk_facts() -> list[Fact]:
    bench, shared = Bench([bulk_kernel()]), 1024 + max(_SIZES)
    readings = {}
    with words(4) as out, DeviceBuffer.of(np.zeros(_BEYOND_L2 // 8, np.uint64)) as buffer:
        for number, size in enumerate(_SIZES):
            place = buffer.address + (number << 20)
            cold = _clock(bench, "bulk", out, place, size, shared_bytes=shared)
            warm = [
                _clock(bench, "bulk", out, place, size, shared_bytes=shared)
                for _ in range(_LAUNCHES)
            ]
            readings[f"{size} bytes, memory"] = float(cold)
            readings[f"{size} bytes, L2"] = float(min(warm))
    return [memory_latency("bulk copy latency", "one cp.async.bulk and the wait for it", readings)]


def memory_latency(name: str, what: str, readings: Mapping[str, float]) -> Fact:
    """How long something takes that reads global memory."""
    question = f"How many cycles does {what} take, from the L2 and from memory?"
    answer = f"{min(readings.values()):.0f} to {max(readings.values()):.0f}"
    return Fact(name, question, answer, None, dict(readings))


def _rate_facts() -> list[Fact]:
    bench, sms = Bench([read_kernel()]), device_facts().sm_count
    read = 16 * _READERS * _EACH * _ROUNDS
    readings = {}
    with words(sms) as out, words(4) as sink, DeviceBuffer.of(np.zeros(_REGION, np.uint8)) as data:
        for name, grid in (("one SM", 1), ("all SMs", sms)):
            best = float("inf")
            for _ in range(_LAUNCHES):
                values = [out.address, data.address, sink.address, 0]
                bench.run("read", values, threads=_READERS, grid=grid)
                best = min(best, float(np.median(out.read((grid,), np.uint32))))
            readings[name] = round(read / best, 1)
    return [l2_rate(readings)]


def l2_rate(readings: Mapping[str, float]) -> Fact:
    """What an SM gets of the L2, alone and with all others."""
    question = "How many bytes a cycle does an SM read of what the L2 holds?"
    answer = ", ".join(f"{name}: {rate:.0f}" for name, rate in readings.items())
    return Fact("L2 rate", question, answer, None, dict(readings))


def kernels() -> list[Kernel]:
    """All kernels of this file."""
    chains = [_chain(name).kernel() for name in _CHAINS]
    return [*chains, walk_kernel(), bulk_kernel(), read_kernel()]


#: All experiments of this file (they need a GPU, ptxas and nvdisasm).
EXPERIMENTS = (
    Experiment("results", _result_facts),
    Experiment("loads", _walk_facts),
    Experiment("bulk copies", _bulk_facts),
    Experiment("reading", _rate_facts),
)
