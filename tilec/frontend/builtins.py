"""The functions of the language: one function here for each, found by its name.

A builtin gets the call and returns a checked expression built from ops; its docstring is its
reference. To add one, write one function under ``@builtin`` and a file in ``tests/lang``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn

from tilec.diagnostics import did_you_mean
from tilec.frontend import ast
from tilec.frontend.checked import (
    Apply,
    ArrayType,
    Axis,
    Cast,
    Const,
    Expr,
    ExtentValue,
    Fill,
    IndexType,
    Reduction,
    ScalarType,
    TileType,
    ValidCount,
    Workspace,
)
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import (
    axes_of,
    cast_to,
    dtype_of,
    exactly,
    same_axes,
    same_dtype,
    settle,
    weak_const,
)
from tilec.frontend.nibbles import refuse_alone
from tilec.frontend.places import read_at
from tilec.frontend.strict import is_ordered, refuse_approximate, refuse_chosen_axis
from tilec.frontend.wide_functions import is_wide, wide_function
from tilec.ir.levels.math import BITCAST
from tilec.ir.types import BF16, BOOL, F16, F32, S32, DType, Extent
from tilec.source import Span

_NARROW = (F16, BF16)
_LATER = frozenset(
    {
        *("gather", "join", "scatter"),
    }
)
"""Functions of the language that this version refuses."""


@dataclass
class Call:
    """One call of a builtin: what is between its brackets and parentheses."""

    check: Expressions
    name: str
    span: Span
    brackets: tuple[ast.Expression, ...]
    arguments: tuple[ast.Expression, ...]
    keywords: dict[str, ast.Expression]

    def fail_usage(self, usage: str) -> NoReturn:
        """Refuse a call that is not of the form ``usage``."""
        self.check.report.fail(
            "wrong-arguments",
            f"`{self.name}` is called in another way",
            [(self.span, "called here")],
            help=f"write `{usage}`",
        )

    def values(self, count: int, usage: str) -> list[Expr]:
        """Exactly ``count`` values and no keyword."""
        if len(self.arguments) != count or self.keywords or self.brackets:
            self.fail_usage(usage)
        return [self.check.value(a) for a in self.arguments]

    def dtype(self, usage: str) -> DType:
        """The element type in the brackets."""
        if len(self.brackets) != 1 or self.keywords:
            self.fail_usage(usage)
        return self.check.dtype(self.brackets[0], f"`{self.name}`")

    def apply(self, op: str, operands: list[Expr]) -> Expr:
        """An elementwise op on operands that meet."""
        kind = self.check.common_type(*operands)
        return Apply(kind, self.span, op, tuple(operands))

    def function_of_one(self, op: str) -> Expr:
        """A function of one float, computed in f32 for narrower floats."""
        (x,) = self.values(1, f"{self.name}(x)")
        self.check.need(x, "float", f"`{self.name}`")
        if isinstance(x.type, ScalarType) and x.type.weak:
            x = cast_to(self.check.report, x, F32)
        if self.name != "sqrt" and is_wide(x):
            return wide_function(self.check, self.name, [x], self.span)
        if self.name != "sqrt":
            refuse_approximate(self.check, self.name, x, self.span)
        given = dtype_of(x)
        if given in _NARROW:
            wide = cast_to(self.check.report, x, F32)
            return cast_to(self.check.report, self.apply(op, [wide]), given)
        return self.apply(op, [x])

    def shape(self, items: tuple[ast.Expression, ...]) -> tuple[Axis, ...]:
        """Shape arguments as axes: an index, or a number known at compile time."""
        axes: list[Axis] = []
        for item in items:
            found = self.check.expression(item)
            if isinstance(found.type, IndexType):
                axes.append(found.type.axis)
            elif isinstance(found, ExtentValue):
                # No index would come with the axis, and so nothing would say where it ends.
                self.check.report.not_yet(
                    f"a tile as long as `{found.dim}`, which is known at launch only,",
                    item.span,
                    f"loop over `tiles({found.dim})`, or start from a value along `:`",
                )
            else:
                extent = self.check.integer(item, "an extent")
                if extent < 1:
                    self.fail_usage(f"{self.name}[f32](i, 128)")
                axes.append(Axis.static(extent))
        return tuple(axes)

    def reduce(self, kind: str, axis: int | None, usage: str) -> Expr:
        """Combine along ``axis``, or along the one that the call names."""
        if len(self.arguments) != 1 or self.brackets or self.keywords.keys() - {"axis"}:
            self.fail_usage(usage)
        x = self.check.value(self.arguments[0])
        axes = axes_of(x)
        if axis is None:
            if "axis" not in self.keywords:
                self.fail_usage(usage)
            axis = self.check.integer(self.keywords["axis"], "an axis")
        elif self.keywords:
            self.fail_usage(usage)
        if not -len(axes) <= axis < len(axes):
            self.check.report.fail(
                "wrong-rank",
                f"there is no axis {axis} to combine along",
                [(self.arguments[0].span, f"this is {x.type}")],
                help=f"its axes are 0 to {len(axes) - 1}, and -1 is the last"
                if axes
                else "a single value has no axis",
            )
        self.check.need(x, "bool" if kind in ("and", "or") else "number", f"`{self.name}`")
        if kind in ("add", "mul") and dtype_of(x) in _NARROW:
            self.check.report.fail(
                "narrow-sum",
                f"a sum or product of many {dtype_of(x)} loses its digits",
                [(x.span, f"this is {dtype_of(x)}")],
                help=f"combine in f32: `{self.name}(cast[f32]({x.span.text}))`",
            )
        self.check.along(axes[axis], self.span, f"`{self.name}`")
        rest = tuple(a for n, a in enumerate(axes) if n != axis % len(axes))
        out = TileType(dtype_of(x), rest) if rest else ScalarType(dtype_of(x))
        ordered = is_ordered(self.check, x, kind)
        if ordered:
            refuse_chosen_axis(self.check, x, axes[axis], self.span)
        return Reduction(out, self.span, x, axis % len(axes), kind, ordered)

    def extremum(self, op: str) -> Expr:
        """``max(x, axis=1)`` along an axis, ``max(x, y)`` elementwise."""
        if "axis" in self.keywords:
            return self.reduce(op, None, f"{self.name}(x, axis=1)")
        x, y = self.values(2, f"{self.name}(x, y)` or `{self.name}(x, axis=1)")
        x, y = same_dtype(self.check.report, (x, y))
        self.check.need(x, "number", f"`{self.name}`")
        x, y = same_axes(self.check.report, (x, y))
        return self.apply(op, [x, y])


BUILTINS: dict[str, Callable[[Call], Expr]] = {}
"""All functions of the language by name."""


def builtin(function: Callable[[Call], Expr]) -> Callable[[Call], Expr]:
    """Register a function under its own name (a trailing underscore falls away)."""
    BUILTINS[function.__name__.rstrip("_")] = function
    return function


SEVERAL: dict[str, Callable[[Call], list[Expr]]] = {}
"""Functions that may give several values, beside their entries in ``BUILTINS``."""


def call_builtin_of_several(check: Expressions, node: ast.Call) -> list[Expr]:
    """The values of a call that stands where several are welcome."""
    target = node.function
    brackets: tuple[ast.Expression, ...] = ()
    if isinstance(target, ast.Subscript):
        brackets, target = target.items, target.base
    if isinstance(target, ast.Name) and target.id in SEVERAL:
        call = Call(check, target.id, node.span, brackets, node.arguments, dict(node.keywords))
        return SEVERAL[target.id](call)
    return [check.expression(node)]


def call_builtin(check: Expressions, node: ast.Call) -> Expr:
    """The value of a call."""
    target = node.function
    brackets: tuple[ast.Expression, ...] = ()
    if isinstance(target, ast.Subscript):
        brackets, target = target.items, target.base
    if isinstance(target, ast.Attribute):
        if target.name == "at" and not brackets:
            return read_at(check, node, target)
        check.expression(target)  # refuses unknown ones
    if not isinstance(target, ast.Name):
        check.report.fail("not-a-function", "this cannot be called", [(target.span, "called here")])
    name = target.id
    if name in BUILTINS:
        keywords = dict(node.keywords)
        return BUILTINS[name](Call(check, name, node.span, brackets, node.arguments, keywords))
    if name in ("tiles", "parallel", "range"):
        check.report.fail(
            "not-a-value",
            f"`{name}` says what a loop runs over",
            [(node.span, "used as a value here")],
            help=f"write `for i in {name}(...):`",
        )
    if name == "print":
        check.report.fail(
            "no-value",
            "`print` gives no value",
            [(node.span, "used as a value here")],
            help="write it on a line of its own",
        )
    if name == "static_assert":
        check.report.fail(
            "no-value",
            "`static_assert` gives no value",
            [(node.span, "used as a value here")],
            help="write it on a line of its own",
        )
    if name in _LATER:
        check.report.not_yet(f"`{name}`", node.span, f"there are {', '.join(sorted(BUILTINS))}")
    from tilec.frontend.imports import offering  # which checks files, and so comes after this one

    module = offering(name)
    check.report.fail(
        "unknown-function",
        f"there is no function `{name}`",
        [(target.span, "called here")],
        help=f"write `from {module} import {name}` above"
        if module
        else did_you_mean(name, [*BUILTINS, "tiles", "parallel", "range"]),
    )


@builtin
def zeros(call: Call) -> Expr:
    """``zeros[f32](i, 128)``: a tile of zeros; each argument is an index, a number or a dim."""
    dtype = call.dtype("zeros[f32](i, j)")
    number: int | float = 0.0 if dtype.is_float else 0
    zero = Const(ScalarType(dtype), call.span, False if dtype == BOOL else number)
    axes = call.shape(call.arguments)
    return Fill(TileType(dtype, axes), call.span, zero) if axes else zero


@builtin
def full(call: Call) -> Expr:
    """``full[f32](i, j, value)``: a tile of one repeated scalar, which comes last."""
    usage = "full[f32](i, j, value)"
    dtype = call.dtype(usage)
    if not call.arguments:
        call.fail_usage(usage)
    scalar = call.check.value(call.arguments[-1])
    if axes_of(scalar):
        call.fail_usage(usage)
    axes = call.shape(call.arguments[:-1])
    span = call.brackets[0].span
    return exactly(call.check.report, scalar, dtype, axes, span, "this tile")


@builtin
def cast(call: Call) -> Expr:
    """``cast[bf16](x)``: each element converted; ``saturate=false`` for 8-bit floats."""
    usage = "cast[f32](x)` or `cast[e4m3](x, saturate=false)"
    given = call.keywords.pop("saturate", None)
    dtype = call.dtype(usage)
    if len(call.arguments) != 1:
        call.fail_usage(usage)
    saturate = given is None or bool(call.check.constant(given, "`saturate`"))
    if given is not None and not (dtype.is_float and dtype.bits == 8):
        call.check.report.fail(
            "wrong-arguments",
            f"`saturate` is for e4m3 and e5m2, not for {dtype}",
            [(given.span, "given here")],
            notes=["integers saturate always, and wider floats have an infinity"],
        )
    result = cast_to(call.check.report, call.check.value(call.arguments[0]), dtype)
    if isinstance(result, Cast):
        result.saturate = saturate
    result.span = call.span
    return result


@builtin
def bitcast(call: Call) -> Expr:
    """``bitcast[s64](x)``: the bits of each element, read as another type of the same width."""
    dtype = call.dtype("bitcast[s64](x)")
    if len(call.arguments) != 1:
        call.fail_usage("bitcast[s64](x)")
    x = settle(call.check.report, call.check.value(call.arguments[0]))
    given = dtype_of(x)
    if given.bits != dtype.bits or not {given.name, dtype.name} <= BITCAST:
        call.check.report.fail(
            "wrong-element-type",
            f"the bits of {given} are not read as {dtype}",
            [(x.span, f"this is {given}")],
            notes=[f"`bitcast` is between types of one width, of {', '.join(sorted(BITCAST))}"],
        )
    axes = axes_of(x)
    kind = TileType(dtype, axes) if axes else ScalarType(dtype)
    return Apply(kind, call.span, "bitcast", (x,))


@builtin
def where(call: Call) -> Expr:
    """``where(condition, x, y)``: x where the condition holds, y elsewhere."""
    condition, x, y = call.values(3, "where(condition, x, y)")
    call.check.need(condition, "bool", "`where`")
    x, y = same_dtype(call.check.report, (x, y))
    condition, x, y = same_axes(call.check.report, (condition, x, y))
    axes = next((axes_of(e) for e in (condition, x, y) if axes_of(e)), ())
    kind = TileType(dtype_of(x), axes) if axes else ScalarType(dtype_of(x))
    return Apply(kind, call.span, "where", (condition, x, y))


@builtin
def min_(call: Call) -> Expr:
    """``min(x, y)`` elementwise, ``min(x, axis=1)`` along an axis; NaN if any is NaN."""
    return call.extremum("min")


@builtin
def max_(call: Call) -> Expr:
    """``max(x, y)`` elementwise, ``max(x, axis=1)`` along an axis; NaN if any is NaN."""
    return call.extremum("max")


@builtin
def sum_(call: Call) -> Expr:
    """``sum(x, axis=1)``: the sum along an axis."""
    return call.reduce("add", None, "sum(x, axis=1)")


@builtin
def prod(call: Call) -> Expr:
    """``prod(x, axis=1)``: the product along an axis."""
    return call.reduce("mul", None, "prod(x, axis=1)")


@builtin
def any_(call: Call) -> Expr:
    """``any(x, axis=1)``: whether some element along an axis is true."""
    return call.reduce("or", None, "any(x, axis=1)")


@builtin
def all_(call: Call) -> Expr:
    """``all(x, axis=1)``: whether every element along an axis is true."""
    return call.reduce("and", None, "all(x, axis=1)")


@builtin
def rowsum(call: Call) -> Expr:
    """``rowsum(x)``: the sum along the last axis."""
    return call.reduce("add", -1, "rowsum(x)")


@builtin
def rowmax(call: Call) -> Expr:
    """``rowmax(x)``: the maximum along the last axis."""
    return call.reduce("max", -1, "rowmax(x)")


@builtin
def rowmin(call: Call) -> Expr:
    """``rowmin(x)``: the minimum along the last axis."""
    return call.reduce("min", -1, "rowmin(x)")


@builtin
def exp(call: Call) -> Expr:
    """``exp(x)``: e to the power x."""
    return call.function_of_one("exp")


@builtin
def exp2(call: Call) -> Expr:
    """``exp2(x)``: 2 to the power x."""
    return call.function_of_one("exp2")


@builtin
def log(call: Call) -> Expr:
    """``log(x)``: the natural logarithm."""
    return call.function_of_one("log")


@builtin
def log2(call: Call) -> Expr:
    """``log2(x)``: the logarithm to base 2."""
    return call.function_of_one("log2")


@builtin
def sqrt(call: Call) -> Expr:
    """``sqrt(x)``: the square root, rounded to nearest even."""
    return call.function_of_one("sqrt")


@builtin
def rsqrt(call: Call) -> Expr:
    """``rsqrt(x)``: 1 / sqrt(x)."""
    return call.function_of_one("rsqrt")


@builtin
def tanh(call: Call) -> Expr:
    """``tanh(x)``: the hyperbolic tangent."""
    return call.function_of_one("tanh")


@builtin
def abs_(call: Call) -> Expr:
    """``abs(x)``: the absolute value."""
    (x,) = call.values(1, "abs(x)")
    call.check.need(x, "number", "`abs`")
    return call.apply("abs", [settle(call.check.report, x)])


@builtin
def len_(call: Call) -> Expr:
    """``len(i)``: how many indices of a loop over tiles are valid."""
    if len(call.arguments) != 1 or call.keywords or call.brackets:
        call.fail_usage("len(i)")
    found = call.check.expression(call.arguments[0])
    if not isinstance(found.type, IndexType):
        call.check.report.fail(
            "wrong-element-type",
            "`len` counts the indices of a loop over tiles",
            [(found.span, f"this is {found.type}")],
        )
    if found.type.axis.origin == "static":
        return weak_const(int(found.type.axis.size), call.span)
    call.check.along(found.type.axis, call.span, "`len`")
    return ValidCount(ScalarType(S32), call.span, found)


@builtin
def temp(call: Call) -> Expr:
    """``temp[f32](P, N)``: workspace in global memory, owned by the launcher, for later phases."""
    usage = "ws = temp[f32](M, N)` before the `parallel` loops, with dimensions or numbers"
    dtype = call.dtype(usage)
    refuse_alone(call.check.report, dtype, call.span, "workspace")
    if call.check.inside_parallel or not call.arguments:
        call.fail_usage(usage)
    extents: list[Expr] = []
    dims: list[Extent] = []
    for item in call.arguments:
        found = call.check.expression(item)
        if isinstance(found, ExtentValue):
            dims.append(found.dim)
        elif isinstance(found, Const) and type(found.value) is int and found.value >= 1:
            dims.append(found.value)
        else:
            call.fail_usage(usage)
        extents.append(settle(call.check.report, found))
    kind = ArrayType(dtype, tuple(dims), "inout")
    return call.check.let("", Workspace(kind, call.span, tuple(extents)))


# Functions about rows, products, updates and instructions stand in files of their own.
import_module("tilec.frontend.combining")
import_module("tilec.frontend.inline_ptx")
import_module("tilec.frontend.rows")
import_module("tilec.frontend.updates")
import_module("tilec.frontend.products")
