"""Every instruction carries the place it was made for; loop control carries the loop's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilec.compiler import Compiled, compile_source
from tilec.ir.facts import Facts
from tilec.ir.levels import ptx
from tilec.source import SourceFile
from tilec.targets import by_name

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _compiled(name: str) -> Compiled:
    source = SourceFile.read(EXAMPLES / f"{name}.tk")
    facts = Facts(extents=(("N", 4096),)) if name == "softmax" else None
    return compile_source(source, None, {}, by_name("90"), facts)


@pytest.fixture(scope="module")
def gemm() -> Compiled:
    return _compiled("gemm")


@pytest.mark.parametrize("name", ["add", "gemm", "softmax"])
def test_every_op_has_a_place(name: str) -> None:
    nowhere = [
        op.name
        for op in _compiled(name).module.kernels[0].body.walk()
        if op.loc is None and not op.is_terminator
    ]
    assert nowhere == []


def test_loops_stand_where_the_source_has_them(gemm: Compiled) -> None:
    loops = [op for op in gemm.module.kernels[0].body.walk() if isinstance(op, ptx.Loop)]
    lines = {op.loc.line for op in loops if op.loc is not None}
    source = gemm.module.source
    assert source is not None
    assert {source.line(line).split()[0] for line in lines} == {"for"}
    assert len(lines) == 2


def _lines_by_place(text: str) -> list[tuple[int, str]]:
    """The source line in effect at each line of the PTX."""
    at, found = 0, []
    for line in text.splitlines():
        place = re.match(r"\s+\.loc 1 (\d+)", line)
        at = int(place[1]) if place else at
        found.append((at, line.strip()))
    return found


def test_loop_control_and_the_roles_set_up_are_not_the_body_s(gemm: Compiled) -> None:
    source = gemm.module.source
    assert source is not None
    placed = _lines_by_place(gemm.ptx)
    control = re.compile(r"@%p\d+ bra \$loop|setmaxnreg|mbarrier\.init|elect\.sync|bar\.sync 0,")
    found = [(at, text) for at, text in placed if control.search(text)]
    assert len(found) > 10
    assert {source.line(at).split()[0] for at, _ in found} == {"for"}
    products = {at for at, text in placed if text.startswith("wgmma.mma_async")}
    assert [source.line(at).split()[0] for at in products] == ["acc"]
