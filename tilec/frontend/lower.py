"""From a checked kernel to level ``tile``: one rule for each kind of node, no decisions.

Every op carries the line and column of the expression that it came from, and values keep the
names of the source. A variable that a loop does not change is not carried by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilec.diagnostics import DiagnosticError
from tilec.frontend import checked as c
from tilec.frontend import nibbles
from tilec.frontend.check import no_such_kernel
from tilec.frontend.slack import settle_slack
from tilec.ir.core import Builder, Kernel, Loc, Module, Op, Region, Value
from tilec.ir.levels import along, author, flow, math, tile
from tilec.ir.types import DTYPES, S32, Array, DType, Index, Scalar, Tile, Type
from tilec.source import Span


def lower(checked: c.CheckedModule, kernel_name: str, target: str = "sm_90a") -> Module:
    """The ``tile`` level module of one kernel; ``DiagnosticError`` when there is no such kernel."""
    names = [k.name for k in checked.kernels]
    if kernel_name not in names:
        raise DiagnosticError(no_such_kernel(checked.source, kernel_name, names))
    kernel = _Lowering(checked.kernel(kernel_name)).kernel()
    return Module("tile", target, [kernel], checked.source)


def ir_type(type: c.ValueType) -> Type:
    """The IR's type of a value; which index an axis carries is not part of it."""
    match type:
        case c.ScalarType():
            return Scalar(type.dtype.held)
        case c.TileType():
            return Tile(type.dtype.held, tuple(axis.size for axis in type.axes))
        case c.IndexType():
            return Index(type.axis.size, type.axis.extent)
        case c.ArrayType():
            return Array(type.dtype, type.dims, type.mode)


class _Lowering:
    """Builds one kernel; ``values`` says which IR value each variable is."""

    def __init__(self, kernel: c.CheckedKernel) -> None:
        self.checked = kernel
        self.values: dict[c.Variable, Value[Any]] = {}
        self.build = Builder(Region())
        self.extents: dict[str, Value[Any]] = {}
        self.slacks: dict[Op, tuple[float, Span]] = {}
        """What the author says of anchors."""
        self.call: Span | None = None
        """The call in the kernel itself whose function is being lowered."""

    def kernel(self) -> Kernel:
        """The kernel with its parameters, launch facts and pinned choices."""
        body = self.build.region
        for parameter in self.checked.parameters:
            self.values[parameter] = body.add_arg(ir_type(parameter.type), parameter.name)
        for dim, (array, axis) in self.checked.dims.items():
            op = self.add(tile.ExtentOf(self.values[array], axis), array.span, dim)
            self.extents[dim] = op.out
        self.statements(self.checked.body)
        attributes: dict[str, Any] = {}
        if self.checked.bindings:
            attributes["bound"] = tuple(self.checked.bindings.items())
        if self.checked.choices:
            attributes["choices"] = tuple(self.checked.choices.items())
        schedule: dict[str, Any] = dict(self.checked.schedule)
        if self.checked.pins:
            schedule = {"tiles": tuple(self.checked.pins.items()), **schedule}
        made = Kernel(self.checked.name, body, attributes, schedule)
        settle_slack(made, self.slacks)
        return made

    # Building -------------------------------------------------------------------------------

    def add(self, op: Any, span: Span, name: str = "") -> Any:
        """Append an op at a place of the kernel's own file: inside a call, that of the call."""
        place = self.call or span
        op.loc = Loc(place.line, place.column)
        return self.build.add(op, name)

    def block(self, body: list[c.Statement], region: Region) -> None:
        """Fill a region with statements."""
        with self.build.inside(region):
            self.statements(body)

    def finish(self, region: Region, ends: list[c.Expr], span: Span) -> None:
        """End a region by yielding values, if it has any to yield."""
        with self.build.inside(region):
            values = self.several(ends)
            if values:
                self.add(flow.Yield(values), span)

    # Statements -----------------------------------------------------------------------------

    def statements(self, body: list[c.Statement]) -> None:
        """Several statements in order."""
        for node in body:
            self.statement(node)

    def statement(self, node: c.Statement) -> None:
        """One statement."""
        match node:
            case c.Let():
                value = self.expression(node.value)
                if not value.name:
                    value.name = node.variable.name
                self.values[node.variable] = value
            case c.PtxSteps():
                dtypes = tuple(_dtype(v) for v in node.variables)
                own = tuple(DTYPES.get(name, name) for name in node.locals)
                made = math.Ptx(self.several(node.operands), dtypes, node.program, own)
                self.add(made, node.span)
                self.values.update(zip(node.variables, made.out, strict=True))
            case c.Pinned():
                pin = author.Home(
                    self.expression(node.value),
                    node.home,
                    layout=node.layout,
                    arrangement=node.arrangement,
                    swizzle=node.swizzle,
                )
                self.add(pin, node.span)
            case c.Assertion():
                condition = self.expression(node.condition)
                self.add(author.Assert(condition, *self.shown(node)), node.span)
            case c.Printed():
                value = self.expression(node.value)
                self.add(author.Print(value, *self.shown(node)), node.span)
            case c.Store():
                subscripts = self.several(node.subscripts)
                value = self.expression(node.value)
                array = self.values[node.array]
                self.add(tile.Store(array, value, subscripts, update=node.update), node.span)
            case c.Scatter():
                self.scatter(node)
            case c.Repeat():
                self.repeat(node)
            case c.Combined():
                self.combined(node)
            case c.Require():
                self.add(tile.Require(self.expression(node.condition)), node.span)
            case c.Parallel():
                self.parallel(node)
            case c.Loop():
                self.loop(node)
            case c.Branch():
                self.branch(node)
            case c.Inlined():
                outer, self.call = self.call, self.call or node.span
                self.statements(node.body)
                self.call = outer
            case _:
                raise TypeError(f"{type(node).__name__} has no lowering")

    def shown(self, node: c.Assertion | c.Printed) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
        """Indices, the axes that they run along, and the text, of what is to be shown."""
        indices = self.several([index for _, index in node.indices])
        axes = tuple(axis for axis, _ in node.indices)
        return indices, axes, tuple(map(ord, node.text))

    def loop_argument(self, region: Region, axis: c.LoopAxis) -> None:
        """The region's argument that is the loop's variable."""
        variable = axis.variable
        if axis.within is None:
            self.values[variable] = region.add_arg(ir_type(variable.type), variable.name)
            return
        most = axis.extent
        extent = most.dim if isinstance(most, c.ExtentValue) else int(_constant(most))
        self.values[variable] = region.add_arg(Index(axis.size, extent), f"{variable.name}_tile")

    def cut(self, axis: c.LoopAxis, bounds: tuple[Value[Any], Value[Any]] | None = None) -> None:
        """Move the tile of a range from memory to its place."""
        if axis.within is None:
            return
        lower, upper = bounds or self.several(axis.within[:2])
        whole, variable = self.expression(axis.within[2]), axis.variable
        if bounds is None:
            most = self.expression(axis.extent)
            end = self.add(math.Add(lower, most), variable.span).out
            upper = self.add(math.Min(upper, end), variable.span).out
        assert isinstance(variable.type, c.IndexType)
        index = self.values[variable]
        op = tile.Within(index, lower, upper, whole, of=variable.type.axis.extent)
        self.values[variable] = self.add(op, variable.span, variable.name).out

    def parallel(self, node: c.Parallel) -> None:
        """A grid."""
        extents = self.several([axis.extent for axis in node.axes])
        region = Region()
        for axis in node.axes:
            self.loop_argument(region, axis)
        with self.build.inside(region):
            for axis in node.axes:
                self.cut(axis)
        self.block(node.body, region)
        sizes = tuple(axis.size for axis in node.axes)
        self.add(tile.Parallel(extents, sizes, region), node.span)

    def loop(self, node: c.Loop) -> None:
        """An ordered loop over tiles or over numbers."""
        carried = [item for item in node.carried if not item.unchanged]
        for item in node.carried:
            initial = self.expression(item.initial)
            initial.name = initial.name or item.current.name
            self.values[item.current] = self.values[item.final] = initial
        init = tuple(self.values[item.current] for item in carried)
        limit, within = self.limit(node)
        over_tiles = node.axis.size != 0
        bounds = [] if over_tiles else [self.expression(node.start), self.expression(node.step)]
        region = Region()
        self.loop_argument(region, node.axis)
        for item in carried:
            type_ = ir_type(item.current.type)
            self.values[item.current] = region.add_arg(type_, item.current.name)
        with self.build.inside(region):
            self.cut(node.axis, within)
        self.block(node.body, region)
        self.finish(region, [item.last for item in carried], node.span)
        op: Any
        if node.join is not None:
            joined = self.joining(node.join, node.span)
            op = tile.ForJoined(limit, init, node.axis.size, region, join=joined)
        elif over_tiles:
            op = tile.ForTiles(limit, init, node.axis.size, region)
        else:
            op = flow.For(bounds[0], limit, bounds[1], init, body=region)
        self.add(op, node.span)
        for item, final in zip(carried, op.finals, strict=True):
            final.name = item.final.name
            self.values[item.final] = final

    def joining(self, node: c.Joining, span: Span) -> Region:
        """How the states of two parts of a loop make one."""
        region = Region()
        for variable in (*node.left, *node.right):
            name = variable.name.partition(" ")[0]
            self.values[variable] = region.add_arg(ir_type(variable.type), name)
        self.block(node.body, region)
        self.finish(region, node.results, span)
        return region

    def limit(self, node: c.Loop) -> tuple[Value[Any], tuple[Value[Any], Value[Any]] | None]:
        """How far a loop runs, and the bounds of its range if it comes from memory."""
        extent = self.expression(node.axis.extent)
        if node.axis.within is None:
            return extent, None
        lower, upper = self.several(node.axis.within[:2])
        length = self.add(math.Sub(upper, lower), node.span).out
        length = self.add(math.Min(length, extent), node.span).out
        end = self.add(math.Add(lower, length), node.span).out
        return length, (lower, end)

    def combined(self, node: c.Combined) -> None:
        """Elements combined by a function, whose body is the op's region."""
        operands = self.several(node.operands)
        region = Region()
        for parameter in node.parameters:
            self.values[parameter] = region.add_arg(ir_type(parameter.type), parameter.name)
        self.block(node.body, region)
        self.finish(region, node.results, node.span)
        op = along.Combine(operands, node.axis, node.identity, region, node.scan, node.reverse)
        self.add(op, node.span)
        for variable, value in zip(node.out, op.out, strict=True):
            value.name = variable.name
            self.values[variable] = value

    def repeat(self, node: c.Repeat) -> None:
        """A loop while a condition holds."""
        carried = [item for item in node.carried if not item.unchanged]
        for item in node.carried:
            initial = self.expression(item.initial)
            initial.name = initial.name or item.current.name
            self.values[item.current] = self.values[item.final] = initial
        init = tuple(self.values[item.current] for item in carried)
        regions = (Region(), Region())
        for region, body, ends in (
            (regions[0], node.test, [node.condition]),
            (regions[1], node.body, [item.last for item in carried]),
        ):
            for item in carried:
                type_ = ir_type(item.current.type)
                self.values[item.current] = region.add_arg(type_, item.current.name)
            self.block(body, region)
            self.finish(region, ends, node.span)
        op = flow.While(init, test=regions[0], body=regions[1])
        self.add(op, node.span)
        for item, final in zip(carried, op.finals, strict=True):
            final.name = item.final.name
            self.values[item.final] = final

    def inside_of(self, array: c.Variable, places: Sequence[Value[Any]], span: Span) -> Value[Any]:
        """Whether scalar places lie inside an array."""
        zero = self.add(math.Constant(0, Scalar(S32)), span).out
        total: Value[Any] | None = None
        for axis, place in enumerate(places):
            extent = self.add(tile.ExtentOf(self.values[array], axis), span).out
            above = self.add(math.Compare(place, zero, relation="ge"), span).out
            below = self.add(math.Compare(place, extent, relation="lt"), span).out
            both = self.add(math.And(above, below), span).out
            total = both if total is None else self.add(math.And(total, both), span).out
        assert total is not None
        return total

    def scatter(self, node: c.Scatter) -> None:
        """A store at computed places; of one element, a store behind a test."""
        array, places = self.values[node.array], self.several(node.places)
        value = self.expression(node.value)
        if isinstance(value.type, Tile):
            self.add(tile.Scatter(array, value, places, update=node.update), node.span)
            return
        inside = self.inside_of(node.array, places, node.span)
        then = Region()
        with self.build.inside(then):
            self.add(tile.Store(array, value, places, update=node.update), node.span)
        self.add(flow.If(inside, types=(), then=then, otherwise=Region()), node.span)

    def gathered(self, node: c.Gathered) -> Value[Any]:
        """A read at computed places; of one element, a read behind a test."""
        array, places = self.values[node.array], self.several(node.places)
        fill = self.expression(node.fill)
        if isinstance(node.type, c.TileType):
            found: Value[Any] = self.add(tile.Gather(array, fill, places), node.span).out
            return found
        inside = self.inside_of(node.array, places, node.span)
        then, otherwise = Region(), Region()
        with self.build.inside(then):
            read = self.add(tile.Load(array, places), node.span).out
            self.add(flow.Yield((read,)), node.span)
        with self.build.inside(otherwise):
            self.add(flow.Yield((fill,)), node.span)
        op = flow.If(inside, types=(fill.type,), then=then, otherwise=otherwise)
        self.add(op, node.span)
        return op.out[0]

    def branch(self, node: c.Branch) -> None:
        """A run-time choice."""
        condition = self.expression(node.condition)
        merges = [m for m in node.merges if not _is_same(m.then, m.otherwise)]
        for merge in node.merges:
            if merge not in merges:
                self.values[merge.final] = self.expression(merge.then)
        then, otherwise = Region(), Region()
        for region, body, ends in (
            (then, node.then, [m.then for m in merges]),
            (otherwise, node.otherwise, [m.otherwise for m in merges]),
        ):
            self.block(body, region)
            self.finish(region, ends, node.span)
        types = tuple(ir_type(m.final.type) for m in merges)
        op = flow.If(condition, types=types, then=then, otherwise=otherwise)
        self.add(op, node.span)
        for merge, value in zip(merges, op.out, strict=True):
            value.name = merge.final.name
            self.values[merge.final] = value

    # Expressions ----------------------------------------------------------------------------

    def expression(self, node: c.Expr) -> Value[Any]:
        """The value of an expression."""
        match node:
            case c.Ref():
                return self.values[node.variable]
            case c.ExtentValue():
                return self.extents[node.dim]
            case c.Gathered():
                return self.gathered(node)
            case c.Cast() if _dtype(node.operand).is_nibble and _is_held(node):
                return self.expression(node.operand)
            case _:
                result: Value[Any] = self.add(self.op(node), node.span).results[0]
                return result

    def several(self, nodes: Sequence[c.Expr]) -> tuple[Value[Any], ...]:
        """The values of several expressions, in order."""
        return tuple(self.expression(node) for node in nodes)

    def op(self, node: c.Expr) -> Op:
        """The op that computes an expression, after those of its operands."""
        kind = ir_type(node.type)
        match node:
            case c.Const():
                return math.Constant(node.value, kind)
            case c.Apply():
                name = node.op if "." in node.op else f"math.{node.op}"
                cls: Any = Op.registry[name]
                given: dict[str, Any] = (
                    {"strict": True} if node.strict and "strict" in cls.specs else {}
                )
                if node.total:
                    given["total"] = True
                if "dtype" in cls.specs:
                    given["dtype"] = _dtype(node)
                op: Op = cls(*self.several(node.operands), **given)
                return op
            case c.Relation():
                left, right = self.expression(node.left), self.expression(node.right)
                return math.Compare(left, right, relation=node.relation)
            case c.Cast():
                operand, target = self.expression(node.operand), _dtype(node)
                if target.is_nibble:
                    source = _dtype(node.operand)
                    return nibbles.cast(lambda o: self.add(o, node.span), operand, source, target)
                return math.Cast(operand, target, node.saturate)
            case c.Fill():
                return math.Fill(self.expression(node.operand), kind)
            case c.Expand():
                return math.Expand(self.expression(node.operand), node.axis, kind)
            case c.Broadcast():
                return math.Broadcast(self.expression(node.operand), kind)
            case c.Reduction():
                operand = self.expression(node.operand)
                return math.Reduce(operand, node.axis, node.kind, kind, node.strict)
            case c.Scanned():
                return along.Scan(self.expression(node.operand), node.axis, node.kind, node.reverse)
            case c.AnchorOf():
                running, scores = self.expression(node.running), self.expression(node.scores)
                anchor = tile.Anchor(running, scores)
                if node.slack is not None:
                    self.slacks[anchor] = (node.slack, node.span)
                return anchor
            case c.Positions():
                return tile.Positions(kind)
            case c.Workspace():
                return tile.Temp(self.several(node.extents), kind)
            case c.MeaningOf():
                return author.Meaning(self.expression(node.operand), self.expression(node.says))
            case c.Transposed():
                return tile.Transpose(self.expression(node.operand))
            case c.Product():
                return self.product(node)
            case c.Indices():
                return tile.IndexValues(self.expression(node.operand))
            case c.ValidCount():
                return tile.ValidCount(self.expression(node.operand))
            case c.WholeAxis():
                assert isinstance(node.type, c.IndexType)
                return tile.Whole(self.values[node.array], node.axis, node.type.axis.size)
            case c.Atomic():
                return self.atomic(node)
            case c.PartAxis():
                assert isinstance(node.type, c.IndexType)
                size = int(node.type.axis.size)
                return tile.Part(self.values[node.array], node.axis, node.start, size)
            case c.Sliced():
                assert isinstance(node.type, c.TileType)
                size = int(node.type.axes[node.axis].size)
                return tile.Slice(self.expression(node.operand), node.axis, node.start, size)
            case c.Load():
                subscripts = self.several(node.subscripts)
                return tile.Load(self.values[node.array], subscripts)
        raise TypeError(f"{type(node).__name__} has no lowering")

    def atomic(self, node: c.Atomic) -> Op:
        """An update that gives what was there."""
        array, places = self.values[node.array], self.several(node.places)
        value, fill = self.expression(node.value), self.expression(node.fill)
        if node.expected is None:
            return tile.Atomic(array, value, fill, places, update=node.update)
        expected = self.expression(node.expected)
        return tile.CompareExchange(array, expected, value, fill, places)

    def product(self, node: c.Product) -> Op:
        """``left @ right`` added to its start, or to zeros."""
        left, right = self.expression(node.left), self.expression(node.right)
        start = node.start
        if start is None:
            zero = c.Const(
                c.ScalarType(_dtype(node)), node.span, 0.0 if _dtype(node).is_float else 0
            )
            start = c.Fill(node.type, node.span, zero)
        return tile.Dot(left, right, self.expression(start), precision=node.precision)


def _constant(node: c.Expr) -> c.Constant:
    assert isinstance(node, c.Const)
    return node.value


def _dtype(node: c.Expr | c.Variable) -> DType:
    assert isinstance(node.type, c.ScalarType | c.TileType)
    return node.type.dtype


def _is_held(node: c.Cast) -> bool:
    """Whether a conversion of nibbles gives them as they are held."""
    return _dtype(node) == _dtype(node.operand).held


def _is_same(left: c.Expr, right: c.Expr) -> bool:
    """Whether two expressions are one variable."""
    return isinstance(left, c.Ref) and isinstance(right, c.Ref) and left.variable is right.variable
