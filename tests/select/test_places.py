"""Instructions for places computed while running and for updates in memory, on NumPy threads.

Programs that the passes are tried on, and examples, are compiled to instructions and run by the
machine of this folder, which refuses accesses outside every array and misaligned ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.examples import memory as declared
from tests.examples.spec import Example, Given, Sizes, decoded, fault, run_inputs, stored, truth_of
from tests.passes.test_places import PROGRAMS, SIZES, TARGET, built, inputs_of, means
from tests.select.simt import Array, Machine
from tilec import pipeline
from tilec.compiler import front, prepare
from tilec.interp.interpret import choose_sizes, interpret
from tilec.interp.memory import unwritten
from tilec.ir.core import Kernel, Module
from tilec.ir.facts import ArrayFacts, Facts, Schedule
from tilec.ir.types import DTYPES
from tilec.passes.base import Context
from tilec.runtime import trial
from tilec.source import SourceFile
from tilec.targets import by_name

PRODUCTS = ("a product of gathered rows",)
"""These need the tensor cores, which the machine has not."""
Arrays = dict[str, np.ndarray]


def selected(module: Module) -> Kernel:
    """The kernel as instructions."""
    pipeline.run(module, Context(TARGET), stop_after="select-instructions")
    (kernel,) = module.kernels
    return kernel


def laid_out(values: np.ndarray, padding: int) -> Array:
    """An array whose rows are ``padding`` elements further apart than they are long."""
    pitch = (*values.shape[:-1], values.shape[-1] + padding)
    whole = np.zeros(pitch, values.dtype)
    whole[..., : values.shape[-1]] = values
    steps = tuple(s // values.itemsize for s in whole.strides)
    raw = np.frombuffer(whole.tobytes() or bytes(values.itemsize), np.uint8).copy()
    return Array(raw, 0, values.shape, steps)


def taken_back(raw: np.ndarray, like: np.ndarray, padding: int) -> np.ndarray:
    """The elements of an array in memory."""
    pitch = (*like.shape[:-1], like.shape[-1] + padding)
    if 0 in pitch:
        return np.zeros(like.shape, like.dtype)
    return raw.view(like.dtype).reshape(pitch)[..., : like.shape[-1]]


def launched(kernel: Kernel, arrays: Arrays, padding: int = 0, **scalars: Any) -> Arrays:
    """The arrays after a launch."""
    placed = {n: laid_out(v, padding) for n, v in arrays.items()}
    raw = Machine(kernel, placed, scalars).run()
    return {n: taken_back(raw[n], v, padding) for n, v in arrays.items()}


@pytest.mark.parametrize("sizes", SIZES, ids=lambda s: "-".join(map(str, s.values())))
@pytest.mark.parametrize("promised", [True, False], ids=["promised", "nothing known"])
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in PRODUCTS])
def test_instructions_go_where_the_program_says(
    name: str, promised: bool, sizes: dict[str, int]
) -> None:
    program = PROGRAMS[name]
    types = trial.array_parameters(built(program, Facts()).kernels[0])
    facts = Facts((), tuple(sizes.items()))
    if promised:
        known = tuple((n, ArrayFacts(len(t.shape) - 1, 16)) for n, t in types.items())
        even = tuple((n, s & -s) for n, s in sizes.items())
        facts = Facts(known, tuple(sizes.items()), even)
        if any(s % 4 for s in sizes.values()):  # rows would not start at 16 bytes
            known = tuple((n, ArrayFacts(len(t.shape) - 1, 4)) for n, t in types.items())
            facts = Facts(known, tuple(sizes.items()), even)
    module = built(program, facts)
    inputs = inputs_of(module, sizes)
    expected = means(program, inputs)
    found = launched(selected(module), inputs, padding=0 if promised else 3)
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, key)


# --- single updates ------------------------------------------------------------------------------

BITS = ("and", "or", "xor")
UPDATES = {
    **dict.fromkeys(("s32", "u32", "s64", "u64"), ("add", "max", "min", "exchange", *BITS)),
    **dict.fromkeys(("f32", "f64"), ("add", "max", "min", "exchange")),
    **dict.fromkeys(("f16", "bf16"), ("add",)),
}
_EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3e4, -3e4, np.inf, -np.inf, np.nan)


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Every two of some numbers, as memory holds them."""
    if dtype[0] in "su":
        info = np.iinfo({"s": "int", "u": "uint"}[dtype[0]] + dtype[1:])
        few = np.array([info.min, info.max, 0, 1, 5, info.max // 3], info.dtype)
    else:
        few = stored(dtype, np.array(_EDGES))
    x, y = np.meshgrid(few, few)
    return x.ravel(), y.ravel()


@pytest.mark.parametrize(("dtype", "update"), [(t, u) for t, us in UPDATES.items() for u in us])
def test_an_update_is_the_operation_and_gives_what_was_there(dtype: str, update: str) -> None:
    text = f"""kernel f(v: {dtype}[M], y: inout {dtype}[M], z: inout {dtype}[M], w: out {dtype}[M]):
    for i in parallel(tiles(M)):
        atomic_{update}(y[i], v[i])
        w[i] = atomic_{update}(z[i], v[i])
"""
    old, given = pairs(dtype)
    if dtype[0] == "f" and update in ("max", "min"):  # a NaN that was there may be replaced
        known = ~np.isnan(decoded(dtype, old))
        old, given = old[known], given[known]
    module = front(SourceFile("f.tk", text), "f", {}, by_name("90"))
    prepare(module, Facts((), (("M", len(old)),)), Schedule())
    arrays = {"v": given, "y": old.copy(), "z": old.copy(), "w": np.zeros_like(old)}
    found = launched(selected(module), arrays)
    oracle = {n: v.copy() for n, v in arrays.items()}
    kernel = front(SourceFile("f.tk", text), "f", {}, by_name("90")).kernels[0]
    interpret(kernel, oracle, {}, choose_sizes(kernel, {"M": len(old)}))
    for name in "yzw":
        one, other = decoded(dtype, found[name]), decoded(dtype, oracle[name])
        np.testing.assert_array_equal(one, other, name)
        signs = np.signbit(one) == np.signbit(other)
        assert np.all(signs | (one != one)), name


@pytest.mark.parametrize("dtype", ["s32", "u64", "f32", "f64", "f16", "bf16", "s16"])
def test_compare_and_exchange_looks_at_bits(dtype: str) -> None:
    text = f"""kernel f(v: {dtype}[M], e: {dtype}[M], y: inout {dtype}[M], w: out {dtype}[M]):
    for i in parallel(tiles(M)):
        w[i] = atomic_compare_exchange(y[i], e[i], v[i])
"""
    old, expected = pairs(dtype)
    module = front(SourceFile("f.tk", text), "f", {}, by_name("90"))
    prepare(module, Facts((), (("M", len(old)),)), Schedule())
    arrays = {"v": old[::-1].copy(), "e": expected, "y": old.copy(), "w": np.zeros_like(old)}
    found = launched(selected(module), arrays)
    bits = f"u{old.itemsize}"
    equal = old.view(bits) == expected.view(bits)
    np.testing.assert_array_equal(found["w"].view(bits), old.view(bits))
    wanted = np.where(equal, old[::-1].view(bits), old.view(bits))
    np.testing.assert_array_equal(found["y"].view(bits), wanted)


# --- examples ------------------------------------------------------------------------------------

EXAMPLES = [e for e in vars(declared).values() if isinstance(e, Example) and e.file != "conv2d"]
CASES = [(e, s) for e in EXAMPLES for s in e.sizes if np.prod(list(s.values())) < 20_000]


@pytest.mark.parametrize(("example", "sizes"), CASES, ids=lambda c: getattr(c, "kernel", str(c)))
def test_an_example_is_right_as_instructions(example: Example, sizes: Sizes) -> None:
    source = SourceFile(str(example.path), example.path.read_text())
    module = front(source, example.kernel, example.bindings(sizes), by_name("90"))
    prepare(module, Facts((), tuple((n, int(s)) for n, s in sizes.items())), Schedule())
    given = run_inputs(example, sizes)
    truth = truth_of(example, given, sizes)
    arrays = {k: stored(v.dtype, v.values) for k, v in given.items() if isinstance(v, Given)}
    for name, output in example.outputs.items():
        if name not in arrays:
            arrays[name] = unwritten(DTYPES[output.dtype], output.extents(sizes), False)
    scalars = {k: v for k, v in given.items() if not isinstance(v, Given)}
    found = launched(selected(module), arrays, padding=1, **scalars)
    for name, output in example.outputs.items():
        why = fault(output, decoded(output.dtype, found[name]), truth[name])
        assert not why, f"{name}: {why}"
