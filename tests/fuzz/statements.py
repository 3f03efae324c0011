"""Random statements: loops with what they carry, branches, products, updates, functions, pins.

Idea: each way writes some lines at the current depth and gives a value of the type and axes that
were asked for, which has a name or stands in those lines. A loop over tiles combines what each tile
gives along its own index only, so that no result shows the size of a tile.

Never: leaves a name in ``known`` that is not bound where the next statement stands.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.calls import Calls
from tests.fuzz.expressions import STATIC, Axes
from tests.fuzz.values import (
    DIGITS,
    FLOATS,
    INTEGERS,
    STORED,
    Axis,
    TooLarge,
    Value,
    approximate,
    joined,
    number,
    summed,
    whole,
)

_PAIRS = (
    ("bf16", "bf16"), ("f16", "f16"), ("f32", "f32"), ("f32", "f32"),
    ("tf32", "tf32"), ("f64", "f64"),
    ("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2"),
    ("s8", "s8"), ("s8", "u8"), ("u8", "s8"), ("u8", "u8"),
)  # fmt: skip
_TENSOR_BITS = 11
"""Sums of no more bits are exact in every tensor core."""


class Statements(Calls):
    """Draws statements into ``lines``, each in one of many ways."""

    def statement(self, dtype: str, axes: Axes) -> Value | None:
        """Some lines, and the value that they make; None where what was drawn does not work out."""
        ways: list[Callable[[str, Axes], Value]] = [self._let, self._let, self._tuple, self._if]
        ways += [self._range, self._while, self._call, self._update, self._watch]
        if dtype in (*INTEGERS, *FLOATS, "bool") and self._can_fill(axes):
            ways += [self._tiles] * 3
        if dtype in (*INTEGERS, *FLOATS):
            ways += [self._custom, self._sum_in_order]
        if dtype in ("f32", "s32", "f64"):
            ways += [self._product] * 4
        if dtype == "f32":
            ways += [*[self._softmax] * 5, self._ptx, self._library]
        ways += [self._pinned, self._scatter, self._length]
        lines, known, used = len(self.lines), len(self.known), self.used.copy()
        depth = self.depth
        way = self.chance.choice(ways)
        try:
            return way(dtype, axes)
        except TooLarge:
            del self.lines[lines:], self.known[known:]
            self.used, self.depth = used, depth
            return None

    @staticmethod
    def _can_fill(axes: Axes) -> bool:
        return all(a.is_tile or a.extent.isdigit() for a in axes)

    def _shape(self, axes: Axes) -> str:
        if not self._can_fill(axes):
            raise TooLarge
        return ", ".join(a.index if a.is_tile else a.extent for a in axes)

    # --- plain ------------------------------------------------------------------------------------

    def _let(self, dtype: str, axes: Axes) -> Value:
        return self.named(self.value(dtype, axes, self.chance.randint(1, 4)))

    def _tuple(self, dtype: str, axes: Axes) -> Value:
        x, y = self.value(dtype, axes, 2), self.value(dtype, axes, 2)
        a, b = self.fresh("v"), self.fresh("v")
        self.note("tuple", dtype)
        self.line(f"{a}, {b} = {x.text}, {y.text}")
        if self.chance.random() < 0.5:
            self.line(f"{a}, {b} = {b}, {a}")
            x, y = y, x
        self.known.append(y.said(b))
        return x.said(a)

    def _pinned(self, dtype: str, axes: Axes) -> Value:
        if not axes:
            raise TooLarge
        x = self.value(dtype, axes, 2)
        name, home = self.fresh("v"), self.chance.choice(("register", "register", "shared"))
        if dtype == "bool":
            home = "register"
        self.note(home, dtype)
        self.line(f"{home} {name} = {x.text}")
        return x.said(name)

    def _length(self, dtype: str, axes: Axes) -> Value:
        loop, k = self._loop(axes)
        n = self.fresh("n")
        self.line(f"{n} = 0")
        self.line(loop)
        self.line(f"    {n} += len({k.index})")
        self.note("len", "s32")
        self.known.append(whole("s32", n, ()))
        return self.named(self.value(dtype, axes, 2))

    def _watch(self, dtype: str, axes: Axes) -> Value:
        x = self.named(self.value(dtype, axes, 2))
        word = self.chance.choice((*["static_assert"] * 6, "print", "assert"))
        self.note(word, "any")
        if word == "print":
            self.line(f'print("v", {x.text})')
        elif word == "assert":
            self.line(
                f'assert {x.text} == {x.text}, "not a number"'
                if x.dtype in INTEGERS
                else ('assert N >= 0, "a size"' if "N" in str(self.parameters) else "pass")
            )
        else:
            self.line('static_assert(7 % 2 == 1, "odd")')
        return x

    def _if(self, dtype: str, axes: Axes) -> Value:
        x = self.value(dtype, axes, 2)
        name = self.fresh("v")
        self.line(f"{name} = {x.text}")
        draw = self._logic if self.chance.random() < 0.5 else self._compare
        condition = draw("bool", (), 1)
        self.note("if", dtype)
        self.line(f"if {condition.text}:")
        self.depth += 1
        y = self.value(dtype, axes, 2)
        self.line(f"{name} = {y.text}")
        self.depth -= 1
        found = joined(x, y, name)
        if self.chance.random() < 0.5:
            self.line("else:")
            self.depth += 1
            z = self.value(dtype, axes, 2)
            self.line(f"{name} = {z.text}")
            self.depth -= 1
            found = joined(z, found, name)
        return found.said(name)

    # --- loops ------------------------------------------------------------------------------------

    def _carried(self, dtype: str, axes: Axes, times: int, state: Value) -> Value:
        """One more assignment to a state, and what it may be after so many."""
        if dtype == "bool" or dtype in STORED:
            x = self.value(dtype, axes, 1)
            if dtype == "bool" and self.chance.random() < 0.7:
                self.line(f"{state.text} = {state.text} ^ {x.text}")
                return state
            self.line(f"{state.text} = {x.text}")
            return joined(state, x, state.text)
        x = self.value(dtype, axes, 2)
        if self.chance.random() < 0.5:
            name = self.chance.choice(("min", "max"))
            self.note(name, dtype)
            self.line(f"{state.text} = {name}({state.text}, {x.text})")
            return joined(state, x, state.text)
        self.note("carried sum", dtype)
        self.line(f"{state.text} += {x.text}")
        if dtype in INTEGERS:
            return state
        once = x.said("", bound=x.bound + state.bound, error=x.error + state.error,
                      grain=max(x.grain, state.grain))  # fmt: skip
        return summed(once, times + 1, dtype, state.text, axes)

    def _range(self, dtype: str, axes: Axes) -> Value:
        state = self.named(self.value(dtype, axes, 1))
        times = self.chance.randint(0, 4)
        t = self.fresh("t")
        bounds = self.chance.choice((f"{times}", f"1, {times + 1}", f"0, {2 * times}, 2"))
        self.note("range", dtype)
        self.line(f"for {t} in range({bounds}):")
        return self._inside(t, dtype, axes, times, state)

    def _inside(self, t: str, dtype: str, axes: Axes, times: int, state: Value) -> Value:
        self.depth += 1
        known = list(self.known)
        self.known.append(whole("s32", t, ()))
        if self.chance.random() < 0.3 and self.depth < 5:
            inner = self.statement(dtype, axes)
            if inner is not None:
                self.known.append(inner)
        found = self._carried(dtype, axes, times, state)
        self.depth -= 1
        self.known = known
        return found

    def _while(self, dtype: str, axes: Axes) -> Value:
        state = self.named(self.value(dtype, axes, 1))
        n, times = self.fresh("n"), self.chance.randint(1, 3)
        self.line(f"{n} = 0")
        self.note("while", dtype)
        self.line(f"while {n} < {times}:")
        found = self._inside(n, dtype, axes, times, state)
        self.line(f"    {n} += 1")
        return found

    def _loop(self, axes: Axes) -> tuple[str, Axis]:
        taken = {a.extent for a in axes}
        dim = self.chance.choice([d for d in "MNK" if d not in taken])
        k = Axis(self.fresh("k"), dim, self.dims[dim])
        if not any(f"[{dim}" in kind or f" {dim}" in kind for kind in self.parameters.values()):
            self.array("f32", (Axis(":", dim, 0),))
        pin = self.chance.choice(("", "", "", ", 16", ", tune=[32, 16]"))
        self.note("tiles", "any")
        return f"for {k.index} in tiles({dim}{pin}):", k

    def _tiles(self, dtype: str, axes: Axes) -> Value:
        """A loop over tiles that combines along its index."""
        shape = self._shape(axes)
        loop, k = self._loop(axes)
        kept = axes[:1] if len(axes) == 2 and self.chance.random() < 0.5 else axes
        inner_axes = (k,) if len(axes) == 2 else self.chance.choice(((*kept, k), (k, *kept)))
        start = {"bool": "false"}.get(dtype, "1")
        acc = self.fresh("acc")
        self.line(
            f"{acc} = full[{dtype}]({shape + ', ' if shape else ''}{start})"
            if axes
            else (f"{acc} = cast[{dtype}]({start})")
        )
        self.line(loop)
        self.depth += 1
        x = self.value(dtype, inner_axes, 2)
        place = inner_axes.index(k)
        narrow = dtype in ("f16", "bf16")
        names = ("any",) if dtype == "bool" else ("min", "max", *(() if narrow else ("sum", "sum")))
        name = self.chance.choice(names)
        self.note(name, dtype)
        self.note("loop over tiles", dtype)
        part = f"{name}({x.text}, axis={place})"
        update = {"any": f"{acc} = {acc} | {part}", "sum": f"{acc} += {part}"}
        self.line(update.get(name, f"{acc} = {name}({acc}, {part})"))
        self.depth -= 1
        if name == "sum":
            return summed(x.said("", bound=x.bound + 1), k.most + 1, dtype, acc, axes)
        first = number(dtype, "", axes, 1.0, 0, 0.0) if dtype in DIGITS else whole(dtype, "", axes)
        return joined(first, x, acc).said(acc, axes=axes)

    def _product(self, dtype: str, axes: Axes) -> Value:
        if len(axes) != 2:
            raise TooLarge
        shape = self._shape(axes)
        pairs = [p for p in _PAIRS if (p[0] in INTEGERS) == (dtype == "s32")]
        pairs = [p for p in pairs if (p[0] == "f64") == (dtype == "f64")]
        left, right = self.chance.choice(pairs)
        turned = self.chance.random() < 0.6
        in_loop = self.chance.random() < 0.7
        if in_loop:
            loop, k = self._loop(axes)
            acc = self.fresh("acc")
            self.line(f"{acc} = zeros[{dtype}]({shape})")
            self.line(loop)
            self.depth += 1
        else:
            n = self.chance.choice(STATIC)
            k = Axis(":", str(n), n)
        x = self.value(left, (axes[0], k), self.chance.randint(0, 1))
        y = self.value(right, (axes[1], k) if turned else (k, axes[1]), self.chance.randint(0, 1))
        second = f"({y.text}).T" if turned else f"({y.text})"
        self.note("@", f"{left} {right}")
        text = f"({x.text}) @ {second}"
        if left == "f32" and self.chance.random() < 0.95:
            self.note("dot", left)
            text = f"dot({x.text}, {second})"
        made = self._product_value(x, y, k.most, dtype, axes)
        if not in_loop:
            return self.named(made.said(text))
        self.line(f"{acc} += {text}")
        self.depth -= 1
        return made.said(acc)

    def _product_value(self, x: Value, y: Value, most: int, dtype: str, axes: Axes) -> Value:
        if dtype == "s32":
            return whole(dtype, "", axes)
        bound = x.bound * y.bound
        one = x.said("", dtype=dtype, bound=bound, grain=x.grain + y.grain,
                     error=x.bound * y.error + y.bound * x.error)  # fmt: skip
        made = summed(one, most, dtype, "", axes)
        exact = bound * most * 2.0 ** (x.grain + y.grain) <= 2.0**_TENSOR_BITS
        if made.exact and not exact:
            return made.said("", error=made.bound * 2.0**-_TENSOR_BITS, grain=0)
        return made.said("", error=made.error + (0 if exact else made.bound * 2.0**-_TENSOR_BITS))

    def _softmax(self, dtype: str, axes: Axes) -> Value:
        if len(axes) != 1 or not axes[0].is_tile:
            raise TooLarge
        loop, k = self._loop(axes)
        join = self.chance.random() < 0.6
        m, total, r, s = (self.fresh(x) for x in ("m", "total", "r", "score"))
        i = axes[0].index
        if join:
            self.note("join", "f32")
            self._import("from std.merges import softmax as merged")
            loop = loop.removesuffix(":") + f" join merged({m}, {total}):"
        for word in ("anchor", "exp2sub", "full", "zeros"):
            self.note(word, "f32")
        self.line(f"{m} = full[f32]({i}, -inf)")
        self.line(f"{total} = zeros[f32]({i})")
        self.line(loop)
        self.depth += 1
        x = self.value("f32", (*axes, k), 2)
        if x.bound > 16:
            raise TooLarge
        self.line(f"{s} = {x.text}")
        self.line(f"{r} = anchor({m}, {s})")
        self.line(f"{total} = {total} * exp2sub({m}, {r}) + rowsum(exp2sub({s}, {r}[:, None]))")
        self.line(f"{m} = {r}")
        self.depth -= 1
        self.note("rowsum", "f32")
        rows = x.said("", axes=axes)
        return self.named(approximate(rows, f"{m} + log2({total})", 32.0, 1.5, 2.0**-12))
