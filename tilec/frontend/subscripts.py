"""Subscripts: elements of arrays, each proved in range, and axes inserted into tiles.

A subscript is in range when it is the index of a loop over that very extent, ``:``, a number
below a known extent, or a scalar known to stay below it. Nothing else is accepted.
"""

from __future__ import annotations

from typing import NoReturn

from tilec.frontend import ast
from tilec.frontend.checked import (
    ArrayType,
    Axis,
    Const,
    Expand,
    Expr,
    IndexType,
    Ref,
    TileType,
    Variable,
    WholeAxis,
)
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import axes_of, dtype_of, elements, settle
from tilec.ir.types import Extent


def selection(
    check: Expressions, array: Variable, node: ast.Subscript
) -> tuple[tuple[Expr, ...], tuple[Axis, ...]]:
    """The subscripts of an array, each proved in range, and the axes that they select."""
    assert isinstance(array.type, ArrayType)
    if not check.inside_parallel:
        check.outside(node.span, "an element of an array")
    dims = array.type.dims
    if len(node.items) != len(dims):
        check.report.fail(
            "wrong-rank",
            f"`{array.name}` has {len(dims)} axes and gets {len(node.items)} subscripts",
            [(node.span, f"{len(node.items)} here"), (array.span, f"{len(dims)} here")],
            help="`:` selects a whole axis",
        )
    chosen = [_one_subscript(check, array, n, item) for n, item in enumerate(node.items)]
    axes = tuple(e.type.axis for e in chosen if isinstance(e.type, IndexType))
    return tuple(chosen), axes


def _one_subscript(check: Expressions, array: Variable, axis: int, item: ast.Expression) -> Expr:
    assert isinstance(array.type, ArrayType)
    extent = array.type.dims[axis]
    if isinstance(item, ast.Slice):
        if item.start or item.stop or item.step:
            check.report.not_yet("a slice with bounds", item.span, "loop over `tiles(...)`")
        whole = Axis.static(extent) if isinstance(extent, int) else Axis.whole(extent)
        return WholeAxis(IndexType(whole), item.span, array, axis)
    found = check.expression(item)
    if isinstance(found.type, IndexType):
        if found.type.axis.extent != extent:
            _other_extent(check, array, axis, found, found.type.axis)
        return found
    if isinstance(found.type, TileType):
        _not_in_range(check, array, extent, found, "computed indices may leave the array")
    found = settle(check.report, elements(check.report, found))
    check.need(found, "integer", "a subscript")
    if not _is_in_range(found, extent):
        _not_in_range(check, array, extent, found, f"nothing proves 0 <= it < {extent}")
    return found


def _is_in_range(found: Expr, extent: Extent) -> bool:
    if isinstance(found, Const):
        return isinstance(extent, int) and 0 <= found.value < extent
    if isinstance(found, Ref):
        below = found.variable.below
        both = isinstance(below, int) and isinstance(extent, int)
        return below == extent or (both and below <= extent)  # type: ignore[operator]
    return False


def _not_in_range(
    check: Expressions, array: Variable, extent: Extent, found: Expr, why: str
) -> NoReturn:
    check.report.fail(
        "may-be-out-of-range",
        f"this subscript of `{array.name}` may be out of range",
        [(found.span, why), (array.span, f"the axis has extent {extent}")],
        notes=["a subscript is in range when it comes from a loop over that very extent"],
        help="`array.at(..., fill=0)` will do this; it is not in this version",
    )


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


def insert_axes(check: Expressions, base: Expr, node: ast.Subscript) -> Expr:
    """``x[:, None]``: axes of extent 1 inserted, all others kept."""
    result, kept = base, 0
    for place, item in enumerate(node.items):
        if isinstance(item, ast.Literal) and item.value is None:
            axes = axes_of(result)
            grown = (*axes[:place], Axis.static(1), *axes[place:])
            kind = TileType(dtype_of(base), grown)
            result = Expand(kind, node.span, result, place)
        elif isinstance(item, ast.Slice) and not (item.start or item.stop or item.step):
            kept += 1
        else:
            check.report.not_yet(
                "a part of a tile", item.span, "only `:` and `None` are subscripts of a tile"
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
