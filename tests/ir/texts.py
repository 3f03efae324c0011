"""The hand-written IR texts of the whole test suite, and equality of modules by structure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilec.ir.core import Module, Op, Region, Value

TESTS = Path(__file__).resolve().parents[1]


def all_texts() -> list[Path]:
    """Every ``.tir`` file under ``tests``."""
    return sorted(TESTS.rglob("*.tir"))


def differences(x: Module, y: Module) -> Iterator[str]:
    """What is not the same in two modules, values compared by their place, attributes exactly."""
    if (x.level, x.target, x.source) != (y.level, y.target, y.source):
        yield "the heads differ"
    for one, other in zip(x.kernels, y.kernels, strict=True):
        if (one.name, _exact(one.attributes), _exact(one.schedule)) != (
            other.name,
            _exact(other.attributes),
            _exact(other.schedule),
        ):
            yield f"the heads of kernel {one.name} differ"
        yield from _regions(one.body, other.body, {})


def _exact(value: Any) -> Any:
    """A form in which 1, 1.0 and true, or a name and an element type, are different."""
    if isinstance(value, dict):
        return {key: _exact(v) for key, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_exact(v) for v in value)
    return type(value).__name__, repr(value)


def _regions(x: Region, y: Region, same: dict[Value[Any], Value[Any]]) -> Iterator[str]:
    for a, b in zip(x.args, y.args, strict=True):
        same[a] = b
        if a.type != b.type:
            yield f"{a!r} and {b!r}"
    for one, other in zip(x.ops, y.ops, strict=True):
        yield from _ops(one, other, same)


def _ops(x: Op, y: Op, same: dict[Value[Any], Value[Any]]) -> Iterator[str]:
    if type(x) is not type(y) or x.loc != y.loc or _exact(x.attributes) != _exact(y.attributes):
        yield f"{x} and {y}"
    if [same.get(v) for v in x.operands] != y.operands:
        yield f"the operands of {x} and {y}"
    for a, b in zip(x.regions, y.regions, strict=True):
        yield from _regions(a, b, same)
    for result, other in zip(x.results, y.results, strict=True):
        same[result] = other
        if result.type != other.type:
            yield f"the results of {x} and {y}"
