"""The examples as PTX on the emulator: right in every order, and nothing to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.emulator.examples import ADVERSARIES, Subject, quick_sizes
from tests.examples.spec import Example, Given, Sizes, all_examples
from tilec.emulator.report.report import Report
from tilec.emulator.report.timeline import FILLING
from tilec.ir.facts import Schedule
from tilec.runtime.emulated import Emulator

EXAMPLES = tuple(all_examples())
KERNELS = {e.kernel: e for e in EXAMPLES}
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90")
SEEDS = range(5)


def _named(value: Any) -> str:
    if isinstance(value, Example):
        return value.kernel
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


@cache
def _subject(example: Example, target: str = "sm_90") -> Subject:
    return Subject(example, target)


@pytest.mark.parametrize(
    ("number", "example", "sizes"),
    [(n, e, s) for n, e in enumerate(EXAMPLES) for s in quick_sizes(e)],
    ids=_named,
)
def test_in_order_and_against_an_adversary(number: int, example: Example, sizes: Sizes) -> None:
    adversary = Emulator(ADVERSARIES[number % len(ADVERSARIES)], seed=number)
    for how in (Emulator(), adversary):
        assert _subject(example).wrong(sizes, how) == [], how


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("example", "sizes"), [(e, s) for e in EXAMPLES for s in e.sizes], ids=_named
)
def test_all_sizes_on_all_targets(example: Example, sizes: Sizes, target: str) -> None:
    assert _subject(example, target).wrong(sizes, Emulator("late")) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("example", "sizes"), [(e, s) for e in EXAMPLES for s in quick_sizes(e)], ids=_named
)
def test_all_orders_and_seeds(example: Example, sizes: Sizes) -> None:
    hows = [Emulator("early"), Emulator("late"), *(Emulator("random", s) for s in SEEDS)]
    for how in hows:
        assert _subject(example).wrong(sizes, how) == [], how


# --- trip counts ---------------------------------------------------------------------------------

_STAGES = 2
"""Of each ring, pinned: a compiler that may choose takes more at sizes as small as these."""
_HEADS = {"B": 1, "H": 1, "HK": 1, "D": 64}
_SHARES = 16
"""Of the keys, which flash_decode gives to CTAs of their own."""
_PIXELS = {
    "B": 1, "H": 1, "W": 16, "N": 16, "R": 1, "S": 1, "P": 1, "Q": 16, "STRIDE": 1, "PAD": 0
}  # fmt: skip
"""A filter of one place, so that the channels are all that conv2d sums over."""
RINGS: dict[str, Callable[[int], Sizes]] = {
    "gemm": lambda t: {"M": 16, "N": 16, "K": 64 * t},
    "swiglu": lambda t: {"M": 16, "N": 16, "K": 64 * t},
    "attention": lambda t: {**_HEADS, "M": 16, "N": 16 * t, "CAUSAL": False},
    "grouped_gemm": lambda t: {"G": 2, "GE": 3, "M": 40, "N": 16, "K": 64 * t},
    "flash_decode": lambda t: {"B": 1, "HK": 1, "G": 2, "N": 16 * _SHARES * t, "D": 64},
    "retention": lambda t: {"B": 1, "H": 1, "N": 64 * t, "D": 64},
    "conv2d": lambda t: {**_PIXELS, "C": 64 * t},
    "split_k": lambda t: {"M": 16, "N": 16, "K": 64 * 2 * t, "S": 2},
    "varlen_attention": lambda t: {
        "E": 2, "H": 1, "HK": 1, "D": 64, "TQ": 16, "TK": 16 * t, "CAUSAL": False
    },
}  # fmt: skip
"""Examples whose long loop fills a ring: sizes at which it runs so many times."""
_TILES = {
    "attention": (("j", 16),),
    "flash_decode": (("i", 64), ("j", 16)),
    "varlen_attention": (("j", 16),),
}
"""As the sizes count them, where a compiler that may choose takes others."""
_MOST = 2 * _STAGES + 1


def _one_sequence(rng: np.random.Generator, sizes: Sizes) -> dict[str, Any]:
    """The inputs of varlen_attention, all rows in one sequence: its loop runs as often as said."""
    whole = {
        name: Given("s32", np.array([0, sizes[rows]], np.int64))
        for name, rows in (("cu_q", "TQ"), ("cu_k", "TK"))
    }
    return {**KERNELS["varlen_attention"].inputs(rng, sizes), **whole}


@cache
def _ring(kernel: str) -> Subject:
    example = KERNELS[kernel]
    if kernel == "varlen_attention":
        example = replace(example, inputs=_one_sequence)
    return Subject(example, schedule=Schedule(stages=_STAGES, tiles=_TILES.get(kernel, ())))


def _trips(kernel: str, trips: int, how: Emulator) -> None:
    """Right, and nothing to find; and the stages of the ring were filled as often as that takes."""
    subject, sizes = _ring(kernel), RINGS[kernel]
    facts = subject.facts(sizes(_MOST)) if trips else None
    reports: list[Report] = []
    assert subject.wrong(sizes(trips), replace(how, told=reports.append), facts) == [], how
    stages = [row for r in reports for line in r.timelines for row in line.of("stage")]
    filled = max((sum(s.what == FILLING for s in row.spans) for row in stages), default=0)
    assert filled == -(-trips // _STAGES) or (not trips and filled <= 1)


@pytest.mark.parametrize("kernel", RINGS)
def test_few_trips_through_a_ring(kernel: str) -> None:
    for trips in (0, 1, _STAGES, _STAGES + 1, _MOST):
        _trips(kernel, trips, Emulator("late"))


@pytest.mark.long
@pytest.mark.parametrize("trips", range(_MOST + 1))
@pytest.mark.parametrize("kernel", RINGS)
def test_every_number_of_trips_in_every_order(kernel: str, trips: int) -> None:
    for how in (Emulator(), Emulator("early"), *(Emulator("random", s) for s in SEEDS)):
        _trips(kernel, trips, how)
