"""What a call says when the check buffer is too small: prints may be missing, failures never.

The parts of the buffer are made small here, so that a few tiles fill them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilec
from tests.runtime.test_checks import COMPILED, said
from tilec.ir import checks
from tilec.runtime import checks as runtime_checks

ROWS = """\
kernel k(x: f32[M, N], y: out f32[M, N]):
    for i, j in parallel(tiles(M, 16), tiles(N, 16)):
        print("x", x[i, j])
        assert x[i, j] < 5, "x stays below five"
        y[i, j] = x[i, j]
"""
PRINT_WORDS, ASSERT_WORDS = 2 + 2 + 4 + 256, 2 + 2 + 4 + 2


def small_buffer(monkeypatch: pytest.MonkeyPatch, prints: int, asserts: int) -> None:
    """Both parts side by side, so that what runs over one would be seen in the other."""
    middle = checks.RESERVED + prints
    for kind, first, end in (
        ("print", checks.RESERVED, middle), ("assert", middle, middle + asserts),
    ):  # fmt: skip
        part = dataclasses.replace(checks.PARTS[kind], first=first, end=end)
        monkeypatch.setitem(checks.PARTS, kind, part)


@pytest.mark.parametrize("on", COMPILED)
def test_a_failure_has_room_however_much_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    """The print of the last tile that fits at all ends a few words before its part does."""
    small_buffer(monkeypatch, 2 * PRINT_WORDS + 7, 1000)
    x = np.ones((64, 32), np.float32)
    x[60, 20:] = 9
    y = np.zeros_like(x)
    shown, error, _ = said(capsys, ROWS, on, x, y)
    assert shown.count("[[1. ") == 2
    assert "(6 records more had no room in the buffer's 535 words for what `print` says)" in shown
    assert "assert: x stays below five (element [60, 20], and 11 more)" in error
    assert "no room" not in error
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("on", COMPILED)
@pytest.mark.parametrize("prints", [2 * PRINT_WORDS, 100 * PRINT_WORDS])
def test_more_failures_than_have_room_are_one_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, on: str, prints: int
) -> None:
    """Three records have room: the error is about those, whatever became of the prints."""
    small_buffer(monkeypatch, prints, 3 * ASSERT_WORDS + 9)
    x = np.full((64, 32), 9, np.float32)
    y = np.zeros_like(x)
    shown, error, _ = said(capsys, ROWS, on, x, y)
    assert ("(6 records more had no room" in shown) is (prints == 2 * PRINT_WORDS)
    assert re.search(r"assert: x stays below five \(element \[\d+, \d+\], and 767 more\)", error)
    assert "5 records more had no room in the buffer's 39 words for what `assert` says" in error
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("on", COMPILED)
def test_one_failure_has_room_in_the_least_part(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    small_buffer(monkeypatch, 0, ASSERT_WORDS)
    x = np.full((16, 16), 9, np.float32)
    shown, error, _ = said(capsys, ROWS, on, x)
    assert shown == "(one record more had no room in the buffer's 0 words for what `print` says)\n"
    assert "assert: x stays below five (element [0, 0], and 255 more)" in error
    assert "no room" not in error


@pytest.mark.parametrize("prints", [2 * PRINT_WORDS + 7, 100 * PRINT_WORDS])
def test_what_the_launcher_copies_says_what_the_whole_blocks_say(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, prints: int
) -> None:
    """Host memory stands in for a GPU's: only the parts that have been written are fetched."""
    from tilec.runtime import emulated, launch

    small_buffer(monkeypatch, prints, 3 * ASSERT_WORDS + 9)
    told: list[Any] = []

    def keep(kernels: Any, blocks: Any) -> Any:
        told.extend((kernels, {name: block.copy() for name, block in blocks.items()}))
        return runtime_checks.read_checks(kernels, blocks)

    monkeypatch.setattr(emulated, "read_checks", keep)
    said(capsys, ROWS, "emulator", np.arange(64 * 32, dtype=np.float32).reshape(64, 32) % 9)
    kernels, blocks = told
    copied = []

    def copy(target: Any, address: int) -> None:
        copied.append(target.nbytes)
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    monkeypatch.setattr(launch, "copy_from_device", copy)
    monkeypatch.setattr(launch, "synchronize_stream", lambda stream: None)
    loaded = object.__new__(launch.Loaded)
    monkeypatch.setattr(
        loaded, "compiled", SimpleNamespace(module=SimpleNamespace(kernels=kernels)), raising=False
    )
    views = {name: tilec.runtime.arrays.view(block) for name, block in blocks.items()}
    found = loaded._read(views, 0)
    assert found == runtime_checks.read_checks(kernels, blocks)
    assert found.texts
    assert (len(found.failures), found.unnamed) == (3, 5)
    assert sum(copied) < 8 * (2 * min(prints, 8 * PRINT_WORDS) + 3 * ASSERT_WORDS + 9 + 9)
