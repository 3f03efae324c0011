"""Ampere, consumer and workstation: compute capability 8.6 (GA102, GA104, GA106; A10, A40, RTX 30).

Sources: CUDA programming guide, compute capabilities table (shared memory, registers, threads) and
arithmetic throughput; PTX ISA, mma; SMs, L2 and bandwidth of the RTX 3090 (NVIDIA GA102
whitepaper).
"""

from __future__ import annotations

from dataclasses import replace

from tilec.targets.sm_80 import SM_80

SM_86 = replace(
    SM_80,
    name="sm_86",
    sms=82,
    shared_per_cta=99 * 1024,
    shared_per_sm=100 * 1024,
    tensor_flops_per_cycle=512,
    cycles_per_us=1695,
    l2_bytes=6 * 1024 * 1024,
    memory_bytes_per_second=9.36e11,
)
"""PTX for it runs on every later GPU too, by the driver's compiler."""
