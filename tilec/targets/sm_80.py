"""Ampere, datacentre: compute capability 8.0 (A100).

Sources: CUDA programming guide, compute capabilities table (shared memory, registers, threads) and
arithmetic throughput; PTX ISA, mma; SMs, L2 and bandwidth of the A100 SXM4 80 GB (NVIDIA A100
whitepaper).
"""

from __future__ import annotations

from tilec.targets.base import MMA_16_BIT, MMA_F64_SMALL, MMA_INTEGER, MMA_TF32, Target

SM_80 = Target(
    name="sm_80",
    ptx_version="8.0",
    sms=108,
    registers_per_thread=255,
    registers_per_sm=65536,
    threads_per_cta=1024,
    shared_per_cta=163 * 1024,
    shared_per_sm=164 * 1024,
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
    mma=(*MMA_16_BIT, *MMA_TF32, *MMA_INTEGER, *MMA_F64_SMALL),
    tensor_flops_per_cycle=2048,
    cycles_per_us=1410,
    l2_bytes=40 * 1024 * 1024,
    memory_bytes_per_second=2.039e12,
)
"""PTX for it runs on every later GPU too, by the driver's compiler."""
