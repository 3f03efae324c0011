"""Ampere, consumer and workstation: compute capability 8.6 (GA102, GA104, GA106; A10, A40, RTX 30).

Sources: CUDA programming guide, compute capabilities table (shared memory, registers, threads) and
arithmetic throughput; PTX ISA, mma; SMs, L2 and bandwidth of the RTX 3090 (NVIDIA GA102
whitepaper).
"""

from __future__ import annotations

from tilec.targets.base import MMA_16_BIT, MMA_INTEGER, MMA_TF32, Target

SM_86 = Target(
    name="sm_86",
    ptx_version="8.0",
    sms=82,
    registers_per_thread=255,
    registers_per_sm=65536,
    threads_per_cta=1024,
    shared_per_cta=99 * 1024,
    shared_per_sm=100 * 1024,
    named_barriers=16,
    max_box=0,
    has_wgmma=False,
    has_tma=False,
    has_cp_async=True,
    has_stmatrix=False,
    has_elect=False,
    has_setmaxnreg=False,
    has_try_wait=False,
    has_clusters=False,
    has_wide_cvt=False,
    has_fp8_casts=False,
    has_vector_red=False,
    wgmma_n=(),
    wgmma_n_integer=(),
    mma=(*MMA_16_BIT, *MMA_TF32, *MMA_INTEGER),
    tensor_flops_per_cycle=512,
    l2_bytes=6 * 1024 * 1024,
    memory_bytes_per_second=9.36e11,
)
"""PTX for it runs on every later GPU too, by the driver's compiler."""
