"""Ada: compute capability 8.9 (AD102 to AD107; L4, L40, RTX 40).

Sources: CUDA programming guide, compute capabilities table (shared memory, registers, threads) and
arithmetic throughput; PTX ISA, mma; SMs, L2 and bandwidth of the RTX 4090 (NVIDIA Ada
whitepaper).
"""

from __future__ import annotations

from dataclasses import replace

from tilec.targets.base import MMA_FP8
from tilec.targets.sm_86 import SM_86

SM_89 = replace(
    SM_86,
    name="sm_89",
    ptx_version="8.4",  # of mma.sync on 8-bit floats; their cvt is of 8.1 (PTX ISA, mma and cvt)
    sms=128,
    has_fp8_casts=True,
    mma=(*SM_86.mma, *MMA_FP8),
    tensor_flops_per_cycle=1024,
    cycles_per_us=2520,
    l2_bytes=72 * 1024 * 1024,
    memory_bytes_per_second=1.008e12,
)
"""PTX for it runs on every later GPU too, by the driver's compiler."""
