"""Random calls: functions of the file and of the library, instructions, updates in memory.

Idea: each way writes some lines and gives a value, as in ``statements``, which draws them. Updates
go to an element of each iteration's own, or in an order that does not matter.

Never: updates an array that something else in the launch reads or writes.
"""

from __future__ import annotations

from tests.fuzz.expressions import Axes, Expressions, subscripts
from tests.fuzz.values import (
    FLOATS,
    STORED,
    Axis,
    TooLarge,
    Value,
    approximate,
    joined,
    summed,
    whole,
)

_UPDATES = {"add": "+", "min": "", "max": "", "and": "&", "or": "|", "xor": "^"}


class Calls(Expressions):
    """Draws calls into ``lines``; heads of the file stand in ``imports`` and ``functions``."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.lines: list[str] = []
        self.depth = 1
        self.imports: list[str] = []
        self.functions: list[str] = []
        self.updated: list[str] = []
        """Arrays that are ``inout``; what they end as is exact."""

    def line(self, text: str) -> None:
        """One line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def named(self, value: Value, stem: str = "v") -> Value:
        """Bind a value to a name."""
        name = self.fresh(stem)
        self.line(f"{name} = {value.text}")
        return value.said(name)

    def _import(self, line: str) -> None:
        if line not in self.imports:
            self.imports.append(line)

    # --- functions, instructions, memory ----------------------------------------------------------

    def _call(self, dtype: str, axes: Axes) -> Value:
        if dtype in STORED or dtype == "bool":
            raise TooLarge
        f = self.fresh("fun")
        x, y = self.value(dtype, axes, 2), self.value(dtype, axes, 2)
        self.note("fn", dtype)
        if self.chance.random() < 0.5:
            self.functions.append(f"fn {f}(a, b):\n    return min(a, b), max(a, b)\n")
            a, b = self.fresh("v"), self.fresh("v")
            self.line(f"{a}, {b} = {f}({x.text}, {y.text})")
            self.known.append(joined(x, y, b))
            return joined(x, y, a)
        self.functions.append(
            f"fn {f}[T: dtype](a: T, b: T) -> T:\n    c = max(a, b)\n    return c\n"
        )
        return self.named(joined(x, y, f"{f}({x.text}, b={y.text})"))

    def _library(self, dtype: str, axes: Axes) -> Value:
        name = self.chance.choice(("sin", "cos", "erf", "sigmoid", "tanh"))
        self._import("import std.math")
        x = self.value(dtype, axes, 2)
        self.note(f"std.{name}", dtype)
        return self.named(approximate(x, f"math.{name}({x.text})", 1.0, 1.2, 2.0**-20))

    def _ptx(self, dtype: str, axes: Axes) -> Value:
        f = self.fresh("fun")
        self.functions.append(f"fn {f}(a, b):\n    return max(a, b)\n")
        x, y = self.value(dtype, axes, 2), self.value(dtype, axes, 2)
        self.note("ptx", dtype)
        text = f'ptx[f32]("max.f32 {{0}}, {{1}}, {{2}};", {x.text}, {y.text}, meaning={f})'
        return self.named(joined(x, y, text))

    def _custom(self, dtype: str, axes: Axes) -> Value:
        """``reduce`` and ``scan`` by a function of the file."""
        if len(axes) > 1:
            raise TooLarge
        inner, place, _ = self.along(axes)
        f, word = self.fresh("fun"), self.chance.choice(("reduce", "scan"))
        self.functions.append(f"fn {f}(a, b):\n    return max(a, b)\n")
        x = self.value(dtype, inner, 1)
        low = {"s8": -128, "s16": -(2**15), "s32": -(2**31), "s64": -(2**63)}.get(dtype, 0)
        identity = "-inf" if dtype in FLOATS else str(low)
        self.note(word, dtype)
        text = f"{word}({f}, {x.text}, axis={place}, identity={identity})"
        if word == "scan":
            text = f"max({text}, axis={place})"
        return self.named(x.said(text, axes=axes))

    def _sum_in_order(self, dtype: str, axes: Axes) -> Value:
        """A strict sum along an axis that is there whole."""
        if len(axes) > 1 or dtype in ("f16", "bf16"):
            raise TooLarge
        inner, place, extra = self.along(axes)
        name = self.fresh("v")
        self.line("strict:")
        x = self._element(dtype, inner)
        self.note("strict", dtype)
        self.line(f"    {name} = sum({x.text}, axis={place})")
        return summed(x, extra.most, dtype, name, axes)

    def _update(self, dtype: str, axes: Axes) -> Value:
        """Atomic updates, each of an element of its own or in an order that does not matter."""
        if not axes:
            raise TooLarge
        kind = self.chance.choice(("s32", "u32", "s64", "u64"))
        outer = (self.batch,) if self.batch else ()
        name = self.array(kind, (*outer, *axes), "inout ")
        self.updated.append(name)
        x = self.value(kind, axes, 2)
        place = f"{name}[{subscripts((*outer, *axes))}]"
        words = [*_UPDATES, "exchange", "compare_exchange"]
        word = self.chance.choice(words)
        self.note(f"atomic_{word}", kind)
        expected = "0, " if word == "compare_exchange" else ""
        call = f"atomic_{word}({place}, {expected}{x.text})"
        if self.chance.random() < 0.5:
            self.known.append(self.named(whole(kind, call, axes)))
        else:
            self.line(call)
        once = not outer and [a.is_tile for a in axes[:2]] in ([True], [True, False])
        if once and word in ("add", "and", "or", "xor") and self.chance.random() < 0.4:
            total = self.array(kind, (Axis("0", "3", 1),), "inout ")
            self.updated.append(total)
            self.note("update at places", kind)
            self.line(f"{total}.at({axes[0].index} % 4, drop) {_UPDATES[word]}= 3")
        return self.named(self.value(dtype, axes, 1))

    def _scatter(self, dtype: str, axes: Axes) -> Value:
        if len(axes) != 1 or not axes[0].is_tile or self.batch:
            raise TooLarge
        x = self.named(self.value(dtype, axes, 2, exact=True))
        name = self.array(dtype, axes, "inout ")
        self.updated.append(name)
        self.note("store at", dtype)
        shift = self.chance.choice(("- 1", "+ 2", "* 2"))
        self.line(f"{name}.at({axes[0].index} {shift}, drop) = {x.text}")
        return x
