"""The record of facts that the passes read about a GPU; data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mma:
    """A shape of mma.sync: ``rows``, 8 columns and ``k`` of the operands' common axis."""

    a: str
    b: str
    accumulate: str
    k: int
    rows: int = 16


MMA_16_BIT = (Mma("f16", "f16", "f32", 16), Mma("bf16", "bf16", "f32", 16))
MMA_TF32 = (Mma("tf32", "tf32", "f32", 8),)
MMA_INTEGER = tuple(Mma(a, b, "s32", 32) for a in ("s8", "u8") for b in ("s8", "u8"))
MMA_FP8 = tuple(Mma(a, b, "f32", 32) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2"))
"""Shapes of mma.sync by family; PTX ISA, mma: the first three from sm_80 on, fp8 from sm_89."""
MMA_F64_SMALL = (Mma("f64", "f64", "f64", 4, rows=8),)
MMA_F64 = (Mma("f64", "f64", "f64", 16),)
"""Of f64 the small shape from sm_80 on, the other from sm_90 (PTX ISA, mma)."""


@dataclass(frozen=True)
class Target:
    """One GPU generation. Sizes in bytes, counts an SM unless said otherwise."""

    name: str
    """The PTX target (``sm_90a``)."""
    ptx_version: str
    sms: int
    """Multiprocessors of the common part; a launch uses the device's own count."""
    registers_per_thread: int
    registers_per_sm: int
    threads_per_cta: int
    shared_per_cta: int
    shared_per_sm: int
    named_barriers: int
    max_box: int
    """Largest extent of one TMA box dimension, in elements."""
    has_wgmma: bool
    has_tma: bool
    has_cp_async: bool
    """Asynchronous copies of 4, 8 or 16 bytes, counted by mbarriers (PTX ISA, cp.async)."""
    has_stmatrix: bool
    has_elect: bool
    """``elect.sync``; without it lane 0 stands for its warp."""
    has_setmaxnreg: bool
    has_try_wait: bool
    """``mbarrier.try_wait``, which may sleep; without it ``test_wait`` spins."""
    has_clusters: bool
    """Whether set-up of mbarriers is fenced for a cluster; a barrier of the CTA serves else."""
    has_wide_cvt: bool
    """bf16 as a source of cvt, casts of integers to it, and tf32 rounded to nearest even (PTX ISA,
    cvt); other instructions do the work without it."""
    has_fp8_casts: bool
    has_vector_red: bool
    """``red`` of up to 16 bytes, and of bf16 at all (PTX ISA, red: sm_90)."""
    wgmma_n: tuple[int, ...]
    """Legal N of a wgmma into floats."""
    wgmma_n_integer: tuple[int, ...]
    """The same of one into integers, which skips odd multiples of 8 above 24."""
    mma: tuple[Mma, ...]
    """Shapes of mma.sync."""
    tensor_flops_per_cycle: int
    """Dense 16-bit multiply-adds an SM and cycle, times two."""
    cycles_per_us: int
    """The clock of the SMs under a full load, in MHz."""
    l2_bytes: int
    memory_bytes_per_second: float

    def mma_of(self, a: str, b: str, accumulate: str) -> Mma | None:
        """The shape of mma.sync for these element types; of an f32 it reads what a tf32 has."""
        wanted = (*("tf32" if name == "f32" else name for name in (a, b)), accumulate)
        return next((m for m in self.mma if (m.a, m.b, m.accumulate) == wanted), None)
