"""Sums in memory of what products give: by TMA where it would store, else from registers."""

from __future__ import annotations

import pytest

from tests.passes.programs import Program
from tests.passes.test_meaning import TARGET, check_everywhere, lowered, promised, unpromised
from tilec import pipeline
from tilec.ir.core import Op
from tilec.ir.facts import Schedule
from tilec.ir.levels import cta, memory
from tilec.passes.base import Context

SUM = Program(
    """
kernel f(a: bf16[M, K], b: bf16[N, K], c: inout bf16[M, N]):
    for i, j, s in parallel(tiles(M, 128), tiles(N, 128), 2):
        acc = zeros[f32](i, j)
        for k in tiles(K, 64):
            acc += a[i, k] @ b[j, k].T
        c[i, j] += cast[bf16](acc)
""",
    {"a": "MK", "b": "NK", "c": "MN"},
    lambda x: {"c": x.c + 2 * (x.a @ x.b.T)},
    sizes={"M": 200, "N": 136, "K": 96},
)


def _ops(program: Program, sizes: dict[str, int]) -> tuple[list[Op], list[str]]:
    module = lowered(program, promised(program, sizes, 16), Schedule())
    ctx = Context(TARGET)
    pipeline.run(module, ctx, stop_after="place-shared")
    wanted = (cta.StoreTile, memory.Update)
    found = [op for op in module.kernels[0].body.walk() if isinstance(op, wanted)]
    return found, [r.text for r in ctx.remarks]


def _changed(old: str, new: str) -> Program:
    return Program(SUM.text.replace(old, new), SUM.shapes, SUM.means, sizes=SUM.sizes)


def test_sums_are_the_same_on_every_way() -> None:
    check_everywhere(SUM, promised(SUM, SUM.sizes, 16), Schedule())
    check_everywhere(SUM, unpromised(SUM.sizes), Schedule())


def test_tma_adds_where_it_would_store() -> None:
    ops, remarks = _ops(SUM, SUM.sizes)
    assert all(isinstance(op, cta.StoreTile) and op.update == "add" for op in ops)
    assert len(ops) == 2
    assert any("c is added to by TMA in pieces of 64 columns" in text for text in remarks)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+= cast[bf16](acc)", "-= cast[bf16](acc)"),
        ("        c[i, j] +=", "        c.at(0, 0, drop) += 1\n        c[i, j] +="),
    ],
)
def test_differences_and_other_sums_do_not_matter(old: str, new: str) -> None:
    ops, remarks = _ops(_changed(old, new), SUM.sizes)
    assert any(isinstance(op, cta.StoreTile) and op.update for op in ops)
    assert any("is added to by TMA" in text for text in remarks)


@pytest.mark.parametrize(
    ("dtype", "sizes", "reason"),
    [
        ("f32", {}, "elements of f32 are stored as wide from registers"),
        ("bf16", {"N": 134}, "N is not known to be a multiple of 8"),
    ],
)
def test_otherwise_registers_do(dtype: str, sizes: dict[str, int], reason: str) -> None:
    program = _changed("c: inout bf16", f"c: inout {dtype}")
    program = Program(
        program.text.replace("cast[bf16]", f"cast[{dtype}]"), SUM.shapes, SUM.means, sizes=SUM.sizes
    )
    ops, remarks = _ops(program, {**SUM.sizes, **sizes})
    assert ops
    assert all(isinstance(op, memory.Update) for op in ops)
    assert any(f"c is updated from registers: {reason}" in text for text in remarks)
