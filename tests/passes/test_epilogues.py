"""What follows a product works on pieces of the accumulator, so nothing is spilled for it."""

from __future__ import annotations

import pytest

from tilec.backend_ptx.assemble import assemble, find_tool
from tilec.compiler import compile_source, default_facts, front, prepare, run_passes
from tilec.ir.facts import Facts, Schedule
from tilec.ir.levels import cta
from tilec.source import SourceFile
from tilec.targets import by_name

GELU = "0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)))"
EPILOGUES = {
    "update in place": (
        "c: inout f32[M, N], alpha: f32, beta: f32",
        ["c[i, j] = acc * alpha + beta * c[i, j]"],
    ),
    "bias and gelu": (
        "bias: bf16[N], c: out bf16[M, N]",
        ["x = acc + cast[f32](bias[j])[None, :]", f"c[i, j] = cast[bf16]({GELU})"],
    ),
    "residual": (
        "r: bf16[M, N], c: out bf16[M, N]",
        ["c[i, j] = cast[bf16](acc + cast[f32](r[i, j]))"],
    ),
    "two outputs": (
        "c: out f32[M, N], d: out f16[M, N]",
        ["y = max(acc, 0.0) * acc", "c[i, j] = y", "d[i, j] = cast[f16](y)"],
    ),
    "bias, residual and gelu into three outputs": (
        "bias: f32[N], r: f32[M, N], c: out f16[M, N], d: out bf16[M, N], e: out f32[M, N]",
        [
            "x = acc + bias[j][None, :] + r[i, j]",
            f"y = {GELU}",
            "c[i, j] = cast[f16](y)",
            "d[i, j] = cast[bf16](y)",
            "e[i, j] = y",
        ],
    ),
}
HEAD = """kernel f(a: bf16[M, K], b: bf16[N, K], {}):
    for i, j in parallel(tiles(M), tiles(N)):
        acc = zeros[f32](i, j)
        for k in tiles(K):
            acc += a[i, k] @ b[j, k].T
"""
PROMISES = {"nothing about sizes": (), "sizes that divide": (("M", 256), ("N", 256), ("K", 256))}


def _source(name: str) -> SourceFile:
    parameters, lines = EPILOGUES[name]
    return SourceFile("f.tk", HEAD.format(parameters) + "".join(f"        {x}\n" for x in lines))


@pytest.mark.skipif(find_tool("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize("promised", PROMISES)
@pytest.mark.parametrize("name", EPILOGUES)
def test_an_epilogue_of_a_wide_tile_spills_nothing(name: str, promised: str) -> None:
    source, target = _source(name), by_name("90")
    kernel = front(source, None, {}, target).kernels[0]
    facts = Facts(default_facts(kernel).arrays, (), PROMISES[promised])
    compiled = compile_source(source, None, {}, target, facts)
    assert dict(compiled.schedule.tiles)["j"] == 256
    made = assemble(compiled.ptx, compiled.target)
    assert made.spill_bytes == 0, made.log
    assert [n for n in made.notes if n.kind in ("advisory", "warning")] == []


def test_a_piece_is_read_where_it_is_used_unless_a_write_comes_between() -> None:
    """The array that is written is read in pieces only while the pieces before it are written."""
    widths = {}
    for name, tail in {
        "own piece": ["c[i, j] = acc + c[i, j]"],
        "written before": ["old = c[i, j]", "c[i, j] = acc", "d[i, j] = acc - old"],
    }.items():
        parameters = "c: inout f32[M, N], d: out f32[M, N]"
        tail = [*tail, "d[i, j] = acc"] if name == "own piece" else tail
        text = HEAD.format(parameters) + "".join(f"        {line}\n" for line in tail)
        widths[name] = _read_widths(SourceFile("f.tk", text))
    assert set(widths["own piece"]) == {64}
    assert widths["written before"] == [256]


def _read_widths(source: SourceFile) -> list[int]:
    target = by_name("90")
    module = front(source, None, {}, target)
    prepare(module, None, Schedule())
    run_passes(module, target, stop_after="overlap-stores")
    walked = module.kernels[0].body.walk()
    return [int(op.type.shape[1]) for op in walked if isinstance(op, cta.Read)]


LOOPS = {
    "subtracted": "acc = acc - a[i, k] @ b[j, k].T",
    "subtracted twice": "acc -= 2 * (a[i, k] @ b[j, k].T)",
    "scaled": "acc += (a[i, k] @ b[j, k].T) * 0.5",
}


@pytest.mark.skipif(find_tool("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize("name", LOOPS)
def test_a_product_beside_a_sum_takes_a_tile_that_leaves_room_for_both(name: str) -> None:
    text = HEAD.format("c: out f16[M, N]").replace("acc += a[i, k] @ b[j, k].T", LOOPS[name])
    text += "        c[i, j] = cast[f16](acc)\n"
    compiled = compile_source(SourceFile("f.tk", text), None, {}, by_name("90"))
    assert dict(compiled.schedule.tiles)["j"] == 128
    assert assemble(compiled.ptx, compiled.target).spill_bytes == 0


def test_a_pinned_tile_is_kept_though_its_sums_do_not_fit() -> None:
    text = HEAD.format("c: out f16[M, N]").replace("acc += a[i, k] @ b[j, k].T", LOOPS["scaled"])
    text += "        c[i, j] = cast[f16](acc)\n"
    pins = Schedule(tiles=(("j", 256),))
    compiled = compile_source(SourceFile("f.tk", text), None, {}, by_name("90"), None, pins)
    assert dict(compiled.schedule.tiles)["j"] == 256
