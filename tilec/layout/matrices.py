"""ldmatrix and stmatrix: moving a register tile to or from shared memory, eight rows at a time.

One instruction moves 1, 2 or 4 matrices of 8 rows x 16 bytes (PTX ISA, ldmatrix and stmatrix).
Lane l gives the address of row l % 8 of matrix l / 8; register m of lane 4g + t holds bytes
4t..4t+3 of row g of matrix m, or, with .trans, the 16-bit elements (2t, g) and (2t + 1, g). So
the row's bytes must be the packed elements and the low two lane bits, in order; what remains of
the lane numbers the rows; two register bits number the matrices, and all other register digits
the instructions. With .trans rows and bytes change places. The two directions share one plan.

The address is a function of the lane *as address giver*, not as holder of data: its bits 0..2
take the contributions of the row bits, 3 and 4 those of the register bits that number matrices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.layout.index_map import Composition, Contribution, IndexMap, compose, gather, split
from tilec.layout.linear import Layout, LayoutRefusal

ROW_BYTES = 16


@dataclass(frozen=True)
class MatrixInstruction:
    """One instruction: packed 32-bit registers in matrix order, base number, bytes to add."""

    registers: tuple[int, ...]
    base: int
    displacement: int


@dataclass(frozen=True)
class MatrixPlan:
    """All instructions of a tile; address = (thread(lane, warp) ^ bases[n]) + displacement."""

    transposed: bool
    matrices: int
    thread: IndexMap
    bases: tuple[int, ...]
    instructions: tuple[MatrixInstruction, ...]

    def address(self, instruction: MatrixInstruction, **index: int) -> int:
        """Return the byte offset that a thread gives to an instruction."""
        return (self.thread(**index) ^ self.bases[instruction.base]) + instruction.displacement


def matrix_plan(layout: Layout, shared: Layout, element_bits: int) -> MatrixPlan:
    """Plan ldmatrix/stmatrix for a register tile; the refusal says which condition fails."""
    if element_bits not in (8, 16, 32):
        raise LayoutRefusal(f"ldmatrix and stmatrix move no elements of {element_bits} bits")
    parts = compose(layout, shared, element_bits)
    lanes = [part for part in parts.threads if part.space == "lane"]
    if len(lanes) != 5:
        raise LayoutRefusal("the matrix instructions need all 32 lanes of a warp")
    packed = (32 // element_bits).bit_length() - 1
    if len(parts.registers) < packed or any(p.extent != 2 for p in parts.registers[:packed]):
        raise LayoutRefusal("a thread holds no full 32-bit register of packed elements")
    inside = parts.registers[:packed]
    plain = _in_order((*inside, *lanes[:2]), element_bits)
    transposed = not plain and element_bits == 16 and _in_order(tuple(lanes[2:]), element_bits)
    if not plain and not transposed:
        raise LayoutRefusal(
            "neither the packed elements with lane bits 0 and 1, nor lane bits 2 "
            "to 4 (for .trans), run along 16 contiguous bytes"
        )
    rows = (*inside, *lanes[:2]) if transposed else tuple(lanes[2:])
    return _build(parts, rows, packed, transposed)


def _build(
    parts: Composition, rows: tuple[Contribution, ...], packed: int, transposed: bool
) -> MatrixPlan:
    outer = parts.registers[packed:]
    chosen = [part for part in outer if part.extent == 2][:2]
    givers = [
        replace(part, space="lane", weight=1 << bit, extent=2)
        for bit, part in enumerate((*rows, *chosen))
    ]
    others = [part for part in parts.threads if part.space != "lane"]
    thread = IndexMap((*givers, *others))
    if any((part.xor | part.add) % ROW_BYTES for part in (*thread.contributions, *outer)):
        raise LayoutRefusal("rows of a matrix would not start on 16 bytes")
    rest = [part for part in outer if part not in chosen]
    starts = [0]
    for part in rest:
        starts = [start + value * part.weight for value in range(part.extent) for start in starts]
    bases, placed = split([gather(rest, start) for start in starts], thread)
    instructions = []
    for start, (base, displacement) in zip(starts, placed, strict=True):
        registers = [start >> packed]
        for part in chosen:
            registers += [register + (part.weight >> packed) for register in registers]
        instructions.append(MatrixInstruction(tuple(registers), base, displacement))
    return MatrixPlan(transposed, 1 << len(chosen), thread, bases, tuple(instructions))


def _in_order(parts: tuple[Contribution, ...], element_bits: int) -> bool:
    """Whether the digits run over 16 contiguous bytes, lowest first."""
    step = element_bits // 8
    for part in parts:
        if part.extent != 2 or (part.xor, part.add) != (step, 0):
            return False
        step *= 2
    return step == ROW_BYTES
