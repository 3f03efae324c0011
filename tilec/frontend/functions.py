"""Calls of a ``fn``: its body is checked at each call, on the types of the arguments there.

A body sees its parameters, its own names and those of the file that it stands in, never those of
the caller. What it computes becomes an ``Inlined`` block at the call, so that no later stage knows
functions. Everything in such a block carries the place of the call; messages show both places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from tilec.frontend import ast
from tilec.frontend.checked import (
    Atomic,
    Expr,
    Inlined,
    Let,
    Product,
    Scatter,
    Statement,
    Store,
)
from tilec.frontend.fit_arguments import exact_value, fit_arguments
from tilec.frontend.names import Function, Scope
from tilec.frontend.report import Abandoned
from tilec.source import Span

if TYPE_CHECKING:
    from tilec.frontend.statements import Checker

_MOST_CALLS = 10_000


@dataclass
class Frame:
    """One call under way; ``results`` is None until its ``return``."""

    function: Function
    span: Span
    scope: Scope
    results: list[Expr] | None = None
    failed: bool = False


class Calls:
    """The calls of one kernel: those under way, and how many there were."""

    def __init__(self, check: Checker) -> None:
        self.check = check
        self.frames: list[Frame] = []
        self.count = 0

    @property
    def inside(self) -> Frame | None:
        """The innermost call under way."""
        return self.frames[-1] if self.frames else None

    def call(self, function: Function, node: ast.Call) -> list[Expr]:
        """What a call returns; what it computes on the way goes into the current block."""
        self._refuse_recursion(function, node.span)
        self._refuse_too_many(node.span)
        check, report = self.check, self.check.report
        scope = fit_arguments(check, function, node)
        frame = Frame(function, node.span, scope)
        caller, check.scope = check.scope, scope
        around, check.block = check.block, []
        self.frames.append(frame)
        report.context.append((node.span, f"in this call of `{function.node.name}`"))
        try:
            check.statements(function.node.body)
            if frame.failed:
                raise Abandoned
            self._finish(frame)
        finally:
            report.context.pop()
            self.frames.pop()
            check.scope = caller
            body, check.block = check.block, around
        check.block.append(Inlined(node.span, function.node.name, body))
        return frame.results or []

    def _refuse_recursion(self, function: Function, span: Span) -> None:
        chain = [frame.function.node.name for frame in self.frames]
        nodes = [frame.function.node for frame in self.frames]
        if function.node in nodes:
            name = function.node.name
            around = chain[nodes.index(function.node) :]
            self.check.report.fail(
                "recursive-function",
                f"`{name}` calls itself",
                [(span, "called here")],
                notes=["each call stands for its function's body: "
                       + ", ".join(f"`{f}` calls `{g}`" for f, g in pairwise([*around, name]))],
                help="write a loop",
            )  # fmt: skip

    def _refuse_too_many(self, span: Span) -> None:
        self.count += 1
        if self.count > _MOST_CALLS:
            self.check.report.fail(
                "too-many-calls",
                f"this kernel makes more than {_MOST_CALLS} calls",
                [(self.frames[0].span if self.frames else span, "the last of them")],
                notes=["each call stands for its function's body"],
                help="write a loop",
            )

    def returns(self, node: ast.Return) -> None:
        """``return`` in the function that is being called."""
        frame, check = self.inside, self.check
        if frame is None:
            check.report.fail(
                "kernel-returns",
                "a kernel returns nothing",
                [(node.span, "returned here")],
                help="store the result in an `out` parameter",
            )
        if check.scope is not frame.scope:
            check.report.fail(
                "return-inside-block",
                "a function returns at its end, once",
                [(node.span, "this stands inside a loop or a run-time `if`")],
                help="give the result a name before the block, and return that after it",
            )
        results = check.several(node.value)
        declared = frame.function.node.results
        if declared is not None:
            if len(declared) != len(results):
                span = declared[0].span.to(declared[-1].span)
                check.report.fail(
                    "wrong-count",
                    f"{len(results)} values are returned, {len(declared)} declared",
                    [(node.span, f"{len(results)} here"), (span, f"{len(declared)} here")],
                )
            results = [
                exact_value(check, value, kind, "the result")
                for value, kind in zip(results, declared, strict=True)
            ]
        frame.results = results

    def _finish(self, frame: Frame) -> None:
        """Hold the results in variables of the call, and put them at the call's place."""
        name = frame.function.node.name
        declared = frame.function.node.results
        if declared and frame.results is None:
            self.check.report.fail(
                "no-value",
                f"`{name}` returns nothing",
                [(frame.function.node.span, "this function has no `return`"),
                 (declared[0].span, "it is declared to return this")],
                help="end it with `return ...`",
            )  # fmt: skip
        if frame.results and any(stores(self.check.block)):
            self.check.report.fail(
                "stores-and-returns",
                f"`{name}` stores into an array and returns a value",
                [(frame.function.node.span, "defined here")],
                notes=["values are computed in any order, stores are made in the order written"],
                help="make two functions of it",
            )
        frame.results = [self._held(name, value, frame.span) for value in frame.results or ()]

    def _held(self, name: str, value: Expr, span: Span) -> Expr:
        """A result: in a variable, or a product that a sum may still continue."""
        if isinstance(value, Product) and value.start is None:
            left, right = (self._held("", side, span) for side in (value.left, value.right))
            return replace(value, span=span, left=left, right=right)
        held = self.check.hold(name, value, value.span)
        return _at(held, span)


def _at(value: Expr, span: Span) -> Expr:
    """The same value at another place."""
    kept = {f.name: getattr(value, f.name) for f in fields(value)}
    return type(value)(**{**kept, "span": span})


def stores(block: list[Statement]) -> Iterator[Statement]:
    """The stores in a block and the blocks within it."""
    for node in block:
        updates = isinstance(node, Let) and isinstance(node.value, Atomic)
        if updates or isinstance(node, Store | Scatter):
            yield node
        for part in fields(node):
            inner = getattr(node, part.name)
            if isinstance(inner, list):
                yield from stores([item for item in inner if isinstance(item, Statement)])


def only_values(check: Checker, node: ast.Statement) -> None:
    """Refuse inside a function what speaks about a kernel as a whole."""
    what = {ast.Require: "`require`", ast.Tune: "`tune`", ast.Schedule: "`schedule`"}.get(
        type(node)
    )
    if isinstance(node, ast.For) and isinstance(node.iterable, ast.Call):
        called = node.iterable.function
        if isinstance(called, ast.Name) and called.id == "parallel":
            what = "a `parallel` loop"
    if what is not None:
        check.report.fail(
            "only-in-a-kernel",
            f"{what} belongs to a kernel",
            [(node.span, "this stands in a function")],
            help="write it in the kernel; a function may ask with `static_assert`",
        )


def static_assert(check: Checker, node: ast.Call) -> None:
    """``static_assert(condition, "text")``: refuses what the compiler can already see to fail."""
    usage = 'static_assert(condition, "what must hold")'
    text = node.arguments[1] if len(node.arguments) == 2 else None
    if node.keywords or not isinstance(text, ast.Literal) or not isinstance(text.value, str):
        check.report.fail(
            "wrong-arguments",
            "`static_assert` is called in another way",
            [(node.span, "called here")],
            help=f"write `{usage}`",
        )
    if not check.constant(node.arguments[0], "what `static_assert` asks for"):
        labels = [(node.arguments[0].span, "this does not hold")]
        calls = check.calls.frames[::-1]
        if calls:  # The caller can mend it, so the call comes first: the nearest in another file.
            asked = node.span.file
            call = next((c for c in calls if c.span.file != asked), calls[0])
            labels.insert(0, (call.span, f"in this call of `{call.function.node.name}`"))
        check.report.fail("static-assert-fails", text.value, labels)
