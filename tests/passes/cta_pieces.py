"""Meaning of the pieces of an axis on the machine of level ``cta``.

Strict about ``piece.close``: elements that are taken for one must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.passes.cta_machine import Group, means
from tilec.ir.levels import piece


def _digits(x: Any, axis: int, step: int, extent: int) -> np.ndarray:
    """The tile with the axis as three: outer, the digit, and what is inside of it."""
    shape = list(np.shape(x))
    shape[axis : axis + 1] = [shape[axis] // (step * extent), extent, step]
    return np.reshape(x, shape)


@means(piece.Take)
def _take(g: Group, op: piece.Take) -> None:
    parts = _digits(g.values[op.x], op.axis, op.step, op.extent)
    g.values[op.out] = parts.take(op.which, op.axis + 1).reshape(op.out.type.shape)


@means(piece.Join)
def _join(g: Group, op: piece.Join) -> None:
    parts = [_digits(g.values[p], op.axis, op.step, 1) for p in op.parts]
    g.values[op.out] = np.concatenate(parts, op.axis + 1).reshape(op.out.type.shape)


@means(piece.Close)
def _close(g: Group, op: piece.Close) -> None:
    parts = _digits(g.values[op.x], op.axis, op.step, op.extent)
    first = parts.take([0], op.axis + 1)
    same = (parts == first) | ((parts != parts) & (first != first))
    assert np.all(same), "lanes that are taken for one hold different values"
    g.values[op.out] = first.reshape(op.out.type.shape)


@means(piece.Spread)
def _spread(g: Group, op: piece.Spread) -> None:
    parts = _digits(g.values[op.x], op.axis, op.step, 1)
    g.values[op.out] = np.repeat(parts, op.extent, op.axis + 1).reshape(op.out.type.shape)


@means(piece.Partner)
def _partner(g: Group, op: piece.Partner) -> None:
    x = g.values[op.x]
    g.values[op.out] = np.take(x, np.arange(x.shape[op.axis]) ^ op.step, op.axis)
