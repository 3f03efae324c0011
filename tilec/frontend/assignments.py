"""Assignments: names get values, elements of arrays are stored.

A name that an outer block owns keeps its element type and axes; nothing outside ``parallel`` is
assigned inside it. Storing never changes what a tile holds: tiles are values.
"""

from __future__ import annotations

from tilec.frontend import ast
from tilec.frontend.builtins import BUILTINS
from tilec.frontend.checked import (
    ArrayType,
    Const,
    Expr,
    ExtentValue,
    IndexType,
    Let,
    Ref,
    ScalarType,
    Store,
    TileType,
    Variable,
)
from tilec.frontend.expressions import Expressions
from tilec.frontend.meet import axes_of, elements, exactly, is_weak
from tilec.frontend.names import Binding, Broken
from tilec.frontend.pins import pinned
from tilec.frontend.places import is_at, scattered, write_at
from tilec.frontend.subscripts import has_places, selection
from tilec.frontend.updates import augmented
from tilec.source import Span


class Assignments(Expressions):
    """Expressions, and the statements that bind names or store elements."""

    def assign(self, node: ast.Assign) -> None:
        if isinstance(node.target, ast.Tuple):
            self._assign_several(node, node.target)
        elif isinstance(node.target, ast.Name):
            self.set_name(node.target, self.expression(node.value), node.span)
            if node.home is not None:
                self.block.append(pinned(self, node, node.target))
        else:
            self._store(node.target, node.value, node.span)

    def _assign_several(self, node: ast.Assign, target: ast.Tuple) -> None:
        """All values are computed before any target gets one."""
        pairs = [
            (to, value if isinstance(value.type, IndexType) else self.hold("", value, value.span))
            for to, value in self._matched(target, node.value)
        ]
        for to, value in pairs:
            if isinstance(to, ast.Name):
                self.set_name(to, value, node.span)
            else:
                self._store(to, value, node.span)

    def _matched(
        self, target: ast.Tuple, given: ast.Expression
    ) -> list[tuple[ast.Expression, Expr]]:
        """Each target with its value; a tuple of targets takes a tuple, or a call's results."""
        if isinstance(given, ast.Tuple) and len(given.items) == len(target.items):
            found: list[tuple[ast.Expression, Expr]] = []
            for to, item in zip(target.items, given.items, strict=True):
                if isinstance(to, ast.Tuple):
                    found += self._matched(to, item)
                else:
                    found.append((to, self.expression(item)))
            return found
        values = self.several(given)
        nested = next((to for to in target.items if isinstance(to, ast.Tuple)), None)
        if len(values) != len(target.items) or nested is not None:
            wrong = target if nested is None or len(values) != len(target.items) else nested
            count = len(values) if wrong is target else 1
            self.report.fail(
                "wrong-count",
                f"{len(wrong.items)} names for {count} values",
                [(wrong.span, f"{len(wrong.items)} here"), (given.span, f"{count}")],
                help="name each value once; `_` takes one that is not used",
            )
        return list(zip(target.items, values, strict=True))

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
            self.outside(span, "a tile")
        owner = self.scope.owner(name.id) or self.scope
        first = span
        if known is not None and owner is not self.scope:
            value = self._same_type(name, value, known)
            first = known.span or span
        owner.bind(name.id, Binding(self.hold(name.id, value, span), first))

    def hold(self, name: str, value: Expr, span: Span) -> Expr:
        """What a name stands for: literals and other names need no variable."""
        if isinstance(value, Ref) and not value.variable.name:
            value.variable.name = name  # workspace: it is called what it is first known as
        if isinstance(value, Const | ExtentValue) or not isinstance(
            value.type, ScalarType | TileType
        ):
            return value
        integer = isinstance(value.type, ScalarType) and value.type.dtype.is_integer
        variable = Variable(name, value.type, span, value=value if integer else None)
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

    def augmented(self, node: ast.Augmented) -> None:
        if isinstance(node.target, ast.Name):
            old = self.value(node.target)
            value = self.value(node.value)
            if node.op == "@":
                result = self.product(old, value, node.span)
            else:
                result = self.arithmetic(node.op, old, value, node.span)
            self.set_name(node.target, result, node.span)
            return
        if is_at(node.target) or self._array_target(node.target) is not None:
            augmented(self, node)
            return
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

    def _store(self, target: ast.Expression, given: ast.Expression | Expr, span: Span) -> None:
        """Store a value, or what an expression gives once the target is known to be one."""
        if is_at(target):
            value = self._stored_value(given)
            self.block.append(write_at(self, target, value, span))
            return
        array = self._array_target(target)
        if array is None:
            self._not_stored(target)
            return
        assert isinstance(array.type, ArrayType)
        assert isinstance(target, ast.Subscript)
        if not self.inside_parallel:
            self.outside(span, "a store")
        self.writable(array, span)
        subscripts, axes = selection(self, array, target)
        value = self._stored_value(given)
        if has_places(subscripts):
            self.block.append(scattered(self, array, list(subscripts), value, target.span, span))
            return
        value = exactly(
            self.report, value, array.type.dtype, axes, target.span, f"`{target.span.text}`"
        )
        self.block.append(Store(span, array, subscripts, value))

    def _stored_value(self, given: ast.Expression | Expr) -> Expr:
        return elements(self.report, given) if isinstance(given, Expr) else self.value(given)


def _change_help(name: str, before: Expr, after: Expr) -> str:
    assert isinstance(before.type, ScalarType | TileType)
    same_axes = axes_of(before) == axes_of(after)
    if same_axes and isinstance(after.type, ScalarType | TileType):
        return f"convert the new value: `cast[{before.type.dtype}](...)`"
    return f"use another name than `{name}`, or give it its full shape before the block"
