"""The op families, and which of them each level admits.

A level is nothing but a set of op families and types; ``LEVELS`` is read by the verifier.
"""

from __future__ import annotations

from tilec.ir.levels import (
    along,
    author,
    cluster,
    cta,
    flow,
    fold,
    math,
    memory,
    mma,
    parts,
    piece,
    ptx,
    tile,
    turns,
)
from tilec.ir.types import (
    Array,
    Bits,
    Flight,
    Free,
    Index,
    Register,
    Ring,
    Scalar,
    Shared,
    Slot,
    TensorMap,
    Tile,
    Type,
)

LEVELS: dict[str, tuple[tuple[str, ...], tuple[type[Type], ...]]] = {
    "tile": (("tile", "along", "author", "parts", "math", "flow"), (Array, Scalar, Index, Tile)),
    "cta": (
        ("cta", "cluster", "turns", "fold", "memory", "mma", "piece", "math", "flow"),
        (Array, Scalar, Register, Flight, Shared, Ring, Free, Slot, TensorMap, cta.Token),
    ),
    "ptx": (("ptx",), (Array, Scalar, Bits)),
}
"""Level name -> (op families, admitted types)."""

__all__ = [
    "LEVELS",
    "along",
    "author",
    "cluster",
    "cta",
    "flow",
    "fold",
    "math",
    "memory",
    "mma",
    "parts",
    "piece",
    "ptx",
    "tile",
    "turns",
]
