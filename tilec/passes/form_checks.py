"""``assert`` and ``print`` on registers: a record in the check buffer (``ir.checks``).

A group of warps claims the words of a record by one atomic update, hands the place to all of its
threads through shared memory, and each thread writes what it holds. A record that its part of the
buffer has no room for gets a place beyond the buffer's end, where nothing is written, as everywhere
with computed places: it is counted all the same. An assertion votes first, so that one that
holds costs a vote and, of several warps, an exchange; only a group in which it fails writes.

Nothing here stops a kernel, or changes what it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilec.ir import checks
from tilec.ir.checks import BLOCKS, FLOATS, WORDS, Site
from tilec.ir.core import Op, Region, Value
from tilec.ir.declare import Refused
from tilec.ir.levels import author, cta, flow, math, memory
from tilec.ir.types import BOOL, F32, F64, S32, S64, DType, Index, Register, Scalar, Shared
from tilec.layout.shared import swizzled
from tilec.passes.form_places import share
from tilec.passes.form_stores import single
from tilec.passes.form_tiles import forms
from tilec.passes.forming import GROUP_BARRIER, Forming, outliving
from tilec.passes.raster import constant

Looking = author.Assert | author.Print


@forms(author.Print)
def _print(f: Forming, op: author.Print) -> None:
    value = f.get(op.x)
    with _by_one_group(f, op.x):
        record = _Record(f, op, "print", value)
        record.elements(value)
    f.ctx.remark(op, f"printed by {record.site.size} words a record in the check buffer")


@forms(author.Assert)
def _assert(f: Forming, op: author.Assert) -> None:
    condition = f.get(op.condition)
    with _by_one_group(f, op.condition):
        fails = f.body.add(math.Not(condition), "fails").out
        for axis, index in zip(op.axes, op.indices, strict=True):
            fails = _existing(f, fails, axis, index)
        with _branch(f, _anywhere(f, fails), cold=True):
            _Record(f, op, "assert", condition).first_of(fails)
    f.ctx.remark(op, "asserted: a group in which it fails writes a record in the check buffer")


# --- who, and when ------------------------------------------------------------------------------


@contextmanager
def _branch(f: Forming, condition: Value[Scalar], *, cold: bool = False) -> Iterator[None]:
    """What is formed within runs where the condition holds."""
    body = Region()
    memo, f.memo = f.memo, dict(f.memo)
    with f.body.inside(body):
        yield
        f.body.add(flow.Yield(()))
    f.memo = outliving(memo, f.memo)
    idle = Region([], [flow.Yield(())])
    f.body.add(flow.If(condition, types=(), then=body, otherwise=idle, cold=cold))


@contextmanager
def _by_one_group(f: Forming, value: Value[Any]) -> Iterator[None]:
    """Of groups that hold the same value, the first; groups with parts of it all do it."""
    if f.team.groups == 1 or f.team.split in f.axes.all_of(value):
        yield
        return
    first = math.Compare(f.group, constant(f.body, 0), relation="eq")
    with _branch(f, f.body.add(first, "first_group").out):
        yield


def _existing(
    f: Forming, fails: Value[Register], axis: int, index: Value[Index]
) -> Value[Register]:
    """Only elements that exist."""
    if not f.ragged(index):
        return fails
    at = f.body.add(math.Add(_coordinates(f, fails.type, axis), f.start(index))).out
    inside = f.body.add(math.Compare(at, f.limit(index), relation="lt"), "inside").out
    return f.body.add(math.And(fails, inside), "fails").out


def _coordinates(f: Forming, like: Register, axis: int) -> Value[Register]:
    type = Register(S32, like.shape, like.layout)
    return f.body.add(cta.Coordinates(axis=axis, type=type)).out


def _anywhere(f: Forming, fails: Value[Any]) -> Value[Scalar]:
    """Whether an element fails in this group; a scalar is the same in all threads."""
    if isinstance(fails.type, Scalar):
        return fails
    voted = f.body.add(cta.AnyLane(fails), "fails").out
    if f.team.warps == 1:
        return voted
    one, none = constant(f.body, 1), constant(f.body, 0)
    number = f.body.add(math.Where(voted, one, none)).out
    part = f.body.add(math.Fill(number, type=single(f, S32))).out
    warps = f.team.warps * f.team.groups
    type = Shared(S32, (warps, 1), swizzled(warps, 1, S32.bits, 0))
    buffer = f.buffer("exchange", type, "partials")
    both = f.body.add(cta.Exchange(part, buffer, kind="max", barrier=GROUP_BARRIER)).out
    total = f.body.add(math.Squeeze(both, axis=0, type=Scalar(S32))).out
    return f.body.add(math.Compare(total, none, relation="ne"), "fails").out


# --- records ------------------------------------------------------------------------------------


class _Record:
    """One record: claimed, its head written, and its elements to be written."""

    def __init__(self, f: Forming, op: Looking, kind: str, value: Value[Any]) -> None:
        self.f, self.op = f, op
        shape = tuple(map(int, value.type.shape)) if isinstance(value.type, Register) else ()
        around = checks.loops_around(f.kernel.body, op)
        line = op.loc.line if op.loc is not None else 0
        dtype = math.element_type(value.type)
        self.site = Site(kind, line, dtype, shape, around.names, around.parallel, op.text)
        self.words = _block(f, WORDS)
        self.base = self._claim(self.site.size)
        self._write_head(
            [f.origins[v] if isinstance(v.type, Index) else f.get(v) for v in around.indices]
        )

    def _claim(self, words: int) -> Value[Scalar]:
        """The place of the record's first word, the same in all threads of the group."""
        f, type = self.f, single(self.f, S64)
        part = checks.PARTS[self.site.kind]
        self._at(constant(f.body, part.records), _number(f, 1), update="add")
        wanted = f.body.add(math.Fill(_number(f, words), type=type)).out
        place = self._spread(constant(f.body, part.claimed), type)
        atomic = memory.Atomic(self.words, wanted, _number(f, 0), (place,), update="add")
        found = share(f, f.body.add(atomic, "claimed").out)
        claimed = f.body.add(math.Squeeze(found, axis=0, type=Scalar(S64)), "claimed").out
        last = _number(f, part.size - words)
        fits = f.body.add(math.Compare(claimed, last, relation="le"), "fits").out
        own = f.body.add(math.Add(claimed, _number(f, part.first))).out
        # However much was wanted, places stay numbers of 32 bits.
        first = f.body.add(math.Where(fits, own, _number(f, checks.CAPACITY))).out
        return f.body.add(math.Cast(first, dtype=S32), "record").out

    def _write_head(self, loops: list[Value[Scalar]]) -> None:
        f = self.f
        number = checks.site_number(f.kernel, _registered(f, self.op, self.site))
        head = [_number(f, number), f.group, *loops]
        for axis in range(len(self.site.shape)):
            head += self._span(axis)
        for place, word in enumerate(head):
            self._at(self._place(place), word)

    def _span(self, axis: int) -> tuple[Value[Scalar], Value[Scalar]]:
        """The index of the group's first element along an axis, and where the axis ends."""
        f, value = self.f, self.op.operands[0]
        for own, index in zip(self.op.axes, self.op.indices, strict=True):
            if own == axis:
                return f.start(index), f.limit(index)
        first = constant(f.body, 0)
        if f.team.split is not None and f.axes.of(value, axis) is f.team.split:
            first = f.body.add(math.Mul(f.group, constant(f.body, f.team.rows))).out
        return first, constant(f.body, int(value.type.shape[axis]))

    def elements(self, value: Value[Any]) -> None:
        """A word for each element, floats in the other block."""
        f = self.f
        if isinstance(value.type, Scalar):
            value = f.body.add(math.Fill(value, type=single(f, value.type.dtype))).out
            place = self._spread(self._place(self.site.before), value.type)
        else:
            place = self._linear(value.type, self._place(self.site.before))
        word = _as_word(f, value)
        block = self.words if word.type.dtype == S64 else _block(f, FLOATS)
        f.body.add(memory.Scatter(block, word, (place,)))

    def first_of(self, fails: Value[Any]) -> None:
        """The first element that fails, and how many do."""
        f, place = self.f, self.site.before
        if isinstance(fails.type, Scalar):
            self._at(self._place(place), _number(f, checks.FIRST))
            self._at(self._place(place + 1), _number(f, 1))
            return
        type = Register(S32, fails.type.shape, fails.type.layout)
        outside = self._spread(constant(f.body, -1), type)
        number = f.body.add(math.Cast(self._linear(type, constant(f.body, 0)), dtype=S64)).out
        before = f.body.add(math.Sub(_number(f, checks.FIRST), number)).out
        one = self._spread(_number(f, 1), type)
        for ahead, kind, word in ((0, "max", before), (1, "add", one)):
            where = self._spread(self._place(place + ahead), type)
            at = f.body.add(math.Where(fails, where, outside)).out
            f.body.add(memory.Scatter(self.words, word, (at,), update=kind))

    def _place(self, word: int) -> Value[Scalar]:
        return self.f.body.add(math.Add(self.base, constant(self.f.body, word))).out

    def _linear(self, like: Register, first: Value[Scalar]) -> Value[Register]:
        """Each element's own place, row by row from ``first`` on."""
        f, step = self.f, 1
        total: Value[Any] = self._spread(first, Register(S32, like.shape, like.layout))
        for axis in reversed(range(len(like.shape))):
            own: Value[Any] = _coordinates(f, like, axis)
            if step > 1:
                own = f.body.add(math.Mul(own, constant(f.body, step))).out
            total = f.body.add(math.Add(total, own)).out
            step *= int(like.shape[axis])
        return total

    def _spread(self, value: Value[Scalar], like: Register) -> Value[Register]:
        type = Register(value.type.dtype, like.shape, like.layout)
        return self.f.body.add(math.Fill(value, type=type)).out

    def _at(self, place: Value[Scalar], word: Value[Scalar], update: str = "") -> None:
        """One word at a place, written once."""
        f, type = self.f, single(self.f, S64)
        if word.type.dtype != S64:
            word = f.body.add(math.Cast(word, dtype=S64)).out
        at = self._spread(place, type)
        f.body.add(memory.Scatter(self.words, self._spread(word, type), (at,), update=update))


def _number(f: Forming, value: int) -> Value[Scalar]:
    return f.body.add(math.Constant(value, type=Scalar(S64))).out


def _as_word(f: Forming, value: Value[Register]) -> Value[Register]:
    """Elements in 64 bits, exactly."""
    dtype = value.type.dtype
    if dtype == BOOL:
        one, none = (
            f.body.add(math.Fill(constant(f.body, n), type=_like(value, S32))).out for n in (1, 0)
        )
        value = f.body.add(math.Where(value, one, none)).out
    steps = (F32, F64) if dtype.is_float else (S32, S64)
    for step in steps:
        if value.type.dtype.bits < step.bits:
            value = f.body.add(math.Cast(value, dtype=step)).out
    if value.type.dtype not in (F64, S64):
        value = f.body.add(math.Cast(value, dtype=steps[1])).out
    return value


def _like(value: Value[Register], dtype: DType) -> Register:
    return Register(dtype, value.type.shape, value.type.layout)


# --- what the kernel says of it -----------------------------------------------------------------


def _block(f: Forming, name: str) -> Value[Any]:
    """A block of the check buffer: a parameter that the launcher makes, added on use."""
    for arg in f.kernel.body.args:
        if arg.name == name:
            return arg
    type = BLOCKS[name]
    made = f.top.region.add_arg(type, name)
    if made not in f.kernel.body.args:
        f.kernel.body.args.append(made)
    known = tuple(f.kernel.attributes.get("workspace", ()))
    f.kernel.attributes["workspace"] = (*known, (name, type.dtype, type.shape))
    return made


def _registered(f: Forming, op: Op, site: Site) -> int:
    """The number of an op's site; of one that is formed on two paths it is the same."""
    if op not in f.sites:
        listed = tuple(f.kernel.attributes.get("checks", ()))
        f.sites[op] = len(listed)
        f.kernel.attributes["checks"] = (*listed, site.as_attribute())
    elif f.kernel.attributes["checks"][f.sites[op]] != site.as_attribute():
        raise Refused("what is shown lies otherwise on another path")
    return f.sites[op]
