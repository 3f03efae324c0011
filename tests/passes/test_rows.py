"""Examples about rows mean the same after every pass of level ``cta``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.passes.machine_runs import check_text
from tests.passes.programs import Program
from tests.passes.test_meaning import check_everywhere, promised, unpromised
from tilec.backend_ptx.assemble import assemble, find_tool
from tilec.compiler import compile_source
from tilec.ir.facts import ArrayFacts, Facts, Schedule
from tilec.source import SourceFile
from tilec.targets import by_name

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _source(name: str, **changes: str) -> str:
    text = (EXAMPLES / f"{name}.tk").read_text().replace(f"kernel {name}[", "kernel f[")
    for before, after in changes.items():
        text = text.replace(before, after)
    return text


def _attention(x: SimpleNamespace, causal: bool) -> dict[str, Any]:
    k, v = (np.repeat(a, 2, axis=1) for a in (x.k, x.v))
    m, n = x.q.shape[2], k.shape[2]
    s = np.einsum("bhmd,bhnd->bhmn", x.q, k) * 0.5
    if causal:
        s = np.where(np.arange(m)[:, None] + (n - m) >= np.arange(n)[None, :], s, -np.inf)
    top = s.max(axis=-1, keepdims=True, initial=-1e300)
    weights = np.exp(s - top)
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return {"o": weights @ v / np.where(total > 0, total, 1), "lse": lse}


def attention(m: int, n: int, causal: bool) -> Program:
    """The example with heads of 32 columns; G is what it calls HK."""
    text = _source("attention", HK="G").replace("D: int = 128", "D: int = 32")
    return Program(
        text.replace("CAUSAL: bool = false", f"CAUSAL: bool = {str(causal).lower()}"),
        {"q": "BHMD", "k": "BGND", "v": "BGND", "o": "BHMD", "lse": "BHM"},
        lambda x: _attention(x, causal),
        scalars={"scale": 0.5},
        sizes={"B": 1, "H": 2, "G": 1, "M": m, "N": n, "D": 32},
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("m", "n"), [(100, 130), (130, 70), (1, 1), (70, 0)])
def test_attention(m: int, n: int, causal: bool) -> None:
    program = attention(m, n, causal)
    check_everywhere(program, promised(program, program.sizes, 16), Schedule())


def test_attention_when_nothing_is_known_of_arrays() -> None:
    program = attention(70, 80, causal=True)
    check_everywhere(program, unpromised(program.sizes), Schedule())


def _cross_entropy(x: SimpleNamespace) -> dict[str, Any]:
    top = x.logits.max(axis=1, keepdims=True)
    lse = np.log(np.exp(x.logits - top).sum(axis=1)) + top[:, 0]
    counted = x.label > 0
    gradient = np.exp(x.logits - lse[:, None])
    gradient[:, 3] -= 1
    loss = np.where(counted, lse - x.logits[:, 3], 0)
    return {"loss": loss, "gradient": np.where(counted[:, None], gradient, 0)}


@pytest.mark.parametrize(
    ("m", "n"), [(70, 150), (15, 17), (33, 64), pytest.param(3, 2049, marks=pytest.mark.long)]
)
def test_cross_entropy(m: int, n: int) -> None:
    """Its two loops have frames of their own, and the labels travel between them."""
    program = Program(
        # Random numbers become labels: 3, or none.
        _source("cross_entropy", **{"label[i]": "where(label[i] > 0, 3, -1)"}).replace(
            "s32[M]", "f32[M]"
        ),
        {"logits": "MN", "label": "M", "loss": "M", "gradient": "MN"},
        _cross_entropy,
        sizes={"M": m, "N": n},
    )
    for alignment in (16, 2):
        check_everywhere(program, promised(program, program.sizes, alignment), Schedule())


def test_places_of_extrema() -> None:
    text = """
kernel f(x: f32[M, N], t: f32[M, 24], y: out f32[M], z: out f32[M], s: f32):
    for i in parallel(tiles(M)):
        y[i] = cast[f32](argmax(x[i, :], axis=1))
        z[i] = cast[f32](argmin(t[i, :], axis=1)) + x.at(0, cast[s32](s), fill=5)
"""
    for at, extra in ((0.0, None), (-1.0, 5), (1e6, 5)):
        program = Program(
            text,
            {"x": "MN", "t": "MT", "y": "M", "z": "M"},
            lambda x, extra=extra: {
                "y": x.x.argmax(axis=1),
                "z": x.t.argmin(axis=1) + (x.x[0, 0] if extra is None else extra),
            },
            scalars={"s": at},
            sizes={"M": 40, "N": 50, "T": 24},
        )
        check_everywhere(program, promised(program, program.sizes, 16), Schedule())


SHORT_ROWS = Program(
    """kernel f(x: f16[M, N], w: f32[N], r: out f32[M], y: out f32[M, N]):
    for i in parallel(tiles(M, 48)):
        s = zeros[f32](i)
        for j in tiles(N, 80):
            s += rowsum(cast[f32](x[i, j]) * w[j][None, :])
        for j in tiles(N, 80):
            y[i, j] = cast[f32](x[i, j]) + s[:, None]
        r[i] = s
""",
    {"x": "MN", "w": "N", "r": "M", "y": "MN"},
    lambda x: {"r": x.x @ x.w, "y": x.x + (x.x @ x.w)[:, None]},
    sizes={"M": 100, "N": 170},
)


@pytest.mark.parametrize(("m", "n"), [(100, 170), (96, 160)])
def test_lanes_that_a_short_row_leaves_over_hold_other_rows(m: int, n: int) -> None:
    program = replace(SHORT_ROWS, sizes={"M": m, "N": n})
    check_everywhere(program, promised(program, program.sizes, 16), Schedule())


@pytest.mark.skipif(find_tool("ptxas") is None, reason="ptxas is not installed")
def test_short_rows_spill_nothing() -> None:
    compiled = compile_source(SourceFile("f.tk", SHORT_ROWS.text), None, {}, by_name("90"))
    assert assemble(compiled.ptx, compiled.target).spill_bytes == 0


def _straight(lines: int, head: str = "x: f16[M, N], y: f16[M, N], z: out f16[M, N]") -> str:
    body = ["v = cast[f32](x[i, j])"]
    body += [f"v = v * 1.{n} + cast[f32](y[i, j])" for n in range(lines)]
    loop = "    for i, j in parallel(tiles(M), tiles(N)):\n"
    text = "".join(f"        {line}\n" for line in [*body, "z[i, j] = cast[f16](v)"])
    return f"kernel f({head}):\n{loop}{text}"


def _elements(text: str, facts: Facts | None = None) -> int:
    compiled = compile_source(SourceFile("f.tk", text), None, {}, by_name("90"), facts)
    tiles = dict(compiled.schedule.tiles)
    return tiles["i"] * tiles["j"] // compiled.threads


def test_a_long_program_gives_a_thread_fewer_elements() -> None:
    assert [_elements(_straight(lines)) for lines in (1, 50, 200)] == [32, 16, 4]


@pytest.mark.skipif(find_tool("ptxas") is None, reason="ptxas is not installed")
def test_one_operand_without_vectors_gives_a_thread_fewer_elements() -> None:
    arrays = (("x", ArrayFacts(-1, 2)), ("y", ArrayFacts(1, 16)), ("z", ArrayFacts(1, 16)))
    facts = Facts(arrays, (("M", 1 << 20), ("N", 63)))  # every SM has enough to do
    text = _straight(1)
    assert _elements(text, facts) == 16
    compiled = compile_source(SourceFile("f.tk", text), None, {}, by_name("90"), facts)
    assert assemble(compiled.ptx, compiled.target).spill_bytes == 0


@pytest.mark.parametrize("n", [1, 100, 128, 3000])
def test_a_row_that_nothing_reads_keeps_its_length(n: int) -> None:
    text = """
kernel f(x: f32[M, N], n: s32[M, N], y: out f32[M], z: out s32[M], w: out f32[M, N]):
    for i in parallel(tiles(M)):
        y[i] = rowsum(x[i, :] ** 0)
        z[i] = rowmax(n[i, :] * 0 - 7)
        w[i, :] = x[i, :] ** 0
"""
    ones = np.ones((70, n))
    given = {"x": ones * np.nan, "n": ones * 3}
    wanted = {"y": ones.sum(axis=1), "z": ones[:, 0] * -7, "w": ones}
    check_text(text, given, wanted)
    check_text(text, given, wanted, alignment=0)
