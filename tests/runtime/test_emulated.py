"""Calls from Python on the emulator: outputs, strides, misalignment, workspace, and faults."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tilec.diagnostics import DiagnosticError
from tilec.runtime.specialise import LaunchError

ADD = """kernel add(a: f32[M, N], b: f32[M, N], c: out f32[M, N]):
    for i, j in parallel(tiles(M), tiles(N)):
        c[i, j] = a[i, j] + b[i, j]
"""
TWO = """kernel two(a: f32[M], c: out f32[M]):
    t = temp[f32](M)
    for i in parallel(tiles(M)):
        t[i] = a[i] + 1
    for i in parallel(tiles(M)):
        c[i] = t[i] * 2
"""


def _array(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_outputs_are_made_and_returned(target: str) -> None:
    add = tilec.compile(ADD).add.using(on="emulator", target=target)
    a = _array(17, 33)
    assert np.array_equal(add(a, a), a + a)


def test_arrays_keep_their_strides_and_their_misalignment() -> None:
    add = tilec.compile(ADD).add.using(on=tilec.Emulator("late"))
    block = _array(4000)
    odd, turned = block[1 : 1 + 20 * 40].reshape(20, 40), _array(40, 20).T
    flipped, wide = _array(20, 40)[::-1], np.full((20, 50), -1, np.float32)
    assert np.array_equal(add(odd, turned), odd + turned)
    add(flipped, turned, wide[:, 3:43])
    assert np.array_equal(wide[:, 3:43], flipped + turned)
    assert (wide[:, :3] == -1).all()
    assert (wide[:, 43:] == -1).all()


def test_launches_follow_one_another_through_workspace() -> None:
    two = tilec.compile(TWO).two.using(on="emulator")
    assert np.array_equal(two(_array(200)), (_array(200) + 1) * 2)


def test_a_tile_that_is_counted_keeps_the_size_that_was_pinned() -> None:
    text = """kernel lengths(x: f32[M, N], y: out f32[M, N]):
    for i in parallel(tiles(M, 32)):
        y[i, :] = x[i, :] * cast[f32](len(i))
"""
    found = tilec.compile(text).lengths.using(on="emulator")(np.ones((40, 24), np.float32))
    assert found[:, 0].tolist() == [32] * 32 + [8] * 8


def test_an_output_changed_in_place_holds_something() -> None:
    text = (
        "kernel up(a: inout s32[M]):\n    for i in parallel(tiles(M)):\n        a[i] = a[i] + 1\n"
    )
    a = np.arange(5, dtype=np.int32)
    tilec.compile(text).up.using(on="emulator")(a)
    assert a.tolist() == [1, 2, 3, 4, 5]


def test_reading_an_output_before_it_is_written_is_a_fault() -> None:
    """A launch reads workspace that the one before has written in part only."""
    text = TWO.replace("tiles(M)):\n        t[i]", "tiles(M // 2)):\n        t[i]", 1)
    two = tilec.compile(text).two.using(on="emulator")
    with pytest.raises(tilec.EmulationError) as raised:
        two(_array(64))
    (found,) = raised.value.diagnostics
    assert found.code == "uninitialised-memory"
    assert [span.file.name for span, _ in found.labels] == ["<text>", "two.ptx"]
    assert found.labels[0][0].line == 6
    assert isinstance(raised.value, DiagnosticError)


def test_the_interpreter_may_be_asked_for_and_others_are_refused() -> None:
    add, a = tilec.compile(ADD).add, _array(3, 5)
    assert np.array_equal(add.using(on="interp")(a, a), a + a)
    with pytest.raises(LaunchError, match="nothing called 'emulater' runs kernels") as raised:
        add.using(on="emulater")
    assert raised.value.diagnostics[0].help == "did you mean `emulator`?"
