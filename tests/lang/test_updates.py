"""Updates in memory on the interpreter: what is a race, and what several iterations may do."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.interp.interpret import bind_dims, choose_sizes, interpret
from tilec.interp.memory import InterpretError
from tilec.source import SourceFile

HEAD = "kernel f(x: s32[M], p: s32[M], y: inout s32[M], z: inout s32[1], w: out s32[M]):\n"


def run(body: str, head: str = HEAD, **given: list[int]) -> dict[str, np.ndarray]:
    """Interpret a kernel whose `parallel` loop has this body; ten elements an array."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    text = f"{head}    for i in parallel(tiles(M, 16)):\n{lines}"
    module = check(parse(SourceFile("f.tk", text)), {})
    kernel = lower(module, "f").kernels[0]
    base = {"x": range(40), "p": range(40), "y": [0] * 40, "z": [0], "w": [0] * 40}
    arrays = {n: np.array(given.get(n, v), np.int32) for n, v in base.items()}
    interpret(kernel, arrays, {}, choose_sizes(kernel, bind_dims(kernel, arrays)))
    return arrays


def test_all_iterations_may_update_one_element() -> None:
    found = run(
        "z[0] += len(i)\ny.at(x[i] * 0, drop) += 1\natomic_max(y.at(x[i] * 0 + 1, drop), x[i])"
    )
    assert (found["z"][0], found["y"][0], found["y"][1]) == (40, 40, 39)


def test_several_elements_of_one_update_may_name_one_place() -> None:
    found = run("w[i] = atomic_add(y.at(p[i], fill=-7), x[i])", p=[0, 0, 0, -1, 50] + [9] * 35)
    assert list(found["w"][:5]) == [0, 0, 1, -7, -7]
    assert found["y"][0] == 0 + 1 + 2
    assert found["y"][9] == sum(range(5, 40))


def test_two_elements_stored_at_one_place_are_an_error() -> None:
    with pytest.raises(InterpretError, match="two elements are written to one place of y"):
        run("y.at(p[i], drop) = x[i]", p=[3] * 40)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("z[0] += 1\nw[i] = z[0]", "updated here, read|read here, updated"),
        ("z[0] += 1\nz[0] = 3", "updated here, written|written here, updated"),
        ("w[i] = y.at(39 - i, fill=0)\ny[i] += 1", "updated here, read|read here, updated"),
        ("y[i] = x[i]\ny.at(39 - i, drop) += 1", "updated here, written|written here, updated"),
    ],
)
def test_an_update_beside_a_plain_access_of_another_iteration_is_a_race(
    body: str, text: str
) -> None:
    with pytest.raises(InterpretError, match=text):
        run(body)


def test_one_iteration_sees_its_own_updates() -> None:
    found = run("y[i] += x[i]\nw[i] = y[i] + 1\natomic_exchange(y[i], 5)")
    assert list(found["w"]) == [n + 1 for n in range(40)]
    assert set(found["y"]) == {5}


def test_what_was_expected_is_exchanged() -> None:
    found = run("w[i] = atomic_compare_exchange(y[i], x[i], 100)", y=[0, 7] * 20)
    assert list(found["w"]) == [0, 7] * 20
    assert [n for n, v in enumerate(found["y"]) if v == 100] == [0, 7]


def test_an_update_happens_before_what_its_line_reads() -> None:
    found = run("w[i] = y[i] + atomic_add(y[i], 1)", y=[3] * 40)
    assert set(found["w"]) == {4 + 3}
