"""Hopper: compute capability 9.0 (H100, H200).

Sources: CUDA programming guide, compute capabilities table; PTX ISA, wgmma shapes; 132 SMs and
bandwidth of the H200 SXM part; L2 as the H200 reports it (docs/hardware.md).
"""

from __future__ import annotations

from tilec.targets.base import MMA_16_BIT, MMA_F64, MMA_FP8, MMA_INTEGER, MMA_TF32, Target

SM_90 = Target(
    name="sm_90a",
    ptx_version="8.6",
    sms=132,
    registers_per_thread=255,
    registers_per_sm=65536,
    threads_per_cta=1024,
    shared_per_cta=232448,
    shared_per_sm=233472,
    named_barriers=16,
    max_box=256,
    has_wgmma=True,
    has_tma=True,
    has_cp_async=True,
    has_stmatrix=True,
    has_elect=True,
    has_setmaxnreg=True,
    has_try_wait=True,
    has_clusters=True,
    has_wide_cvt=True,
    has_fp8_casts=True,
    has_vector_red=True,
    wgmma_n=tuple(range(8, 257, 8)),
    wgmma_n_integer=(8, 24, *range(16, 257, 16)),
    mma=(*MMA_16_BIT, *MMA_TF32, *MMA_INTEGER, *MMA_FP8, *MMA_F64),
    tensor_flops_per_cycle=4096,
    cycles_per_us=1667,  # fitted (passes/costs.py); 1980 idle, power holds it down
    l2_bytes=60 * 1024 * 1024,
    memory_bytes_per_second=4.8e12,
)
"""The only target of this generation; its PTX needs the ``a`` suffix for wgmma."""
