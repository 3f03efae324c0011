"""Whose rows a product has: warpgroups share those that nothing brings together, else one has all.

Choices that nobody pins must lead to a program that compiles, whatever becomes of the rows of a
product: each program here had two warpgroups chosen for it, and was then refused.
"""

from __future__ import annotations

import pytest

from tilec.compiler import front
from tilec.runtime.emulated import Emulator
from tilec.runtime.kernel import Program
from tilec.runtime.trial import compare, make_inputs, on_emulator, on_interpreter
from tilec.source import SourceFile
from tilec.targets import by_name

HEAD = """kernel f(a: bf16[M, K], b: bf16[N, K], c: out f32[M, N], n: inout f32[N]):
    for {loops}:
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
"""
ONE_TILE = HEAD.format(loops="i, j in parallel(tiles(M, 128), tiles(N, 64))")
PROGRAMS = {
    "summed": ONE_TILE
    + """        c[i, j] = acc
        n[j] += sum(acc, axis=0)
""",
    "in_order": ONE_TILE + "        c[i, j] = cumsum(acc, axis=0)\n",
    "counted": ONE_TILE + "        c[i, j] = acc + atomic_add(n.at(0, fill=0), 0)\n",
    "one_warpgroup": HEAD.format(loops="i, j in parallel(tiles(M, 64), tiles(N, 64))")
    + """        c[i, j] = acc
        n[j] += sum(acc, axis=0)
""",
    "stepped": """kernel f(a: bf16[M, K], b: bf16[N, K], c: out f32[N]):
    for j in parallel(tiles(N, 64)):
        total = zeros[f32](j)
        for i in tiles(M, 128):
            acc = zeros[f32](i, j)
            for k in tiles(K):
                acc += a[i, k] @ b[j, k].T
            total += sum(acc * acc, axis=0)
        c[j] = total
""",
    "both_ways": """kernel f(a: bf16[M, K], b: bf16[N, K], c: out f32[M, N], d: out bf16[N, M]):
    for i, j in parallel(tiles(M), tiles(N)):
        acc, turned = zeros[f32](i, j), zeros[f32](j, i)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
            turned += b[j, k] @ a[i, k].T
        c[i, j] = acc
        d[j, i] = cast[bf16](turned)
""",
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_that_are_brought_together_are_one_warpgroups(name: str, target: str) -> None:
    source, wanted = SourceFile("rows.tk", PROGRAMS[name]), by_name(target)
    ir = front(source, None, {}, wanted).kernels[0]
    inputs = make_inputs(ir, {"M": 130, "N": 40, "K": 72}, {}, seed=3)
    found, faults = on_emulator(Program(source).f, ir, inputs, wanted, Emulator("late"))
    assert [f"{f.code}: {f.message}" for f in faults] == []
    truth = on_interpreter(ir, inputs, choice=1, wide=True)
    assert [row for row in compare(ir, found, truth) if not row.ok] == []
