"""A bug planted in each pass is found there: ``bisect`` names the pass and the element.

Each bug damages what the real pass leaves, in a way that the verifier takes for a program like any
other: a wrong constant, a mask that is gone, operands exchanged, a wait too few. That the verifier
says nothing is part of each test, since it would end the compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pytest

from tests.bisect.programs import CASES
from tilec import pipeline
from tilec.backend_ptx import registers
from tilec.ir.core import Kernel, Op, Region, Value
from tilec.ir.levels import cta, math, ptx, tile
from tilec.ir.types import Scalar

Kernels = Sequence[Kernel]
Damage = Callable[[Kernels], Kernels | None]


def ops(kernels: Kernels, *classes: type[Op]) -> Iterator[Any]:
    """Ops of some classes, in the order of the text."""
    for kernel in kernels:
        yield from (op for op in kernel.body.walk() if isinstance(op, classes))


def region_of(kernels: Kernels, wanted: Op) -> Region:
    """The region that an op stands in."""
    for kernel in kernels:
        for region in (kernel.body, *(r for op in kernel.body.walk() for r in op.regions)):
            if any(op is wanted for op in region.ops):
                return region
    raise LookupError(wanted)


def drop(kernels: Kernels, op: Op, instead: Value[Any] | None = None) -> None:
    """Take an op out; whoever used its result uses another value."""
    region_of(kernels, op).ops.remove(op)
    for user in ops(kernels, Op):
        user.map_operands(dict.fromkeys(op.results, instead))


def becomes(op: Op, cls: type[Op]) -> None:
    """Another op with the same fields."""
    op.__class__ = cls


def exchange(op: Any) -> None:
    """The first operand last."""
    op.x, op.y = op.y, op.x


# --- the bugs ------------------------------------------------------------------------------------


def wrong_constant(old: float, new: float) -> Damage:
    def damage(kernels: Kernels) -> None:
        next(op for op in ops(kernels, math.Constant) if op.value == old).value = new

    return damage


def shares_start_with_one(kernels: Kernels) -> None:
    shares = next(op for op in ops(kernels, tile.Parallel))
    start = next(op for op in shares.body.walk() if isinstance(op, math.Constant))
    assert start.value == 0
    start.value = 1.0


def nothing_is_copied(kernels: Kernels) -> None:
    copy = next(ops(kernels, tile.Parallel))
    load = next(op for op in copy.body.walk() if isinstance(op, tile.Load))
    store = next(op for op in copy.body.walk() if isinstance(op, tile.Store))
    zero = math.Constant(0.0, type=Scalar(load.array.type.dtype))
    blank = math.Fill(zero.out, type=load.out.type)
    copy.body.ops[-1:-1] = [zero, blank]
    store.value = blank.out


def launches_in_reverse(kernels: Kernels) -> Kernels:
    assert len(kernels) == 2
    return list(reversed(kernels))


def weights_upside_down(kernels: Kernels) -> None:
    power = next(ops(kernels, math.Exp2))
    exchange(power.x.owner)


def small_terms_forgotten(kernels: Kernels) -> None:
    first, _, last = ops(kernels, tile.Dot)
    last.acc = first.acc


def a_cast_too_few(kernels: Kernels) -> None:
    back = next(op for op in ops(kernels, math.Cast) if op.dtype.name == "f32")
    drop(kernels, back, back.x.owner.x)


def sum_for_product(kernels: Kernels) -> None:
    becomes(next(ops(kernels, math.Mul)), math.Add)


def half_of_each_row(kernels: Kernels) -> None:
    (kernel,) = kernels
    whole = next(op.size for op in ops(kernels, tile.Whole)).removeprefix("$")
    tiles = dict(kernel.schedule["tiles"])
    tiles[whole] = tiles[whole] // 2
    kernel.schedule["tiles"] = tuple(tiles.items())


def a_mask_is_gone(kernels: Kernels) -> None:
    *_, pad = ops(kernels, tile.Pad)
    drop(kernels, pad, pad.x)


def quotient_upside_down(kernels: Kernels) -> None:
    exchange(next(ops(kernels, math.Div)))


def a_condition_is_gone(kernels: Kernels) -> None:
    where = next(ops(kernels, math.Where))
    drop(kernels, where, where.x)


def edges_end_one_later(kernels: Kernels) -> None:
    for compare in ops(kernels, math.Compare):
        if isinstance(compare.x.owner, cta.Coordinates):
            compare.relation = "le"


def rows_of_the_other_operand(kernels: Kernels) -> None:
    a, b = ops(kernels, cta.Load)
    b.origin = (a.origin[0], b.origin[1])


def both_groups_take_the_first_rows(kernels: Kernels) -> None:
    window = next(ops(kernels, cta.Window))
    region, zero = region_of(kernels, window), math.Constant(0, type=window.block.type)
    region.ops.insert(region.ops.index(window), zero)
    window.block = zero.out


def one_piece_twice(kernels: Kernels) -> None:
    *_, last = ops(kernels, cta.Slice)
    assert last.start > 0
    last.start = 0


def another_function(kernels: Kernels) -> None:
    for weave in ops(kernels, cta.Weave):
        for op in list(weave.body.walk()):
            if isinstance(op, math.Exp2):
                becomes(op, math.Exp)


def stored_across(kernels: Kernels) -> None:
    for store in ops(kernels, cta.StoreTile):
        store.origin = store.origin[::-1]


def a_wait_is_gone(kernels: Kernels) -> None:
    *_, wait = ops(kernels, ptx.MbarrierWait)
    drop(kernels, wait)


@dataclass(frozen=True)
class Planted:
    """A bug, and a program that shows it."""

    case: str
    damage: Damage


BUGS: dict[str, Planted] = {
    "lift-requirements": Planted("scaled", wrong_constant(1.5, 1.25)),
    "drop-checks": Planted("scaled", wrong_constant(1.5, 1.75)),
    "split-loops": Planted("sum in shares", shares_start_with_one),
    "repack-operands": Planted("product of odd rows", nothing_is_copied),
    "split-launches": Planted("two launches", launches_in_reverse),
    "lower-anchor": Planted("online rows", weights_upside_down),
    "split-f32-products": Planted("product in f32", small_terms_forgotten),
    "simplify": Planted("rounded on the way", a_cast_too_few),
    "free-known-axes": Planted("one column", sum_for_product),
    "choose-tiles": Planted("softmax", half_of_each_row),
    "fill-padding": Planted("softmax", a_mask_is_gone),
    "apply-tiles": Planted("softmax", quotient_upside_down),
    "split-by-predicates": Planted("triangle", a_condition_is_gone),
    "form-ctas": Planted("softmax", edges_end_one_later),
    "share-loads": Planted("product", rows_of_the_other_operand),
    "split-roles": Planted("product", rows_of_the_other_operand),
    "take-turns": Planted("product in turns", rows_of_the_other_operand),
    "pipeline-products": Planted("product", both_groups_take_the_first_rows),
    "overlap-stores": Planted("product", one_piece_twice),
    "weave": Planted("softmax", another_function),
    "place-shared": Planted("product", stored_across),
    "select-instructions": Planted("product", a_wait_is_gone),
}


def plant(monkeypatch: pytest.MonkeyPatch, name: str, damage: Damage) -> None:
    """Let a pass of the pipeline do damage after its work."""
    item = pipeline.find_pass(name)

    def run(kernel: Kernel, ctx: Any) -> Kernels:
        made = item.run(kernel, ctx) or (kernel,)
        return damage(made) or made

    attribute = name.replace("-", "_")
    module = import_module(f"tilec.passes.{attribute}")
    monkeypatch.setattr(module, attribute, replace(item, run=run))


def test_every_pass_has_its_bug() -> None:
    assert {*BUGS, "place-copies"} == set(pipeline.PIPELINE)


@pytest.mark.parametrize("name", BUGS)
def test_the_pass_with_the_bug_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = BUGS[name]
    plant(monkeypatch, name, planted.damage)
    found = CASES[planted.case].bisect()
    assert found.first is not None
    assert found.first.name == name, found.first
    assert found.first.difference is not None or found.first.message
    assert found.first.before != found.first.after


def test_copies_of_the_wrong_registers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies that the pass places take what went into a value instead of the value."""
    place = registers.place_copies

    def damaged(kernel: Kernel) -> None:
        known = {id(op) for op in ops([kernel], ptx.Copy)}
        place(kernel)
        made = [op for op in ops([kernel], ptx.Copy) if id(op) not in known]
        for copy in made:
            stale = [v for v in copy.x.owner.operands if v.type == copy.x.type]
            copy.x = next(iter(stale), copy.x)

    monkeypatch.setattr(registers, "place_copies", damaged)
    found = CASES["online rows"].bisect()
    assert found.first is not None
    assert found.first.name == "place-copies", found.first


@pytest.mark.parametrize("name", CASES)
def test_without_a_bug_every_pass_keeps_the_meaning(name: str) -> None:
    found = CASES[name].bisect()
    assert found.first is None, found.first
    assert [step.name for step in found.steps] == list(pipeline.PIPELINE)
    assert not any(step.verdict == "not run" for step in found.steps)
