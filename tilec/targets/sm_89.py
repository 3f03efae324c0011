"""Ada: compute capability 8.9 (AD102 to AD107; L4, L40, RTX 40).

Sources: CUDA programming guide, compute capabilities table (shared memory, registers, threads) and
arithmetic throughput; PTX ISA, mma; SMs, L2 and bandwidth of the RTX 4090 (NVIDIA Ada
whitepaper).
"""

from __future__ import annotations

from tilec.targets.base import MMA_16_BIT, MMA_FP8, MMA_INTEGER, MMA_TF32, Target

SM_89 = Target(
    name="sm_89",
    ptx_version="8.4",  # of mma.sync on 8-bit floats; their cvt is of 8.1 (PTX ISA, mma and cvt)
    sms=128,
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
    has_fp8_casts=True,
    has_vector_red=False,
    wgmma_n=(),
    wgmma_n_integer=(),
    mma=(*MMA_16_BIT, *MMA_TF32, *MMA_INTEGER, *MMA_FP8),
    tensor_flops_per_cycle=1024,
    l2_bytes=72 * 1024 * 1024,
    memory_bytes_per_second=1.008e12,
)
"""PTX for it runs on every later GPU too, by the driver's compiler."""
