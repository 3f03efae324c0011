"""The syntax tree: what the author wrote, with spans, before anything is known about it.

Nodes are frozen and compared by identity. Nothing here has a type or a meaning; parentheses,
comments and layout are gone, everything else is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.source import SourceFile, Span


@dataclass(frozen=True, eq=False)
class Node:
    """Base of all nodes."""

    span: Span


@dataclass(frozen=True, eq=False)
class Expression(Node):
    """Base of everything that may stand for a value."""


@dataclass(frozen=True, eq=False)
class Statement(Node):
    """Base of everything that may stand on a line of a block."""


@dataclass(frozen=True, eq=False)
class Name(Expression):
    """A name."""

    id: str


@dataclass(frozen=True, eq=False)
class Literal(Expression):
    """A number, string or None as written."""

    value: int | float | str | None


@dataclass(frozen=True, eq=False)
class Tuple(Expression):
    """``a, b`` or ``(a, b)``."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, eq=False)
class List(Expression):
    """``[a, b]``, used for choices."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, eq=False)
class Unary(Expression):
    """``-x``, ``+x``, ``~x`` or ``not x``."""

    op: str
    operand: Expression


@dataclass(frozen=True, eq=False)
class Binary(Expression):
    """``left op right``, also for ``and`` and ``or``."""

    op: str
    left: Expression
    right: Expression


@dataclass(frozen=True, eq=False)
class Compare(Expression):
    """``a < b`` or a chain ``a < b <= c``: one operator fewer than operands."""

    ops: tuple[str, ...]
    operands: tuple[Expression, ...]


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """``function(arguments, keyword=argument)``."""

    function: Expression
    arguments: tuple[Expression, ...]
    keywords: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, eq=False)
class Slice(Expression):
    """``start:stop:step`` inside a subscript; absent parts are None."""

    start: Expression | None
    stop: Expression | None
    step: Expression | None


@dataclass(frozen=True, eq=False)
class Subscript(Expression):
    """``base[items]``; also ``zeros[f32]``."""

    base: Expression
    items: tuple[Expression, ...]


@dataclass(frozen=True, eq=False)
class Attribute(Expression):
    """``base.name``."""

    base: Expression
    name: str


@dataclass(frozen=True, eq=False)
class Assign(Statement):
    """``target = value``; ``home`` is set for a pinned ``shared x = ...``.

    ``pin`` says how it lies there: ``register[rows] x = ...``, ``shared[swizzle=64] x = ...``.
    """

    target: Expression
    value: Expression
    home: str | None
    pin: tuple[Name | None, Expression] | None = None


@dataclass(frozen=True, eq=False)
class Augmented(Statement):
    """``target op= value``."""

    target: Expression
    op: str
    value: Expression


@dataclass(frozen=True, eq=False)
class Bare(Statement):
    """An expression standing alone."""

    value: Expression


@dataclass(frozen=True, eq=False)
class Pass(Statement):
    """``pass``."""


@dataclass(frozen=True, eq=False)
class Return(Statement):
    """``return value``."""

    value: Expression


@dataclass(frozen=True, eq=False)
class Require(Statement):
    """``require condition``: checked once, at launch."""

    condition: Expression


@dataclass(frozen=True, eq=False)
class Assert(Statement):
    """``assert condition, "text"``: checked while the kernel runs."""

    condition: Expression
    text: str


@dataclass(frozen=True, eq=False)
class Tune(Statement):
    """``tune NAME in [choices]``."""

    name: Name
    choices: Expression


@dataclass(frozen=True, eq=False)
class Setting(Node):
    """``stages=3``, or ``splits.j=8`` for one loop."""

    name: Name
    of: Name | None
    value: Expression


@dataclass(frozen=True, eq=False)
class Schedule(Statement):
    """``schedule stages=3, splits.j=8``: choices that the author makes."""

    settings: tuple[Setting, ...]


@dataclass(frozen=True, eq=False)
class Join(Node):
    """``join merge(m, l)``: how partial states of a split loop combine."""

    function: Name
    names: tuple[Name, ...]


@dataclass(frozen=True, eq=False)
class For(Statement):
    """``for names in iterable:``; ``span`` covers the header line only."""

    names: tuple[Name, ...]
    iterable: Expression
    join: Join | None
    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class While(Statement):
    """``while condition:``; ``span`` covers the header only."""

    condition: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class If(Statement):
    """``if condition: ... else: ...``; an ``elif`` is an ``If`` alone in ``otherwise``."""

    condition: Expression
    body: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class Strict(Statement):
    """``strict:``: no contraction and no approximate function inside."""

    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class TypeText(Node):
    """``bf16`` or ``T[M, K]``; ``dims`` is None for a scalar."""

    name: Name
    dims: tuple[Expression, ...] | None


@dataclass(frozen=True, eq=False)
class Parameter(Node):
    """``name: mode type``; ``type`` is None only in a generic ``fn``."""

    name: Name
    mode: str
    type: TypeText | None


@dataclass(frozen=True, eq=False)
class ComptimeParameter(Node):
    """``NAME: kind = default`` between the brackets of a kernel or function."""

    name: Name
    kind: Name
    default: Expression | None


@dataclass(frozen=True, eq=False)
class Kernel(Node):
    """A kernel; ``span`` covers its name."""

    name: str
    comptime: tuple[ComptimeParameter, ...]
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class Function(Node):
    """A function to be inlined where it is called; ``span`` covers its name."""

    name: str
    comptime: tuple[ComptimeParameter, ...]
    parameters: tuple[Parameter, ...]
    results: tuple[TypeText, ...] | None
    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False)
class Constant(Node):
    """``NAME = expression`` at the top of a file."""

    name: Name
    value: Expression


@dataclass(frozen=True, eq=False)
class ImportedName(Node):
    """``x`` or ``x as y`` of a ``from`` line."""

    name: Name
    alias: Name


@dataclass(frozen=True, eq=False)
class Import(Node):
    """``import a.b as c`` (``names`` empty) or ``from "file.tk" import x, y as z``.

    ``module`` is a shipped module's dotted name, or a path when ``is_file``.
    """

    module: str
    is_file: bool
    alias: Name | None
    names: tuple[ImportedName, ...]


@dataclass(frozen=True, eq=False)
class Module:
    """One ``.tk`` file."""

    source: SourceFile
    imports: tuple[Import, ...]
    constants: tuple[Constant, ...]
    functions: tuple[Function, ...]
    kernels: tuple[Kernel, ...]
