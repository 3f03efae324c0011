"""Random well-typed expressions: every operator and function on values, over given axes.

Idea: ``value(dtype, axes, depth)`` draws one way to make such a value and asks for its operands in
the same manner, down to array elements, scalars, indices and literals. Arrays are declared as they
are needed. What is drawn is counted by operation and element type.

Never: writes statements, or a decision on a float that executors may round differently.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from tests.fuzz.values import (
    DTYPES,
    FLOATS,
    INTEGERS,
    Axis,
    TooLarge,
    Value,
    added,
    approximate,
    converted,
    joined,
    multiplied,
    number,
    summed,
    whole,
)

Axes = tuple[Axis, ...]
INPUT_BOUND, INPUT_GRAIN = 2.0, 2
"""Floats of input arrays are quarters up to 2, which every float type holds."""
_TRIES = 30
_FAST = {"exp": 2.0**-18, "exp2": 2.0**-19, "log": 2.0**-17, "log2": 2.0**-18, "tanh": 2.0**-10}
"""Errors of functions, a few times what the page of the language allows."""
_OTHER_SIGN = {"s32": "u32", "u32": "s32", "s64": "u64", "u64": "s64"}
STATIC = (1, 3, 7, 16, 20, 32)


class Expressions:
    """Draws expressions; what it declares and uses stays in its fields."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.used: Counter[tuple[str, str]] = Counter()
        self.parameters: dict[str, str] = {}
        self.dims: dict[str, int] = {}
        self.known: list[Value] = []
        """Values that have names where the next expression stands."""
        self.batch: Axis | None = None
        """An axis of which the grid takes one index each time."""
        self.number = 0

    def note(self, word: str, dtype: str) -> None:
        """Count one use of an operation on an element type."""
        self.used[word, dtype] += 1

    def fresh(self, stem: str) -> str:
        """A name that nothing has."""
        self.number += 1
        return f"{stem}{self.number}"

    def array(self, dtype: str, axes: Axes, mode: str = "") -> str:
        """An array with these axes, perhaps one that is there."""
        extents = ", ".join(a.extent for a in axes)
        kind = f"{mode}{dtype}[{extents}]"
        same = [n for n, k in self.parameters.items() if k == kind]
        if same and not mode and self.chance.random() < 0.4:
            return self.chance.choice(same)
        name = self.fresh("y" if mode else "x")
        self.parameters[name] = kind
        return name

    # --- drawing ----------------------------------------------------------------------------------

    def value(self, dtype: str, axes: Axes, depth: int, exact: bool = False) -> Value:
        """A value of these axes, by one of the ways that there are."""
        for _ in range(_TRIES):
            ways = self._ways(dtype, axes) if depth > 0 else [self._leaf]
            before = self.used.copy()
            try:
                made = self.chance.choice(ways)(dtype, axes, depth - 1)
            except TooLarge:
                self.used = before
                continue
            if made.exact or not exact:
                return made
            self.used = before
        return self._element(dtype, axes)

    def _ways(self, dtype: str, axes: Axes) -> list[Callable[[str, Axes, int], Value]]:
        ways: list[Callable[[str, Axes, int], Value]] = [self._leaf, self._cast]
        if dtype == "bool":
            ways += [*[self._compare] * 9, self._logic, self._logic, self._quantified]
        elif dtype in INTEGERS:
            ways += [*[self._integer] * 4, self._choice, self._reduced, self._scanned]
            ways += [self._unary, self._place] if dtype == "s32" else [self._unary]
        elif dtype in FLOATS:
            ways += [*[self._float] * 4, self._choice, self._reduced, self._function]
            ways += [self._unary, self._scanned]
        if len(axes) == 2:
            ways += [self._transposed]
        return ways

    def wide(self, dtype: str, axes: Axes, depth: int, exact: bool = False) -> Value:
        """A value that meets these axes: of the same, or of fewer that are repeated."""
        draw = self.chance.random()
        if len(axes) != 2 or draw < 0.6:
            return self.value(dtype, axes, depth, exact)
        if draw < 0.7:
            self.note("scalar meets tile", dtype)
            return self.value(dtype, (), min(depth, 1), exact)
        kept, items = (axes[0], ":, None") if draw < 0.85 else (axes[1], "None, :")
        self.note("broadcast", dtype)
        found = self.value(dtype, (kept,), depth, exact)
        return found.said(f"({found.text})[{items}]", axes=axes)

    def pair(self, dtype: str, axes: Axes, depth: int, exact: bool = False) -> tuple[Value, Value]:
        """Two values that meet, one of which has all axes."""
        x = self.value(dtype, axes, depth, exact)
        y = self.wide(dtype, axes, depth, exact)
        return x, y

    # --- without operands -------------------------------------------------------------------------

    def _leaf(self, dtype: str, axes: Axes, depth: int) -> Value:
        fitting = [v for v in self.known if v.dtype == dtype and v.axes == axes]
        if fitting and self.chance.random() < 0.6:
            return self.chance.choice(fitting)
        draw = self.chance.random()
        if draw < 0.1 and dtype in (*INTEGERS, *FLOATS) and axes:
            return self._filled(dtype, axes)
        if dtype == "s32" and len(axes) == 1 and axes[0].is_tile and draw < 0.3:
            self.note("index", "s32")
            return whole("s32", f"({axes[0].index} + 0)", axes)
        if draw < 0.25 and axes and all(a.is_tile for a in axes):
            return self._gathered(dtype, axes)
        return self._element(dtype, axes)

    def _element(self, dtype: str, axes: Axes) -> Value:
        if not axes:
            return self._scalar(dtype)
        outer = (self.batch,) if self.batch and self.chance.random() < 0.4 else ()
        name = self.array(dtype, (*outer, *axes))
        self.note("load", dtype)
        return self.input(dtype, f"{name}[{subscripts((*outer, *axes))}]", axes)

    def _scalar(self, dtype: str) -> Value:
        if dtype in FLOATS and self.chance.random() < 0.5:
            literal = self.chance.choice(("0.5", "1.25", "2.0", "0.0"))
            return number(dtype, f"cast[{dtype}]({literal})", (), 2.0, 2, 0.0)
        name = self.array(dtype, (Axis("0", "3", 1),))
        return self.input(dtype, f"{name}[{self.chance.randrange(3)}]", ())

    def input(self, dtype: str, text: str, axes: Axes) -> Value:
        """What an input array holds."""
        if dtype == "bool" or dtype in INTEGERS:
            return whole(dtype, text, axes)
        return number(dtype, text, axes, INPUT_BOUND, INPUT_GRAIN, 0.0)

    def literal(self, dtype: str) -> Value:
        """A weak literal that the type holds."""
        if dtype in INTEGERS:
            return whole(dtype, str(self.chance.randint(1, 8)), ())
        text = self.chance.choice(("0.25", "0.5", "1.5", "2", "1"))
        return number(dtype, text, (), 2.0, 2, 0.0)

    def _filled(self, dtype: str, axes: Axes) -> Value:
        if any(not a.is_tile and not a.extent.isdigit() for a in axes):
            raise TooLarge
        shape = ", ".join(a.index if a.is_tile else a.extent for a in axes)
        if self.chance.random() < 0.5:
            self.note("zeros", dtype)
            made = f"zeros[{dtype}]({shape})"
            return (
                whole(dtype, made, axes)
                if dtype in INTEGERS
                else number(dtype, made, axes, 1.0, 0, 0.0)
            )
        self.note("full", dtype)
        x = self._scalar(dtype)
        return x.said(f"full[{dtype}]({shape}, {x.text})", axes=axes)

    def _gathered(self, dtype: str, axes: Axes) -> Value:
        self.note("at", dtype)
        name = self.array(dtype, axes)
        shifted = self.chance.randrange(len(axes))
        places = [a.index for a in axes]
        places[shifted] += self.chance.choice((" - 1", " + 2", " * 2", " // 2"))
        fill = "false" if dtype == "bool" else "1"
        return self.input(dtype, f"{name}.at({', '.join(places)}, fill={fill})", axes)

    # --- element by element -----------------------------------------------------------------------

    def _cast(self, dtype: str, axes: Axes, depth: int) -> Value:
        source = self.chance.choice(DTYPES)
        x = self.value(source, axes, depth, exact=dtype in (*INTEGERS, "bool"))
        self.note(f"cast to {dtype}", source)
        self.note("cast", dtype)
        if source in INTEGERS and dtype not in INTEGERS and dtype != "bool":
            x = self._small(x)
        return converted(x, dtype, f"cast[{dtype}]({x.text})")

    def _small(self, x: Value) -> Value:
        """An integer as one of which floats hold every value."""
        return x.said(f"({x.text} % 4)", bound=4.0)

    def _float(self, dtype: str, axes: Axes, depth: int) -> Value:
        op = self.chance.choice(("+", "-", "*", "/", "min", "max", "**"))
        if op == "**":
            x = self.value(dtype, axes, depth)
            self.note("**", dtype)
            return multiplied(x, x, f"({x.text}) ** 2")
        x, y = self.pair(dtype, axes, depth)
        if op != "/" and self.chance.random() < 0.2:
            y = self.literal(dtype)
        self.note(op, dtype)
        if op in ("min", "max"):
            return joined(x, y, f"{op}({x.text}, {y.text})")
        if op == "*":
            return multiplied(x, y, f"({x.text} * {y.text})")
        if op != "/":
            return added(x, y, f"({x.text} {op} {y.text})")
        y = self._above_one(y)
        error = x.error + x.bound * y.error + x.bound * 2.0 ** (1 - FLOATS[dtype])
        return number(dtype, f"({x.text} / {y.text})", x.axes, x.bound, 0, error)

    def _above_one(self, x: Value) -> Value:
        made = added(x, number(x.dtype, "1", (), 1.0, 0, 0.0), f"(abs({x.text}) + 1)")
        self.note("abs", x.dtype)
        return made

    def _function(self, dtype: str, axes: Axes, depth: int) -> Value:
        name = self.chance.choice(
            ("exp", "exp2", "log", "log2", "tanh", "sqrt", "rsqrt", "exp2sub")
        )
        if dtype == "f64" and name != "sqrt" and self.chance.random() < 0.5:
            name = "sqrt"  # the others are long: a program of many takes its time to compile
        x = self.value(dtype, axes, depth)
        own = _FAST.get(name, 2.0**-19) if dtype != "f64" else 2.0**-50
        if name == "exp2sub" and dtype != "f32":
            name = "exp2"
        self.note(name, dtype)
        if name == "exp2sub":
            y = self.literal("f32")
            return approximate(x, f"exp2sub(-abs({x.text}), {y.text})", 1.0, 1.0, own)
        if name in ("exp", "exp2"):
            return approximate(x, f"{name}(-abs({x.text}))", 1.0, 1.0, own)
        if name == "tanh":
            return approximate(x, f"tanh({x.text})", 1.0, 1.0, own)
        above = self._above_one(x)
        bound = {"sqrt": above.bound, "rsqrt": 1.0}.get(name, 16.0)
        return approximate(above, f"{name}({above.text})", bound, 1.5, own)

    def _integer(self, dtype: str, axes: Axes, depth: int) -> Value:
        ops = ("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "min", "max", "**")
        op = self.chance.choice(ops)
        x, y = self.pair(dtype, axes, depth)
        if self.chance.random() < 0.2:
            y = self.literal(dtype)
        self.note(op, dtype)
        if op == "**":
            return x.said(f"({x.text}) ** {self.chance.randint(1, 4)}")
        if op in ("min", "max"):
            return x.said(f"{op}({x.text}, {y.text})")
        return x.said(f"({x.text} {op} {y.text})")

    def _unary(self, dtype: str, axes: Axes, depth: int) -> Value:
        if dtype in _OTHER_SIGN and self.chance.random() < 0.2:
            self.note("bitcast", dtype)
            x = self.value(_OTHER_SIGN[dtype], axes, depth)
            return whole(dtype, f"bitcast[{dtype}]({x.text})", axes)
        x = self.value(dtype, axes, depth)
        op = self.chance.choice(("-", "~", "abs") if dtype in INTEGERS else ("-", "abs"))
        self.note({"-": "negated"}.get(op, op), dtype)
        return x.said(f"abs({x.text})" if op == "abs" else f"({op}{x.text})")

    def _choice(self, dtype: str, axes: Axes, depth: int) -> Value:
        if self.chance.random() < 0.5:
            condition = self._compare("bool", axes, depth)
        else:
            condition = self.wide("bool", axes, depth, exact=True)
        x, y = self.pair(dtype, axes, depth)
        self.note("where", dtype)
        return joined(x, y, f"where({condition.text}, {x.text}, {y.text})")

    def _compare(self, dtype: str, axes: Axes, depth: int) -> Value:
        kind = self.chance.choice((*FLOATS, *INTEGERS))
        x, y = self.pair(kind, axes, depth, exact=True)
        op = self.chance.choice(("<", "<=", ">", ">=", "==", "!="))
        self.note(op, kind)
        low = self.literal(kind).text
        text = (
            f"({low} <= {x.text} {op} {y.text})"
            if self.chance.random() < 0.2
            else (f"({x.text} {op} {y.text})")
        )
        return whole("bool", text, axes)

    def _logic(self, dtype: str, axes: Axes, depth: int) -> Value:
        x, y = self.pair("bool", axes, depth, exact=True)
        if not axes and self.chance.random() < 0.6:
            op = self.chance.choice(("and", "or", "not"))
            self.note(op, "bool")
            return x.said(f"(not {x.text})" if op == "not" else f"({x.text} {op} {y.text})")
        op = self.chance.choice(("&", "|", "^", "~"))
        self.note(op, "bool")
        return x.said(f"(~{x.text})" if op == "~" else f"({x.text} {op} {y.text})")

    # --- along an axis ----------------------------------------------------------------------------

    def along(self, axes: Axes) -> tuple[Axes, int, Axis]:
        """One axis more, which is there whole: all axes, its place, and the axis."""
        extents = [(str(n), n) for n in STATIC]
        extents += [(d, n) for d, n in self.dims.items() if not d.startswith("B")] * 2
        extent, most = self.chance.choice(extents)
        extra = Axis(":", extent, most)
        place = self.chance.randrange(len(axes) + 1)
        return (*axes[:place], extra, *axes[place:]), place, extra

    def _operand(self, dtype: str, axes: Axes, depth: int) -> tuple[Value, int, Axis]:
        if len(axes) > 1:
            raise TooLarge
        inner, place, extra = self.along(axes)
        return self.value(dtype, inner, depth), place, extra

    def _reduced(self, dtype: str, axes: Axes, depth: int) -> Value:
        x, place, extra = self._operand(dtype, axes, depth)
        last = place == len(axes)
        names = ["min", "max", *(["rowmin", "rowmax"] if last else [])]
        if dtype not in ("f16", "bf16"):
            names += [
                "sum",
                "sum",
                *(["rowsum"] if last else []),
                *(["prod"] * (dtype in INTEGERS)),
            ]
        name = self.chance.choice(names)
        self.note(name, dtype)
        self.note(f"along axis {place} of {len(x.axes)}", dtype)
        text = f"{name}({x.text})" if name.startswith("row") else f"{name}({x.text}, axis={place})"
        if name in ("sum", "rowsum"):
            return summed(x, extra.most, dtype, text, axes)
        return x.said(text, axes=axes)

    def _quantified(self, dtype: str, axes: Axes, depth: int) -> Value:
        x, place, _ = self._operand("bool", axes, depth)
        name = self.chance.choice(("any", "all"))
        self.note(name, "bool")
        return x.said(f"{name}({x.text}, axis={place})", axes=axes)

    def _place(self, dtype: str, axes: Axes, depth: int) -> Value:
        if len(axes) > 1:
            raise TooLarge
        inner, place, _ = self.along(axes)
        kind = self.chance.choice((*FLOATS, *INTEGERS))
        x = self.value(kind, inner, depth, exact=True)
        name = self.chance.choice(("argmax", "argmin"))
        self.note(name, kind)
        return whole("s32", f"{name}({x.text}, axis={place})", axes)

    def _scanned(self, dtype: str, axes: Axes, depth: int) -> Value:
        places = [n for n, a in enumerate(axes) if not a.is_tile]
        if not places or dtype in ("f16", "bf16"):
            raise TooLarge
        place = self.chance.choice(places)
        x = self.value(dtype, axes, depth)
        names = ("cumsum", "cummax", "cummin", *(("cumprod",) if dtype in INTEGERS else ()))
        name = self.chance.choice(names)
        self.note(name, dtype)
        turned = self.chance.choice(("", ", reverse=true"))
        text = f"{name}({x.text}, axis={place}{turned})"
        return summed(x, axes[place].most, dtype, text, axes) if name == "cumsum" else x.said(text)

    def _transposed(self, dtype: str, axes: Axes, depth: int) -> Value:
        x = self.value(dtype, (axes[1], axes[0]), depth)
        self.note(".T", dtype)
        return x.said(f"({x.text}).T", axes=axes)


def subscripts(axes: Sequence[Axis]) -> str:
    """The subscripts that select these axes."""
    return ", ".join(a.index for a in axes)
