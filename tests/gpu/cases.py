"""The cases that the example programs must compute right on a GPU, as plain data.

Idea: a case names a program, a dtype, sizes, how each array lies in memory, and a seed; nothing
else is needed to repeat it.  The lists are those of the acceptance: all pairs of awkward sizes,
random triples, and every kind of strided, offset, repeated and unaligned array.

Invariants: the same seed gives the same list; a case's name is unique and says all of it.

Never: imports torch, or leaves a case out because it is known to fail.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

GEMM_SIZES = (1, 16, 17, 63, 64, 65, 128, 200, 1000, 4096)
GEMM_FIXED = 200  # the size of the axis that a pair leaves out
GEMM_DTYPES = ("bf16", "f16")
TABLE_SIZES = (0, 1, 17, 1000, 4096, 16384)
RANDOM_TRIPLES = 200
RANDOM_MOST = 3000

#: Which axis of a[M, K] and of b[N, K] is contiguous, by the BLAS letters: in "TN" both have K
#: contiguous, which is a @ b.T on row-major arrays.
FORMS: dict[str, tuple[str, str]] = {
    "TN": ("row", "row"),
    "TT": ("row", "column"),
    "NN": ("column", "row"),
    "NT": ("column", "column"),
}

#: How an array may lie in memory; the first are legal for outputs too.
OUTPUT_VIEWS = ("padded", "odd-pitch", "offset-16-bytes", "offset-one", "every-second")
INPUT_VIEWS = (*OUTPUT_VIEWS, "repeat-outer", "repeat-inner")
VIEW_SIZES = ((200, 136, 72), (128, 256, 64), (65, 63, 17), (1, 64, 16))
TABLE_VIEW_SIZES = ((17, 1000), (64, 256), (33, 65))


@dataclass(frozen=True)
class Operand:
    """How one array lies: its contiguous axis ("row": the last) and its view (see `strides`)."""

    order: str = "row"
    view: str = "packed"

    def __str__(self) -> str:
        """The order and the view."""
        return self.view if self.order == "row" else f"{self.view}.T"


@dataclass(frozen=True)
class Case:
    """One call of a program: inputs first in `operands`, the output last."""

    program: str
    dtype: str
    sizes: tuple[int, ...]
    operands: tuple[Operand, ...]
    seed: int

    @property
    def name(self) -> str:
        """All that the case is, in words."""
        sizes = "x".join(map(str, self.sizes))
        arrays = ",".join(map(str, self.operands))
        return f"{self.program} {self.dtype} {sizes} {arrays} seed={self.seed}"

    @property
    def group(self) -> tuple[str, ...]:
        """Cases of a group are likely to share compiled code."""
        return (self.program, self.dtype, *(o.order for o in self.operands))

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """The shapes of the operands."""
        if self.program == "gemm":
            m, n, k = self.sizes
            return ((m, k), (n, k), (m, n))
        rows, columns = self.sizes
        return ((rows, columns),) * len(self.operands)


def strides(shape: tuple[int, int], operand: Operand, item_bytes: int) -> tuple[int, int, int]:
    """Strides of the two axes and the offset of the first element, all in elements."""
    inner = shape[1] if operand.order == "row" else shape[0]
    outer_stride, inner_stride, offset = max(inner, 1), 1, 0
    match operand.view:
        case "padded":  # to the next multiple of 16 bytes and 16 more
            step = 16 // item_bytes
            outer_stride = (-(-inner // step) + 1) * step
        case "odd-pitch":
            outer_stride = inner | 1 if inner % 2 == 0 else inner + 2
        case "offset-16-bytes":
            offset = 16 // item_bytes
        case "offset-one":
            offset = 1
        case "every-second":
            outer_stride, inner_stride = 2 * max(inner, 1), 2
        case "repeat-outer":
            outer_stride = 0
        case "repeat-inner":
            outer_stride, inner_stride = 1, 0
        case "packed":
            pass
        case other:
            raise ValueError(f"no view {other}")
    if operand.order == "row":
        return outer_stride, inner_stride, offset
    return inner_stride, outer_stride, offset


def extent(shape: tuple[int, int], steps: tuple[int, int, int]) -> int:
    """Elements from the start of the storage to the end of the view."""
    first, second, offset = steps
    if 0 in shape:
        return offset
    return offset + (shape[0] - 1) * first + (shape[1] - 1) * second + 1


def gemm_pairs(seed: int = 0) -> Iterator[Case]:
    """All pairs of M, N, K from the sizes with the third fixed, each dtype and form."""
    triples: set[tuple[int, int, int]] = set()
    for x, y in product(GEMM_SIZES, GEMM_SIZES):
        triples |= {(x, y, GEMM_FIXED), (x, GEMM_FIXED, y), (GEMM_FIXED, x, y)}
    for dtype, form, sizes in product(GEMM_DTYPES, FORMS, sorted(triples)):
        yield _gemm(dtype, form, sizes, seed)


def gemm_random(seed: int) -> Iterator[Case]:
    """Random triples, small and large alike; dtypes and forms take turns."""
    chance = random.Random(seed)
    kinds = list(product(GEMM_DTYPES, FORMS))
    for number in range(RANDOM_TRIPLES):
        dtype, form = kinds[number % len(kinds)]
        m, n, k = (round(RANDOM_MOST ** chance.random()) for _ in range(3))
        yield _gemm(dtype, form, (m, n, k), seed + number)


def gemm_views(seed: int = 0) -> Iterator[Case]:
    """Each kind of array at each place, the others packed; forms as they come."""
    for dtype, sizes, orders in product(GEMM_DTYPES, VIEW_SIZES, FORMS.values()):
        plain = [Operand(order) for order in (*orders, "row")]
        for place in range(3):
            for view in OUTPUT_VIEWS if place == 2 else INPUT_VIEWS:
                operands = list(plain)
                operands[place] = Operand(plain[place].order, view)
                yield Case("gemm", dtype, sizes, tuple(operands), seed)
        yield Case("gemm", dtype, sizes, (*plain[:2], Operand("column")), seed)
        yield Case("gemm", dtype, sizes, tuple(Operand(o.order, "offset-one") for o in plain), seed)


def gemm_empty(seed: int = 0) -> Iterator[Case]:
    """No rows, no columns, and no terms: an empty sum still writes zeros."""
    for dtype, sizes in product(GEMM_DTYPES, ((0, 64, 64), (64, 0, 64), (64, 64, 0), (65, 17, 0))):
        yield _gemm(dtype, "TN", sizes, seed)


def _gemm(dtype: str, form: str, sizes: tuple[int, int, int], seed: int) -> Case:
    a, b = FORMS[form]
    return Case("gemm", dtype, sizes, (Operand(a), Operand(b), Operand()), seed)


def tables(program: str, inputs: int, dtypes: tuple[str, ...], seed: int = 0) -> Iterator[Case]:
    """Elementwise and row programs: all rows and columns, then every kind of array."""
    packed = (Operand(),) * (inputs + 1)
    for dtype, rows, columns in product(dtypes, TABLE_SIZES, TABLE_SIZES):
        yield Case(program, dtype, (rows, columns), packed, seed)
    for dtype, sizes, place in product(dtypes, TABLE_VIEW_SIZES, range(inputs + 1)):
        for view in OUTPUT_VIEWS if place == inputs else INPUT_VIEWS:
            operands = list(packed)
            operands[place] = Operand("row", view)
            yield Case(program, dtype, sizes, tuple(operands), seed)
        operands = list(packed)
        operands[place] = Operand("column")
        yield Case(program, dtype, sizes, tuple(operands), seed)


def all_cases(seed: int) -> list[Case]:
    """The whole acceptance list; `seed` chooses the random triples."""
    return [
        *gemm_pairs(),
        *gemm_random(seed),
        *gemm_views(),
        *gemm_empty(),
        *tables("add", 2, ("bf16", "f16", "f32")),
        *tables("softmax", 1, ("bf16", "f16")),
    ]


def matching(cases: list[Case], words: str) -> list[Case]:
    """The cases whose names hold all the words, as whole words ("gemm bf16 packed.T")."""
    wanted = set(words.split())
    return [case for case in cases if wanted <= set(case.name.replace(",", " ").split())]


def small_cases() -> list[Case]:
    """A few of each, for tools that slow a kernel a hundredfold."""
    ragged = (65, 72, 80)
    return [
        *(_gemm("bf16", form, ragged, 0) for form in FORMS),
        Case("gemm", "f16", ragged, (Operand("row", "offset-one"), Operand(), Operand()), 0),
        Case("gemm", "bf16", ragged, (Operand(), Operand(), Operand("row", "odd-pitch")), 0),
        Case("add", "bf16", (17, 200), (Operand(),) * 3, 0),
        Case("add", "f32", (17, 33), (Operand("row", "offset-one"), Operand(), Operand()), 0),
        Case("softmax", "bf16", (17, 1000), (Operand(),) * 2, 0),
        Case("softmax", "f16", (3, 65), (Operand(),) * 2, 0),
    ]
