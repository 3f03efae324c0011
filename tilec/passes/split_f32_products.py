"""Multiply f32 tiles as accurately as f32 allows, on tensor cores that read 11 bits of an operand.

Law: with ``big`` = x rounded to tf32, and ``small`` = x - big rounded to tf32, what is lost of x is
at most 2^-23 of it, and

    a @ b  =  small(a) @ big(b)  +  big(a) @ small(b)  +  big(a) @ big(b)

up to small(a) @ small(b), at most 2^-22 of each term: together less than two f32 FMA loops lose in
the worst case from eight terms on. The small terms are added first, while they still count. Tensor
cores cut off what they add instead of rounding it (measured on an H200: after 8192 terms 160 times
the error of rounded sums), so each product begins at zero and is added by an f32 addition.

Edges: x is clamped to what tf32 holds before it is rounded, so that no finite x becomes infinite
(a result within that error of the largest f32 may). Of an infinity the small part is infinite and
the big one about 4 with its sign: no product of it with a small part overflows the other way. A NaN
is one in both parts. Below 2^-126 parts lose bits, and an x below 2^-137 counts as zero.
What has been widened from a type of at most 11 bits has no small part, and so no product with it.

Products that ask for ``precision=tf32`` are left alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from tilec.ir.core import Builder, Kernel, Op, Value
from tilec.ir.levels import math, tile
from tilec.ir.types import DTYPES, F32, DType, Scalar, Tile
from tilec.passes.base import Context, tile_pass

TF32 = DTYPES["tf32"]
GREATEST = float.fromhex("0x1.ffcp127")
"""The largest tf32."""
TO_FEW = 2.0**-126
"""Times the largest tf32 this is about 4."""
NARROW = ("tf32", "f16", "bf16", "e4m3", "e5m2")
"""Types whose every value is one of tf32."""


@dataclass(frozen=True)
class Parts:
    """An operand as tf32 tiles; ``small`` is absent where it would be zero."""

    big: Value[Tile]
    small: Value[Tile] | None


def _cast(x: Value[Any], dtype: DType, builder: Builder) -> Value[Any]:
    return builder.add(math.Cast(x, dtype=dtype), x.name).out


def split(x: Value[Tile], builder: Builder) -> Parts:
    """The two parts of an f32 operand, taken before its transposes."""
    if isinstance(x.owner, tile.Transpose):
        inner = split(x.owner.x, builder)
        turned = [
            builder.add(tile.Transpose(part), x.name).out if part is not None else None
            for part in (inner.big, inner.small)
        ]
        assert turned[0] is not None
        return Parts(turned[0], turned[1])
    if isinstance(x.owner, math.Cast) and math.element_type(x.owner.x.type).name in NARROW:
        return Parts(_cast(x.owner.x, TF32, builder), None)

    def number(value: float) -> Value[Any]:
        return builder.add(math.Constant(value, type=Scalar(F32))).out

    above = builder.add(math.Max(x, number(-GREATEST))).out
    inside = builder.add(math.Min(above, number(GREATEST))).out
    few = builder.add(math.Mul(inside, number(TO_FEW))).out
    size = builder.add(math.Abs(x)).out
    finite = builder.add(math.Compare(size, number(inf), relation="lt")).out
    big = _cast(builder.add(math.Where(finite, inside, few)).out, TF32, builder)
    rest = builder.add(math.Sub(x, _cast(big, F32, builder))).out
    return Parts(big, _cast(rest, TF32, builder))


def _product(op: Op, builder: Builder) -> list[Value[Any]] | None:
    if not isinstance(op, tile.Dot) or op.a.type.dtype != F32 or op.precision:
        return None
    a, b = split(op.a, builder), split(op.b, builder)
    zero = builder.add(math.Constant(0.0, type=Scalar(F32))).out
    total: Value[Any] = builder.add(math.Fill(zero, type=op.acc.type)).out
    for left, right in ((a.small, b.big), (a.big, b.small), (a.big, b.big)):
        if left is not None and right is not None:
            total = builder.add(tile.Dot(left, right, total), op.out.name).out
    return [builder.add(math.Add(op.acc, total), op.out.name).out]


@tile_pass("split-f32-products", level="tile")
def split_f32_products(kernel: Kernel, ctx: Context) -> None:
    """Products of f32 are sums of products of tf32."""
    dots = [op for op in kernel.body.walk() if isinstance(op, tile.Dot)]
    exact = [op for op in dots if op.a.type.dtype == F32 and not op.precision]
    if exact:
        ctx.remark(
            exact[0],
            "f32 is multiplied by three products of tf32, as accurately as f32 allows; "
            "dot(a, b, precision=tf32) takes one",
        )
    ctx.rewrite(kernel.body, _product)
