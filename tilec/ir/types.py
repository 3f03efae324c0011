"""Types of IR values: element types, and the shapes and homes that values have at each level.

A type is a frozen dataclass whose text is ``name<field, field, ...>``; the fields' annotations
say how each is written, so that printer and parser need no knowledge of a single type.
Types are compared by value. They mention size symbols and integers only, never IR values.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, get_type_hints

from tilec.layout.linear import Layout

Extent = int | str
"""One extent of a shape: an integer, or the name of a size symbol (``M``, ``$i``)."""


def is_symbol(extent: Extent) -> bool:
    """Whether an extent is a size that the tiling has to choose."""
    return isinstance(extent, str) and extent.startswith("$")


Shape = tuple[Extent, ...]


MODES = ("in", "out", "inout")
"""What a kernel may do with an array: read it, write it, or both."""


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: its name, its width in bits in memory, and its kind.

    ``s4`` and ``u4`` are types of arrays alone: two elements lie in a byte, the first in the low
    half, along the last axis, which has an even extent and stride one. Values are ``held`` types.
    """

    name: str
    bits: int
    kind: str  # "float", "signed", "unsigned" or "bool"

    @property
    def bytes(self) -> int:
        """Width in bytes in memory (bool is stored as one byte, two nibbles share one)."""
        return max(1, self.bits // 8)

    @property
    def is_nibble(self) -> bool:
        """Whether two elements share a byte of memory; no value has such a type, arrays do."""
        return self.bits == 4

    @property
    def held(self) -> DType:
        """The type of what is read from an array of these elements, and written to it."""
        return DTYPES[f"{self.name[0]}8"] if self.is_nibble else self

    def elements_in(self, byte_count: int) -> int:
        """How many elements so many bytes of memory hold."""
        return byte_count * 8 // self.bits

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating-point type."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Whether the type is a signed or unsigned integer type."""
        return self.kind in ("signed", "unsigned")

    def __str__(self) -> str:
        return self.name


_FLOATS = {"f64": 64, "f32": 32, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8}
DTYPES: dict[str, DType] = {
    **{name: DType(name, bits, "float") for name, bits in _FLOATS.items()},
    **{f"s{bits}": DType(f"s{bits}", bits, "signed") for bits in (64, 32, 16, 8, 4)},
    **{f"u{bits}": DType(f"u{bits}", bits, "unsigned") for bits in (64, 32, 16, 8, 4)},
    "bool": DType("bool", 8, "bool"),
}
"""All element types by name."""

F64 = DTYPES["f64"]
F32, F16, BF16 = DTYPES["f32"], DTYPES["f16"], DTYPES["bf16"]
S32, S64, BOOL = DTYPES["s32"], DTYPES["s64"], DTYPES["bool"]


@dataclass(frozen=True)
class Type:
    """Base of all types; subclasses are registered by their text name."""

    text_name: ClassVar[str] = ""
    registry: ClassVar[dict[str, type[Type]]] = {}

    def __init_subclass__(cls, name: str = "") -> None:
        if name:
            cls.text_name = name
            Type.registry[name] = cls

    @classmethod
    def field_kinds(cls) -> list[tuple[str, object]]:
        """Names and annotations of the fields, in the order in which the text has them."""
        hints = get_type_hints(cls)
        return [(f.name, hints[f.name]) for f in fields(cls)]

    def __str__(self) -> str:
        from tilec.ir.printer import type_text

        return type_text(self)


@dataclass(frozen=True)
class Scalar(Type, name="scalar"):
    """One element held by every thread alike; written as the element type alone (``s32``)."""

    dtype: DType


@dataclass(frozen=True)
class Array(Type, name="array"):
    """A kernel parameter in global memory; strides and address are known at launch only.

    ``mode`` is ``in``, ``out`` or ``inout``.
    """

    dtype: DType
    shape: Shape
    mode: str

    def __post_init__(self) -> None:
        """The mode is known."""
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode} is none of {', '.join(MODES)}")


@dataclass(frozen=True)
class Index(Type, name="index"):
    """A rank-1 tile of consecutive global indices, ``size`` of them, valid while < ``extent``."""

    size: Extent
    extent: Extent


@dataclass(frozen=True)
class Tile(Type, name="tile"):
    """A value of level ``tile``: elements with a shape and no home."""

    dtype: DType
    shape: Shape


@dataclass(frozen=True)
class Register(Type, name="reg"):
    """A tile or vector in the registers of one role's group of threads.

    The layout maps (reg, lane, warp) to coordinates; bits that are absent or ``_`` are copies.
    """

    dtype: DType
    shape: Shape
    layout: Layout


@dataclass(frozen=True)
class Flight(Type, name="flight"):
    """An accumulator that an unfinished product still writes; a wait turns it into ``reg``."""

    dtype: DType
    shape: Shape
    layout: Layout


@dataclass(frozen=True)
class Shared(Type, name="shared"):
    """A tile in shared memory; the layout maps an element offset to coordinates."""

    dtype: DType
    shape: Shape
    layout: Layout


@dataclass(frozen=True)
class Ring(Type, name="ring"):
    """A ring of stages in shared memory, each stage holding the same tiles, with barriers."""

    stages: int
    parts: tuple[Type, ...]


@dataclass(frozen=True)
class Free(Type, name="free"):
    """A stage that a producer has been granted and has not filled yet."""

    parts: tuple[Type, ...]


@dataclass(frozen=True)
class Slot(Type, name="slot"):
    """A filled stage: made only by a wait, given back by a release."""

    parts: tuple[Type, ...]


@dataclass(frozen=True)
class TensorMap(Type, name="tensormap"):
    """A TMA descriptor of an array: element type, box (innermost first), swizzle in bytes."""

    dtype: DType
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True)
class Bits(Type, name="bits"):
    """Level ``ptx``: ``count`` virtual registers of ``kind`` (b16, b32, b64, f32, f64, pred)."""

    kind: str
    count: int
