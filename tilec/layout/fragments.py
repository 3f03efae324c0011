"""Which register of which lane holds which element, for the instructions that fix it.

The tensor-core instructions dictate the layouts of their operands in registers; they are written
here as layouts, with the packing of narrow elements as the lowest register digits (two 16-bit or
four 8-bit elements fill a 32-bit register, lowest element in the low bits). Elementwise and
row-wise work has free choice, and `blocked` and `rows` choose for wide, coalesced access.

Facts: PTX ISA 9.7.15.5.1 (wgmma registers) and the fragment figures of mma.sync. That
`accumulator(n) == a_fragment(16, n)` is not stated anywhere here: it falls out, and it is why the
weights of attention need no exchange between its two products.
"""

from __future__ import annotations

from math import prod

from tilec.layout.linear import Digit, Layout, LayoutError, LayoutRefusal

ROWS, COLS = 0, 1  # axis i and axis j of a matrix tile
WARPGROUP_ROWS = (Digit(((ROWS, 16),)), Digit(((ROWS, 32),)))


def _step(axis: int, step: int, extent: int = 2) -> Digit:
    return Digit(((axis, step),), extent)


def accumulator(n: int) -> Layout:
    """Return the layout of wgmma's result m64 x n with 32-bit elements, over one warpgroup.

    Register r of lane 4g + t in warp w is row 16w + g + 8*(r/2 % 2), column 8*(r/4) + 2t + r % 2.
    A 16-bit result has the same layout, two registers packed into one.
    """
    if n % 8 or not 8 <= n <= 256:
        raise LayoutError(f"wgmma has no result of {n} columns: 8 to 256 in steps of 8")
    return Layout.make(
        {
            "reg": [_step(COLS, 1), _step(ROWS, 8), _step(COLS, 8, n // 8)],
            "lane": [
                _step(COLS, 2),
                _step(COLS, 4),
                _step(ROWS, 1),
                _step(ROWS, 2),
                _step(ROWS, 4),
            ],
            "warp": WARPGROUP_ROWS,
        },
        rank=2,
    )


def a_fragment(element_bits: int, k: int) -> Layout:
    """Return the layout of wgmma's A operand [64, k] in registers, over one warpgroup.

    One instruction takes 32 bytes of K; further steps of K are the slowest register digits.
    """
    step = 256 // _operand_bits(element_bits)
    if k < 1 or k % step:
        raise LayoutError(f"K = {k} is no multiple of {step}, the K of one {element_bits}-bit step")
    spaces = {name: list(digits) for name, digits in mma_a(element_bits, step).digits}
    spaces["reg"].append(_step(COLS, step, k // step))
    return Layout.make({**spaces, "warp": WARPGROUP_ROWS}, rank=2)


def mma_a(element_bits: int, k: int) -> Layout:
    """Return the layout of A [16, k] of mma.sync.m16n8, in one warp.

    k is 16 bytes' or 32 bytes' worth: 8 or 16 for 16-bit elements, 16 or 32 for 8-bit, 4 or 8
    for tf32. Of 64-bit elements it is 16, in the order of `WIDE_A`.
    """
    if element_bits == 64:
        return _wide((ROWS, COLS), k, [_step(ROWS, 8)])
    each = _elements_per_register(element_bits, k)
    regs = [_step(COLS, 1, each), _step(ROWS, 8)]
    if k == 8 * each:
        regs.append(_step(COLS, 4 * each))
    return Layout.make(
        {
            "reg": regs,
            "lane": [
                _step(COLS, each),
                _step(COLS, 2 * each),
                _step(ROWS, 1),
                _step(ROWS, 2),
                _step(ROWS, 4),
            ],
        },
        rank=2,
    )


def mma_b(element_bits: int, k: int) -> Layout:
    """Return the layout of B [k, 8] of mma.sync.m16n8, in one warp; i is K and j is N."""
    if element_bits == 64:
        return _wide((COLS, ROWS), k, [])
    each = _elements_per_register(element_bits, k)
    regs = [_step(ROWS, 1, each)]
    if k == 8 * each:
        regs.append(_step(ROWS, 4 * each))
    return Layout.make(
        {
            "reg": regs,
            "lane": [
                _step(ROWS, each),
                _step(ROWS, 2 * each),
                _step(COLS, 1),
                _step(COLS, 2),
                _step(COLS, 4),
            ],
        },
        rank=2,
    )


def mma_c() -> Layout:
    """Return the layout of C and D [16, 8] of mma.sync.m16n8, wide elements, in one warp."""
    return Layout.make(
        {
            "reg": [_step(COLS, 1), _step(ROWS, 8)],
            "lane": [
                _step(COLS, 2),
                _step(COLS, 4),
                _step(ROWS, 1),
                _step(ROWS, 2),
                _step(ROWS, 4),
            ],
        },
        rank=2,
    )


WIDE_STEP = 16
"""K of one step of 64-bit elements: 128 bytes, a row of the widest swizzle."""
WIDE_A = (0, 4, 1, 5, 2, 6, 3, 7)
"""For each 64-bit register of A that mma.m16n8k16 takes, the register of `mma_a`'s layout."""


def _wide(axes: tuple[int, int], k: int, more: list[Digit]) -> Layout:
    """A fragment of 64-bit elements: four neighbours along K in each lane, two 16-byte reads.

    The instruction has K = t + 4r in register r of the lanes with number t in their group (PTX ISA,
    mma.m16n8k16 and m8n8k4 of .f64). A sum over K may be taken in any order, if both operands keep
    to it: here it is K = 4t + r, and then the reads of a quarter of a warp meet all banks.
    """
    if k != WIDE_STEP:
        raise LayoutError(f"mma.sync.m16n8 has no K of {k} for 64-bit elements")
    across, along = axes
    return Layout.make(
        {
            "reg": [_step(along, 1), _step(along, 2), *more],
            "lane": [
                _step(along, 4),
                _step(along, 8),
                _step(across, 1),
                _step(across, 2),
                _step(across, 4),
            ],
        },
        rank=2,
    )


def turning(rows: int, depth: int, threads: int, each: int) -> Layout:
    """Return a layout of [rows, depth] that changes which axis is contiguous in memory.

    A thread holds `each` neighbours along the depth, lanes stand next to each other along the rows:
    so reads along rows and wide writes along the depth are both coalesced.
    """
    outer = blocked((depth // each, rows), threads, 1, 8).transpose()
    spaces: dict[str, list[Digit]] = {}
    if each > 1:
        spaces["reg"] = [Digit(((1, 1 << bit),)) for bit in range(each.bit_length() - 1)]
    for name, digits in outer.digits:
        spaces.setdefault(name, [])
        spaces[name] += [
            Digit(tuple((a, s * each if a == 1 else s) for a, s in d.steps), d.extent)
            for d in digits
        ]
    return Layout.make(spaces, 2)


def row_vector(tile: Layout) -> Layout:
    """Return the layout of one value for each row of a tile, kept by every thread of the row."""
    return tile.drop(tile.rank - 1).squeeze("reg")


def column_vector(tile: Layout) -> Layout:
    """Return the layout of one value for each column, kept by every thread of the column."""
    return tile.drop(tile.rank - 2).squeeze("reg")


def vector_registers(tile: Layout, vector: Layout, axis: int) -> tuple[int, ...]:
    """For each register of a tile, name the register of the vector that meets it.

    The vector has the tile's axes but `axis`; the same answer must hold in every thread, which
    is so exactly when lanes and warps move through the vector as they move through the tile.
    """
    sliced = tile.drop(axis)
    for space in {name for name, _ in sliced.digits + vector.digits} - {"reg"}:
        if sliced.spaces.get(space) != vector.spaces.get(space):
            raise LayoutRefusal(
                f"the vector {vector} is held by other threads ({space}) than the rows of {tile}"
            )
    registers_only = Layout.make({"reg": vector.spaces.get("reg", ())}, vector.rank)
    back = registers_only.inverse()
    try:
        return tuple(
            back(*sliced(reg=register)).get("reg", 0) for register in range(tile.size("reg"))
        )
    except LayoutError:
        raise LayoutRefusal(f"no register of {vector} holds some row of {tile}") from None


def packed_registers(layout: Layout, element_bits: int) -> int:
    """Return how many 32-bit registers a thread needs for the tile, narrow elements packed."""
    return -(-layout.size("reg") * element_bits // 32)


def blocked(shape: tuple[int, ...], threads: int, vector: int, element_bits: int) -> Layout:
    """Return a coalesced layout for elementwise work on a row-major tile.

    Each access takes `vector` elements in a row along the last axis; lanes stand next to each
    other, then warps, then the registers that are left, all along the last axis first. An axis
    gives lanes and warps its powers of two; an odd factor stays in registers. Lanes and warps
    that find nothing left hold copies.
    """
    if vector * element_bits > 128:
        raise LayoutError(f"{vector} elements of {element_bits} bits exceed a 16-byte access")
    return _distribute(shape, vector, [("lane", 5), ("warp", _log2(threads // 32, "warps"))])


def rows(shape: tuple[int, ...], warps_per_row: int, vector: int, threads: int = 128) -> Layout:
    """Return a layout for row-wise work: each row is held by whole warps.

    All lanes and `warps_per_row` warps stand along the last axis, `vector` elements apart; the
    other warps stand along the axes before, so that a CTA takes several short rows.
    """
    along = _log2(warps_per_row, "warps for each row")
    others = _log2(threads // 32, "warps") - along
    if others < 0:
        raise LayoutError(f"{warps_per_row} warps for each row, but {threads} threads")
    return _distribute(shape, vector, [("lane", 5), ("warp", along)], [("warp", others)])


def _distribute(
    shape: tuple[int, ...],
    vector: int,
    along: list[tuple[str, int]],
    across: list[tuple[str, int]] | None = None,
) -> Layout:
    """Hand out the bits of the axes, last axis first.

    Without `across`, bits that the last axis cannot supply come from the axes before it. With
    it, the first list takes from the last axis only and the second one from the others only.
    """
    if not 1 <= len(shape) <= 4 or min(shape) < 1:
        raise LayoutError(f"a tile of shape {shape} cannot be distributed")
    bits = _log2(vector, "elements in an access")
    if shape[-1] % vector:
        raise LayoutError(f"rows of {shape[-1]} elements are no multiple of the vector {vector}")
    axes = list(range(len(shape)))[::-1]
    done = [1] * len(shape)  # how far each axis is covered
    spaces: dict[str, list[Digit]] = {
        "reg": [_step(axes[0], 1 << b) for b in range(bits)],
        "lane": [],
        "warp": [],
    }
    done[axes[0]] = vector
    for wanted, sources in (
        (along, axes if across is None else axes[:1]),
        (across or [], axes[1:]),
    ):
        for space, count in wanted:
            for _ in range(count):
                axis = next((a for a in sources if shape[a] // done[a] % 2 == 0), None)
                if axis is None:
                    spaces[space].append(Digit())
                else:
                    spaces[space].append(_step(axis, done[axis]))
                    done[axis] *= 2
    spaces["reg"] += [
        _step(axis, done[axis], shape[axis] // done[axis])
        for axis in axes
        if shape[axis] > done[axis]
    ]
    layout = Layout.make(spaces, rank=len(shape))
    if layout.shape != shape:
        raise AssertionError(f"{layout} does not cover {shape}: {prod(shape)} elements")
    return layout


def _log2(value: int, what: str) -> int:
    if value < 1 or value & (value - 1):
        raise LayoutError(f"{value} {what}: a power of two is needed")
    return value.bit_length() - 1


def _operand_bits(element_bits: int) -> int:
    if element_bits not in (8, 16, 32):
        raise LayoutError(f"no tensor-core operand has elements of {element_bits} bits")
    return element_bits


def _elements_per_register(element_bits: int, k: int) -> int:
    each = 32 // _operand_bits(element_bits)
    if k not in (4 * each, 8 * each):
        raise LayoutError(f"mma.sync.m16n8 has no K of {k} for {element_bits}-bit elements")
    return each
