"""Typing of statements, kernels and modules; its result leaves ``lower`` nothing to decide.

A statement that is wrong is left out, its targets become ``Broken``, and checking goes on, so
that all errors of a file are reported together. A name assigned in a block but bound outside it
is carried: its type cannot change. An ``if`` on a compile-time condition checks one branch only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields

from tilec.diagnostics import Diagnostic, DiagnosticError, did_you_mean
from tilec.frontend import ast
from tilec.frontend.builtins import BUILTINS
from tilec.frontend.checked import (
    ArrayType,
    Axis,
    Branch,
    Carried,
    CheckedKernel,
    CheckedModule,
    Const,
    Constant,
    Expr,
    ExtentValue,
    IndexType,
    Let,
    Loop,
    LoopAxis,
    Merge,
    Parallel,
    Ref,
    Require,
    ScalarType,
    Statement,
    Store,
    TileType,
    Variable,
)
from tilec.frontend.expressions import Expressions
from tilec.frontend.loops import LoopAxes, iterable_call
from tilec.frontend.meet import axes_of, exactly, is_weak, settle, weak_const
from tilec.frontend.names import Binding, Broken, Scope, SizeChoice
from tilec.frontend.report import Abandoned, Report
from tilec.frontend.signature import bind_signature, claim
from tilec.ir.facts import Schedule
from tilec.ir.types import BOOL, DTYPES, S32, Extent
from tilec.source import SourceFile, Span

_CONSTANTS: dict[str, Constant] = {
    "true": True,
    "false": False,
    "inf": math.inf,
    "nan": math.nan,
    "PI": math.pi,
    "LOG2E": math.log2(math.e),
    "LN2": math.log(2.0),
}


def check(
    module: ast.Module, bindings: Mapping[str, object], kernel: str | None = None
) -> CheckedModule:
    """Type a module, or one kernel of it, with compile-time parameters bound by name.

    A parameter that ``bindings`` lacks takes its default. Raises ``DiagnosticError`` with all
    that is wrong.
    """
    report = Report()
    outer = _language_scope(module.source)
    functions = frozenset(f.name for f in module.functions)
    _check_top_level(report, module, outer, functions)
    chosen = [k for k in module.kernels if kernel in (None, k.name)]
    if not chosen:
        names = [k.name for k in module.kernels]
        asked = f"no kernel `{kernel}`" if kernel else "no kernel"
        found = Diagnostic(
            "no-such-kernel",
            f"there is {asked} in {module.source.name}",
            help=did_you_mean(kernel or "", names) or f"there is: {', '.join(names)}",
        )
        raise DiagnosticError([*report.errors, found])
    _check_bindings(report, chosen, bindings)
    checked = [Checker(report, functions, outer).kernel(k, bindings) for k in chosen]
    if report.errors:
        raise DiagnosticError(report.errors)
    return CheckedModule(module.source, checked)


def _language_scope(source: SourceFile) -> Scope:
    """The names that the language itself gives a meaning."""
    scope = Scope()
    nowhere = Span(source, 0, 0)
    for name, value in _CONSTANTS.items():
        scope.bind(name, Binding(weak_const(value, nowhere), None, rebindable=False))
    for name, dtype in DTYPES.items():
        scope.bind(name, Binding(dtype, None, rebindable=False))
    return scope


def _check_top_level(
    report: Report, module: ast.Module, outer: Scope, functions: frozenset[str]
) -> None:
    """Imports are refused, constants get their values, names must differ."""
    check = Expressions(report, functions)
    check.scope = outer
    for item in module.imports:
        try:
            report.not_yet("an import", item.span, "write what is needed into this file")
        except Abandoned:
            continue
    for constant in module.constants:
        try:
            claim(check, constant.name)
            value = check.constant(constant.value, "a constant")
            meaning = weak_const(value, constant.name.span)
            outer.bind(constant.name.id, Binding(meaning, constant.span, rebindable=False))
        except Abandoned:
            outer.bind(constant.name.id, Binding(Broken(), constant.span, rebindable=False))
    seen: dict[str, Span] = {}
    definitions: list[ast.Function | ast.Kernel] = [*module.functions, *module.kernels]
    for node in definitions:
        if node.name in seen:
            report.error(
                "name-taken",
                f"`{node.name}` is defined twice",
                [(node.span, "defined here"), (seen[node.name], "and here")],
            )
        seen[node.name] = node.span


def _check_bindings(
    report: Report, kernels: list[ast.Kernel], bindings: Mapping[str, object]
) -> None:
    """Every bound name must be a parameter of some kernel."""
    known = {p.name.id for k in kernels for p in k.comptime}
    for name in bindings:
        if name not in known:
            report.error(
                "unknown-parameter",
                f"no kernel has a compile-time parameter `{name}`",
                [],
                help=did_you_mean(name, known)
                or "dimensions are not bound here: they come from the arrays at launch",
            )


def assigned_names(body: tuple[ast.Statement, ...]) -> Iterator[str]:
    """Names that a block, or a block within it, assigns to."""
    for node in body:
        match node:
            case ast.Assign() | ast.Augmented():
                targets = node.target.items if isinstance(node.target, ast.Tuple) else [node.target]
                yield from (t.id for t in targets if isinstance(t, ast.Name))
            case ast.If():
                yield from assigned_names(node.body)
                yield from assigned_names(node.otherwise)
            case ast.For() | ast.While() | ast.Strict():
                yield from assigned_names(node.body)


class Checker(Expressions):
    """Checks one kernel: statements on top of expressions."""

    def __init__(self, report: Report, functions: frozenset[str], outer: Scope) -> None:
        super().__init__(report, functions)
        self.scope = Scope(outer)
        self.block: list[Statement] = []
        self.loops: LoopAxes
        self.checked: CheckedKernel
        self.inside_parallel = False
        self.launch: Span | None = None

    def kernel(self, node: ast.Kernel, bindings: Mapping[str, object]) -> CheckedKernel:
        """A whole kernel."""
        self.checked = bind_signature(self, node, bindings)
        self.loops = LoopAxes(self, self.checked)
        self.statements(node.body)
        self.checked.body = self.block
        if self.launch is None and not self.report.errors:
            self.report.error(
                "no-parallel-loop",
                f"`{node.name}` computes nothing",
                [(node.span, "this kernel has no `parallel` loop")],
                help="write `for i, j in parallel(tiles(M), tiles(N)):`",
            )
        return self.checked

    def statements(self, body: tuple[ast.Statement, ...]) -> None:
        """A block in the current scope."""
        for node in body:
            try:
                self.statement(node)
            except Abandoned:
                for name in assigned_names((node,)):
                    self._break(name, node.span)

    def _break(self, name: str, span: Span) -> None:
        owner = self.scope.owner(name)
        known = self.scope.find(name)
        if known is None or (known.rebindable and owner is not None):
            (owner or self.scope).bind(name, Binding(Broken(), known.span if known else span))

    def statement(self, node: ast.Statement) -> None:
        """One statement."""
        match node:
            case ast.Assign():
                self._assign(node)
            case ast.Augmented():
                self._augmented(node)
            case ast.For():
                self._for(node)
            case ast.If():
                self._if(node)
            case ast.Require():
                self._require(node)
            case ast.Tune():
                self._tune(node)
            case ast.Schedule():
                self._schedule(node)
            case ast.Pass():
                pass
            case ast.Bare():
                self.expression(node.value)
                self.report.fail(
                    "no-effect",
                    "this value is not used",
                    [(node.span, "computed here")],
                    help="give it a name, or store it: `c[i, j] = ...`",
                )
            case ast.Return():
                self.report.fail(
                    "kernel-returns",
                    "a kernel returns nothing",
                    [(node.span, "returned here")],
                    help="store the result in an `out` parameter",
                )
            case ast.While():
                self.report.not_yet("`while`", node.span, "loop over `tiles(...)` or `range(n)`")
            case _:
                self.report.not_yet("`strict:`", node.span, "leave it away")

    # Assignment -----------------------------------------------------------------------------

    def _assign(self, node: ast.Assign) -> None:
        if node.home is not None:
            self.report.not_yet(
                f"a value pinned to `{node.home}`", node.span, "leave the word away: it is chosen"
            )
        if isinstance(node.target, ast.Tuple):
            self._assign_several(node, node.target)
        elif isinstance(node.target, ast.Name):
            self.set_name(node.target, self.expression(node.value), node.span)
        else:
            self._store(node.target, node)

    def _assign_several(self, node: ast.Assign, target: ast.Tuple) -> None:
        values = node.value.items if isinstance(node.value, ast.Tuple) else (node.value,)
        if len(values) != len(target.items):
            self.report.fail(
                "wrong-count",
                f"{len(target.items)} names for {len(values)} values",
                [(target.span, f"{len(target.items)} here"), (node.value.span, f"{len(values)}")],
            )
        found = [self.expression(v) for v in values]
        for name, value in zip(target.items, found, strict=True):
            if not isinstance(name, ast.Name):
                self.report.not_yet("a tuple of elements", name.span, "one assignment a line")
            self.set_name(name, value, node.span)

    def set_name(self, name: ast.Name, value: Expr, span: Span) -> None:
        """Give a name a value, here or in the block that owns it."""
        known = self.scope.find(name.id)
        if known is not None and not known.rebindable:
            labels = [(name.span, "assigned here")]
            if known.span:
                labels.append((known.span, "it gets its meaning here"))
            self.report.fail("name-taken", f"`{name.id}` cannot be assigned to", labels)
        if name.id in BUILTINS or name.id in ("tiles", "parallel", "range"):
            self.report.fail(
                "name-taken", f"`{name.id}` is a function", [(name.span, "assigned here")]
            )
        if known is not None and known.span and self.scope.crosses_parallel(name.id):
            self.report.fail(
                "parallel-assigns-outer",
                f"`{name.id}` belongs outside `parallel` and cannot be assigned inside",
                [(name.span, "assigned here"), (known.span, "bound here")],
                notes=["iterations of `parallel` run in any order and see no other's values"],
                help="use another name, or store into an array",
            )
        if not self.inside_parallel and isinstance(value.type, TileType | IndexType):
            self._outside(span, "a tile")
        owner = self.scope.owner(name.id) or self.scope
        first = span
        if known is not None and owner is not self.scope:
            value = self._same_type(name, value, known)
            first = known.span or span
        owner.bind(name.id, Binding(self._hold(name.id, value, span), first))

    def _hold(self, name: str, value: Expr, span: Span) -> Expr:
        """What a name stands for: literals and other names need no variable."""
        if isinstance(value, Const | ExtentValue) or not isinstance(
            value.type, ScalarType | TileType
        ):
            return value
        variable = Variable(name, value.type, span, below=_below(value))
        self.block.append(Let(span, variable, value))
        return Ref(value.type, span, variable)

    def _same_type(self, name: ast.Name, value: Expr, known: Binding) -> Expr:
        """A value for a name that an outer block owns: its type does not change."""
        meaning = known.meaning
        if isinstance(meaning, Broken):
            return value
        assert isinstance(meaning, Expr)
        assert known.span is not None
        if is_weak(value) and isinstance(meaning.type, ScalarType | TileType):
            wanted = meaning.type
            return exactly(
                self.report, value, wanted.dtype, axes_of(meaning), known.span, f"`{name.id}`"
            )
        if value.type != meaning.type:
            self.report.fail(
                "carried-type-changes",
                f"`{name.id}` is {meaning.type} before this block and {value.type} after it",
                [(value.span, f"this is {value.type}"), (known.span, f"this is {meaning.type}")],
                notes=["a name that a block carries keeps its element type and its axes"],
                help=_change_help(name.id, meaning, value),
            )
        return value

    def _augmented(self, node: ast.Augmented) -> None:
        if isinstance(node.target, ast.Name):
            old = self.value(node.target)
            value = self.value(node.value)
            if node.op == "@":
                product = ast.Binary(node.span, "@", node.target, node.value)
                self.set_name(node.target, self.product(product, old, value), node.span)
            else:
                self.set_name(
                    node.target, self.arithmetic(node.op, old, value, node.span), node.span
                )
            return
        array = self._array_target(node.target)
        if array is not None and array.type.mode == "inout":  # type: ignore[union-attr]
            self.report.not_yet(
                "an atomic update", node.span, "accumulate in a tile and store it once"
            )
        self.expression(node.target)
        self._not_stored(node.target)

    def _array_target(self, target: ast.Expression) -> Variable | None:
        if isinstance(target, ast.Subscript) and isinstance(target.base, ast.Name):
            meaning = self.meaning(target.base)
            if isinstance(meaning, Ref) and isinstance(meaning.type, ArrayType):
                return meaning.variable
        return None

    def _not_stored(self, target: ast.Expression) -> None:
        if isinstance(target, ast.Call):
            self.expression(target)
        self.report.fail(
            "not-assignable",
            "only elements of an array parameter are stored to",
            [(target.span, "this is a value")],
            help="a tile is changed as a whole: `x = where(condition, new, x)`",
        )

    def _store(self, target: ast.Expression, node: ast.Assign) -> None:
        array = self._array_target(target)
        if array is None:
            self._not_stored(target)
            return
        assert isinstance(array.type, ArrayType)
        assert isinstance(target, ast.Subscript)
        if not self.inside_parallel:
            self._outside(node.span, "a store")
        if array.type.mode == "in":
            self.report.fail(
                "in-is-written",
                f"`{array.name}` is an `in` parameter and is never written",
                [(node.span, "written here"), (array.span, "declared here")],
                help=f"declare it `{array.name}: out ...` or `inout`",
            )
        subscripts, axes = self.selection(array, target)
        value = self.value(node.value)
        value = exactly(
            self.report, value, array.type.dtype, axes, target.span, f"`{target.span.text}`"
        )
        self.block.append(Store(node.span, array, subscripts, value))

    def _outside(self, span: Span, what: str) -> None:
        self.report.fail(
            "outside-parallel",
            f"{what} exists only inside `parallel`",
            [(span, "this is outside")],
            help="put it into `for i, j in parallel(tiles(M), tiles(N)):`",
        )

    def selection(
        self, array: Variable, node: ast.Subscript
    ) -> tuple[tuple[Expr, ...], tuple[Axis, ...]]:
        """As for expressions, inside ``parallel`` only."""
        if not self.inside_parallel:
            self._outside(node.span, "an element of an array")
        return super().selection(array, node)

    # Loops ----------------------------------------------------------------------------------

    def _for(self, node: ast.For) -> None:
        name, call = iterable_call(self, node)
        if node.join is not None:
            self.report.not_yet("`join`", node.join.span, "leave it away: the loop runs in order")
        for target in node.names:
            claim(self, target)
        if name == "parallel":
            self._parallel(node, self.loops.parallel(node, call))
            return
        if not self.inside_parallel:
            self._outside(node.span, "a loop over tiles" if name == "tiles" else "a loop")
        if name == "tiles":
            axis = self.loops.tiles(self.loops.single(node, call), call)
            zero = Const(ScalarType(S32), call.span, 0)
            self._ordered(node, axis, zero, zero)
        else:
            self._ordered(node, *self.loops.range(node, call))

    def _parallel(self, node: ast.For, axes: tuple[LoopAxis, ...]) -> None:
        if self.inside_parallel or self.scope.outer is None or self.launch is not None:
            where = "inside another" if self.inside_parallel else "after another"
            labels = [(node.span, f"this one stands {where}")]
            if self.launch is not None:
                labels.append((self.launch, "the other one"))
            instead = "name all axes in one `parallel(...)`, or write another kernel"
            self.report.fail(
                "not-in-this-version",
                "a kernel of this version has one `parallel` loop, at its top level",
                labels,
                help=instead,
            )
        self.launch = node.span
        self.inside_parallel = True
        try:
            body = self._block(node.body, axes, is_parallel=True)
        finally:
            self.inside_parallel = False
        self.block.append(Parallel(node.span, axes, body))

    def _block(
        self,
        body: tuple[ast.Statement, ...],
        axes: tuple[LoopAxis, ...] = (),
        is_parallel: bool = False,
    ) -> list[Statement]:
        """Check a block in a scope of its own that binds the loop's variables."""
        outer_block, self.block = self.block, []
        self.scope = Scope(self.scope, is_parallel)
        for axis in axes:
            ref = Ref(axis.variable.type, axis.variable.span, axis.variable)
            binding = Binding(ref, axis.variable.span, rebindable=False)
            self.scope.bind(axis.variable.name, binding)
        try:
            self.statements(body)
        finally:
            self.scope.end()
            assert self.scope.outer is not None
            self.scope = self.scope.outer
            done, self.block = self.block, outer_block
        return done

    def _outer_state(self, body: tuple[ast.Statement, ...]) -> list[tuple[str, Scope, Binding]]:
        """Names that a block carries, literals among them settled to an element type."""
        state: list[tuple[str, Scope, Binding]] = []
        for name in dict.fromkeys(assigned_names(body)):
            owner, known = self.scope.owner(name), self.scope.find(name)
            if owner is None or known is None or self.scope.crosses_parallel(name):
                continue
            if known.rebindable and isinstance(known.meaning, Expr):
                settled = known.meaning
                if is_weak(settled):
                    settled = settle(self.report, settled)
                state.append((name, owner, Binding(settled, known.span)))
        return state

    def _ordered(self, node: ast.For, axis: LoopAxis, start: Expr, step: Expr) -> None:
        state = self._outer_state(node.body)
        carried: list[Carried] = []
        for name, owner, known in state:
            assert isinstance(known.meaning, Expr)
            span = known.span or node.span
            current = Variable(name, known.meaning.type, span)
            final = Variable(name, known.meaning.type, span)
            ref = Ref(current.type, span, current)
            carried.append(Carried(known.meaning, current, ref, final))
            owner.bind(name, Binding(ref, known.span))
        body = self._block(node.body, (axis,))
        for (name, owner, known), item in zip(state, carried, strict=True):
            last = owner.own[name].meaning
            if isinstance(last, Expr):
                item.last = last
            ref = Ref(item.final.type, item.final.span, item.final)
            owner.bind(name, Binding(ref, known.span))
        self.block.append(Loop(node.span, axis, start, step, carried, body))

    # Conditions -----------------------------------------------------------------------------

    def condition(self, node: ast.Expression, what: str) -> Expr:
        """A single truth value."""
        found = self.value(node)
        if found.type != ScalarType(BOOL):
            self.report.fail(
                "wrong-element-type",
                f"{what} needs one condition",
                [(node.span, f"this is {found.type}")],
                help="choose elements with `where(condition, x, y)`" if axes_of(found) else "",
            )
        return found

    def _if(self, node: ast.If) -> None:
        condition = self.condition(node.condition, "`if`")
        if isinstance(condition, Const):
            self.statements(node.body if condition.value else node.otherwise)
            return
        if not self.inside_parallel:
            self._outside(node.span, "a run-time `if`")
        state = self._outer_state((*node.body, *node.otherwise))
        ends: list[list[Expr]] = []
        blocks: list[list[Statement]] = []
        for body in (node.body, node.otherwise):
            for name, owner, known in state:
                owner.bind(name, known)
            blocks.append(self._block(body))
            ends.append([self._meaning_now(*entry) for entry in state])
        merges: list[Merge] = []
        for (name, owner, known), then, otherwise in zip(state, *ends, strict=True):
            assert isinstance(known.meaning, Expr)
            final = Variable(name, known.meaning.type, known.span or node.span)
            merges.append(Merge(final, then, otherwise))
            owner.bind(name, Binding(Ref(final.type, final.span, final), known.span))
        self.block.append(Branch(node.span, condition, blocks[0], blocks[1], merges))

    def _meaning_now(self, name: str, owner: Scope, known: Binding) -> Expr:
        meaning = owner.own[name].meaning
        fallback = known.meaning
        assert isinstance(fallback, Expr)
        return meaning if isinstance(meaning, Expr) else fallback

    def _require(self, node: ast.Require) -> None:
        if self.inside_parallel:
            self.report.fail(
                "require-inside-parallel",
                "`require` speaks about a launch, before any tile exists",
                [(node.span, "this stands inside `parallel`")],
                help="move it up to the first lines of the kernel",
            )
        condition = self.condition(node.condition, "`require`")
        if not isinstance(condition, Const):
            self.block.append(Require(node.span, condition))
        elif not condition.value:
            self.report.fail(
                "require-fails",
                f"these parameters break `{node.condition.span.text}`",
                [(node.span, "required here")],
                notes=[f"`{k}` is {v}" for k, v in self.checked.bindings.items()],
            )

    # Choices --------------------------------------------------------------------------------

    def _tune(self, node: ast.Tune) -> None:
        claim(self, node.name)
        choice = SizeChoice(f"${node.name.id}", self.loops.sizes(node.choices))
        self.loops.symbols.add(choice.symbol)
        self.scope.bind(node.name.id, Binding(choice, node.span, rebindable=False))

    def _schedule(self, node: ast.Schedule) -> None:
        known = [f.name for f in fields(Schedule) if f.name not in ("tiles", "swizzles")]
        for name, value in node.settings:
            if name.id not in known:
                self.report.fail(
                    "unknown-choice",
                    f"a schedule has no `{name.id}`",
                    [(name.span, "chosen here")],
                    help=did_you_mean(name.id, known) or f"there are {', '.join(known)}",
                )
            items = value.items if isinstance(value, ast.List | ast.Tuple) else (value,)
            found = tuple(self.constant(item, "a choice") for item in items)
            chosen = found if name.id == "registers" else found[0]
            if len(found) > 1 and name.id != "registers":
                self.report.fail("wrong-count", "one value is needed", [(value.span, "not one")])
            self.checked.schedule[name.id] = chosen


def _below(value: Expr) -> Extent | None:
    """The extent that a scalar stays under, when it is a loop's index or a part of one."""
    if isinstance(value, Ref):
        return value.variable.below
    return None


def _change_help(name: str, before: Expr, after: Expr) -> str:
    assert isinstance(before.type, ScalarType | TileType)
    same_axes = axes_of(before) == axes_of(after)
    if same_axes and isinstance(after.type, ScalarType | TileType):
        return f"convert the new value: `cast[{before.type.dtype}](...)`"
    return f"use another name than `{name}`, or give it its full shape before the block"
