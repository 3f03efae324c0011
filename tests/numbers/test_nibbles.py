"""Elements of four bits: all values, both ways, by every executor that needs no GPU."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tests.numbers.nibbles import ALL, SIZES, SOURCE, Case, cases, pack
from tilec.diagnostics import DiagnosticError
from tilec.interp.numbers import decode, encode, storage
from tilec.ir.types import DTYPES
from tilec.runtime.specialise import LaunchError

PROGRAM = tilec.compile(SOURCE)
EXECUTORS = [("interp", None), ("cta", "sm_90"), ("emulator", "sm_80"), ("emulator", "sm_90")]
OTHERS = [("cta", "sm_80"), ("emulator", "sm_86"), ("emulator", "sm_89")]
CASES = [pytest.param(case, id=f"{case.kernel}-{n}") for n, case in enumerate(cases(*SIZES[0]))]


def differences(case: Case, on: str, target: str | None) -> list[str]:
    """Outputs that are not what is wanted."""
    kernel = getattr(PROGRAM, case.kernel).using(on=on, target=target, **case.bindings)
    given = kernel(*(np.array(a) for a in case.arguments))
    outputs = given if isinstance(given, tuple) else (given,)
    return [
        f"output {n}: {int((found != wanted).sum())} differ"
        for n, (found, wanted) in enumerate(zip(outputs, case.wanted, strict=True))
        if not np.array_equal(found, wanted)
    ]


@pytest.mark.parametrize(("on", "target"), EXECUTORS)
@pytest.mark.parametrize("case", CASES)
def test_a_program_gives_what_integers_say(case: Case, on: str, target: str | None) -> None:
    assert differences(case, on, target) == []


@pytest.mark.long
@pytest.mark.parametrize(("on", "target"), OTHERS)
@pytest.mark.parametrize("case", CASES)
def test_a_program_gives_the_same_elsewhere(case: Case, on: str, target: str) -> None:
    assert differences(case, on, target) == []


@pytest.mark.parametrize("case", list(cases(*SIZES[1])), ids=lambda case: case.kernel)
def test_arrays_of_a_few_bytes(case: Case) -> None:
    assert differences(case, "emulator", "sm_90") == []


@pytest.mark.long
@pytest.mark.parametrize("case", list(cases(*SIZES[2])), ids=lambda case: case.kernel)
def test_whole_tiles(case: Case) -> None:
    assert differences(case, "emulator", "sm_90") == []


@pytest.mark.parametrize("on", ["cta", "emulator"])
def test_a_copy_of_an_operand_has_its_elements_one_by_one(on: str) -> None:
    (case,) = (case for case in cases(64, 80, 96) if case.kernel == "integers")
    pin = tilec.Schedule(repacks=(("w", 1),))
    kernel = PROGRAM.integers.using(schedule=pin, on=on, target="sm_90")
    assert np.array_equal(kernel(*case.arguments), case.wanted[0])


@pytest.mark.parametrize(("name", "low"), [("s4", -8), ("u4", 0)])
def test_all_values_are_held_two_to_a_byte(name: str, low: int) -> None:
    dtype, values = DTYPES[name], np.array([ALL + low, (ALL + low)[::-1]])
    stored = encode(dtype, values, storage(dtype))
    assert np.array_equal(stored, pack(values))
    assert np.array_equal(decode(dtype, stored), values)
    assert np.array_equal(decode(dtype, stored.view(np.int8)), values)


@pytest.mark.parametrize("on", ["interp", "cta", "emulator"])
def test_strides_misalignment_and_neighbours(on: str) -> None:
    values = np.random.default_rng(5).integers(-8, 8, (20, 66))
    read, write = PROGRAM.read.using(on=on), PROGRAM.from_floats.using(on=on)
    block = np.concatenate([np.zeros(1, np.uint8), pack(values).reshape(-1)])[1:]
    for stored in (block.reshape(20, 33), np.pad(pack(values), ((0, 0), (0, 5)))[:, :33]):
        assert np.array_equal(read(stored), values)
    assert np.array_equal(read(pack(values)[::-1]), values[::-1])
    wide = np.full((20, 40), 0x5A, np.uint8)
    write(values.astype(np.float32), wide[:, 3:36], None)
    assert np.array_equal(wide[:, 3:36], pack(values))
    assert (wide[:, :3] == 0x5A).all()
    assert (wide[:, 36:] == 0x5A).all()


def _refusal(name: str, *arguments: np.ndarray) -> LaunchError:
    with pytest.raises(LaunchError) as raised:
        getattr(PROGRAM, name)(*arguments)
    return raised.value


def test_calls_that_are_refused() -> None:
    floats, stored = np.zeros((4, 33), np.float32), np.zeros((4, 6), np.uint8)
    assert "K is 33, and s holds two s4 a byte" in str(_refusal("from_floats", floats))
    assert "stride 6" in str(_refusal("upright", stored.T))
    told = str(_refusal("upright", floats))
    assert "array of f32" in told
    assert "pass uint8 or int8, two elements a byte" in told
    told = str(_refusal("from_floats", floats[:, :12], np.zeros((4, 12), np.uint8)))
    assert "K is 12 in x (shape (4, 12)) and 24 in s (shape (4, 24))" in told
    assert "each byte of the array is two elements of s4" in told


WRITES = {
    "p[i, 3:6] = cast[s4](x[i, 0:3])": "begins or ends inside a byte",
    "p[i, 2] = cast[s4](x[i, 0])": "is half a byte",
}


@pytest.mark.parametrize(("line", "reason"), WRITES.items())
def test_writes_of_half_a_byte_are_not_compiled(line: str, reason: str) -> None:
    text = "kernel k(x: f32[N, 16], p: out s4[N, 16]):\n    for i in parallel(tiles(N)):\n"
    kernel = tilec.compile(f"{text}        {line}\n").k
    x = np.full((5, 16), 3, np.float32)
    assert kernel.using(on="interp")(x).shape == (5, 8)
    with pytest.raises(DiagnosticError) as raised:
        kernel.using(on="emulator")(x)
    assert reason in str(raised.value)
