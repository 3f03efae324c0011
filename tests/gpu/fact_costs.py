"""What instructions cost, in cycles of one SM.

Idea: a loop of independent instructions between two reads of the clock.  Cycles do not depend on
the clock rate, so power limits do not blur them.

Invariants: the slowest warp counts; each figure is the least of several launches, since a loop can
only be disturbed upwards; results are stored under a condition that never holds, so that nothing is
dropped as dead; where SASS has another number of instructions than the text, the answer says so.

Never: compares with another library (the benchmarks do).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.gpu.fact_kernels import INSTRUCTION_K, Kernel, Wgmma, entry
from tests.gpu.fact_record import Bench, Experiment, Fact, listing, words
from tests.gpu.fact_sass import LOOP_OVERHEAD, loop_instructions
from tilec.backend_ptx.module import device_facts

_ITERATIONS = 256
_LAUNCHES = 3
_CHAINS = 8
#: Dense peak of one Hopper SM in operations a cycle: m64n256 takes 128 cycles for 32 bytes of K.
_PEAK = {"bf16": 4096, "f16": 4096, "tf32": 2048, "e4m3": 8192, "s8": 8192}
_FULL = 0.99
_SHARED_BYTES = 160 * 1024  # one CTA an SM


@dataclass(frozen=True)
class Loop:
    """A timed loop: registers and setup, the body of one iteration, and what to keep alive."""

    name: str
    declare: str
    setup: str
    body: str
    drain: str
    keep: Sequence[str]
    threads: int
    cluster: int = 1
    finish: str = ""

    def kernel(self) -> Kernel:
        """Parameters: clock output (a word a warp), sink, iterations, flag (pass 0)."""
        text = f"""{self.declare}  mov.u32 %r0, %tid.x;
  mov.u32 %r1, smem;
  ld.param.u64 %d0, [p0];
  ld.param.u64 %d1, [p1];
  ld.param.u32 %r2, [p2];
{self.setup}  bar.sync 0;
  mov.u64 %d2, %clock64;
LOOP:
  .pragma "nounroll";
{self.body}  sub.u32 %r2, %r2, 1;
  setp.ne.u32 %p0, %r2, 0;
  @%p0 bra LOOP;
{self.drain}  mov.u64 %d3, %clock64;
  sub.u64 %d3, %d3, %d2;
  cvt.u32.u64 %r3, %d3;
  mov.u32 %r4, %ctaid.x;
  mad.lo.u32 %r4, %r4, {self.threads}, %r0;
  shr.u32 %r4, %r4, 5;
  mul.wide.u32 %d4, %r4, 4;
  add.u64 %d0, %d0, %d4;
  st.global.b32 [%d0], %r3;
{self.finish}  ld.param.u32 %r5, [p3];
  setp.eq.u32 %p1, %r5, 0;
  @%p1 bra END;
"""
        text += "".join(f"  st.volatile.global.b32 [%d1], {register};\n" for register in self.keep)
        text += "END:\n"
        more = ".explicitcluster .reqnctapercluster 2,1,1 " if self.cluster == 2 else ""
        return entry(self.name, ("ptr", "ptr", "u32", "b32"), self.threads, text, more)

    def cycles(self, bench: Bench, grid: int) -> float:
        """Cycles of one iteration."""
        warps = grid * self.threads // 32
        best = float("inf")
        with words(warps) as clocks, words(1024) as sink:
            values = [clocks.address, sink.address, _ITERATIONS, 0]
            for _ in range(_LAUNCHES):
                bench.run(
                    self.name, values, threads=self.threads, shared_bytes=_SHARED_BYTES, grid=grid
                )
                best = min(best, float(clocks.read((warps,), np.uint32).max()))
        return best / _ITERATIONS


# --- tensor cores --------------------------------------------------------------------------------

_MMA = {
    "bf16": ("m16n8k16", "f32.bf16.bf16.f32", 16), "f16": ("m16n8k16", "f32.f16.f16.f32", 16),
    "tf32": ("m16n8k8", "f32.tf32.tf32.f32", 8), "e4m3": ("m16n8k32", "f32.e4m3.e4m3.f32", 32),
    "s8": ("m16n8k32", "s32.s8.s8.s32", 32),
}  # fmt: skip
_MMA_THREADS = 512
_WGMMA_NS = (8, 16, 32, 64, 80, 96, 128, 160, 192, 256)


def _mma_loop(dtype: str) -> Loop:
    shape, types, _ = _MMA[dtype]
    body = ""
    for chain in range(_CHAINS):
        d = ", ".join(f"%a{4 * chain + i}" for i in range(4))
        # A B of its own for each chain: ptxas computes equal 8-bit products once.
        b = f"%b{4 + 2 * chain}, %b{5 + 2 * chain}"
        body += f"  mma.sync.aligned.{shape}.row.col.{types} {{{d}}}, "
        body += f"{{%b0, %b1, %b2, %b3}}, {{{b}}}, {{{d}}};\n"
    inputs = 4 + 2 * _CHAINS
    declare = f"  .reg .b32 %a<{4 * _CHAINS}>;\n  .reg .b32 %b<{inputs}>;\n"
    setup = "".join(f"  mov.b32 %a{i}, 0;\n" for i in range(4 * _CHAINS))
    setup += "".join(f"  mul.lo.u32 %b{i}, %r0, {12345 + 2 * i};\n" for i in range(inputs))
    keep = [f"%a{i}" for i in range(4 * _CHAINS)]
    return Loop(f"mma_{dtype}", declare, setup, body, "", keep, _MMA_THREADS)


def _wgmma_loop(dtype: str, n: int, registers: bool, groups: int) -> Loop:
    form = Wgmma(dtype, dtype, n, a_in_registers=registers)
    declare = f"  .reg .b32 %a<{n // 2}>;\n  .reg .b32 %b<16>;\n  .reg .b64 %e<8>;\n"
    setup = "".join(f"  mov.b32 %a{i}, 0;\n" for i in range(n // 2))
    # Different values: copies of one would be made anew in every iteration.
    setup += "".join(f"  mul.lo.u32 %b{i}, %r0, {12345 + 2 * i};\n" for i in range(16))
    setup += """  shr.u32 %r8, %r1, 4;
  and.b32 %r8, %r8, 0x3fff;
  cvt.u64.u32 %d8, %r8;
"""
    body = "  wgmma.fence.sync.aligned;\n"
    for step in range(4):
        # Different descriptors: ptxas may drop a repeated one.
        a, b = 0x4000004000010000 + 2 * step, 0x4000004000010400 + 2 * step
        setup += f"  add.u64 %e{step}, %d8, {a};\n  add.u64 %e{4 + step}, %d8, {b};\n"
        quad = "{" + ", ".join(f"%b{4 * step + i}" for i in range(4)) + "}"
        body += form.instruction(quad if registers else f"%e{step}", f"%e{4 + step}", "1")
    body += "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 1;\n"
    drain = "  wgmma.wait_group.sync.aligned 0;\n"
    keep = [f"%a{i}" for i in range(n // 2)]
    name = f"wgmma_{dtype}_n{n}_{'rs' if registers else 'ss'}_g{groups}"
    return Loop(name, declare, setup, body, drain, keep, 128 * groups)


_WGMMA_LOOPS = [
    *(_wgmma_loop(dtype, 256, False, 2) for dtype in _PEAK),
    *(_wgmma_loop("bf16", n, registers, 2) for n in _WGMMA_NS for registers in (False, True)),
    *(_wgmma_loop("bf16", n, registers, 1) for n in (64, 128, 256) for registers in (False, True)),
]


def _mma_facts() -> list[Fact]:
    loops = {dtype: _mma_loop(dtype) for dtype in _MMA}
    bench, sms = Bench(loop.kernel() for loop in loops.values()), device_facts().sm_count
    readings: dict[str, Any] = {}
    answers = []
    for dtype, loop in loops.items():
        cycles = loop.cycles(bench, sms)
        rate = _MMA_THREADS // 32 * _CHAINS * 2 * 16 * 8 * _MMA[dtype][2] / cycles
        share = rate / _PEAK[dtype]
        sass = loop_instructions(loop.kernel())
        products = sum(count for name, count in sass.items() if "MMA" in name)
        readings[dtype] = {
            "operations a cycle": round(rate), "share of peak": share, "loop in SASS": dict(sass)
        }  # fmt: skip
        each = "" if products == _CHAINS else f" ({products / _CHAINS:g} SASS products each)"
        answers.append(f"{dtype} {share:.0%}{each}")
    question = (
        "What share of wgmma's nominal rate does mma.sync reach (16 warps an SM, 8 independent "
        "accumulators each, operands in registers and the same in every iteration)?"
    )
    return [Fact("mma.sync rate", question, listing(answers), None, readings)]


def _wgmma_facts() -> list[Fact]:
    loops = {loop.name: loop for loop in _WGMMA_LOOPS}.values()
    bench, sms = Bench(loop.kernel() for loop in loops), device_facts().sm_count
    wgmma: dict[str, Any] = {}
    for loop in loops:
        _, dtype, width, form, groups = loop.name.split("_")
        work = 4 * 2 * 64 * int(width[1:]) * INSTRUCTION_K[dtype] * int(groups[1:])
        cycles = loop.cycles(bench, sms)
        key = f"{dtype} {width} {form} {'one warpgroup' if groups == 'g1' else 'two warpgroups'}"
        wgmma[key] = {
            "cycles an instruction": cycles / 4 / int(groups[1:]),
            "share of peak": work / cycles / _PEAK[dtype],
        }
    return [wgmma_rate(wgmma)]


def wgmma_rate(readings: Mapping[str, Any]) -> Fact:
    """From which width on each form reaches the nominal rate."""
    forms: dict[str, dict[int, float]] = defaultdict(dict)
    for key, row in readings.items():
        dtype, width, form, groups = key.split(" ", 3)
        forms[f"{dtype} {form}, {groups}"][int(width[1:])] = row["share of peak"]
    parts = []
    for form, shares in forms.items():
        below = max((n for n, share in shares.items() if share < _FULL), default=0)
        first = min((n for n in shares if n > below), default=None)
        narrow = [f"n = {n} {share:.0%}" for n, share in shares.items() if n <= below]
        reached = f"from n = {first} on" if first else "at no width"
        if len(shares) == 1 and first:
            reached = f"at n = {first}, the only one tried"
        parts.append(f"{form}: {reached}{f' ({listing(narrow)})' if narrow else ''}")
    question = (
        f"At which widths that were tried does wgmma reach {_FULL:.0%} of the nominal rate, by "
        "form (ss: both operands in shared memory, rs: A in registers)?"
    )
    return Fact("wgmma rate", question, "; ".join(parts), None, dict(readings))


# --- ordinary instructions -----------------------------------------------------------------------

#: Instruction by name; %x is a chain's register, %n the next chain's, %y and %z are constants.
#: Integer forms are chosen so that ptxas cannot fold two steps of a chain into one.
_ORDINARY = {
    "fma.rn.ftz.f32": "fma.rn.ftz.f32 %x, %x, %y, %z;",
    "fma.rn.bf16x2": "fma.rn.bf16x2 %x, %x, %y, %z;",
    "max.ftz.f32": "max.ftz.f32 %x, %x, %y;",
    "max.bf16x2": "max.bf16x2 %x, %x, %y;",
    "ex2.approx.ftz.f32": "ex2.approx.ftz.f32 %x, %x;",
    "ex2.approx.ftz.bf16x2": "ex2.approx.ftz.bf16x2 %x, %x;",
    "lg2.approx.ftz.f32": "lg2.approx.ftz.f32 %x, %x;",
    "cvt.rn.bf16x2.f32": "cvt.rn.bf16x2.f32 %x, %x, %y;",
    "cvt.rn.f16x2.f32": "cvt.rn.f16x2.f32 %x, %x, %y;",
    "shfl.sync.bfly.b32": "shfl.sync.bfly.b32 %x, %x, 1, 31, 0xffffffff;",
    "redux.sync.max.s32": "redux.sync.max.s32 %x, %x, 0xffffffff;",
    "mad.lo.s32": "mad.lo.s32 %x, %x, %n, %z;",
    "add.s32": "add.s32 %x, %x, %n;",
    "lop3.b32": "lop3.b32 %x, %x, %y, %z, 0x96;",
    "prmt.b32": "prmt.b32 %x, %x, %y, 0x5410;",
}
_ORDINARY_THREADS = 512
_REPEATS = 4
_WRITTEN = _REPEATS * _CHAINS


def _ordinary_loop(name: str) -> Loop:
    lines = []
    for i in range(_CHAINS):
        line = _ORDINARY[name].replace("%n", f"%a{(i + 1) % _CHAINS}").replace("%x", f"%a{i}")
        lines.append("  " + line.replace("%y", "%y0").replace("%z", "%z0"))
    declare = f"  .reg .b32 %a<{_CHAINS}>;\n  .reg .b32 %y<1>;\n  .reg .b32 %z<1>;\n"
    setup = "".join(f"  add.u32 %a{i}, %r0, {i};\n" for i in range(_CHAINS))
    setup += "  mul.lo.u32 %y0, %r0, 12345;\n  mul.lo.u32 %z0, %r0, 54321;\n"
    keep = [f"%a{i}" for i in range(_CHAINS)]
    words_ = "".join(c if c.isalnum() else "_" for c in name)
    body = "\n".join(lines * _REPEATS) + "\n"
    return Loop(f"op_{words_}", declare, setup, body, "", keep, _ORDINARY_THREADS)


def _ordinary_facts() -> list[Fact]:
    loops = {name: _ordinary_loop(name) for name in _ORDINARY}
    bench, sms = Bench(loop.kernel() for loop in loops.values()), device_facts().sm_count
    readings: dict[str, Any] = {}
    for name, loop in loops.items():
        rate = _WRITTEN * _ORDINARY_THREADS / loop.cycles(bench, sms)
        sass = loop_instructions(loop.kernel())
        readings[name] = {"results a cycle": round(rate, 2), "loop in SASS": dict(sass)}
    return [instruction_rates(readings)]


def instruction_rates(readings: Mapping[str, Any]) -> Fact:
    """The rates, and which instructions ptxas made into more or fewer than one."""
    others = []
    for name, row in readings.items():
        kept = sum(row["loop in SASS"].values()) - LOOP_OVERHEAD
        if kept != _WRITTEN:
            others.append(f"{name} ({kept / _WRITTEN:.3g})")
    rates = [row["results a cycle"] for row in readings.values()]
    answer = f"{min(rates):.0f} to {max(rates):.0f}"
    if others:
        answer += f"; where ptxas did not keep one SASS instruction each: {listing(others)}"
    question = (
        "How many results (threads x instructions) a cycle does one SM deliver (the three "
        f"instructions that count {_WRITTEN} down included)?"
    )
    return Fact("instruction rates", question, answer, None, dict(readings))


# --- ordering ------------------------------------------------------------------------------------

_REMOTE = """  setp.eq.u32 %p3, %r0, 0;
  @%p3 mbarrier.init.shared::cta.b64 [%r1], 1;
  fence.mbarrier_init.release.cluster;
  mov.u32 %r8, %cluster_ctarank;
  xor.b32 %r8, %r8, 1;
  mapa.shared::cluster.u32 %r9, %r1, %r8;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
"""
# No CTA leaves while its peer still arrives on its barrier.
_LEAVE = "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
# By all lanes to one word: under the arrive's predicate it would become a branch.
_STORE = "  st.global.b32 [%d1+128], %r2;\n"
_ORDER = {
    # All but free, and keeps the loop from being dropped: what the loop itself costs.
    "bar.warp.sync": "  bar.warp.sync 0xffffffff;\n",
    "local arrive": "  @%p3 mbarrier.arrive.shared::cta.b64 _, [%r1];\n",
    "remote arrive": "  @%p3 mbarrier.arrive.shared::cluster.b64 _, [%r9];\n",
    "remote arrive .release.cluster": (
        "  @%p3 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];\n"
    ),
    "fence.proxy.async.shared::cta": "  fence.proxy.async.shared::cta;\n",
    "fence.proxy.async": "  fence.proxy.async;\n",
    "bar.sync": "  bar.sync 0;\n",
}


def _order_loop(name: str, store: bool) -> Loop:
    words_ = "".join(c if c.isalnum() else "_" for c in name)
    body = (_STORE if store else "") + _ORDER[name]
    kernel_name = f"order_{words_}{'_store' if store else ''}"
    return Loop(kernel_name, "", _REMOTE, body, "", [], 32, 2, _LEAVE)


def _order_facts() -> list[Fact]:
    loops = [_order_loop(name, store) for name in _ORDER for store in (False, True)]
    bench = Bench(loop.kernel() for loop in loops)
    readings = {}
    for name in _ORDER:
        for store in (False, True):
            key = f"{name}{' after a global store' if store else ''}"
            readings[key] = _order_loop(name, store).cycles(bench, 2)
    return [ordering_cost({key: round(cycles, 1) for key, cycles in readings.items()})]


def ordering_cost(readings: Mapping[str, float]) -> Fact:
    """How much dearer the wide forms are than the narrow ones."""
    release = readings["remote arrive .release.cluster"] - readings["remote arrive"]
    fence = readings["fence.proxy.async"] - readings["fence.proxy.async.shared::cta"]
    question = (
        "How many cycles does a loop of one arrive (by a lane) or one fence (by a warp) take an "
        "iteration in a cluster of two, and how much dearer is the .release.cluster arrive?"
    )
    answer = (
        f".release.cluster costs {release:.0f} cycles more than the default form of a remote "
        f"arrive; fence.proxy.async {fence:.0f} more than fence.proxy.async.shared::cta"
    )
    return Fact("cost of ordering", question, answer, release > 0, dict(readings))


def kernels() -> list[Kernel]:
    """All kernels of this file."""
    loops = [
        *(_mma_loop(dtype) for dtype in _MMA),
        *{loop.name: loop for loop in _WGMMA_LOOPS}.values(),
        *(_ordinary_loop(name) for name in _ORDINARY),
        *(_order_loop(name, store) for name in _ORDER for store in (False, True)),
    ]
    return [loop.kernel() for loop in loops]


#: All experiments of this file (they need a GPU, ptxas and nvdisasm).
EXPERIMENTS = (
    Experiment("mma.sync", _mma_facts),
    Experiment("wgmma", _wgmma_facts),
    Experiment("ordinary instructions", _ordinary_facts),
    Experiment("ordering", _order_facts),
)
