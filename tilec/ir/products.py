"""Which element types a product takes, what it accumulates in, and what of them an engine reads.

One table for the language, the verifier and the passes. ``f32`` operands are multiplied as
accurately as ``f32`` allows, unless the product asks for ``tf32``: then the low 13 bits of each
element count as zero, which is what the tensor cores read of it (PTX ISA, wgmma and mma of
``.tf32``). Nothing here says how a product is computed.
"""

from __future__ import annotations

from tilec.ir.types import DTYPES, DType

FAMILIES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("bf16",), "f32"),
    (("f16",), "f32"),
    (("e4m3", "e5m2"), "f32"),
    (("tf32",), "f32"),
    (("f32",), "f32"),
    (("s8", "u8"), "s32"),
    (("f64",), "f64"),
)
"""Element types that multiply each other, and what their products are summed in."""

PRECISIONS = ("", "tf32")
"""What a product may ask for instead of what its types promise; tf32 is for f32 operands."""


def product_type(left: DType, right: DType) -> DType | None:
    """The element type of a product; None where the two do not multiply."""
    for names, result in FAMILIES:
        if left.name in names and right.name in names:
            return DTYPES[result]
    return None


def partners(dtype: DType) -> tuple[str, ...]:
    """The element types that multiply with one."""
    return next((names for names, _ in FAMILIES if dtype.name in names), ())


def legal_pairs() -> str:
    """All pairs and their results, in words."""
    shown = [
        f"{' or '.join(names)}{' with either' * (len(names) > 1)} gives {result}"
        for names, result in FAMILIES
    ]
    return "; ".join(shown)
