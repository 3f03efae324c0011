"""Subscripts: elements of arrays, each proved in range, and axes inserted into tiles.

A subscript is in range when it is the index of a loop over that very extent, ``:``, a number
below a known extent, or an integer that ``ranges`` proves to stay inside. Nothing else is accepted
but through ``.at``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tilec.frontend import ast
from tilec.frontend.checked import (
    ArrayType,
    Axis,
    Const,
    Expand,
    Expr,
    IndexType,
    PartAxis,
    ScalarType,
    Sliced,
    TileType,
    Variable,
    WholeAxis,
)
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import axes_of, dtype_of, elements, settle
from tilec.ir.types import S32, Extent
from tilec.source import Span


def selection(
    check: Expressions, array: Variable, node: ast.Subscript
) -> tuple[tuple[Expr, ...], tuple[Axis, ...]]:
    """The subscripts of an array, each proved in range, and the axes that they select."""
    assert isinstance(array.type, ArrayType)
    if not check.inside_parallel:
        check.outside(node.span, "an element of an array")
    check_rank(check, array, len(node.items), node.span)
    chosen = [_one_subscript(check, array, n, item) for n, item in enumerate(node.items)]
    if has_places(chosen):
        chosen = [as_places(check, array, found) for found in chosen]
    axes = tuple(e.type.axis for e in chosen if isinstance(e.type, IndexType))
    return tuple(chosen), axes


def check_rank(check: Expressions, array: Variable, given: int, span: Span) -> None:
    """Refuse another number of subscripts than the array has axes."""
    assert isinstance(array.type, ArrayType)
    dims = array.type.dims
    if given != len(dims):
        check.report.fail(
            "wrong-rank",
            f"`{array.name}` has {len(dims)} axes and gets {given} subscripts",
            [(span, f"{given} here"), (array.span, f"{len(dims)} here")],
            help="`:` selects a whole axis",
        )


def has_places(subscripts: Sequence[Expr]) -> bool:
    """Whether some subscript is a tile of places, not an index or a number."""
    return any(isinstance(s.type, TileType) for s in subscripts)


def as_places(check: Expressions, array: Variable, found: Expr) -> Expr:
    """A subscript as ``s32`` places."""
    found = settle(check.report, elements(check.report, found))
    dtype = dtype_of(found)
    if dtype != S32:
        check.report.fail(
            "wrong-element-type",
            "places are s32 numbers",
            [(found.span, f"this is {dtype}"), (array.span, f"a place of `{array.name}`")],
            help=f"write `cast[s32]({found.span.text})`" if dtype.is_integer else "",
        )
    return found


def whole_axis(check: Expressions, array: Variable, axis: int, item: ast.Slice) -> Expr:
    """The subscript ``:``."""
    assert isinstance(array.type, ArrayType)
    extent = array.type.dims[axis]
    if item.start or item.stop or item.step:
        start, stop = _bounds(check, item, extent, array.span)
        last = Const(ScalarType(S32), item.span, stop - 1)
        if not isinstance(extent, int) and not check.known.inside(last, extent):
            _not_in_range(check, array, extent, last, f"nothing proves {stop} <= {extent}")
        return PartAxis(IndexType(Axis.static(stop - start)), item.span, array, axis, start)
    whole = Axis.static(extent) if isinstance(extent, int) else Axis.whole(extent)
    return WholeAxis(IndexType(whole), item.span, array, axis)


def _bounds(check: Expressions, item: ast.Slice, extent: Extent, declared: Span) -> tuple[int, int]:
    """First index and end of ``start:stop``, checked against a known extent."""
    if item.step is not None:
        check.report.not_yet("a slice with a step", item.step.span, "take parts without one")
    if item.stop is None and not isinstance(extent, int):
        check.report.not_yet(
            f"a slice up to the end of `{extent}`, which is known at launch only,",
            item.span,
            "loop over `tiles(lo, hi, max=...)`",
        )
    what = "a bound of a slice"
    start = 0 if item.start is None else check.integer(item.start, what)
    stop = extent if item.stop is None else check.integer(item.stop, what)
    assert isinstance(stop, int)
    if not 0 <= start < stop or (isinstance(extent, int) and stop > extent):
        check.report.fail(
            "may-be-out-of-range",
            f"`{item.span.text}` is no part of 0:{extent}",
            [(item.span, f"from {start} up to {stop}"), (declared, f"the extent is {extent}")],
            notes=["negative bounds do not count from the end, and a part has an element"],
            help=_part_inside(start, stop, extent),
        )
    return start, stop


def _part_inside(start: int, stop: int, extent: Extent) -> str:
    if isinstance(extent, int) and max(start, 0) < min(stop, extent):
        return f"what is inside is `{max(start, 0)}:{min(stop, extent)}`"
    return "write the first index, and the one behind the last"


def _one_subscript(check: Expressions, array: Variable, axis: int, item: ast.Expression) -> Expr:
    assert isinstance(array.type, ArrayType)
    extent = array.type.dims[axis]
    if isinstance(item, ast.Slice):
        return whole_axis(check, array, axis, item)
    found = check.expression(item)
    if isinstance(found.type, IndexType):
        if found.type.axis.extent == extent:
            return found
        index, places = found.type.axis, elements(check.report, found)
        if not check.known.inside(places, extent):
            _other_extent(check, array, axis, found, index)
        return places
    if isinstance(found.type, TileType):
        if dtype_of(found).is_integer and check.known.inside(found, extent):
            return found
        _not_in_range(check, array, extent, found, "computed indices may leave the array")
    found = settle(check.report, elements(check.report, found))
    check.need(found, "integer", "a subscript")
    if not check.known.inside(found, extent):
        _not_in_range(check, array, extent, found, f"nothing proves 0 <= it < {extent}")
    return found


def _not_in_range(
    check: Expressions, array: Variable, extent: Extent, found: Expr, why: str
) -> NoReturn:
    check.report.fail(
        "may-be-out-of-range",
        f"this subscript of `{array.name}` may be out of range",
        [(found.span, why), (array.span, f"the axis has extent {extent}")],
        notes=["a subscript is in range when it comes from a loop over that very extent"],
        help=_stated(found, extent) + f"`{array.name}.at(..., fill=0)` reads outside as 0",
    )


def _stated(found: Expr, extent: Extent) -> str:
    """What else there is than reading outside."""
    if isinstance(found, Const) and isinstance(extent, int):
        return f"the last index is {extent - 1}; "
    if isinstance(extent, int):
        return ""
    return "say with `require` what makes it so, above `parallel`; or "


def _other_extent(
    check: Expressions, array: Variable, axis: int, found: Expr, index: Axis
) -> NoReturn:
    assert isinstance(array.type, ArrayType)
    dim = array.type.dims[axis]
    labels = [
        (found.span, f"runs over {index.extent}"),
        (array.span, f"axis {axis} has extent {dim}"),
    ]
    if index.span is not None:
        labels.append((index.span, f"`{index}` comes from this loop"))
    check.report.fail(
        "may-be-out-of-range",
        f"`{index}` runs over {index.extent}, but axis {axis} of `{array.name}` is {dim}",
        labels,
        help=f"loop over `tiles({dim})`, or give both axes one name in the parameters",
    )


def _sliced(check: Expressions, base: Expr, place: int, item: ast.Slice) -> Expr:
    """A part along a known axis of a tile."""
    axes = axes_of(base)
    axis = axes[place] if place < len(axes) else Axis.static(1)
    if axis.origin != "static" or not isinstance(axis.size, int):
        check.report.not_yet(
            f"a part of `{axis}`, an axis whose extent is not known,",
            item.span,
            "take parts of axes whose extent is a number or an `int` parameter",
        )
    start, stop = _bounds(check, item, axis.size, base.span)
    parts = (*axes[:place], Axis.static(stop - start), *axes[place + 1 :])
    return Sliced(TileType(dtype_of(base), parts), item.span, base, place, start)


def insert_axes(check: Expressions, base: Expr, node: ast.Subscript) -> Expr:
    """``x[:, None]``: axes of extent 1 inserted, all others kept."""
    result, kept = base, 0
    for place, item in enumerate(node.items):
        if isinstance(item, ast.Literal) and item.value is None:
            axes = axes_of(result)
            grown = (*axes[:place], Axis.static(1), *axes[place:])
            kind = TileType(dtype_of(base), grown)
            result = Expand(kind, node.span, result, place)
        elif isinstance(item, ast.Slice):
            if item.start or item.stop or item.step:
                result = _sliced(check, result, place, item)
            kept += 1
        else:
            check.report.not_yet(
                "one element of a tile",
                item.span,
                "`:`, a slice of a known axis and `None` are subscripts of a tile",
            )
    if kept != len(axes_of(base)) or not axes_of(base):
        check.report.fail(
            "wrong-rank",
            f"a value with {len(axes_of(base))} axes gets {kept} subscripts",
            [(node.span, f"this is {base.type}")],
            help="write one `:` for each axis, and `None` where an axis is inserted",
        )
    result.span = node.span
    return result
