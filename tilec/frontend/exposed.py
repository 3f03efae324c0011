"""Programs whose meaning would depend on a tile size that the compiler chooses, refused.

What is computed of one tile of a ``parallel`` alone, along its index, is different for tiles of
another size; so is a state that each tile of a loop scales or moves by a fixed number. Such a size
is pinned by the author. A state that absorbs tiles by sums, products, extrema or a rescaling that
is computed from the tiles is no such thing, and what is not understood here is let through.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.frontend.checked import (
    Apply,
    Axis,
    Broadcast,
    Carried,
    Cast,
    CheckedKernel,
    Const,
    Expand,
    Expr,
    Fill,
    Inlined,
    Let,
    LoopAxis,
    Product,
    Ref,
    Statement,
    Variable,
)
from tilec.frontend.report import Report
from tilec.source import Span

_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "div": 1}
"""The number that changes nothing, for each op by which a state is scaled or moved."""


def is_chosen(kernel: CheckedKernel, axis: LoopAxis) -> bool:
    """Whether the compiler chooses the size of a loop's tiles, be it among several offered."""
    if not isinstance(axis.size, str):
        return False
    name = axis.size.removeprefix("$")
    return name not in kernel.pins and len(kernel.choices.get(name, ())) != 1


def refuse_part(report: Report, axis: Axis, loop: Span, span: Span, what: str) -> None:
    """Refuse what is computed along the index of a ``parallel`` from one tile alone."""
    report.error(
        "depends-on-tile-size",
        f"{what} sees one tile of `{axis}`, and how long that is the compiler chooses",
        [(span, f"along `{axis}`"), (loop, "its iterations see nothing of each other")],
        help=f"take the whole axis with `:` or in a `tiles` loop inside, "
        f"or pin the size: `tiles({axis.extent}, 128)`",
    )


def refuse_tile_counts(
    report: Report, axis: LoopAxis, carried: list[Carried], body: list[Statement]
) -> None:
    """Refuse a state that each tile of a loop scales or moves by a number of the program."""
    values = dict(_values(body))
    for item in carried:
        found = _steps_by_a_number(item.last, item.current, values)
        if found is not None:
            name = axis.variable.name
            report.error(
                "depends-on-tile-size",
                f"how often this changes `{item.current.name}` depends on the size of the tiles",
                [
                    (found.span, "once for each tile"),
                    (axis.variable.span, f"the compiler chooses the size of `{name}`"),
                ],
                help="pin the size as in `tiles(N, 128)`, or loop over numbers with `range`",
            )


def _values(body: list[Statement]) -> Iterator[tuple[Variable, Expr]]:
    """What names of a block were set to, those of the functions called there among them."""
    for node in body:
        if isinstance(node, Let):
            yield node.variable, node.value
        elif isinstance(node, Inlined):
            yield from _values(node.body)


def _steps_by_a_number(last: Expr, current: Variable, values: dict[Variable, Expr]) -> Expr | None:
    """The sum or product with a number through which a state goes on its way to its next value."""
    todo: list[tuple[Expr, Expr | None]] = [(last, None)]
    seen: set[tuple[Variable, bool]] = set()
    while todo:
        node, step = todo.pop()
        match node:
            case Ref():
                if node.variable is current and step is not None:
                    return step
                visit = (node.variable, step is not None)
                if node.variable in values and visit not in seen:
                    seen.add(visit)
                    todo.append((values[node.variable], step))
            case Cast() | Broadcast() | Expand():
                todo.append((node.operand, step))
            case Product() if node.start is not None:
                todo.append((node.start, step))
            case Apply() if node.op in _NEUTRAL:
                neutral = _NEUTRAL[node.op]
                numbers = [number for x in node.operands if (number := _number(x)) is not None]
                here = node if any(number != neutral for number in numbers) else step
                todo.extend((x, here) for x in node.operands)
            case Apply() if node.op == "neg":
                todo.append((node.operands[0], node))
    return None


def _number(node: Expr) -> float | None:
    """The number that an operand is, repeated or not."""
    while isinstance(node, Broadcast | Expand | Fill | Cast):
        node = node.operand
    return float(node.value) if isinstance(node, Const) else None
