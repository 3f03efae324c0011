"""``shared x = ...`` and ``register x = ...``: where a tile lies, and how.

``register[rows] x = ...`` takes an arrangement by name, ``register["(reg: ...)"] x = ...`` a layout
as dumps print it, ``shared[swizzle=64] x = ...`` a swizzle. What can be judged without knowing tile
sizes and warps is judged here; ``form-ctas`` judges the rest.
"""

from __future__ import annotations

from tilec.diagnostics import did_you_mean
from tilec.frontend import ast
from tilec.frontend.checked import Pinned, TileType
from tilec.frontend.expressions import Expressions
from tilec.ir.levels.author import ARRANGEMENTS, layout_faults
from tilec.layout.linear import Layout, LayoutError
from tilec.layout.shared import SPANS


def pinned(check: Expressions, node: ast.Assign, name: ast.Name) -> Pinned:
    """Note where the author wants the tile that a name now stands for."""
    assert node.home is not None
    value = check.expression(name)
    if not isinstance(value.type, TileType):
        check.report.fail(
            "not-a-tile",
            f"only a tile has a home, and `{name.id}` is none",
            [(name.span, f"this is {value.type}")],
            help=f"leave the word `{node.home}` away",
        )
    made = Pinned(node.span, value, node.home)
    if node.pin is None:
        return made
    key, given = node.pin
    if node.home == "shared":
        made.swizzle = _swizzle(check, key, given)
    elif key is not None:
        check.report.fail(
            "wrong-arguments",
            f"`register[{key.id}=...]` is no way to pin a layout",
            [(key.span, "named here")],
            help=f"write a layout in quotes, or one of {_names()}",
        )
    elif isinstance(given, ast.Literal) and isinstance(given.value, str):
        made.layout = _layout(check, given, len(value.type.axes))
    else:
        made.arrangement = _arrangement(check, given)
    return made


def _names() -> str:
    return ", ".join(f"`{name}`" for name in ARRANGEMENTS)


def _swizzle(check: Expressions, key: ast.Name | None, given: ast.Expression) -> int:
    if key is None or key.id != "swizzle":
        span = given.span if key is None else key.span
        check.report.fail(
            "wrong-arguments",
            "a tile in shared memory is pinned to a swizzle, and to nothing else",
            [(span, "this is none")],
            help="write `shared[swizzle=128] x = ...`",
        )
    bytes_ = check.integer(given, "a swizzle")
    if bytes_ not in SPANS:
        near = min(SPANS, key=lambda one: (abs(one - bytes_), -one))
        check.report.fail(
            "impossible-choice",
            f"a swizzle of {bytes_} bytes does not exist",
            [(given.span, f"this is {bytes_}")],
            notes=["a swizzle spans 32, 64 or 128 bytes, or 0 for none"],
            help=f"the nearest is `swizzle={near}`",
        )
    return bytes_


def _arrangement(check: Expressions, given: ast.Expression) -> str:
    if isinstance(given, ast.Name) and given.id in ARRANGEMENTS:
        return given.id
    hint = did_you_mean(given.id, ARRANGEMENTS) if isinstance(given, ast.Name) else ""
    check.report.fail(
        "bad-layout",
        f"`{given.span.text}` is no layout",
        [(given.span, "a layout is needed")],
        help=hint or f"write a layout in quotes, or one of {_names()}",
    )


def _layout(check: Expressions, given: ast.Literal, rank: int) -> Layout:
    try:
        layout = Layout.parse(str(given.value))
        faults = [*layout_faults(layout, rank)]
    except LayoutError as error:
        faults = [str(error)]
    if faults:
        check.report.fail(
            "bad-layout",
            f"no tile lies in registers so: {faults[0]}",
            [(given.span, "this layout")],
            notes=faults[1:],
            help="it looks like `(reg: j1 i8 | lane: j2 j4 i1 i2 i4 | warp: i16 i32)`; "
            f"by name there are {_names()}",
        )
    return layout
