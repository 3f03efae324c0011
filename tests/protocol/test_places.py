"""Windows are apart only where their numbers provably differ."""

from __future__ import annotations

import pytest

from tilec.ir.core import Kernel
from tilec.ir.levels import cta
from tilec.ir.parser import parse_module
from tilec.ir.places import linear, place_of

TEXT = """tir 1 level cta target sm_90a
#t = (off: j1 j2 j4 i1 i2 i4 i8 i16 i32 i64)
kernel @k { |%g: s32, %h: s32|
  %c0 = math.constant() {value = 0} : s32
  %c1 = math.constant() {value = 1} : s32
  %c2 = math.constant() {value = 2} : s32
  %g2 = math.mul(%g, %c2) : s32
  %g2p1 = math.add(%g2, %c1) : s32
  %again = math.add(%g, %g) : s32
  %back = math.sub(%g2p1, %c1) : s32
  %modulo = math.mod(%g, %c2) : s32
  %x = cta.buffer() : shared<bf16, 128 x 8, #t>
  %y = cta.buffer() : shared<bf16, 128 x 8, #t>
  %w = cta.window(%x, BLOCK) {rows = ROWS} : shared<bf16, ROWS x 8, #t>
  %v = cta.window(%x, OTHER) {rows = OTHERROWS} : shared<bf16, OTHERROWS x 8, #t>
}
"""


def _kernel(block: str, other: str, rows: int = 32, other_rows: int = 32) -> Kernel:
    text = TEXT.replace("OTHERROWS", str(other_rows)).replace("ROWS", str(rows))
    return parse_module(text.replace("BLOCK", block).replace("OTHER", other)).kernels[0]


def _overlap(kernel: Kernel) -> bool:
    first, second = (place_of(op.out, {}) for op in kernel.body.ops if isinstance(op, cta.Window))
    assert first.overlaps(second) == second.overlaps(first)
    return first.overlaps(second)


@pytest.mark.parametrize(
    ("block", "other", "overlap"),
    [
        ("%c0", "%c0", True),
        ("%c0", "%c1", False),
        ("%g", "%g", True),
        ("%g", "%h", True),  # may be equal at run time
        ("%g", "%c1", True),
        ("%g2", "%g2p1", False),
        ("%again", "%g2p1", False),  # g + g is 2 g
        ("%back", "%g2", True),  # 2 g + 1 - 1 is 2 g
        ("%modulo", "%modulo", True),
        ("%modulo", "%c1", True),
    ],
)
def test_windows_of_equal_height(block: str, other: str, overlap: bool) -> None:
    assert _overlap(_kernel(block, other)) is overlap


@pytest.mark.parametrize(
    ("block", "rows", "other", "other_rows", "overlap"),
    [
        ("%c0", 64, "%c2", 32, False),  # rows 0 to 63 and 64 to 95
        ("%c0", 64, "%c1", 32, True),  # rows 0 to 63 and 32 to 63
        ("%c1", 64, "%c1", 16, False),  # rows 64 to 127 and 16 to 31
        ("%g", 64, "%g2", 32, True),  # 64 g and 32 * 2 g
    ],
)
def test_windows_of_unequal_height(
    block: str, rows: int, other: str, other_rows: int, overlap: bool
) -> None:
    assert _overlap(_kernel(block, other, rows, other_rows)) is overlap


def test_two_buffers_never_overlap_and_a_window_overlaps_the_whole() -> None:
    kernel = _kernel("%c0", "%c1")
    x, y = (op.out for op in kernel.body.ops if isinstance(op, cta.Buffer))
    window = next(op.out for op in kernel.body.ops if isinstance(op, cta.Window))
    assert not place_of(x, {}).overlaps(place_of(y, {}))
    assert place_of(x, {}).overlaps(place_of(window, {}))


def test_a_number_from_another_round_is_not_known() -> None:
    kernel = _kernel("%g", "%g")
    window = next(op.out for op in kernel.body.ops if isinstance(op, cta.Window))
    group = kernel.body.args[0]
    place = place_of(window, {})
    assert place.outside({group}) != place
    assert place.outside({group}).overlaps(place)
    assert place.outside({kernel.body.args[1]}) == place


def test_a_sum_is_known_however_it_is_written() -> None:
    values = {op.results[0].name: op.results[0] for op in _kernel("%g", "%g").body.ops}
    assert linear(values["again"]) == linear(values["g2"]) == linear(values["back"])
    assert linear(values["g2p1"])[1] == 1
