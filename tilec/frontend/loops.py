"""What a loop runs over: ``tiles``, ``parallel`` and ``range``, and the size of its tiles.

Each ``tiles`` makes a new index with a size symbol of its own, named after the loop's variable. A
pinned size is a choice of the schedule and never stands in a type: the symbol is how a tile that
no load gave its shape knows which index, and so which edge, it runs along. Sizes that an author
pins are multiples of 16, the step of the tensor cores' shapes and of memory transactions.
"""

from __future__ import annotations

from typing import NoReturn

from tilec.diagnostics import did_you_mean
from tilec.frontend import ast
from tilec.frontend.checked import (
    Apply,
    Axis,
    CheckedKernel,
    Const,
    Expr,
    ExtentValue,
    IndexType,
    LoopAxis,
    Ref,
    ScalarType,
    Variable,
)
from tilec.frontend.exposed import is_chosen
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import axes_of, elements, settle
from tilec.frontend.names import Binding, Scope, SizeChoice
from tilec.frontend.polynomials import minus
from tilec.ir.types import S32, Extent
from tilec.source import Span

_STEP = 16
_LARGEST = 4096
_ITERABLES = ("tiles", "parallel", "range")


def iterable_call(check: Expressions, node: ast.For) -> tuple[str, ast.Call]:
    """The name and call of what a loop runs over."""
    call = node.iterable
    if isinstance(call, ast.Call) and isinstance(call.function, ast.Name):
        name = call.function.id
        if name in _ITERABLES:
            return name, call
        hint = did_you_mean(name, _ITERABLES)
    else:
        hint = ""
    check.report.fail(
        "not-iterable",
        "a loop cannot run over this",
        [(call.span, "asked for here")],
        help=hint or "write `for i in tiles(M):`, `parallel(...)` or `range(n)`",
    )


def _dims_in(expr: Expr) -> set[str]:
    """The dimensions that a computed number mentions."""
    if isinstance(expr, ExtentValue):
        return {expr.dim}
    if isinstance(expr, Ref) and expr.variable.value is not None:
        return _dims_in(expr.variable.value)
    inner = expr.operands if isinstance(expr, Apply) else ()
    return {dim for operand in inner for dim in _dims_in(operand)}


class LoopAxes:
    """Makes the loop axes of one kernel; knows which symbols and indices exist."""

    def __init__(self, check: Expressions, kernel: CheckedKernel) -> None:
        self.check = check
        self.kernel = kernel
        self.symbols = {f"${dim}" for dim in kernel.dims}
        self.count = 0

    def parallel(self, node: ast.For, call: ast.Call) -> tuple[LoopAxis, ...]:
        """The grid axes of a ``parallel`` loop, one for each name."""
        if call.keywords:
            self.check.report.fail(
                "wrong-arguments",
                "`parallel` takes no keywords",
                [(call.span, "called here")],
                help="write `parallel(tiles(M), tiles(N))`",
            )
        if len(node.names) != len(call.arguments):
            self._count_differs(node, call, len(call.arguments))
        # An axis may depend on those before it: the range of rows of the group at hand.
        outer, self.check.scope = self.check.scope, Scope(self.check.scope)
        axes: list[LoopAxis] = []
        try:
            for name, item in zip(node.names, call.arguments, strict=True):
                axes.append(self._grid_axis(name, item))
                variable = axes[-1].variable
                ref = Ref(variable.type, variable.span, variable)
                self.check.scope.bind(name.id, Binding(ref, name.span, rebindable=False))
        finally:
            self.check.scope = outer
        return tuple(axes)

    def _grid_axis(self, name: ast.Name, item: ast.Expression) -> LoopAxis:
        called = item.function if isinstance(item, ast.Call) else None
        if isinstance(item, ast.Call) and isinstance(called, ast.Name) and called.id == "tiles":
            axis = self.tiles(name, item)
            if is_chosen(self.kernel, axis):
                assert isinstance(axis.variable.type, IndexType)
                self.check.parts[axis.variable.type.axis.origin] = item.span
            return axis
        return self.scalar(name, self._count(item))

    def _count_differs(self, node: ast.For, call: ast.Call, count: int) -> None:
        names = node.names[0].span.to(node.names[-1].span)
        self.check.report.fail(
            "wrong-count",
            f"{len(node.names)} names for {count} loop axes",
            [(names, f"{len(node.names)} here"), (call.span, f"{count} here")],
        )

    def single(self, node: ast.For, call: ast.Call) -> ast.Name:
        """The one name of a loop over ``tiles`` or ``range``."""
        if len(node.names) != 1:
            self._count_differs(node, call, 1)
        return node.names[0]

    def scalar(self, name: ast.Name, extent: Expr) -> LoopAxis:
        """A loop variable that is a single index below ``extent``."""
        zero = Const(ScalarType(S32), name.span, 0)
        variable = Variable(name.id, ScalarType(S32), name.span, bounds=(zero, extent))
        return LoopAxis(variable, extent, 0)

    def _count(self, node: ast.Expression) -> Expr:
        found = settle(self.check.report, elements(self.check.report, self.check.expression(node)))
        if axes_of(found) or found.type != ScalarType(S32):
            self.check.report.fail(
                "wrong-element-type",
                "a loop runs up to an s32 number",
                [(node.span, f"this is {found.type}")],
            )
        return found

    def range(self, node: ast.For, call: ast.Call) -> tuple[LoopAxis, Expr, Expr]:
        """The axis, start and step of ``range(n)``, ``range(a, b)`` or ``range(a, b, step)``."""
        name = self.single(node, call)
        if not 1 <= len(call.arguments) <= 3 or call.keywords:
            self.check.report.fail(
                "wrong-arguments",
                "`range` is called in another way",
                [(call.span, "called here")],
                help="write `range(n)`, `range(start, end)` or `range(start, end, step)`",
            )
        counts = [self._count(a) for a in call.arguments]
        span = call.span
        zero, one = (Const(ScalarType(S32), span, n) for n in (0, 1))
        start = counts[0] if len(counts) > 1 else zero
        step = counts[2] if len(counts) > 2 else one
        if not isinstance(step, Const) or step.value < 1:
            self.check.report.fail(
                "wrong-arguments",
                "the step of `range` is a positive number known at compile time",
                [(step.span, "this is not")],
            )
        axis = self.scalar(name, counts[0] if len(counts) == 1 else counts[1])
        axis.variable.bounds = (start, axis.extent)
        return axis, start, step

    def tiles(self, name: ast.Name, call: ast.Call) -> LoopAxis:
        """A loop variable that is the index of one tile after the other."""
        report = self.check.report
        keys = [key for key, _ in call.keywords]
        if "max" in keys:
            return self._range_of_tiles(name, call)
        if len(call.arguments) not in (1, 2) or keys not in ([], ["tune"]):
            self._bad_tiles(call.span)
        extent = self.check.expression(call.arguments[0])
        run_over: Extent
        if isinstance(extent, ExtentValue):
            run_over = extent.dim
        elif isinstance(extent, Const) and type(extent.value) is int and extent.value >= 1:
            run_over = extent.value
            extent = settle(report, extent)
        else:
            return self._computed(name, call)
        size = self._size(name, call)
        variable = self._index(name, size, run_over, call.span)
        return self._noted(LoopAxis(variable, extent, size), call.span)

    def _computed(self, name: ast.Name, call: ast.Call) -> LoopAxis:
        """``tiles(N // 2)``: the first indices of a dimension that is proved to have as many."""
        outside, self.check.inside_parallel = self.check.inside_parallel, True
        try:
            count = self._count(call.arguments[0])
        finally:
            self.check.inside_parallel = outside
        known = self.check.known
        number = known.read(count)
        named = _dims_in(count)
        for dim in sorted(self.check.dims, key=lambda dim: dim not in named):
            rest = minus(known.dimension(dim), number)
            if known.holds(number) and known.holds(rest):
                whole = ExtentValue(ScalarType(S32), call.arguments[0].span, dim)
                zero = Const(ScalarType(S32), call.arguments[0].span, 0)
                size = self._size(name, call)
                variable = self._index(name, size, dim, call.span)
                axis = LoopAxis(variable, whole, size, (zero, count, whole))
                return self._noted(axis, call.span)
        self.check.report.fail(
            "may-be-out-of-range",
            "nothing proves that some dimension has as many indices as this",
            [(call.arguments[0].span, f"from 0 up to `{call.arguments[0].span.text}`")],
            help=f"state it, as in `require {call.arguments[0].span.text} <= M`, or write "
            "`tiles(lo, hi, max=M)`",
        )

    def _noted(self, axis: LoopAxis, span: Span) -> LoopAxis:
        if is_chosen(self.kernel, axis):
            assert isinstance(axis.variable.type, IndexType)
            self.check.chosen[axis.variable.type.axis.origin] = span
        return axis

    def _index(self, name: ast.Name, size: str, run_over: Extent, span: Span) -> Variable:
        """The variable of a loop over tiles: an index that no other loop has."""
        self.count += 1
        axis = Axis(size, run_over, f"{name.id}#{self.count}", span)
        variable = Variable(name.id, IndexType(axis), name.span)
        self.check.indices[axis.origin] = variable
        return variable

    def _range_of_tiles(self, name: ast.Name, call: ast.Call) -> LoopAxis:
        """``tiles(lo, hi, max=L, of=N)``: the indices from lo up to hi, at most L, inside N."""
        keywords = dict(call.keywords)
        if len(call.arguments) != 2 or keywords.keys() - {"max", "of", "size"}:
            self._bad_range(call.span)
        most = self.check.expression(keywords["max"])
        whole = self.check.expression(keywords["of"]) if "of" in keywords else most
        if not isinstance(whole, ExtentValue):
            self._bad_range(keywords.get("of", keywords["max"]).span)
        if not isinstance(most, ExtentValue) and (
            not isinstance(most, Const) or type(most.value) is not int or most.value < 1
        ):
            self._bad_range(keywords["max"].span)
        outside, self.check.inside_parallel = self.check.inside_parallel, True
        try:
            lower, upper = (self._count(a) for a in call.arguments)
        finally:
            self.check.inside_parallel = outside
        size = self._symbol(name.id)
        if "size" in keywords:
            self.kernel.pins[size[1:]] = self.tile_size(keywords["size"])
        variable = self._index(name, size, whole.dim, call.span)
        most = settle(self.check.report, most)
        return self._noted(LoopAxis(variable, most, size, (lower, upper, whole)), call.span)

    def _bad_range(self, span: Span) -> NoReturn:
        self.check.report.fail(
            "wrong-arguments",
            "a range of tiles says where it ends, how long it may be, and of what it is a part",
            [(span, "asked for here")],
            help="write `tiles(lo, hi, max=N)`, or `tiles(lo, hi, max=512, of=N)`, N a dimension",
        )

    def _bad_tiles(self, span: Span) -> None:
        self.check.report.fail(
            "wrong-arguments",
            "`tiles` is called in another way",
            [(span, "called here")],
            help="write `tiles(M)`, `tiles(M, 128)` or `tiles(M, tune=[64, 128])`",
        )

    def _size(self, name: ast.Name, call: ast.Call) -> str:
        """The size symbol of a loop; what the author says about its size is recorded."""
        if len(call.arguments) == 2 and call.keywords:
            self._bad_tiles(call.span)
        symbol = self._symbol(name.id)
        if call.keywords:
            self.kernel.choices[symbol[1:]] = self.sizes(call.keywords[0][1])
        elif len(call.arguments) == 2:
            pinned = call.arguments[1]
            meaning = self.check.meaning(pinned) if isinstance(pinned, ast.Name) else None
            if isinstance(meaning, SizeChoice):
                self.kernel.choices[symbol[1:]] = meaning.sizes
            else:
                self.kernel.pins[symbol[1:]] = self.tile_size(pinned)
        return symbol

    def _symbol(self, name: str) -> str:
        """A size symbol for a loop variable; a second loop of that name gets a number."""
        symbol, number = f"${name}", 1
        while symbol in self.symbols:
            number += 1
            symbol = f"${name}_{number}"
        self.symbols.add(symbol)
        return symbol

    def sizes(self, node: ast.Expression) -> tuple[int, ...]:
        """The sizes in a list of choices."""
        if not isinstance(node, ast.List) or not node.items:
            self.check.report.fail(
                "wrong-arguments",
                "choices of a tile size are a list",
                [(node.span, "this is none")],
                help="write `[64, 128]`",
            )
        return tuple(self.tile_size(item) for item in node.items)

    def tile_size(self, node: ast.Expression) -> int:
        """A pinned size: at least 16, and a multiple of 16."""
        size = self.check.integer(node, "a tile size")
        nearest = min(max(_STEP, (size + _STEP // 2 - 1) // _STEP * _STEP), _LARGEST)
        if size < _STEP:
            self.check.report.fail(
                "tile-under-16",
                "a tile has at least 16 elements along each loop",
                [(node.span, f"this asks for {size}")],
                notes=["smaller tiles cannot feed the tensor cores or fill a memory transaction"],
                help=f"the nearest size is {nearest}; without one the compiler chooses",
            )
        if size % _STEP or size > _LARGEST:
            self.check.report.fail(
                "tile-not-multiple-of-16",
                f"a tile size is a multiple of 16, up to {_LARGEST}",
                [(node.span, f"this asks for {size}")],
                help=f"the nearest size is {nearest}",
            )
        return size
