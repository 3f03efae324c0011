"""What a kernel's head says of its launch: which attributes there are, and which must be there.

A launch is decided by attributes alone (threads, shared memory, parameters, grid), so one that is
missing or misspelt would be another launch, silently. A kernel that passes have made names the
last of them in ``after``, and from then on nothing is left to a default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilec.ir.core import Kernel
from tilec.ir.kinds import described, fits
from tilec.ir.levels import cta, ptx
from tilec.ir.types import DType

_Name = str | DType
"""A name; one that is also an element type's is read as that."""

ATTRIBUTES: dict[str, Any] = {
    "bound": tuple[tuple[_Name, Any], ...],
    "choices": tuple[tuple[_Name, Any], ...],
    "arrays": tuple[tuple[_Name, int | None, int], ...],
    "repeats": tuple[tuple[_Name, tuple[int, ...]], ...],
    "extents": tuple[tuple[_Name, int], ...],
    "multiples": tuple[tuple[_Name, int], ...],
    "requirements": tuple[tuple[int, Any], ...],
    "launch": tuple[_Name, int, int],
    "workspace": tuple[tuple[_Name, DType, tuple[Any, ...]], ...],
    "checks": tuple[tuple[Any, ...], ...],
    "after": str,
    "threads": int,
    "shared_bytes": int,
    "parameters": tuple[tuple[Any, ...], ...],
    "grid": int | tuple[Any, ...],
    "cluster": int,
}
"""Every kernel attribute, and the kind of its value."""


def launch_faults(level: str, kernel: Kernel) -> Iterator[tuple[str, str]]:
    """What is wrong with a kernel's attributes: the attribute's name ("" if missing) and why."""
    for name, value in kernel.attributes.items():
        if name not in ATTRIBUTES:
            yield name, f"a kernel has no attribute {name}; there are {', '.join(ATTRIBUTES)}"
        elif not fits(value, ATTRIBUTES[name]):
            yield name, f"attribute {name}: {described(ATTRIBUTES[name])} is needed"
    if "after" in kernel.attributes:
        for name in _needed(level, kernel):
            if name not in kernel.attributes:
                yield "", f"the kernel says nothing of its {name}, which decide the launch"
    grids = [op for op in kernel.body.ops if isinstance(op, cta.Grid)]
    if level == "cta" and len(grids) != 1 and (grids or "after" in kernel.attributes):
        yield "", f"one cta.grid gives the number of CTAs, here are {len(grids)}"


def _needed(level: str, kernel: Kernel) -> tuple[str, ...]:
    """Attributes without which a launch is open."""
    if level == "cta":
        placed = any(
            isinstance(op, cta.MakeRing | cta.Buffer) and op.offset >= 0 for op in kernel.body.ops
        )
        return ("threads", "shared_bytes") if placed else ("threads",)
    if level == "ptx":
        shared = any(isinstance(op, ptx.SharedBase) for op in kernel.body.walk())
        return ("threads", "parameters", "grid", *(("shared_bytes",) if shared else ()))
    return ()
