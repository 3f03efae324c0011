"""Single PTX instructions on arrays of register contents.

Idea: an opcode is taken apart at its dots: the name gives the function, the last part the type as
which the bits are read.  Bits are unsigned integers (bool for predicates), whatever they mean.

Never: shares code with selection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilec.interp import elementwise
from tilec.interp.numbers import decode, encode, rounded, storage
from tilec.ir.types import DTYPES

Bits = npt.NDArray[Any]
_UNSIGNED = {16: np.uint16, 32: np.uint32, 64: np.uint64}
_WARP = 32


def width(kind: str) -> int:
    """Bits of a register kind or instruction type."""
    return 1 if kind == "pred" else int("".join(c for c in kind if c.isdigit()))


def blank(kind: str, shape: tuple[int, ...]) -> Bits:
    """Registers of a kind, all zero."""
    return np.zeros(shape, bool if kind == "pred" else _UNSIGNED[width(kind)])


def literal(kind: str, value: float | int | bool) -> Bits:
    """The bits of a constant."""
    if kind == "pred":
        return np.array(bool(value))
    if kind in ("f32", "f64"):
        data = np.array(value, np.float32 if kind == "f32" else np.float64)
        return data.view(_UNSIGNED[width(kind)])
    return np.array(int(value) & ((1 << width(kind)) - 1), _UNSIGNED[width(kind)])


def read(bits: Bits, type: str) -> Bits:
    """Bits as the numbers that an instruction type takes them for; 16-bit floats as float32."""
    if type == "pred":
        return bits
    if type in ("f16", "bf16"):
        kind = DTYPES[type]
        return decode(kind, bits.view(storage(kind)))
    if type in ("s8", "u8"):  # of a wider register the low byte
        return bits.astype(np.uint8).astype(np.int8 if type == "s8" else np.uint8)
    if type in ("s16", "u16"):
        return bits.astype(np.uint16).view(np.int16 if type == "s16" else np.uint16)
    if type[0] == "f":
        return bits.view(np.float32 if type == "f32" else np.float64)
    bits = bits.astype(_UNSIGNED[max(16, width(type))], copy=False)
    return bits.view(f"i{bits.itemsize}") if type[0] == "s" else bits


def write(data: Bits, type: str) -> Bits:
    """Numbers of an instruction type as bits."""
    if type == "pred":
        return data.astype(bool)
    if type in ("f16", "bf16"):
        kind = DTYPES[type]
        return encode(kind, rounded(kind, data), storage(kind)).view(np.uint16)
    if type[0] == "f":
        exact = data.astype(np.float32 if type == "f32" else np.float64)
        return exact.view(_UNSIGNED[width(type)])
    return data.astype(_UNSIGNED[max(16, width(type))])


def _flushed(x: Bits, parts: Sequence[str]) -> Bits:
    small = np.abs(x) < 2.0**-126
    return np.where(small, np.copysign(np.zeros_like(x), x), x) if "ftz" in parts else x


def _divide(x: Bits, y: Bits) -> Bits:
    if x.dtype.kind == "f":
        return x / y
    floor = np.floor_divide(x, y)
    truncated: Bits = floor + ((floor * y != x) & ((x < 0) != (y < 0))).astype(x.dtype)
    return truncated


def _extreme(larger: bool, parts: Sequence[str], x: Bits, y: Bits) -> Bits:
    if x.dtype.kind != "f":
        return np.maximum(x, y) if larger else np.minimum(x, y)
    if not larger:
        return -_extreme(True, parts, -x, -y)
    found = np.maximum(x, y) if "NaN" in parts else np.fmax(x, y)
    return np.where((x == 0) & (y == 0), x + y, found)


def _shift(left: bool, x: Bits, y: Bits) -> Bits:
    bits = x.itemsize * 8
    amount = np.minimum(y, bits - 1).astype(x.dtype)
    moved = np.left_shift(x, amount) if left else np.right_shift(x, amount)
    gone = np.zeros_like(x) if left else np.right_shift(x, np.asarray(bits - 1, x.dtype))
    if not left and x.dtype.kind == "u":
        gone = np.zeros_like(x)
    return np.where(y >= bits, gone, moved)


def _permuted(x: Bits, y: Bits, selector: Bits) -> Bits:
    """Four bytes of eight; the top bit of a selector's digit spreads the byte's sign."""
    both = x.astype(np.uint64) | y.astype(np.uint64) << np.uint64(32)
    out = np.zeros(np.broadcast_shapes(x.shape, y.shape, selector.shape), np.uint32)
    for place in range(4):
        digit = selector >> np.uint32(4 * place) & np.uint32(15)
        byte = both >> (digit & np.uint32(7)).astype(np.uint64) * np.uint64(8) & np.uint64(255)
        spread = np.where(byte >> np.uint64(7), np.uint64(255), np.uint64(0))
        byte = np.where(digit & np.uint32(8), spread, byte).astype(np.uint32)
        out |= byte << np.uint32(8 * place)
    return out


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "mov": lambda x: x,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "ex2": np.exp2, "lg2": np.log2,
    "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": lambda x: 1 / x, "tanh": np.tanh,
    "prmt": lambda x, y, s: _permuted(x, y, s),
    "mad": lambda x, y, z: x * y + z, "rem": lambda x, y: x - _divide(x, y) * y,
}  # fmt: skip
_RELATIONS: dict[str, Callable[..., Any]] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "neu": np.not_equal, "ne": lambda x, y: (x < y) | (x > y),
    "nan": lambda x, y: np.isnan(x) | np.isnan(y), "num": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
}  # fmt: skip


def run(opcode: str, inputs: Sequence[Bits]) -> Bits:
    """One instruction; ``inputs`` broadcast to registers x threads."""
    name, *parts = opcode.split(".")
    type = parts[-1]
    with np.errstate(all="ignore"):
        if name == "cvt":
            return _convert(parts, inputs)
        if name in ("shfl", "vote"):
            return _across(name, parts, inputs)
        if name == "fma":
            return _fused(type, inputs)
        if name == "selp":
            return np.where(inputs[2], inputs[0], inputs[1])
        if name in ("shl", "shr"):
            moved = _shift(name == "shl", read(inputs[0], type), read(inputs[1], "u32"))
            return write(moved, type)
        numbers = [read(x, type) for x in inputs]
        if name == "setp":
            return np.asarray(_RELATIONS[parts[0]](*numbers))
        if name in ("max", "min"):
            return write(_extreme(name == "max", parts, *numbers), type)
        if parts[0] == "wide":
            return write(numbers[0].astype(np.int64) * numbers[1].astype(np.int64), "s64")
        numbers = [_flushed(x, parts) if x.dtype.kind == "f" else x for x in numbers]
        found = np.asarray(_FUNCTIONS[name](*numbers))
        return write(_flushed(found, parts) if found.dtype.kind == "f" else found, type)


def _fused(type: str, inputs: Sequence[Bits]) -> Bits:
    if type.endswith("x2"):
        half = type.removesuffix("x2")
        low, high = ([(x >> s & 0xFFFF).astype(np.uint16) for x in inputs] for s in (0, 16))
        low_bits, high_bits = _fused(half, low), _fused(half, high)
        return low_bits.astype(np.uint32) | high_bits.astype(np.uint32) << np.uint32(16)
    x, y, z = (read(v, type) for v in inputs)
    return write(elementwise.fused(DTYPES[type], x, y, z, False), type)


def _convert(parts: Sequence[str], inputs: Sequence[Bits]) -> Bits:
    target, source = parts[-2], parts[-1]
    if target == "tf32":
        return write(rounded(DTYPES["tf32"], read(inputs[0], source)), "f32")
    if source in ("e4m3x2", "e5m2x2"):
        kind = DTYPES[source.removesuffix("x2")]
        low, high = (
            write(decode(kind, (inputs[0] >> s & 255).astype(np.uint8)), "f16").astype(np.uint32)
            for s in (0, 8)
        )
        return high << np.uint32(16) | low
    if target in ("e4m3x2", "e5m2x2"):
        kind = DTYPES[target.removesuffix("x2")]
        high, low = (
            encode(kind, rounded(kind, read(x, source)), np.dtype(np.uint8)).astype(np.uint16)
            for x in inputs
        )
        return high << np.uint16(8) | low
    if target.endswith("x2"):  # written highest first
        half = target.removesuffix("x2")
        high, low = (write(read(x, source), half).astype(np.uint32) for x in inputs)
        return high << np.uint32(16) | low
    x = read(inputs[0], source)
    if "f" not in target:
        if "f" not in source:
            return write(x, target)
        kind = DTYPES[target]
        whole = elementwise.cast(DTYPES[source], kind, x, False)
        if 64 in (width(source), width(target)):
            top = np.asarray(1 << (width(target) - 1), np.uint64).astype(whole.dtype)
            whole = np.where(np.isnan(x), top, whole)
        return write(whole, target)
    if parts[0] == "rz":
        return write(_truncated(x), target)
    if "f" not in source and source[0] != "b":
        return write(elementwise.cast(DTYPES[source], DTYPES[target], x, False), target)
    return write(x, target)


def _truncated(x: Bits) -> Bits:
    """f32 towards zero: the nearest one, or the one before it where that went too far."""
    with np.errstate(all="ignore"):
        near = x.astype(np.float32)
    wide = [int(v) if x.dtype.kind != "f" else float(v) for v in x.ravel()]
    far = np.array(
        [abs(float(n)) > abs(v) for n, v in zip(near.ravel(), wide, strict=True)]
    ).reshape(x.shape)
    return np.where(far, np.nextafter(near, np.float32(0)), near)


def _across(name: str, parts: Sequence[str], inputs: Sequence[Bits]) -> Bits:
    """Among the lanes of each warp; the last axis are the threads."""
    x = inputs[0]
    lanes = x.reshape(*x.shape[:-1], -1, _WARP)
    if name == "vote":
        some = lanes.any(-1, keepdims=True)
        return np.broadcast_to(some, lanes.shape).reshape(x.shape).copy()
    amount = int(np.asarray(inputs[1]).flat[0])
    order = np.arange(_WARP)
    taken = lanes[..., order ^ amount if parts[1] == "bfly" else np.full(_WARP, amount)]
    return taken.reshape(x.shape)
