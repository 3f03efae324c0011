"""The record of facts that the passes read about a GPU; data only."""

from __future__ import annotations

from dataclasses import dataclass


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
    wgmma_n: tuple[int, ...]
    """Legal N of a wgmma into floats."""
    wgmma_n_integer: tuple[int, ...]
    """The same of one into integers, which skips odd multiples of 8 above 24."""
    tensor_flops_per_cycle: int
    """Dense 16-bit multiply-adds an SM and cycle, times two."""
    l2_bytes: int
    memory_bytes_per_second: float
