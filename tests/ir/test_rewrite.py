"""Rules, dead code, duplicates and clones: what goes, what stays, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tilec.ir import rewrite
from tilec.ir.core import Builder, Kernel, Op, Value
from tilec.ir.levels import math
from tilec.ir.parser import parse_module
from tilec.ir.printer import module_text
from tilec.ir.types import S32, Scalar


def _kernel(body: str, level: str = "tile") -> Kernel:
    text = (
        f"tir 1 level {level} target sm_90a\n#t = (off: i1 i2 i4)\n#r = (lane: i1 i2 i4)\n"
        f"kernel @k {{ |%x: s32, %y: s32, %a: array<s32, M, inout>|\n{body}\n}}\n"
    )
    return parse_module(text).kernels[0]


def _names(kernel: Kernel) -> list[str]:
    return [op.name for op in kernel.body.walk()]


# --- dead code ---------------------------------------------------------------------------------


def test_a_chain_that_nobody_reads_goes_from_its_end_to_its_start() -> None:
    kernel = _kernel("%p = math.add(%x, %y) : s32\n%q = math.neg(%p) : s32")
    assert rewrite.remove_dead(kernel.body)
    assert _names(kernel) == []
    assert not rewrite.remove_dead(kernel.body)


def test_a_read_that_nobody_uses_goes_and_a_write_stays() -> None:
    kernel = _kernel("%p = tile.load(%a, %x) : s32\ntile.store(%a, %y, %x)")
    rewrite.remove_dead(kernel.body)
    assert _names(kernel) == ["tile.store"]


def test_what_a_write_needs_stays() -> None:
    kernel = _kernel("%p = tile.load(%a, %x) : s32\ntile.store(%a, %p, %y)")
    assert not rewrite.remove_dead(kernel.body)
    assert _names(kernel) == ["tile.load", "tile.store"]


def test_an_op_that_orders_stays_although_nobody_uses_its_result() -> None:
    body = "%r = cta.ring() : ring<2, [shared<s32, 8, #t>]>\n"
    kernel = _kernel(body + "%f = cta.acquire(%r) : free<[shared<s32, 8, #t>]>", "cta")
    assert not rewrite.remove_dead(kernel.body)
    assert _names(kernel) == ["cta.ring", "cta.acquire"]


def test_a_loop_without_effects_goes_with_its_body_and_one_that_writes_stays() -> None:
    loop = "flow.for(%x, %y, %y) { |%i: s32|\n%p = math.add(%i, %x) : s32\nBODYflow.yield()\n}"
    empty = _kernel(loop.replace("BODY", ""))
    rewrite.remove_dead(empty.body)
    assert _names(empty) == []
    writing = _kernel(loop.replace("BODY", "tile.store(%a, %i, %i)\n"))
    rewrite.remove_dead(writing.body)
    assert _names(writing) == ["flow.for", "tile.store", "flow.yield"]


def test_what_an_inner_region_reads_stays_alive_outside() -> None:
    kernel = _kernel(
        "%p = math.neg(%x) : s32\n"
        "flow.for(%x, %y, %y) { |%i: s32|\ntile.store(%a, %p, %i)\nflow.yield()\n}"
    )
    assert not rewrite.remove_dead(kernel.body)


# --- duplicates --------------------------------------------------------------------------------


def test_two_equal_ops_become_one() -> None:
    kernel = _kernel(
        "%p = math.add(%x, %y) : s32\n%q = math.add(%x, %y) : s32\ntile.store(%a, %q, %p)"
    )
    assert rewrite.remove_duplicates(kernel.body)
    assert _names(kernel) == ["math.add", "tile.store"]
    store = kernel.body.ops[-1]
    assert store.operands[1] is store.operands[2] is kernel.body.ops[0].results[0]


def test_equality_found_through_merged_operands() -> None:
    kernel = _kernel(
        "%p = math.neg(%x) : s32\n%q = math.neg(%x) : s32\n"
        "%r = math.abs(%p) : s32\n%s = math.abs(%q) : s32\ntile.store(%a, %r, %s)"
    )
    rewrite.remove_duplicates(kernel.body)
    assert _names(kernel) == ["math.neg", "math.abs", "tile.store"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("math.constant() {value = 1} : s32", "math.constant() {value = 2} : s32"),
        ("math.constant() {value = 1} : f32", "math.constant() {value = 1.0} : f32"),
        ("math.constant() {value = 1} : s32", "math.constant() {value = 1} : s64"),
        ("math.constant() {value = 0.0} : f32", "math.constant() {value = -0.0} : f32"),
        ("math.sub(%x, %y) : s32", "math.sub(%y, %x) : s32"),
        ("tile.load(%a, %x) : s32", "tile.load(%a, %x) : s32"),
    ],
)
def test_ops_that_differ_in_anything_or_read_memory_stay_apart(one: str, other: str) -> None:
    kernel = _kernel(f"%p = {one}\n%q = {other}")
    assert not rewrite.remove_duplicates(kernel.body)
    assert len(kernel.body.ops) == 2


def test_two_buffers_of_one_type_stay_two_and_an_unused_one_goes() -> None:
    kernel = _kernel(
        "%p = cta.buffer() : shared<s32, 8, #t>\n%q = cta.buffer() : shared<s32, 8, #t>\n"
        "%r = cta.get(%p) {instruction = load} : reg<s32, 8, #r>\n"
        "cta.put(%q, %r) {instruction = store}\n%s = cta.buffer() : shared<s32, 8, #t>",
        "cta",
    )
    assert not rewrite.remove_duplicates(kernel.body)
    assert rewrite.remove_dead(kernel.body)
    assert _names(kernel) == ["cta.buffer", "cta.buffer", "cta.get", "cta.put"]


def test_an_inner_region_uses_what_the_outer_has_and_siblings_share_nothing() -> None:
    loop = "flow.for(%x, %y, %y) { |%i: s32|\n%q = math.neg(%y) : s32\nINNERflow.yield()\n}\n"
    use = "tile.store(%a, %q, %i)\n"
    outer = _kernel("%p = math.neg(%y) : s32\n" + loop.replace("INNER", use))
    assert rewrite.remove_duplicates(outer.body)
    assert _names(outer) == ["math.neg", "flow.for", "tile.store", "flow.yield"]
    siblings = _kernel((loop + loop).replace("INNER", use))
    assert not rewrite.remove_duplicates(siblings.body)


# --- rules -------------------------------------------------------------------------------------


def _double(op: Op, build: Builder) -> Sequence[Value[Any]] | None:
    """x + x = x * 2."""
    if isinstance(op, math.Add) and op.x is op.y:
        two = build.add(math.Constant(2, Scalar(S32)))
        return [build.add(math.Mul(op.x, two.out)).out]
    return None


def test_a_rule_replaces_uses_also_in_inner_regions_and_keeps_name_and_place() -> None:
    kernel = _kernel(
        "%p = math.add(%x, %x) : s32 @7:3\n"
        "flow.for(%x, %y, %y) { |%i: s32|\ntile.store(%a, %p, %i)\nflow.yield()\n}"
    )
    assert rewrite.apply(kernel.body, _double)
    assert _names(kernel) == [
        "math.constant",
        "math.mul",
        "flow.for",
        "tile.store",
        "flow.yield",
    ]
    product = kernel.body.ops[1]
    assert product.results[0].name == "p"
    assert product.loc is not None
    assert product.loc.line == 7
    store = next(op for op in kernel.body.walk() if op.name == "tile.store")
    assert store.operands[1] is product.results[0]
    assert not rewrite.apply(kernel.body, _double)


def test_a_rule_sees_operands_that_were_already_replaced() -> None:
    def fold(op: Op, build: Builder) -> Sequence[Value[Any]] | None:
        """-(-x) = x."""
        if isinstance(op, math.Neg) and isinstance(op.x.owner, math.Neg):
            return [op.x.owner.x]
        return None

    kernel = _kernel(
        "%p = math.neg(%x) : s32\n%q = math.neg(%p) : s32\n%r = math.neg(%q) : s32\n"
        "%s = math.neg(%r) : s32\ntile.store(%a, %s, %x)"
    )
    rewrite.apply(kernel.body, fold)
    rewrite.remove_dead(kernel.body)
    assert _names(kernel) == ["tile.store"]


def test_a_rule_must_replace_every_result() -> None:
    kernel = _kernel("%p = math.neg(%x) : s32")
    with pytest.raises(ValueError, match=r"math.neg has 1 results, got 0 values"):
        rewrite.apply(kernel.body, lambda op, build: [])


# --- uses and clones ---------------------------------------------------------------------------


def test_uses_are_found_in_all_regions() -> None:
    kernel = _kernel(
        "%p = math.neg(%x) : s32\n"
        "flow.for(%x, %y, %y) { |%i: s32|\ntile.store(%a, %p, %i)\nflow.yield()\n}"
    )
    found = rewrite.uses(kernel.body)
    assert [op.name for op in found[kernel.body.args[0]]] == ["math.neg", "flow.for"]
    assert [op.name for op in found[kernel.body.ops[0].results[0]]] == ["tile.store"]


def test_a_clone_can_be_changed_without_the_original() -> None:
    kernel = _kernel("%p = math.add(%x, %x) : s32\ntile.store(%a, %p, %x)")
    copy = rewrite.clone_kernel(kernel)
    copy.attributes["threads"] = 32
    rewrite.apply(copy.body, _double)
    assert _names(kernel) == ["math.add", "tile.store"]
    assert kernel.attributes == {}
    mine = {*kernel.body.args, *(v for op in kernel.body.walk() for v in op.results)}
    assert not any(v in mine for op in copy.body.walk() for v in op.operands)


def test_a_cloned_op_keeps_outer_operands_and_maps_given_ones() -> None:
    kernel = _kernel("%p = math.add(%x, %y) : s32")
    x, y = kernel.body.args[:2]
    mapping: rewrite.Mapping = {x: y}
    copy = rewrite.clone(kernel.body.ops[0], mapping)
    assert copy.operands == [y, y]
    assert mapping[kernel.body.ops[0].results[0]] is copy.results[0]


def test_texts_of_clone_and_original_agree_on_shared_names() -> None:
    module = parse_module(
        "tir 1 level tile target sm_90a\nkernel @k { |%x: s32|\n"
        "%p = math.neg(%x) : s32\n%q.0 = math.neg(%p) : s32\n}\n"
    )
    text = module_text(module)
    module.kernels = [rewrite.clone_kernel(module.kernels[0])]
    assert module_text(module) == text
