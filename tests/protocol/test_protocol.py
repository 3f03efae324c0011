"""Every kernel in the ``.tir`` files here breaks the rules exactly where its comments say so.

A comment ``// error: part of the message`` stands at the end of the line of the op at fault; a
kernel without one must be accepted. Comments above a kernel say why the case exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.marked_lines import expectations, op_lines
from tilec.ir.core import Kernel, Module, Region
from tilec.ir.parser import parse_module
from tilec.ir.verify import kernel_faults

HERE = Path(__file__).parent


def _cases() -> Iterator[tuple[str, Module, Kernel]]:
    for path in sorted(HERE.glob("*.tir")):
        text = path.read_text()
        module = parse_module(text)
        for kernel in module.kernels:
            yield text, module, kernel


CASES = list(_cases())


@pytest.mark.parametrize(
    ("text", "module", "kernel"), CASES, ids=[kernel.name for _, _, kernel in CASES]
)
def test_faults_are_found_where_they_were_planted(
    text: str, module: Module, kernel: Kernel
) -> None:
    lines = op_lines(text, module)
    own = {lines[id(op)] for op in kernel.body.walk()}
    planted = {line: part for line, part in expectations(text).items() if line in own}
    found = [(lines[id(f.op)], f.message) for f in kernel_faults(module, kernel)]
    for line, message in found:
        assert line in planted, f"line {line} is refused: {message}"
    for line, part in planted.items():
        messages = [message for at, message in found if at == line]
        assert any(part in message for message in messages), f"line {line}: {messages}"


def test_every_comment_belongs_to_an_op() -> None:
    for path in HERE.glob("*.tir"):
        text = path.read_text()
        known = set(op_lines(text, parse_module(text)).values())
        assert set(expectations(text)) <= known, path.name


ORDERS = {
    "cta.acquire",
    "cta.commit",
    "cta.drain_stores",
    "cta.load",
    "cta.publish",
    "cta.release",
    "cta.settle",
    "cta.sync",
    "cta.wait",
}


def _removable(region: Region) -> Iterator[tuple[Region, int]]:
    for position, op in enumerate(region.ops):
        if op.name in ORDERS and not op.results:
            yield region, position
        for nested in op.regions:
            yield from _removable(nested)


def test_leaving_out_any_one_op_that_orders_is_noticed() -> None:
    """The gemm has none too many: each release, commit, wait, fence and barrier is needed."""
    module = parse_module((HERE / "gemm.tir").read_text())
    (kernel,) = module.kernels
    places = list(_removable(kernel.body))
    assert len(places) > 15
    for region, position in places:
        op = region.ops.pop(position)
        assert kernel_faults(module, kernel), f"{op} is not missed"
        region.ops.insert(position, op)
    assert kernel_faults(module, kernel) == []
