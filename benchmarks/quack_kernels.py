"""QuACK's product as a peer, where its wheels are installed.

Invariants: QuACK is imported when the peer is asked for; `None` means that it is not installed or
takes no such operands.

Never: used by the compiler, or timed without the check that every contestant passes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

_ALIGNED = 8
"""Its copies are of 16 bytes."""


@cache
def _product() -> Callable[..., Any] | None:
    try:
        from quack.gemm_interface import gemm as product
    except ImportError:
        return None
    return product  # type: ignore[no-any-return]


def gemm(a: Any, b: Any, c: Any) -> Callable[[], object] | None:
    """c = a @ b.T; None where this peer does not apply."""
    product = _product()
    if product is None or any(size % _ALIGNED for size in (*a.shape, *b.shape)):
        return None
    # Its default configuration: a search takes minutes a shape.
    return lambda: product(a, b.T, out=c, tuned=False)
