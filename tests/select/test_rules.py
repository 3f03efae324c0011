"""Every op of level ``cta`` has a way to lower it, or is known to end before selection."""

from __future__ import annotations

import pytest

import tilec.ir.levels  # registers the ops
import tilec.passes.select_instructions  # noqa: F401  (registers the rules)
from tilec.ir.core import Op
from tilec.passes.select.selector import _RULES

ENDS_BEFORE = {
    "math.reduce": "becomes cta.reduce_thread, cta.reduce_lanes and cta.exchange when CTAs form",
    "flow.yield": "is read by the op that owns the region",
}
OPS = sorted(name for name in Op.registry if name.split(".")[0] in ("cta", "math", "flow"))


def _rule(name: str) -> object:
    return next((_RULES[cls] for cls in Op.registry[name].__mro__ if cls in _RULES), None)


@pytest.mark.parametrize("name", OPS)
def test_an_op_has_a_rule_or_a_reason_to_have_none(name: str) -> None:
    assert (_rule(name) is None) == (name in ENDS_BEFORE), name


def test_no_rule_is_for_an_op_that_cannot_be_written() -> None:
    known = {cls for op in Op.registry.values() for cls in op.__mro__}
    assert set(_RULES) <= known
