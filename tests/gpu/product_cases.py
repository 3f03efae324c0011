"""Products of every element type, majorness and odd extent, as plain data.

Idea: a case names a pair of types, a form, three extents, and which of them the program knows; its
program is written from that.  The extents include one, primes, and one above and below tiles.

Invariants: a case's name is unique and says all of it; its program compiles without a GPU too.

Never: imports torch, or leaves a case out because it is known to fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

TYPES: dict[str, tuple[str, str, str, str]] = {
    "f16": ("f16", "f16", "f32", ""),
    "bf16": ("bf16", "bf16", "f32", ""),
    "e4m3": ("e4m3", "e4m3", "f32", ""),
    "e5m2": ("e5m2", "e5m2", "f32", ""),
    "e4m3*e5m2": ("e4m3", "e5m2", "f32", ""),
    "s8": ("s8", "s8", "s32", ""),
    "u8": ("u8", "u8", "s32", ""),
    "u8*s8": ("u8", "s8", "s32", ""),
    "tf32": ("tf32", "tf32", "f32", ""),
    "f32": ("f32", "f32", "f32", ""),
    "f32-as-tf32": ("f32", "f32", "f32", "tf32"),
    "f64": ("f64", "f64", "f64", ""),
}
"""Both operands, what is summed in, and the precision that is asked for."""

FORMS: dict[str, tuple[str, str]] = {
    "TN": ("row", "row"),
    "TT": ("row", "column"),
    "NN": ("column", "row"),
    "NT": ("column", "column"),
}
"""Which axis of a[M, K] and of b[N, K] is contiguous ("row": the last), by the BLAS letters."""

SIZES = (
    (1, 1, 1), (17, 20, 7), (64, 64, 64), (65, 72, 40), (128, 256, 128), (200, 136, 72),
    (63, 33, 100), (130, 24, 1000), (257, 129, 33),
)  # fmt: skip
KNOWN_SIZES = ((65, 72, 40), (17, 20, 7), (70, 1, 1))
KNOWN = ("k", "n", "nk", "m")
"""Axes that the program knows: K alone, N alone, both, M alone."""

REPACKED = ("f16", "bf16", "e4m3", "e5m2", "s8", "u8", "u8*s8", "tf32", "f32-as-tf32")
REPACKED_SIZES = ((65, 72, 40), (17, 20, 7), (200, 136, 72), (63, 33, 100), (257, 129, 33))
"""Products whose operands are copied before they are read, where TMA cannot read them."""


@dataclass(frozen=True)
class ProductCase:
    """c[M, N] = a[M, K] b[N, K]^T."""

    types: str
    form: str
    sizes: tuple[int, int, int]
    known: str
    seed: int
    repacked: bool = False

    @property
    def name(self) -> str:
        """All that the case is, in words."""
        sizes = "x".join(map(str, self.sizes))
        known = f"known-{self.known}" if self.known else "unknown"
        how = " repacked" if self.repacked else ""
        return f"product {self.types} {self.form} {sizes} {known}{how} seed={self.seed}"

    @property
    def text(self) -> str:
        """The program; a launch decides what is not known."""
        left, right, summed, precision = TYPES[self.types]
        m, n, k = (
            str(size) if axis.lower() in self.known else axis
            for axis, size in zip("MNK", self.sizes, strict=True)
        )
        i, j = ("i" if m == "M" else ":"), ("j" if n == "N" else ":")
        inner = "k" if k == "K" else ":"
        operands = (f"a[{i}, {inner}]", f"b[{j}, {inner}].T")
        one = f"dot({', '.join(operands)}, precision={precision})" if precision else None
        one = one or " @ ".join(operands)
        outer = [
            (name, f"tiles({axis})") for name, axis in (("i", m), ("j", n)) if not axis.isdigit()
        ]
        names, loops = (", ".join(part) for part in zip(*outer, strict=True))
        shape = f"{'i' if i == 'i' else m}, {'j' if j == 'j' else n}"
        body = f"        c[{i}, {j}] = {one}\n"
        if inner == "k":
            body = (
                f"        acc = zeros[{summed}]({shape})\n"
                f"        for k in tiles(K):\n"
                f"            acc += {one}\n"
                f"        c[{i}, {j}] = acc\n"
            )
        head = f"kernel f(a: {left}[{m}, {k}], b: {right}[{n}, {k}], c: out {summed}[{m}, {n}]):\n"
        pins = "    schedule repacks.a=1, repacks.b=1\n" if self.repacked else ""
        return f"{head}{pins}    for {names} in parallel({loops}):\n{body}"


def all_cases(seed: int = 0) -> list[ProductCase]:
    """The whole list."""
    return list(_cases(seed))


def _cases(seed: int) -> Iterator[ProductCase]:
    for types, form, sizes in product(TYPES, FORMS, SIZES):
        yield ProductCase(types, form, sizes, "", seed)
    for types, form, sizes, known in product(TYPES, FORMS, KNOWN_SIZES, KNOWN):
        yield ProductCase(types, form, sizes, known, seed)
    for types, form, sizes in product(REPACKED, FORMS, REPACKED_SIZES):
        yield ProductCase(types, form, sizes, "", seed, repacked=True)


def matching(cases: list[ProductCase], words: str) -> list[ProductCase]:
    """The cases whose names hold all the words."""
    wanted = set(words.split())
    return [case for case in cases if wanted <= set(case.name.split())]
