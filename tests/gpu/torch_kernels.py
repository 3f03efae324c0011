"""What torch itself computes for an example, where it has a kernel for it.

Each function takes the example's arguments (tensors and scalars by parameter name) and its sizes,
and gives some of its outputs. The errors of these are what ours are held against.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
import torch.nn.functional as nn  # type: ignore[import-not-found,unused-ignore]


def _attention(x: dict[str, Any], n: Any) -> dict[str, Any]:
    if n["M"] != n["N"] and n.get("CAUSAL"):
        return {}  # torch aligns at the top left
    o = nn.scaled_dot_product_attention(
        x["q"], x["k"], x["v"], is_causal=bool(n.get("CAUSAL")), scale=x["scale"], enable_gqa=True
    )
    return {"o": o}


def _layernorm(x: dict[str, Any], n: Any) -> dict[str, Any]:
    return {"y": nn.layer_norm(x["x"], (n["N"],), x["weight"], x["bias"], x["eps"])}


def _cross_entropy(x: dict[str, Any], n: Any) -> dict[str, Any]:
    label = x["label"].long()
    label = torch.where((label >= 0) & (label < n["N"]), label, -100)
    loss = nn.cross_entropy(x["logits"].float(), label, reduction="none", ignore_index=-100)
    return {"loss": loss}


KERNELS: dict[str, Callable[[dict[str, Any], Any], dict[str, Any]]] = {
    "add": lambda x, n: {"c": x["a"] + x["b"]},
    "gemm": lambda x, n: {"c": x["a"] @ x["b"].T},
    "softmax": lambda x, n: {"y": torch.softmax(x["x"], -1)},
    "layernorm": _layernorm,
    "rmsnorm": lambda x, n: {"y": nn.rms_norm(x["x"], (n["N"],), x["weight"], x["eps"])},
    "attention": _attention,
    "cross_entropy": _cross_entropy,
}
"""By kernel name."""
