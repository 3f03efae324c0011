"""Copies and products: none may come between a product and its wait, whatever shares registers."""

from __future__ import annotations

import pytest

from tests.ptx.assemblers import assemble_cleanly
from tilec.backend_ptx.emit import emit
from tilec.backend_ptx.registers import PlacementError, place_copies
from tilec.ir.core import Module
from tilec.ir.parser import parse_module
from tilec.ir.verify import verify

PRODUCT = "n = 8, k = 16, accumulate = f32, a_type = bf16, b_type = bf16"
COMMIT = "ptx.fence() {kind = wgmma_commit}"
FENCE = "ptx.fence() {kind = wgmma}"
KEPT = "ptx.store(%out, %s1) {space = global, width = f32}"


def kernel(body: str) -> Module:
    """A kernel around ``body`` with a descriptor %d, A registers %a and an accumulator %z."""
    module = parse_module(f"""tir 1 level ptx target sm_90a
kernel @k {{threads = 128, parameters = ((pointer, a), (extent, a, 0))}} {{
  %out = ptx.parameter() {{index = 0}} : bits<b64, 1>
  %n = ptx.parameter() {{index = 1}} : bits<b32, 1>
  %m = ptx.shared_base() : bits<b32, 1>
  %high = ptx.constant() {{value = 1073741888}} : bits<b32, 1>
  %zero = ptx.constant() {{value = 0}} : bits<b32, 1>
  %one = ptx.constant() {{value = 1}} : bits<b32, 1>
  %two = ptx.constant() {{value = 2.0}} : bits<f32, 1>
  %d = ptx.combine(%m, %high) : bits<b64, 1>
  %a = ptx.load(%out) {{space = global, width = b32}} : bits<b32, 4>
  %z = ptx.load(%out) {{space = global, width = f32}} : bits<f32, 4>
  {body}
}}
""")
    verify(module)
    return module


def placed(body: str) -> str:
    """The PTX of ``body``."""
    module = kernel(body)
    place_copies(module.kernels[0])
    verify(module, "place-copies")
    return emit(module)


def lines_between(text: str, first: str, last: str) -> list[str]:
    """The lines after the last one with ``first`` and before the next with ``last``."""
    lines = text.splitlines()
    start = max(i for i, line in enumerate(lines) if first in line)
    end = next(i for i in range(start + 1, len(lines)) if last in lines[i])
    return lines[start + 1 : end]


def test_an_accumulator_that_is_needed_again_is_copied_before_the_fence() -> None:
    text = placed(f"""
  {FENCE}
  %x = ptx.alu(%m, %one) {{opcode = add.u32}} : bits<b32, 1>
  %acc = ptx.wgmma(%d, %d, %z) {{{PRODUCT}}} : bits<f32, 4>
  {COMMIT}
  %s1 = ptx.wgmma_wait(%acc) {{pending = 0}} : bits<f32, 4>
  ptx.store(%out, %z) {{space = global, width = f32, offset = 16}}
  ptx.store(%m, %x) {{space = shared, width = b32}}
  {KEPT}""")
    assert text.count("mov.f32") == 4
    assert not any("mov.f32" in line for line in lines_between(text, "wgmma.fence", "wait_group"))
    assemble_cleanly(text)


def test_an_accumulator_of_outside_the_loop_is_copied_in_every_round() -> None:
    text = placed(f"""
  %i, %s1 = ptx.loop(%zero, %z) {{|%i0: bits<b32, 1>, %sum: bits<f32, 4>|
    {FENCE}
    %acc = ptx.wgmma(%a, %d, %z) {{{PRODUCT}}} : bits<f32, 4>
    {COMMIT}
    %s = ptx.wgmma_wait(%acc, %a) {{pending = 0, kept = 1}} : bits<f32, 4>
    %t = ptx.alu(%sum, %s) {{opcode = add.rn.f32}} : bits<f32, 4>
    %i1 = ptx.alu(%i0, %one) {{opcode = add.u32}} : bits<b32, 1>
    %more = ptx.alu(%i1, %n) {{opcode = setp.lt.u32}} : bits<pred, 1>
    ptx.yield(%more, %i1, %t)
  }} : bits<b32, 1>, bits<f32, 4>
  {KEPT}""")
    assert sum("mov.f32" in line for line in lines_between(text, "$loop_0:", "wgmma.fence")) == 4
    assemble_cleanly(text)


def test_an_accumulator_settled_after_the_fence_is_copied_behind_the_wait() -> None:
    text = placed(f"""
  {FENCE}
  %acc = ptx.wgmma(%d, %d, %z) {{{PRODUCT}}} : bits<f32, 4>
  {COMMIT}
  %s = ptx.wgmma_wait(%acc) {{pending = 0}} : bits<f32, 4>
  %acc2 = ptx.wgmma(%d, %d, %s) {{{PRODUCT}}} : bits<f32, 4>
  {COMMIT}
  %s1 = ptx.wgmma_wait(%acc2) {{pending = 0}} : bits<f32, 4>
  ptx.store(%out, %s) {{space = global, width = f32, offset = 16}}
  {KEPT}""")
    lines = [line.split()[0] for line in text.splitlines() if "wgmma" in line or "mov.f32" in line]
    wait = lines.index("wgmma.wait_group.sync.aligned")
    assert lines[wait + 1 : wait + 6] == ["mov.f32"] * 4 + ["wgmma.fence.sync.aligned;"]
    assemble_cleanly(text)


def two_operand_sets(yielded: str) -> str:
    """Products on A registers carried round a loop, the next ones made while they run."""
    return f"""
  %i, %pe, %qe, %s1 = ptx.loop(%zero, %a, %a, %z) {{
  |%i0: bits<b32, 1>, %p: bits<b32, 4>, %q: bits<b32, 4>, %c: bits<f32, 4>|
    {FENCE}
    %acc = ptx.wgmma(%p, %d, %c) {{{PRODUCT}}} : bits<f32, 4>
    {COMMIT}
    %p1 = ptx.alu(%q, %i0) {{opcode = xor.b32}} : bits<b32, 4>
    %s = ptx.wgmma_wait(%acc, %p) {{pending = 0, kept = 1}} : bits<f32, 4>
    %i1 = ptx.alu(%i0, %one) {{opcode = add.u32}} : bits<b32, 1>
    %more = ptx.alu(%i1, %n) {{opcode = setp.lt.u32}} : bits<pred, 1>
    ptx.yield(%more, %i1, {yielded}, %s)
  }} : bits<b32, 1>, bits<b32, 4>, bits<b32, 4>, bits<f32, 4>
  {KEPT}"""


@pytest.mark.parametrize("yielded", ["%p1, %q", "%p1, %p", "%q, %p1"])
def test_operands_made_in_flight_move_only_after_the_wait(yielded: str) -> None:
    text = placed(two_operand_sets(yielded))
    between = lines_between(text, "wgmma.mma_async", "wait_group")
    assert any("xor.b32" in line for line in between)
    assert not any("mov" in line for line in between)
    assert any("mov.b32" in line for line in lines_between(text, "wait_group", "$loop_0;"))


def test_an_operand_overwritten_in_the_next_round_before_its_wait_is_refused() -> None:
    module = kernel(f"""
  {FENCE}
  %first = ptx.wgmma(%a, %d) {{{PRODUCT}}} : bits<f32, 4>
  {COMMIT}
  %i, %p1, %s0 = ptx.loop(%zero, %a, %first) {{
  |%i0: bits<b32, 1>, %p: bits<b32, 4>, %c: bits<f32, 4>|
    %q = ptx.alu(%p, %i0) {{opcode = xor.b32}} : bits<b32, 4>
    %s = ptx.wgmma_wait(%c, %p) {{pending = 0, kept = 1}} : bits<f32, 4>
    {FENCE}
    %acc = ptx.wgmma(%p, %d, %s) {{{PRODUCT}}} : bits<f32, 4>
    {COMMIT}
    %i1 = ptx.alu(%i0, %one) {{opcode = add.u32}} : bits<b32, 1>
    %more = ptx.alu(%i1, %n) {{opcode = setp.lt.u32}} : bits<pred, 1>
    ptx.yield(%more, %i1, %q, %acc)
  }} : bits<b32, 1>, bits<b32, 4>, bits<f32, 4>
  %s1 = ptx.wgmma_wait(%s0, %p1) {{pending = 0, kept = 1}} : bits<f32, 4>
  {KEPT}""")
    with pytest.raises(PlacementError, match="A registers in flight"):
        place_copies(module.kernels[0])


def test_reading_an_accumulator_before_its_wait_is_refused() -> None:
    module = kernel(f"""
  {FENCE}
  %acc = ptx.wgmma(%d, %d) {{{PRODUCT}}} : bits<f32, 4>
  {COMMIT}
  %s1 = ptx.alu(%acc, %two) {{opcode = mul.rn.f32}} : bits<f32, 4>
  ptx.wgmma_wait() {{pending = 0}}
  {KEPT}""")
    with pytest.raises(PlacementError, match="an accumulator in flight"):
        place_copies(module.kernels[0])


def test_a_wait_that_leaves_the_group_pending_does_not_count() -> None:
    module = kernel(f"""
  {FENCE}
  %acc = ptx.wgmma(%d, %d) {{{PRODUCT}}} : bits<f32, 4>
  {COMMIT}
  %s1 = ptx.wgmma_wait(%acc) {{pending = 1}} : bits<f32, 4>
  {KEPT}""")
    with pytest.raises(PlacementError, match="an accumulator in flight"):
        place_copies(module.kernels[0])


def test_a_product_that_was_never_committed_is_in_flight_for_ever() -> None:
    module = kernel(f"""
  {FENCE}
  %acc = ptx.wgmma(%d, %d) {{{PRODUCT}}} : bits<f32, 4>
  %s1 = ptx.wgmma_wait(%acc) {{pending = 0}} : bits<f32, 4>
  {KEPT}""")
    with pytest.raises(PlacementError, match="an accumulator in flight"):
        place_copies(module.kernels[0])


def test_a_flight_used_apart_from_its_wait_is_refused() -> None:
    module = kernel(f"""
  {FENCE}
  %acc = ptx.wgmma(%d, %d) {{{PRODUCT}}} : bits<f32, 4>
  {COMMIT}
  %s1 = ptx.wgmma_wait(%acc) {{pending = 0}} : bits<f32, 4>
  {FENCE}
  %acc2 = ptx.wgmma(%d, %d, %s1) {{{PRODUCT}}} : bits<f32, 4>
  {COMMIT}
  %s2 = ptx.wgmma_wait(%acc2) {{pending = 0}} : bits<f32, 4>
  ptx.store(%out, %acc) {{space = global, width = f32, offset = 16}}
  {KEPT}""")
    with pytest.raises(PlacementError, match="apart from their wait"):
        place_copies(module.kernels[0])


def test_descriptors_may_change_while_their_products_run() -> None:
    text = placed(f"""
  %first = ptx.wgmma(%d, %d) {{{PRODUCT}}} : bits<f32, 4>
  {COMMIT}
  %i, %s0 = ptx.loop(%zero, %first) {{|%i0: bits<b32, 1>, %c: bits<f32, 4>|
    %at = ptx.alu(%m, %i0) {{opcode = add.u32}} : bits<b32, 1>
    %moved = ptx.combine(%at, %high) : bits<b64, 1>
    {FENCE}
    %acc = ptx.wgmma(%moved, %moved, %c) {{{PRODUCT}}} : bits<f32, 4>
    {COMMIT}
    ptx.wgmma_wait() {{pending = 1}}
    %i1 = ptx.alu(%i0, %one) {{opcode = add.u32}} : bits<b32, 1>
    %more = ptx.alu(%i1, %n) {{opcode = setp.lt.u32}} : bits<pred, 1>
    ptx.yield(%more, %i1, %acc)
  }} : bits<b32, 1>, bits<f32, 4>
  %s1 = ptx.wgmma_wait(%s0) {{pending = 0}} : bits<f32, 4>
  {KEPT}""")
    assert "mov.f32" not in text
    assemble_cleanly(text)
