"""Kinds of operands, attributes and results: what an op's declaration says of each field.

The annotations of an op's fields are its only statement of kinds (``Value[Array]``, ``int``,
``tuple[int, ...]``, ``Layout``); they are checked here before anything of the op's own runs, so
that ``infer``, ``check`` and the passes may rely on them. ``Value[Any]`` says nothing. Whether
values of the right kind make sense together is for the op to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from tilec.ir.core import Op, Value
from tilec.ir.types import DType, Type
from tilec.layout.linear import Layout

_NAMES: dict[Any, tuple[str, str]] = {
    int: ("an integer", "integers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("a name", "names"),
    Layout: ("a layout", "layouts"),
    DType: ("an element type", "element types"),
    NoneType: ("none", "none"),
}


_known: dict[type[Op], dict[str, Any]] = {}


def field_kinds(cls: type[Op]) -> dict[str, Any]:
    """The kind of each declared field of an op class, resolved once."""
    if cls not in _known:
        hints = get_type_hints(cls)
        _known[cls] = {key: hints[key] for key in cls.specs}
    return _known[cls]


def kind_faults(op: Op) -> Iterator[str]:
    """Fields of an op that are not of their declared kind."""
    return value_faults(type(op), {key: getattr(op, key) for key in op.specs})


def value_faults(cls: type[Op], values: Mapping[str, Any]) -> Iterator[str]:
    """The same for fields that no op has been made of yet; those that are missing are passed."""
    for key, kind, role, wanted in _checks(cls):
        if key not in values:
            continue
        value = values[key]
        if role == "attribute":
            # Most values are of their kind by their very class.
            if value.__class__ is not kind and not fits(value, kind):
                yield f"{key} = {_shown(value)}: {described(kind)} is needed"
            continue
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Value) and not isinstance(one.type, wanted):
                names = " or ".join(t.text_name for t in wanted)
                yield f"{role} {key} has type {one.type}, {names} is needed"


Check = tuple[str, Any, str, tuple[type[Type], ...]]
"""Of a field: its key, kind, role, and the types of its values."""
_asked: dict[type[Op], list[Check]] = {}


def _checks(cls: type[Op]) -> list[Check]:
    """The fields of which something is asked, resolved once."""
    if cls not in _asked:
        checks: list[Check] = []
        for key, kind in field_kinds(cls).items():
            role = cls.specs[key].role
            wanted = _value_types(kind) if role in ("operand", "result") else ()
            if wanted or role == "attribute":
                checks.append((key, kind, role, wanted))
        _asked[cls] = checks
    return _asked[cls]


@cache
def _value_types(kind: Any) -> tuple[type[Type], ...]:
    """Types that a field's values may have, () where any will do."""
    if get_origin(kind) in (UnionType, Union, tuple):
        return tuple(t for part in get_args(kind) for t in _value_types(part))
    return tuple(t for t in get_args(kind) if isinstance(t, type) and issubclass(t, Type))


def fits(value: Any, kind: Any) -> bool:
    """Whether an attribute's value is of a declared kind; an integer serves as a number."""
    if get_origin(kind) in (UnionType, Union):
        return any(fits(value, part) for part in get_args(kind))
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if not isinstance(value, tuple):
            return False
        if parts[-1:] == (...,):
            return all(fits(v, parts[0]) for v in value)
        return len(value) == len(parts) and all(map(fits, value, parts))
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return kind is Any or isinstance(value, kind)


def described(kind: Any, many: bool = False) -> str:
    """A kind in words."""
    if get_origin(kind) in (UnionType, Union):
        return " or ".join(described(part, many) for part in get_args(kind))
    if get_origin(kind) is tuple:
        parts = get_args(kind)
        if parts[-1:] == (...,):
            inner = described(parts[0], many=True)
        else:
            inner = ", then ".join(described(part) for part in parts)
        return f"{'tuples' if many else 'a tuple'} of {inner}"
    one, several = _NAMES.get(kind, (str(kind), str(kind)))
    return several if many else one


def _shown(value: Any) -> str:
    from tilec.ir.printer import attribute_text

    return attribute_text(value)
