"""How an op is declared: field specifiers, effects, and the registry of op classes.

An op is read in one place: its class line gives name and effects, its fields are operands,
attributes, results and regions in the order of its text. Everything generic (constructor,
printer, parser, clone, structural check) is derived from these declarations.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, Literal


class Effects(Flag):
    """What executing an op does besides computing its results."""

    PURE = 0
    READS = auto()
    """Reads memory that others may write."""
    WRITES = auto()
    """Writes memory that others may read."""
    ORDERS = auto()
    """Synchronises, waits or signals: nothing may move across it."""
    MAKES = auto()
    """Makes something with an identity: two equal ones are two, one that is unused may go."""


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """One declared field of an op class."""

    role: str  # "operand", "attribute", "result", "region", "result_type"
    variadic: bool = False
    optional: bool = False
    default: Any = None
    has_default: bool = False


def operand(*, optional: bool = False, default: Any = None) -> Any:
    """A single operand; an optional one is ``None`` when absent and must come last."""
    return FieldSpec("operand", optional=optional, default=default, has_default=optional)


def operands(*, default: Any = ()) -> Any:
    """Any number of operands (at most one such field an op, and it takes what is left)."""
    return FieldSpec("operand", variadic=True, default=default, has_default=True)


_REQUIRED: Any = object()


def attribute(*, default: Any = _REQUIRED) -> Any:
    """A compile-time fact: int, float, bool, name, element type, layout, or a tuple of these."""
    if default is _REQUIRED:
        return FieldSpec("attribute")
    return FieldSpec("attribute", default=default, has_default=True)


def result_type() -> Any:
    """A result type that cannot be inferred and is given by whoever builds the op."""
    return FieldSpec("result_type")


def result_types() -> Any:
    """Result types, given by whoever builds the op, for a variadic ``results()`` field."""
    return FieldSpec("result_type", variadic=True)


def result(*, init: Literal[False] = False) -> Any:
    """A single result."""
    return FieldSpec("result")


def results(*, init: Literal[False] = False) -> Any:
    """Any number of results."""
    return FieldSpec("result", variadic=True)


def region(*, default: Any = None) -> Any:
    """A nested region."""
    return FieldSpec("region", default=default, has_default=False)


class Refused(Exception):
    """An op, pass or candidate declines, with a reason, and what to type if that is known."""

    def __init__(self, reason: str, help: str = "") -> None:
        super().__init__(reason)
        self.help = help
