"""The model of time: what an instruction occupies and for how long, as tables of data.

All times are cycles of an SM of an H200, whatever the target of the text. A ``Cost`` names the unit
that an instruction of a warp occupies, for how many cycles, and how many cycles after its issue its
result is there. Where it comes from stands beside it: a reading of docs/hardware.md, or "assumed"
where nothing was measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilec.emulator.program import Instruction, Vector

RATES = "docs/hardware.md, instruction rates"
ORDERING = "docs/hardware.md, cost of ordering: a loop of one, so at most this"
ASSUMED = "assumed"


@dataclass(frozen=True)
class Cost:
    """What a warp's instruction of a class takes."""

    unit: str
    """Which unit it occupies: one of each kind a quarter of the SM, but for those of ``WIDE``."""
    busy: float
    """Cycles that the unit is occupied."""
    latency: int
    """Cycles from the issue to the result."""
    source: str
    stops: bool = False
    """Whether the warp waits for the end before its next instruction."""


WIDE = frozenset(("shared", "memory"))
"""Units that an SM has once; of the others each quarter has its own."""

COSTS: Mapping[str, Cost] = {
    # Nothing is left of these once the text is assembled: registers are renamed, parameters and
    # special registers are operands.
    "free": Cost("none", 0, 0, ASSUMED),
    "fma": Cost("fma", 1, 4, f"117 of 128 results a cycle: {RATES}; latency {ASSUMED}"),
    "add": Cost("alu", 1, 4, f"114 of 128 results a cycle: {RATES}; latency {ASSUMED}"),
    "logic": Cost("alu", 2, 5, f"62 results a cycle: {RATES}; latency {ASSUMED}"),
    "multiply": Cost("fma", 2, 5, f"64 results a cycle: {RATES}; latency {ASSUMED}"),
    "wide": Cost("fma", 4, 10, f"64-bit integers, as two to four of 32 bits: {ASSUMED}"),
    "divide": Cost("fma", 16, 60, f"a sequence of about 16 instructions: {ASSUMED}"),
    "double": Cost("double", 2, 8, f"64 results a cycle: {ASSUMED}"),
    "special": Cost("special", 8, 20, f"16 results a cycle: {RATES}; latency {ASSUMED}"),
    "shuffle": Cost("shared", 1, 23, f"32 results a cycle an SM: {RATES}; latency {ASSUMED}"),
    "reduce": Cost("shared", 2, 26, f"16 results a cycle an SM: {RATES}; latency {ASSUMED}"),
    "branch": Cost("branch", 1, 0, ASSUMED),
    "end": Cost("branch", 1, 0, ASSUMED),
    # The unit of shared memory gives 128 bytes a cycle: the busy time of these is the turns that
    # their lanes take (emulator/conflicts.py).
    "shared load": Cost("shared", 1, 29, ASSUMED),
    "shared store": Cost("shared", 1, 0, ASSUMED),
    "shared atomic": Cost("shared", 1, 40, ASSUMED),
    "copy": Cost("memory", 1, 0, f"see L2_LATENCY: {ASSUMED}"),
    "global load": Cost("memory", 1, 0, f"see L2_LATENCY: {ASSUMED}"),
    "global store": Cost("memory", 1, 0, f"see L2_LATENCY: {ASSUMED}"),
    "tensor copy": Cost("memory", 1, 0, f"see L2_LATENCY: {ASSUMED}"),
    "product of a warp": Cost("tensor", 0, 33, f"see warp_product_cycles; latency {ASSUMED}"),
    "product": Cost("tensor", 0, 0, "see product_cycles"),
    "mbarrier": Cost("shared", 1, 20, ASSUMED),
    "barrier": Cost("shared", 1, 29, ORDERING, stops=True),
    "fence": Cost("none", 0, 29, ORDERING, stops=True),
    "proxy fence": Cost("none", 0, 33, ORDERING, stops=True),
    "wide proxy fence": Cost("none", 0, 176, ORDERING, stops=True),
    "group": Cost("branch", 1, 0, ASSUMED),
    "registers": Cost("none", 0, 30, ASSUMED, stops=True),
}

FLOWS = frozenset(
    ("free", "fma", "add", "logic", "multiply", "wide", "divide", "double", "special", "shuffle",
     "reduce", "product of a warp", "shared load", "global load")
)  # fmt: skip
"""Classes that do nothing but give results. The assembler orders them as their data allow, so a
warp does not stand still at one whose operands are late: its result is late, and the first
instruction of another class that needs it waits."""

_SIXTEEN = frozenset(("f16", "bf16", "f16x2", "bf16x2"))
_LONG = frozenset(("u64", "s64", "b64"))

RULES: tuple[tuple[str, frozenset[str] | None, str], ...] = (
    # the beginning of an opcode, types of which it has one, the class; the first that fits counts
    ("mov", None, "free"), ("cvta", None, "free"), ("ld.param", None, "free"),
    ("pragma", None, "free"), ("setmaxnreg", None, "registers"),
    ("bra", None, "branch"), ("ret", None, "end"), ("exit", None, "end"), ("trap", None, "end"),
    ("ld.shared", None, "shared load"), ("ldmatrix", None, "shared load"),
    ("st.shared", None, "shared store"), ("stmatrix", None, "shared store"),
    ("atom.shared", None, "shared atomic"), ("red.shared", None, "shared store"),
    ("ld", None, "global load"), ("atom", None, "global store"),
    ("st", None, "global store"), ("red", None, "global store"),
    ("cp.async.bulk.tensor", None, "tensor copy"),
    ("cp.async.bulk.commit_group", None, "group"), ("cp.async.bulk.wait_group", None, "group"),
    ("cp.async.commit_group", None, "group"), ("cp.async.wait_group", None, "group"),
    ("cp.async.wait_all", None, "group"), ("cp.async.mbarrier", None, "mbarrier"),
    ("cp.async", None, "copy"),
    ("wgmma.mma_async", None, "product"), ("wgmma", None, "group"),
    ("mma", None, "product of a warp"),
    ("mbarrier", None, "mbarrier"),
    ("bar.warp", None, "fence"), ("bar.arrive", None, "mbarrier"), ("bar", None, "barrier"),
    ("fence.proxy.async.shared", None, "proxy fence"),
    ("fence.proxy.async", None, "wide proxy fence"), ("fence.proxy", None, "proxy fence"),
    ("fence", None, "fence"), ("membar", None, "fence"),
    ("shfl", None, "shuffle"), ("redux", None, "reduce"), ("movmatrix", None, "reduce"),
    ("vote", None, "logic"), ("elect", None, "logic"),
    *((name, None, "special") for name in (
        "ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh")),
    ("div", None, "divide"), ("rem", None, "divide"),
    ("cvt", frozenset(("f64", *_LONG)), "wide"), ("cvt", None, "logic"),
    *((name, frozenset(("f64",)), "double") for name in ("add", "sub", "mul", "fma", "mad")),
    *((name, frozenset(("f32",)) | _SIXTEEN, "fma") for name in (
        "add", "sub", "mul", "fma", "mad")),
    *((name, _LONG, "wide") for name in ("mul", "mad")),
    ("mul", None, "multiply"), ("mad", None, "multiply"),
    ("add", None, "add"), ("sub", None, "add"),
)  # fmt: skip
"""Classes by opcode; what fits no rule is "logic": comparisons, selections, bits, minima."""


def class_of(at: Instruction) -> str:
    """The class of an instruction."""
    types = frozenset(at.parts)
    for opcode, wanted, name in RULES:
        begins = at.opcode == opcode or at.opcode.startswith((f"{opcode}.", f"{opcode}::"))
        if begins and (wanted is None or not wanted.isdisjoint(types)):
            return name
    return "logic"


# --- memory --------------------------------------------------------------------------------------

CLOCK_HZ = 1.83e9
"""The clock at which bandwidths are turned into bytes a cycle; assumed: under load it is lower."""
SMS = 132
PORT_BYTES = 64
"""Bytes a cycle between an SM and the L2; assumed, the figure that cost models of others use."""
MEMORY_BYTES = 4.8e12 / CLOCK_HZ
"""Bytes a cycle of the memory of the whole GPU: 4.8 TB/s of an H200."""
L2_LATENCY, MEMORY_LATENCY = 260, 600
"""Cycles of a load that finds its line in the L2, and of one that does not; assumed."""
TENSOR_COPY = 150
"""Cycles that TMA takes more than a load; assumed."""
LINE, SECTOR = 128, 32
"""Bytes of a line of the L2, and of what moves at once."""


THREADS, SHARED_BYTES, RESERVED_BYTES, MOST_CTAS = 2048, 228 * 1024, 1024, 32
"""Of an SM: threads, shared memory and what of it each CTA costs beyond its own, CTAs (CUDA
programming guide, compute capabilities)."""


def room(threads: int, shared_bytes: int) -> int:
    """How many CTAs fit on an SM by their threads and shared memory; registers are unknown."""
    by_memory = SHARED_BYTES // (shared_bytes + RESERVED_BYTES)
    return min(MOST_CTAS, THREADS // max(1, threads), by_memory)


def memory_share(ctas: int) -> float:
    """Bytes a cycle of the GPU's memory for each CTA of a launch, one CTA an SM."""
    return MEMORY_BYTES / max(1, min(SMS, ctas))


# --- products ------------------------------------------------------------------------------------

PRODUCT_LATENCY = 33
"""Cycles from the last step of a product to the end of its pipeline; assumed."""
MMA_SHARE = 0.66
"""What mma.sync reaches of the rate of wgmma (docs/hardware.md, mma.sync rate)."""
_WGMMA, _MMA = re.compile(r"m64n(\d+)k(\d+)"), re.compile(r"m(\d+)n(\d+)k(\d+)")
_STEP_BYTES = 32
"""Bytes of K in one wgmma, for every element type (PTX ISA 9.7.15.2)."""


@dataclass(frozen=True)
class Shape:
    """What a product instruction multiplies, by one warpgroup (wgmma) or one warp (mma.sync)."""

    m: int
    n: int
    k: int
    types: str
    """Element types of A and B, such as ``bf16`` or ``e4m3×e5m2``."""
    in_registers: bool
    """Whether A comes from registers."""

    @property
    def macs(self) -> int:
        """Multiplications with addition."""
        return self.m * self.n * self.k

    @property
    def shared_bytes(self) -> int:
        """What a wgmma reads of shared memory."""
        return _STEP_BYTES * (self.n + (0 if self.in_registers else self.m))


def shape_of(at: Instruction) -> Shape | None:
    """The shape of a product; None for other instructions."""
    asynchronous = at.parts[:2] == ("wgmma", "mma_async")
    if not asynchronous and at.parts[0] != "mma":
        return None
    place = next(n for n, part in enumerate(at.parts) if _MMA.fullmatch(part))
    numbers = _MMA.fullmatch(at.parts[place])
    assert numbers is not None
    m, n, k = (int(number) for number in numbers.groups())
    rest = [p for p in at.parts[place + 1 :] if p not in ("row", "col", "satfinite")]
    _, a, b = rest[:3]
    from_registers = not asynchronous or isinstance(at.operands[1], Vector)
    return Shape(m, n, k, a if a == b else f"{a}×{b}", from_registers)


def product_cycles(shape: Shape) -> float:
    """Cycles of an SM's tensor cores for a wgmma (docs/hardware.md, wgmma rate).

    n / 2 from n = 64 on, for every element type. Below, both operands in shared memory take
    16 + n / 4, which is 128 bytes a cycle; with A in registers 13 is the least.
    """
    if shape.in_registers:
        return max(13.0, shape.n / 2)
    return max(16 + shape.n / 4, shape.n / 2)


def warp_product_cycles(shape: Shape) -> float:
    """Cycles of a quarter's tensor core for an mma.sync.

    At the rate of wgmma it would make 512 multiplications of 16-bit elements a cycle.
    """
    return shape.macs / (1024 / _bytes_of(shape.types)) / MMA_SHARE


def _bytes_of(types: str) -> int:
    first = types.partition("×")[0]
    return {"tf32": 4, "f16": 2, "bf16": 2}.get(first, 1)
