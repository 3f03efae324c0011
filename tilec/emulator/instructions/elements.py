"""Elements of matrices: what their bytes stand for, by the types that products name."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilec.emulator.instructions.conversions import minifloat_values

_BYTES = {"bf16": 2, "f16": 2, "tf32": 4, "f32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1,
          "f64": 8}  # fmt: skip


def element_bytes(type: str) -> int:
    """Bytes of one element; ``KeyError`` for types that no product takes."""
    return _BYTES[type]


@cache
def _table(type: str) -> Any:
    return minifloat_values(f"{type}x2")


def decode(rows: Any, type: str) -> Any:
    """Rows of bytes, an element each, as numbers."""
    match type:
        case "bf16":
            wide = rows.reshape(-1, 2).view(np.uint16).astype(np.uint32) << 16
            return wide.view(np.float32).reshape(-1)
        case "f16":
            return rows.reshape(-1, 2).view(np.float16).astype(np.float32).reshape(-1)
        case "tf32":
            # The hardware reads the upper 19 bits (measured: the lower 13 are dropped).
            bits = rows.reshape(-1, 4).view(np.uint32) & np.uint32(0xFFFFE000)
            return bits.view(np.float32).reshape(-1)
        case "e4m3" | "e5m2":
            return _table(type)[rows.reshape(-1)]
        case "s8":
            return rows.reshape(-1).view(np.int8).astype(np.int64)
        case "u8":
            return rows.reshape(-1).astype(np.int64)
        case "f64":
            return rows.reshape(-1, 8).view(np.float64).reshape(-1)
    raise KeyError(type)
