"""From Lark's tree to the syntax tree: one method for each grammar rule, found by its name.

It decides nothing beyond what the shape of the text says: which names are reserved, and that
only names, subscripts and tuples of them can be assigned to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tilec.diagnostics import Diagnostic
from tilec.frontend import ast
from tilec.frontend.fold import MOST_BITS, TOO_LARGE
from tilec.source import SourceFile, Span

RESERVED = frozenset(
    {
        *(
            "and",
            "assert",
            "elif",
            "else",
            "fn",
            "for",
            "if",
            "import",
            "in",
            "kernel",
            "None",
            "not",
        ),
        *("or", "pass", "register", "require", "return", "schedule", "shared", "strict"),
        *("tune", "while"),
    }
)
"""Words that cannot be names."""


_CHAINS = {"binary": "", "bit_or_": "|", "bit_xor_": "^", "bit_and_": "&"}
"""Rules of two operands, and the operator where no token says it."""
MOST_LEVELS = 100
"""How deep a text nests at most, in rules: Python's own stack bounds what walks the tree."""


def too_deep(source: SourceFile, tree: Any) -> Diagnostic | None:
    """A refusal of a text that nests too deeply; the left operands of chains do not count."""
    todo = [(tree, 0)]
    while todo:
        item, level = todo.pop()
        if level > MOST_LEVELS:
            return nested_too_deeply(Span(source, item.meta.start_pos, item.meta.end_pos))
        for place, child in enumerate(item.children):
            if not hasattr(child, "data"):
                continue
            deeper = 0 if place == 0 and item.data in _CHAINS else 1
            if item.data == "if_else":  # each `elif` stands inside the `else` before it
                deeper += place // 2
            todo.append((child, level + deeper))
    return None


def nested_too_deeply(span: Span) -> Diagnostic:
    """What is said of a text that nests too deeply."""
    return Diagnostic(
        "nested-too-deeply",
        "this is nested too deeply",
        [(span, "what stands here has too much around it")],
        help="give names to parts of it",
    )


class AstBuilder:
    """Walks one parse tree; what it finds wrong is in ``errors``."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.errors: list[Diagnostic] = []

    # Helpers --------------------------------------------------------------------------------

    def span(self, item: Any) -> Span:
        """The span of a token or tree."""
        meta = item.meta if hasattr(item, "meta") else item
        end = meta.end_pos
        return Span(self.source, meta.start_pos, end)

    def visit(self, item: Any) -> Any:
        """The node for a tree."""
        return getattr(self, item.data)(item, *item.children)

    def many(self, items: Iterable[Any] | None) -> tuple[Any, ...]:
        """The nodes for several trees, absent ones left out."""
        return tuple(self.visit(item) for item in items or () if item is not None)

    def identifier(self, token: Any) -> ast.Name:
        """A name token as a node."""
        text = str(token)
        if text in RESERVED:
            self.errors.append(
                Diagnostic(
                    "reserved-word",
                    f"`{text}` is a word of the language and cannot be a name",
                    [(self.span(token), "used as a name here")],
                    help=f"call it `{text}_`",
                )
            )
        return ast.Name(self.span(token), text)

    def target(self, node: ast.Expression) -> ast.Expression:
        """Check that something can be assigned to."""
        if isinstance(node, ast.Tuple):
            for item in node.items:
                self.target(item)
        elif not isinstance(node, ast.Name | ast.Subscript | ast.Call):
            self.errors.append(
                Diagnostic(
                    "not-assignable",
                    "only a name or an element of an array can be assigned to",
                    [(node.span, "this is neither")],
                    help="write `name = ...` or `array[i, j] = ...`",
                )
            )
        return node

    # Top level ------------------------------------------------------------------------------

    def start(self, tree: Any, *items: Any) -> ast.Module:
        """The whole file."""
        nodes = [self.visit(item) for item in items if hasattr(item, "data")]
        return ast.Module(
            self.source,
            tuple(n for n in nodes if isinstance(n, ast.Import)),
            tuple(n for n in nodes if isinstance(n, ast.Constant)),
            tuple(n for n in nodes if isinstance(n, ast.Function)),
            tuple(n for n in nodes if isinstance(n, ast.Kernel)),
        )

    def import_module(self, tree: Any, place: Any, alias: Any, *end: Any) -> ast.Import:
        """``import a.b [as c]``."""
        name = None if alias is None else self.identifier(alias)
        module, is_file = self.visit(place)
        return ast.Import(self.span(place), module, is_file, name, ())

    def import_names(self, tree: Any, place: Any, *names: Any) -> ast.Import:
        """``from a.b import c, d``."""
        kept = self.many(n for n in names if hasattr(n, "data"))
        module, is_file = self.visit(place)
        return ast.Import(self.span(place), module, is_file, None, kept)

    def dotted(self, tree: Any, *names: Any) -> tuple[str, bool]:
        """``a.b``, and that it is no file."""
        return ".".join(map(str, names)), False

    def path(self, tree: Any, text: Any) -> tuple[str, bool]:
        """``"folder/file.tk"``, and that it is a file."""
        return str(text)[1:-1], True

    def imported(self, tree: Any, name: Any, alias: Any) -> ast.ImportedName:
        """``x [as y]``."""
        node = self.identifier(name)
        return ast.ImportedName(
            self.span(tree), node, node if alias is None else self.identifier(alias)
        )

    def constant(self, tree: Any, name: Any, value: Any, *end: Any) -> ast.Constant:
        """``NAME = value`` outside kernels."""
        node = self.visit(value)
        return ast.Constant(self.span(name).to(node.span), self.identifier(name), node)

    def kernel(self, tree: Any, name: Any, comptime: Any, params: Any, suite: Any) -> ast.Kernel:
        """A kernel."""
        return ast.Kernel(
            self.span(name),
            self.identifier(name).id,
            self.many(comptime.children) if comptime else (),
            self.many(params.children) if params else (),
            self.visit(suite),
        )

    def function(
        self, tree: Any, name: Any, comptime: Any, params: Any, results: Any, suite: Any
    ) -> ast.Function:
        """A function."""
        return ast.Function(
            self.span(name),
            self.identifier(name).id,
            self.many(comptime.children) if comptime else (),
            self.many(params.children) if params else (),
            self.many(results.children) if results else None,
            self.visit(suite),
        )

    def comptime_parameter(
        self, tree: Any, name: Any, kind: Any, default: Any
    ) -> ast.ComptimeParameter:
        """``NAME: kind = default``."""
        return ast.ComptimeParameter(
            self.span(tree),
            self.identifier(name),
            self.identifier(kind),
            self.visit(default) if default is not None else None,
        )

    def parameter(self, tree: Any, name: Any, mode: Any, type: Any) -> ast.Parameter:
        """``name: mode type``."""
        word = "in" if mode is None else str(mode.children[0])
        kind = self.visit(type) if type is not None else None
        return ast.Parameter(self.span(tree), self.identifier(name), word, kind)

    def type(self, tree: Any, name: Any, *dims: Any) -> ast.TypeText:
        """``T[M, K]``."""
        kept = self.many(dims)
        return ast.TypeText(self.span(tree), self.identifier(name), kept or None)

    # Statements -----------------------------------------------------------------------------

    def suite(self, tree: Any, *items: Any) -> tuple[ast.Statement, ...]:
        """A block."""
        return tuple(self.visit(item) for item in items if hasattr(item, "data"))

    def statement(self, tree: Any, simple: Any, end: Any) -> ast.Statement:
        """A statement on its own line."""
        node: ast.Statement = self.visit(simple)
        return node

    def header(self, tree: Any, last: Any) -> Span:
        """From the first character of a compound statement to the end of ``last``."""
        return Span(self.source, tree.meta.start_pos, self.span(last).end)

    def for_loop(self, tree: Any, names: Any, iterable: Any, join: Any, suite: Any) -> ast.For:
        """``for``."""
        return ast.For(
            self.header(tree, join or iterable),
            tuple(self.identifier(n) for n in names.children),
            self.visit(iterable),
            self.visit(join) if join else None,
            self.visit(suite),
        )

    def join(self, tree: Any, function: Any, names: Any) -> ast.Join:
        """``join merge(m, l)``."""
        kept = tuple(self.identifier(n) for n in names.children)
        return ast.Join(self.span(tree), self.identifier(function), kept)

    def while_loop(self, tree: Any, condition: Any, suite: Any) -> ast.While:
        """``while``."""
        span = self.header(tree, condition)
        return ast.While(span, self.visit(condition), self.visit(suite))

    def if_else(self, tree: Any, *parts: Any) -> ast.If:
        """``if``, ``elif`` and ``else``: conditions and blocks in turn, the last block or None."""
        otherwise: tuple[ast.Statement, ...] = self.visit(parts[-1]) if parts[-1] else ()
        pairs = list(zip(parts[:-1:2], parts[1:-1:2], strict=True))
        for condition, block in reversed(pairs):
            first = condition is pairs[0][0]
            span = self.header(tree, condition) if first else self.span(condition)
            node = ast.If(span, self.visit(condition), self.visit(block), otherwise)
            otherwise = (node,)
        return node

    def strict(self, tree: Any, suite: Any) -> ast.Strict:
        """``strict:``."""
        start: int = tree.meta.start_pos
        return ast.Strict(Span(self.source, start, start + len("strict")), self.visit(suite))

    def bare(self, tree: Any, value: Any) -> ast.Bare:
        """An expression alone."""
        return ast.Bare(self.span(tree), self.visit(value))

    def assignment(self, tree: Any, target: Any, value: Any) -> ast.Assign:
        """``target = value``."""
        left = self.target(self.visit(target))
        return ast.Assign(self.span(tree), left, self.visit(value), None)

    def augmented(self, tree: Any, target: Any, op: Any, value: Any) -> ast.Augmented:
        """``target += value``."""
        left = self.target(self.visit(target))
        return ast.Augmented(self.span(tree), left, str(op)[:-1], self.visit(value))

    def pinned(self, tree: Any, home: Any, pin: Any, name: Any, value: Any) -> ast.Assign:
        """``shared x = value``, ``register[rows] x = value``."""
        word = str(home.children[0])
        how: tuple[ast.Name | None, ast.Expression] | None = None
        if getattr(pin, "data", None) == "keyword":
            key, given = pin.children
            how = self.identifier(key), self.visit(given)
        elif pin is not None:
            how = None, self.visit(pin)
        return ast.Assign(self.span(tree), self.identifier(name), self.visit(value), word, how)

    def require(self, tree: Any, condition: Any) -> ast.Require:
        """``require``."""
        return ast.Require(self.span(tree), self.visit(condition))

    def assertion(self, tree: Any, condition: Any, text: Any) -> ast.Assert:
        """``assert``."""
        said = "" if text is None else str(text)[1:-1]
        return ast.Assert(self.span(tree), self.visit(condition), said)

    def tune(self, tree: Any, name: Any, choices: Any) -> ast.Tune:
        """``tune``."""
        return ast.Tune(self.span(tree), self.identifier(name), self.visit(choices))

    def schedule(self, tree: Any, *settings: Any) -> ast.Schedule:
        """``schedule``."""
        made = []
        for setting in settings:
            name, of, value = setting.children
            loop = self.identifier(of) if of is not None else None
            made.append(
                ast.Setting(self.span(setting), self.identifier(name), loop, self.visit(value))
            )
        return ast.Schedule(self.span(tree), tuple(made))

    def return_value(self, tree: Any, value: Any) -> ast.Return:
        """``return``."""
        return ast.Return(self.span(tree), self.visit(value))

    def pass_by(self, tree: Any, word: Any) -> ast.Pass:
        """``pass``."""
        return ast.Pass(self.span(word))

    # Expressions ----------------------------------------------------------------------------

    def name(self, tree: Any, token: Any) -> ast.Name:
        """A name."""
        return self.identifier(token)

    def integer(self, tree: Any, token: Any) -> ast.Literal:
        """``128``, ``0x80`` or ``0b1``."""
        text = str(token).replace("_", "").lower()
        base = {"0x": 16, "0b": 2}.get(text[:2], 10)
        if len(text) > MOST_BITS or int(text, base).bit_length() > MOST_BITS:
            return self.too_large(token)
        return ast.Literal(self.span(token), int(text, base))

    def floating(self, tree: Any, token: Any) -> ast.Literal:
        """``1.5`` or ``1e-3``."""
        value = float(str(token).replace("_", ""))
        return self.too_large(token) if math.isinf(value) else ast.Literal(self.span(token), value)

    def too_large(self, token: Any) -> ast.Literal:
        """A number that no element type holds, refused."""
        text = str(token)
        self.errors.append(
            Diagnostic(
                "literal-does-not-fit",
                f"{text if len(text) <= 20 else f'a number of {len(text)} digits'} is {TOO_LARGE}",
                [(self.span(token), "written here")],
                help="infinity is written `inf`",
            )
        )
        return ast.Literal(self.span(token), 0)

    def string(self, tree: Any, token: Any) -> ast.Literal:
        """``"text"``."""
        return ast.Literal(self.span(token), str(token)[1:-1])

    def none(self, tree: Any, token: Any) -> ast.Literal:
        """``None``."""
        return ast.Literal(self.span(token), None)

    def parens(self, tree: Any, inner: Any) -> ast.Expression:
        """``(x)`` is ``x``."""
        node: ast.Expression = self.visit(inner)
        return node

    def tuple(self, tree: Any, *items: Any) -> ast.Tuple:
        """``(a, b)``."""
        return ast.Tuple(self.span(tree), self.many(items))

    bare_tuple = tuple

    def list(self, tree: Any, *items: Any) -> ast.List:
        """``[a, b]``."""
        return ast.List(self.span(tree), self.many(items))

    def unary(self, tree: Any, op: Any, operand: Any) -> ast.Expression:
        """``-x``; the sign of a number belongs to the number."""
        inner = self.visit(operand)
        return ast.Unary(self.span(tree), str(op), inner)

    def binary(self, tree: Any, *parts: Any) -> ast.Expression:
        """``left op right``; chains such as ``a + b + c`` grow to the left and may be long."""
        chain = [tree]
        while getattr(chain[-1].children[0], "data", None) in _CHAINS:
            chain.append(chain[-1].children[0])
        node: ast.Expression = self.visit(chain[-1].children[0])
        for link in reversed(chain):
            op = _CHAINS[link.data] or str(link.children[1])
            node = ast.Binary(self.span(link), op, node, self.visit(link.children[-1]))
        return node

    bit_or_ = bit_xor_ = bit_and_ = binary

    def compare(self, tree: Any, *parts: Any) -> ast.Compare:
        """``a < b``."""
        ops = tuple(str(op) for op in parts[1::2])
        return ast.Compare(self.span(tree), ops, self.many(parts[0::2]))

    def call(self, tree: Any, function: Any, arguments: Any) -> ast.Call:
        """``f(x, y=z)``."""
        items = arguments.children if arguments else []
        plain = self.many(item for item in items if item.data != "keyword")
        named = [item.children for item in items if item.data == "keyword"]
        keywords = tuple((str(key), self.visit(value)) for key, value in named)
        return ast.Call(self.span(tree), self.visit(function), plain, keywords)

    def subscript(self, tree: Any, base: Any, items: Any) -> ast.Subscript:
        """``x[i, :]``."""
        return ast.Subscript(self.span(tree), self.visit(base), self.many(items.children))

    def whole(self, tree: Any, *parts: Any) -> ast.Slice:
        """``:`` alone, among the places of ``x.at(i - 1, :, fill=0)``."""
        return ast.Slice(self.span(tree), None, None, None)

    def slice(self, tree: Any, *parts: Any) -> ast.Slice:
        """``a:b:c``."""
        first, last, step = (self.visit(p) if p is not None else None for p in parts)
        return ast.Slice(self.span(tree), first, last, step)

    def attribute(self, tree: Any, base: Any, name: Any) -> ast.Attribute:
        """``x.T``."""
        return ast.Attribute(self.span(tree), self.visit(base), str(name))
