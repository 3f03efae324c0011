"""Statements and blocks of one kernel.

A statement that is wrong is left out, its targets become ``Broken``, and checking goes on, so
that all errors of a file are reported together. A name assigned in a block but bound outside it
is carried. An ``if`` on a compile-time condition checks one branch only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from tilec.frontend import ast, updates
from tilec.frontend.assignments import Assignments
from tilec.frontend.build_ast import nested_too_deeply
from tilec.frontend.checked import (
    ArrayType,
    Branch,
    Carried,
    CheckedKernel,
    Const,
    Expr,
    Joining,
    Loop,
    LoopAxis,
    Merge,
    Parallel,
    Ref,
    Repeat,
    Require,
    ScalarType,
    Statement,
    Variable,
)
from tilec.frontend.choices import chosen
from tilec.frontend.debugging import assertion, is_print, printed
from tilec.frontend.exposed import is_chosen, refuse_tile_counts
from tilec.frontend.functions import Calls, only_values, static_assert, stores
from tilec.frontend.joins import joining
from tilec.frontend.loops import LoopAxes, iterable_call
from tilec.frontend.meet import axes_of, is_weak, settle
from tilec.frontend.names import Binding, Broken, Scope, SizeChoice
from tilec.frontend.report import Abandoned, Report
from tilec.frontend.signature import bind_signature, claim
from tilec.ir.types import BOOL, S32
from tilec.source import Span


def _names_in(target: ast.Expression) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple):
        for item in target.items:
            yield from _names_in(item)


def assigned_names(body: tuple[ast.Statement, ...]) -> Iterator[str]:
    """Names that a block, or a block within it, assigns to."""
    for node in body:
        match node:
            case ast.Assign() | ast.Augmented():
                yield from _names_in(node.target)
            case ast.If():
                yield from assigned_names(node.body)
                yield from assigned_names(node.otherwise)
            case ast.For() | ast.While() | ast.Strict():
                yield from assigned_names(node.body)


def is_written(parameter: Variable) -> bool:
    """Whether a parameter is declared as an array that a kernel writes."""
    return isinstance(parameter.type, ArrayType) and parameter.type.mode != "in"


class Checker(Assignments):
    """Checks one kernel: statements on top of expressions."""

    def __init__(self, report: Report, outer: Scope) -> None:
        super().__init__(report)
        self.scope = Scope(outer)
        self.calls = Calls(self)
        self.inline = self.calls.call
        self.loops: LoopAxes
        self.checked: CheckedKernel
        self.launch: Span | None = None

    def kernel(self, node: ast.Kernel, bindings: Mapping[str, object]) -> CheckedKernel:
        """A whole kernel."""
        self.checked = bind_signature(self, node, bindings)
        self.loops = LoopAxes(self, self.checked)
        self.dims = self.checked.dims
        self.statements(node.body)
        self.checked.body = self.block
        if self.launch is None and not self.report.errors:
            self.report.error(
                "no-parallel-loop",
                f"`{node.name}` computes nothing",
                [(node.span, "this kernel has no `parallel` loop")],
                help="write `for i, j in parallel(tiles(M), tiles(N)):`",
            )
        if not self.report.errors and not any(stores(self.block)):
            outs = [p.name for p in self.checked.parameters if is_written(p)]
            self.report.error(
                "writes-nothing",
                f"`{node.name}` writes nothing",
                [(node.span, "no line of this kernel stores into an array")],
                help=f"store what it computes: `{outs[0]}[...] = ...`"
                if outs
                else "declare an array `out` and store into it",
            )
        return self.checked

    def statements(self, body: tuple[ast.Statement, ...]) -> None:
        """A block in the current scope."""
        for place, node in enumerate(body):
            try:
                self.statement(node)
            except Abandoned:
                if self.calls.inside is not None:
                    self.calls.inside.failed = True
                for name in assigned_names((node,)):
                    self._break(name, node.span)
            except RecursionError:  # functions whose calls stand in each other's bodies
                self.report.errors.append(nested_too_deeply(node.span))
                if self.calls.inside is not None:
                    self.calls.inside.failed = True
            if self.calls.inside is not None and self.calls.inside.results is not None:
                if isinstance(node, ast.Return) and place + 1 < len(body):
                    self.report.error(
                        "after-return",
                        "nothing after a `return` is ever computed",
                        [(body[place + 1].span, "this stands after it"), (node.span, "here")],
                        help="leave it away",
                    )
                return

    def _break(self, name: str, span: Span) -> None:
        owner = self.scope.owner(name)
        known = self.scope.find(name)
        if known is None or (known.rebindable and owner is not None):
            (owner or self.scope).bind(name, Binding(Broken(), known.span if known else span))

    def statement(self, node: ast.Statement) -> None:
        """One statement."""
        if self.calls.inside is not None:
            only_values(self, node)
        match node:
            case ast.Assign():
                self.assign(node)
            case ast.Augmented():
                self.augmented(node)
            case ast.For():
                self._for(node)
            case ast.If():
                self._if(node)
            case ast.Require():
                self._require(node)
            case ast.Tune():
                self._tune(node)
            case ast.Schedule():
                self.checked.schedule |= chosen(self, node)
            case ast.Pass():
                pass
            case ast.Bare():
                self._bare(node)
            case ast.Return():
                self.calls.returns(node)
            case ast.While():
                self._while(node)
            case ast.Assert():
                assertion(self, node)
            case ast.Strict():
                self._strict(node)
            case _:
                raise TypeError(f"{type(node).__name__} has no check")

    def _strict(self, node: ast.Strict) -> None:
        """The same names as around it; what is computed in it is fixed to the last bit."""
        outer, self.strict = self.strict, node.span
        try:
            self.statements(node.body)
        finally:
            self.strict = outer

    def _bare(self, node: ast.Bare) -> None:
        """A line that is no assignment: a call for its stores or its checks."""
        call = node.value
        if isinstance(call, ast.Call):
            if isinstance(call.function, ast.Name) and call.function.id == "static_assert":
                static_assert(self, call)
                return
            function = self.function_of(call)
            if function is None and is_print(call):
                printed(self, call)
                return
            if function is None and updates.is_update(call):
                updates.statement(self, call)
                return
            if function is None:
                self.expression(call)
            elif not self.inline(function, call):
                return
        else:
            self.expression(call)
        self.report.fail(
            "no-effect",
            "this value is not used",
            [(node.span, "computed here")],
            help="give it a name, or store it: `c[i, j] = ...`",
        )

    # Loops ----------------------------------------------------------------------------------

    def _for(self, node: ast.For) -> None:
        name, call = iterable_call(self, node)
        if node.join is not None and name != "tiles":
            self.report.error(
                "wrong-arguments",
                "`join` belongs to a loop over `tiles`",
                [(node.join.span, f"this loop runs over `{name}`")],
                help="leave it away: iterations of `parallel` share nothing, `range` is in order",
            )
        for target in node.names:
            claim(self, target)
        if name == "parallel":
            self._parallel(node, self.loops.parallel(node, call))
            return
        if not self.inside_parallel:
            self.outside(node.span, "a loop over tiles" if name == "tiles" else "a loop")
        if name == "tiles":
            axis = self.loops.tiles(self.loops.single(node, call), call)
            zero = Const(ScalarType(S32), call.span, 0)
            self._ordered(node, axis, zero, zero)
        else:
            self._ordered(node, *self.loops.range(node, call))

    def _parallel(self, node: ast.For, axes: tuple[LoopAxis, ...]) -> None:
        if self.inside_parallel:
            labels = [(node.span, "this one stands inside another")]
            if self.launch is not None:
                labels.append((self.launch, "the other one"))
            self.report.fail(
                "parallel-inside",
                "`parallel` loops are launches, and stand at the top level of a kernel",
                labels,
                help="name all axes in one `parallel(...)`, or put one loop after the other",
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
        carried, state = self._enter(node, node.body)
        body = self._block(node.body, (axis,))
        self._leave(carried, state)
        if is_chosen(self.checked, axis):
            refuse_tile_counts(self.report, axis, carried, body)
        join: Joining | None = None
        if node.join is not None and axis.size:
            with suppress(Abandoned):  # what the loop carries is known all the same
                join = joining(self, node.join, carried)
        self.block.append(Loop(node.span, axis, start, step, carried, body, join))

    def _enter(
        self, node: ast.Statement, body: tuple[ast.Statement, ...]
    ) -> tuple[list[Carried], list[tuple[str, Scope, Binding]]]:
        """What a loop carries; the names stand for their current values from here on."""
        state = self._outer_state(body)
        carried: list[Carried] = []
        for name, owner, known in state:
            assert isinstance(known.meaning, Expr)
            span = known.span or node.span
            current = Variable(name, known.meaning.type, span)
            final = Variable(name, known.meaning.type, span)
            ref = Ref(current.type, span, current)
            carried.append(Carried(known.meaning, current, ref, final))
            owner.bind(name, Binding(ref, known.span))
        return carried, state

    def _leave(self, carried: list[Carried], state: list[tuple[str, Scope, Binding]]) -> None:
        """After a loop the names stand for their last values."""
        for (name, owner, known), item in zip(state, carried, strict=True):
            last = owner.own[name].meaning
            if isinstance(last, Expr):
                item.last = last
            ref = Ref(item.final.type, item.final.span, item.final)
            owner.bind(name, Binding(ref, known.span))

    def _while(self, node: ast.While) -> None:
        if not self.inside_parallel:
            self.outside(node.span, "a loop")
        carried, ends = self._enter(node, node.body)
        outer, self.block = self.block, []
        try:
            condition = self.condition(node.condition, "`while`")
        finally:
            test, self.block = self.block, outer
        body = self._block(node.body)
        self._leave(carried, ends)
        self.block.append(Repeat(node.span, test, condition, carried, body))

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
            self.outside(node.span, "a run-time `if`")
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
            self.known.assume(condition)
        elif not condition.value:
            self.report.fail(
                "require-fails",
                f"these parameters break `{node.condition.span.text}`",
                [(node.span, "required here")],
                notes=[f"`{k}` is {v}" for k, v in self.checked.bindings.items()],
                help="pass other values with `-D`, or with `.using(...)` from Python",
            )

    # Choices --------------------------------------------------------------------------------

    def _tune(self, node: ast.Tune) -> None:
        claim(self, node.name)
        choice = SizeChoice(self.loops.sizes(node.choices))
        self.scope.bind(node.name.id, Binding(choice, node.span, rebindable=False))
