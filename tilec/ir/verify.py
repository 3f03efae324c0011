"""The verifier: what must hold of a module at its level, checked after every pass.

It checks that
  1. every op and every type belongs to the module's level;
  2. every operand is defined before its use, in the same region or one around it;
  3. operands, attributes and results are of the kinds that the op declares (see ``kinds``), and
     result types are those that the op infers from its operands;
  4. terminators stand last, and only there;
  5. no size symbol is left at levels ``cta`` and ``ptx`` in the types of tiles;
  6. each op's own ``check`` has nothing to say;
  7. at level ``cta``, the protocol of rings, products and turns (see ``protocol``);
  8. the kernel's attributes are known, and decide its launch (see ``launch``).

All faults are collected, each with its op, before ``VerifyError`` is raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.ir.core import Kernel, Module, Op, Region, Value
from tilec.ir.kinds import kind_faults
from tilec.ir.types import Array, Flight, Free, Register, Ring, Shared, Slot, Type
from tilec.layout.linear import LayoutRefusal


@dataclass(frozen=True)
class Fault:
    """One broken rule and the op that breaks it."""

    op: Op
    message: str


class VerifyError(Exception):
    """A module breaks the contract of its level; the text gives each fault at its dump line."""

    def __init__(self, module: Module, faults: list[Fault], after: str = "") -> None:
        from tilec.ir.printer import value_lines

        lines = value_lines(module)
        self.faults = faults
        self.lines = [lines.get(id(f.op), 0) for f in faults]
        head = f"the IR is not valid after {after}" if after else "the IR is not valid"
        body = [
            f"  line {line}: {f.op.name}: {f.message}"
            + (f" (source line {f.op.loc.line})" if f.op.loc else "")
            for line, f in zip(self.lines, faults, strict=True)
        ]
        super().__init__("\n".join([head, *body]))


def verify(module: Module, after: str = "") -> None:
    """Check a whole module; raises ``VerifyError`` naming the pass in ``after``."""
    faults = [fault for kernel in module.kernels for fault in kernel_faults(module, kernel)]
    if faults:
        raise VerifyError(module, faults, after)


def kernel_faults(module: Module, kernel: Kernel) -> list[Fault]:
    """All faults of one kernel."""
    from tilec.ir.launch import launch_faults
    from tilec.ir.levels import LEVELS
    from tilec.ir.protocol import protocol_faults
    from tilec.targets import TARGETS

    families, types = LEVELS[module.level]
    faults: list[Fault] = []
    _region_faults(kernel.body, set(), families, types, faults)
    if kernel.body.ops:
        faults.extend(Fault(kernel.body.ops[0], m) for _, m in launch_faults(module.level, kernel))
    if module.level == "cta" and not faults:
        faults.extend(protocol_faults(kernel, TARGETS.get(module.target)))
    return faults


def _region_faults(
    region: Region,
    visible: set[Value[Any]],
    families: tuple[str, ...],
    types: tuple[type, ...],
    faults: list[Fault],
) -> None:
    visible = visible | set(region.args)
    for position, op in enumerate(region.ops):
        for value in op.operands:
            if value not in visible:
                faults.append(Fault(op, f"{value!r} is used before it is defined"))
        faults.extend(Fault(op, m) for m in _op_faults(op, families, types))
        if op.is_terminator and position != len(region.ops) - 1:
            faults.append(Fault(op, "a terminator stands before the end of its region"))
        for nested in op.regions:
            _region_faults(nested, visible, families, types, faults)
        visible.update(op.results)


def _op_faults(op: Op, families: tuple[str, ...], types: tuple[type, ...]) -> list[str]:
    messages: list[str] = []
    if op.name.split(".")[0] not in families:
        messages.append(f"this op does not belong to the level ({', '.join(families)})")
    values = op.results
    if op.has_regions:
        values += [a for r in op.regions for a in r.args]
    messages.extend(
        f"type {v.type} does not belong to the level" for v in values if type(v.type) not in types
    )
    messages.extend(
        f"{v.type}: elements of four bits are for arrays, and held as 8 bits elsewhere"
        for v in values
        if not isinstance(v.type, Array) and getattr(getattr(v.type, "dtype", None), "bits", 8) == 4
    )
    messages.extend(
        f"size symbol {symbol} is left in {v.type}" for v in values for symbol in _symbols(v.type)
    )
    wrong = list(kind_faults(op))
    if wrong:
        return [*messages, *wrong]
    try:
        inferred = list(op.infer())
    except (TypeError, ValueError, LayoutRefusal) as error:
        return [*messages, str(error)]
    found = [r.type for r in op.results]
    if inferred != found:
        messages.append(f"results have types {found}, the operands give {inferred}")
    messages.extend(op.check())
    return messages


def _symbols(type: Type) -> list[str]:
    """Size symbols in the shape of a tile that has a home."""
    if isinstance(type, Register | Flight | Shared):
        return [extent for extent in type.shape if isinstance(extent, str)]
    if isinstance(type, Ring | Free | Slot):
        return [symbol for part in type.parts for symbol in _symbols(part)]
    return []
