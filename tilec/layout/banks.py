"""Bank conflicts of one warp-wide access to shared memory.

There are 32 banks of 4 bytes. An access of 4 bytes or less is served for all lanes at once, one of
8 bytes for half a warp, one of 16 bytes (and each matrix of ldmatrix and stmatrix) for 8 lanes;
lanes that want the same word share it (CUDA programming guide, shared memory). The
degree is how many times longer a phase takes than without conflict: 1 is free of conflict.

Two ways that must agree: counting words bank by bank, and, for a map that is linear over bits, a
rank: 2^(independent addresses - independent banks).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.layout.bits import rank
from tilec.layout.index_map import IndexMap
from tilec.layout.matrices import MatrixPlan
from tilec.layout.vectors import SharedPlan

BANK_BYTES = 4
ROUND_BYTES = 128
LANES = 32


def phase_lanes(bytes_per_lane: int) -> int:
    """Return how many lanes are served together."""
    return min(LANES, ROUND_BYTES // bytes_per_lane)


def counted_degree(addresses: Sequence[int], bytes_per_lane: int) -> int:
    """Count the conflict degree from the byte address of each lane."""
    worst = 1
    together = phase_lanes(bytes_per_lane)
    for start in range(0, len(addresses), together):
        words: dict[int, set[int]] = {}
        for address in addresses[start : start + together]:
            for byte in range(address, address + bytes_per_lane, BANK_BYTES):
                word = byte // BANK_BYTES
                words.setdefault(word % (ROUND_BYTES // BANK_BYTES), set()).add(word)
        worst = max(worst, *(len(used) for used in words.values()))
    return worst


def ranked_degree(lane_bits: Sequence[int], bytes_per_lane: int) -> int:
    """Return the conflict degree from the XORed byte contribution of each lane bit."""
    unit = max(bytes_per_lane, BANK_BYTES)
    together = phase_lanes(bytes_per_lane).bit_length() - 1
    units = [bits // unit for bits in lane_bits[:together]]
    banks = [bits % (ROUND_BYTES // unit) for bits in units]
    return int(1 << rank(units) - rank(banks))


def lane_bits(thread: IndexMap) -> list[int] | None:
    """Return the XORed contribution of each lane bit, or None if the map is not linear there."""
    bits = [0] * 5
    for part in thread.contributions:
        if part.space == "lane":
            if part.add:
                return None
            bits[part.weight.bit_length() - 1] = part.xor
    return bits


def degree(thread: IndexMap, bytes_per_lane: int) -> int:
    """Return the conflict degree of one access; it is the same for every base and displacement."""
    bits = lane_bits(thread)
    if bits is not None:
        return ranked_degree(bits, bytes_per_lane)
    return counted_degree([thread(lane=lane) for lane in range(LANES)], bytes_per_lane)


def plan_degree(plan: SharedPlan | MatrixPlan) -> int:
    """Return the conflict degree of the accesses of a plan."""
    if isinstance(plan, MatrixPlan):
        return degree(plan.thread, 16)
    return degree(plan.thread, plan.bytes)
