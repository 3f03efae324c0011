"""Numbers as scalar arguments: which a type can hold, and their bits.

Idea: a number that the type cannot hold is refused where the call is made, before it wraps, turns
into infinity or loses its fraction on the way to a kernel or the interpreter.

Invariants: floats may be rounded, and NaN and infinities may be passed as such; what passes `held`
has bits. `key` tells apart what has other bits, such as 0.0 and -0.0, or 1 and 1.0.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from tilec.backend_ptx.arguments import Arguments
from tilec.ir.types import DType
from tilec.passes.constants import encoded
from tilec.runtime.specialise import LaunchError

_FORMATS = {"f64": "<d", "f32": "<f4x", "tf32": "<f4x", "f16": "<e6x"}
_GREATEST = {
    "f64": float.fromhex("0x1.fffffffffffffp1023"), "f32": float.fromhex("0x1.fffffep127"),
    "tf32": float.fromhex("0x1.ffcp127"), "f16": 65504.0, "bf16": float.fromhex("0x1.fep127"),
    "e4m3": 448.0, "e5m2": 57344.0,
}  # fmt: skip


def key(value: Any) -> tuple[Any, ...]:
    """What finds the launch of an equal argument again."""
    kind = type(value)
    return (kind, struct.pack("<d", value)) if kind is float else (kind, repr(value))


def held(name: str, dtype: DType, value: Any) -> int | float | bool:
    """The number as Python's own, if the type can hold it; ``name`` is the parameter."""
    number = _real(value)
    if number is None:
        raise LaunchError(
            f"{name} is a number of type {dtype}, got {value!r:.60}",
            code="number-does-not-fit",
            at={_parameter(name): f"{value!r:.60} is no real number"},
            help="pass an int, a float or a bool",
        )
    if dtype.is_float:
        try:
            wide = float(number)
            scalar_bits(dtype, wide)
        except OverflowError:
            most = _GREATEST[dtype.name]
            raise LaunchError(
                f"{name} is of type {dtype}, at most {most:.6g} either way, got {value!r:.60}",
                code="number-does-not-fit",
                at={_parameter(name): f"{value!r:.60} does not fit {dtype}"},
                help=f"the nearest is {most if number > 0 else -most:.6g}; infinity may be passed",
            ) from None
        return wide
    low, high = integer_range(dtype)
    if not (math.isfinite(number) and number == int(number) and low <= number <= high):
        raise LaunchError(
            f"{name} is of type {dtype}, a whole number from {low} to {high}, got {value!r:.60}",
            code="number-does-not-fit",
            at={_parameter(name): f"{value!r:.60} does not fit {dtype}"},
            help=_nearest(number, low, high),
        )
    return bool(number) if dtype.kind == "bool" else int(number)


def _parameter(name: str) -> str:
    """The parameter that a phrase such as ``n of f(x, n)`` speaks of."""
    return name.partition(" ")[0]


def _nearest(number: int | float, low: int, high: int) -> str:
    """The nearest number that a type holds, as a help."""
    if not math.isfinite(number):
        return "pass a whole number"
    return f"the nearest is {min(max(round(number), low), high)}"


def _real(value: Any) -> int | float | None:
    """A number of any library as Python's own; None for what is no real number."""
    if isinstance(value, (str, bytes, complex)) or getattr(value, "imag", 0) != 0:
        return None
    try:
        return int(value.__index__()) if hasattr(value, "__index__") else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def integer_range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type; a bool is 0 or 1."""
    if dtype.kind == "bool":
        return 0, 1
    if dtype.kind == "signed":
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def scalar_bits(dtype: DType, value: int | float) -> bytes:
    """A number that the type holds as 8 bytes, zero or sign extended; a parameter takes some.

    Raises ``OverflowError`` for a finite number that would become infinite.
    """
    if not dtype.is_float:
        number = int(value)
        return struct.pack("<q" if number < 0 else "<Q", number)
    if dtype.name in _FORMATS:
        return struct.pack(_FORMATS[dtype.name], value)
    if dtype.name == "bf16":
        one = Arguments(["bf16"])
        one.set(0, value)
        bits = one.value_bytes(0)
        if int.from_bytes(bits, "little") & 0x7FFF == 0x7F80 and math.isfinite(value):
            raise OverflowError(f"{value} is no bfloat16")
        return bits + bytes(6)
    # PTX ISA, alternate floating-point formats: e4m3 has no infinity.
    if abs(value) > _GREATEST[dtype.name] and (math.isfinite(value) or dtype.name == "e4m3"):
        raise OverflowError(f"{value} is no {dtype}")
    return bytes([encoded(value, dtype)]) + bytes(7)
