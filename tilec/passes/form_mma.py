"""Products by mma.sync: operands as fragments, from registers or from tiles in shared memory.

The left operand stays in registers where it already lies there as its fragments do, which a
16-bit cast of another product's result does when warps stand along the rows. All else is read
from shared memory, by ldmatrix where 16 bytes of a fragment's row are neighbours, element by
element otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.ir.core import Value
from tilec.ir.levels import tile
from tilec.ir.levels.mma import MmaProduct
from tilec.ir.types import Register, Shared
from tilec.layout.linear import Layout, LayoutRefusal
from tilec.layout.matrices import matrix_plan
from tilec.layout.teams import team_a, team_b
from tilec.passes.form_tiles import in_layout
from tilec.passes.forming import Forming

Operand = Callable[[Value[Any], str, list[bool]], Value[Shared]]
"""The shared view of an operand: its value, which of the two it is, and the buffers it used."""


def form_mma(f: Forming, op: tile.Dot, register: Register, operand: Operand) -> None:
    """One product, done when its op has run."""
    rows, columns = (int(e) for e in register.shape)
    shape = (op.a.type.dtype.bits, rows, columns, int(op.a.type.shape[1]), f.team.warps)
    used: list[bool] = []
    held = f.values.get(op.a)
    a: Value[Any] | None = None
    if held is not None and isinstance(held.type, Register) and held.type.layout == team_a(*shape):
        a = held
    a = a or operand(op.a, "a", used)
    b = operand(op.b, "b", used)
    if any(used):
        f.sync()
    made = MmaProduct(
        a,
        b,
        acc=in_layout(f, f.get(op.acc), register.layout),
        type=register,
        a_by=brought_by(a, team_a(*shape)),
        b_by=brought_by(b, team_b(*shape)),
    )
    f.values[op.out] = f.body.add(made, op.out.name).out
    if used:
        f.sync()


def brought_by(operand: Value[Any], layout: Layout) -> str:
    """``ldmatrix`` where rows of 16 bytes lie in the tile, else ``load``."""
    if isinstance(operand.type, Shared):
        try:
            matrix_plan(layout, operand.type.layout, operand.type.dtype.bits)
        except LayoutRefusal:
            return "load"
    return "ldmatrix"
