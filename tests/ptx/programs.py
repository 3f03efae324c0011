"""Random structured programs of level ptx that exchange, rotate and overwrite carried values."""

from __future__ import annotations

from random import Random
from typing import Any

from tilec.ir.core import Builder, Kernel, Module, Region, Value
from tilec.ir.levels import ptx
from tilec.ir.types import Bits

BYTES = 4096
"""Memory a program may touch; the upper half is read only."""

_WORDS = ("add.u32", "sub.u32", "mul.lo.u32", "xor.b32")
Values = list[Value[Any]]


class Maker:
    """Draws one program."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.kernel = Kernel("k", Region(), {"threads": 32})
        self.build = Builder(self.kernel.body)
        self.stored = 0

    def module(self) -> Module:
        """A program that stores what it computed."""
        base = self.build.add(ptx.SharedBase()).out
        self.base = base
        known: Values = [self.constant() for _ in range(2)]
        known += [self.loaded(count) for count in (1, 2, 3)]
        known += [self.compared(known)]
        self.body(known, depth=2, size=self.random.randint(2, 7))
        for value in known:
            self.store(value)
        return Module("ptx", "sm_90a", [self.kernel])

    # Values -------------------------------------------------------------------------------

    def pick(self, known: Values, kind: str = "b32", count: int | None = None) -> Value[Any]:
        """One of the values that fit; made to measure when there is none."""
        fits = [v for v in known if v.type.kind == kind and count in (None, v.type.count)]
        if fits and self.random.random() < 0.95:
            return self.random.choice(fits)
        if kind == "pred":
            return self.compared(known)
        source = self.pick(known)
        picks = [self.random.randrange(source.type.count) for _ in range(count or 2)]
        return self.build.add(ptx.Pick(source, picks=tuple(picks))).out

    def constant(self) -> Value[Any]:
        number = self.random.randrange(1 << 32)
        return self.build.add(ptx.Constant(number, Bits("b32", 1))).out

    def loaded(self, count: int, guard: Value[Any] | None = None) -> Value[Any]:
        offset = BYTES // 2 + 16 * self.random.randrange(64)
        load = ptx.Load(
            self.base,
            space="shared",
            width="b32",
            type=Bits("b32", count),
            guard=guard,
            offset=offset,
            otherwise=7,
        )
        return self.build.add(load).out

    def compared(self, known: Values) -> Value[Any]:
        if self.random.random() < 0.2:
            return self.build.add(ptx.Constant(self.random.random() < 0.5, Bits("pred", 1))).out
        a, b = self.pick(known, count=1), self.pick(known, count=1)
        return self.build.add(ptx.Alu((a, b), "setp.lt.u32", type=Bits("pred", 1))).out

    def store(self, value: Value[Any]) -> None:
        if value.type.kind == "pred":
            one, two = (self.build.add(ptx.Constant(n, Bits("b32", 1))).out for n in (1, 2))
            value = self.build.add(ptx.Alu((one, two, value), "selp.b32", type=Bits("b32", 1))).out
        offset = self.stored * 16
        self.stored = (self.stored + 1) % (BYTES // 32)
        self.build.add(ptx.Store(self.base, value, space="shared", width="b32", offset=offset))

    # Ops ----------------------------------------------------------------------------------

    def body(self, known: Values, depth: int, size: int) -> None:
        """Append ops, growing ``known``."""
        makers = [self.arithmetic, self.arithmetic, self.rename, self.halves, self.weave]
        makers += [self.guarded, self.copied]
        for _ in range(size):
            if depth and self.random.random() < 0.4:
                self.random.choice((self.loop, self.branch))(known, depth)
            else:
                self.random.choice(makers)(known)

    def arithmetic(self, known: Values) -> None:
        count = self.random.randint(1, 3)
        per = 2 if self.random.random() < 0.2 else 1
        wide = self.pick(known, count=count * per)
        if per == 2:
            inputs: tuple[Value[Any], ...] = (wide,)
        else:
            other = self.pick(known, count=self.random.choice((1, count)))
            inputs = (wide, other) if self.random.random() < 0.5 else (other, wide)
        opcode = self.random.choice(_WORDS)
        known.append(self.build.add(ptx.Alu(inputs, opcode, Bits("b32", count), per=per)).out)

    def rename(self, known: Values) -> None:
        parts = [self.pick(known) for _ in range(2)]
        joined = self.build.add(ptx.Join(tuple(parts))).out
        count = self.random.randint(1, 3)
        picks = [self.random.randrange(joined.type.count) for _ in range(count)]
        known.append(self.build.add(ptx.Pick(joined, picks=tuple(picks))).out)

    def halves(self, known: Values) -> None:
        x = self.pick(known)
        count = x.type.count
        halves = self.build.add(ptx.Unpack(x, type=Bits("b16", 2 * count))).out
        order = [list(range(0, 2 * count, 2)), list(range(1, 2 * count, 2))]
        self.random.shuffle(order)
        low, high = (self.build.add(ptx.Pick(halves, picks=tuple(o))).out for o in order)
        known.append(self.build.add(ptx.Combine(low, high, type=Bits("b32", count))).out)

    def guarded(self, known: Values) -> None:
        known.append(self.loaded(self.random.randint(1, 3), self.pick(known, "pred")))

    def copied(self, known: Values) -> None:
        known.append(self.build.add(ptx.Copy(self.random.choice(known))).out)

    def weave(self, known: Values) -> None:
        region, inside = Region(), list(known)
        with self.build.inside(region):
            for _ in range(self.random.randint(1, 4)):
                self.random.choice((self.arithmetic, self.rename, self.halves))(inside)
            made = tuple(inside[len(known) :])
            self.build.add(ptx.Yield(made))
        weave = self.build.add(ptx.Weave(tuple(v.type for v in made), region))
        known.extend(weave.out)

    def branch(self, known: Values, depth: int) -> None:
        wanted = [self.random.choice(known).type for _ in range(self.random.randint(0, 3))]
        condition = self.pick(known, "pred")
        regions = [Region(), Region()]
        for region in regions:
            with self.build.inside(region):
                self.close(list(known), wanted, depth, [])
        cold = self.random.random() < 0.3
        made = ptx.If(condition, tuple(wanted), regions[0], regions[1], cold=cold)
        known.extend(self.build.add(made).out)

    def loop(self, known: Values, depth: int) -> None:
        start = self.build.add(ptx.Constant(0, Bits("b32", 1))).out
        if self.random.random() < 0.5:
            start = self.build.add(ptx.Copy(start)).out
        carried = [self.random.choice(known) for _ in range(self.random.randint(1, 4))]
        region = Region()
        counter = region.add_arg(Bits("b32", 1))
        arguments = [region.add_arg(value.type) for value in carried]
        with self.build.inside(region):
            one, last = (
                self.build.add(ptx.Constant(n, Bits("b32", 1))).out
                for n in (1, self.random.randint(1, 4))
            )
            following = self.build.add(ptx.Alu((counter, one), "add.u32", type=counter.type)).out
            more = self.build.add(ptx.Alu((following, last), "setp.lt.u32", type=Bits("pred", 1)))
            inside = [*known, *arguments, counter]
            self.close(inside, [a.type for a in arguments], depth, [more.out, following], arguments)
        loop = self.build.add(ptx.Loop((start, *carried), region))
        known.extend(loop.finals)

    def close(
        self,
        known: Values,
        wanted: list[Any],
        depth: int,
        head: Values,
        favoured: Values | None = None,
    ) -> None:
        """Fill a region and yield values of the wanted types, often those just carried in."""
        self.body(known, depth - 1, self.random.randint(0, 4))
        if self.random.random() < 0.3:
            self.store(self.random.choice(known))
        yielded = []
        for type in wanted:
            pool = favoured if favoured and self.random.random() < 0.4 else known
            fits = [v for v in pool if v.type == type]
            if fits:
                yielded.append(self.random.choice(fits))
            else:
                yielded.append(self.pick(known, type.kind, type.count))
        self.build.add(ptx.Yield((*head, *yielded)))
