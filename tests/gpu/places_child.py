"""Computed places, updates in memory and Philox on a GPU, as a child of `test_places`.

Idea: the programs of ``tests/passes/test_places`` at all their sizes, every atomic update of every
element type over edge values against the interpreter, and the published words of Philox. Prints one
line for what is wrong and ends with 1 if anything was.

Never: runs without a time limit (`test_places` starts it).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

import tilec
from tests.gpu.example_child import Placed
from tests.lang.test_std import KNOWN_ANSWERS, WORDS
from tests.passes.test_places import PROGRAMS, SIZES, built, inputs_of, means
from tests.select.test_places import UPDATES, pairs
from tilec.compiler import front
from tilec.interp.interpret import choose_sizes, interpret
from tilec.interp.numbers import decode
from tilec.ir.facts import Facts
from tilec.ir.types import DTYPES
from tilec.runtime import trial
from tilec.source import SourceFile
from tilec.targets import by_name

VIEWS = ("packed", "padded", "offset")


def programs() -> Iterator[str]:
    """Every program at every size, however its arrays lie."""
    for name, program in PROGRAMS.items():
        module = built(program, Facts())
        types = trial.array_parameters(module.kernels[0])
        kernel = tilec.compile(program.text).f
        for sizes in SIZES:
            inputs = inputs_of(module, sizes)
            expected = means(program, inputs)
            for view in VIEWS:
                placed = {}
                for key, value in inputs.items():
                    dtype = types[key].dtype.name
                    placed[key] = Placed(dtype, value.shape, view, False)
                    bits = (value.view(np.uint32) >> 16).astype(np.uint16)
                    placed[key].put(bits if dtype == "bf16" else value)
                kernel(**{key: p.view for key, p in placed.items()})
                for key, value in expected.items():
                    found = placed[key].bits(types[key].dtype.name)
                    if not np.array_equal(found, np.asarray(value, found.dtype)):
                        yield f"{name} {sizes} {view}: {key}"
                    if placed[key].strays():
                        yield f"{name} {sizes} {view}: {key} is written outside"


def updates() -> Iterator[str]:
    """Every update of every element type gives what the interpreter says."""
    for dtype, kinds in UPDATES.items():
        for update in kinds:
            text = f"""kernel f(v: {dtype}[M], y: inout {dtype}[M], w: out {dtype}[M]):
    for i in parallel(tiles(M)):
        w[i] = atomic_{update}(y[i], v[i])
"""
            old, given = pairs(dtype)
            if dtype[0] == "f" and update in ("max", "min"):
                known = ~np.isnan(decode(DTYPES[dtype], old))
                old, given = old[known], given[known]
            if dtype == "f32" and update == "add":
                small = np.abs(old + given) < 2.0**-126  # may be flushed
                old, given = old[~small | (old + given == 0)], given[~small | (old + given == 0)]
            arrays = {"v": given, "y": old.copy(), "w": np.zeros_like(old)}
            placed = {k: Placed(dtype, v.shape, "packed", False) for k, v in arrays.items()}
            for key, value in arrays.items():
                placed[key].put(value)
            tilec.compile(text).f(**{k: p.view for k, p in placed.items()})
            oracle = _interpreted(text, arrays, len(old))
            for key in "yw":
                found = decode(DTYPES[dtype], placed[key].bits(dtype))
                if not np.array_equal(found, decode(DTYPES[dtype], oracle[key]), equal_nan=True):
                    yield f"atomic_{update} of {dtype}: {key}"


def _interpreted(text: str, arrays: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    kernel = front(SourceFile("f.tk", text), "f", {}, by_name("90")).kernels[0]
    found = {k: v.copy() for k, v in arrays.items()}
    interpret(kernel, found, {}, choose_sizes(kernel, {"M": count}))
    return found


def philox() -> Iterator[str]:
    """The published words."""
    counters, keys, words = (np.array(part, np.uint32) for part in zip(*KNOWN_ANSWERS, strict=True))
    given = {"c": counters, "k": keys, "w": np.zeros_like(words)}
    placed = {k: Placed("u32", v.shape, "packed", False) for k, v in given.items()}
    for key, value in given.items():
        placed[key].put(value)
    tilec.compile(WORDS).k(**{k: p.view for k, p in placed.items()})
    if not np.array_equal(placed["w"].bits("u32"), words):
        yield "Philox4x32-10 gives other words than its authors publish"


def main() -> int:
    """All of it."""
    wrong = [line for part in (programs, updates, philox) for line in part()]
    print("\n".join(wrong), flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
