"""Programs of the language that compute at the edges, and what the interpreter says they give.

Idea: one kernel a subject and element type, with an array for each operation, so that few launches
cover the language. A program is text; the values that it must leave are those of the interpreter,
which shares no code with the compiler. Arrays lie between guards (``cta_case.Placed``).

Never: touches a GPU, or states a result of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from tests.gpu.cta_case import Placed, held
from tests.numbers.edges import ALL, FLOATS, INTEGERS, STORED, Data, few, pairs, values
from tilec.compiler import Compiled, compile_source, front
from tilec.interp.interpret import bind_dims, choose_sizes, interpret
from tilec.interp.numbers import decode, storage
from tilec.ir.facts import Facts
from tilec.ir.types import DTYPES
from tilec.runtime.arrays import ArrayView
from tilec.runtime.specialise import bind_dims as dims_of
from tilec.runtime.specialise import facts_for
from tilec.source import SourceFile
from tilec.targets import by_name

SM = "90"


@dataclass(frozen=True)
class Program:
    """A kernel, its inputs, and the dtypes, shapes and places of its outputs."""

    name: str
    text: str
    inputs: Mapping[str, Placed]
    outputs: Mapping[str, Placed]
    """What they hold is filled in by ``expected``."""
    scalars: Mapping[str, float] = field(default_factory=dict)

    @property
    def source(self) -> SourceFile:
        """The text under the program's name."""
        return SourceFile(f"{self.name}.tk", self.text)

    def expected(self) -> dict[str, Placed]:
        """The outputs as the interpreter leaves them."""
        kernel = front(self.source, None, {}, by_name(SM)).kernels[0]
        arrays = {n: a.values.copy() for n, a in {**self.inputs, **self.outputs}.items()}
        sizes = choose_sizes(kernel, bind_dims(kernel, arrays))
        interpret(kernel, arrays, dict(self.scalars), sizes)
        return {n: Placed(a.dtype, arrays[n], a.strides, a.offset) for n, a in self.outputs.items()}

    def views(self, addresses: Mapping[str, int]) -> dict[str, ArrayView]:
        """The arrays as a call has them, if their storages lie at these addresses."""
        return {
            name: ArrayView(
                addresses[name] + a.first, a.values.shape, a.steps, a.dtype, ("cuda", 0), None
            )
            for name, a in {**self.inputs, **self.outputs}.items()
        }

    def facts(self) -> Facts:
        """What a call promises; every storage is as aligned as an allocation."""
        whole = {**self.inputs, **self.outputs}
        views = self.views({name: 4096 * (n + 1) for n, name in enumerate(whole)})
        kernel = front(self.source, None, {}, by_name(SM)).kernels[0]
        types = {arg.name: arg.type for arg in kernel.body.args if arg.name in whole}
        return facts_for(views, dims_of(types, {n: a.values.shape for n, a in whole.items()}))

    def compiled(self) -> Compiled:
        """The code of such a call."""
        return compile_source(self.source, None, {}, by_name(SM), self.facts())


def given(dtype: str, data: Data, **where: object) -> Placed:
    """An input."""
    return Placed(dtype, held(dtype, data), **where)  # type: ignore[arg-type]


def unwritten(dtype: str, *shape: int, **where: object) -> Placed:
    """An output."""
    return Placed(dtype, np.zeros(shape, storage(DTYPES[dtype])), **where)  # type: ignore[arg-type]


# --- element by element --------------------------------------------------------------------------

_BOTH = ("x + y", "x - y", "x * y", "min(x, y)", "max(x, y)", "-x", "abs(x)", "x ** 3")
_BITS = ("x & y", "x | y", "x ^ y", "~x")
_SAME_WIDTH = {"f32": "s32", "s32": "u32", "u32": "f32", "f64": "u64", "u64": "s64", "s64": "f64"}
_RELATIONS = ("<", "<=", ">", ">=", "==", "!=")


def operations(dtype: str) -> dict[str, str]:
    """The expressions of x, y and c for a type, with the type that each gives."""
    kind = DTYPES[dtype]
    found: dict[str, str] = {"where(c, x, y)": dtype}
    relations = ("==", "!=") if dtype == "bool" or dtype in STORED else _RELATIONS
    found |= {f"x {sign} y": "bool" for sign in relations}
    if dtype == "bool":
        return found | dict.fromkeys(_BITS, dtype)
    if dtype in STORED:
        return found
    found |= dict.fromkeys(_BOTH, dtype)
    if dtype in _SAME_WIDTH:
        found[f"bitcast[{_SAME_WIDTH[dtype]}](x)"] = _SAME_WIDTH[dtype]
    if kind.is_float:
        return found | {"x / y": dtype, "sqrt(x)": dtype, "x ** -2": dtype}
    more = (*_BITS, "x // y", "x % y", "x << y", "x >> y", "x // 8", "x % 8", "x // 7", "x % 7")
    return found | dict.fromkeys(more, dtype)


def casts(dtype: str) -> dict[str, str]:
    """The casts of x to every type."""
    found = {f"cast[{to}](x)": to for to in ALL if to != dtype}
    return found | {f"cast[{to}](x, saturate=false)": to for to in STORED[1:] if to != dtype}


def pointwise(
    name: str, inputs: Mapping[str, Placed], results: Mapping[str, str], over: str = "tiles(M)"
) -> Program:
    """A kernel that writes every expression, element by element, into an array of its own."""
    outputs = {f"o{n}": dtype for n, dtype in enumerate(results.values())}
    head = [f"{n}: {a.dtype}[M]" for n, a in inputs.items()]
    head += [f"{n}: out {dtype}[M]" for n, dtype in outputs.items()]
    lines = [f"kernel k({', '.join(head)}):", f"    for i in parallel({over}):"]
    names = {n: f"in_{n}" for n in inputs}
    lines += [f"        {n} = {names[n]}[i]" for n in inputs]
    lines[0] = f"kernel k({', '.join('in_' + h if h[0] != 'o' else h for h in head)}):"
    lines += [f"        o{n}[i] = {text}" for n, text in enumerate(results)]
    count = len(next(iter(inputs.values())).values)
    return Program(
        name,
        "\n".join(lines) + "\n",
        {names[n]: a for n, a in inputs.items()},
        {n: unwritten(dtype, count) for n, dtype in outputs.items()},
    )


def _operands(dtype: str, every: int = 1) -> dict[str, Placed]:
    x, y = (side[::every] for side in pairs(dtype))
    chosen = np.random.default_rng(1).random(len(x)) < 0.5
    return {"x": given(dtype, x), "y": given(dtype, y), "c": given("bool", chosen)}


def elementwise(whole: bool = False) -> Iterator[Program]:
    """All operations on all pairs, and all casts of all values."""
    for dtype in ALL:
        yield pointwise(f"operations {dtype}", _operands(dtype), operations(dtype))
        x = {"x": given(dtype, values(dtype, whole))}
        yield pointwise(f"casts {dtype}", x, casts(dtype))


def scalars() -> Iterator[Program]:
    """The same on single elements, each a CTA of its own: some of the pairs."""
    for dtype in ALL:
        inputs = _operands(dtype, every=1 if dtype == "bool" else 23)
        results = operations(dtype) | casts(dtype)
        yield pointwise(f"scalars {dtype}", inputs, results, "M")


# --- along an axis -------------------------------------------------------------------------------


def _rows(dtype: str, rows: int, columns: int) -> Data:
    chance = np.random.default_rng(rows * columns)
    return chance.choice(few(dtype), (rows, columns))


def _exact_rows(dtype: str, rows: int, columns: int) -> Data:
    """Numbers whose sums and products are exact in every order."""
    chance = np.random.default_rng(columns)
    return chance.choice(np.array([-2, -1, 1, 1, 2, 3]), (rows, columns)).astype(few(dtype).dtype)


def reductions() -> Iterator[Program]:
    """Everything that is combined along rows and along columns, by few threads and by many."""
    for dtype in (*FLOATS, *INTEGERS, "bool"):
        for rows, columns, axis in ((5, 37, 1), (5, 37, 0), (3, 2500, 1), (70, 3, 0)):
            yield _reduction(dtype, rows, columns, axis)


def _reduction(dtype: str, rows: int, columns: int, axis: int) -> Program:
    ordered = ("any", "all") if dtype == "bool" else ("min", "max", "argmin", "argmax")
    summed = ("sum", "prod") if dtype in ("f64", "f32", *INTEGERS) else ()
    results = {f"{f}(x, axis={axis})": "s32" if f.startswith("arg") else dtype for f in ordered}
    results |= {f"{f}(e, axis={axis})": dtype for f in summed if dtype in INTEGERS or f == "sum"}
    at, kept, loop = ("i, :", "M", "i in parallel(tiles(M))") if axis else (
        ":, i", "N", "i in parallel(tiles(N))"
    )  # fmt: skip
    head = [f"x_: {dtype}[M, N]", f"e_: {dtype}[M, N]"] if summed else [f"x_: {dtype}[M, N]"]
    head += [f"o{n}: out {to}[{kept}]" for n, to in enumerate(results.values())]
    lines = [f"kernel k({', '.join(head)}):", f"    for {loop}:", f"        x = x_[{at}]"]
    lines += [f"        e = e_[{at}]"] if summed else []
    lines += [f"        o{n}[i] = {text}" for n, text in enumerate(results)]
    inputs = {"x_": given(dtype, _rows(dtype, rows, columns))}
    if summed:
        exact = dtype not in INTEGERS
        data = (_exact_rows if exact else _rows)(dtype, rows, columns)
        inputs["e_"] = given(dtype, data)
    count = rows if axis else columns
    outputs = {f"o{n}": unwritten(to, count) for n, to in enumerate(results.values())}
    name = f"reductions {dtype} {rows}x{columns} axis {axis}"
    return Program(name, "\n".join(lines) + "\n", inputs, outputs)


# --- where arrays lie ----------------------------------------------------------------------------

_PLACES = ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (3, 2, 5), (8, 8, 8), (4, 4, 3))
"""Elements by which input and output start late, and that a pitch has more."""


def alignments() -> Iterator[Program]:
    """Loads and stores of every type at every alignment: a copy and a transposed copy."""
    rows, columns = 17, 40
    for dtype in ALL:
        data = np.random.default_rng(5).choice(few(dtype), (rows, columns))
        for late_in, late_out, more in _PLACES:
            inner = columns + more
            text = (
                f"kernel k(x: {dtype}[M, N], y: out {dtype}[M, N], z: out {dtype}[N, M]):\n"
                "    for i, j in parallel(tiles(M), tiles(N)):\n"
                "        y[i, j] = x[i, j]\n"
                "        z[j, i] = x[i, j].T\n"
            )
            yield Program(
                f"alignment {dtype} {late_in} {late_out} {more}",
                text,
                {"x": given(dtype, data, strides=(inner, 1), offset=late_in)},
                {
                    "y": unwritten(dtype, rows, columns, strides=(inner, 1), offset=late_out),
                    "z": unwritten(dtype, columns, rows, offset=late_out),
                },
            )


def programs(whole: bool = False) -> Iterator[Program]:
    """All of them; ``whole`` casts every value of the 16-bit types."""
    yield from elementwise(whole)
    yield from scalars()
    yield from reductions()
    yield from alignments()


def decoded(array: Placed) -> Data:
    """An array's numbers."""
    return decode(DTYPES[array.dtype], array.values)
