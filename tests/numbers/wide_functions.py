"""The functions of f64 on samples of their whole range, and what combines 64-bit elements.

They are built from operations that round alike everywhere, so a GPU has to leave the interpreter's
bits; the interpreter is held to 4 units in the last place by ``tests/lang/test_doubles.py``.

Never: knows what a function gives.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.numbers.edges import Data, values
from tests.numbers.programs import Program, given, unwritten

BUILTIN = ("exp", "exp2", "log", "log2", "rsqrt", "tanh")
"""Functions of the language that f64 has too."""
SHIPPED = (
    "exp", "log", "sin", "cos", "tanh", "erf", "pow", "rsqrt", "sigmoid", "silu", "gelu",
)  # fmt: skip
"""Functions of std.math."""


def spread(chance: np.random.Generator, low: float, high: float, count: int) -> Data:
    """Numbers of both signs, even in their logarithm to base 2."""
    return chance.choice([-1.0, 1.0], count) * 2.0 ** chance.uniform(low, high, count)


def sample(name: str, n: int) -> tuple[Data, ...]:
    """Arguments over the whole range, denser where a function changes course or is hard."""
    chance = np.random.default_rng(len(name))
    if name in ("exp", "exp2"):
        ends = (-745.0, 709.7) if name == "exp" else (-1074.0, 1023.9)
        return (np.concatenate([chance.uniform(*ends, n), spread(chance, -60, 9, n)]),)
    if name in ("log", "log2"):
        around = 1 + np.concatenate([chance.uniform(-0.5, 1, n), spread(chance, -52, -3, n)])
        return (np.concatenate([2.0 ** chance.uniform(-1074, 1023.9, n), around]),)
    if name in ("sin", "cos"):
        turns = np.unique(chance.integers(1, 600_000_000, n)) * (np.pi / 2)
        small = np.arange(1, n) * (np.pi / 2)
        return (np.concatenate([spread(chance, -60, 30, n), turns, small]),)
    if name == "rsqrt":
        return (2.0 ** chance.uniform(-1022, 1023.9, n),)
    if name == "pow":
        bases = np.concatenate(
            [
                2.0 ** chance.uniform(-1000, 1000, n),
                1 + chance.uniform(-1e-3, 1e-3, n),
                chance.uniform(0.7, 1.5, n),
            ]
        )
        return bases, chance.uniform(-1073, 1023.9, 3 * n) / np.log2(bases)
    limit = {"tanh": 24, "erf": 6, "sigmoid": 745, "silu": 748, "gelu": 38.4}[name]
    inside = [chance.uniform(-limit, limit, n), chance.uniform(-2.5, 2.5, n)]
    return (np.concatenate([*inside, spread(chance, -1000, np.log2(limit), n)]),)


def wide_functions(count: int = 40_000) -> Iterator[Program]:
    """A program for each function, with the edge values of f64 beside its sample."""
    edges = values("f64").astype(np.float64)
    for origin, names in (("builtin", BUILTIN), ("std.math", SHIPPED)):
        for name in names:
            arguments = sample(name, count)
            apart = [edges, np.roll(edges, 7)][: len(arguments)]
            inputs = {
                f"x{n}": given("f64", np.concatenate([data, edge]))
                for n, (data, edge) in enumerate(zip(arguments, apart, strict=True))
            }
            head = "".join(f"{n}: f64[M], " for n in inputs)
            text = (
                f"kernel k({head}y: out f64[M]):\n"
                "    for i in parallel(tiles(M)):\n"
                f"        y[i] = {name}({', '.join(f'{n}[i]' for n in inputs)})\n"
            )
            if origin == "std.math":
                text = f"from std.math import {name}\n{text}"
            outputs = {"y": unwritten("f64", len(inputs["x0"].values))}
            yield Program(f"function f64 {origin} {name}", text, inputs, outputs)


_ROWS = """fn after(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2

kernel k(x: f64[M, N], n: s64[M, N], y: out f64[M], z: out s64[M, N], t: out s64[M]):
    for i in parallel(tiles(M)):
        strict:
            y[i] = rowsum(x[i, :])
        scales, states = scan(after, (n[i, :] | 1, n[i, :]), axis=1, identity=(1, 0))
        z[i, :] = states - cumsum(n[i, :], axis=1, reverse=true)
        whole, last = reduce(after, (n[i, :] | 1, n[i, :]), axis=1, identity=(1, 0))
        t[i] = whole ^ last
"""


def wide_rows() -> Iterator[Program]:
    """Sums in one order, scans and functions of one's own over 64-bit elements, all exact."""
    for columns in (1, 33, 700):
        chance = np.random.default_rng(columns)
        shape = (5, columns)
        inputs = {
            "x": given("f64", spread(chance, -30, 30, 5 * columns).reshape(shape)),
            "n": given("s64", chance.integers(-(2**62), 2**62, shape)),
        }
        outputs = {
            "y": unwritten("f64", 5),
            "z": unwritten("s64", *shape),
            "t": unwritten("s64", 5),
        }
        yield Program(f"rows of 64 bits {columns}", _ROWS, inputs, outputs)
