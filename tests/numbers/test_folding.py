"""Folding gives what the interpreter gives, bit for bit, for every type and all pairs of edges.

The two share no code: folding is Python's whole numbers and f64, the interpreter is NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.numbers.edges import ALL, FLOATS, INTEGERS, STORED, Data, few, pairs, values
from tilec.interp import elementwise
from tilec.interp.numbers import encode, storage
from tilec.ir.core import Op
from tilec.ir.levels import math
from tilec.ir.types import DTYPES, DType, Scalar
from tilec.passes.constants import encoded, folded, rounded
from tilec.passes.simplify import identities

_EVERY_TYPE = (math.Add, math.Sub, math.Mul, math.Max, math.Min)
_WHOLE = (math.FloorDiv, math.Mod, math.Shl, math.Shr, math.And, math.Or, math.Xor)
BINARY: dict[str, tuple[type[math.Binary], ...]] = {
    **dict.fromkeys((*FLOATS, *STORED), (*_EVERY_TYPE, math.Div)),
    **dict.fromkeys(INTEGERS, (*_EVERY_TYPE, *_WHOLE)),
    "bool": (math.And, math.Or, math.Xor),
}
UNARY: dict[str, tuple[type[math.Unary], ...]] = {
    **dict.fromkeys((*FLOATS, *STORED), (math.Neg, math.Abs)),
    **dict.fromkeys(INTEGERS, (math.Neg, math.Abs, math.Not)),
    "bool": (math.Not,),
}


def constant(value: Any, dtype: DType) -> Any:
    """A constant of the IR."""
    return math.Constant(value.item(), Scalar(dtype)).out


def differences(dtype: DType, want: Data, found: list[Any]) -> list[str]:
    """Where folded numbers are not the expected ones; every NaN is one."""
    wrong = []
    for place, (x, y) in enumerate(zip(want, found, strict=True)):
        if dtype.is_float:
            same = isinstance(y, float) and (
                (x != x and y != y) or (float(x) == y and np.signbit(x) == np.signbit(y))
            )
        else:
            same = type(y) is (bool if dtype.kind == "bool" else int) and int(x) == y
        if not same:
            wrong.append(f"{place}: {y} for {x}")
    return wrong


def settled(dtype: DType, raw: Any) -> Data:
    return elementwise.settle(dtype, raw, False)


@pytest.mark.parametrize("name", ALL)
def test_operations_on_two(name: str) -> None:
    dtype, (left, right) = DTYPES[name], pairs(name)
    for op in BINARY[name]:
        with np.errstate(all="ignore"):
            want = settled(dtype, elementwise.BINARY[op](left, right))
        found = [
            folded(op(constant(x, dtype), constant(y, dtype)))
            for x, y in zip(left, right, strict=True)
        ]
        assert differences(dtype, want, found) == [], op


@pytest.mark.parametrize("name", ALL)
def test_operations_on_one(name: str) -> None:
    dtype, given = DTYPES[name], few(name)
    for op in UNARY[name]:
        want = settled(dtype, elementwise.UNARY[op](given))
        found = [folded(op(constant(x, dtype))) for x in given]
        assert differences(dtype, want, found) == [], op


@pytest.mark.parametrize("name", ALL)
def test_comparisons(name: str) -> None:
    dtype, (left, right) = DTYPES[name], pairs(name)
    for relation, function in elementwise.RELATIONS.items():
        found = [
            folded(math.Compare(constant(x, dtype), constant(y, dtype), relation=relation))
            for x, y in zip(left, right, strict=True)
        ]
        assert differences(DTYPES["bool"], function(left, right), found) == [], relation


@pytest.mark.parametrize("name", ALL)
def test_casts(name: str) -> None:
    source, given = DTYPES[name], values(name)
    for target in (DTYPES[to] for to in ALL):
        for saturate in (True, False):
            with np.errstate(all="ignore"):
                want = elementwise.cast(source, target, given, False, saturate)
            found = [folded(math.Cast(constant(x, source), target, saturate)) for x in given]
            assert differences(target, want, found) == [], (target.name, saturate)


@pytest.mark.parametrize("name", ["f16", "bf16", "e4m3", "e5m2"])
def test_bits_of_narrow_floats(name: str) -> None:
    dtype, given = DTYPES[name], values(name)
    given = given[~np.isnan(given)]
    want = encode(dtype, given, storage(dtype)).view(f"u{dtype.bytes}")
    assert [encoded(float(x), dtype) for x in given] == want.tolist()


@pytest.mark.parametrize("name", [n for n in ALL if n != "bool"])
def test_what_simplify_drops_changed_nothing(name: str) -> None:
    """An op that an identity replaces by its operand gives that operand, NaN apart."""
    dtype = DTYPES[name]
    few_of_them = few(name)
    cases: list[tuple[Op, Any]] = []
    for x in few_of_them:
        for unit in (0, 1):
            one = np.asarray(unit, few_of_them.dtype)
            for op in (math.Add, math.Sub, math.Mul, *((math.Div,) if dtype.is_float else ())):
                cases.append((op(constant(x, dtype), constant(one, dtype)), x))
    replaced = 0
    for made, x in cases:
        kept = identities(made, None)  # type: ignore[arg-type]
        if kept is None:
            continue
        replaced += 1
        value = folded(made)
        (left,) = kept
        assert differences(dtype, np.asarray([rounded(left.owner.value, dtype)]), [value]) == [], x
    assert replaced >= 2 * len(few_of_them)
