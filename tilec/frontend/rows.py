"""Functions that follow a row's maximum, find places along an axis, or run along one.

``argmax`` and ``argmin`` need no op of their own: the place of an extremum is the least index whose
element equals it, or is NaN where a NaN took part; of no elements it is -1.
"""

from __future__ import annotations

from tilec.frontend.builtins import Call, builtin
from tilec.frontend.checked import (
    AnchorOf,
    Apply,
    Axis,
    Const,
    Expand,
    Expr,
    IndexType,
    Indices,
    Positions,
    Reduction,
    Ref,
    Relation,
    ScalarType,
    Scanned,
    TileType,
    WholeAxis,
)
from tilec.frontend.meet import axes_of, dtype_of, same_axes, same_dtype, spread
from tilec.frontend.strict import refuse_loose
from tilec.frontend.wide_functions import is_wide, wide_function
from tilec.ir.types import BF16, BOOL, F16, S32

_NARROW = (F16, BF16)
_NOWHERE = (1 << 31) - 1
_ANCHOR = "anchor(m, s)` or `anchor(m, s, slack=64)"


@builtin
def anchor(call: Call) -> Expr:
    """``anchor(m, s, slack=64)``: some r a row with m <= r <= max(m, rowmax(s)), near rowmax(s)."""
    if len(call.arguments) != 2 or call.brackets or call.keywords.keys() - {"slack"}:
        call.fail_usage(_ANCHOR)
    refuse_loose(call.check, "`anchor`", call.span, "use the largest: `max(m, rowmax(s))`")
    running, scores = (call.check.value(a) for a in call.arguments)
    running, scores = same_dtype(call.check.report, (running, scores))
    call.check.need(scores, "float", "`anchor`")
    if not axes_of(scores) or axes_of(scores)[:-1] != axes_of(running):
        call.check.report.fail(
            "axes-do-not-meet",
            "`anchor` needs one value for each row of scores",
            [(running.span, f"this is {running.type}"), (scores.span, f"this is {scores.type}")],
            help=f"start with `{running.span.text} = full[{dtype_of(scores)}](i, -inf)`",
        )
    slack: float | None = None
    if "slack" in call.keywords:
        found = call.check.constant(call.keywords["slack"], "`slack`")
        slack = float(found)
        if not 0 <= slack <= 64:
            call.check.report.fail(
                "slack-too-wide",
                f"`slack` is from 0 to 64, not {slack:g}",
                [(call.keywords["slack"].span, "given here")],
                notes=["weights may exceed 1 by 2 to the power of the slack, and are summed"],
            )
    return AnchorOf(running.type, call.span, running, scores, slack)


@builtin
def exp2sub(call: Call) -> Expr:
    """``exp2sub(x, r)``: 2 to the power x - r, and 0 where x is -inf, whatever r is."""
    x, r = call.values(2, "exp2sub(x, r)")
    x, r = same_dtype(call.check.report, (x, r))
    call.check.need(x, "float", "`exp2sub`")
    if is_wide(x):
        return wide_function(call.check, "exp2sub", [x, r], call.span)
    refuse_loose(call.check, "`exp2sub`", call.span, "take `exp` from `std.math`")
    if dtype_of(x) in _NARROW:
        call.check.report.fail(
            "element-types-differ",
            f"`exp2sub` of {dtype_of(x)} loses what the difference is for",
            [(x.span, f"this is {dtype_of(x)}")],
            help=f"compute in f32: `exp2sub(cast[f32]({x.span.text}), ...)`",
        )
    x, r = same_axes(call.check.report, (x, r))
    return call.apply("tile.exp2sub", [x, r])


# --- along an axis -------------------------------------------------------------------------------


def _scan(call: Call, kind: str) -> Expr:
    reverse = call.keywords.pop("reverse", None)
    result = call.reduce(kind, None, f"{call.name}(x, axis=1)")
    assert isinstance(result, Reduction)
    x = result.operand
    if result.strict:
        refuse_loose(call.check, f"`{call.name}`", call.span, "move it out of the block")
    backwards = reverse is not None and bool(call.check.constant(reverse, "`reverse`"))
    return Scanned(x.type, call.span, x, result.axis, kind, backwards)


@builtin
def cumsum(call: Call) -> Expr:
    """``cumsum(x, axis=1)``: each element added to all before it along the axis."""
    return _scan(call, "add")


@builtin
def cumprod(call: Call) -> Expr:
    """``cumprod(x, axis=1)``: each element multiplied with all before it along the axis."""
    return _scan(call, "mul")


@builtin
def cummax(call: Call) -> Expr:
    """``cummax(x, axis=1)``: the largest of each element and all before it along the axis."""
    return _scan(call, "max")


@builtin
def cummin(call: Call) -> Expr:
    """``cummin(x, axis=1)``: the smallest of each element and all before it along the axis."""
    return _scan(call, "min")


@builtin
def argmax(call: Call) -> Expr:
    """``argmax(x, axis=1)``: the index of the largest, the lowest of equal ones; -1 of nothing."""
    return _place(call, "max")


@builtin
def argmin(call: Call) -> Expr:
    """``argmin(x, axis=1)``: the index of the smallest, the lowest of equal ones; -1 of nothing."""
    return _place(call, "min")


def _place(call: Call, kind: str) -> Expr:
    extreme = call.reduce(kind, None, f"{call.name}(x, axis=1)")
    assert isinstance(extreme, Reduction)
    axis, axes = extreme.axis, axes_of(extreme.operand)
    x = extreme.operand = call.check.let(call.name, extreme.operand)
    flags = TileType(BOOL, axes)
    found: Expr = Relation(flags, call.span, "eq", x, _along(extreme, axes, axis))
    if dtype_of(x).is_float:
        is_nan = Relation(flags, call.span, "ne", x, x)
        found = Apply(flags, call.span, "or", (found, is_nan))
    here = _numbers(call, axes[axis])
    for place in range(len(axes) - 1, -1, -1):
        if place > axis:
            here = Expand(_with_one(here, len(axes_of(here))), call.span, here, len(axes_of(here)))
    here = spread(here, axes)
    nowhere = _number(call, _NOWHERE)
    places = Apply(TileType(S32, axes), call.span, "where", (found, here, nowhere))
    rest = tuple(a for n, a in enumerate(axes) if n != axis)
    out = TileType(S32, rest) if rest else ScalarType(S32)
    first = call.check.let(call.name, Reduction(out, call.span, places, axis, "min"))
    kind_out = TileType(BOOL, rest) if rest else ScalarType(BOOL)
    none = Relation(kind_out, call.span, "eq", first, nowhere)
    return Apply(out, call.span, "where", (none, _number(call, -1), first))


def _number(call: Call, value: int) -> Const:
    return Const(ScalarType(S32), call.span, value)


def _with_one(x: Expr, place: int) -> TileType:
    axes = axes_of(x)
    return TileType(dtype_of(x), (*axes[:place], Axis.static(1), *axes[place:]))


def _along(x: Expr, axes: tuple[Axis, ...], axis: int) -> Expr:
    """A value without an axis, repeated along it again; a scalar meets everything."""
    if not axes_of(x):
        return x
    return spread(Expand(_with_one(x, axis), x.span, x, axis), axes)


def _numbers(call: Call, axis: Axis) -> Expr:
    """The indices along an axis, from the loop or the dimension that it runs over."""
    kind = TileType(S32, (axis,))
    if axis.origin == "static":
        return Positions(kind, call.span)
    if axis.origin == "whole":
        array, place = call.check.dims[str(axis.extent)]
        whole = WholeAxis(IndexType(axis), call.span, array, place)
        return Indices(kind, call.span, whole)
    variable = call.check.indices[axis.origin]
    return Indices(kind, call.span, Ref(variable.type, call.span, variable))
