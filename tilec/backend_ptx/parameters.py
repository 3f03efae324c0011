"""The kernel's PTX parameters, derived from its ``parameters`` attribute.

Idea: what a launch passes and what the text declares are read from one list, so ``parameter_kinds``
is all that a launcher needs. Names are the kind, the position and the array or scalar.

Never: knows how a launcher finds the values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tilec.ir.core import Kernel
from tilec.ir.levels import ptx
from tilec.ir.types import Bits

_KINDS = {"pointer": "b64", "stride": "b64", "extent": "b32", "scalar": "b32", "map": "map"}


@dataclass(frozen=True)
class Parameter:
    """One parameter: its PTX name and its kind (``map``, or a kind of register)."""

    name: str
    kind: str

    @property
    def declaration(self) -> str:
        """As the entry's parameter list has it."""
        if self.kind == "map":
            return f".param .align 64 .b8 {self.name}[128]"
        return f".param .{self.kind} {self.name}"


def parameters(kernel: Kernel) -> list[Parameter]:
    """All parameters in launch order; a value is as wide as the op that reads it says."""
    described: tuple[tuple[Any, ...], ...] = kernel.attributes.get("parameters", ())
    kinds = [_KINDS[parts[0]] for parts in described]
    for op in kernel.body.walk():
        if isinstance(op, ptx.Parameter) and kinds[op.index] != "map":
            assert isinstance(op.type, Bits)
            kinds[op.index] = op.type.kind
    return [
        Parameter(re.sub(r"\W", "_", f"{parts[0]}{index}_{parts[1]}", flags=re.ASCII), kind)
        for index, (parts, kind) in enumerate(zip(described, kinds, strict=True))
    ]


def parameter_kinds(kernel: Kernel) -> tuple[str, ...]:
    """The kinds in launch order, as ``module.Arguments`` takes them."""
    return tuple(parameter.kind for parameter in parameters(kernel))
