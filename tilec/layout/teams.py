"""Fragments of mma.sync over the warps of a team: who holds which part of a product's tiles.

A product out = a @ b^T has tiles a [rows, K], b [N, K] and out [rows, N], all cut into the m16n8
fragments of single warps. Where the rows give every warp 16 of its own, warps stand along the
rows: with four warps and 64 rows the result is then wgmma's accumulator to the register, and a
16-bit result is an A operand as it stands. With fewer rows warps stand along N, block of columns
by block of columns in turn; warps that find no columns left hold copies. What is left stays in
registers: blocks of N before steps of K before blocks of rows.

Facts: PTX ISA, the fragment figures of mma.m16n8 (`fragments.mma_a`, `mma_b`, `mma_c`).
"""

from __future__ import annotations

from tilec.layout.fragments import COLS, ROWS, WIDE_STEP, mma_a, mma_b, mma_c
from tilec.layout.linear import Digit, Layout, LayoutError

BLOCK_ROWS = 16
BLOCK_COLUMNS = 8


def warps_along_rows(rows: int, warps: int) -> bool:
    """Whether the rows give every warp a fragment of its own."""
    return rows % (BLOCK_ROWS * warps) == 0


def warps_with_columns(n: int, warps: int) -> int:
    """How many of the warps, a power of two, find columns of their own along N."""
    used = 1
    while used * 2 <= warps and n % (BLOCK_COLUMNS * used * 2) == 0:
        used *= 2
    return used


def team_result(rows: int, n: int, warps: int) -> Layout:
    """Return the layout of a result [rows, N], an element a register."""
    _check(rows, n, warps)
    block = _spaces(mma_c())
    apart = BLOCK_COLUMNS * _along_columns(rows, n, warps)
    registers = [
        *block["reg"],
        _step(COLS, apart, n // apart),
        *_row_blocks(rows, warps),
    ]
    warp = _warp_digits(rows, n, warps)
    return Layout.make({"reg": registers, "lane": block["lane"], "warp": warp}, rank=2)


def team_a(element_bits: int, rows: int, n: int, k: int, warps: int) -> Layout:
    """Return the layout of A [rows, K] for a product with N columns."""
    _check(rows, n, warps)
    step = _step_of(element_bits, k)
    block = _spaces(mma_a(element_bits, step))
    registers = [*block["reg"], _step(COLS, step, k // step), *_row_blocks(rows, warps)]
    warp = [d if d.axes <= {ROWS} else Digit() for d in _warp_digits(rows, n, warps)]
    return Layout.make({"reg": registers, "lane": block["lane"], "warp": warp}, rank=2)


def team_b(element_bits: int, rows: int, n: int, k: int, warps: int) -> Layout:
    """Return the layout of B as [N, K], for a product with that many rows."""
    _check(rows, n, warps)
    step = _step_of(element_bits, k)
    block = _spaces(mma_b(element_bits, step).transpose())
    apart = BLOCK_COLUMNS * _along_columns(rows, n, warps)
    # The axes of B are N and K, so blocks of columns step along axis 0.
    registers = [
        *block["reg"],
        _step(ROWS, apart, n // apart),
        _step(COLS, step, k // step),
    ]
    warp = [
        _step(ROWS, d.steps[0][1]) if d.axes == {COLS} else Digit()
        for d in _warp_digits(rows, n, warps)
    ]
    return Layout.make({"reg": registers, "lane": block["lane"], "warp": warp}, rank=2)


def _warp_digits(rows: int, n: int, warps: int) -> list[Digit]:
    """The digits of the warp number, as steps in the result."""
    bits = warps.bit_length() - 1
    if warps_along_rows(rows, warps):
        return [_step(ROWS, BLOCK_ROWS << bit) for bit in range(bits)]
    along = _along_columns(rows, n, warps).bit_length() - 1
    columns = [_step(COLS, BLOCK_COLUMNS << bit) for bit in range(along)]
    return columns + [Digit()] * (bits - along)


def _along_columns(rows: int, n: int, warps: int) -> int:
    """Warps beside one another along N."""
    return 1 if warps_along_rows(rows, warps) else warps_with_columns(n, warps)


def _row_blocks(rows: int, warps: int) -> list[Digit]:
    """The digits of the row blocks that one warp has beside its first."""
    step = BLOCK_ROWS * (warps if warps_along_rows(rows, warps) else 1)
    return [_step(ROWS, step, rows // step)]


def _step(axis: int, step: int, extent: int = 2) -> Digit:
    return Digit(((axis, step),), extent)


def _spaces(layout: Layout) -> dict[str, list[Digit]]:
    return {name: list(digits) for name, digits in layout.digits}


def fragment_depth(element_bits: int) -> int:
    """K of one fragment of an operand."""
    return WIDE_STEP if element_bits == 64 else 256 // element_bits


def _step_of(element_bits: int, k: int) -> int:
    step = fragment_depth(element_bits)
    if k < 1 or k % step:
        raise LayoutError(f"K = {k} is no multiple of {step}, the K of one {element_bits}-bit step")
    return step


def _check(rows: int, n: int, warps: int) -> None:
    if rows < 1 or rows % BLOCK_ROWS or n < 1 or n % BLOCK_COLUMNS:
        raise LayoutError(f"mma.sync gives multiples of 16 rows and 8 columns, not {rows} x {n}")
    if warps < 1 or warps & (warps - 1):
        raise LayoutError(f"{warps} warps: a power of two is needed")
