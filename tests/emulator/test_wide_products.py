"""Products of f64, as emitted for each target: majorness, ragged edges, known extents, operands."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.product_cases import FORMS, ProductCase
from tilec.frontend.check import check
from tilec.frontend.lower import lower
from tilec.frontend.parse import parse
from tilec.runtime.emulated import Emulator
from tilec.runtime.kernel import Program
from tilec.runtime.trial import make_inputs, on_emulator, on_interpreter
from tilec.source import SourceFile
from tilec.targets import by_name

TARGETS = ("sm_80", "sm_90")


def compare(text: str, dims: dict[str, int], orders: str, target: str) -> None:
    """The output is the interpreter's up to the order of sums, and nothing is found wrong."""
    source, wanted = SourceFile("wide.tk", text), by_name(target)
    ir = lower(check(parse(source), {}), "f", wanted.name).kernels[0]
    inputs = make_inputs(ir, dims, {}, seed=4)
    for name, order in zip("ab", orders, strict=True):
        if order == "N":
            inputs.arrays[name] = np.asfortranarray(inputs.arrays[name])
    found, faults = on_emulator(Program(source).f, ir, inputs, wanted, Emulator("late"))
    assert [f"{f.code}: {f.message}" for f in faults] == []
    truth = on_interpreter(ir, inputs).outputs["c"]
    np.testing.assert_allclose(found.outputs["c"], truth, rtol=0, atol=1e-13 * np.abs(truth).max())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [(65, 72, 40), (63, 33, 35), (17, 20, 7), (130, 24, 50)])
def test_a_product_in_any_majorness(form: str, sizes: tuple[int, int, int], target: str) -> None:
    case = ProductCase("f64", form, sizes, "", 0)
    orders = "".join("N" if order == "column" else "T" for order in FORMS[form])
    compare(case.text, dict(zip("MNK", sizes, strict=True)), orders, target)


@pytest.mark.parametrize("target", ["sm_86", "sm_89", "sm_90"])
@pytest.mark.parametrize("known", ["k", "nk", "m"])
def test_known_extents_are_padded(known: str, target: str) -> None:
    case = ProductCase("f64", "TN", (17, 20, 7), known, 0)
    dims = dict(zip("MNK", case.sizes, strict=True))
    open_dims = {name: size for name, size in dims.items() if name.lower() not in known}
    compare(case.text, open_dims, "TT", target)


CHAINED = """kernel f(a: f64[M, 32], b: f64[N, 32], v: f64[N, 48], c: out f64[M, 48]):
    for i in parallel(tiles(M, {rows})):
        acc = zeros[f64](i, 48)
        for j in tiles(N, 32):
            p = a[i, :] @ b[j, :].T
            acc = acc + (p * 0.5) @ v[j, :]
        c[i, :] = acc
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [16, 64])
def test_a_result_is_the_operand_of_the_next(rows: int, target: str) -> None:
    compare(CHAINED.format(rows=rows), {"M": 70, "N": 75}, "TT", target)


COMPUTED = """kernel f(a: f64[M, K], b: f64[K, N], c: out f64[M, N]):
    for i, j in parallel(tiles(M, 48), tiles(N, 32)):
        acc = zeros[f64](i, j)
        for k in tiles(K, 48):
            acc -= (a[i, k] * 2) @ abs(b[k, j])
        c[i, j] = acc
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("orders", ["TT", "NN"])
def test_computed_operands(orders: str, target: str) -> None:
    compare(COMPUTED, {"M": 50, "N": 33, "K": 60}, orders, target)
