"""``tilec explain``: each remark under its line, and the table of what was weighed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command
from tilec import cli_explain
from tilec.ir.facts import Remark
from tilec.source import SourceFile
from tilec.targets import by_name

TEXT = (
    "kernel k(x: f32[M], y: out f32[M]):\n    for i in parallel(tiles(M)):\n        y[i] = x[i]\n"
)
SOURCE = SourceFile("k.tk", TEXT)


def _terms(columns: int, microseconds: float, **more: Any) -> dict[str, Any]:
    cycles = dict.fromkeys(("round_cycles", "tensor_cycles", "shared_cycles", "l2_cycles"), 10.5)
    times = {"microseconds": microseconds, "compute_us": 2.0, "memory_us": 1.0, "merge_us": 0.0}
    sizes = {"rows": 64, "columns": columns, "depth": 64, "warpgroups": 1}
    counts = {"tiles": 4, "waves": 1.0, "rounds": 2, "limit": "L2"}
    return {**sizes, **times, **counts, **cycles, **more}


_CANDIDATES = [_terms(64, 7.25), _terms(72, 7.5), _terms(80, 7.75, cluster=(2, 1))]
REMARKS = [
    Remark("early", 2, "the first pass", {}, 5),
    Remark("choose", 0, "of no line"),
    Remark(
        "choose", 2, "weighed",
        {
            "chosen": _CANDIDATES[2],
            "candidates": _CANDIDATES,
            "rejected": [{**_terms(256, 0.0), "reason": "too wide"}] * 2,
        },
    ),
]  # fmt: skip
GOLDEN = """\
k.tk: k for sm_90a

   0 | (no line of this file)
       choose: of no line

   2 |     for i in parallel(tiles(M)):
       early: the first pass
       choose: weighed
                        tile   us  compute  memory  merge  tiles  waves  rounds  a round  tensor  shared    L2  limit
                 64x64x64 w1  7.2      2.0     1.0    0.0      4    1.0       2     10.5    10.5    10.5  10.5  L2
         *  64x80x64 w1 c2:1  7.8      2.0     1.0    0.0      4    1.0       2     10.5    10.5    10.5  10.5  L2
         3 legal candidates, 1 of them not shown; * is chosen
         2 rejected, too wide: 64x256x64 w1, 64x256x64 w1
"""  # noqa: E501


def test_remarks_stand_under_their_lines_and_the_chosen_one_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tilec import compiler

    monkeypatch.setattr(compiler, "run_passes", lambda *_: REMARKS)
    target = by_name("sm_90")
    module = compiler.front(SOURCE, None, {}, target)
    assert cli_explain.explained(module, target, SOURCE, 1, False) + "\n" == GOLDEN


def test_every_candidate_is_in_the_json_with_its_terms(tilec: Command, examples: Path) -> None:
    shape = ("--shape", "M=8192,N=8192,K=8192")
    found = json.loads(tilec("explain", examples / "gemm.tk", *shape, "--json").output)
    (weighed,) = [r["data"] for r in found["remarks"] if "candidates" in r["data"]]
    assert len(weighed["candidates"]) >= 50
    assert weighed["chosen"] in weighed["candidates"]
    assert all(r["reason"] for r in weighed["rejected"])
    times = [c["microseconds"] for c in weighed["candidates"]]
    assert times == sorted(times)


def test_pins_leave_fewer_candidates(tilec: Command, examples: Path) -> None:
    pins = ("--schedule", "tiles.j=128", "--shape", "M=4096,N=4096,K=4096")
    said = tilec("explain", examples / "gemm.tk", *pins).output
    assert "*  128x128x64 w2" in said or "*  192x128x64 w3" in said


def test_other_files_are_refused(tilec: Command, tmp_path: Path) -> None:
    (tmp_path / "x.ptx").write_text("")
    assert tilec("explain", tmp_path / "x.ptx", code=2).exit_code == 2
