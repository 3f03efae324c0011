"""Say where everything in shared memory lies.

Rings and buffers come first, each on its own alignment, then the mbarriers of all rings: for each
ring as many full barriers as stages, then as many empty ones. Sizes and alignments are those that
the protocol checks (``resources``). What does not fit is refused with the bytes of each object.
"""

from __future__ import annotations

from tilec.ir.core import Kernel
from tilec.ir.levels import cta
from tilec.ir.resources import (
    MBARRIER_BYTES,
    PLAIN_ALIGNMENT,
    alignment,
    part_offsets,
    shared_bytes,
)
from tilec.ir.types import Ring, Shared
from tilec.passes.base import Context, tile_pass
from tilec.passes.refusal import refused


def ring_bytes(type: Ring) -> int:
    """Bytes of all stages of a ring."""
    return type.stages * part_offsets(type)[1]


def object_bytes(op: cta.MakeRing | cta.Buffer) -> int:
    """Bytes of a ring's stages or of a buffer."""
    if isinstance(op.type, Ring):
        return ring_bytes(op.type)
    if isinstance(op.type, Shared):
        return shared_bytes(op.type)
    raise TypeError(f"{op.type} does not lie in shared memory")


def _alignment(op: cta.MakeRing | cta.Buffer) -> int:
    parts = op.type.parts if isinstance(op.type, Ring) else (op.type,)
    return max((alignment(p) for p in parts if isinstance(p, Shared)), default=PLAIN_ALIGNMENT)


def total_bytes(kernel: Kernel) -> int:
    """Bytes that the kernel's shared objects take, barriers included."""
    at = 0
    objects = [op for op in kernel.body.ops if isinstance(op, cta.MakeRing | cta.Buffer)]
    for op in sorted(objects, key=lambda o: -_alignment(o)):
        at = -(-at // _alignment(op)) * _alignment(op) + object_bytes(op)
    rings = [op for op in objects if isinstance(op.type, Ring)]
    at = -(-at // MBARRIER_BYTES) * MBARRIER_BYTES
    stages = sum(op.type.stages for op in rings if isinstance(op.type, Ring))
    return at + 2 * stages * MBARRIER_BYTES


def _most_stages(objects: list[cta.MakeRing | cta.Buffer], total: int, limit: int) -> int:
    """The most stages a ring that would fit beside the rest; 0 if there are none."""
    rings = [op.type for op in objects if isinstance(op.type, Ring)]
    one = sum(part_offsets(ring)[1] + 2 * MBARRIER_BYTES for ring in rings)
    rest = total - sum(ring_bytes(r) + 2 * r.stages * MBARRIER_BYTES for r in rings)
    return max(0, (limit - rest) // one) if one else 0


@tile_pass("place-shared", level="cta")
def place_shared(kernel: Kernel, ctx: Context) -> None:
    """Every ring, buffer and barrier has an address, and all fit the CTA's shared memory."""
    objects = [op for op in kernel.body.ops if isinstance(op, cta.MakeRing | cta.Buffer)]
    at = 0
    for op in sorted(objects, key=lambda o: -_alignment(o)):
        at = -(-at // _alignment(op)) * _alignment(op)
        op.offset = at
        at += object_bytes(op)
    at = -(-at // MBARRIER_BYTES) * MBARRIER_BYTES
    for op in objects:
        if isinstance(op, cta.MakeRing) and isinstance(op.type, Ring):
            op.barriers = at
            at += 2 * op.type.stages * MBARRIER_BYTES
    limit = ctx.target.shared_per_cta
    if at > limit:
        sizes = ", ".join(f"%{op.out.name} {object_bytes(op)}" for op in objects)
        most = _most_stages(objects, at, limit)
        advice = f"pin at most stages={most}" if most else "pin smaller tiles"
        raise refused(
            objects[0],
            f"shared memory of {at} bytes does not fit the {limit} of a CTA ({sizes}): {advice}",
        )
    kernel.attributes["shared_bytes"] = at
