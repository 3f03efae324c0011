"""Who decides how large a tile is: the compiler, a pin, offered sizes, the command line.

None of them may change what a program means, and tiles that no load gave their shape count too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilec.compiler import prepare, run_passes
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.interpret import bind_dims, choose_sizes, interpret
from tilec.ir.core import Kernel, Module
from tilec.ir.facts import Remark, Schedule
from tilec.source import SourceFile
from tilec.targets import by_name

COUNT = """\
kernel count(x: f32[M, N], y: out f32[M]):
    tune BN in [48, 16]
    for i in parallel(tiles(M)):
        s = zeros[f32](i)
        for j in {}:
            s += rowsum(full[f32](i, j, 1.0))
        y[i] = s
"""
LOOPS = ["tiles(N)", "tiles(N, 32)", "tiles(N, tune=[64, 32])", "tiles(N, BN)"]
X = np.zeros((20, 50), np.float32)


def lowered(text: str, kernel: str) -> Module:
    """The only kernel of a text at level ``tile``."""
    return lower(check(parse(SourceFile("s.tk", text)), {}), kernel, "sm_90a")


def padded(module: Module, schedule: Schedule) -> tuple[Kernel, list[Remark]]:
    """The kernel after the pass that makes padding explicit."""
    prepare(module, None, schedule)
    remarks = run_passes(module, by_name("90"), stop_after="fill-padding")
    return module.kernels[0], remarks


def counts(kernel: Kernel, *, explicit: bool = False, choice: int = 0) -> Any:
    """What the counting program writes."""
    arrays = {"x": X, "y": np.full(20, np.nan, np.float32)}
    sizes = choose_sizes(kernel, bind_dims(kernel, arrays), choice)
    interpret(kernel, arrays, {}, sizes, explicit=explicit)
    return arrays["y"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("choice", [0, 1, 2])
def test_a_tile_of_ones_ends_where_its_loop_does(loop: str, choice: int) -> None:
    kernel = lowered(COUNT.format(loop), "count").kernels[0]
    assert (counts(kernel, choice=choice) == 50).all()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("schedule", [Schedule(), Schedule(tiles=(("j", 64),))])
def test_its_padding_is_made_explicit(loop: str, schedule: Schedule) -> None:
    kernel, _ = padded(lowered(COUNT.format(loop), "count"), schedule)
    assert (counts(kernel, explicit=True) == 50).all()


@pytest.mark.parametrize(
    ("loop", "pinned", "used"),
    [
        ("tiles(N, 32)", (), 32),
        ("tiles(N, 32)", (("j", 64),), 64),
        ("tiles(N, tune=[64, 32])", (), 64),
        ("tiles(N, tune=[64, 32])", (("j", 32),), 32),
        ("tiles(N, BN)", (), 48),
        ("tiles(N, BN)", (("j", 16),), 16),
    ],
)
def test_the_command_line_wins_over_the_source(
    loop: str, pinned: tuple[tuple[str, int], ...], used: int
) -> None:
    kernel, _ = padded(lowered(COUNT.format(loop), "count"), Schedule(tiles=pinned))
    assert dict(kernel.schedule["tiles"])["j"] == used


def test_a_remark_says_which_of_the_offered_sizes_is_used() -> None:
    _, remarks = padded(lowered(COUNT.format("tiles(N, BN)"), "count"), Schedule())
    assert [r.text for r in remarks if "offered" in r.text] == [
        "tiles.j = 48, where 48, 16 are offered: the first unless pinned"
    ]


def test_a_pin_beyond_the_offered_sizes_is_kept_and_said() -> None:
    schedule = Schedule(tiles=(("j", 80),))
    kernel, remarks = padded(lowered(COUNT.format("tiles(N, BN)"), "count"), schedule)
    assert dict(kernel.schedule["tiles"])["j"] == 80
    assert any("tiles.j = 80, where 48, 16 are offered" in r.text for r in remarks)


def test_loops_that_share_a_choice_keep_their_own_edges() -> None:
    text = """\
kernel k(x: f32[M, N], y: out f32[M]):
    tune B in [32]
    for i in parallel(tiles(M, B)):
        s = zeros[f32](i)
        for j in tiles(N, B):
            s += rowsum(full[f32](i, j, 1.0)) + sum(full[f32](i, i, 1.0), axis=1)
        y[i] = s
"""
    kernel = lowered(text, "k").kernels[0]
    assert kernel.attributes["choices"] == (("i", (32,)), ("j", (32,)))
    expected = 50 + 2 * 20  # two tiles of j, and the 20 rows in each
    assert (counts(kernel) == expected).all()
    kernel, _ = padded(lowered(text, "k"), Schedule())
    assert (counts(kernel, explicit=True) == expected).all()


def test_a_loop_named_like_another_or_like_a_dimension_has_a_size_of_its_own() -> None:
    text = """\
kernel k(x: f32[M, k_2], y: out f32[M]):
    for i in parallel(tiles(M)):
        s = zeros[f32](i)
        for k in tiles(k_2, 16):
            s += rowsum(x[i, k])
        for k in tiles(k_2, 32):
            s += rowsum(x[i, k])
        y[i] = s + rowmax(x[i, :])
"""
    kernel = lowered(text, "k").kernels[0]
    assert kernel.schedule == {"tiles": (("k", 16), ("k_3", 32))}


def test_the_rows_beside_a_resident_row_may_be_few_and_mean_the_same() -> None:
    text = """\
kernel k(x: f32[M, N], y: out f32[M]):
    for i in parallel(tiles(M)):
        y[i] = rowmax(x[i, :]) + cast[f32](i)
"""
    kernel, _ = padded(lowered(text, "k"), Schedule())
    rows = dict(kernel.schedule["tiles"])["i"]
    assert rows < 16
    assert (counts(kernel, explicit=True) == np.arange(20)).all()
