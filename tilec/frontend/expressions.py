"""Typing of expressions: from syntax to checked expressions, or a diagnostic.

One method for each kind of syntax node. An expression has no effect on names; statements and
scopes are the business of ``check``. Calls are handed to ``builtins``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from tilec.diagnostics import did_you_mean
from tilec.frontend import ast
from tilec.frontend.checked import (
    Apply,
    ArrayType,
    Axis,
    Broadcast,
    Const,
    Constant,
    Expand,
    Expr,
    ExtentValue,
    Fill,
    Let,
    Load,
    Product,
    Ref,
    Relation,
    ScalarType,
    Statement,
    TileType,
    Transposed,
    Variable,
)
from tilec.frontend.exposed import refuse_part
from tilec.frontend.fold import fold_binary, fold_relation, shown
from tilec.frontend.meet import (
    axes_of,
    dtype_of,
    elements,
    is_literal,
    is_weak,
    same_axes,
    same_dtype,
    settle,
    weak_const,
    with_dtype,
)
from tilec.frontend.names import (
    Binding,
    Broken,
    Function,
    Library,
    Meaning,
    Scope,
    SizeChoice,
)
from tilec.frontend.powers import power
from tilec.frontend.ranges import Known
from tilec.frontend.report import Abandoned, Report
from tilec.frontend.unknown import as_function, unknown
from tilec.ir.types import BOOL, DType
from tilec.source import Span

_ARITHMETIC = {
    "+": ("add", "number"),
    "-": ("sub", "number"),
    "*": ("mul", "number"),
    "/": ("div", "float"),
    "//": ("floordiv", "integer"),
    "%": ("mod", "integer"),
    "<<": ("shl", "integer"),
    ">>": ("shr", "integer"),
    "&": ("and", "bits"),
    "|": ("or", "bits"),
    "^": ("xor", "bits"),
}
_RELATIONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_HELD_AFTER = 32
"""Links of a chain after which its value becomes a variable: what walks expressions recurses."""
_STORAGE_ONLY = frozenset({"e4m3", "e5m2", "tf32"})


class Expressions:
    """Types expressions in a scope; ``Checker`` adds statements on top."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.scope = Scope()
        self.inside_parallel = False
        self.known = Known()
        self.block: list[Statement] = []
        self.dims: dict[str, tuple[Variable, int]] = {}
        """An array and its axis for each dimension that is known at launch only."""
        self.indices: dict[str, Variable] = {}
        """The index of each loop over tiles, by what its axes carry."""
        self.chosen: dict[str, Span] = {}
        """The same of every loop over tiles."""
        self.strict: Span | None = None
        """The word `strict` of the block around, or around the call of the function at hand."""
        self.parts: dict[str, Span] = {}
        """The loop of each index of a ``parallel`` whose tile size the compiler chooses."""
        self.inline: Callable[[Function, ast.Call], list[Expr]]
        """What a call of a ``fn`` returns; the checker of statements provides it."""

    def let(self, name: str, value: Expr) -> Expr:
        """A value under a name of its own, so that it is computed once."""
        integer = isinstance(value.type, ScalarType) and value.type.dtype.is_integer
        variable = Variable(name, value.type, value.span, value=value if integer else None)
        self.block.append(Let(value.span, variable, value))
        return Ref(value.type, value.span, variable)

    def readable(self, array: Variable, span: Span) -> None:
        """Refuse to read an ``out`` array."""
        if isinstance(array.type, ArrayType) and array.type.mode == "out":
            self.report.fail(
                "out-is-read",
                f"`{array.name}` is an out parameter and is never read",
                [(span, "read here"), (array.span, "declared here")],
                help="declare it `inout`",
            )

    def writable(self, array: Variable, span: Span) -> None:
        """Refuse to write an ``in`` array."""
        if isinstance(array.type, ArrayType) and array.type.mode == "in":
            self.report.fail(
                "in-is-written",
                f"`{array.name}` is an `in` parameter and is never written",
                [(span, "written here"), (array.span, "declared here")],
                help=f"declare it `{array.name}: out ...` or `inout`",
            )

    def along(self, axis: Axis, span: Span, what: str) -> None:
        """Note that a value is computed along an axis, all of which must be at hand."""
        if axis.origin in self.parts:
            refuse_part(self.report, axis, self.parts[axis.origin], span, what)

    def outside(self, span: Span, what: str) -> NoReturn:
        """Refuse what needs the iterations of a ``parallel`` around it."""
        self.report.fail(
            "outside-parallel",
            f"{what} exists only inside `parallel`",
            [(span, "this is outside")],
            help="put it into `for i, j in parallel(tiles(M), tiles(N)):`",
        )

    # Names ----------------------------------------------------------------------------------

    def look_up(self, name: ast.Name) -> Binding:
        """The binding of a name, or an error that helps."""
        binding = self.scope.find(name.id)
        if binding is None:
            unknown(self, name)
        if isinstance(binding.meaning, Broken):
            raise Abandoned
        return binding

    def meaning(self, name: ast.Name) -> Meaning:
        """What a name stands for."""
        return self.look_up(name).meaning

    # Entry points ---------------------------------------------------------------------------

    def expression(self, node: ast.Expression) -> Expr:
        """Any value: scalar, tile, index or array."""
        match node:
            case ast.Name():
                return self._name(node)
            case ast.Literal():
                return self._literal(node)
            case ast.Unary():
                return self._unary(node)
            case ast.Binary():
                return self._binary(node)
            case ast.Compare():
                return self._compare(node)
            case ast.Call():
                return self._call(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Attribute():
                return self._attribute(node)
        self.report.fail(
            "not-a-value",
            "a single value is needed here",
            [(node.span, f"this is a {type(node).__name__.lower()}")],
        )

    def value(self, node: ast.Expression) -> Expr:
        """Something to compute on: a scalar or a tile."""
        return elements(self.report, self.expression(node))

    def constant(self, node: ast.Expression, what: str) -> Constant:
        """A number that is known now."""
        found = self.expression(node)
        if not isinstance(found, Const):
            self.report.fail(
                "not-known-at-compile-time",
                f"{what} must be known when the kernel is compiled",
                [(node.span, "this is known at launch or later")],
                help="use a number or a parameter in `[]`",
            )
        return found.value

    def integer(self, node: ast.Expression, what: str) -> int:
        """An integer that is known now."""
        found = self.constant(node, what)
        if isinstance(found, bool) or not isinstance(found, int):
            self.report.fail(
                "wrong-element-type",
                f"{what} must be an integer",
                [(node.span, f"this is {found}")],
            )
        return found

    def dtype(self, node: ast.Expression, what: str) -> DType:
        """An element type."""
        meaning = self.meaning(node) if isinstance(node, ast.Name) else None
        if not isinstance(meaning, DType):
            self.report.fail(
                "not-an-element-type",
                f"{what} needs an element type",
                [(node.span, "this is none")],
                help="write one such as `f32` or `bf16`, or a parameter declared `T: dtype`",
            )
        return meaning

    # Leaves ---------------------------------------------------------------------------------

    def _name(self, node: ast.Name) -> Expr:
        meaning = self.meaning(node)
        if isinstance(meaning, Const):
            return Const(meaning.type, node.span, meaning.value)
        if isinstance(meaning, ExtentValue):
            return ExtentValue(meaning.type, node.span, meaning.dim)
        if isinstance(meaning, Ref):
            return Ref(meaning.type, node.span, meaning.variable)
        kinds = {
            DType: "an element type",
            SizeChoice: "a tile size",
            Function: "a function",
            Library: "an imported file",
        }
        self.report.fail(
            "not-a-value",
            f"`{node.id}` is {kinds[type(meaning)]}, not a value",
            [(node.span, "used as a value here")],
        )

    def _literal(self, node: ast.Literal) -> Expr:
        if isinstance(node.value, int | float):
            return weak_const(node.value, node.span)
        what = "`None` inserts an axis inside a subscript" if node.value is None else "a string"
        self.report.fail("not-a-value", "this is no value", [(node.span, what)])

    # Operators ------------------------------------------------------------------------------

    def _unary(self, node: ast.Unary) -> Expr:
        operand = self.value(node.operand)
        if node.op == "not":
            self._need_bool_scalar(operand, "not")
        if isinstance(operand, Const) and (is_weak(operand) or node.op == "not"):
            folded: dict[str, Constant] = {
                "-": -operand.value,
                "+": operand.value,
                "not": not operand.value,
            }
            if isinstance(operand.value, int):
                is_bool = isinstance(operand.value, bool)
                folded["~"] = not operand.value if is_bool else ~operand.value
            if node.op in folded:
                return weak_const(folded[node.op], node.span)
        if node.op == "+":
            self.need(operand, "number", "`+`")
            return operand
        op, kind = ("neg", "number") if node.op == "-" else ("not", "bits")
        self.need(operand, kind, f"`{node.op}`")
        return Apply(operand.type, node.span, op, (settle(self.report, operand),))

    def _binary(self, node: ast.Binary) -> Expr:
        """A chain from its first operand on: it may be long, and is held now and then."""
        chain = [node]
        while isinstance(chain[-1].left, ast.Binary):
            chain.append(chain[-1].left)
        left = self.value(chain[-1].left)
        for place, link in enumerate(reversed(chain), 1):
            left = self._link(link, left, self.value(link.right))
            if place % _HELD_AFTER == 0 and link is not node and not isinstance(left, Const):
                left = self.let("", left)
        return left

    def _link(self, node: ast.Binary, left: Expr, right: Expr) -> Expr:
        if node.op == "@":
            return self.product(left, right, node.span)
        if node.op in ("and", "or"):
            return self._logic(node, left, right)
        return self.arithmetic(node.op, left, right, node.span)

    def arithmetic(self, op: str, left: Expr, right: Expr, span: Span) -> Expr:
        """``left op right`` elementwise; a sum with a product continues that product."""
        if is_literal(left) and is_literal(right):
            return self._fold(op, left, right, span)
        if op == "**":
            return power(self, left, right, span)
        name, kind = _ARITHMETIC[op]
        left, right = same_dtype(self.report, (left, right))
        for side in (left, right):
            self.need(side, kind, f"`{op}`")
        left, right = same_axes(self.report, (left, right))
        if op == "+":
            for product, other in ((right, left), (left, right)):
                if isinstance(product, Product) and product.start is None:
                    start = other if isinstance(other.type, TileType) else None
                    if start is not None:
                        return replace(product, span=span, start=start)
        strict = self.strict is not None and dtype_of(left).is_float
        total = name == "floordiv" and not self._never_zero(left, right)
        return Apply(self.common_type(left, right), span, name, (left, right), strict, total)

    def _never_zero(self, over: Expr, by: Expr) -> bool:
        """Whether a divisor is a number other than 0, or is proved to be none."""
        while isinstance(by, Fill | Expand | Broadcast):
            by = by.operand
        return bool(by.value) if isinstance(by, Const) else self.known.divides(over, by)

    def common_type(self, *operands: Expr) -> ScalarType | TileType:
        """The type of an elementwise result."""
        tile = next((e for e in operands if isinstance(e.type, TileType)), operands[0])
        return with_dtype(tile, dtype_of(operands[0]))

    def _fold(self, op: str, left: Const, right: Const, span: Span) -> Expr:
        try:
            value = fold_binary(op, left.value, right.value)
        except (ArithmeticError, TypeError, ValueError) as error:
            self.report.fail(
                "no-such-number",
                f"`{op}` has no result for {shown(left.value)} and {shown(right.value)}",
                [(span, "computed here, while compiling")],
                notes=["it would be a division by zero"]
                if isinstance(error, ZeroDivisionError)
                else ["it is larger than any element type holds"],
                help="write the number that is meant",
            )
        return weak_const(value, span)

    def _compare(self, node: ast.Compare) -> Expr:
        dtypes = [self._named_dtype(operand) for operand in node.operands]
        if len(dtypes) == 2 and None not in dtypes and node.ops[0] in ("==", "!="):
            return weak_const((dtypes[0] == dtypes[1]) == (node.ops[0] == "=="), node.span)
        operands = [self.value(operand) for operand in node.operands]
        result: Expr | None = None
        for op, left, right in zip(node.ops, operands, operands[1:], strict=False):
            link = self._relation(op, left, right, left.span.to(right.span))
            result = link if result is None else self._both("and", result, link, node.span)
        assert result is not None
        result.span = node.span
        return result

    def _named_dtype(self, node: ast.Expression) -> DType | None:
        binding = self.scope.find(node.id) if isinstance(node, ast.Name) else None
        return binding.meaning if binding and isinstance(binding.meaning, DType) else None

    def _relation(self, op: str, left: Expr, right: Expr, span: Span) -> Expr:
        if isinstance(left, Const) and isinstance(right, Const):
            return weak_const(fold_relation(op, left.value, right.value), span)
        left, right = same_dtype(self.report, (left, right))
        if op not in ("==", "!="):
            for side in (left, right):
                self.need(side, "number", f"`{op}`")
        left, right = same_axes(self.report, (left, right))
        kind = self.common_type(left, right)
        out = ScalarType(BOOL) if isinstance(kind, ScalarType) else TileType(BOOL, kind.axes)
        return Relation(out, span, _RELATIONS[op], left, right)

    def _logic(self, node: ast.Binary, left: Expr, right: Expr) -> Expr:
        for side in (left, right):
            self._need_bool_scalar(side, node.op)
        return self._both(node.op, left, right, node.span)

    def _both(self, op: str, left: Expr, right: Expr, span: Span) -> Expr:
        for known, other in ((left, right), (right, left)):
            if isinstance(known, Const):
                decides = bool(known.value) == (op == "or")
                return Const(known.type, span, known.value) if decides else other
        left, right = same_axes(self.report, (left, right))
        return Apply(self.common_type(left, right), span, op, (left, right))

    def _need_bool_scalar(self, operand: Expr, op: str) -> None:
        if isinstance(operand.type, TileType):
            instead = {"and": "&", "or": "|", "not": "~"}[op]
            self.report.fail(
                "wrong-element-type",
                f"`{op}` combines single conditions, not tiles",
                [(operand.span, f"this is {operand.type}")],
                help=f"write `{instead}`, with each comparison in parentheses",
            )
        self.need(operand, "bool", f"`{op}`")

    def need(self, operand: Expr, kind: str, what: str) -> None:
        """Refuse an operand whose elements are not of a kind."""
        dtype = dtype_of(operand)
        fits = {
            "number": dtype.kind != "bool",
            "float": dtype.is_float or is_weak(operand),
            "integer": dtype.is_integer,
            "bits": dtype.is_integer or dtype == BOOL,
            "bool": dtype == BOOL,
        }[kind]
        if not fits:
            noun = {"bits": "integers or bools", "bool": "a condition"}.get(kind, f"{kind}s")
            text = operand.span.text
            helps = {"bool": f"compare it, as in `{text} != 0`"}
            if dtype.is_integer:
                helps["float"] = f"write `cast[f32]({text})` first"
            if dtype.is_float:
                helps["integer"] = f"write `cast[s32]({text})` first"
            self.report.fail(
                "wrong-element-type",
                f"{what} needs {noun}",
                [(operand.span, f"this is {dtype}")],
                help=helps.get(kind, ""),
            )
        if dtype.name in _STORAGE_ONLY or dtype.is_nibble:
            wide = dtype.held if dtype.is_nibble else "f32"
            self.report.not_yet(
                f"arithmetic on {dtype}", operand.span, f"`cast[{wide}]({operand.span.text})` first"
            )

    def product(self, left: Expr, right: Expr, span: Span) -> Expr:
        """``left @ right``."""
        from tilec.frontend.products import product

        return product(self, left, right, span)

    # Postfix --------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Expr:
        from tilec.frontend.builtins import call_builtin

        function = self.function_of(node)
        if function is None:
            return call_builtin(self, node)
        results = self.inline(function, node)
        if len(results) == 1:
            return results[0]
        if not results:
            self.report.fail(
                "no-value",
                "this call returns nothing",
                [(node.span, "used as a value here")],
                help="write the call on a line of its own",
            )
        names = ", ".join(f"x{n}" for n in range(len(results)))
        self.report.fail(
            "wrong-count",
            f"this call returns {len(results)} values",
            [(node.span, "one is needed here")],
            help=f"name them first: `{names} = {node.span.text}`",
        )

    def function_of(self, node: ast.Call) -> Function | None:
        """The ``fn`` that a call names; None where it names anything else."""
        target = node.function
        if isinstance(target, ast.Subscript):
            target = target.base
        meaning: Meaning | None = None
        if isinstance(target, ast.Name):
            binding = self.scope.find(target.id)
            meaning = binding.meaning if binding is not None else None
        elif isinstance(target, ast.Attribute):
            meaning = self.library_member(target)
        if isinstance(meaning, Broken):
            raise Abandoned
        return meaning if isinstance(meaning, Function) else None

    def library_member(self, node: ast.Attribute) -> Meaning | None:
        """What ``library.name`` stands for; None where there is no imported file before the dot."""
        binding = self.scope.find(node.base.id) if isinstance(node.base, ast.Name) else None
        if binding is None or not isinstance(binding.meaning, Library):
            return None
        library = binding.meaning
        found = library.file.own.get(node.name)
        if found is None or node.name.startswith("_"):
            self.report.fail(
                "unknown-name",
                f"`{library.name}` has no `{node.name}`",
                [(node.span, "asked for here")],
                help=did_you_mean(node.name, library.file.public()),
            )
        return found.meaning

    def several(self, node: ast.Expression) -> list[Expr]:
        """The values of a tuple, or of a call that returns several."""
        from tilec.frontend.builtins import call_builtin_of_several

        if isinstance(node, ast.Tuple):
            return [self.expression(item) for item in node.items]
        if isinstance(node, ast.Call):
            function = self.function_of(node)
            if function is not None:
                return self.inline(function, node)
            return call_builtin_of_several(self, node)
        return [self.expression(node)]

    def _attribute(self, node: ast.Attribute) -> Expr:
        member = self.library_member(node)
        if member is not None:
            if isinstance(member, Const):
                return Const(member.type, node.span, member.value)
            self.report.fail(
                "not-a-value",
                f"`{node.span.text}` is not a value",
                [(node.span, "used as a value here")],
            )
        if node.name == "T":
            base = self.value(node.base)
            axes = axes_of(base)
            if len(axes) != 2:
                self.report.fail(
                    "wrong-rank",
                    "`.T` exchanges the axes of a tile with two axes",
                    [(node.base.span, f"this is {base.type}")],
                )
            return Transposed(TileType(dtype_of(base), axes[::-1]), node.span, base)
        if node.name == "at":
            self.report.fail(
                "not-a-value",
                "`.at` is called with places",
                [(node.span, "used as a value here")],
                help=f"write `{node.span.text}(..., fill=0)`",
            )
        self.report.fail(
            "unknown-attribute",
            f"nothing is called `.{node.name}`",
            [(node.span, "asked for here")],
            help=as_function(self, node),
        )

    def _subscript(self, node: ast.Subscript) -> Expr:
        from tilec.frontend.places import gathered
        from tilec.frontend.subscripts import has_places, insert_axes, selection

        base = self.expression(node.base)
        if isinstance(base.type, ArrayType):
            assert isinstance(base, Ref)
            self.readable(base.variable, node.span)
            subscripts, axes = selection(self, base.variable, node)
            if has_places(subscripts):
                return gathered(self, base.variable, subscripts, None, node.span)
            dtype = base.type.dtype
            kind = TileType(dtype, axes) if axes else ScalarType(dtype)
            return Load(kind, node.span, base.variable, subscripts)
        return insert_axes(self, elements(self.report, base), node)
